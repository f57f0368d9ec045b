//! Request: an operation on a file for a driver to carry out, and its result.
//!
//! ```text
//!   Transfer ── file ◄─► extents, which the request owns meanwhile
//!   WriteBack ─ pages of the cache ─► file: pinned, so that they stay as they are
//!   Fsync ───── bytes written before ─► the device
//! ```
//!
//! Owns: the memory or the pins while the request is under way, and a share of the file so that its descriptor stays open.
//! Does not own: the slot that it occupies.
//! Invariants: I1, I4: extents and pins are inside the request from submission to completion.

pub(crate) mod active;
pub(crate) mod attempt;
pub(crate) mod attributes;
pub(crate) mod call;
pub(crate) mod operations;
pub(crate) mod slot;
pub(crate) mod slot_table;
pub(crate) mod slots;
pub(crate) mod work;

use std::fmt;
use std::io;
use std::sync::Arc;

use headwater_core::units::PAGE_BYTES;

use crate::file::{OpenFile, Route};
use crate::memory::arena::Extents;
use crate::memory::page_cache::PinnedRun;
use crate::request::work::Work;
use crate::system::reject::RejectReason;
use crate::system::sys::{Direction, IO_SEGMENTS_MAX, SyncScope};

/// An operation for a driver to carry out.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Nearly all requests are transfers; boxing them would allocate for each.
#[non_exhaustive]
pub enum Request {
    /// Goes through the queue and does nothing: measures the queue.
    Nop,
    /// Moves bytes.
    Transfer(Transfer),
    /// Writes pages of the cache.
    WriteBack(WriteBack),
    /// Makes written data durable (`fsync`).
    Fsync(Fsync),
    /// A [`Call`](crate::Call); see [`Driver::call`](crate::Driver::call), which gives its result as what it is.
    Call(Box<Work>),
}

/// One transfer to be done.
#[derive(Debug)]
pub struct Transfer {
    /// Direction.
    pub direction: Direction,
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

/// Pages of the cache to be written to the file. Goes through ordinary rings even if the device supports polling: no thread spins
/// for it. If it is abandoned while it waits for a place in the queue, nothing is written; once in flight it is carried out,
/// and keeps its pins until then.
#[derive(Debug)]
pub struct WriteBack {
    /// The file.
    pub file: Arc<OpenFile>,
    /// Which of its descriptors.
    pub route: Route,
    /// First byte in the file.
    pub offset_bytes: u64,
    /// Bytes to write; no more than the pages hold behind `skip_bytes`, and at most 2 GiB.
    pub length_bytes: usize,
    /// Bytes at the beginning of the first page that are not written, less than a page.
    pub skip_bytes: usize,
    /// The pages, in file order, in at most 1024 pieces of memory.
    pub pages: PinnedRun,
}

/// Makes durable what had been written to a file, through any descriptor, when this was submitted. The result is 0 bytes. An
/// error means that earlier writes were lost; the kernel reports it once.
#[derive(Debug)]
pub struct Fsync {
    /// The file.
    pub file: Arc<OpenFile>,
    /// How much of it.
    pub scope: SyncScope,
}

/// A request that the kernel is done with.
#[derive(Debug)]
pub struct Finished {
    /// The memory, back from the driver.
    pub extents: Extents,
    /// The pages of a [`WriteBack`].
    pub pages: Option<PinnedRun>,
    /// Bytes transferred. Fewer than asked means that the file ended there, unless `stopped_by` tells otherwise, which it
    /// always does for writes.
    pub result: io::Result<usize>,
    /// Why the bytes beyond those transferred were not.
    pub stopped_by: Option<io::Error>,
}

/// A request that was not accepted, given back. As an [`io::Error`] it has the reason alone.
#[derive(Debug)]
pub struct Rejected {
    /// The request, with its memory.
    pub request: Request,
    pub(crate) reason: RejectReason,
}

impl Rejected {
    /// Why: `WouldBlock` for readahead that leaves the last places of the queue to others, `QuotaExceeded` if more than a million requests
    /// are outstanding or done and not taken, `Unsupported` in a child of the process that built the driver.
    pub fn kind(&self) -> io::ErrorKind {
        self.reason.kind()
    }
}

impl From<Rejected> for io::Error {
    fn from(rejected: Rejected) -> io::Error {
        rejected.reason.into()
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Rejected {}

impl Request {
    /// Asserts what the kernel or the driver would otherwise trip over later.
    pub(crate) fn check(&self) {
        let (length_bytes, capacity_bytes) = match self {
            Request::Nop | Request::Fsync(_) | Request::Call(_) => return,
            Request::Transfer(transfer) => {
                (transfer.length_bytes, transfer.extents.iter().map(|extent| extent.len()).sum())
            }
            Request::WriteBack(write) => {
                assert!(write.pages.pieces() <= IO_SEGMENTS_MAX, "the kernel takes as many pieces");
                assert!(write.skip_bytes < PAGE_BYTES, "what is skipped is a part of the first page");
                (write.length_bytes, write.pages.len_bytes().saturating_sub(write.skip_bytes))
            }
        };
        let span = self.span().expect("this request moves bytes");
        assert!(length_bytes > 0, "a request transfers at least one byte");
        assert!(length_bytes <= capacity_bytes, "a request fits its memory");
        assert!(i64::try_from(span.offset_bytes).is_ok(), "file offsets are below 2^63");
        assert!(
            span.route == Route::Buffered || span.file.direct().is_some(),
            "the file has a direct descriptor"
        );
        assert!(span.file.takes(span.route, span.offset_bytes, length_bytes), "a direct transfer is aligned");
    }

    /// The file that it is for.
    #[inline]
    pub(crate) fn file(&self) -> Option<&Arc<OpenFile>> {
        match self {
            Request::Nop | Request::Call(_) => None,
            Request::Transfer(Transfer { file, .. })
            | Request::WriteBack(WriteBack { file, .. })
            | Request::Fsync(Fsync { file, .. }) => Some(file),
        }
    }

    /// What moves and where, if anything does.
    #[inline]
    pub(crate) fn span(&self) -> Option<Span<'_>> {
        match self {
            Request::Nop | Request::Fsync(_) | Request::Call(_) => None,
            Request::Transfer(Transfer { direction, file, route, offset_bytes, length_bytes, .. }) => {
                Some(Span {
                    direction: *direction,
                    file,
                    route: *route,
                    offset_bytes: *offset_bytes,
                    length_bytes: *length_bytes,
                })
            }
            Request::WriteBack(WriteBack { file, route, offset_bytes, length_bytes, .. }) => Some(Span {
                direction: Direction::Write,
                file,
                route: *route,
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
            }),
        }
    }

    /// The memory, or the pins.
    pub(crate) fn into_memory(self) -> (Extents, Option<PinnedRun>) {
        match self {
            Request::Nop | Request::Fsync(_) | Request::Call(_) => (Extents::new(), None),
            Request::Transfer(transfer) => (transfer.extents, None),
            Request::WriteBack(write) => (Extents::new(), Some(write.pages)),
        }
    }
}

/// The part of a file that a request moves, whatever its memory.
pub(crate) struct Span<'a> {
    pub(crate) direction: Direction,
    pub(crate) file: &'a OpenFile,
    pub(crate) route: Route,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: usize,
}

impl Finished {
    /// What became of a request that was not even begun.
    pub(crate) fn rejected(request: Request, reason: RejectReason) -> Finished {
        let (extents, pages) = request.into_memory();
        Finished { extents, pages, result: Err(reason.into()), stopped_by: None }
    }
}

impl From<Transfer> for Request {
    fn from(transfer: Transfer) -> Request {
        Request::Transfer(transfer)
    }
}

impl From<WriteBack> for Request {
    fn from(write: WriteBack) -> Request {
        Request::WriteBack(write)
    }
}

impl From<Fsync> for Request {
    fn from(sync: Fsync) -> Request {
        Request::Fsync(sync)
    }
}
