//! Failure: what went wrong with one of two files.
//!
//! Owns: which file it concerns, the words for a source that changes.
//! Does not own: the sentence, what follows from a failure.

use std::io;

use headwater::ByteRange;

/// An error, and the file that it concerns.
pub(super) struct Failure {
    pub(super) side: Side,
    pub(super) offset_bytes: Option<u64>,
    pub(super) error: io::Error,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Source,
    Target,
}

impl Failure {
    pub(super) fn of_target(error: impl Into<io::Error>) -> Failure {
        Failure { side: Side::Target, offset_bytes: None, error: error.into() }
    }

    pub(super) fn of_source(error: impl Into<io::Error>) -> Failure {
        Failure { side: Side::Source, offset_bytes: None, error: error.into() }
    }

    /// The source ends before this range does.
    pub(super) fn became_shorter(range: ByteRange) -> Failure {
        let text = "it became shorter while it was copied";
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, text);
        Failure { side: Side::Source, offset_bytes: Some(range.start), error }
    }

    /// The source goes on where its copy ends.
    pub(super) fn became_longer(at_bytes: u64) -> Failure {
        let error = io::Error::new(io::ErrorKind::InvalidData, "it became longer while it was copied");
        Failure { side: Side::Source, offset_bytes: Some(at_bytes), error }
    }
}
