//! Readahead simulation: a device, a cache and readers in virtual time, which carry out what a policy plans.
//!
//! ```text
//!   reader ─► page there? ─ no, or marked ─► policy ─► plan ─► runs of absent pages ─► device
//!      ▲                                                                                  │
//!      └──────────────── waits until the clock reaches the completion ◄───────────────────┘
//! ```
//!
//! Owns: the clock, what is cached, what is in flight, and the counts of the case table.
//!
//! Does not own: any choice of what to read.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use headwater_core::{
    Access, ByteRange, Lookup, Outcome, PAGE_SIZE_BYTES, PageIndex, PageRange, Plan, PlannedRead, Presence,
    Purpose, ReadId, ReadResult, Readahead, ReadaheadLimits, ReadaheadPolicy,
};

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) policy: ReadaheadPolicy,
    pub(crate) limits: ReadaheadLimits,
    pub(crate) file_pages: u64,
    pub(crate) cache_pages: usize,
    /// What the reader does with each page.
    pub(crate) compute: Duration,
    /// From submission to the first byte.
    pub(crate) latency: Duration,
    /// What the device transfers a page in.
    pub(crate) transfer: Duration,
    pub(crate) depth: usize,
    pub(crate) bad_pages: BTreeSet<u64>,
    pub(crate) marks: Marks,
    /// Every how many reads one that is ahead finds no frame; none if zero.
    pub(crate) refused_nth: u64,
}

/// Whether the policy hears of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    Set,
    /// Nothing is read before a reader misses it.
    Ignored,
}

impl Setup {
    /// A flash device of 2.4 GB/s and 80 us, and a cache that holds everything.
    pub(crate) fn new(policy: ReadaheadPolicy, file_pages: u64) -> Self {
        Self {
            policy,
            limits: ReadaheadLimits::default(),
            file_pages,
            cache_pages: usize::MAX,
            compute: Duration::from_nanos(500),
            latency: Duration::from_micros(80),
            transfer: Duration::from_nanos(1700),
            depth: 32,
            bad_pages: BTreeSet::new(),
            marks: Marks::Set,
            refused_nth: 0,
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests that waited for a read which nothing had started before them.
    pub(crate) misses: u64,
    /// Waits for a read that had been started ahead.
    pub(crate) late: u64,
    pub(crate) device_reads: u64,
    pub(crate) device_pages: u64,
    /// Read ahead and not used: evicted, or there at the end.
    pub(crate) wasted_pages: u64,
    pub(crate) failed_requests: u64,
    pub(crate) calls: u64,
    pub(crate) lookups: u64,
    pub(crate) plan_reads_max: usize,
    pub(crate) in_flight_max: usize,
    pub(crate) ahead_pages_max: u64,
    /// When the last reader was done.
    pub(crate) elapsed: Duration,
}

impl Counts {
    pub(crate) fn average_kib(&self) -> u64 {
        self.device_pages * (PAGE_SIZE_BYTES / 1024) / self.device_reads.max(1)
    }
}

#[derive(Clone, Copy, Debug)]
struct Page {
    is_pending: bool,
    is_marked: bool,
    /// Read ahead, and not used yet.
    is_unused: bool,
    /// Changes with each use: the order of eviction.
    stamp: u64,
}

#[derive(Clone, Debug)]
struct Flight {
    range: PageRange,
    done: Duration,
    ids: Vec<ReadId>,
}

#[derive(Default)]
struct Pages {
    map: BTreeMap<u64, Page>,
    lookups: Cell<u64>,
}

impl Lookup for Pages {
    fn is_cached(&self, page: PageIndex) -> Presence {
        self.lookups.set(self.lookups.get() + 1);
        if self.map.contains_key(&page.get()) { Presence::Cached } else { Presence::Absent }
    }
}

/// The world of one file.
pub(crate) struct Sim {
    pub(crate) setup: Setup,
    pub(crate) readahead: Readahead,
    pub(crate) now: Duration,
    pub(crate) counts: Counts,
    cache: Pages,
    order: VecDeque<(u64, u64)>,
    flights: VecDeque<Flight>,
    device_free: Duration,
    /// Device reads that each planned read still waits for, and whether one of them failed.
    waiting: BTreeMap<ReadId, (usize, ReadResult)>,
    stamps: u64,
    plan: Plan,
    /// The request under way: its pages are not evicted.
    pinned: PageRange,
}

impl Sim {
    pub(crate) fn new(setup: Setup) -> Self {
        let readahead = Readahead::new(setup.policy, setup.limits).unwrap();
        Self {
            setup,
            readahead,
            now: Duration::ZERO,
            counts: Counts::default(),
            cache: Pages::default(),
            order: VecDeque::new(),
            flights: VecDeque::new(),
            device_free: Duration::ZERO,
            waiting: BTreeMap::new(),
            stamps: 0,
            plan: Plan::new(),
            pinned: PageRange::default(),
        }
    }

    /// One read of a reader, page by page, as the engine does it.
    pub(crate) fn read(&mut self, offset_bytes: u64, length_bytes: u64) {
        self.read_by(0, offset_bytes, length_bytes);
    }

    pub(crate) fn read_by(&mut self, handle: u32, offset_bytes: u64, length_bytes: u64) {
        let bytes = ByteRange::at(offset_bytes, length_bytes)
            .clip(PageIndex::new(self.setup.file_pages).start_bytes());
        let pages = PageRange::covering(bytes);
        let mut request = Request { pages, bytes, handle, demanded: BTreeSet::new(), is_missed: false };
        self.pinned = pages;
        let mut was_heard = false;
        for page in pages.iter() {
            match self.bring(page, &mut request) {
                Brought::There => {}
                Brought::Heard => was_heard = true,
                Brought::Failed => {
                    self.counts.failed_requests += 1;
                    return;
                }
            }
            self.use_page(page);
        }
        if !was_heard {
            self.readahead.on_hit(bytes);
        }
        self.counts.misses += u64::from(request.is_missed);
    }

    /// Runs until nothing is in flight, and counts what was never used.
    pub(crate) fn finish(mut self) -> Counts {
        self.counts.elapsed = self.now;
        self.now = self.now.max(self.device_free);
        self.settle();
        assert!(self.flights.is_empty() && self.waiting.is_empty(), "a read was never completed");
        self.readahead.check();
        self.counts.wasted_pages += self.cache.map.values().filter(|page| page.is_unused).count() as u64;
        self.counts.lookups = self.cache.lookups.get();
        self.counts
    }

    /// Drops what is cached of these pages, as a truncate does.
    pub(crate) fn invalidate(&mut self, pages: core::ops::Range<u64>) {
        self.now = self.now.max(self.device_free);
        self.settle();
        self.readahead.on_dropped(PageRange::new(PageIndex::new(pages.start), PageIndex::new(pages.end)));
        for page in pages {
            self.cache.map.remove(&page);
        }
    }

    pub(crate) fn last_plan(&self) -> &Plan {
        &self.plan
    }

    fn bring(&mut self, page: PageIndex, request: &mut Request) -> Brought {
        let mut brought = Brought::There;
        for _attempt in 0..3 {
            self.settle();
            let Some(state) = self.cache.map.get_mut(&page.get()) else {
                if request.demanded.contains(&page.get()) {
                    return Brought::Failed;
                }
                brought = Brought::Heard;
                self.tell(page, Outcome::Miss, request);
                continue;
            };
            let is_marked = core::mem::take(&mut state.is_marked);
            let is_pending = state.is_pending;
            if is_pending && !request.demanded.contains(&page.get()) {
                self.counts.late += 1;
                brought = Brought::Heard;
                self.tell(page, if is_marked { Outcome::PendingMarked } else { Outcome::Pending }, request);
            } else if is_marked {
                brought = Brought::Heard;
                self.tell(page, Outcome::Hit, request);
                return brought;
            }
            if !is_pending {
                return brought;
            }
            self.wait_for(page);
            if self.cache.map.contains_key(&page.get()) {
                return brought;
            }
        }
        Brought::Failed
    }

    fn tell(&mut self, at: PageIndex, outcome: Outcome, request: &mut Request) {
        self.counts.calls += 1;
        let Request { pages, bytes, handle, .. } = *request;
        let access = Access { pages, at, outcome, bytes, handle };
        let end = PageIndex::new(self.setup.file_pages);
        let mut plan = core::mem::take(&mut self.plan);
        self.readahead.on_read(access, end, self.now, &self.cache, &mut plan);
        self.readahead.check();
        self.counts.plan_reads_max = self.counts.plan_reads_max.max(plan.reads().len());
        let ahead_pages = self.readahead.stats().ahead_pages;
        self.counts.ahead_pages_max = self.counts.ahead_pages_max.max(ahead_pages);
        self.execute(&plan, request);
        request.is_missed |= outcome == Outcome::Miss;
        self.plan = plan;
    }

    /// Skips what is cached, merges what is adjacent, submits. A plan with a bad page is not merged, so that
    /// each read fails by itself.
    fn execute(&mut self, plan: &Plan, request: &mut Request) {
        let mut runs: Vec<Flight> = Vec::new();
        for read in plan.reads() {
            assert!(read.range.end.get() <= self.setup.file_pages, "A2: a read beyond the end of the file");
            if self.refuses(read) {
                self.readahead.complete(read.id, ReadResult::Refused, self.now);
                continue;
            }
            for page in
                read.range.iter().filter(|page| !self.cache.map.contains_key(&page.get())).collect::<Vec<_>>()
            {
                let is_demand = read.purpose == Purpose::Demand;
                if is_demand {
                    request.demanded.insert(page.get());
                    request.is_missed = true;
                }
                self.insert(page, !self.is_pinned(page.get()));
                self.add_to_runs(&mut runs, page, read.id);
            }
            if self.setup.marks == Marks::Set
                && let Some(mark) = read.mark.and_then(|mark| self.cache.map.get_mut(&mark.get()))
            {
                mark.is_marked = true;
            }
            let parts = runs.iter().filter(|run| run.ids.contains(&read.id)).count();
            if parts == 0 {
                self.readahead.complete(read.id, ReadResult::Read, self.now);
            }
        }
        runs.into_iter().for_each(|run| self.submit(run));
    }

    fn refuses(&self, read: &PlannedRead) -> bool {
        let nth = self.setup.refused_nth;
        let is_refused = nth > 0 && read.id.get().is_multiple_of(nth);
        read.purpose == Purpose::Ahead && (is_refused || !self.has_room(read))
    }

    /// Whether all pages of the read find a frame that is free or can be evicted.
    fn has_room(&self, read: &PlannedRead) -> bool {
        let pages = &self.cache.map;
        if self.setup.cache_pages == usize::MAX {
            return true;
        }
        let absent = read.range.iter().filter(|page| !pages.contains_key(&page.get())).count();
        let fixed = pages.iter().filter(|(page, state)| state.is_pending || self.is_pinned(**page)).count();
        absent + fixed <= self.setup.cache_pages
    }

    fn add_to_runs(&self, runs: &mut Vec<Flight>, page: PageIndex, id: ReadId) {
        let run_pages_max = self.setup.limits.size_bytes_max / PAGE_SIZE_BYTES;
        let may_merge = |run: &Flight| self.setup.bad_pages.is_empty() || run.ids.contains(&id);
        if let Some(run) = runs.last_mut()
            && run.range.end == page
            && run.range.len().get() < run_pages_max
            && may_merge(run)
        {
            run.range.end = PageIndex::new(page.get() + 1);
            if !run.ids.contains(&id) {
                run.ids.push(id);
            }
            return;
        }
        let range = PageRange::new(page, PageIndex::new(page.get() + 1));
        runs.push(Flight { range, done: Duration::ZERO, ids: vec![id] });
    }

    fn submit(&mut self, mut run: Flight) {
        for id in &run.ids {
            self.waiting.entry(*id).or_insert((0, ReadResult::Read)).0 += 1;
        }
        let busy = self.flights.len();
        let begin =
            if busy < self.setup.depth { self.now } else { self.flights[busy - self.setup.depth].done };
        let pages = u32::try_from(run.range.len().get()).unwrap();
        run.done = (begin + self.setup.latency).max(self.device_free) + self.setup.transfer * pages;
        self.device_free = run.done;
        self.counts.device_reads += 1;
        self.counts.device_pages += u64::from(pages);
        self.flights.push_back(run);
        self.counts.in_flight_max = self.counts.in_flight_max.max(self.flights.len());
    }

    /// Takes the completions that lie in the past.
    fn settle(&mut self) {
        while self.flights.front().is_some_and(|flight| flight.done <= self.now) {
            let flight = self.flights.pop_front().unwrap();
            let is_bad = flight.range.iter().any(|page| self.setup.bad_pages.contains(&page.get()));
            for page in flight.range.iter() {
                if is_bad {
                    self.cache.map.remove(&page.get());
                } else if let Some(page) = self.cache.map.get_mut(&page.get()) {
                    page.is_pending = false;
                }
            }
            flight.ids.iter().for_each(|id| self.settle_read(*id, is_bad, flight.done));
        }
    }

    fn settle_read(&mut self, id: ReadId, is_bad: bool, done: Duration) {
        let entry = self.waiting.get_mut(&id).unwrap();
        entry.0 -= 1;
        if is_bad {
            entry.1 = ReadResult::Failed;
        }
        if entry.0 == 0 {
            let result = entry.1;
            self.waiting.remove(&id);
            self.readahead.complete(id, result, done);
        }
    }

    fn wait_for(&mut self, page: PageIndex) {
        let holds = |flight: &&Flight| flight.range.start <= page && page < flight.range.end;
        let done = self.flights.iter().find(holds).expect("a pending page is in flight").done;
        self.now = self.now.max(done);
        self.settle();
    }

    fn use_page(&mut self, page: PageIndex) {
        self.stamps += 1;
        let state = self.cache.map.get_mut(&page.get()).expect("the page was brought");
        if core::mem::take(&mut state.is_unused) {
            self.readahead.on_used(1);
        }
        state.stamp = self.stamps;
        self.order.push_back((page.get(), self.stamps));
        self.now += self.setup.compute;
    }

    fn insert(&mut self, page: PageIndex, is_unused: bool) {
        self.evict();
        self.stamps += 1;
        let state = Page { is_pending: true, is_marked: false, is_unused, stamp: self.stamps };
        self.cache.map.insert(page.get(), state);
        self.order.push_back((page.get(), self.stamps));
    }

    fn is_pinned(&self, page: u64) -> bool {
        self.pinned.start.get() <= page && page < self.pinned.end.get()
    }

    /// Makes room for a page: least recently used first, whatever is not on its way.
    fn evict(&mut self) {
        let mut pending = Vec::new();
        while self.cache.map.len() >= self.setup.cache_pages {
            let (page, stamp) = self.order.pop_front().expect("demand finds a frame, readahead was refused");
            let Some(state) = self.cache.map.get(&page).filter(|state| state.stamp == stamp) else {
                continue;
            };
            if state.is_pending || self.is_pinned(page) {
                pending.push((page, stamp));
                continue;
            }
            if state.is_unused {
                self.counts.wasted_pages += 1;
                let page = PageIndex::new(page);
                self.readahead.on_unused(PageRange::new(page, PageIndex::new(page.get() + 1)));
            }
            self.cache.map.remove(&page);
        }
        pending.into_iter().rev().for_each(|entry| self.order.push_front(entry));
    }
}

struct Request {
    pages: PageRange,
    bytes: ByteRange,
    handle: u32,
    demanded: BTreeSet<u64>,
    is_missed: bool,
}

enum Brought {
    There,
    /// The policy was told.
    Heard,
    Failed,
}

/// Numbers that look random and are the same each time (xorshift64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
