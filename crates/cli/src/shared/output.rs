//! Output: where results go, in the same way for every command.
//!
//! ```text
//!   no option ─► text on standard output   --json ─► JSON on standard output   --json=OUT ─► text on standard output, JSON in OUT
//! ```
//!
//! Owns: the option `--json`, when files are checked before the work, the writing after it.
//! Does not own: texts and reports, the check itself (`headwater-measure`).

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::Args;
use headwater_io::close_file;
use headwater_measure::{Shown, result_file, standard};
use os_display::Quotable;
use serde::Serialize;

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct JsonArguments {
    /// Print JSON instead of text; with =OUT print the text and write the JSON to that file.
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = STANDARD_OUTPUT)]
    json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct WideArguments {
    /// Show all columns of tables, also those that do not fit the terminal.
    #[arg(long)]
    wide: bool,
}

impl WideArguments {
    pub(crate) fn shown(&self) -> Shown {
        if self.wide { Shown::All } else { Shown::Fitting }
    }
}

/// Where the JSON goes.
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

impl<'a> JsonTo<'a> {
    /// The same, if the results would not go over one of these, which the command reads.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn beside<P: AsRef<Path>>(
        self,
        inputs: impl IntoIterator<Item = P>,
    ) -> Result<JsonTo<'a>, String> {
        if let JsonTo::File(path) = self {
            check_beside(path, inputs)?;
        }
        Ok(self)
    }

    /// Checks before the work whether the results can be written after it.
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

    /// The same check for a command that prints its text, or its JSON, on standard output.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn check_printed(self) -> Result<(), String> {
        standard::output().map_err(|error| unwritten(&error))?;
        self.check()
    }

    /// Has a command without another file of results end with the reader of standard output: nothing else would take what it measures.
    pub(crate) fn end_with_reader(self, other_file: Option<&Path>) {
        if !matches!(self, JsonTo::File(_)) && other_file.is_none() {
            standard::end_with_reader();
        }
    }

    /// Whether the text for people goes to standard output, that is, JSON does not.
    pub(crate) fn wants_text(self) -> bool {
        self != JsonTo::StandardOutput
    }

    /// Writes results as JSON where the user wants it.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn write_results(self, results: &impl Serialize) -> Result<(), String> {
        self.write(|| json(results))
    }

    /// Prints the text, unless JSON takes its place, and writes results as JSON where the user wants it, whichever of the two fails.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn give(self, text: impl FnOnce() -> String, results: &impl Serialize) -> Result<(), String> {
        let printed = if self.wants_text() { print(&text()) } else { Ok(()) };
        both(printed, self.write_results(results))
    }

    /// Writes results of a command whose standard output carries data: standard error takes the JSON instead.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn write_beside_data(self, results: &impl Serialize) -> Result<(), String> {
        if self != JsonTo::StandardOutput {
            return self.write_results(results);
        }
        let written = standard::error().and_then(|mut error| error.write_all(json(results).as_bytes()));
        written.map_err(|error| format!("failed to write to standard error: {error}"))
    }

    /// Writes JSON that the caller forms; `json` runs only where the user wants JSON.
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

/// Refuses a file of results that is one of the inputs: it would be overwritten.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn check_beside<P: AsRef<Path>>(
    result: &Path,
    inputs: impl IntoIterator<Item = P>,
) -> Result<(), String> {
    if inputs.into_iter().any(|input| is_same(result, input.as_ref())) {
        return Err(format!("failed to write {}: it is one of the files to read", result.maybe_quote()));
    }
    Ok(())
}

/// Whether both are there, keep what is written, and are one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        let found = std::fs::metadata(path).ok().filter(|found| !found.file_type().is_char_device())?;
        Some((found.dev(), found.ino()))
    };
    id(one).is_some() && id(one) == id(other)
}

/// # Errors
/// Those of the two, as one sentence.
pub(crate) fn both(first: Result<(), String>, second: Result<(), String>) -> Result<(), String> {
    match (first, second) {
        (Err(first), Err(second)) => Err(format!("{first}; {second}")),
        (first, second) => first.and(second),
    }
}

/// Results as indented JSON, with a line feed at the end.
pub(crate) fn json(results: &impl Serialize) -> String {
    with_end(
        serde_json::to_string_pretty(results).expect("results have only numbers, texts and keys of text"),
    )
}

/// Prints text on standard output, as [`standard::print`] does.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn print(text: &str) -> Result<(), String> {
    standard::print(text).map_err(|error| unwritten(&error))
}

/// The error text for results, or data, that standard output did not take.
pub(crate) fn unwritten(error: &io::Error) -> String {
    format!("failed to write to standard output: {error}")
}

/// # Errors
/// One sentence for the user.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), String> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        close_file(file.into())
    };
    write().map_err(|error| format!("failed to write {}: {error}", path.maybe_quote()))
}

/// Closes a duplicate of standard output: a file system that sends what was written only then (NFS, SMB, FUSE) reports here what it could
/// not.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn close() -> Result<(), String> {
    // One that was closed from the start has been reported by those that have results.
    let Ok(output) = standard::output() else { return Ok(()) };
    close_file(output.into()).map_err(|error| unwritten(&error))
}

/// Checks before the work that a file can be written to after it, and leaves what is there as it is.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn check_file(path: &Path) -> Result<(), String> {
    result_file::check(path).map_err(|error| format!("failed to open {}: {error}", path.maybe_quote()))
}

fn with_end(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

const STANDARD_OUTPUT: &str = "-";
