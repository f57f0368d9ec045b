//! Entry: encodes an attempt as a submission queue entry (SQE), and decodes the result of a completion queue entry (CQE).
//!
//! Owns: the layout of entries, and of `user_data`, which names the attempt in both.
//! Does not own: the queue; the attempt and its memory (slots).

use std::io;

use headwater_core::limits::Limits;
use io_uring::{opcode, squeue, types};

use crate::request::attempt::{Attempt, AttemptId, SyncAttempt, TransferAttempt};
use crate::request::slot::ATTEMPTS;
use crate::request::slot_table::SlotId;
use crate::system::sys::{Direction, IoSegment, SyncScope};

/// Writes the entry of an attempt into the queue, which must have room. `registered` is where the kernel knows the memory.
///
/// # Safety
/// The attempt must be under way until its completion has been seen.
pub(crate) unsafe fn push(
    queue: &mut squeue::SubmissionQueue<'_>,
    attempt: &Attempt,
    id: AttemptId,
    registered: Option<u16>,
) {
    let user_data = encode(id);
    // SAFETY: as the caller promises.
    let pushed = unsafe {
        match attempt {
            // Each with its own push: a constant entry is then written in place.
            Attempt::Nop => queue.push(&opcode::Nop::new().build().user_data(user_data)),
            Attempt::Transfer(transfer) => {
                queue.push(&build_transfer(transfer, registered).user_data(user_data))
            }
            Attempt::Sync(sync) => queue.push(&build_sync(sync).user_data(user_data)),
        }
    };
    pushed.expect("the queue has room");
}

/// # Safety
/// As for [`push`].
unsafe fn build_transfer(attempt: &TransferAttempt, registered: Option<u16>) -> squeue::Entry {
    let file = types::Fd(attempt.descriptor);
    let offset_bytes = attempt.offset_bytes;
    // SAFETY: as the caller promises.
    let segments = unsafe { attempt.segments.as_slice() };
    if let (Some(index), [one]) = (registered, segments) {
        let (base, length_bytes) = (one.base(), one.length_bytes() as u32);
        return match attempt.direction {
            Direction::Read => {
                opcode::ReadFixed::new(file, base, length_bytes, index).offset(offset_bytes).build()
            }
            Direction::Write => {
                opcode::WriteFixed::new(file, base, length_bytes, index).offset(offset_bytes).build()
            }
        };
    }
    match (attempt.direction, segments) {
        (Direction::Read, [one]) => {
            opcode::Read::new(file, one.base(), one.length_bytes() as u32).offset(offset_bytes).build()
        }
        (Direction::Write, [one]) => {
            opcode::Write::new(file, one.base(), one.length_bytes() as u32).offset(offset_bytes).build()
        }
        (Direction::Read, many) => opcode::Readv::new(file, IoSegment::as_iovec(many), many.len() as u32)
            .offset(offset_bytes)
            .build(),
        (Direction::Write, many) => opcode::Writev::new(file, IoSegment::as_iovec(many), many.len() as u32)
            .offset(offset_bytes)
            .build(),
    }
}

fn build_sync(attempt: &SyncAttempt) -> squeue::Entry {
    let flags = match attempt.scope {
        SyncScope::Data => types::FsyncFlags::DATASYNC,
        SyncScope::All => types::FsyncFlags::empty(),
    };
    opcode::Fsync::new(types::Fd(attempt.descriptor)).flags(flags).build()
}

/// The number that comes back with the completion: generation, attempt, slot.
pub(crate) fn encode(id: AttemptId) -> u64 {
    let AttemptId { request: SlotId { index, generation }, number } = id;
    u64::from(generation) << 32 | u64::from(number << INDEX_BITS | index)
}

/// Any number names an attempt, if hardly one that there is.
pub(crate) fn decode(user_data: u64) -> AttemptId {
    let low = user_data as u32;
    let (index, number) = (low & ((1 << INDEX_BITS) - 1), low >> INDEX_BITS);
    AttemptId { request: SlotId { index, generation: (user_data >> 32) as u32 }, number }
}

/// What a slot's number takes; the rest of 32 bits is the attempt's.
const INDEX_BITS: u32 = Limits::OUTSTANDING_MAX.ilog2();
const _: () = assert!(Limits::OUTSTANDING_MAX == 1 << INDEX_BITS && ATTEMPTS == 1 << (32 - INDEX_BITS));

pub(crate) fn to_result(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
