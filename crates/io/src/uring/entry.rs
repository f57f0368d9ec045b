//! Entry: how an attempt is told to the kernel, and how the kernel's answer is read.
//!
//! Owns: the layout of entries and of the number that comes back with each.
//! Does not own: the queue; the attempt and its memory (slots).

use std::io;

use io_uring::{opcode, squeue, types};

use crate::pool::SlotId;
use crate::slots::{Attempt, SyncAttempt, TransferAttempt};
use crate::sys::{IoSegment, Operation, SyncScope};

/// Writes the entry of an attempt into the queue, which must have room. `registered` is where the kernel knows the memory.
///
/// # Safety
/// The attempt must be under way until its completion has been seen.
pub(crate) unsafe fn push(
    queue: &mut squeue::SubmissionQueue<'_>,
    attempt: &Attempt,
    id: SlotId,
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
        return match attempt.operation {
            Operation::Read => {
                opcode::ReadFixed::new(file, base, length_bytes, index).offset(offset_bytes).build()
            }
            Operation::Write => {
                opcode::WriteFixed::new(file, base, length_bytes, index).offset(offset_bytes).build()
            }
        };
    }
    match (attempt.operation, segments) {
        (Operation::Read, [one]) => {
            opcode::Read::new(file, one.base(), one.length_bytes() as u32).offset(offset_bytes).build()
        }
        (Operation::Write, [one]) => {
            opcode::Write::new(file, one.base(), one.length_bytes() as u32).offset(offset_bytes).build()
        }
        (Operation::Read, many) => opcode::Readv::new(file, IoSegment::as_iovec(many), many.len() as u32)
            .offset(offset_bytes)
            .build(),
        (Operation::Write, many) => opcode::Writev::new(file, IoSegment::as_iovec(many), many.len() as u32)
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

pub(crate) fn encode(id: SlotId) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

pub(crate) fn decode(user_data: u64) -> SlotId {
    SlotId { index: user_data as u32, generation: (user_data >> 32) as u32 }
}

pub(crate) fn to_result(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
