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
use crate::request::work::Action;
use crate::system::calls::{ATTRIBUTES, SystemCall};
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
            Attempt::Call(call) => queue.push(&build_call(call).user_data(user_data)),
            Attempt::Raw(entry) => queue.push(&(**entry).clone().user_data(user_data)),
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

fn build_call(call: &SystemCall) -> squeue::Entry {
    match *call {
        SystemCall::Open { directory, path, flags, mode } => {
            opcode::OpenAt::new(types::Fd(directory), path.as_ptr()).flags(flags).mode(mode).build()
        }
        SystemCall::Close { descriptor } => opcode::Close::new(types::Fd(descriptor)).build(),
        SystemCall::Attributes { directory, path, flags, into } => {
            let (directory, mask) = (types::Fd(directory), ATTRIBUTES.bits());
            let statx = opcode::Statx::new(directory, path.as_ptr(), into.as_ptr().cast());
            statx.flags(flags).mask(mask).build()
        }
        SystemCall::Allocate { descriptor, mode, offset_bytes, length_bytes } => {
            let allocate = opcode::Fallocate::new(types::Fd(descriptor), length_bytes);
            allocate.offset(offset_bytes).mode(mode).build()
        }
        SystemCall::SyncRange { descriptor, offset_bytes, length_bytes, flags } => {
            let length_bytes = u32::try_from(length_bytes).expect("longer ranges are not given to a ring");
            let sync = opcode::SyncFileRange::new(types::Fd(descriptor), length_bytes);
            sync.offset(offset_bytes).flags(flags).build()
        }
        SystemCall::Rename { directories, from, to, flags } => {
            let [from_directory, to_directory] = directories.map(types::Fd);
            let rename = opcode::RenameAt::new(from_directory, from.as_ptr(), to_directory, to.as_ptr());
            rename.flags(flags).build()
        }
        SystemCall::Unlink { directory, path, flags } => {
            opcode::UnlinkAt::new(types::Fd(directory), path.as_ptr()).flags(flags).build()
        }
        SystemCall::MakeDirectory { directory, path, mode } => {
            opcode::MkDirAt::new(types::Fd(directory), path.as_ptr()).mode(mode).build()
        }
        SystemCall::Timeout { place, .. } => {
            opcode::Timeout::new(place.as_ptr()).flags(types::TimeoutFlags::ABS).build()
        }
        SystemCall::Poll { descriptor, events } => {
            opcode::PollAdd::new(types::Fd(descriptor), events).build()
        }
    }
}

/// The operation of an action. `None` if no ring carries it out as it is.
pub(crate) fn operation(action: &Action) -> Option<Operation> {
    Some(Operation::One(match action {
        Action::Refused(_) | Action::Nop => opcode::Nop::CODE,
        // In any of its four forms.
        Action::Move(_) => opcode::Read::CODE,
        Action::Sync { .. } => opcode::Fsync::CODE,
        Action::Raw(_) => return Some(Operation::Any),
        Action::Call(call) => match call {
            SystemCall::Open { .. } => opcode::OpenAt::CODE,
            SystemCall::Close { .. } => opcode::Close::CODE,
            SystemCall::Attributes { .. } => opcode::Statx::CODE,
            SystemCall::Allocate { .. } => opcode::Fallocate::CODE,
            SystemCall::SyncRange { length_bytes, .. } if *length_bytes > u32::MAX.into() => return None,
            SystemCall::SyncRange { .. } => opcode::SyncFileRange::CODE,
            SystemCall::Rename { .. } => opcode::RenameAt::CODE,
            SystemCall::Unlink { .. } => opcode::UnlinkAt::CODE,
            SystemCall::MakeDirectory { .. } => opcode::MkDirAt::CODE,
            SystemCall::Timeout { .. } => opcode::Timeout::CODE,
            SystemCall::Poll { .. } => opcode::PollAdd::CODE,
        },
    }))
}

/// What a ring must be able to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    One(u8),
    /// Whatever an entry says.
    Any,
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
