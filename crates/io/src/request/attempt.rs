//! Attempt: one system call or ring entry for a request.
//!
//! Owns: what an attempt tells a driver, and what follows from its result.
//! Does not own: the request and its progress (active), submission of an attempt (backends).
//! Invariants: I4 memory named by an attempt belongs to the request until the attempt is over.

use std::ptr::NonNull;

use io_uring::squeue;

use crate::memory::arena::Chunk;
use crate::request::slot_table::SlotId;
use crate::system::calls::SystemCall;
use crate::system::sys::{Direction, IoSegment, SyncScope};

/// What follows from an attempt's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Finished,
    /// The rest must be attempted.
    Again,
}

/// Names an attempt of a request, and no other for as long as anybody may speak of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AttemptId {
    pub(crate) request: SlotId,
    pub(crate) number: u32,
}

/// An attempt as a driver carries it out.
pub(crate) enum Attempt {
    Nop,
    Transfer(TransferAttempt),
    Sync(SyncAttempt),
    /// What it points to is valid until the attempt's result is given to [`Slots::attempt`](super::slots::Slots::attempt).
    Call(SystemCall),
    /// The same.
    Raw(Box<squeue::Entry>),
}

/// The memory behind `segments` is valid until the attempt's result is given to [`Slots::attempt`](super::slots::Slots::attempt).
pub(crate) struct TransferAttempt {
    pub(crate) direction: Direction,
    pub(crate) descriptor: std::os::fd::RawFd,
    pub(crate) segments: Segments,
    pub(crate) offset_bytes: u64,
    /// Where all of the memory lies, if in one chunk.
    pub(crate) chunk: Option<Chunk>,
    /// What partial transfers must be multiples of.
    pub(crate) alignment_bytes: usize,
}

/// The descriptor is open until the attempt's result is given to [`Slots::attempt`](super::slots::Slots::attempt).
pub(crate) struct SyncAttempt {
    pub(crate) descriptor: std::os::fd::RawFd,
    pub(crate) scope: SyncScope,
}

/// What an attempt moves. It does not point into the slot, whose parts the driver borrows only one at a time.
pub(crate) enum Segments {
    One(IoSegment),
    /// On the heap, where it stays until the attempt is over.
    Many(*const [IoSegment]),
}

impl Segments {
    /// # Safety
    /// The attempt must be under way: its result not yet given to [`Slots::attempt`](super::slots::Slots::attempt).
    pub(crate) unsafe fn as_slice(&self) -> &[IoSegment] {
        match self {
            Segments::One(segment) => std::slice::from_ref(segment),
            // SAFETY: the list belongs to the request, which the slot keeps, unchanged, until the attempt is over.
            Segments::Many(segments) => unsafe { &**segments },
        }
    }
}

/// The memory behind the bytes that are done.
pub(super) fn build_segments(
    memory: impl Iterator<Item = (NonNull<u8>, usize)>,
    done_bytes: usize,
    length_bytes: usize,
    segments: &mut Vec<IoSegment>,
) {
    segments.clear();
    let (mut skip_bytes, mut left_bytes) = (done_bytes, length_bytes - done_bytes);
    for (base, piece_bytes) in memory {
        let skipped_bytes = skip_bytes.min(piece_bytes);
        let used_bytes = (piece_bytes - skipped_bytes).min(left_bytes);
        skip_bytes -= skipped_bytes;
        left_bytes -= used_bytes;
        if used_bytes > 0 {
            // SAFETY: `skipped_bytes` is within the piece.
            let base = unsafe { base.add(skipped_bytes) };
            segments.push(IoSegment::new(base, used_bytes));
        }
    }
    assert_eq!(left_bytes, 0, "a request fits its memory");
}
