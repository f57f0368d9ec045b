//! Headwater: the program; all that it does is in the library of this crate.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    headwater_cli::run()
}
