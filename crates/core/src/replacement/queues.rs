//! Queues: FIFO queues of frames, linked through arrays.
//!
//! ```text
//!   push ─► newest ◄─► … ◄─► oldest ─► looked at next
//! ```
//!
//! Owns: which frame is in which queue, and where.
//! Does not own: when a frame moves.
//!
//! Invariants:
//!
//! - Q1 A frame is in at most one queue, once; its mark names that queue (E1).
//! - Q2 The length of a queue is the number of frames linked in it.
//! - Q3 Frames marked unused are in a queue, and counted.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::mem::size_of;

use crate::units::FrameId;

/// The queues there are. A policy uses those it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    /// Pages that came just now, whose references do not count yet.
    Window,
    /// Pages on probation.
    Small,
    /// Pages that have proved themselves; in a policy of one queue, all.
    Main,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    links: Vec<Links>,
    marks: Vec<Mark>,
    ends: [Ends; QUEUES],
    /// How many frames are marked so.
    unused: u32,
}

impl Queues {
    /// Makes room for frames below this number, more than before.
    pub(super) fn grow(&mut self, frames: u32) -> Result<(), TryReserveError> {
        let (frames, more) = (frames as usize, frames as usize - self.links.len());
        self.links.try_reserve_exact(more)?;
        self.marks.try_reserve_exact(more)?;
        self.links.resize(frames, Links { newer: NONE, older: NONE });
        self.marks.resize(frames, Mark::OUT);
        Ok(())
    }

    /// Frames below this number are known.
    pub(super) fn frames(&self) -> u32 {
        self.links.len() as u32
    }

    pub(super) fn len(&self, queue: Queue) -> u32 {
        self.ends[queue as usize].length
    }

    pub(super) fn total(&self) -> u32 {
        self.ends.iter().map(|ends| ends.length).sum()
    }

    pub(super) fn contains(&self, frame: FrameId) -> bool {
        self.marks.get(frame.get() as usize).is_some_and(|mark| mark.queue().is_some())
    }

    /// The frame that has been in the queue for longest.
    pub(super) fn oldest(&self, queue: Queue) -> Option<FrameId> {
        let oldest = self.ends[queue as usize].oldest;
        (oldest != NONE).then_some(FrameId::new(oldest))
    }

    /// # Panics
    /// If the frame is unknown or in a queue.
    pub(super) fn push(&mut self, queue: Queue, frame: FrameId) {
        let index = frame.get() as usize;
        assert!(index < self.marks.len(), "frame {index} was never announced by grow");
        assert!(self.marks[index].queue().is_none(), "frame {index} is inserted twice");
        self.marks[index] = Mark::of(queue);
        self.link(queue, frame.get());
    }

    /// # Panics
    /// Unless the frame is in a queue.
    pub(super) fn remove(&mut self, frame: FrameId) {
        let queue = self.queue_of(frame);
        self.unlink(queue, frame.get());
        self.mark_used(frame);
        self.marks[frame.get() as usize] = Mark::OUT;
    }

    /// From where it is to the newest end of `queue`.
    pub(super) fn move_to(&mut self, queue: Queue, frame: FrameId) {
        let from = self.queue_of(frame);
        self.unlink(from, frame.get());
        self.marks[frame.get() as usize].set_queue(queue);
        self.link(queue, frame.get());
    }

    /// Notes that the page was read ahead and not used as far as is known; forgotten when the frame leaves.
    pub(super) fn mark_unused(&mut self, frame: FrameId) {
        self.unused += u32::from(!self.is_unused(frame));
        self.marks[frame.get() as usize].0 |= Mark::UNUSED;
    }

    pub(super) fn mark_used(&mut self, frame: FrameId) {
        self.unused -= u32::from(self.is_unused(frame));
        self.marks[frame.get() as usize].0 &= !Mark::UNUSED;
    }

    pub(super) fn is_unused(&self, frame: FrameId) -> bool {
        self.marks[frame.get() as usize].0 & Mark::UNUSED != 0
    }

    /// How many frames are marked unused.
    pub(super) fn unused(&self) -> u32 {
        self.unused
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Links>() + self.marks.capacity() * size_of::<Mark>()
    }

    /// # Panics
    /// Unless Q1 to Q3 hold.
    pub(super) fn check(&self) {
        for queue in [Queue::Window, Queue::Small, Queue::Main] {
            self.check_queue(queue);
        }
        let marked = self.marks.iter().filter(|mark| mark.queue().is_some()).count();
        assert_eq!(marked, self.total() as usize, "Q1: a frame is marked and not linked");
        let is_unused = |mark: &&Mark| mark.0 & Mark::UNUSED != 0;
        let unused = self.marks.iter().filter(is_unused);
        assert!(unused.clone().all(|mark| mark.queue().is_some()), "Q3");
        assert_eq!(unused.count(), self.unused as usize, "Q3");
    }

    fn check_queue(&self, queue: Queue) {
        let ends = &self.ends[queue as usize];
        let (mut frame, mut newer, mut length) = (ends.newest, NONE, 0);
        while frame != NONE {
            assert_eq!(self.marks[frame as usize].queue(), Some(queue), "Q1");
            assert_eq!(self.links[frame as usize].newer, newer, "Q1: links that do not meet");
            length += 1;
            assert!(length <= ends.length, "Q2: {queue:?} is longer than it says");
            (newer, frame) = (frame, self.links[frame as usize].older);
        }
        assert_eq!((newer, length), (ends.oldest, ends.length), "Q2");
    }

    fn queue_of(&self, frame: FrameId) -> Queue {
        let mark = self.marks.get(frame.get() as usize);
        mark.and_then(|mark| mark.queue()).unwrap_or_else(|| panic!("frame {} is not inserted", frame.get()))
    }

    fn link(&mut self, queue: Queue, frame: u32) {
        let ends = &mut self.ends[queue as usize];
        self.links[frame as usize] = Links { newer: NONE, older: ends.newest };
        match ends.newest {
            NONE => ends.oldest = frame,
            second => self.links[second as usize].newer = frame,
        }
        ends.newest = frame;
        ends.length += 1;
    }

    fn unlink(&mut self, queue: Queue, frame: u32) {
        let ends = &mut self.ends[queue as usize];
        let Links { newer, older } = self.links[frame as usize];
        match newer {
            NONE => ends.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => ends.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        ends.length -= 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
    length: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, length: 0 }
    }
}

/// The queue of a frame in the low bits, and whether the page waits for its first use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark(u8);

impl Mark {
    const OUT: Self = Self(0);
    const UNUSED: u8 = 1 << 7;

    fn of(queue: Queue) -> Self {
        Self(queue as u8 + 1)
    }

    fn queue(self) -> Option<Queue> {
        match self.0 & !Self::UNUSED {
            0 => None,
            1 => Some(Queue::Window),
            2 => Some(Queue::Small),
            _ => Some(Queue::Main),
        }
    }

    fn set_queue(&mut self, queue: Queue) {
        self.0 = self.0 & Self::UNUSED | Self::of(queue).0;
    }
}

/// No frame: [`super::Replacement::grow`] announces frames up to one below this.
const NONE: u32 = u32::MAX;

const QUEUES: usize = 3;
