//! Reject reason: why a request is refused before it is started, also as an [`io::Error`].

use std::fmt;
use std::io;

/// Why an operation is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RejectReason {
    /// Readahead leaves the last places in the queue to others.
    NoPlace,
    /// More than [`Limits::OUTSTANDING_MAX`](headwater_core::limits::Limits::OUTSTANDING_MAX) results were not taken.
    TooMany,
    /// The driver belongs to the parent process.
    Forked,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::NoPlace => "no place in the queue for readahead",
            RejectReason::TooMany => "more than a million requests are outstanding or done and not taken",
            RejectReason::Forked => "the engine belongs to the parent process; build a new one after fork",
        })
    }
}

impl std::error::Error for RejectReason {}

impl RejectReason {
    pub(crate) const fn kind(self) -> io::ErrorKind {
        match self {
            RejectReason::NoPlace => io::ErrorKind::WouldBlock,
            RejectReason::TooMany => io::ErrorKind::QuotaExceeded,
            RejectReason::Forked => io::ErrorKind::Unsupported,
        }
    }
}

impl From<RejectReason> for io::Error {
    fn from(reason: RejectReason) -> io::Error {
        io::Error::new(reason.kind(), reason)
    }
}
