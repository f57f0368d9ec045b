//! Slot table: the slots of one queue, the free ones among them, and the requests that wait for a place in the queue.
//!
//! ```text
//!   begin ─┬─ a place in the queue is free ───────────────► slot in flight, the caller starts it
//!          ├─ none, and it is demand ─────────────────────► slot queued, first come first served
//!          ├─ none to spare, and it was advised ──────────► slot queued, behind demands, until its owner waits for it
//!          └─ none to spare, and it is readahead ─────────► rejected
//!   release_places ─► a place came back ─┬─ a request is queued ──► launched, the caller starts it
//!                                        └─ none is ──────────────► free place
//! ```
//!
//! Places in the queue are few (the queue depth), slots are many: a request that waits for a place, or whose result has not
//! been taken yet, has a slot but no place. So a slow owner, or a future that is never polled, holds up no other request, and
//! a place never goes to a request that cannot use it at once. All slots up to the queue depth exist from the start; when
//! there are more results not taken than ever before, more slots are made, and kept.
//!
//! Owns: slots, the list of free ones, the first-come queue, the count of free places.
//! Does not own: the contents of a request; how it is carried out.
//! Invariants: I5 completing allocates nothing: the lists have room for every slot that exists.
//! Locks: `state`, for list operations, and while a request is put into the slot that waits for a place; nothing else is called with it
//! held.
//! Hot path: one lock to begin, one to release places (for all completions that came together), one to take.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use headwater_core::limits::Limits;
use smallvec::SmallVec;

use crate::memory::arena::Urgency;
use crate::request::slot::{Abandoned, Slot, Taken};
use crate::sync::event::contain;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, unpoisoned};

/// Names a request for as long as it is known: a slot, and how often that slot was used before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Slots that come and go together, few enough to stay off the heap.
pub(crate) type SlotIds = SmallVec<[SlotId; TOGETHER]>;

/// Requests that are begun or completed with one lock.
pub(crate) const TOGETHER: usize = 32;

/// `A` is a request under way and then its outcome, `W` the waiter to wake.
pub(crate) struct SlotTable<A, W> {
    /// The slots that are always there, a power of two.
    first: Box<[Slot<A, W>]>,
    /// More, as many each time as there are already.
    segments: [Segment<A, W>; SEGMENTS],
    state: Mutex<State>,
    in_flight: AtomicUsize,
    depth: u32,
    demand_reserve: u32,
}

type Segment<A, W> = OnceLock<Box<[Slot<A, W>]>>;

struct State {
    /// Slots that are free.
    free: Vec<u32>,
    /// Slots of requests that wait for a place, the oldest first.
    queued: VecDeque<u32>,
    /// The same of requests that were advised: demands overtake them.
    advised: VecDeque<u32>,
    /// Free places in the queue.
    places: u32,
    /// Slots that exist.
    slots: u32,
}

/// A request that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) id: SlotId,
    /// Whether it has a place, so that the caller starts it.
    pub(crate) has_place: bool,
}

/// What a driver has finished, whose places and waiters are still to be released and woken.
pub(crate) struct CompletedBatch<A, W> {
    places: u32,
    vacated: SmallVec<[u32; TOGETHER]>,
    /// Waiters to wake once no lock is held.
    pub(crate) waiters: SmallVec<[W; TOGETHER]>,
    /// What is to be dropped then, with the slots that are free afterwards.
    pub(crate) orphans: SmallVec<[(A, u32); TOGETHER]>,
}

impl<A, W> CompletedBatch<A, W> {
    pub(crate) fn new() -> Self {
        CompletedBatch {
            places: 0,
            vacated: SmallVec::new(),
            waiters: SmallVec::new(),
            orphans: SmallVec::new(),
        }
    }
}

impl<A, W> SlotTable<A, W> {
    /// A table for `depth` requests in flight.
    pub(crate) fn new(depth: u32) -> Self {
        let slots = depth.next_power_of_two();
        let free = (0..slots).rev().collect();
        let [queued, advised] = std::array::from_fn(|_| VecDeque::with_capacity(slots as usize));
        SlotTable {
            first: (0..slots).map(|_| Slot::new()).collect(),
            segments: std::array::from_fn(|_| OnceLock::new()),
            state: Mutex::new(State { free, queued, advised, places: depth, slots }),
            in_flight: AtomicUsize::new(0),
            depth,
            // Not none: readahead that is in flight must not be all that a demand waits for.
            demand_reserve: (depth / Limits::DEMAND_SLOTS_DIVISOR).max(1),
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Requests that a driver works on, abandoned ones included.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Slots in use: queued, in flight, or done and not taken.
    pub(crate) fn used(&self) -> usize {
        let state = self.state();
        state.slots as usize - state.free.len()
    }

    /// Requests that wait for a place.
    pub(crate) fn queued(&self) -> usize {
        let state = self.state();
        state.queued.len() + state.advised.len()
    }

    #[inline]
    pub(crate) fn slot(&self, id: SlotId) -> &Slot<A, W> {
        let slot = self.at(id.index);
        debug_assert_eq!(slot.generation(), id.generation, "a slot is used by who owns it now");
        slot
    }

    #[inline]
    fn at(&self, index: u32) -> &Slot<A, W> {
        self.find(index).expect("an index names a slot that was made")
    }

    /// The slot with any number, if there is one.
    #[inline]
    pub(crate) fn find(&self, index: u32) -> Option<&Slot<A, W>> {
        match self.first.get(index as usize) {
            Some(slot) => Some(slot),
            None => self.find_later(index),
        }
    }

    /// Segment 0 follows the first slots and has as many, each further one as many as all before it.
    fn find_later(&self, index: u32) -> Option<&Slot<A, W>> {
        let doublings = (index as usize / self.first.len()).ilog2();
        let slots = self.segments.get(doublings as usize)?.get()?;
        slots.get(index as usize - (self.first.len() << doublings))
    }

    /// Every slot that was made.
    fn all(&self) -> impl Iterator<Item = &Slot<A, W>> {
        self.first.iter().chain(self.segments.iter().filter_map(OnceLock::get).flatten())
    }

    /// The requests that are not done and have a waiter, as numbers that no two requests share.
    pub(crate) fn waited_for(&self, ids: &mut Vec<(u32, u32)>) {
        ids.clear();
        let waited_for = |(index, slot): (usize, &Slot<A, W>)| Some((index as u32, slot.waited_for()?));
        ids.extend(self.all().enumerate().filter_map(waited_for));
    }

    /// Requests that a driver works on and that were cancelled.
    pub(crate) fn cancelled(&self) -> Vec<SlotId> {
        let cancelled = |(index, slot): (usize, &Slot<A, W>)| {
            let generation = slot.cancelled_in_flight()?;
            Some(SlotId { index: index as u32, generation })
        };
        self.all().enumerate().filter_map(cancelled).collect()
    }

    /// The waiters of all requests that are not done, for the caller to wake: their owners register again.
    #[cold]
    pub(crate) fn take_waiters(&self) -> Vec<W> {
        self.all().filter_map(Slot::take_waiter).collect()
    }

    /// Accepts a request, which `write` puts into its slot, or none: no readahead when no place is to spare, nothing when as many as
    /// [`Limits::OUTSTANDING_MAX`] are outstanding.
    ///
    /// # Safety
    /// `write` initialises what it is given.
    #[inline]
    pub(crate) unsafe fn begin(
        &self,
        urgency: Urgency,
        write: impl FnOnce(&mut MaybeUninit<A>),
    ) -> Option<Begun> {
        let mut state = self.state();
        let has_place = match urgency {
            Urgency::Demand => state.places > 0,
            Urgency::Advised => state.places > self.advised_reserve(),
            Urgency::Readahead if state.places <= self.demand_reserve => return None,
            Urgency::Readahead => true,
        };
        let index = self.free_slot(&mut state)?;
        let slot = self.at(index);
        let id = SlotId { index, generation: slot.generation() };
        if !has_place {
            // SAFETY: the slot is fresh from the slot table, whose lock is held; the caller vouches for `write`.
            unsafe { slot.enqueue(write) };
            let State { queued, advised, .. } = &mut *state;
            if urgency == Urgency::Demand { queued } else { advised }.push_back(index);
            return Some(Begun { id, has_place });
        }
        state.places -= 1;
        drop(state);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the slot is fresh from the slot table, and the caller vouches for `write`.
        unsafe { slot.begin(write) };
        Some(Begun { id, has_place })
    }

    /// Accepts up to `count` demands at once, as far as there are places, and names their slots. `write` puts the
    /// request with a number into its slot.
    ///
    /// # Safety
    /// `write` initialises what it is given.
    #[inline]
    pub(crate) unsafe fn begin_together(
        &self,
        count: usize,
        ids: &mut SlotIds,
        mut write: impl FnMut(usize, &mut MaybeUninit<A>),
    ) {
        let mut indexes = SmallVec::<[u32; TOGETHER]>::new();
        let mut state = self.state();
        let admitted = count.min(TOGETHER).min(state.places as usize);
        while state.free.len() < admitted && self.grow(&mut state) {}
        let kept = state.free.len().saturating_sub(admitted);
        indexes.extend_from_slice(&state.free[kept..]);
        state.free.truncate(kept);
        state.places -= indexes.len() as u32;
        drop(state);
        self.in_flight.fetch_add(indexes.len(), Ordering::AcqRel);
        for (number, &index) in indexes.iter().enumerate() {
            let slot = self.at(index);
            ids.push(SlotId { index, generation: slot.generation() });
            // SAFETY: the slot is fresh from the slot table, and the caller vouches for `write`.
            unsafe { slot.begin(|body| write(number, body)) };
        }
    }

    /// Ends a request; what follows from it is collected in `completed`.
    ///
    /// # Safety
    /// The caller is the driver of this request.
    pub(crate) unsafe fn finish(&self, id: SlotId, completed: &mut CompletedBatch<A, W>) {
        completed.places += 1;
        let CompletedBatch { waiters, orphans, .. } = completed;
        let orphans_before = orphans.len();
        let adopt = |orphan| orphans.push((orphan, id.index));
        // SAFETY: as the caller promises.
        let vacated = unsafe { self.slot(id).finish(|waiter| waiters.push(waiter), adopt) };
        if vacated && completed.orphans.len() == orphans_before {
            completed.vacated.push(id.index);
        }
    }

    /// Releases places and slots; returns the queued requests that got a place, which the caller starts.
    pub(crate) fn release_places(&self, completed: &mut CompletedBatch<A, W>) -> SlotIds {
        let mut launched = SlotIds::new();
        if completed.places == 0 {
            return launched;
        }
        let mut state = self.state();
        state.free.extend(completed.vacated.drain(..));
        for _ in 0..completed.places {
            let Some(index) = self.next(&mut state) else {
                state.places += 1;
                continue;
            };
            let slot = self.at(index);
            // SAFETY: just taken from the queue, and the lock is held.
            unsafe { slot.launch() };
            launched.push(SlotId { index, generation: slot.generation() });
        }
        let freed = completed.places as usize - launched.len();
        drop(state);
        self.in_flight.fetch_sub(freed, Ordering::AcqRel);
        completed.places = 0;
        launched
    }

    /// The request that gets a place which came back: the oldest demand, or the oldest that was advised if no demand waits and the reserve
    /// is free.
    fn next(&self, state: &mut State) -> Option<u32> {
        let is_spare = state.places >= self.advised_reserve();
        state.queued.pop_front().or_else(|| if is_spare { state.advised.pop_front() } else { None })
    }

    /// What was advised and still waits is a demand from now on: its owner waits for it. Returns whether it has got a place, so that the
    /// caller starts it.
    pub(crate) fn hasten(&self, id: SlotId) -> bool {
        let slot = self.slot(id);
        if !slot.is_queued() {
            return false;
        }
        let mut state = self.state();
        if !leave(&mut state.advised, id) {
            return false;
        }
        if state.places == 0 {
            state.queued.push_back(id.index);
            return false;
        }
        state.places -= 1;
        // SAFETY: just taken from the queue, and the lock is held.
        unsafe { slot.launch() };
        drop(state);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Places that are left to demands by what was advised: not all, or it would wait for ever.
    fn advised_reserve(&self) -> u32 {
        self.demand_reserve.min(self.depth - 1)
    }

    /// Drops the requests that have no owner any more. A slot counts as used until its request is gone.
    pub(crate) fn drop_orphans(&self, completed: &mut CompletedBatch<A, W>) {
        if completed.orphans.is_empty() {
            return;
        }
        let drop_one = |(orphan, index)| {
            // What a call was given is its user's, and may panic; this thread works for others.
            contain(|| drop(orphan));
            index
        };
        let freed: SmallVec<[u32; TOGETHER]> = completed.orphans.drain(..).map(drop_one).collect();
        self.state().free.extend(freed);
    }

    /// The result if the request is done.
    ///
    /// # Safety
    /// The caller is the owner, and no longer is when this gives the result; `read` moves all out of the body.
    pub(crate) unsafe fn take<D>(
        &self,
        id: SlotId,
        read: impl FnOnce(&mut MaybeUninit<A>) -> D,
    ) -> Option<D> {
        // SAFETY: as the caller promises.
        match unsafe { self.slot(id).take(read) } {
            Taken::NotYet => None,
            Taken::Result { done, vacated } => {
                if vacated {
                    self.state().free.push(id.index);
                }
                Some(done)
            }
        }
    }

    /// Takes up to [`TOGETHER`] results, all of them done, counted from `place` on. What is not handed over because
    /// `each` panics is dropped.
    ///
    /// # Safety
    /// The caller is the owner of all and no longer is afterwards; `read` moves all out of the body.
    #[inline]
    pub(crate) unsafe fn take_together<D>(
        &self,
        ids: &[SlotId],
        mut place: usize,
        read: impl Fn(&mut MaybeUninit<A>) -> D,
        mut each: impl FnMut(usize, D),
    ) {
        let mut taking = Taking { table: self, ids: ids.iter(), in_hand: None, freed: SmallVec::new() };
        while let Some(slot) = taking.next() {
            // Given on from where it is read: stored in between, it would be copied again.
            // SAFETY: as the caller promises; each is taken once.
            unsafe { slot.read_done(|body| each(place, read(body))) };
            taking.put_down();
            place += 1;
        }
    }

    /// Abandons a request in whatever phase it is. Returns whether a driver still works on it. What it held is dropped by the
    /// time this returns, or when the driver is done.
    ///
    /// # Safety
    /// The caller is the owner, and no longer is.
    pub(crate) unsafe fn abandon(&self, id: SlotId) -> bool {
        // SAFETY: as the caller promises.
        if let Some(withdrawn) = unsafe { self.withdraw(id) } {
            drop(withdrawn);
            return false;
        }
        // SAFETY: as the caller promises, and it is not queued.
        match unsafe { self.slot(id).abandon() } {
            Abandoned::UnderWay(waiter) => {
                drop(waiter);
                true
            }
            Abandoned::Done { done, vacated } => {
                // Free afterwards, also if dropping what a call was given panics.
                let _vacated = vacated.then(|| Vacated { table: self, index: id.index });
                drop(done);
                false
            }
        }
    }

    unsafe fn withdraw(&self, id: SlotId) -> Option<(A, Option<W>)> {
        if !self.slot(id).is_queued() {
            return None;
        }
        let mut state = self.state();
        if !leave(&mut state.queued, id) && !leave(&mut state.advised, id) {
            return None;
        }
        // SAFETY: the caller is the owner; the slot was in the queue, whose lock is held.
        let withdrawn = unsafe { self.slot(id).withdraw() };
        state.free.push(id.index);
        Some(withdrawn)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    fn free_slot(&self, state: &mut State) -> Option<u32> {
        if state.free.is_empty() && !self.grow(state) {
            return None;
        }
        state.free.pop()
    }

    /// Makes as many slots as there are, with room for them in the lists.
    fn grow(&self, state: &mut State) -> bool {
        let added = state.slots;
        if state.slots + added > Limits::OUTSTANDING_MAX {
            return false;
        }
        let segment = (state.slots as usize / self.first.len()).ilog2() as usize;
        let made = self.segments[segment].set((0..added).map(|_| Slot::new()).collect());
        assert!(made.is_ok(), "a segment is made once");
        state.slots += added;
        let State { free, queued, advised, slots, .. } = state;
        free.reserve(*slots as usize - free.len());
        [queued, advised].into_iter().for_each(|queue| queue.reserve(*slots as usize - queue.len()));
        free.extend((added..*slots).rev());
        true
    }

    /// Accepts what a test has, or drops it.
    #[cfg(test)]
    pub(crate) fn accept(&self, active: A, urgency: Urgency) -> Option<Begun> {
        // SAFETY: it writes.
        unsafe { self.begin(urgency, |body| _ = body.write(active)) }
    }

    /// Asserts that no slot and no place is lost when no request is under way.
    #[cfg(test)]
    pub(crate) fn check_idle(&self) {
        let state = self.state();
        assert_eq!(state.places, self.depth, "all places came back");
        assert_eq!(state.free.len(), state.slots as usize, "all slots came back");
        assert!(state.queued.is_empty() && state.advised.is_empty(), "nothing waits");
        assert_eq!(self.in_flight(), 0, "nothing is in flight");
        let mut free = state.free.clone();
        free.sort_unstable();
        assert!(free.into_iter().eq(0..state.slots), "each slot is free once");
    }
}

/// Takes a request out of a queue. Returns whether it was there.
fn leave(queue: &mut VecDeque<u32>, id: SlotId) -> bool {
    let place = queue.iter().position(|&index| index == id.index);
    place.is_some_and(|place| queue.remove(place).is_some())
}

/// A slot that is free once this is dropped.
struct Vacated<'a, A, W> {
    table: &'a SlotTable<A, W>,
    index: u32,
}

impl<A, W> Drop for Vacated<'_, A, W> {
    fn drop(&mut self) {
        self.table.state().free.push(self.index);
    }
}

/// Results on their way to their owner. The slots go back together.
struct Taking<'a, A, W> {
    table: &'a SlotTable<A, W>,
    ids: std::slice::Iter<'a, SlotId>,
    /// The one whose body is being moved out.
    in_hand: Option<SlotId>,
    freed: SmallVec<[u32; TOGETHER]>,
}

impl<'a, A, W> Taking<'a, A, W> {
    #[inline]
    fn next(&mut self) -> Option<&'a Slot<A, W>> {
        self.in_hand = self.ids.next().copied();
        self.in_hand.map(|id| self.table.slot(id))
    }

    #[inline]
    fn put_down(&mut self) {
        if let Some(id) = self.in_hand.take()
            // SAFETY: the ids are `take_together`'s, whose caller owns them; the body of this one was moved out.
            && unsafe { self.table.slot(id).leave() }
        {
            self.freed.push(id.index);
        }
    }
}

impl<A, W> Drop for Taking<'_, A, W> {
    fn drop(&mut self) {
        // Only when a receiver panicked is there something in hand, or left.
        self.put_down();
        while let Some(slot) = self.next() {
            // SAFETY: the ids are `take_together`'s, whose caller owns them; each is taken once, whole.
            let rest = unsafe { slot.read_done(|body| body.assume_init_read()) };
            self.put_down();
            drop(rest);
        }
        self.table.state().free.extend_from_slice(&self.freed);
    }
}

/// Doublings from one slot to [`Limits::OUTSTANDING_MAX`].
const SEGMENTS: usize = 21;

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::cell::Cell;
    use std::rc::{Rc, Weak};

    use super::*;

    type TestTable = SlotTable<u32, u32>;

    fn complete_one(table: &TestTable, id: SlotId) -> SlotIds {
        let mut completed = CompletedBatch::new();
        // SAFETY: the test is the only driver.
        unsafe { table.finish(id, &mut completed) };
        let launched = table.release_places(&mut completed);
        table.drop_orphans(&mut completed);
        launched
    }

    /// Times what a queue is deep, but for the deepest under miri.
    const MANY: u32 = if cfg!(miri) { 70 } else { 1000 };

    /// Goal: a request that was given up counts as used until what it held is dropped: a caller that waits for
    /// no used slot finds its memory free. Method: count the slots from within the drop, early and late.
    #[test]
    fn a_slot_is_used_until_its_request_is_dropped() {
        struct Held(Weak<SlotTable<Held, ()>>, Rc<Cell<usize>>);
        impl Drop for Held {
            fn drop(&mut self) {
                self.1.set(self.0.upgrade().expect("the table is still there").used());
            }
        }
        for is_done in [false, true] {
            let (table, used) = (Rc::new(SlotTable::new(4)), Rc::new(Cell::new(0)));
            let held = Held(Rc::downgrade(&table), used.clone());
            let begun = table.accept(held, Urgency::Demand).expect("there is room");
            let mut completed = CompletedBatch::new();
            // SAFETY: the test is the only driver and owner.
            unsafe {
                assert!(is_done || table.abandon(begun.id));
                table.finish(begun.id, &mut completed);
                assert!(!is_done || !table.abandon(begun.id));
            }
            table.release_places(&mut completed);
            table.drop_orphans(&mut completed);
            assert_eq!(used.get(), 1, "done: {is_done}");
            table.check_idle();
        }
    }

    /// Goal: with one place, requests are launched in the order they came, whatever is withdrawn in between.
    #[test]
    fn places_go_to_the_first_who_came() {
        let table = TestTable::new(1);
        let begun: Vec<Begun> = (0..100).map(|n| table.accept(n, Urgency::Demand).unwrap()).collect();
        assert!(begun[0].has_place && begun[1..].iter().all(|begun| !begun.has_place));
        // SAFETY: the test owns them.
        unsafe {
            assert!(!table.abandon(begun[50].id));
            let mut order = Vec::new();
            let mut current = begun[0].id;
            loop {
                let launched = complete_one(&table, current);
                order.push(table.take(current, |body| body.assume_init_read()).unwrap());
                let [next] = launched[..] else { break };
                current = next;
            }
            assert_eq!(order, (0..100).filter(|&n| n != 50).collect::<Vec<u32>>());
        }
        table.check_idle();
    }

    /// Goal: results that are not taken hold no place, however many; readahead leaves places to demand.
    #[test]
    fn untaken_results_hold_no_place() {
        let table = TestTable::new(8);
        let mut done = Vec::new();
        for n in 0..MANY {
            let begun = table.accept(n, Urgency::Demand).unwrap();
            assert!(begun.has_place);
            complete_one(&table, begun.id);
            done.push((n, begun.id));
        }
        let mut guesses = Vec::new();
        while let Some(begun) = table.accept(0, Urgency::Readahead) {
            guesses.push(begun.id);
        }
        assert_eq!(guesses.len(), 6, "two of eight places are left to demand");
        // SAFETY: the test owns them.
        unsafe {
            for (n, id) in done {
                assert_eq!(table.take(id, |body| body.assume_init_read()), Some(n));
            }
            for id in guesses {
                assert!(table.abandon(id));
                complete_one(&table, id);
            }
        }
        table.check_idle();
    }

    /// Goal: what was advised waits for a place behind demands, leaves places to them, and gets one when no demand waits. Method: a queue of eight places and of one, completed one by one.
    #[test]
    fn what_was_advised_waits_behind_demands() {
        for depth in [8, 1] {
            let table = TestTable::new(depth);
            let mut advised = (0..10).map(|n| table.accept(n, Urgency::Advised).unwrap()).collect::<Vec<_>>();
            let started = advised.iter().filter(|begun| begun.has_place).count();
            assert_eq!(started, if depth == 8 { 6 } else { 1 }, "two of eight places are left to demand");
            let last = advised.pop().unwrap();
            // SAFETY: the test is the only driver and owner.
            unsafe {
                assert!(!table.abandon(last.id), "it waited and can be withdrawn");
                let demands: Vec<Begun> =
                    (100..160).map(|n| table.accept(n, Urgency::Demand).unwrap()).collect();
                let mut flying: VecDeque<SlotId> = advised
                    .iter()
                    .chain(&demands)
                    .filter(|begun| begun.has_place)
                    .map(|begun| begun.id)
                    .collect();
                let mut order = Vec::new();
                while let Some(id) = flying.pop_front() {
                    flying.extend(complete_one(&table, id));
                    order.push(table.take(id, |body| body.assume_init_read()).unwrap());
                }
                let place_of = |n| order.iter().position(|&done| done == n).unwrap();
                assert_eq!(order.len(), 9 + demands.len());
                assert!(place_of(started as u32) > place_of(150), "demands overtook it: {order:?}");
                assert!((100..159).all(|n| place_of(n) < place_of(n + 1)), "{order:?}");
            }
            table.check_idle();
        }
    }

    /// Goal: what was advised becomes a demand when its owner waits for it: it is started if there is a place, and else comes before all
    /// that is only advised.
    #[test]
    fn what_was_advised_is_hastened() {
        let table = TestTable::new(8);
        let advised = (0..10).map(|n| table.accept(n, Urgency::Advised).unwrap()).collect::<Vec<_>>();
        let mut flying: VecDeque<SlotId> = advised[..6].iter().map(|begun| begun.id).collect();
        assert!(!table.hasten(advised[0].id), "it is under way");
        for late in [9, 8] {
            assert!(table.hasten(advised[late].id), "two places are left to demands");
            flying.push_back(advised[late].id);
        }
        assert!(!table.hasten(advised[7].id), "there is no place");
        assert_eq!((table.queued(), table.in_flight()), (2, 8));
        let mut order = Vec::new();
        while let Some(id) = flying.pop_front() {
            flying.extend(complete_one(&table, id));
            // SAFETY: the test is the only owner.
            order.push(unsafe { table.take(id, |body| body.assume_init_read()) }.unwrap());
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 9, 8, 7, 6]);
        assert!(!table.hasten(table.accept(0, Urgency::Demand).map(|begun| begun.id).unwrap()));
    }

    /// Goal: results that are taken together come in order, once each, and none is lost when their receiver panics.
    #[test]
    fn a_receiver_that_panics_loses_nothing() {
        let table = SlotTable::<Rc<u32>, ()>::new(8);
        let results: Vec<_> = (0..8).map(Rc::new).collect();
        for panics_at in 0..=8 {
            let mut ids = SlotIds::new();
            // SAFETY: the test writes the body, and is the only driver and owner.
            unsafe {
                table.begin_together(8, &mut ids, |number, body| _ = body.write(results[number].clone()));
                let mut completed = CompletedBatch::new();
                ids.iter().for_each(|&id| table.finish(id, &mut completed));
                table.release_places(&mut completed);
                let mut seen = Vec::new();
                let take = std::panic::AssertUnwindSafe(|| {
                    table.take_together(
                        &ids,
                        100,
                        |body| body.assume_init_read(),
                        |place, result| {
                            assert_eq!(place, 100 + *result as usize);
                            seen.push(*result);
                            if *result == panics_at {
                                std::panic::resume_unwind(Box::new(()));
                            }
                        },
                    );
                });
                assert_eq!(std::panic::catch_unwind(take).is_err(), panics_at < 8);
                assert!(seen.into_iter().eq(0..=panics_at.min(7)));
            }
            assert!(results.iter().all(|result| Rc::strong_count(result) == 1));
            table.check_idle();
        }
    }

    /// Goal: every index finds its own slot in the growing table.
    #[test]
    fn each_index_has_a_slot_of_its_own() {
        for depth in [1, 2, 3, 8, 100] {
            let table = TestTable::new(depth);
            let ids: Vec<SlotId> = (0..MANY).map(|n| table.accept(n, Urgency::Demand).unwrap().id).collect();
            let mut seen: Vec<*const _> = ids.iter().map(|&id| std::ptr::from_ref(table.slot(id))).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), ids.len());
        }
    }
}

#[cfg(all(test, headwater_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    type TestTable = SlotTable<u32, ()>;

    /// Carries out what it is given and whatever is launched by that.
    fn drive(table: &TestTable, begun: Begun) {
        let mut todo = SlotIds::new();
        if begun.has_place {
            todo.push(begun.id);
        }
        while let Some(id) = todo.pop() {
            let mut completed = CompletedBatch::new();
            // SAFETY: the thread that is to start a request is its driver.
            unsafe { table.finish(id, &mut completed) };
            todo.extend(table.release_places(&mut completed));
            table.drop_orphans(&mut completed);
        }
    }

    /// Goal: a request that was advised is started once, whether its owner hastens it or a place comes back.
    #[test]
    fn loom_hasten_against_a_place_that_comes_back() {
        loom::model(|| {
            let table = Arc::new(TestTable::new(2));
            let other = table.clone();
            let first = table.accept(1, Urgency::Advised).unwrap();
            let second = table.accept(2, Urgency::Advised).unwrap();
            assert!(first.has_place && !second.has_place);
            let thread = thread::spawn(move || drive(&other, first));
            if table.hasten(second.id) {
                drive(&table, Begun { has_place: true, ..second });
            }
            thread.join().unwrap();
            // SAFETY: each request is this thread's.
            unsafe {
                assert_eq!(table.take(first.id, |body| body.assume_init_read()), Some(1));
                assert_eq!(table.take(second.id, |body| body.assume_init_read()), Some(2));
            }
            table.check_idle();
        });
    }

    /// Goal: two threads that compete for one place: both requests are carried out once, by the thread that had the place, and
    /// nothing is lost when one of them is dropped at any moment.
    #[test]
    fn loom_hand_over_of_the_only_place() {
        for drops in [false, true] {
            loom::model(move || {
                let table = Arc::new(TestTable::new(1));
                let other = table.clone();
                let thread = thread::spawn(move || {
                    let begun = other.accept(1, Urgency::Demand).unwrap();
                    drive(&other, begun);
                    begun.id
                });
                let begun = table.accept(2, Urgency::Demand).unwrap();
                if drops && !begun.has_place {
                    // SAFETY: this thread is the owner.
                    unsafe { table.abandon(begun.id) };
                } else {
                    drive(&table, begun);
                }
                let first = thread.join().unwrap();
                // SAFETY: each thread's request is now this thread's.
                unsafe {
                    assert_eq!(table.take(first, |body| body.assume_init_read()), Some(1));
                    if !drops || begun.has_place {
                        assert_eq!(table.take(begun.id, |body| body.assume_init_read()), Some(2));
                    }
                }
                table.check_idle();
            });
        }
    }
}
