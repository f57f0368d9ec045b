//! Complain: how an error is printed.
//!
//! Owns: one line on standard error, and the exit code that follows.
//! Does not own: the errors.

use std::process::ExitCode;

/// Complains of what went wrong, if anything did.
pub(crate) fn exit_code(done: Result<(), String>) -> ExitCode {
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
pub(crate) fn complain(text: impl std::fmt::Display) {
    use std::io::Write;
    let line = printable(&text.to_string().replace('\n', " "));
    let _ = writeln!(std::io::stderr(), "headwater: {line}");
}

/// The text with its control characters as Rust writes them.
pub(crate) fn printable(text: &str) -> String {
    let shown = |character: char| -> String {
        if character.is_control() { character.escape_default().collect() } else { character.into() }
    };
    text.chars().map(shown).collect()
}
