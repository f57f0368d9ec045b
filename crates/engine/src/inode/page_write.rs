//! Page write: pages of a file in flight to its device.
//!
//! Owns: the pages written, and whether their bytes may be stale when they arrive.
//! Does not own: the list of writes (engine), which waiter takes the result (shared completion).
//! Invariants: I3 a page is in one write at most; I4 a write keeps its pages pinned until the device is done with them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use headwater_core::dirty::Taken;
use headwater_core::units::{ByteRange, PageRange};
use headwater_io::{Completion, Finished, OpenFile, Route};

use crate::base::shared_completion::SharedCompletion;
use crate::inode::Inode;

/// Pages of a file in flight to its device.
#[derive(Debug)]
pub(crate) struct PageWrite {
    pub(crate) id: u64,
    pub(crate) inode: Arc<Inode>,
    pub(crate) taken: Taken,
    /// The range of the file from the first byte written to the last.
    pub(crate) bytes: ByteRange,
    /// Bytes written by the request: for a page that is dirty in several places, by the last one.
    pub(crate) requested_bytes: u64,
    /// The descriptors for the write.
    pub(crate) file: Arc<OpenFile>,
    pub(crate) began: Instant,
    /// Whether others have changed the file since it began.
    pub(crate) is_doubted: AtomicBool,
    /// Whether it goes past the kernel's page cache. The thread that begins the write changes it, under the lock of the file's state.
    is_direct: AtomicBool,
    /// Whether it ended before its first byte.
    pub(crate) is_withdrawn: AtomicBool,
    pub(crate) completion: SharedCompletion<()>,
}

impl PageWrite {
    /// A write of `taken`, just before its request is submitted.
    pub(crate) fn new(
        id: u64,
        (inode, file): (&Arc<Inode>, &Arc<OpenFile>),
        taken: Taken,
        bytes: ByteRange,
        requested_bytes: u64,
    ) -> PageWrite {
        let (inode, file, began, completion) =
            (inode.clone(), file.clone(), Instant::now(), SharedCompletion::new());
        let [is_doubted, is_direct, is_withdrawn] = [false; 3].map(AtomicBool::new);
        PageWrite {
            id,
            inode,
            taken,
            bytes,
            requested_bytes,
            file,
            began,
            is_doubted,
            is_direct,
            is_withdrawn,
            completion,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn pages(&self) -> PageRange {
        self.taken.pages
    }

    /// The range of the file from the first byte written to the last.
    pub(crate) fn bytes(&self) -> ByteRange {
        self.bytes
    }

    /// The way to the device. Called by the thread that begins the write, or under the lock of the file's state.
    pub(crate) fn route(&self) -> Route {
        if self.is_direct.load(Ordering::Relaxed) { Route::Direct } else { Route::Buffered }
    }

    /// Sets the way to the device, which is buffered from the start. Called under the lock of the file's state.
    pub(crate) fn take_route(&self, route: Route) {
        self.is_direct.store(route == Route::Direct, Ordering::Relaxed);
    }

    /// Notes that others have changed the file, perhaps after the bytes of this write reached it.
    pub(crate) fn doubt(&self) {
        self.is_doubted.store(true, Ordering::Release);
    }

    /// Whether the pages may be stale afterwards: dirty in part, or overwritten by others meanwhile.
    pub(crate) fn is_doubted(&self) -> bool {
        self.is_part() || self.is_doubted.load(Ordering::Acquire)
    }

    /// Whether this writes a page that is dirty in part.
    pub(crate) fn is_part(&self) -> bool {
        self.taken.parts.is_some()
    }

    /// The request is submitted: from now on any waiter may take its result.
    pub(crate) fn under_way(&self, completion: Completion) {
        self.completion.under_way(completion, ());
    }

    /// Marks the pages clean if they were written, and unpins them. From now on they may leave, though they count as in flight.
    pub(crate) fn let_go(&self, finished: Finished) -> io::Result<()> {
        let Finished { result, stopped_by, pages, .. } = finished;
        let outcome = match (result, stopped_by) {
            (Ok(written_bytes), _) if written_bytes as u64 >= self.requested_bytes => Ok(()),
            (Ok(_), Some(error)) | (Err(error), _) => Err(error),
            (Ok(_), None) => Err(io::ErrorKind::WriteZero.into()),
        };
        if let (Ok(()), Some(pages)) = (&outcome, &pages) {
            pages.clean();
        }
        // Only now may they be evicted: a reader that misses one reads the device, which has the bytes.
        drop(pages);
        outcome
    }

    /// Blocks until the write is done; the caller completes it.
    #[cfg(test)]
    pub(crate) fn finished(&self) -> Finished {
        let mut finished = None;
        self.completion.wait(|ended| {
            if let crate::base::shared_completion::Ended::Arrived(arrived, ()) = ended {
                finished = Some(arrived);
            }
        });
        finished.expect("nothing else takes it")
    }

    /// Whether the file has no name and no handle any more: pages that cannot be written would stay dirty for ever.
    pub(crate) fn is_of_no_file(&self) -> bool {
        self.inode.is_closed() && self.file.links().is_ok_and(|links| links == 0)
    }
}
