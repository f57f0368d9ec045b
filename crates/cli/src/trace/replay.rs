//! Replay: a simulated cache, with page tables and policies but without data.
//!
//! Owns: which page is in which frame, the counts of requests, misses and reads.
//! Does not own: replacement (`headwater_core::replacement`), readahead (`ahead`), where requests come from.

use std::collections::HashMap;

use headwater::testing::{Limits, Pressure};
use headwater_core::readahead::{Outcome, Purpose, ReadaheadPolicy};
use headwater_core::replacement::{Evicted, Frames, Origin, Policy, Replacement};
use headwater_core::units::{FrameId, PAGE_SIZE_BYTES};

use super::ahead::Ahead;
use super::request::{Covered, Kind, Request};
use crate::shared::units::{ByteSize, readable};

pub(super) struct Cache {
    pub(super) size: ByteSize,
    pub(super) counts: Counts,
    replacement: Replacement,
    readahead: Option<Ahead>,
    frames: SimulatedFrames,
    resident: HashMap<u64, FrameId>,
    /// How many frames the cache may have.
    capacity: u32,
    /// How many frames it has so far: their number doubles as the trace needs them.
    grown: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) page_accesses: u64,
    pub(super) misses: u64,
    pub(super) device_reads: u64,
    pub(super) pages_read: u64,
    /// Pages of `pages_read` that readahead planned.
    pub(super) read_ahead_pages: u64,
    /// Pages of `read_ahead_pages` that a request used.
    pub(super) used_pages: u64,
    /// Pages of `read_ahead_pages` that were evicted unused.
    pub(super) unused_pages: u64,
}

impl Cache {
    pub(super) fn new(policy: Policy, size: ByteSize, readahead: ReadaheadPolicy) -> Cache {
        let pages = size.0 / PAGE_SIZE_BYTES;
        Cache {
            size,
            counts: Counts::default(),
            replacement: Replacement::new(policy),
            readahead: Ahead::new(readahead, size),
            frames: SimulatedFrames::default(),
            resident: HashMap::new(),
            capacity: u32::try_from(pages).expect("arguments allow no larger cache"),
            grown: 0,
        }
    }

    pub(super) fn policy(&self) -> Policy {
        self.replacement.policy()
    }

    pub(super) fn serve(&mut self, request: &Request) -> Result<(), String> {
        self.counts.requests += 1;
        let mut reading = false; // the page before is being read by this request
        for index in 0..request.pages {
            let is_read = self.access(request, request.first_page + index)? && request.reads(index);
            self.counts.pages_read += u64::from(is_read);
            self.counts.device_reads += u64::from(is_read && !reading);
            reading = is_read;
        }
        Ok(())
    }

    /// Accesses a page, and brings it in if it is missing. Returns whether it was missing.
    fn access(&mut self, request: &Request, page: u64) -> Result<bool, String> {
        self.counts.page_accesses += 1;
        if !self.resident.contains_key(&page) {
            self.tell(request, page, Outcome::Miss)?;
        }
        let Some(&frame) = self.resident.get(&page) else {
            self.counts.misses += 1;
            self.bring(page, Arrival::Asked)?;
            return Ok(true);
        };
        match std::mem::replace(&mut self.frames.pages[frame.get() as usize].arrival, Arrival::Asked) {
            // It was missing when this request began to read it.
            Arrival::Demanded => {
                self.counts.misses += 1;
                return Ok(true);
            }
            Arrival::Ahead => self.counts.used_pages += 1,
            Arrival::Asked => {}
        }
        self.frames.reference(frame);
        self.replacement.on_hit(frame);
        if std::mem::take(&mut self.frames.pages[frame.get() as usize].is_marked) {
            self.tell(request, page, Outcome::Hit)?;
        }
        Ok(false)
    }

    /// Reads ahead what the policy, if there is one, plans after an access to a page.
    fn tell(&mut self, request: &Request, page: u64, outcome: Outcome) -> Result<(), String> {
        let Some(readahead) = &mut self.readahead else { return Ok(()) };
        let mut run = Run::default();
        for read in readahead.plan(request, page, outcome, &self.resident) {
            let arrival = match read.purpose {
                Purpose::Demand => Arrival::Demanded,
                Purpose::Ahead => Arrival::Ahead,
            };
            for page in read.range.iter().map(|page| page.get()) {
                if self.resident.contains_key(&page) {
                    continue;
                }
                self.bring(page, arrival)?;
                let extended = run.extend(page);
                // What is demanded is counted when the request comes to it.
                let is_ahead = arrival == Arrival::Ahead;
                self.counts.read_ahead_pages += u64::from(is_ahead);
                self.counts.pages_read += u64::from(is_ahead);
                self.counts.device_reads += u64::from(is_ahead && extended == Extended::No);
            }
            if let Some(&frame) = read.mark.and_then(|mark| self.resident.get(&mark.get())) {
                self.frames.pages[frame.get() as usize].is_marked = true;
            }
        }
        Ok(())
    }

    /// Brings in a page that is missing.
    fn bring(&mut self, page: u64, arrival: Arrival) -> Result<(), String> {
        let frame = self.free_frame()?;
        self.frames.pages[frame.get() as usize] =
            Page { number: page, references: 0, arrival, is_marked: false };
        self.resident.insert(page, frame);
        let origin = match arrival {
            Arrival::Asked | Arrival::Demanded => Origin::Demand,
            Arrival::Ahead => Origin::Readahead,
        };
        self.replacement.insert(frame, origin, &mut self.frames);
        Ok(())
    }

    fn free_frame(&mut self) -> Result<FrameId, String> {
        let used = self.replacement.len();
        if used == self.capacity {
            let frame = self.replacement.evict(&mut self.frames).expect("no page is ever busy here");
            let page = &self.frames.pages[frame.get() as usize];
            self.resident.remove(&page.number);
            if page.arrival == Arrival::Ahead {
                self.counts.unused_pages += 1;
                self.readahead.iter_mut().for_each(|readahead| readahead.on_unused(page.number));
            }
            return Ok(frame);
        }
        if used == self.grown {
            self.grow()?;
        }
        Ok(FrameId::new(used))
    }

    /// Doubles the frames. No page was evicted before, so a policy decides as if it had known all frames from the start.
    fn grow(&mut self) -> Result<(), String> {
        self.grown = self.grown.saturating_mul(2).max(FRAMES_FIRST).min(self.capacity);
        self.check_memory()?;
        let no_memory = |error| format!("failed to simulate a cache of {}: {error}", self.size);
        self.replacement.grow(self.grown).map_err(no_memory)?;
        self.frames.pages.resize(self.grown as usize, Page::default());
        Ok(())
    }

    /// Fails early, because the kernel kills processes that exhaust memory.
    fn check_memory(&self) -> Result<(), String> {
        let (left_bytes, needed_bytes) =
            (Pressure::new().headroom_bytes(), u64::from(self.grown) * FRAME_BYTES + SPARE_BYTES);
        if left_bytes >= needed_bytes {
            return Ok(());
        }
        Err(format!(
            "failed to simulate a cache of {}: with {} pages it needs {} more memory, and {} are left here; replay fewer policies \
             and sizes at a time, or give its cgroup more (memory.max)",
            self.size,
            self.grown,
            readable(needed_bytes),
            readable(left_bytes)
        ))
    }
}

/// A run of adjacent pages that one device read brings in.
#[derive(Default)]
struct Run {
    end: u64,
    pages: u64,
}

/// Whether a page extended the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extended {
    Yes,
    No,
}

impl Run {
    fn extend(&mut self, page: u64) -> Extended {
        let extended = if page == self.end && (1..RUN_PAGES_MAX).contains(&self.pages) {
            self.pages += 1;
            Extended::Yes
        } else {
            self.pages = 1;
            Extended::No
        };
        self.end = page + 1;
        extended
    }
}

impl Request {
    /// Whether the page at `index` of a request has to be read if it is missing.
    fn reads(&self, index: u64) -> bool {
        match self.kind {
            Kind::Read => true,
            Kind::Write { first, last } => {
                (index == 0 && first == Covered::Part) || (index + 1 == self.pages && last == Covered::Part)
            }
        }
    }
}

/// Whether a page was used since it came into the cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Arrival {
    /// A request used it.
    #[default]
    Asked,
    /// The current request brought it in, and has yet to reach it.
    Demanded,
    /// Readahead brought it in.
    Ahead,
}

#[derive(Clone, Copy, Default)]
struct Page {
    number: u64,
    references: u8,
    arrival: Arrival,
    is_marked: bool,
}

#[derive(Default)]
struct SimulatedFrames {
    pages: Vec<Page>,
}

impl SimulatedFrames {
    fn reference(&mut self, frame: FrameId) {
        let count = &mut self.pages[frame.get() as usize].references;
        *count = (*count + 1).min(REFERENCES_MAX);
    }
}

impl Frames for SimulatedFrames {
    fn take_references(&mut self, frame: FrameId) -> u8 {
        std::mem::take(&mut self.pages[frame.get() as usize].references)
    }

    fn set_references(&mut self, frame: FrameId, count: u8) {
        self.pages[frame.get() as usize].references = count;
    }

    fn fingerprint(&self, frame: FrameId) -> u64 {
        self.pages[frame.get() as usize].number
    }

    fn try_evict(&mut self, _: FrameId) -> Evicted {
        Evicted::Yes
    }
}

/// The longest device read of an engine.
const RUN_PAGES_MAX: u64 = Limits::RUN_BYTES_MAX / PAGE_SIZE_BYTES;

/// Memory for each frame while the frames double: 29 bytes in tables, up to 34 in the map of pages, and half of both again while the
/// old tables are copied.
const FRAME_BYTES: u64 = 96;

/// Memory for the rest of the process.
const SPARE_BYTES: u64 = 4 << 20;

/// The frames at the start, for 4 MiB of cache.
const FRAMES_FIRST: u32 = 1024;

/// The limit of a reference count, which has two bits in the state word of a real frame.
const REFERENCES_MAX: u8 = 3;

#[cfg(test)]
mod tests {
    use super::super::request::Direction;
    use super::*;

    fn counts(requests: &[Request]) -> Counts {
        counts_with(ReadaheadPolicy::Off, 10, requests)
    }

    fn counts_with(readahead: ReadaheadPolicy, pages: u64, requests: &[Request]) -> Counts {
        let mut cache = Cache::new(Policy::Lru, ByteSize(pages * PAGE_SIZE_BYTES), readahead);
        requests.iter().for_each(|request| cache.serve(request).unwrap());
        cache.counts
    }

    fn bytes(start: u64, length: u64, direction: Direction) -> Request {
        Request::of_bytes(start, length, direction).unwrap()
    }

    /// Goal: adjacent missing pages of a request are one read, what is cached between them parts it.
    #[test]
    fn adjacent_misses_merge() {
        let requests = [bytes(2 * 4096, 4096, Direction::Read), bytes(0, 5 * 4096, Direction::Read)];
        let expected = Counts {
            requests: 2,
            page_accesses: 6,
            misses: 5,
            device_reads: 1 + 2,
            pages_read: 5,
            ..Counts::default()
        };
        assert_eq!(counts(&requests), expected);
    }

    /// Goal: a write reads what it covers in part, if that is missing, and its pages are cached.
    #[test]
    fn writes_read_their_torn_pages() {
        let requests = [bytes(100, 3 * 4096, Direction::Write), bytes(0, 4 * 4096, Direction::Read)];
        let expected = Counts {
            requests: 2,
            page_accesses: 8,
            misses: 4,
            device_reads: 2,
            pages_read: 2,
            ..Counts::default()
        };
        assert_eq!(counts(&requests), expected);
        let whole = [bytes(0, 2 * 4096, Direction::Write)];
        assert_eq!(counts(&whole).device_reads, 0);
    }

    /// Goal: a scan is read ahead by each policy: each page once, in few reads, nearly all of it before it is asked for.
    #[test]
    fn scans_are_read_ahead() {
        let scan: Vec<Request> = (0..4096).map(|page| bytes(page * 4096, 4096, Direction::Read)).collect();
        for policy in [ReadaheadPolicy::Linux, ReadaheadPolicy::Adaptive, ReadaheadPolicy::Fixed(64)] {
            let counts = counts_with(policy, 8192, &scan);
            assert_eq!((counts.misses, counts.used_pages, counts.unused_pages), (1, 4095, 0), "{policy:?}");
            assert_eq!(counts.read_ahead_pages + counts.misses, counts.pages_read, "{counts:?}");
            assert!(counts.pages_read < 4096 + 1024 && counts.device_reads < 200, "{policy:?}: {counts:?}");
        }
    }

    /// Goal: what is read ahead in vain is counted as such once it has left, and a long request misses all of its pages in
    /// one read. Method: pages far apart through a small cache.
    #[test]
    fn waste_is_counted() {
        let far: Vec<Request> = (0..50).map(|place| bytes(place << 32, 4096, Direction::Read)).collect();
        let counts = counts_with(ReadaheadPolicy::Fixed(8), 100, &far);
        assert_eq!((counts.misses, counts.used_pages, counts.read_ahead_pages), (50, 0, 400), "{counts:?}");
        assert_eq!((counts.pages_read, counts.unused_pages), (450, 311), "{counts:?}");
        let long = counts_with(ReadaheadPolicy::Fixed(8), 1000, &[bytes(0, 200 * 4096, Direction::Read)]);
        assert_eq!((long.misses, long.pages_read, long.device_reads), (200, 208, 1), "{long:?}");
        let beyond = [Request::of_object(u64::MAX, Direction::Read)];
        assert_eq!(counts_with(ReadaheadPolicy::Adaptive, 100, &beyond).pages_read, 1);
    }
}
