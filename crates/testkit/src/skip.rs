//! Skipping: a test that cannot run here says so, and fails where that must not happen.

use std::env;
use std::fmt;
use std::io::{self, Write};

/// Why something a test wanted is not to be had on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// Prints `skipped: <reason>`; the caller then returns from its test.
///
/// # Panics
/// When the variable [`MUST_NOT_SKIP`] is set to 1: on a machine that can run everything a skip is a failure.
pub fn skip(reason: impl fmt::Display) {
    assert!(!env::var(MUST_NOT_SKIP).is_ok_and(|value| value == "1"), "{MUST_NOT_SKIP} is set: {reason}");
    lack(reason);
}

/// The same for a tool that is not promised, such as a browser or a rare command to compare with: never a failure.
pub fn lack(reason: impl fmt::Display) {
    // Not `eprintln!`: the test harness captures that, and nobody would see a skip in a run that passes.
    // A closed stderr is no reason to fail a test.
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

/// The environment variable that turns skips into failures when it is 1.
pub const MUST_NOT_SKIP: &str = "HEADWATER_MUST_NOT_SKIP";
