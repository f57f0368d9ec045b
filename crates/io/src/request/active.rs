//! Active: a request under way, attempt by attempt.
//!
//! ```text
//!   prepare ─► Attempt ─► (kernel) ─► record ─┬─ all moved, end of file, error ─► Finished
//!      ▲                                      └─ short, EINTR, EAGAIN ─► Again ─┐
//!      └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Owns: how much of a request is done, the range of its next attempt, whether another follows.
//! Does not own: the storage of requests (slots), calls of several steps (work).
//! Invariants: I4 as for attempts; I5 recording allocates nothing.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use headwater_core::limits::Limits;

use crate::file::Route;
use crate::memory::arena::Extents;
use crate::request::attempt::{Attempt, Segments, SyncAttempt, TransferAttempt, Verdict, build_segments};
use crate::request::work::Work;
use crate::request::{Finished, Request, Span, Transfer};
use crate::system::sys::{self, Direction, IoSegment};

/// A request with its progress.
pub(crate) struct Active {
    pub(super) request: Request,
    done_bytes: usize,
    /// Attempts since the last byte moved.
    fruitless_attempts: u32,
    /// When the request is done: bytes moved, or why none were.
    result: io::Result<usize>,
    /// The error behind the bytes that were moved.
    stopped_by: Option<io::Error>,
    /// What the attempt under way moves, if it is more than one segment. The kernel may read it until the attempt is
    /// over.
    segments: Vec<IoSegment>,
}

impl Active {
    /// Makes one in its place, of a request that is taken out and leaves a [`Request::Nop`]. Field by field: made elsewhere, a request would
    /// be copied twice, and one that does nothing would be copied at all.
    #[inline]
    pub(super) fn write_into(body: &mut MaybeUninit<Active>, request: &mut Request) {
        // Now, because later attempts may be prepared while completions are handled (I5).
        let segments = Vec::with_capacity(Active::segments_max(request));
        let place = body.as_mut_ptr();
        // SAFETY: each field is written once, in memory for it, and nothing in between panics. The request is moved: what is left in its
        // place is written over without being dropped.
        unsafe {
            match request {
                Request::Nop => (&raw mut (*place).request).write(Request::Nop),
                request => {
                    (&raw mut (*place).request).copy_from_nonoverlapping(request, 1);
                    std::ptr::write(request, Request::Nop);
                }
            }
            (&raw mut (*place).done_bytes).write(0);
            (&raw mut (*place).fruitless_attempts).write(0);
            (&raw mut (*place).result).write(Ok(0));
            (&raw mut (*place).stopped_by).write(None);
            (&raw mut (*place).segments).write(segments);
        }
    }

    #[inline]
    fn segments_max(request: &Request) -> usize {
        match request {
            Request::Transfer(transfer) if transfer.extents.len() > 1 => transfer.extents.len(),
            Request::WriteBack(write) if write.pages.pieces() > 1 => write.pages.pieces(),
            Request::Call(work) => work.segments_max(),
            _ => 0,
        }
    }

    /// Moves the outcome out of a slot. Its body must be there, and counts as moved from afterwards.
    #[inline]
    pub(super) fn move_out(body: &mut MaybeUninit<Active>) -> Finished {
        // SAFETY: the slot table calls this once, with the body of a request that is done. Each field is read once; those that
        // are not returned own nothing (numbers, and the request of a `Nop`) or are dropped here.
        unsafe {
            let active = body.assume_init_mut();
            let (extents, pages) = match &active.request {
                // Apart, so that what does nothing also moves nothing.
                Request::Nop => (Extents::new(), None),
                _ => std::ptr::read(&raw const active.request).into_memory(),
            };
            if active.segments.capacity() > 0 {
                drop(std::ptr::read(&raw const active.segments));
            }
            let result = std::ptr::read(&raw const active.result);
            Finished { extents, pages, result, stopped_by: std::ptr::read(&raw const active.stopped_by) }
        }
    }

    /// The same for a call, which has its result and all else that was in the body.
    #[inline]
    pub(super) fn move_out_work(body: &mut MaybeUninit<Active>) -> Box<Work> {
        // SAFETY: as in `move_out`; the result and the error of a call's body own nothing.
        unsafe {
            let active = body.assume_init_mut();
            let Request::Call(work) = &active.request else { unreachable!("calls are asked for as such") };
            let work = std::ptr::read(work);
            if active.segments.capacity() > 0 {
                drop(std::ptr::read(&raw const active.segments));
            }
            work
        }
    }

    pub(super) fn prepare(&mut self, is_cancelled: bool) -> Attempt {
        if let Request::Call(work) = &mut self.request {
            return work.prepare(&mut self.segments, is_cancelled);
        }
        let (segments, chunk) = match &self.request {
            Request::Nop | Request::Call(_) => return Attempt::Nop,
            Request::Fsync(sync) => {
                let descriptor = sync.file.descriptor(Route::Buffered).as_raw_fd();
                return Attempt::Sync(SyncAttempt { descriptor, scope: sync.scope });
            }
            Request::Transfer(transfer) => match &transfer.extents[..] {
                [extent] => {
                    (self.one_segment(extent.as_raw(), transfer.length_bytes), extent.chunk_to_register())
                }
                _ => (self.many_segments(), None),
            },
            Request::WriteBack(write) => match write.pages.only_piece() {
                Some((base, chunk)) => {
                    // SAFETY: `skip_bytes` is less than a page, and the piece has one at the least.
                    let base = unsafe { base.add(write.skip_bytes) };
                    (self.one_segment(base, write.length_bytes), Some(chunk))
                }
                None => (self.many_segments(), None),
            },
        };
        let span = self.request.span().expect("this request moves bytes");
        Attempt::Transfer(TransferAttempt {
            direction: span.direction,
            descriptor: span.file.descriptor(span.route).as_raw_fd(),
            segments,
            chunk,
            offset_bytes: span.offset_bytes + self.done_bytes as u64,
            alignment_bytes: span.file.transfer_alignment_bytes(span.route),
        })
    }

    fn one_segment(&self, base: NonNull<u8>, length_bytes: usize) -> Segments {
        // SAFETY: `done_bytes` is within the memory, which holds `length_bytes`.
        let base = unsafe { base.add(self.done_bytes) };
        Segments::One(IoSegment::new(base, length_bytes - self.done_bytes))
    }

    fn many_segments(&mut self) -> Segments {
        let (done_bytes, segments) = (self.done_bytes, &mut self.segments);
        match &self.request {
            Request::Transfer(transfer) => {
                let memory = transfer.extents.iter().map(|extent| (extent.as_raw(), extent.len()));
                build_segments(memory, done_bytes, transfer.length_bytes, segments);
            }
            Request::WriteBack(write) => {
                let (done_bytes, end_bytes) =
                    (write.skip_bytes + done_bytes, write.skip_bytes + write.length_bytes);
                build_segments(write.pages.segments(), done_bytes, end_bytes, segments);
            }
            Request::Nop | Request::Fsync(_) | Request::Call(_) => {
                unreachable!("these have no memory, or know it themselves")
            }
        }
        Segments::Many(&raw const self.segments[..])
    }

    /// Whether the request is done, with its result noted, or the rest must be attempted. The argument of
    /// `may_end_early` is whether the request changes stored data.
    pub(super) fn record(
        &mut self,
        result: io::Result<usize>,
        may_end_early: impl Fn(bool) -> bool,
    ) -> Verdict {
        if let Request::Call(work) = &mut self.request {
            return work.record(result, may_end_early);
        }
        let changes = match &self.request {
            Request::Nop | Request::Call(_) => {
                self.result = result;
                return Verdict::Finished;
            }
            Request::Fsync(_) => true,
            Request::Transfer(Transfer { direction, .. }) => *direction == Direction::Write,
            Request::WriteBack(_) => true,
        };
        if let Ok(moved_bytes) = result {
            self.done_bytes += moved_bytes;
            self.choose_route();
        }
        let error = match (result, self.request.span()) {
            (Ok(moved_bytes), Some(span)) => {
                self.fruitless_attempts = 0;
                if let Some(ending) = ends(&span, self.done_bytes, moved_bytes) {
                    return self.finish(ending);
                }
                // If no caller waits for a read any more, its rest is not read; the rest of a write is written.
                if changes || !may_end_early(changes) {
                    return Verdict::Again;
                }
                io::Error::from_raw_os_error(libc::ECANCELED)
            }
            (Ok(_), None) => return Verdict::Finished,
            (Err(error), _) => error,
        };
        let cancelled = error.raw_os_error() == Some(libc::ECANCELED) && may_end_early(changes);
        if sys::is_transient(&error) && !cancelled && self.fruitless_attempts < Limits::RETRIES_MAX {
            self.fruitless_attempts += 1;
            return Verdict::Again;
        }
        if let Request::Transfer(transfer) = &mut self.request
            && transfer.direction == Direction::Read
            && transfer.file.may_read_buffered(transfer.route, &error, transfer.length_bytes)
        {
            transfer.route = Route::Buffered;
            return Verdict::Again;
        }
        self.finish(Err(error))
    }

    /// A read that stopped within a block may go on by another route.
    fn choose_route(&mut self) {
        if let Request::Transfer(transfer) = &mut self.request
            && transfer.direction == Direction::Read
            && self.done_bytes < transfer.length_bytes
            && let Some(route) =
                transfer.file.route_after(transfer.route, self.done_bytes, transfer.length_bytes)
        {
            transfer.route = route;
        }
    }

    /// Notes how the request ended: after all that could be moved, or by an error. Fetches the first bytes read into the
    /// processor's cache, while it handles the completions that came together: mostly the owner reads them next, in this thread.
    fn finish(&mut self, ending: io::Result<()>) -> Verdict {
        if let Request::Transfer(Transfer { direction: Direction::Read, extents, .. }) = &self.request
            && let Some(extent) = extents.first()
        {
            sys::prefetch(extent.as_raw(), 0..FETCHED_BYTES);
        }
        match ending {
            Err(error) if self.done_bytes == 0 => self.result = Err(error),
            ending => (self.result, self.stopped_by) = (Ok(self.done_bytes), ending.err()),
        }
        Verdict::Finished
    }
}

/// Of what was read. Random reads of 4 KiB, 50 in flight, each page added up, in one thread: 4.45 to 4.2 us of processor time each.
const FETCHED_BYTES: usize = 512;

/// How the request ends, if nothing is left to be attempted. A read ends where the file does; a write that cannot go on is
/// stopped.
fn ends(span: &Span<'_>, done_bytes: usize, moved_bytes: usize) -> Option<io::Result<()>> {
    assert!(done_bytes <= span.length_bytes, "no more is moved than was asked for");
    if done_bytes == span.length_bytes {
        return Some(Ok(()));
    }
    if moved_bytes > 0 && !span.file.ends_transfer(span.route, done_bytes) {
        return None;
    }
    match span.direction {
        Direction::Read => Some(Ok(())),
        Direction::Write => Some(Err(io::ErrorKind::WriteZero.into())),
    }
}
