//! Error: what went wrong, as a line for a person.
//!
//! Owns: the words.
//! Does not own: where they are printed (`main`).

use std::io;
use std::path::{Path, PathBuf};

use headwater_measure::standard::Unread;
use os_display::Quotable;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be used.
    #[error("{}: {source}", path.maybe_quote())]
    File {
        /// Which.
        path: PathBuf,
        /// How the system puts it.
        source: io::Error,
    },
    /// The folder does not hold what `generate` writes.
    #[error("{} holds no TPC-H data ({reason}); `headwater-tpch generate --scale 1 --folder {}` writes it", folder.maybe_quote(), folder.maybe_quote())]
    NoData {
        /// The folder.
        folder: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// DataFusion could not run a query.
    #[error("{what}: {source}")]
    Query {
        /// Which query or table.
        what: String,
        /// Its words.
        source: Box<datafusion::error::DataFusionError>,
    },
    /// Stores disagree about an answer, or an answer is not the one that is published.
    #[error("{query}: {store} gives another answer than {other}: {difference}")]
    Answer {
        /// The query.
        query: String,
        /// The store that was asked later.
        store: String,
        /// The store that was asked first, or the published answers.
        other: String,
        /// The first difference.
        difference: String,
    },
    /// Nothing reads the results any more, which ends a program that asked to end with its reader; this one does not ask.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// For `map_err` of what the system does with a path.
    pub fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::File { path: path.as_ref().to_owned(), source }
    }

    /// For `map_err` of what DataFusion does for a query or a table.
    pub fn query(what: impl Into<String>) -> impl FnOnce(datafusion::error::DataFusionError) -> Error {
        move |source| Error::Query { what: what.into(), source: Box::new(source) }
    }

    /// For `map_err` of all else.
    pub fn other(what: &str) -> impl FnOnce(&dyn std::fmt::Display) -> Error {
        move |source| Error::Other(format!("{what}: {source}"))
    }
}
