//! Naive policies: queues that are vectors, and a ghost that remembers everything.
//!
//! Owns: each policy as its paper tells it, by positions in a vector.
//! Does not own: the frames, which the caller passes in.

use std::collections::VecDeque;

use headwater_core::FrameId;
use headwater_core::replacement::{Evicted, Frames, Origin, Policy};

use crate::simulation::Simulated;

pub(crate) trait Naive {
    fn insert(&mut self, frame: FrameId, origin: Origin, frames: &mut Simulated);
    fn on_hit(&mut self, _: FrameId) {}
    fn remove(&mut self, frame: FrameId);
    fn evict(&mut self, frames: &mut Simulated) -> Option<FrameId>;
    fn len(&self) -> usize;
}

pub(crate) fn naive(policy: Policy) -> Box<dyn Naive> {
    match policy {
        Policy::Clock2QPlus => Box::new(Clock2QPlus::default()),
        Policy::Clock => Box::new(Clock::default()),
        Policy::S3Fifo => Box::new(S3Fifo::default()),
        Policy::Lru => Box::new(Lru::default()),
        _ => panic!("{policy:?} has no model"),
    }
}

/// The oldest first, in every queue here.
type Fifo = VecDeque<FrameId>;

fn take_out(fifo: &mut Fifo, frame: FrameId) -> Option<usize> {
    let position = fifo.iter().position(|&other| other == frame)?;
    fifo.remove(position);
    Some(position)
}

fn share(pages: usize, percent: usize) -> usize {
    (pages * percent / 100).max(1)
}

/// All pages that ever left, in that order; those that came back are crossed out.
#[derive(Default)]
struct EndlessGhost(Vec<Option<u64>>);

impl EndlessGhost {
    fn remember(&mut self, page: u64) {
        self.recall(page, self.0.len());
        self.0.push(Some(page));
    }

    fn recall(&mut self, page: u64, pages: usize) -> bool {
        let found = self.0.iter_mut().rev().take(pages).find(|entry| **entry == Some(page));
        found.is_some_and(|entry| entry.take().is_some())
    }
}

#[derive(Default)]
struct Lru(Fifo);

impl Naive for Lru {
    fn insert(&mut self, frame: FrameId, _: Origin, _: &mut Simulated) {
        self.0.push_back(frame);
    }

    fn on_hit(&mut self, frame: FrameId) {
        self.remove(frame);
        self.0.push_back(frame);
    }

    fn remove(&mut self, frame: FrameId) {
        take_out(&mut self.0, frame).expect("it is there");
    }

    fn evict(&mut self, frames: &mut Simulated) -> Option<FrameId> {
        let free = self.0.iter().position(|&frame| frames.try_evict(frame) == Evicted::Yes);
        let busy = free.unwrap_or(self.0.len());
        self.0.rotate_left(busy);
        free.and_then(|_| self.0.pop_front())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Default)]
struct Clock(Fifo);

impl Naive for Clock {
    fn insert(&mut self, frame: FrameId, _: Origin, _: &mut Simulated) {
        self.0.push_back(frame);
    }

    fn remove(&mut self, frame: FrameId) {
        take_out(&mut self.0, frame).expect("it is there");
    }

    fn evict(&mut self, frames: &mut Simulated) -> Option<FrameId> {
        for _ in 0..2 * self.0.len() {
            let frame = self.0.pop_front().expect("it is not empty");
            if frames.take_references(frame) == 0 && frames.try_evict(frame) == Evicted::Yes {
                return Some(frame);
            }
            self.0.push_back(frame);
        }
        None
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Default)]
struct S3Fifo {
    small: Fifo,
    main: Fifo,
    ghost: EndlessGhost,
}

impl S3Fifo {
    fn evict_small(&mut self, frames: &mut Simulated, pages_min: usize) -> Option<FrameId> {
        for _ in 0..self.small.len() {
            if self.small.len() < pages_min {
                return None;
            }
            let frame = self.small.pop_front().expect("it is not empty");
            let references = frames.take_references(frame);
            if references > 1 {
                self.main.push_back(frame);
            } else if frames.try_evict(frame) == Evicted::Yes {
                self.ghost.remember(frames.fingerprint(frame));
                return Some(frame);
            } else {
                frames.set_references(frame, references);
                self.small.push_back(frame);
            }
        }
        None
    }

    fn evict_main(&mut self, frames: &mut Simulated) -> Option<FrameId> {
        for _ in 0..4 * self.main.len() {
            let frame = self.main.pop_front().expect("it is not empty");
            let references = frames.take_references(frame);
            if references == 0 && frames.try_evict(frame) == Evicted::Yes {
                return Some(frame);
            }
            frames.set_references(frame, references.max(1) - 1);
            self.main.push_back(frame);
        }
        None
    }
}

impl Naive for S3Fifo {
    fn insert(&mut self, frame: FrameId, _: Origin, frames: &mut Simulated) {
        let remembered = share(self.len(), 90);
        if self.ghost.recall(frames.fingerprint(frame), remembered) {
            self.main.push_back(frame);
        } else {
            self.small.push_back(frame);
        }
    }

    fn remove(&mut self, frame: FrameId) {
        take_out(&mut self.small, frame).or_else(|| take_out(&mut self.main, frame)).expect("it is there");
    }

    fn evict(&mut self, frames: &mut Simulated) -> Option<FrameId> {
        let small_share = share(self.len(), 10);
        for pages_min in [small_share, 1] {
            let evicted = self.evict_small(frames, pages_min).or_else(|| self.evict_main(frames));
            if evicted.is_some() {
                return evicted;
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }
}

/// Window and small queue are one here, with a number that says where the window begins.
#[derive(Default)]
struct Clock2QPlus {
    small: Fifo,
    window: usize,
    main: Clock,
    ghost: EndlessGhost,
    /// Read ahead, and not known to be used.
    unused: Vec<FrameId>,
}

impl Clock2QPlus {
    fn leave_window(&mut self, frames: &mut Simulated) {
        let frame = self.small[self.small.len() - self.window];
        if frames.take_references(frame) > 0 {
            self.unused.retain(|&other| other != frame);
        }
        self.window -= 1;
    }

    fn evict_small(&mut self, frames: &mut Simulated, pages_max: usize) -> Option<FrameId> {
        for _ in 0..self.small.len() {
            if self.small.len() <= pages_max {
                return None;
            }
            if self.window == self.small.len() {
                self.leave_window(frames);
            }
            if let Some(frame) = self.pass_oldest(frames) {
                return Some(frame);
            }
        }
        None
    }

    /// Out of the cache, into main, or to the newest end.
    fn pass_oldest(&mut self, frames: &mut Simulated) -> Option<FrameId> {
        let frame = self.small.pop_front().expect("it is not empty");
        let references = frames.take_references(frame);
        let was_unused = self.unused.contains(&frame);
        if references > 0 {
            self.unused.retain(|&other| other != frame);
        }
        if references > u8::from(was_unused) {
            self.main.0.push_back(frame);
        } else if frames.try_evict(frame) == Evicted::Yes {
            if self.unused.contains(&frame) {
                self.unused.retain(|&other| other != frame);
            } else {
                self.ghost.remember(frames.fingerprint(frame));
            }
            return Some(frame);
        } else {
            self.small.push_back(frame);
            self.window += 1;
        }
        None
    }
}

impl Naive for Clock2QPlus {
    fn insert(&mut self, frame: FrameId, origin: Origin, frames: &mut Simulated) {
        let remembered = share(self.len(), 50);
        match origin {
            Origin::Demand if self.ghost.recall(frames.fingerprint(frame), remembered) => {
                return self.main.0.push_back(frame);
            }
            Origin::Demand => {}
            Origin::Readahead => self.unused.push(frame),
        }
        self.small.push_back(frame);
        self.window += 1;
        while self.window > share(self.len(), 5) {
            self.leave_window(frames);
        }
    }

    fn remove(&mut self, frame: FrameId) {
        self.unused.retain(|&other| other != frame);
        match take_out(&mut self.small, frame) {
            Some(position) => self.window -= usize::from(position + self.window > self.small.len()),
            None => self.main.remove(frame),
        }
    }

    fn evict(&mut self, frames: &mut Simulated) -> Option<FrameId> {
        let unused = self.unused.len().min(share(self.len(), 25));
        let small_share = share(self.len(), 10) + unused;
        for pages_max in [small_share, 0] {
            let evicted = self.evict_small(frames, pages_max).or_else(|| self.main.evict(frames));
            if evicted.is_some() {
                return evicted;
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }
}
