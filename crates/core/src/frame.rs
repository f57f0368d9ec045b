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
//! ```
//!
//! | from | to | by | who may touch the bytes afterwards |
//! |---|---|---|---|
//! | Free | Loading | [`Frame::begin_load`] | the I/O |
//! | Loading | Resident | [`Frame::complete_load`] | whoever has pinned it, reading |
//! | Loading | Stale | [`Frame::invalidate`] | the I/O: what it brings is thrown away |
//! | Stale | Free | [`Frame::complete_load`], [`Frame::fail_load`] | the allocator |
//! | Loading | Free | [`Frame::fail_load`] | the allocator |
//! | Resident | Free | [`Frame::evict`], [`Frame::invalidate`] | the allocator |
//! | Resident, pinned | Doomed | [`Frame::invalidate`] | those who have pinned it, reading |
//! | Doomed | Free | [`Frame::unpin`], the last | the allocator |
//!
//! The word holds state, pins, a count of references for the replacement policy, what readahead wants to know, where
//! the last read within the page ended, and a version that grows with every load. A reader without any lock loads the
//! word, compares the identity (file and page), and pins with one compare-and-swap: if that succeeds the word has not
//! changed meanwhile, version and all, so the identity is that of the bytes (a sequence lock whose read side ends in a
//! pin; compare LeanStore, Leis et al. 2018, and the latches of vmcache, Leis et al. 2023).
//!
//! Owns: the word, the identity, every transition.
//! Does not own: the bytes (whoever owns the memory trusts these states), the table that leads here, the decision what
//! to evict.
//! Invariants: F1 pins are zero unless Resident or Doomed. F2 the identity changes only while Free and before
//! Loading is seen. F3 the version grows with each load. F4 one load is under way while Loading or Stale.
//! Locks: none here. All transitions but `pin` and `unpin` are made by whoever holds the cache's control lock.
//! Hot path: `pin` is two loads and one compare-and-swap, `unpin` one subtraction.

use alloc::boxed::Box;
use alloc::vec::Vec;

use once_cell::race::OnceBox;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{FrameId, PAGE_SIZE_BYTES, PageIndex};

/// Number of a file within one cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(u32);

impl FileId {
    /// The file with this number.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Number of a load under way, for whoever meets one of its pages and wants to wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LoadId(u32);

impl LoadId {
    /// The load with this number.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What a page is loaded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadKind {
    /// Somebody waits for it.
    Demand,
    /// A guess. Its first use does not count as a reference, as the use of a demanded page that causes the load does not.
    Ahead,
    /// A guess whose first use is to be reported: more is to be read ahead then.
    AheadMarked,
}

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
    /// Holds what the page was before it changed, for those who had pinned it.
    Doomed,
}

/// What trying to pin gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Pinned; [`Frame::unpin`] must follow.
    Pinned(FirstUse),
    /// An I/O is bringing it.
    Pending,
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
    /// Whether readahead is to be told.
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
    page: AtomicU64,
    file: AtomicU32,
    load: AtomicU32,
}

impl Frame {
    /// A frame that holds nothing.
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(FREE),
            page: AtomicU64::new(0),
            file: AtomicU32::new(0),
            load: AtomicU32::new(0),
        }
    }

    /// Pins the page if this frame holds it. `within_bytes` is where in the page the read begins and `end_bytes` where
    /// it ends: a read that goes on where the last one ended is no second reference.
    #[inline]
    pub fn pin(&self, file: FileId, page: PageIndex, within_bytes: u32, end_bytes: u32) -> Pin {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let state = word & STATE;
            if state != RESIDENT && state != LOADING {
                return Pin::Absent;
            }
            if !self.holds(file, page) {
                return Pin::Absent;
            }
            if state == LOADING {
                return Pin::Pending;
            }
            assert!(word & PINS != PINS, "fewer than 65535 readers hold one page at once");
            let pinned = touched(word, within_bytes, end_bytes) + PIN;
            match self.word.compare_exchange_weak(word, pinned, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Pin::Pinned(first_use(word)),
                Err(now) => word = now,
            }
        }
    }

    /// Gives up a pin.
    #[inline]
    pub fn unpin(&self) -> Unpinned {
        let before = self.word.fetch_sub(PIN, Ordering::AcqRel);
        assert!(before & PINS != 0, "F1: only what is pinned is unpinned");
        if before & (PINS | STATE) != PIN | DOOMED {
            return Unpinned::Kept;
        }
        self.turn(DOOMED, FREE);
        Unpinned::Freed
    }

    /// Free -> Loading.
    ///
    /// Panics if the frame is not free.
    pub fn begin_load(&self, file: FileId, page: PageIndex, load: LoadId, kind: LoadKind) {
        let word = self.word.load(Ordering::Acquire);
        assert!(word & (STATE | PINS) == FREE, "F4: only a free frame is loaded");
        // F2: nobody compares the identity of a free frame to any effect.
        self.page.store(page.get(), Ordering::Release);
        self.file.store(file.0, Ordering::Release);
        self.load.store(load.0, Ordering::Release);
        let flags = match kind {
            LoadKind::Demand => 0,
            LoadKind::Ahead => AHEAD,
            LoadKind::AheadMarked => AHEAD | MARK,
        };
        let version = (word & VERSION).wrapping_add(VERSION_ONE);
        self.word.store(version | flags | LOADING, Ordering::Release);
    }

    /// Loading -> Resident, or Stale -> Free.
    ///
    /// Panics in any other state.
    pub fn complete_load(&self) -> Ended {
        match self.word.load(Ordering::Acquire) & STATE {
            LOADING => {
                self.turn(LOADING, RESIDENT);
                Ended::Current
            }
            STALE => {
                self.turn(STALE, FREE);
                Ended::Stale
            }
            _ => panic!("F4: only a load that was begun is completed"),
        }
    }

    /// Loading or Stale -> Free.
    ///
    /// Panics in any other state.
    pub fn fail_load(&self) -> Ended {
        match self.word.load(Ordering::Acquire) & STATE {
            LOADING => {
                self.turn(LOADING, FREE);
                Ended::Current
            }
            STALE => {
                self.turn(STALE, FREE);
                Ended::Stale
            }
            _ => panic!("F4: only a load that was begun fails"),
        }
    }

    /// Somebody waits for the page: from now on it counts as demanded. Says what its first use would have said.
    pub fn demand(&self) -> FirstUse {
        first_use(self.word.fetch_and(!(AHEAD | MARK), Ordering::AcqRel))
    }

    /// The next use of the page is to be reported.
    pub fn mark(&self) {
        self.word.fetch_or(MARK, Ordering::AcqRel);
    }

    /// Resident -> Free, unless pinned. Says whether the page was read ahead and never used, or `None` if it stays.
    pub fn evict(&self) -> Option<Usage> {
        let word = self.word.load(Ordering::Acquire);
        if word & (STATE | PINS) != RESIDENT {
            return None;
        }
        // A reader that pins, or only touches, between the two has used it: let it stay.
        let free = word & VERSION | FREE;
        self.word.compare_exchange(word, free, Ordering::AcqRel, Ordering::Acquire).ok()?;
        Some(usage(word))
    }

    /// Takes the page out of use, whatever it is doing.
    ///
    /// Panics if the frame holds nothing.
    pub fn invalidate(&self) -> (Invalidated, Usage) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let (to, became) = match word & STATE {
                LOADING => (STALE, Invalidated::Stale),
                RESIDENT if word & PINS == 0 => (FREE, Invalidated::Freed),
                RESIDENT => (DOOMED, Invalidated::Doomed),
                _ => panic!("what is invalidated is loading or resident"),
            };
            let next = word & !STATE | to;
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (became, usage(word)),
                Err(now) => word = now,
            }
        }
    }

    /// How often the page was referenced since this was last asked, 0 to 3; sets it to zero.
    pub fn take_references(&self) -> u8 {
        let before = self.word.fetch_and(!REFERENCES, Ordering::AcqRel);
        ((before & REFERENCES) >> REFERENCES_SHIFT) as u8
    }

    /// Sets the count, 0 to 3.
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
            state => unreachable!("there is no state {state}"),
        }
    }

    /// Whether the page was read ahead and not used so far.
    pub fn usage(&self) -> Usage {
        usage(self.word.load(Ordering::Acquire))
    }

    /// Readers that have it pinned.
    pub fn pins(&self) -> u32 {
        ((self.word.load(Ordering::Acquire) & PINS) >> PINS_SHIFT) as u32
    }

    /// The file of the page that it holds or loads.
    pub fn file(&self) -> FileId {
        FileId(self.file.load(Ordering::Acquire))
    }

    /// The page that it holds or loads.
    pub fn page(&self) -> PageIndex {
        PageIndex::new(self.page.load(Ordering::Acquire))
    }

    /// The load under way, or the last one.
    pub fn load(&self) -> LoadId {
        LoadId(self.load.load(Ordering::Acquire))
    }

    /// Asserts F1 and that the word has no other bits.
    pub fn check(&self) {
        let word = self.word.load(Ordering::Acquire);
        assert!(word & STATE <= DOOMED, "there is no such state");
        let may_be_pinned = matches!(word & STATE, RESIDENT | DOOMED);
        assert!(word & PINS == 0 || may_be_pinned, "F1: pinned in a state without bytes to read");
    }

    #[inline]
    fn holds(&self, file: FileId, page: PageIndex) -> bool {
        self.page.load(Ordering::Acquire) == page.get() && self.file.load(Ordering::Acquire) == file.0
    }

    /// Changes the state, whatever references and pins are counted meanwhile.
    fn turn(&self, from: u64, to: u64) {
        let before = self.word.fetch_xor(from ^ to, Ordering::AcqRel);
        assert!(before & STATE == from, "one at a time changes the state");
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

/// The frames of all chunks that memory may grow to; those of a chunk exist once it is there.
#[derive(Debug)]
pub struct Frames {
    chunks: Box<[OnceBox<[Frame; CHUNK_FRAMES]>]>,
}

/// Frames of one chunk.
pub const CHUNK_FRAMES: usize = crate::buddy::CHUNK_BYTES / PAGE_SIZE_BYTES as usize;

impl Frames {
    /// Room for this many chunks, none of which is there yet.
    pub fn new(chunks_max: u32) -> Self {
        Self { chunks: (0..chunks_max).map(|_| OnceBox::new()).collect() }
    }

    /// Makes the frames of a chunk, if they are not there.
    ///
    /// # Errors
    /// When there is no memory for them.
    ///
    /// Panics if there can be no such chunk.
    pub fn add_chunk(&self, chunk: u32) -> Result<(), alloc::collections::TryReserveError> {
        let place = &self.chunks[chunk as usize];
        if place.get().is_some() {
            return Ok(());
        }
        let mut frames = Vec::new();
        frames.try_reserve_exact(CHUNK_FRAMES)?;
        frames.extend((0..CHUNK_FRAMES).map(|_| Frame::new()));
        let frames: Box<[Frame; CHUNK_FRAMES]> =
            frames.into_boxed_slice().try_into().expect("as many as were made");
        // Another thread may have been first; then these go.
        let _ = place.set(frames);
        Ok(())
    }

    /// The frame with this number, if its chunk is there.
    #[inline]
    pub fn get(&self, frame: FrameId) -> Option<&Frame> {
        let (chunk, place) = (frame.get() as usize / CHUNK_FRAMES, frame.get() as usize % CHUNK_FRAMES);
        Some(&self.chunks.get(chunk)?.get()?[place])
    }

    /// All frames there are.
    pub fn iter(&self) -> impl Iterator<Item = (FrameId, &Frame)> {
        let chunks = self.chunks.iter().enumerate();
        chunks.filter_map(|(chunk, place)| Some((chunk, place.get()?))).flat_map(|(chunk, frames)| {
            let numbered = frames.iter().enumerate();
            numbered.map(move |(place, frame)| (FrameId::new((chunk * CHUNK_FRAMES + place) as u32), frame))
        })
    }

    /// Memory of the frames that are there, bytes.
    pub fn metadata_bytes(&self) -> usize {
        let chunks = self.chunks.iter().filter(|place| place.get().is_some()).count();
        chunks * CHUNK_FRAMES * size_of::<Frame>() + size_of_val(&*self.chunks)
    }
}

impl core::ops::Index<FrameId> for Frames {
    type Output = Frame;

    /// Panics if its chunk is not there.
    fn index(&self, frame: FrameId) -> &Frame {
        self.get(frame).expect("the frame's chunk is there")
    }
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
    // The first use of a page that was read ahead is what a demand's load is: no reference. Neither is going on.
    let goes_on = within_bytes != 0 && word & CURSOR == cursor(within_bytes);
    let counts = word & AHEAD == 0 && !goes_on && word & REFERENCES != REFERENCES;
    let word = word & !(AHEAD | MARK | CURSOR) | cursor(end_bytes);
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

const REFERENCES_SHIFT: u32 = 3;
const REFERENCE: u64 = 1 << REFERENCES_SHIFT;
const REFERENCES: u64 = 0b11 << REFERENCES_SHIFT;

/// The largest count of references: what S3-FIFO needs, and CLOCK more than needs.
pub const REFERENCES_MAX: u8 = 3;

/// Using the page is to be reported.
const MARK: u64 = 1 << 5;

/// Read ahead and not used yet.
const AHEAD: u64 = 1 << 6;

const CURSOR_SHIFT: u32 = 8;
const CURSOR: u64 = (PAGE_SIZE_BYTES - 1) << CURSOR_SHIFT;

const PINS_SHIFT: u32 = 20;
const PIN: u64 = 1 << PINS_SHIFT;
const PINS: u64 = 0xffff << PINS_SHIFT;

const VERSION_SHIFT: u32 = 36;
const VERSION_ONE: u64 = 1 << VERSION_SHIFT;

/// 28 bits: a reader would have to sleep through 268 million loads of one frame to be fooled.
const VERSION: u64 = !0 << VERSION_SHIFT;

const _: () = assert!(CURSOR & PINS == 0 && PINS & VERSION == 0 && REFERENCES & STATE == 0);
const _: () = assert!(size_of::<Frame>() == 24 || cfg!(headwater_loom), "the memory budget counts on it");
