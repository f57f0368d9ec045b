//! S3-FIFO: a small queue on probation, a main queue whose pages get a round for each reference, a ghost.
//!
//! Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023, algorithm 1, with the
//! sizes given there: a tenth for the small queue, a ghost as large as the main queue, counts up to 3, two references
//! to be promoted. The paper knows neither readahead (here like demand) nor busy pages (here passed over).
//!
//! Owns: when a page moves between the queues.
//! Does not own: the queues.

use super::ghost::Ghost;
use super::queues::{Queue, Queues};
use super::{Evicted, Frames, share};
use crate::units::FrameId;

pub(super) fn insert(queues: &mut Queues, ghost: &mut Ghost, frame: FrameId, frames: &impl Frames) {
    let remembered = share(queues.total(), GHOST_PERCENT);
    match ghost.recall(frames.fingerprint(frame), remembered) {
        true => queues.push(Queue::Main, frame),
        false => queues.push(Queue::Small, frame),
    }
}

/// From the small queue while it has its share, else from the main one. Where all of that is busy, from what is
/// left of the small one, and once more from the main one if pages have come into it thereby.
pub(super) fn evict(queues: &mut Queues, ghost: &mut Ghost, frames: &mut impl Frames) -> Option<FrameId> {
    let share = share(queues.total(), SMALL_PERCENT);
    let evicted = evict_small(queues, ghost, frames, share).or_else(|| evict_main(queues, frames));
    if evicted.is_some() {
        return evicted;
    }
    let main_pages = queues.len(Queue::Main);
    evict_small(queues, ghost, frames, 1).or_else(|| match queues.len(Queue::Main) > main_pages {
        true => evict_main(queues, frames),
        false => None,
    })
}

/// While the small queue has at least `pages_min`, and every page once at most.
fn evict_small(
    queues: &mut Queues,
    ghost: &mut Ghost,
    frames: &mut impl Frames,
    pages_min: u32,
) -> Option<FrameId> {
    for _ in 0..queues.len(Queue::Small) {
        let frame = queues.oldest(Queue::Small).filter(|_| queues.len(Queue::Small) >= pages_min)?;
        let references = frames.take_references(frame);
        if references >= PROMOTED_REFERENCES_MIN {
            queues.move_to(Queue::Main, frame);
            continue;
        }
        let fingerprint = frames.fingerprint(frame);
        if frames.try_evict(frame) == Evicted::Yes {
            queues.remove(frame);
            ghost.remember(fingerprint);
            return Some(frame);
        }
        frames.set_references(frame, references);
        queues.move_to(Queue::Small, frame);
    }
    None
}

/// A round for each reference, and one to leave.
fn evict_main(queues: &mut Queues, frames: &mut impl Frames) -> Option<FrameId> {
    for _ in 0..ROUNDS_MAX * u64::from(queues.len(Queue::Main)) {
        let frame = queues.oldest(Queue::Main)?;
        let references = frames.take_references(frame);
        if references == 0 && frames.try_evict(frame) == Evicted::Yes {
            queues.remove(frame);
            return Some(frame);
        }
        frames.set_references(frame, references.saturating_sub(1));
        queues.move_to(Queue::Main, frame);
    }
    None
}

const SMALL_PERCENT: u32 = 10;

pub(super) const GHOST_PERCENT: u32 = 90;

const PROMOTED_REFERENCES_MIN: u8 = 2;

/// Counts go up to 3.
const ROUNDS_MAX: u64 = 4;
