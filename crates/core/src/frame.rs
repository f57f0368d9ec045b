//! Frame: one page of memory, which page of which file it holds, and in what state, in one atomic word.
//!
//! ```text
//!                    begin_load            complete_load
//!   Free ──────────────────────► Loading ─────────────────► Resident ◄──► pinned (pins > 0)
//!    ▲ ▲                         │  │                        │  │           pin, unpin
//!    │ └───────── fail_load ─────┘  │ invalidate      evict, │  │ invalidate, pinned
//!    │                              ▼        invalidate: no  │  ▼
//!    ├──── complete_load, fail ── Stale         pins         │ Doomed
//!    └───────────────────────────────────────────────────────┘  │ unpin, the last
//!    └──────────────────────────────────────────────────────────┘
//!
//!             begin_write          end_write          clean
//!   Resident ─────────────► Writing ────────► Dirty ────────► Resident      Dirty: as Resident, but not evicted
//!                              ▲───────────────┘ ▲
//!   Free ──────────────────────── install ───────┘
//!
//!                offer                 withdraw
//!   Resident ─────────────► Offered ─────────────► Resident      Offered: the kernel may take the memory; it is pinned
//!                                                                only to be touched (`begin_touch`)
//! ```
//!
//! | from | to | by | right to the bytes afterwards |
//! |---|---|---|---|
//! | Free | Loading | [`Frame::begin_load`] | the I/O |
//! | Loading | Resident | [`Frame::complete_load`] | none |
//! | Resident | Resident, pinned | [`Frame::pin`] | its pins, reading |
//! | Resident, pinned | Resident | [`Frame::unpin`], the last | none |
//! | Loading | Stale | [`Frame::invalidate`], [`Frame::invalidate_clean`] | the I/O, whose bytes are discarded |
//! | Stale | Free | [`Frame::complete_load`], [`Frame::fail_load`] | the allocator |
//! | Loading | Free | [`Frame::fail_load`] | the allocator |
//! | Resident | Free | [`Frame::evict`], [`Frame::invalidate`], [`Frame::invalidate_clean`] | the allocator |
//! | Resident, pinned | Doomed | [`Frame::invalidate`], [`Frame::invalidate_clean`] | its pins, reading |
//! | Doomed | Free | [`Frame::unpin`], the last | the allocator |
//! | Free | Dirty | [`Frame::install`] | none: its bytes were written before |
//! | Resident | Writing | [`Frame::begin_write`] | the writer |
//! | Dirty | Writing | [`Frame::begin_write`] | the writer |
//! | Writing | Dirty | [`Frame::end_write`] | none |
//! | Dirty | Dirty, pinned | [`Frame::pin`], [`Frame::hold`] | its pins, reading |
//! | Dirty, pinned | Dirty | [`Frame::unpin`], the last | none |
//! | Dirty, pinned | Resident, pinned | [`Frame::clean`] | its pins, reading |
//! | Dirty | Free | [`Frame::invalidate`] | the allocator |
//! | Dirty, pinned | Doomed | [`Frame::invalidate`] | its pins, reading |
//! | Resident | Offered | [`Frame::offer`] | the operating system's kernel, which may put zeros there |
//! | Offered | Offered, pinned | [`Frame::begin_touch`] | the same; its pins touch and compare |
//! | Offered, pinned | Offered | [`Frame::unpin`], the last | the same |
//! | Offered | Resident | [`Frame::withdraw`] | none |
//! | Offered, pinned | Resident, pinned | [`Frame::withdraw`] | its pins, reading |
//! | Offered | Free | [`Frame::evict`], [`Frame::invalidate`], [`Frame::invalidate_clean`] | the allocator |
//! | Offered, pinned | Doomed | [`Frame::invalidate`], [`Frame::invalidate_clean`] | none: its pins found it taken, or give up |
//!
//! The word holds state, pins, a count of references for the replacement policy, what readahead wants to know, where
//! the last read within the page ended, and a version that grows with every load and every write. A reader without any
//! lock loads the word, compares the identity (file and page), and pins with one compare-and-swap: if that succeeds the
//! word has not changed meanwhile, version and all, so the identity is that of the bytes (a sequence lock whose read side
//! ends in a pin; compare LeanStore, Leis et al. 2018, and the latches of vmcache, Leis et al. 2023).
//!
//! Rights to the bytes. The crates that own memory (`headwater-io`'s page cache, `headwater-kernel`'s frames) rest their unsafe code
//! on these four, which follow from the table:
//!
//! - M1 From a pin to its unpin the bytes do not change: shared slices of them are sound.
//! - M2 From `begin_write` to `end_write` the bytes are the writer's alone; only optimistic readers may still load them.
//! - M3 From `begin_load` to `complete_load` or `fail_load` the bytes are the I/O's alone, with the same exception.
//! - M4 A frame that becomes Free is named to the allocator once; until it is loaded or installed again, its bytes belong to
//!   the thread that allocates it, with the same exception.
//!
//! - M5 While a frame is Offered its bytes are the page's or, once the kernel has taken them, zeros, which they stay. They are loaded
//!   atomically, and stored to only by a compare-and-exchange that changes nothing.
//!
//! Invariants: F1 pins are zero unless Resident, Dirty, Doomed or Offered. F2 the identity changes only while Free and before
//! Loading or Dirty is seen. F3 the version grows with each load and each write. F4 one load is under way while Loading or
//! Stale. F5 a page has one writer while Writing. F6 a page becomes clean only while the writeback that wrote it holds a pin.
//! F7 a page is offered only while it is not pinned, so that what was touched under a pin is not offered again before its unpin.
//! Locks: none here. All transitions but those of `pin`, `hold`, `unpin`, `begin_touch`, `begin_write`, `end_write` and `clean` are made
//! under the cache's control lock. `invalidate` waits for a writer, which copies at most a page.
//! Hot path: `pin` is two loads and one compare-and-swap, `unpin` one subtraction.
//
// Owns: the word, the identity, every transition.
// Does not own: the bytes, the table that leads here, the decision what
// to evict.
// A page is written in place only while it is not pinned; else the writer installs a copy in another frame, and this
// one is doomed (the loan of UVM, Cranor and Parulkar 1999, broken by a write). So what is pinned never changes, be it
// pinned by a reader, by a view or by a write of it to the device.

mod chunks;
mod ids;
mod offering;
mod optimistic;
mod pins;
mod writing;

use crate::sync::{AtomicU64, Ordering, fence, spin};
use crate::units::{PAGE_SIZE_BYTES, PageIndex};

pub use chunks::{CHUNK_FRAMES, Frames};
pub use ids::{FileId, LoadId, LoadKind};
pub use offering::{ChunkOffer, Offer, Sentinel, Touch};
pub use optimistic::PageVersion;
pub use writing::{Held, WriteLatch};

/// State of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameState {
    /// Holds nothing; its memory is the allocator's.
    Free,
    /// An I/O fills it.
    Loading,
    /// Holds the page of its identity.
    Resident,
    /// An I/O fills it, but the page has changed or gone meanwhile.
    Stale,
    /// Holds the page's bytes from before a change, for readers that still pin it.
    Doomed,
    /// Holds the page of its identity as it was written, which its file has not yet.
    Dirty,
    /// A writer changes the page of its identity.
    Writing,
    /// Holds the page of its identity, unless the operating system's kernel has taken the memory, which it may.
    Offered,
}

/// What trying to pin gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Pinned; [`Frame::unpin`] must follow.
    Pinned(FirstUse),
    /// This load is bringing it.
    Pending(LoadId),
    /// A writer is at it, for as long as copying at most a page takes: try again.
    Busy,
    /// It is there, but [`PINS_MAX`] readers have it pinned already.
    Crowded,
    /// It is on offer to the operating system's kernel: touch it, then try again.
    Offered,
    /// The frame holds something else.
    Absent,
}

/// What a pin found out about the page beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstUse {
    /// It was used before, or demanded.
    No,
    /// It was read ahead, and this is its first use.
    Ahead,
    /// It was marked, and this is the first use since.
    Marked,
    /// Both.
    AheadMarked,
}

impl FirstUse {
    /// Whether to report the use to readahead.
    pub const fn is_marked(self) -> bool {
        matches!(self, Self::Marked | Self::AheadMarked)
    }

    /// Whether readahead guessed right.
    pub const fn is_ahead(self) -> bool {
        matches!(self, Self::Ahead | Self::AheadMarked)
    }
}

/// What became of a page that was taken out of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidated {
    /// The frame is free; its memory goes back now.
    Freed,
    /// Readers hold it; its memory goes back with the last of them.
    Doomed,
    /// Its load is under way; the memory goes back when that is done.
    Stale,
}

/// Whether a load that ended still concerned the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It did.
    Current,
    /// The page was invalidated meanwhile, and has left its table: the frame is free, its memory goes back.
    Stale,
}

/// What remains after a pin is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unpinned {
    /// The page stays.
    Kept,
    /// It was the last pin of a doomed page: the frame is free, its memory goes back.
    Freed,
}

/// One frame.
#[derive(Debug)]
pub struct Frame {
    word: AtomicU64,
    identity: AtomicU64,
}

impl Frame {
    /// A frame that holds nothing.
    pub fn new() -> Self {
        Self { word: AtomicU64::new(FREE), identity: AtomicU64::new(0) }
    }

    /// Pins the page if this frame holds it. `within_bytes` is where in the page the read begins and `end_bytes` where
    /// it ends: a read that goes on where the last one ended is no second reference.
    #[inline]
    pub fn pin(&self, file: FileId, page: PageIndex, within_bytes: u32, end_bytes: u32) -> Pin {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let state = word & STATE;
            if matches!(state, FREE | STALE | DOOMED) || !self.holds(file, page) {
                return Pin::Absent;
            }
            match state {
                RESIDENT | DIRTY => {}
                LOADING => return Pin::Pending(load_of(word)),
                WRITING => return Pin::Busy,
                _ => return Pin::Offered,
            }
            if word & PINS >= u64::from(PINS_MAX) << PINS_SHIFT {
                return Pin::Crowded;
            }
            let pinned = touched(word, within_bytes, end_bytes) + PIN;
            match self.word.compare_exchange_weak(word, pinned, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Pin::Pinned(first_use(word)),
                Err(now) => word = now,
            }
        }
    }

    /// Gives up a pin.
    ///
    /// # Panics
    /// If it is not pinned.
    #[inline]
    pub fn unpin(&self) -> Unpinned {
        let before = self.word.fetch_sub(PIN, Ordering::AcqRel);
        if before & PINS == 0 {
            self.refuse_unpin();
        }
        if before & (PINS | STATE) != PIN | DOOMED {
            return Unpinned::Kept;
        }
        let doomed = self.word.fetch_xor(DOOMED ^ FREE, Ordering::AcqRel);
        assert!(doomed & STATE == DOOMED, "one at a time changes the state");
        Unpinned::Freed
    }

    /// The pin that was not there was taken from the version next to it: gives it back.
    #[cold]
    fn refuse_unpin(&self) -> ! {
        self.word.fetch_add(PIN, Ordering::AcqRel);
        panic!("F1: only what is pinned is unpinned");
    }

    /// Free -> Loading.
    ///
    /// # Panics
    /// If the frame is not free, or beyond [`FileId::MAX`] or [`PAGES_MAX`].
    pub fn begin_load(&self, file: FileId, page: PageIndex, load: LoadId, kind: LoadKind) {
        let word = self.word.load(Ordering::Acquire);
        assert!(word & (STATE | PINS) == FREE, "F4: only a free frame is loaded");
        // F2: nobody compares the identity of a free frame to any effect.
        self.identity.store(identity(file, page), Ordering::Release);
        let flags = match kind {
            LoadKind::Demand => FRESH,
            LoadKind::Ahead => AHEAD,
        };
        let version = (word & VERSION).wrapping_add(VERSION_ONE);
        self.word.store(version | u64::from(load.0) << LOAD_SHIFT | flags | LOADING, Ordering::Release);
    }

    /// Loading -> Resident, or Stale -> Free.
    ///
    /// # Panics
    /// In any other state.
    pub fn complete_load(&self) -> Ended {
        match self.word.load(Ordering::Acquire) & STATE {
            LOADING => {
                self.end_load(RESIDENT);
                Ended::Current
            }
            STALE => {
                self.end_load(FREE);
                Ended::Stale
            }
            _ => panic!("F4: only a load that was begun is completed"),
        }
    }

    /// Loading or Stale -> Free.
    ///
    /// # Panics
    /// In any other state.
    pub fn fail_load(&self) -> Ended {
        match self.word.load(Ordering::Acquire) & STATE {
            LOADING => {
                self.end_load(FREE);
                Ended::Current
            }
            STALE => {
                self.end_load(FREE);
                Ended::Stale
            }
            _ => panic!("F4: only a load that was begun fails"),
        }
    }

    /// A reader waits for the page: from now on it counts as demanded. Returns what its first use would have returned.
    pub fn demand(&self) -> FirstUse {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let fresh = if word & AHEAD == 0 { word & FRESH } else { FRESH };
            let next = word & !(AHEAD | MARK) | fresh;
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return first_use(word),
                Err(now) => word = now,
            }
        }
    }

    /// The next use of the page is to be reported.
    pub fn mark(&self) {
        self.word.fetch_or(MARK, Ordering::AcqRel);
    }

    /// Resident or Offered -> Free, unless pinned. Says whether the page was read ahead and never used, or `None` if it stays.
    pub fn evict(&self) -> Option<Usage> {
        let word = self.word.load(Ordering::Acquire);
        if !matches!(word & (STATE | PINS), RESIDENT | OFFERED) {
            return None;
        }
        // A reader that pins, or only touches, between the two has used it: let it stay.
        let free = word & VERSION | FREE;
        self.word.compare_exchange(word, free, Ordering::AcqRel, Ordering::Acquire).ok()?;
        Some(usage(word))
    }

    /// Takes the page out of use, whatever it is doing; waits for a writer to have copied.
    ///
    /// # Panics
    /// If the frame holds nothing.
    pub fn invalidate(&self) -> (Invalidated, Usage) {
        loop {
            let word = self.word.load(Ordering::Acquire);
            let next = match word & STATE {
                WRITING => None,
                DIRTY => Some(without(word)),
                _ => Some(without_clean(word).expect("what is invalidated is loading, or holds a page")),
            };
            match next.and_then(|(next, became)| self.leave(word, next, became)) {
                Some(left) => return left,
                None => spin(),
            }
        }
    }

    /// The same, unless the page is dirty or about to be: `None` then.
    ///
    /// # Panics
    /// If the frame holds nothing.
    pub fn invalidate_clean(&self) -> Option<(Invalidated, Usage)> {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if matches!(word & STATE, DIRTY | WRITING) {
                return None;
            }
            let (next, became) =
                without_clean(word).expect("what is invalidated is loading, or holds a page");
            if let Some(left) = self.leave(word, next, became) {
                return Some(left);
            }
        }
    }

    fn leave(&self, word: u64, next: u64, became: Invalidated) -> Option<(Invalidated, Usage)> {
        self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire).ok()?;
        Some((became, usage(word)))
    }

    /// How often the page was referenced since this was last asked, 0 to 3; sets it to zero.
    pub fn take_references(&self) -> u8 {
        let before = self.word.fetch_and(!REFERENCES, Ordering::AcqRel);
        ((before & REFERENCES) >> REFERENCES_SHIFT) as u8
    }

    /// How often the page was referenced since [`Frame::take_references`], 0 to 3.
    pub fn references(&self) -> u8 {
        ((self.word.load(Ordering::Acquire) & REFERENCES) >> REFERENCES_SHIFT) as u8
    }

    /// Sets the count, 0 to 3.
    ///
    /// # Panics
    /// If `count` is larger than the frame can count.
    pub fn set_references(&self, count: u8) {
        assert!(count <= REFERENCES_MAX, "the count has two bits");
        self.word.fetch_and(!REFERENCES, Ordering::AcqRel);
        self.word.fetch_or(u64::from(count) << REFERENCES_SHIFT, Ordering::AcqRel);
    }

    /// The state now.
    pub fn state(&self) -> FrameState {
        match self.word.load(Ordering::Acquire) & STATE {
            FREE => FrameState::Free,
            LOADING => FrameState::Loading,
            RESIDENT => FrameState::Resident,
            STALE => FrameState::Stale,
            DOOMED => FrameState::Doomed,
            DIRTY => FrameState::Dirty,
            WRITING => FrameState::Writing,
            _ => FrameState::Offered,
        }
    }

    /// Whether the page was read ahead and not used so far.
    pub fn usage(&self) -> Usage {
        usage(self.word.load(Ordering::Acquire))
    }

    /// The file of the page that it holds or loads.
    pub fn file(&self) -> FileId {
        FileId((self.identity.load(Ordering::Acquire) >> PAGE_BITS) as u32)
    }

    /// The page that it holds or loads.
    pub fn page(&self) -> PageIndex {
        PageIndex::new(self.identity.load(Ordering::Acquire) & (PAGES_MAX - 1))
    }

    /// The load under way.
    pub fn load(&self) -> Option<LoadId> {
        let word = self.word.load(Ordering::Acquire);
        is_loading(word).then(|| load_of(word))
    }

    #[inline]
    fn holds(&self, file: FileId, page: PageIndex) -> bool {
        let is_possible = page.get() < PAGES_MAX;
        is_possible && self.identity.load(Ordering::Acquire) == u64::from(file.0) << PAGE_BITS | page.get()
    }

    /// Leaves Loading or Stale, and with it the load, whatever is noted of the page meanwhile.
    fn end_load(&self, to: u64) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            assert!(matches!(word & STATE, LOADING | STALE), "one at a time changes the state");
            let next = word & !(STATE | LOAD) | to;
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a page that leaves was of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// It was demanded, or used after it was read ahead.
    Used,
    /// It was read ahead in vain.
    Unused,
}

/// The word of a page that leaves, from Resident, Dirty or Offered.
fn without(word: u64) -> (u64, Invalidated) {
    let (to, became) =
        if word & PINS == 0 { (FREE, Invalidated::Freed) } else { (DOOMED, Invalidated::Doomed) };
    (word & !STATE | to, became)
}

/// The same from Resident, Offered or Loading; `None` in other states.
fn without_clean(word: u64) -> Option<(u64, Invalidated)> {
    match word & STATE {
        LOADING => Some((word & !STATE | STALE, Invalidated::Stale)),
        RESIDENT | OFFERED => Some(without(word)),
        _ => None,
    }
}

fn identity(file: FileId, page: PageIndex) -> u64 {
    assert!(
        file <= FileId::MAX && page.get() < PAGES_MAX,
        "file or page has a number that frames cannot hold"
    );
    u64::from(file.0) << PAGE_BITS | page.get()
}

fn is_loading(word: u64) -> bool {
    matches!(word & STATE, LOADING | STALE)
}

fn load_of(word: u64) -> LoadId {
    LoadId(((word & LOAD) >> LOAD_SHIFT) as u32)
}

fn first_use(word: u64) -> FirstUse {
    match word & (AHEAD | MARK) {
        0 => FirstUse::No,
        AHEAD => FirstUse::Ahead,
        MARK => FirstUse::Marked,
        _ => FirstUse::AheadMarked,
    }
}

fn usage(word: u64) -> Usage {
    if word & AHEAD == 0 { Usage::Used } else { Usage::Unused }
}

/// The word after a read from `within_bytes` to `end_bytes` of the page.
#[inline]
fn touched(word: u64, within_bytes: u32, end_bytes: u32) -> u64 {
    // The use that a page was loaded for is no reference. Neither is going on. The first use of a page that was read
    // ahead is one, which the policy knows how to take.
    let goes_on = within_bytes != 0 && word & CURSOR == cursor(within_bytes);
    let counts = word & FRESH == 0 && !goes_on && word & REFERENCES != REFERENCES;
    let word = word & !(FRESH | AHEAD | MARK | CURSOR) | cursor(end_bytes);
    if counts { word + REFERENCE } else { word }
}

/// Where in the page a read ended; the end of the page and its start are the same: nothing goes on from there.
fn cursor(bytes: u32) -> u64 {
    u64::from(bytes) << CURSOR_SHIFT & CURSOR
}

const STATE: u64 = 0b111;
const FREE: u64 = 0;
const LOADING: u64 = 1;
const RESIDENT: u64 = 2;
const STALE: u64 = 3;
const DOOMED: u64 = 4;
const DIRTY: u64 = 5;
const WRITING: u64 = 6;
const OFFERED: u64 = 7;

const REFERENCES_SHIFT: u32 = 3;
const REFERENCE: u64 = 1 << REFERENCES_SHIFT;
const REFERENCES: u64 = 0b11 << REFERENCES_SHIFT;

/// The largest count of references: what S3-FIFO needs, and CLOCK more than needs.
pub const REFERENCES_MAX: u8 = 3;

/// Using the page is to be reported.
const MARK: u64 = 1 << 5;

/// Read ahead and not used yet.
const AHEAD: u64 = 1 << 6;

/// Loaded on demand and not used yet.
const FRESH: u64 = 1 << 7;

const CURSOR_SHIFT: u32 = 8;
const CURSOR: u64 = (PAGE_SIZE_BYTES - 1) << CURSOR_SHIFT;

const PINS_SHIFT: u32 = 20;
const PIN: u64 = 1 << PINS_SHIFT;
const PINS: u64 = 0xffff << PINS_SHIFT;

/// Readers that can have a page pinned at once. What is left of the count is for [`Frame::hold`], so that readers do not keep a
/// page from its file.
pub const PINS_MAX: u32 = 0xffff - HOLDS_MIN;

/// Writes of one page to its file that there can be at once, at the least: one, and those that replaced pages wait for.
const HOLDS_MIN: u32 = 1023;

/// In place of cursor and pins, while there are none: the load under way.
const LOAD_SHIFT: u32 = CURSOR_SHIFT;
const LOAD: u64 = CURSOR | PINS;

/// Pages of one file that frames can hold: those of 64 PiB.
pub const PAGES_MAX: u64 = 1 << PAGE_BITS;
const PAGE_BITS: u32 = 44;

const VERSION_SHIFT: u32 = 36;
const VERSION_ONE: u64 = 1 << VERSION_SHIFT;

/// 28 bits: a reader would have to sleep through 268 million loads of one frame to be fooled.
const VERSION: u64 = !0 << VERSION_SHIFT;

const _: () = assert!(CURSOR & PINS == 0 && PINS & VERSION == 0 && REFERENCES & STATE == 0);
const _: () = assert!(size_of::<Frame>() == 16 || cfg!(headwater_loom), "the memory budget counts on it");

#[cfg(all(test, headwater_loom))]
mod loom_tests;
