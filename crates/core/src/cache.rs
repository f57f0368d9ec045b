//! Cache: pages of files in frames, from the first miss to eviction; what is decided, apart from memory and I/O.
//!
//! ```text
//!   pin ─┬─ Pinned ─► read the bytes ─► unpin                                      (no lock)
//!        ├─ Pending ─► wait for its load ─► pin again
//!        └─ Absent ─► begin_load ─► I/O ─► end_load ─► pin again                    (under the control lock)
//!                         └─ no frame ─► evict ─► its memory ─► begin_load
//!   write ─┬─ unpinned, in part ─► begin_write ─► bytes ─► end_write                  (no lock)
//!          └─ pinned, whole, new ─► another frame ─► install, which replaces the page (under the control lock)
//!   writeback: hold ─► the file has it ─► clean ─► unpin                              (no lock)
//! ```
//!
//! Two halves: [`Cache`] is shared by all threads and only ever read or pinned through; [`Control`] is what changes it,
//! and belongs behind one lock of whatever kind the system has. Nothing here waits, allocates on a hit, or touches a
//! byte of a page. The memory is the caller's: it names a frame for each page that it loads, and gets frames named whose
//! memory it may use again.
//!
//! Invariants: C1 a page in a table is Loading, Resident, Dirty, Writing or Offered, with that file and page for its identity. C2 the
//! replacement policy knows exactly the frames that are in tables and neither Loading nor Offered. C3 frames are named to the caller exactly once when they
//! become Free.
//! Locks: methods of [`Control`] need `&mut`; the caller's lock must not be held across I/O.
//! Hot path: `pin` walks the table, compares the identity, one compare-and-swap.
//
// Owns: frames' states, page tables, replacement, the numbers of files.
// Does not own: memory, I/O, waiting for it, what a file is.

mod offering;

use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::frame::{
    ChunkOffer, Ended, FileId, FirstUse, Frame, FrameState, Frames, Held, Invalidated, LoadId, LoadKind,
    PAGES_MAX, PageVersion, Pin, Unpinned, Usage, WriteLatch,
};
use crate::replacement::{self, Origin, Policy, Replacement};
use crate::slots::Slots;
use crate::table::{FreeNodes, NoNode, Nodes, PageTable};
use crate::units::{FrameId, PageIndex, PageRange};

pub use offering::{NotOffered, WithdrawnFor, frames_of};

/// The half that everybody sees.
#[derive(Debug)]
pub struct Cache {
    frames: Frames,
    nodes: Nodes,
    /// Of chunks that were offered to the operating system's kernel before.
    offers: Slots<ChunkOffer>,
}

/// The half that changes it: behind a lock.
#[derive(Debug)]
pub struct Control {
    free: FreeNodes,
    tables: Vec<Option<Arc<PageTable>>>,
    /// Places in `tables` where nothing is.
    vacant: Vec<u32>,
    replacement: Replacement,
    /// Frames that the policy has room for.
    frames: u32,
    loading: u32,
    /// Pages that are Offered.
    offered: u32,
}

/// What looking for a page gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// It is in this frame and stays there until [`Cache::unpin`].
    Pinned(FrameId, FirstUse),
    /// This load brings it.
    Pending(LoadId),
    /// A writer is at it, for as long as copying at most a page takes: try again.
    Busy,
    /// It is there, but as many have it pinned as can be counted: try again when one of them is done.
    Crowded,
    /// It is in this frame, on offer to the operating system's kernel: touch it ([`Cache::begin_touch`]), then try again.
    Offered(FrameId),
    /// The page was absent when looked up without the lock.
    Absent,
}

/// Whether dirty pages are taken out of use with the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirtyToo {
    /// Yes: what was written is lost.
    Yes,
    /// They stay.
    No,
}

/// A page that was installed, and the frame that held the page before, whose memory may be used again at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Installed {
    /// `None` too if readers hold it, or its load is under way: the memory comes back with the end of that.
    pub freed: Option<FrameId>,
}

/// How a load ended for one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadResult {
    /// Its bytes are there.
    Read,
    /// They are not: an error, or the end of the file.
    Failed,
}

/// A page that made room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// Whose memory may be used again.
    pub frame: FrameId,
    /// The file.
    pub file: FileId,
    /// The page.
    pub page: PageIndex,
    /// Whether it was of use.
    pub usage: Usage,
}

impl Cache {
    /// A cache of at most `chunks_max` chunks of frames, none of which is there yet, and its control.
    pub fn new(chunks_max: u32, policy: Policy) -> (Self, Control) {
        let frames_max = chunks_max * crate::frame::CHUNK_FRAMES as u32;
        let offers = Slots::new(chunks_max as usize);
        let cache = Self { frames: Frames::new(chunks_max), nodes: Nodes::new(frames_max), offers };
        let replacement = Replacement::new(policy);
        let (tables, vacant, free) = (Vec::new(), Vec::new(), FreeNodes::default());
        (cache, Control { free, tables, vacant, replacement, frames: 0, loading: 0, offered: 0 })
    }

    /// Finds the frame that seems to hold a page: the first half of a pin or an optimistic read, and all that is needed to have the
    /// bytes of several pages fetched before the first of them is pinned.
    #[inline]
    pub fn find(&self, table: &PageTable, page: PageIndex) -> Option<FrameId> {
        table.find(&self.nodes, page)
    }

    /// As [`Cache::find`], for pages in order: those that follow `page` too, up to the first that is missing, as many as are found
    /// in one step.
    #[inline]
    pub fn find_run<'a>(
        &'a self,
        table: &PageTable,
        page: PageIndex,
    ) -> impl Iterator<Item = FrameId> + use<'a> {
        table.find_run(&self.nodes, page)
    }

    /// The frame with this number, if its chunk is there.
    #[inline]
    pub fn frame(&self, found: FrameId) -> Option<&Frame> {
        self.frames.get(found)
    }

    /// Pins a page that was found. `within_bytes` and `end_bytes` say which part of it will be read.
    #[inline]
    pub fn pin(
        &self,
        table: &PageTable,
        page: PageIndex,
        found: FrameId,
        within_bytes: u32,
        end_bytes: u32,
    ) -> Lookup {
        let Some(frame) = self.frames.get(found) else { return Lookup::Absent };
        match frame.pin(table.file(), page, within_bytes, end_bytes) {
            Pin::Pinned(first_use) => Lookup::Pinned(found, first_use),
            Pin::Pending(load) => Lookup::Pending(load),
            Pin::Busy => Lookup::Busy,
            Pin::Crowded => Lookup::Crowded,
            Pin::Offered => Lookup::Offered(found),
            Pin::Absent => Lookup::Absent,
        }
    }

    /// Looks whether a page that was found can be read without a pin; see [`Frame::begin_optimistic_read`].
    #[inline]
    pub fn begin_optimistic_read(
        &self,
        table: &PageTable,
        page: PageIndex,
        found: FrameId,
    ) -> Option<(&Frame, PageVersion)> {
        let frame = self.frames.get(found)?;
        Some((frame, frame.begin_optimistic_read(table.file(), page)?))
    }

    /// State of the page, read without the lock, so it may be outdated; `None` if the page is absent.
    pub fn state(&self, table: &PageTable, page: PageIndex) -> Option<FrameState> {
        let frame = self.frames.get(table.find(&self.nodes, page)?)?;
        let state = frame.state();
        let is_held = !matches!(state, FrameState::Free | FrameState::Stale | FrameState::Doomed);
        (is_held && (frame.file(), frame.page()) == (table.file(), page)).then_some(state)
    }

    /// Whether the page is cached or loading, read without the lock, so it may be outdated.
    pub fn holds(&self, table: &PageTable, page: PageIndex) -> bool {
        self.state(table, page).is_some()
    }

    /// Latches a page that was found, to write a part of it in place; see [`Frame::begin_write`].
    #[inline]
    pub fn begin_write(
        &self,
        table: &PageTable,
        page: PageIndex,
        found: FrameId,
        within_bytes: u32,
        end_bytes: u32,
    ) -> WriteLatch {
        let Some(frame) = self.frames.get(found) else { return WriteLatch::Absent };
        frame.begin_write(table.file(), page, within_bytes, end_bytes)
    }

    /// The page is written.
    pub fn end_write(&self, frame: FrameId) {
        self.frames[frame].end_write();
    }

    /// Pins a dirty page, for writing it to its file.
    pub fn hold(&self, table: &PageTable, page: PageIndex) -> Option<FrameId> {
        let found = table.find(&self.nodes, page)?;
        let held = self.frames.get(found)?.hold(table.file(), page);
        (held == Held::Yes).then_some(found)
    }

    /// The file has the bytes of a page that is held.
    pub fn clean(&self, frame: FrameId) {
        self.frames[frame].clean();
    }

    /// Gives up a pin. [`Unpinned::Freed`] means that the frame's memory is the caller's again.
    #[inline]
    pub fn unpin(&self, frame: FrameId) -> Unpinned {
        self.frames[frame].unpin()
    }

    /// Adds a pin to that of the caller, unless the frame has `pins_max` by now.
    ///
    /// # Panics
    /// If it is not pinned.
    pub fn pin_again(&self, frame: FrameId, pins_max: u32) -> bool {
        self.frames[frame].pin_again(pins_max)
    }

    /// The same for frames of one chunk. Passes those to `freed` whose memory is the caller's again.
    ///
    /// # Panics
    /// For frames of several chunks.
    #[inline]
    pub fn unpin_run(&self, frames: Range<u32>, mut freed: impl FnMut(FrameId)) {
        for (frame, number) in self.frames.run(frames.clone()).iter().zip(frames) {
            if frame.unpin() == Unpinned::Freed {
                freed(FrameId::new(number));
            }
        }
    }

    /// How many have the frame pinned.
    pub fn pins(&self, frame: FrameId) -> u32 {
        self.frames[frame].pins()
    }

    /// Memory of frames and nodes, bytes.
    pub fn metadata_bytes(&self) -> usize {
        self.frames.metadata_bytes() + self.nodes.metadata_bytes() + self.offers_bytes()
    }
}

impl Control {
    /// Makes frames for a chunk of memory. Chunks come in order.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn add_chunk(&mut self, cache: &Cache, chunk: u32) -> Result<(), TryReserveError> {
        let (chunk_frames, chunks_max) = (crate::frame::CHUNK_FRAMES as u32, cache.frames.chunks_max());
        cache.frames.add_chunk(chunk)?;
        if (chunk + 1) * chunk_frames > self.frames {
            // More than is needed, because the queues are copied each time.
            let chunks = (self.frames / chunk_frames / GROWTH_DIVISOR + chunk + 1).min(chunks_max);
            self.replacement.grow(chunks * chunk_frames)?;
            self.frames = chunks * chunk_frames;
        }
        Ok(())
    }

    /// Makes the table of a file.
    ///
    /// # Errors
    /// When there is no memory to note it, or no number left.
    ///
    /// # Panics
    /// If there are more files than a [`FileId`] can name.
    pub fn add_file(&mut self) -> Result<Arc<PageTable>, NoNode> {
        if self.vacant.is_empty() {
            if self.tables.len() > FileId::MAX.get() as usize {
                return Err(NoNode);
            }
            self.tables.try_reserve(1).map_err(|_| NoNode)?;
            // So that forgetting a file needs no memory.
            self.vacant.try_reserve(self.tables.len() + 1).map_err(|_| NoNode)?;
            self.vacant.push(self.tables.len() as u32);
            self.tables.push(None);
        }
        let place = self.vacant.pop().expect("made above");
        let table = Arc::new(PageTable::new(FileId::new(place)));
        self.tables[place as usize] = Some(table.clone());
        Ok(table)
    }

    /// Forgets a file.
    ///
    /// # Panics
    /// If the table has pages, or is of another cache.
    pub fn remove_file(&mut self, table: &PageTable) {
        assert!(table.is_empty(), "a file without pages is forgotten");
        let known = self.tables[table.file().get() as usize].take();
        assert!(known.is_some_and(|known| core::ptr::eq(&*known, table)), "the file is of this cache");
        self.vacant.push(table.file().get());
    }

    /// Whether the page is there or on its way; exact.
    pub fn state(&self, cache: &Cache, table: &PageTable, page: PageIndex) -> Option<FrameState> {
        table.find(&cache.nodes, page).map(|frame| cache.frames[frame].state())
    }

    /// The page becomes Loading, in this frame.
    ///
    /// # Errors
    /// When the table has no node for it, or frames no number ([`PAGES_MAX`]); nothing has changed then.
    ///
    /// # Panics
    /// If the frame is not free, or the page is there.
    pub fn begin_load(
        &mut self,
        cache: &Cache,
        table: &PageTable,
        page: PageIndex,
        frame: FrameId,
        load: (LoadId, LoadKind),
    ) -> Result<(), NoNode> {
        if page.get() >= PAGES_MAX {
            return Err(NoNode);
        }
        cache.frames[frame].begin_load(table.file(), page, load.0, load.1);
        match table.insert(&cache.nodes, &mut self.free, page, frame) {
            Ok(()) => {
                self.loading += 1;
                Ok(())
            }
            Err(no_node) => {
                cache.frames[frame].fail_load();
                Err(no_node)
            }
        }
    }

    /// The load of a frame is over. With [`LoadResult::Read`] and [`Ended::Current`] the page is there now, else the
    /// frame's memory is the caller's again.
    ///
    /// # Panics
    /// If none was begun.
    pub fn end_load(&mut self, cache: &Cache, id: FrameId, result: LoadResult) -> Ended {
        let frame = &cache.frames[id];
        self.loading -= 1;
        let origin = match frame.usage() {
            Usage::Used => Origin::Demand,
            Usage::Unused => Origin::Readahead,
        };
        match (frame.state(), result) {
            (FrameState::Loading, LoadResult::Read) => {
                // While nobody can use it yet, so that it enters without references.
                self.replacement.insert(id, origin, &mut FrameAccess { cache, evicted: None });
                frame.complete_load()
            }
            (FrameState::Loading, LoadResult::Failed) => {
                self.take_out(cache, id);
                frame.fail_load()
            }
            _ => frame.fail_load(),
        }
    }

    /// A reader waits for a page that is loading; see [`crate::frame::Frame::demand`]. `None` if it is not loading.
    pub fn demand(&mut self, cache: &Cache, table: &PageTable, page: PageIndex) -> Option<FirstUse> {
        let frame = &cache.frames[table.find(&cache.nodes, page)?];
        (frame.state() == FrameState::Loading).then(|| frame.demand())
    }

    /// The next use of the page is to be reported, if it is there or on its way.
    pub fn mark(&mut self, cache: &Cache, table: &PageTable, page: PageIndex) {
        if let Some(frame) = table.find(&cache.nodes, page) {
            cache.frames[frame].mark();
        }
    }

    /// Makes room for one page. `None` when every page is pinned, or none is Resident.
    ///
    /// # Panics
    /// If the replacement policy evicts a frame that it was not told of.
    pub fn evict(&mut self, cache: &Cache) -> Option<Evicted> {
        let mut access = FrameAccess { cache, evicted: None };
        let id = self.replacement.evict(&mut access)?;
        let usage = access.evicted.expect("the policy names what it had evicted");
        let frame = &cache.frames[id];
        let evicted = Evicted { frame: id, file: frame.file(), page: frame.page(), usage };
        self.take_out(cache, id);
        Some(evicted)
    }

    /// The frame, whose memory holds the page as it was written, takes the place of the one that held it before, if any.
    ///
    /// # Errors
    /// When the table has no node for it, or frames no number ([`PAGES_MAX`]); nothing has changed then.
    ///
    /// # Panics
    /// If the frame is not free.
    pub fn install(
        &mut self,
        cache: &Cache,
        table: &PageTable,
        page: PageIndex,
        frame: FrameId,
    ) -> Result<Installed, NoNode> {
        if page.get() >= PAGES_MAX {
            return Err(NoNode);
        }
        cache.frames[frame].install(table.file(), page);
        let mut freed = None;
        if let Some(before) = table.find(&cache.nodes, page) {
            // The table first: a lookup without the lock finds the new frame or the old one.
            table.replace(&cache.nodes, page, frame);
            let (became, _) = cache.frames[before].invalidate();
            self.forget(before, became);
            freed = (became == Invalidated::Freed).then_some(before);
        } else if let Err(no_node) = table.insert(&cache.nodes, &mut self.free, page, frame) {
            cache.frames[frame].invalidate();
            return Err(no_node);
        }
        self.replacement.insert(frame, Origin::Demand, &mut FrameAccess { cache, evicted: None });
        Ok(Installed { freed })
    }

    /// Evicts the page in this frame, whatever its turn is. `None` when it is pinned, or the frame holds none that can be
    /// evicted.
    pub fn evict_frame(&mut self, cache: &Cache, id: FrameId) -> Option<Evicted> {
        if !self.replacement.contains(id) {
            return None;
        }
        let frame = &cache.frames[id];
        let usage = frame.evict()?;
        self.replacement.remove(id);
        let evicted = Evicted { frame: id, file: frame.file(), page: frame.page(), usage };
        self.take_out(cache, id);
        Some(evicted)
    }

    /// Whether the frame holds a page that [`Control::evict_frame`] would evict, as seen before the call.
    pub fn is_evictable(&self, cache: &Cache, id: FrameId) -> bool {
        let is_clean = || cache.frames[id].state() == FrameState::Resident;
        self.replacement.contains(id) && is_clean() && cache.pins(id) == 0
    }

    /// Takes pages of a file out of use, ascending, and tells of each what became of it.
    pub fn invalidate(
        &mut self,
        cache: &Cache,
        table: &PageTable,
        pages: PageRange,
        dirty_too: DirtyToo,
        mut each: impl FnMut(FrameId, PageIndex, Invalidated, Usage),
    ) {
        let mut from = pages.start;
        while let Some((page, id)) = table.next(&cache.nodes, from).filter(|(page, _)| *page < pages.end) {
            from = PageIndex::new(page.get() + 1);
            let frame = &cache.frames[id];
            let left = match dirty_too {
                DirtyToo::Yes => Some(frame.invalidate()),
                DirtyToo::No => frame.invalidate_clean(),
            };
            let Some((became, usage)) = left else { continue };
            self.forget(id, became);
            table.remove(&cache.nodes, &mut self.free, page);
            each(id, page, became, usage);
        }
    }

    /// The first page from `from` on that is there or on its way.
    pub fn next(&self, cache: &Cache, table: &PageTable, from: PageIndex) -> Option<PageIndex> {
        table.next(&cache.nodes, from).map(|(page, _)| page)
    }

    /// Pages that can be read, those on offer included as long as they are not known to be taken.
    pub fn resident_pages(&self) -> u32 {
        self.replacement.len() + self.offered
    }

    /// Pages being loaded, those invalidated meanwhile included.
    pub fn loading_pages(&self) -> u32 {
        self.loading
    }

    /// Memory of the queues and of the list of files, bytes.
    pub fn metadata_bytes(&self) -> usize {
        let files = self.tables.capacity() * size_of::<Option<Arc<PageTable>>>();
        self.replacement.memory_bytes() + files + self.vacant.capacity() * size_of::<u32>()
    }

    /// Asserts C1, C2 and what its parts assert of themselves.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self, cache: &Cache) {
        self.replacement.check();
        cache.frames.iter().for_each(|(_, frame)| frame.check());
        let (mut resident, mut offered) = (0, 0);
        for table in self.tables.iter().flatten() {
            let mut from = Some(PageIndex::new(0));
            let mut pages = 0;
            while let Some((page, id)) = from.and_then(|from| table.next(&cache.nodes, from)) {
                let frame = &cache.frames[id];
                assert!(
                    (frame.file(), frame.page()) == (table.file(), page),
                    "C1: the frame has another identity"
                );
                let is_held =
                    !matches!(frame.state(), FrameState::Free | FrameState::Stale | FrameState::Doomed);
                assert!(is_held, "C1: the frame holds nothing");
                let is_offered = frame.state() == FrameState::Offered;
                let is_there = frame.state() != FrameState::Loading && !is_offered;
                assert!(is_there == self.replacement.contains(id), "C2: the policy knows what is there");
                (resident, offered) = (resident + u32::from(is_there), offered + u32::from(is_offered));
                pages += 1;
                from = Some(PageIndex::new(page.get() + 1));
            }
            assert!(table.check(&cache.nodes) == pages, "T1: a page cannot be reached");
        }
        assert!(resident == self.replacement.len(), "C2: the policy knows a frame that is in no table");
        assert!(offered == self.offered, "C2: the count of pages on offer is off");
    }

    /// A page has left: the policy, or the count of those on offer, forgets it.
    fn forget(&mut self, id: FrameId, became: Invalidated) {
        match became {
            Invalidated::Stale => {}
            _ if self.replacement.contains(id) => self.replacement.remove(id),
            _ => self.offered -= 1,
        }
    }

    fn take_out(&mut self, cache: &Cache, id: FrameId) {
        // A free frame keeps its identity until it is loaded again.
        let (file, page) = (cache.frames[id].file(), cache.frames[id].page());
        let table = self.tables[file.get() as usize].as_ref().expect("a file with pages is known");
        table.remove(&cache.nodes, &mut self.free, page);
    }
}

/// What a replacement policy may read and change of the frames.
struct FrameAccess<'a> {
    cache: &'a Cache,
    evicted: Option<Usage>,
}

impl replacement::Frames for FrameAccess<'_> {
    fn take_references(&mut self, frame: FrameId) -> u8 {
        self.cache.frames[frame].take_references()
    }

    fn set_references(&mut self, frame: FrameId, count: u8) {
        self.cache.frames[frame].set_references(count);
    }

    fn fingerprint(&self, frame: FrameId) -> u64 {
        let frame = &self.cache.frames[frame];
        // Page numbers have 52 bits; files that share the low bits of their numbers are far apart in time.
        frame.page().get() ^ u64::from(frame.file().get()) << 44
    }

    fn try_evict(&mut self, frame: FrameId) -> replacement::Evicted {
        self.evicted = self.cache.frames[frame].evict();
        match self.evicted {
            Some(_) => replacement::Evicted::Yes,
            None => replacement::Evicted::Busy,
        }
    }
}

/// The policy's room grows by a quarter at a time.
const GROWTH_DIVISOR: u32 = 4;
