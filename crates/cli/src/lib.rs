//! Command line: one module for each command, as a library that the program `headwater` and the fuzz targets share.
//!
//! ```text
//!   args ─┬─ cat   ─► a file at a time: route ─► kernel (splice) | device (headwater) ─► standard output
//!         ├─ cp    ─► a file at a time: file without a name ─► shared blocks | direct reads and writes ─► its name
//!         ├─ stat  ─► a file at a time: cached pages, direct I/O, storage below ─► text, JSON
//!         ├─ doctor ─► what the kernel, the file system and the device allow ─► text, JSON
//!         ├─ scan  ─► many files at a time: walk ─► direct reads ─► hash ─► lines in order, unreadable places
//!         ├─ tune  ─► memory, then the device: request sizes and queue depths ─► heat maps, profile
//!         ├─ bench ─► suites ─► one child process a row (bench-row) ─► table, JSON, report page
//!         └─ trace ─► replay ─► a simulated cache for each policy and size ─► table, JSON
//! ```
//
// Owns: which command runs, and how an error is printed.
// Does not own: the commands, the command line (`args`), where results go (`shared`).

#![forbid(unsafe_code)]
// `println!` and `eprintln!` panic where the stream is full, and lose what is printed where it is closed: `output::print` and `complain` do neither.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bench;
mod cat;
mod cp;
mod doctor;
#[cfg(fuzzing)]
pub mod fuzzing;
mod manual;
mod scan;
mod shared;
mod stat;
mod trace;
mod tune;

use std::process::ExitCode;

use args::{Command, Internal, parse};
use shared::complain::complain;
use shared::output;

/// Runs the command that the process was started with, and returns its exit code.
pub fn run() -> ExitCode {
    let command = match parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let code = match command {
        Command::Cat(arguments) => cat::run(&arguments),
        Command::Cp(arguments) => cp::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Man(arguments) => manual::run_man(&arguments, args::definition()),
        Command::Completions(arguments) => manual::run_completions(&arguments, args::definition()),
        Command::Internal(Internal::BenchRow(arguments)) => bench::run_row(&arguments),
        Command::Internal(Internal::CpGuard(arguments)) => cp::run_guard(&arguments.path),
    };
    // What a server refuses of standard output is reported when it is closed.
    match output::close() {
        Err(text) if code == ExitCode::SUCCESS => {
            complain(text);
            ExitCode::FAILURE
        }
        _ => code,
    }
}
