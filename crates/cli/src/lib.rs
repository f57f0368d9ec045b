//! Command line: one module for each command, as a library that the program `headwater` and the fuzz targets share.
//!
//! ```text
//!   args ─┬─ cat   ─► a file at a time: route ─► kernel (splice) | device (headwater) ─► standard output
//!         ├─ cp    ─► a file at a time: file without a name ─► shared blocks | direct reads and writes ─► its name
//!         ├─ stat  ─► a file at a time: what is cached, how it can be read, what lies below ─► text, JSON
//!         ├─ scan  ─► many files at a time: walk ─► direct reads ─► hash ─► lines in order, what cannot be read
//!         ├─ tune  ─► memory, then the device: sizes and depths, fewer and fewer ─► heat maps, profile
//!         ├─ bench ─► suites ─► one child process a row (bench-row) ─► table, JSON, report page
//!         └─ trace ─► replay ─► a simulated cache for each policy and size ─► table, JSON
//! ```
//!
//! Owns: which command runs, and how an error is printed.
//! Does not own: the commands, the command line (`args`), where results go (`output`, `standard`).

#![deny(unsafe_code)] // not forbidden, for the sake of `standard`

mod args;
mod bench;
mod cat;
mod cp;
mod examples;
#[cfg(fuzzing)]
pub mod fuzzing;
mod manual;
mod output;
mod readahead;
mod scan;
#[allow(unsafe_code)] // what runs before `main` is in a section of its own
mod standard;
mod stat;
mod storage;
mod trace;
mod tune;
mod units;

use std::process::ExitCode;

use args::{Command, parse};

/// Runs the command that the process was started with, and returns its exit code.
pub fn run() -> ExitCode {
    let command = match parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    match command {
        Command::Cat(arguments) => cat::run(&arguments),
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Man(arguments) => manual::run_man(&arguments),
        Command::Completions(arguments) => manual::run_completions(&arguments),
        Command::BenchRow(arguments) => bench::run_row(&arguments),
        Command::CpGuard(arguments) => cp::run_guard(&arguments.path),
    }
}

/// Complains of what went wrong, if anything did.
fn exit_code(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            complain(text);
            ExitCode::FAILURE
        }
    }
}

/// Says on standard error what went wrong, in one line. Names in it are quoted already; what else came from outside shows its
/// control characters instead of sending them to a terminal. A closed standard error is no reason to stop.
fn complain(text: impl std::fmt::Display) {
    use std::io::Write;
    let line = printable(&text.to_string().replace('\n', " "));
    let _ = writeln!(std::io::stderr(), "headwater: {line}");
}

/// The text with its control characters as Rust writes them.
fn printable(text: &str) -> String {
    let shown = |character: char| -> String {
        if character.is_control() { character.escape_default().collect() } else { character.into() }
    };
    text.chars().map(shown).collect()
}
