//! Complain: errors as lines on standard error, and the exit code of a command.
//!
//! Owns: the form of the line.
//! Does not own: the texts of errors.

use std::process::ExitCode;

use headwater_measure::standard;

/// Success, or failure after its error was printed.
pub(crate) fn exit_code(done: Result<(), String>) -> ExitCode {
    exit_code_of(done.map(|()| ExitCode::SUCCESS))
}

/// The code of a command that ran to its end, or failure after its error was printed. A command that ends with its reader ends without a
/// word.
pub(crate) fn exit_code_of(done: Result<ExitCode, String>) -> ExitCode {
    done.unwrap_or_else(|text| {
        if standard::reader_has_gone() {
            return ExitCode::from(standard::READER_GONE);
        }
        complain(text);
        ExitCode::FAILURE
    })
}

/// Prints an error on standard error, in one line. The caller has quoted the names of files in it; control characters in the rest
/// are escaped, so that none reaches a terminal. A closed standard error is no reason to stop.
pub(crate) fn complain(text: impl std::fmt::Display) {
    use std::io::Write;
    let line = printable(&text.to_string().replace('\n', " "));
    let _ = writeln!(std::io::stderr(), "headwater: {line}");
}

/// The text with its control characters escaped as in Rust's literals.
pub(crate) fn printable(text: &str) -> String {
    let shown = |character: char| -> String {
        if character.is_control() { character.escape_default().collect() } else { character.into() }
    };
    text.chars().map(shown).collect()
}
