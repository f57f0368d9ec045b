//! Output: where results go, in the same way for every command.
//!
//! ```text
//!   nothing asked ─► text on standard output      --json ─► JSON there instead      --json=OUT ─► both: text, and a file
//! ```
//!
//! Owns: the option, the check before the work, the writing after it.
//! Does not own: texts and reports.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use os_display::Quotable;

use crate::shared::standard;

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct JsonArguments {
    /// Print JSON instead of text; with =OUT write it to that file, beside the text.
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = STANDARD_OUTPUT)]
    json: Option<PathBuf>,
}

/// Where JSON is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JsonTo<'a> {
    Nowhere,
    /// In place of the text.
    StandardOutput,
    File(&'a Path),
}

impl JsonArguments {
    pub(crate) fn to(&self) -> JsonTo<'_> {
        match self.json.as_deref() {
            None => JsonTo::Nowhere,
            Some(path) if path == Path::new(STANDARD_OUTPUT) => JsonTo::StandardOutput,
            Some(path) => JsonTo::File(path),
        }
    }
}

impl JsonTo<'_> {
    /// Not to be able to write the results is better known before the work.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn check(self) -> Result<(), String> {
        match self {
            JsonTo::File(path) => check_file(path),
            JsonTo::StandardOutput => standard::output().map(drop).map_err(|error| unwritten(&error)),
            JsonTo::Nowhere => Ok(()),
        }
    }

    /// The same of a command that prints: text, or JSON, goes to standard output.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn check_printed(self) -> Result<(), String> {
        standard::output().map_err(|error| unwritten(&error))?;
        self.check()
    }

    /// Whether text goes to standard output.
    pub(crate) fn wants_text(self) -> bool {
        self != JsonTo::StandardOutput
    }

    /// The same of a command whose standard output carries data: JSON goes to standard error instead.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn write_beside_data(self, json: impl FnOnce() -> String) -> Result<(), String> {
        if self == JsonTo::StandardOutput {
            let written =
                standard::error().and_then(|mut error| error.write_all(with_end(json()).as_bytes()));
            return written.map_err(|error| format!("failed to write to standard error: {error}"));
        }
        self.write(json)
    }

    /// Writes the JSON where it is wanted; `json` is made only then.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn write(self, json: impl FnOnce() -> String) -> Result<(), String> {
        match self {
            JsonTo::Nowhere => Ok(()),
            JsonTo::StandardOutput => print(&with_end(json())),
            JsonTo::File(path) => write_file(path, &with_end(json())),
        }
    }
}

/// Text on standard output. A reader that has gone is no error.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn print(text: &str) -> Result<(), String> {
    match standard::output().and_then(|mut output| output.write_all(text.as_bytes())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

/// Why results, or data, did not get to standard output.
pub(crate) fn unwritten(error: &io::Error) -> String {
    format!("failed to write to standard output: {error}")
}

/// # Errors
/// One sentence for the user.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("failed to write {}: {error}", path.maybe_quote()))
}

/// Whether a file can be written to. Leaves none that was not there.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn check_file(path: &Path) -> Result<(), String> {
    let was_there = path.exists();
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| format!("failed to open {}: {error}", path.maybe_quote()))?;
    if !was_there {
        // Nothing is lost if it stays: it is written to in the end.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn with_end(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

const STANDARD_OUTPUT: &str = "-";
