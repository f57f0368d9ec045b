//! Arguments: what can be typed, and what is said when it is wrong.
//!
//! Owns: options, their ranges and defaults, the texts of the help.
//! Does not own: checks that need the file or the device.

#[cfg(fuzzing)]
pub(crate) mod fuzzing;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::bench::arguments::RowArguments;
use crate::bench::command::BenchArguments;
use crate::cat::arguments::CatArguments;
use crate::cp::CopyArguments;
use crate::manual::{CompletionsArguments, ManArguments};
use crate::scan::ScanFilesArguments;
use crate::shared::complain::{complain, exit_code};
use crate::shared::output::unwritten;
use crate::shared::standard;
use crate::stat::StatArguments;
use crate::trace::arguments::TraceArguments;
use crate::tune::TuneArguments;

#[derive(Parser, Debug)]
#[command(name = "headwater", version, about = ABOUT, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Write files to standard output.
    #[command(after_help = crate::cat::arguments::EXAMPLES)]
    Cat(CatArguments),
    /// Copy files, keeping holes, sharing blocks where the file system can.
    #[command(after_help = crate::cp::EXAMPLES)]
    Cp(CopyArguments),
    /// Say what the kernel caches of files, how they can be read, and what lies below them.
    #[command(after_help = crate::stat::EXAMPLES)]
    Stat(StatArguments),
    /// Read files and whole trees at the speed of the device: hash them, verify them, or find what cannot be read.
    #[command(after_help = crate::scan::EXAMPLES)]
    Scan(ScanFilesArguments),
    /// Find the request size and the queue depth that suit a device, and use them from then on.
    #[command(after_help = crate::tune::EXAMPLES)]
    Tune(TuneArguments),
    /// Measure this machine's storage. Without a suite: all of them, in quick form.
    #[command(after_help = crate::bench::examples::BENCH_EXAMPLES, args_conflicts_with_subcommands = true)]
    Bench(BenchArguments),
    /// Run traces of other systems' accesses through the cache's decisions, without their data.
    #[command(after_help = crate::trace::arguments::EXAMPLES)]
    Trace(TraceArguments),
    /// Print man pages.
    #[command(after_help = crate::manual::MAN_EXAMPLES)]
    Man(ManArguments),
    /// Print what lets a shell complete commands and options.
    #[command(after_help = crate::manual::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
    /// One measurement in a process of its own.
    #[command(hide = true)]
    BenchRow(RowArguments),
    /// Removes an unfinished copy, or the cgroup of a measurement, if its maker ends.
    #[command(hide = true)]
    CpGuard(GuardArguments),
}

#[derive(Args, Debug)]
pub(crate) struct GuardArguments {
    /// The copy, or the cgroup.
    pub(crate) path: PathBuf,
}

/// All commands and options.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

/// The command of this process, or the exit code when it has been answered already.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    match Arguments::try_parse() {
        Ok(arguments) => Ok(arguments.command),
        Err(error) => Err(answer(&error)),
    }
}

/// Help and version as clap prints them; an error as one line.
fn answer(error: &clap::Error) -> ExitCode {
    if is_help(error) {
        return print_help(error);
    }
    complain(usage_error(error));
    ExitCode::from(EXIT_USAGE)
}

fn is_help(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// What is wrong with the command line, in one line.
fn usage_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<&str> = first.split_whitespace().collect();
    format!("{} (see --help)", words.join(" ").trim_start_matches("error: "))
}

/// Coloured on a terminal.
fn print_help(error: &clap::Error) -> ExitCode {
    let printed = if error.use_stderr() { Ok(()) } else { standard::output().map(drop) };
    match printed.and_then(|()| error.print()) {
        Err(failure) if failure.kind() != io::ErrorKind::BrokenPipe => exit_code(Err(unwritten(&failure))),
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

const ABOUT: &str = "Reads, copies, hashes and measures files at the speed of the device, and leaves the kernel's page cache as it is";

const EXAMPLES: &str = "\
Examples:
  headwater bench                           is your storage slow, or your API? a minute, no rights
  headwater bench --html report.html        the same as a page, with plots
  headwater tune /mnt/nvme                  what suits this device; engines use it from then on
  headwater cat big.log | grep -c error     read a file; whatever is cached stays cached
  headwater cp big.log /backup/             copy it, the whole or nothing
  headwater scan --hash blake3 photos/      hash a tree, many files at once
  headwater stat big.log                    what is cached of it, and how it can be read
  headwater trace replay t.csv --cache 1G   what a cache would make of a trace
  headwater man | man -l -                  the manual";

/// What shells and clap use for a command line that makes no sense.
const EXIT_USAGE: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// Goal: a child gets the same engine as its parent was asked for.
    #[test]
    fn engine_arguments_survive_a_round_trip() {
        let line = ["headwater", "cat", "--memory", "5M", "--driver", "threads", "--queue-depth", "7"];
        let Command::Cat(parsed) = Arguments::parse_from(line).command else { panic!("cat was asked for") };
        let again =
            ["headwater".to_owned(), "cat".to_owned()].into_iter().chain(parsed.engine.to_arguments());
        let Command::Cat(again) = Arguments::parse_from(again).command else { panic!("cat was asked for") };
        assert_eq!(format!("{:?}", again.engine), format!("{:?}", parsed.engine));
    }
}
