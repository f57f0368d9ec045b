//! On demand: the pages of a window that come when they are touched.
//!
//! ```text
//!   absent ─► Loading [begin] ─┬─ bytes ──► Present [place] ─► absent [place, for another; forget, after a change]
//!               ▲              ├─ error ──► absent [give_up, for a call] : Failed, zeros [place_failed, for an access]
//!               └── changed ◄──┘
//! ```
//!
//! The memory of a window is divided into slots. When none is free, the pages of the next 64 leave, in the order of their arrival:
//! nothing shows which pages are in use, and 64 discarded at once interrupt the other processors once. A page that follows three or
//! more that are present is loaded with as many behind it, as the kernel's context readahead does it. While the system is short of memory
//! slots are withheld: their pages leave, and no others come.
//!
//! Owns: which pages a window holds, which leave; the windows on demand of a file.
//! Does not own: where bytes come from, the threads that wait (`read::on_demand`).
//! Invariants: D1 a page is present only while it has a slot; D2 bytes that were read before a change of the file are not placed after
//! it: every change calls `forget` when it is visible to readers of the file.
//! Locks: `list`, then `state`, inside a file's `dirty.state`; nothing is read under them.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};

use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES, PageRange};
use headwater_io::{DemandMemory, LentOut, lock, unpoisoned};

use crate::base::error::Error;

/// The windows on demand of one file.
#[derive(Debug, Default)]
pub(crate) struct DemandWindows {
    count: AtomicUsize,
    list: RwLock<Vec<Arc<DemandPages>>>,
}

/// The pages of one window, by their number in it.
#[derive(Debug)]
pub(crate) struct DemandPages {
    pub(crate) memory: DemandMemory,
    pages: PageRange,
    /// A bit for each page that is present.
    present: Vec<AtomicU64>,
    state: Mutex<State>,
    /// Notified when pages cease to load.
    settled: Condvar,
    /// How many pages became zeros because they could not be read.
    failures: AtomicU64,
    #[expect(dead_code, reason = "given back after the memory")]
    charge: LentOut,
}

#[derive(Debug)]
struct State {
    entries: HashMap<usize, Entry>,
    slots: Vec<Option<usize>>,
    free: Vec<usize>,
    /// Slots that hold nothing while the system is short of memory.
    withheld: Vec<usize>,
    /// The slot that is emptied next.
    hand: usize,
    /// The first failure since the last that was taken.
    failure: Option<Error>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Loading { is_stale: bool },
    Present { slot: usize },
    Failed { slot: usize },
}

/// What is to be done about a page.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Begun {
    /// It is there.
    Present,
    /// Another thread loads it.
    Elsewhere,
    /// The caller loads these.
    Load(Range<usize>),
}

/// Whether the bytes of a run were placed.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Placed {
    Yes,
    /// The file has changed since the read began: it is to be read again.
    Stale,
}

impl DemandPages {
    /// Pages of which `slots` are present at most.
    pub(crate) fn new(memory: DemandMemory, pages: PageRange, slots: usize, charge: LentOut) -> DemandPages {
        let words = (pages.len().get() as usize).div_ceil(u64::BITS as usize);
        let state = State {
            entries: HashMap::new(),
            slots: vec![None; slots],
            free: (0..slots).rev().collect(),
            withheld: Vec::new(),
            hand: 0,
            failure: None,
        };
        DemandPages {
            memory,
            pages,
            present: (0..words).map(|_| AtomicU64::new(0)).collect(),
            state: Mutex::new(state),
            settled: Condvar::new(),
            failures: AtomicU64::new(0),
            charge,
        }
    }

    /// Where a byte of the file lies in the memory.
    #[inline]
    pub(crate) fn at(&self, offset_bytes: u64) -> usize {
        (offset_bytes - self.pages.start.start_bytes()) as usize
    }

    /// The bytes of the file that pages show.
    pub(crate) fn bytes(&self, run: &Range<usize>) -> ByteRange {
        let start_bytes = self.pages.start.start_bytes();
        let at = |page: usize| start_bytes + page as u64 * PAGE_SIZE_BYTES;
        ByteRange::new(at(run.start), at(run.end))
    }

    /// Whether the page is there, and not as zeros for want of its bytes.
    #[inline]
    pub(crate) fn is_present(&self, page: usize) -> bool {
        self.present[page / 64].load(Ordering::Acquire) & 1 << (page % 64) != 0
    }

    /// Changes when a page becomes zeros because it could not be read. Bytes that were copied between two calls that return the same, from
    /// pages that were present, are the file's.
    #[inline]
    pub(crate) fn failures(&self) -> u64 {
        fence(Ordering::Acquire);
        self.failures.load(Ordering::Acquire)
    }

    /// Begins to load a page, and those behind it that are likely to be touched next.
    pub(crate) fn begin(&self, page: usize) -> Begun {
        let mut state = self.lock();
        match state.entries.get(&page) {
            Some(Entry::Present { .. }) => return Begun::Present,
            Some(Entry::Loading { .. }) => return Begun::Elsewhere,
            Some(Entry::Failed { .. }) => self.remove(&mut state, vec![page]),
            None => {}
        }
        let pages = state.ahead_of(page).min(self.pages.len().get() as usize - page);
        let absent = (page..page + pages).take_while(|next| !state.entries.contains_key(next)).count();
        let run = page..page + absent;
        state.entries.extend(run.clone().map(|page| (page, Entry::Loading { is_stale: false })));
        Begun::Load(run)
    }

    /// The read of pages that the caller loads begins now: what was found of changes before, it shows. A check that cannot rule out changes
    /// finds one each time.
    pub(crate) fn begin_read(&self, run: &Range<usize>) {
        let loading = run.clone().map(|page| (page, Entry::Loading { is_stale: false }));
        self.lock().entries.extend(loading);
    }

    /// Blocks while a page is loaded.
    pub(crate) fn settle(&self, page: usize) {
        let mut state = self.lock();
        while let Some(Entry::Loading { .. }) = state.entries.get(&page) {
            state = unpoisoned(self.settled.wait(state));
        }
    }

    /// Places the bytes of pages that the caller loads, and wakes what waits for them.
    ///
    /// # Errors
    /// What keeps the kernel from placing them. They are still loading then.
    pub(crate) fn place(&self, run: &Range<usize>, bytes: &[u8]) -> io::Result<Placed> {
        let mut state = self.lock();
        let is_stale = |page: usize| state.entries.get(&page) == Some(&Entry::Loading { is_stale: true });
        if run.clone().any(is_stale) {
            return Ok(Placed::Stale);
        }
        self.place_in_slots(&mut state, run, bytes, |slot| Entry::Present { slot })?;
        for page in run.clone() {
            self.present[page / 64].fetch_or(1 << (page % 64), Ordering::Release);
        }
        drop(state);
        self.settled.notify_all();
        Ok(Placed::Yes)
    }

    /// Places zeros instead of a page that could not be read, so that the access that waits for it goes on.
    pub(crate) fn place_failed(&self, page: usize, error: Error) {
        let mut state = self.lock();
        state.failure.get_or_insert(error);
        // Before the zeros can be seen.
        self.failures.fetch_add(1, Ordering::AcqRel);
        let zeros = [0; PAGE_BYTES];
        let failed = |slot| Entry::Failed { slot };
        let placed = self.place_in_slots(&mut state, &(page..page + 1), &zeros, failed);
        drop(state);
        match placed {
            Ok(()) => self.settled.notify_all(),
            // There is no memory: the access is made again until there is.
            Err(_) => self.give_up(&(page..page + 1)),
        }
    }

    /// Gives up loading pages; accesses that wait for them are made again.
    pub(crate) fn give_up(&self, run: &Range<usize>) {
        let mut state = self.lock();
        for page in run.clone() {
            state.entries.remove(&page);
            self.memory.wake(page * PAGE_BYTES);
        }
        drop(state);
        self.settled.notify_all();
    }

    /// The first failure since the last call. Pages that could not be read are absent again.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        let mut state = self.lock();
        let is_failed = |entry: &Entry| matches!(entry, Entry::Failed { .. });
        let failed = state.entries.iter().filter(|(_, entry)| is_failed(entry)).map(|(page, _)| *page);
        let failed = failed.collect();
        self.remove(&mut state, failed);
        state.failure.take()
    }

    /// Bytes that [`DemandPages::shrink`] can give back.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.lock().held().saturating_sub(SLOTS_MIN) * PAGE_BYTES
    }

    /// Has pages leave until this much is given back, or few are left, and none come in their place before [`DemandPages::let_grow`].
    /// Returns how many bytes that were.
    pub(crate) fn shrink(&self, bytes: usize) -> usize {
        let mut state = self.lock();
        let held = state.held();
        let wanted = bytes.div_ceil(PAGE_BYTES).min(held.saturating_sub(SLOTS_MIN));
        while held - state.held() < wanted {
            self.evict(&mut state);
        }
        let given = held - state.held();
        let kept = SLOTS_MIN.saturating_sub(state.held()).min(state.free.len());
        let withheld = state.free.split_off(kept);
        state.withheld.extend(withheld);
        given * PAGE_BYTES
    }

    /// The system has memory again.
    pub(crate) fn let_grow(&self) {
        let mut state = self.lock();
        let withheld = std::mem::take(&mut state.withheld);
        state.free.extend(withheld);
    }

    /// Makes the pages of a changed range absent. Called after the change is visible to reads of the file.
    fn forget(&self, range: ByteRange) {
        let changed = PageRange::covering(range.intersect(self.pages.bytes()));
        if changed.is_empty() {
            return;
        }
        let start = (changed.start - self.pages.start).get() as usize;
        let changed = start..start + changed.len().get() as usize;
        let mut state = self.lock();
        let mut absent = Vec::new();
        let mut change = |page: usize, entry: &mut Entry| match entry {
            Entry::Loading { is_stale } => *is_stale = true,
            Entry::Present { .. } | Entry::Failed { .. } => absent.push(page),
        };
        if changed.len() < state.entries.len() {
            for page in changed {
                state.entries.get_mut(&page).into_iter().for_each(|entry| change(page, entry));
            }
        } else {
            let entries = state.entries.iter_mut().filter(|(page, _)| changed.contains(page));
            entries.for_each(|(page, entry)| change(*page, entry));
        }
        self.remove(&mut state, absent);
    }

    fn place_in_slots(
        &self,
        state: &mut State,
        run: &Range<usize>,
        bytes: &[u8],
        entry: impl Fn(usize) -> Entry,
    ) -> io::Result<()> {
        // All of them first: a page of the run is not made to leave for another.
        let slots: Vec<_> = run.clone().map(|_| self.take_slot(state)).collect();
        if let Err(error) = self.memory.place(run.start * PAGE_BYTES, bytes) {
            state.free.extend(slots);
            let placed: Vec<_> = run.clone().map(|page| page * PAGE_BYTES).collect();
            self.memory.discard(&placed)?;
            return Err(error);
        }
        for (page, slot) in run.clone().zip(slots) {
            state.entries.insert(page, entry(slot));
            state.slots[slot] = Some(page);
        }
        Ok(())
    }

    fn take_slot(&self, state: &mut State) -> usize {
        loop {
            if let Some(slot) = state.free.pop() {
                return slot;
            }
            self.evict(state);
        }
    }

    /// Has the pages of the next slots leave.
    fn evict(&self, state: &mut State) {
        let slots = state.slots.len();
        let oldest = (state.hand..state.hand + EVICTED_AT_ONCE.min(slots)).map(|slot| slot % slots);
        let pages = oldest.filter_map(|slot| state.slots[slot]).collect();
        state.hand = (state.hand + EVICTED_AT_ONCE) % slots;
        self.remove(state, pages);
    }

    /// Makes pages absent that have slots.
    fn remove(&self, state: &mut State, mut pages: Vec<usize>) {
        for &page in &pages {
            if let Some(Entry::Present { slot } | Entry::Failed { slot }) = state.entries.remove(&page) {
                state.slots[slot] = None;
                state.free.push(slot);
            }
            self.present[page / 64].fetch_and(!(1 << (page % 64)), Ordering::AcqRel);
        }
        pages.sort_unstable();
        pages.iter_mut().for_each(|page| *page *= PAGE_BYTES);
        let discarded = self.memory.discard(&pages);
        discarded.expect("pages of the window, in the process that has it");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Slots with pages.
    fn held(&self) -> usize {
        self.slots.len() - self.free.len() - self.withheld.len()
    }

    /// How many pages to load from `page` on.
    fn ahead_of(&self, page: usize) -> usize {
        let is_present = |page: &usize| matches!(self.entries.get(page), Some(Entry::Present { .. }));
        let before = (page.saturating_sub(AHEAD_PAGES_MAX)..page).rev().take_while(is_present).count();
        // Of the slots of a small window, half.
        let pages_max = AHEAD_PAGES_MAX.min(self.slots.len() / 2);
        if before < HISTORY_PAGES_MIN { 1 } else { before.min(pages_max).max(1) }
    }
}

impl DemandWindows {
    /// Called under the lock of `dirty`: changes before are visible to the loads of the window, and later ones reach it.
    pub(crate) fn add(&self, window: &Arc<DemandPages>) {
        let mut list = unpoisoned(self.list.write());
        list.push(window.clone());
        self.count.store(list.len(), Ordering::Release);
    }

    pub(crate) fn remove(&self, window: &Arc<DemandPages>) {
        let mut list = unpoisoned(self.list.write());
        list.retain(|other| !Arc::ptr_eq(other, window));
        self.count.store(list.len(), Ordering::Release);
    }

    /// Makes the pages of a changed range absent in all windows.
    #[inline]
    pub(crate) fn forget(&self, range: ByteRange) {
        if self.count.load(Ordering::Acquire) > 0 {
            unpoisoned(self.list.read()).iter().for_each(|window| window.forget(range));
        }
    }
}

/// Twice as many as one access loads.
const SLOTS_MIN: usize = 2 * AHEAD_PAGES_MAX;

/// 64 pages discarded one by one take 0.4 of the rate of eight threads that load at random.
const EVICTED_AT_ONCE: usize = 64;

/// 256 KiB, up to which one thread reads by one request.
const AHEAD_PAGES_MAX: usize = 64;

/// With a quarter of the pages present, one in 64 has as many before it by chance.
const HISTORY_PAGES_MIN: usize = 3;
