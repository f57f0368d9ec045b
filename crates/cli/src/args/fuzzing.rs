//! Fuzzing: the answer to a command line, without running the command.

use std::ffi::OsString;

use clap::{Command as Definition, Parser};

use super::{Arguments, Command, definition, is_help, understood, usage_error};

/// The answer to a command line.
pub enum Answer {
    /// A command; it is not run.
    Command,
    /// Help or the version.
    Help,
    /// An error, in one line.
    Usage(String),
}

/// Parses a command line, the name of the program first.
///
/// # Panics
/// If the memory, driver and queue depth of a command are not the same when they are passed on to a child process.
pub fn answer_to(line: &[OsString]) -> Answer {
    match understood(line.iter().cloned()) {
        Ok(command) => {
            check(&command);
            Answer::Command
        }
        Err(error) if is_help(&error) => Answer::Help,
        Err(error) => Answer::Usage(usage_error(&error)),
    }
}

/// Every command, option and value that has a name.
pub fn vocabulary() -> Vec<String> {
    let mut whole = definition();
    whole.build();
    let mut words = Vec::new();
    collect(&whole, &mut words);
    words.sort();
    words.dedup();
    words
}

fn check(command: &Command) {
    let Command::Cat(arguments) = command else { return };
    let line = ["headwater".to_owned(), "cat".to_owned()].into_iter().chain(arguments.engine.to_arguments());
    let Command::Cat(again) = Arguments::parse_from(line).command else { panic!("cat was asked for") };
    assert_eq!(format!("{:?}", again.engine), format!("{:?}", arguments.engine));
}

fn collect(command: &Definition, words: &mut Vec<String>) {
    words.push(command.get_name().to_owned());
    for argument in command.get_arguments() {
        words.extend(argument.get_long().map(|name| format!("--{name}")));
        words.extend(argument.get_short().map(|name| format!("-{name}")));
        words.extend(argument.get_possible_values().iter().map(|value| value.get_name().to_owned()));
        words.extend(
            argument.get_default_values().iter().filter_map(|value| value.to_str().map(str::to_owned)),
        );
    }
    command.get_subcommands().for_each(|sub| collect(sub, words));
}
