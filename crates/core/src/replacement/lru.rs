//! LRU: the page leaves that was not used for longest.

use super::queues::{Queue, Queues};
use super::{Evicted, Frames};
use crate::units::FrameId;

pub(super) fn insert(queues: &mut Queues, frame: FrameId) {
    queues.push(Queue::Main, frame);
}

pub(super) fn on_hit(queues: &mut Queues, frame: FrameId) {
    queues.move_to(Queue::Main, frame);
}

/// A busy page is being used, hence goes to the newest end.
pub(super) fn evict(queues: &mut Queues, frames: &mut impl Frames) -> Option<FrameId> {
    for _ in 0..queues.len(Queue::Main) {
        let frame = queues.oldest(Queue::Main)?;
        if frames.try_evict(frame) == Evicted::Yes {
            queues.remove(frame);
            return Some(frame);
        }
        queues.move_to(Queue::Main, frame);
    }
    None
}
