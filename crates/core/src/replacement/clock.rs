//! Clock: one queue, in which a referenced page gets another round.
//!
//! Corbató, A paging experiment with the Multics system, 1968. The clock's hand is the oldest end of the queue: a
//! page that gets another round goes to the newest end.

use super::queues::{Queue, Queues};
use super::{Evicted, Frames};
use crate::units::FrameId;

pub(super) fn insert(queues: &mut Queues, frame: FrameId) {
    queues.push(Queue::Main, frame);
}

/// Sweeps the main queue. Two rounds are enough: the first takes all references.
pub(super) fn evict(queues: &mut Queues, frames: &mut impl Frames) -> Option<FrameId> {
    for _ in 0..2 * u64::from(queues.len(Queue::Main)) {
        let frame = queues.oldest(Queue::Main)?;
        if frames.take_references(frame) == 0 && frames.try_evict(frame) == Evicted::Yes {
            queues.remove(frame);
            return Some(frame);
        }
        queues.move_to(Queue::Main, frame);
    }
    None
}
