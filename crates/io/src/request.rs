//! Request: one positioned transfer between a file and frame memory, and what became of it.
//!
//! Owns: the frame memory while the transfer is under way, and a share of the file so that its descriptor stays open.
//! Does not own: the slot that it occupies.
//! Invariants: I1, I4: the extents are inside the request from submission to completion.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::arena::Extents;
use crate::file::{OpenFile, Route};
use crate::sys::Operation;

/// What a driver is asked to do.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Nearly all requests are transfers; boxing them would allocate for each.
pub enum Request {
    /// Goes through the queue and does nothing: measures the queue.
    Nop,
    /// Moves bytes.
    Transfer(Transfer),
}

/// One transfer to be done.
#[derive(Debug)]
pub struct Transfer {
    /// Direction.
    pub operation: Operation,
    /// The file.
    pub file: Arc<OpenFile>,
    /// Which of its descriptors.
    pub route: Route,
    /// First byte in the file.
    pub offset_bytes: u64,
    /// Bytes to transfer; no more than the extents hold together, and at most 2 GiB.
    pub length_bytes: usize,
    /// The memory, in file order.
    pub extents: Extents,
}

/// A request that the kernel is done with.
#[derive(Debug)]
pub struct Finished {
    /// The memory, back from the driver.
    pub extents: Extents,
    /// Bytes transferred. Fewer than asked means that the file ended there, unless `stopped_by` tells otherwise.
    pub result: io::Result<usize>,
    /// Why the bytes beyond those transferred were not.
    pub stopped_by: Option<io::Error>,
}

/// A request that was not accepted, given back.
#[derive(Debug)]
pub struct Rejected {
    /// The request, with its memory.
    pub request: Request,
    /// Why.
    pub reason: RejectReason,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Rejected {}

/// Why a driver does not accept a request.
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

impl From<RejectReason> for io::Error {
    fn from(reason: RejectReason) -> io::Error {
        let kind = match reason {
            RejectReason::NoPlace => io::ErrorKind::WouldBlock,
            RejectReason::TooMany => io::ErrorKind::QuotaExceeded,
            RejectReason::Forked => io::ErrorKind::Unsupported,
        };
        io::Error::new(kind, reason)
    }
}

impl Request {
    /// Asserts what the kernel or the driver would otherwise trip over later.
    pub(crate) fn check(&self) {
        let Request::Transfer(transfer) = self else { return };
        let capacity_bytes: usize = transfer.extents.iter().map(|extent| extent.len()).sum();
        assert!(transfer.length_bytes > 0, "a request transfers at least one byte");
        assert!(transfer.length_bytes <= capacity_bytes, "a request fits its extents");
        assert!(i64::try_from(transfer.offset_bytes).is_ok(), "file offsets are below 2^63");
        assert!(
            transfer.route == Route::Buffered || transfer.file.direct().is_some(),
            "the file has a direct descriptor"
        );
    }
}

impl Finished {
    /// What became of a request that was not even begun.
    pub(crate) fn rejected(request: Request, reason: RejectReason) -> Finished {
        Finished { extents: request.into_extents(), result: Err(reason.into()), stopped_by: None }
    }
}

impl Request {
    pub(crate) fn into_extents(self) -> Extents {
        match self {
            Request::Nop => Extents::new(),
            Request::Transfer(transfer) => transfer.extents,
        }
    }
}

impl From<Transfer> for Request {
    fn from(transfer: Transfer) -> Request {
        Request::Transfer(transfer)
    }
}
