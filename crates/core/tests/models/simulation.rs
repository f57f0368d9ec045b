//! Simulation: a cache of which only the bookkeeping exists, driven by accesses.

use std::collections::HashMap;

use headwater_core::FrameId;
use headwater_core::replacement::{Evicted, Frames, Origin, Policy, Replacement};

/// What is in each frame, how often it was referenced, and which frames cannot be evicted.
#[derive(Default)]
pub(crate) struct Simulated {
    pub(crate) pages: Vec<u64>,
    pub(crate) references: Vec<u8>,
    pub(crate) busy: Vec<bool>,
    /// Pages looked at.
    pub(crate) looks: u64,
}

impl Simulated {
    pub(crate) fn new(frames: usize) -> Self {
        Self { pages: vec![0; frames], references: vec![0; frames], busy: vec![false; frames], looks: 0 }
    }

    pub(crate) fn reference(&mut self, frame: FrameId) {
        let count = &mut self.references[frame.get() as usize];
        *count = (*count + 1).min(3);
    }

    pub(crate) fn fill(&mut self, frame: FrameId, page: u64) {
        self.pages[frame.get() as usize] = page;
        self.references[frame.get() as usize] = 0;
    }
}

impl Frames for Simulated {
    fn take_references(&mut self, frame: FrameId) -> u8 {
        self.looks += 1;
        std::mem::take(&mut self.references[frame.get() as usize])
    }

    fn set_references(&mut self, frame: FrameId, count: u8) {
        self.references[frame.get() as usize] = count;
    }

    fn fingerprint(&self, frame: FrameId) -> u64 {
        self.pages[frame.get() as usize]
    }

    fn try_evict(&mut self, frame: FrameId) -> Evicted {
        self.looks += 1;
        if self.busy[frame.get() as usize] { Evicted::Busy } else { Evicted::Yes }
    }
}

/// A cache that fills its frames one by one, and then evicts for each page that it lacks.
pub(crate) struct Cache {
    pub(crate) replacement: Replacement,
    pub(crate) frames: Simulated,
    resident: HashMap<u64, FrameId>,
    capacity: u32,
    pub(crate) misses: u64,
    /// Pages that were read ahead.
    pub(crate) read_ahead: u64,
}

impl Cache {
    pub(crate) fn new(policy: Policy, capacity: u32) -> Self {
        let mut replacement = Replacement::new(policy);
        replacement.grow(capacity).expect("there is memory");
        let (frames, resident) = (Simulated::new(capacity as usize), HashMap::new());
        Self { replacement, frames, resident, capacity, misses: 0, read_ahead: 0 }
    }

    pub(crate) fn access(&mut self, page: u64) {
        match self.resident.get(&page) {
            Some(&frame) => {
                self.frames.reference(frame);
                self.replacement.on_hit(frame);
            }
            None => {
                self.misses += 1;
                self.insert(page, Origin::Demand);
            }
        }
    }

    /// Does nothing for a page that is there.
    pub(crate) fn read_ahead(&mut self, page: u64) {
        if !self.contains(page) {
            self.read_ahead += 1;
            self.insert(page, Origin::Readahead);
        }
    }

    pub(crate) fn contains(&self, page: u64) -> bool {
        self.resident.contains_key(&page)
    }

    fn insert(&mut self, page: u64, origin: Origin) {
        let frame = match self.replacement.len() {
            filled if filled < self.capacity => FrameId::new(filled),
            _ => self.evict(),
        };
        self.frames.fill(frame, page);
        self.resident.insert(page, frame);
        self.replacement.insert(frame, origin, &mut self.frames);
    }

    fn evict(&mut self) -> FrameId {
        let frame = self.replacement.evict(&mut self.frames).expect("no page is busy");
        self.resident.remove(&self.frames.pages[frame.get() as usize]);
        frame
    }
}
