//! Slots: the requests in flight and what became of them.
//!
//! ```text
//!   Free ──begin──► InFlight ──attempt──► Done ──take──► Free
//!                     │  ▲ └ again (short, EINTR) ┘
//!                  abandon └──────────► Abandoned ──attempt──► Free   (memory goes back to the arena)
//! ```
//!
//! States: Free -> InFlight [begin], InFlight -> Done [attempt], InFlight -> Abandoned [abandon],
//! Abandoned -> Free [attempt], Done -> Free [take, abandon].
//!
//! Owns: the requests between submission and completion, and with them their memory; who waits for each.
//! Does not own: how a request reaches the kernel.
//! Invariants: I1, I4 memory leaves a slot only when no attempt is under way; I5 completing allocates nothing.
//! Locks: `free` and one slot's lock are never held together, except that `release` pushes an index after the slot's
//! lock is gone. Wakers run with no lock held.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::Thread;

use event_listener::{Event, EventListener};
use headwater_core::limits::Limits;
use smallvec::SmallVec;

use crate::arena::Urgency;
use crate::request::{Finished, Request};
use crate::sys::{self, IoSegment, Operation};

/// Names a request for as long as it is known: a slot and how often that slot was used before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

pub(crate) struct Slots {
    table: Box<[Mutex<Slot>]>,
    free: Mutex<Vec<u32>>,
    freed: Event,
    demand_reserve: usize,
    in_flight: AtomicUsize,
}

struct Slot {
    generation: u32,
    state: State,
}

enum State {
    Free,
    InFlight(Active, Option<Waiter>),
    Abandoned(Active),
    Done(Finished),
}

struct Active {
    request: Request,
    done_bytes: usize,
    /// Attempts since the last byte moved.
    fruitless_attempts: u32,
    /// The error behind the bytes that were moved.
    stopped_by: Option<io::Error>,
    /// What the attempt under way moves. The kernel may read it until the attempt is over.
    segments: SmallVec<[IoSegment; 1]>,
}

/// Who is told when a request is done.
pub(crate) enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
    pub(crate) fn wake(self) {
        match self {
            Waiter::Thread(thread) => thread.unpark(),
            Waiter::Task(waker) => waker.wake(),
        }
    }
}

/// What follows from an attempt's result.
pub(crate) enum Verdict {
    /// The request is done; tell this waiter, with no lock held.
    Finished(Option<Waiter>),
    /// The rest must be attempted.
    Again,
}

/// An attempt as a driver carries it out. The memory behind `segments` is valid until the attempt's result is given to
/// [`Slots::attempt`].
pub(crate) struct Attempt {
    pub(crate) operation: Operation,
    pub(crate) descriptor: std::os::fd::RawFd,
    pub(crate) segments: Segments,
    pub(crate) offset_bytes: u64,
}

/// What an attempt moves. It does not point into the slot: the owner may abandon the request, which moves it there,
/// while the driver reads this.
pub(crate) enum Segments {
    One(IoSegment),
    /// On the heap, where it stays until the attempt is over.
    Many(*const [IoSegment]),
}

impl Segments {
    /// # Safety
    /// The attempt must be under way: its result not yet given to [`Slots::attempt`].
    pub(crate) unsafe fn as_slice(&self) -> &[IoSegment] {
        match self {
            Segments::One(segment) => std::slice::from_ref(segment),
            // SAFETY: the list belongs to the request, which the slot keeps, unchanged, until the attempt is over.
            Segments::Many(segments) => unsafe { &**segments },
        }
    }
}

impl Slots {
    /// `count` free slots; readahead leaves a quarter of them to demand, but at least one: what was read ahead keeps
    /// its slot until its reader comes, who may be the thread that demands.
    pub(crate) fn new(count: u32) -> Slots {
        let slot = || Mutex::new(Slot { generation: 0, state: State::Free });
        Slots {
            table: (0..count).map(|_| slot()).collect(),
            free: Mutex::new((0..count).rev().collect()),
            freed: Event::new(),
            demand_reserve: (count as usize / 4).max(1),
            in_flight: AtomicUsize::new(0),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.table.len()
    }

    /// Requests that a driver works on: in flight or abandoned.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Slots in use, for gauges.
    pub(crate) fn used(&self) -> usize {
        self.count() - lock(&self.free).len()
    }

    /// Resolves when a slot becomes free; listen, try again, then wait.
    pub(crate) fn freed(&self) -> EventListener {
        self.freed.listen()
    }

    /// Free -> InFlight. Gives the request back when there is no slot for it.
    pub(crate) fn begin(&self, request: Request, urgency: Urgency) -> Result<SlotId, Request> {
        request.check();
        let mut free = lock(&self.free);
        if urgency == Urgency::Readahead && free.len() <= self.demand_reserve {
            return Err(request);
        }
        let Some(index) = free.pop() else { return Err(request) };
        drop(free);
        let mut slot = self.slot(index);
        assert!(matches!(slot.state, State::Free), "a slot on the free list is free");
        slot.state = State::InFlight(Active::new(request), None);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        Ok(SlotId { index, generation: slot.generation })
    }

    /// What the next attempt of a request in flight (or abandoned) has to move.
    pub(crate) fn prepare(&self, id: SlotId) -> Attempt {
        let mut slot = self.slot(id.index);
        assert_eq!(slot.generation, id.generation, "only the driver works on a slot in flight");
        let (State::InFlight(active, _) | State::Abandoned(active)) = &mut slot.state else {
            unreachable!("a driver prepares only what it was given");
        };
        active.build_segments();
        let request = &active.request;
        Attempt {
            operation: request.operation,
            descriptor: std::os::fd::AsRawFd::as_raw_fd(&request.file.descriptor(request.route)),
            segments: match active.segments[..] {
                [one] => Segments::One(one),
                // More than one are no longer inline.
                ref many => Segments::Many(many),
            },
            offset_bytes: request.offset_bytes + active.done_bytes as u64,
        }
    }

    /// What the parts of a request in flight must be multiples of.
    pub(crate) fn alignment_bytes(&self, id: SlotId) -> usize {
        match &self.slot(id.index).state {
            State::InFlight(active, _) | State::Abandoned(active) => {
                active.request.file.transfer_alignment_bytes(active.request.route)
            }
            State::Free | State::Done(_) => unreachable!("asked only for a request in flight"),
        }
    }

    /// Records the result of an attempt: InFlight -> Done, Abandoned -> Free, or once more.
    pub(crate) fn attempt(&self, id: SlotId, result: io::Result<usize>) -> Verdict {
        let mut slot = self.slot(id.index);
        assert_eq!(slot.generation, id.generation, "one completion for each attempt");
        let (State::InFlight(active, _) | State::Abandoned(active)) = &mut slot.state else {
            unreachable!("a completion belongs to an attempt under way");
        };
        let Some(result) = active.record(result) else { return Verdict::Again };
        match std::mem::replace(&mut slot.state, State::Free) {
            State::InFlight(active, waiter) => {
                let (extents, stopped_by) = (active.request.extents, active.stopped_by);
                slot.state = State::Done(Finished { extents, result, stopped_by });
                drop(slot);
                self.in_flight.fetch_sub(1, Ordering::AcqRel);
                Verdict::Finished(waiter)
            }
            State::Abandoned(active) => {
                self.release(slot, id.index);
                self.in_flight.fetch_sub(1, Ordering::AcqRel);
                drop(active);
                Verdict::Finished(None)
            }
            State::Free | State::Done(_) => unreachable!("checked above"),
        }
    }

    /// Done -> Free with the result, or else leaves `waiter` to be told.
    pub(crate) fn take(&self, id: SlotId, waiter: impl FnOnce() -> Waiter) -> Option<Finished> {
        let mut slot = self.slot(id.index);
        assert_eq!(slot.generation, id.generation, "a completion is taken once");
        if let State::InFlight(_, place) = &mut slot.state {
            let replaced = place.replace(waiter());
            drop(slot);
            // Dropping a waker may drop a task, and with it other completions.
            drop(replaced);
            return None;
        }
        let State::Done(finished) = std::mem::replace(&mut slot.state, State::Free) else {
            unreachable!("the owner of a completion sees it in flight or done");
        };
        self.release(slot, id.index);
        Some(finished)
    }

    /// Whether the request is done and waits to be taken.
    pub(crate) fn is_done(&self, id: SlotId) -> bool {
        matches!(self.slot(id.index).state, State::Done(_))
    }

    /// InFlight -> Abandoned, or Done -> Free: nobody will ask for the result. Says whether I/O is still under way.
    pub(crate) fn abandon(&self, id: SlotId) -> bool {
        let mut slot = self.slot(id.index);
        assert_eq!(slot.generation, id.generation, "a completion is dropped once");
        match std::mem::replace(&mut slot.state, State::Free) {
            State::InFlight(active, waiter) => {
                slot.state = State::Abandoned(active);
                drop(slot);
                drop(waiter);
                true
            }
            State::Done(finished) => {
                self.release(slot, id.index);
                drop(finished);
                false
            }
            State::Free | State::Abandoned(_) => unreachable!("the owner of a completion drops it once"),
        }
    }

    fn release(&self, mut slot: MutexGuard<'_, Slot>, index: u32) {
        slot.generation = slot.generation.wrapping_add(1);
        drop(slot);
        lock(&self.free).push(index);
        // All of them: the one that is first may be a task that nobody polls any more.
        self.freed.notify(usize::MAX);
    }

    fn slot(&self, index: u32) -> MutexGuard<'_, Slot> {
        lock(&self.table[index as usize])
    }
}

impl Active {
    fn new(request: Request) -> Active {
        let segments = SmallVec::new();
        Active { request, done_bytes: 0, fruitless_attempts: 0, stopped_by: None, segments }
    }

    /// Some(result) when the request is done, None when the rest must be attempted.
    fn record(&mut self, result: io::Result<usize>) -> Option<io::Result<usize>> {
        match result {
            Ok(moved_bytes) => self.record_bytes(moved_bytes),
            Err(error) if sys::is_transient(&error) && self.fruitless_attempts < Limits::RETRIES_MAX => {
                self.fruitless_attempts += 1;
                None
            }
            Err(error) if self.done_bytes == 0 => Some(Err(error)),
            Err(error) => {
                self.stopped_by = Some(error);
                Some(Ok(self.done_bytes))
            }
        }
    }

    fn record_bytes(&mut self, moved_bytes: usize) -> Option<io::Result<usize>> {
        self.done_bytes += moved_bytes;
        assert!(self.done_bytes <= self.request.length_bytes, "no more is moved than was asked for");
        self.fruitless_attempts = 0;
        let request = &self.request;
        let whole = self.done_bytes == request.length_bytes;
        let ends = request.file.ends_transfer(request.route, self.done_bytes);
        if moved_bytes == 0 && request.operation == Operation::Write && self.done_bytes == 0 {
            return Some(Err(io::ErrorKind::WriteZero.into()));
        }
        (whole || ends || moved_bytes == 0).then_some(Ok(self.done_bytes))
    }

    fn build_segments(&mut self) {
        self.segments.clear();
        let (mut skip_bytes, mut left_bytes) = (self.done_bytes, self.request.length_bytes - self.done_bytes);
        for extent in &self.request.extents {
            let skipped_bytes = skip_bytes.min(extent.len());
            let used_bytes = (extent.len() - skipped_bytes).min(left_bytes);
            skip_bytes -= skipped_bytes;
            left_bytes -= used_bytes;
            if used_bytes > 0 {
                // SAFETY: `skipped_bytes` is within the extent.
                let base = unsafe { extent.as_raw().add(skipped_bytes) };
                self.segments.push(IoSegment::new(base, used_bytes));
            }
        }
        assert_eq!(left_bytes, 0, "a request fits its extents");
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;
    use crate::arena::{Arena, Extents};
    use crate::file::Route;
    use crate::file::{Access, DirectIo, OpenFile};

    /// Slots without a driver: the tests play its part.
    struct Bench {
        slots: Slots,
        arena: Arena,
        file: Arc<OpenFile>,
    }

    impl Bench {
        fn new(count: u32) -> Bench {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
            let file = Arc::new(OpenFile::open(&path, DirectIo::Off, Access::Read).unwrap());
            Bench { slots: Slots::new(count), arena: Arena::new(4 << 20).unwrap(), file }
        }

        /// A read of all of `sizes`, each an extent of its own.
        fn request(&self, sizes: &[usize]) -> Request {
            let extents: Extents =
                sizes.iter().map(|&bytes| self.arena.allocate(bytes, Urgency::Demand).unwrap()).collect();
            Request {
                operation: Operation::Read,
                file: self.file.clone(),
                route: Route::Buffered,
                offset_bytes: 0,
                length_bytes: sizes.iter().sum(),
                extents,
            }
        }

        fn begin(&self, sizes: &[usize]) -> SlotId {
            self.slots.begin(self.request(sizes), Urgency::Demand).unwrap()
        }

        /// What the device does with an attempt: one byte value everywhere.
        fn write(&self, attempt: &Attempt, byte: u8) {
            // SAFETY: the attempt is under way, and nobody else touches the memory of its request.
            unsafe {
                for segment in attempt.segments.as_slice() {
                    segment.base().write_bytes(byte, segment.length_bytes());
                }
            }
        }

        fn take(&self, id: SlotId) -> Option<Finished> {
            self.slots.take(id, || Waiter::Task(Waker::noop().clone()))
        }

        fn assert_idle(&self) {
            assert_eq!((self.slots.in_flight(), self.slots.used()), (0, 0));
            assert_eq!(self.arena.stats().used_bytes, 0);
        }
    }

    /// Counts how often it is woken and dropped.
    #[derive(Default)]
    struct Counter {
        woken: AtomicUsize,
    }

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Goal: I4 the driver may go on with an attempt whose request was abandoned meanwhile: neither the list of segments
    /// nor the memory moves. Method: under miri, abandon between prepare and transfer; one segment and several.
    #[test]
    fn an_attempt_survives_abandonment() {
        for sizes in [&[4096][..], &[4096, 8192, 4096]] {
            let bench = Bench::new(4);
            let id = bench.begin(sizes);
            let attempt = bench.slots.prepare(id);
            assert!(bench.slots.abandon(id), "the I/O is under way");
            assert_eq!((bench.slots.in_flight(), bench.slots.used()), (1, 1));
            bench.write(&attempt, 7);
            assert!(matches!(bench.slots.attempt(id, Ok(sizes.iter().sum())), Verdict::Finished(None)));
            bench.assert_idle();
        }
    }

    /// Goal: the same while the owner asks for the result in between, which writes into the slot.
    #[test]
    fn an_attempt_survives_being_asked_for() {
        let bench = Bench::new(4);
        let id = bench.begin(&[4096, 4096]);
        let attempt = bench.slots.prepare(id);
        assert!(bench.take(id).is_none());
        assert!(!bench.slots.is_done(id));
        bench.write(&attempt, 9);
        let Verdict::Finished(Some(waiter)) = bench.slots.attempt(id, Ok(8192)) else { panic!("not done") };
        waiter.wake();
        let finished = bench.take(id).unwrap();
        assert_eq!(finished.result.unwrap(), 8192);
        assert!(finished.extents.iter().flat_map(|extent| extent.iter()).all(|&byte| byte == 9));
        drop(finished.extents);
        bench.assert_idle();
    }

    /// Goal: a short transfer is continued where it stopped, across the edge of an extent, until the file ends.
    #[test]
    fn short_transfers_are_continued() {
        let bench = Bench::new(4);
        let id = bench.begin(&[4096, 8192]);
        let mut done_bytes = 0;
        for moved_bytes in [1000, 3096, 5000, 0] {
            let attempt = bench.slots.prepare(id);
            assert_eq!(attempt.offset_bytes, done_bytes as u64);
            // SAFETY: the attempt is under way.
            let left: usize = unsafe { attempt.segments.as_slice() }.iter().map(|s| s.length_bytes()).sum();
            assert_eq!(left, 12_288 - done_bytes);
            bench.write(&attempt, moved_bytes as u8);
            let again = matches!(bench.slots.attempt(id, Ok(moved_bytes)), Verdict::Again);
            assert_eq!(again, moved_bytes > 0);
            done_bytes += moved_bytes;
        }
        assert_eq!(bench.take(id).unwrap().result.unwrap(), 9096);
        bench.assert_idle();
    }

    /// Goal: transient errors are retried up to the limit, counted anew after each byte moved; an error behind moved
    /// bytes is kept beside their number.
    #[test]
    fn errors_are_retried_kept_or_reported() {
        let bench = Bench::new(4);
        let error = |errno| Err(io::Error::from_raw_os_error(errno));
        let id = bench.begin(&[8192]);
        for _ in 0..2 {
            for _ in 0..Limits::RETRIES_MAX {
                bench.slots.prepare(id);
                assert!(matches!(bench.slots.attempt(id, error(libc::EINTR)), Verdict::Again));
            }
            bench.slots.prepare(id);
            assert!(matches!(bench.slots.attempt(id, Ok(100)), Verdict::Again));
        }
        bench.slots.prepare(id);
        assert!(matches!(bench.slots.attempt(id, error(libc::EIO)), Verdict::Finished(_)));
        let finished = bench.take(id).unwrap();
        assert_eq!(finished.result.unwrap(), 200);
        assert_eq!(finished.stopped_by.unwrap().raw_os_error(), Some(libc::EIO));
        let id = bench.begin(&[4096]);
        bench.slots.prepare(id);
        assert!(matches!(bench.slots.attempt(id, error(libc::EIO)), Verdict::Finished(_)));
        assert_eq!(bench.take(id).unwrap().result.unwrap_err().raw_os_error(), Some(libc::EIO));
        drop(finished.extents);
        bench.assert_idle();
    }

    /// Goal: only the last waker is woken, once, and none is kept.
    #[test]
    fn the_last_waker_counts() {
        let bench = Bench::new(4);
        let id = bench.begin(&[4096]);
        let counters: Vec<_> = (0..3).map(|_| Arc::new(Counter::default())).collect();
        for counter in &counters {
            assert!(bench.slots.take(id, || Waiter::Task(counter.clone().into())).is_none());
        }
        bench.slots.prepare(id);
        if let Verdict::Finished(Some(waiter)) = bench.slots.attempt(id, Ok(4096)) {
            waiter.wake();
        }
        let woken: Vec<_> = counters.iter().map(|counter| counter.woken.load(Ordering::Relaxed)).collect();
        assert_eq!(woken, [0, 0, 1]);
        assert!(counters.iter().all(|counter| Arc::strong_count(counter) == 1));
        assert!(!bench.slots.abandon(id), "what is done is not under way");
        bench.assert_idle();
    }

    /// Goal: slots run out for readahead before they do for demand, at every count; who waits is told of a free one.
    #[test]
    fn readahead_leaves_slots_to_demand() {
        for (count, for_readahead) in [(1, 0), (2, 1), (4, 3), (16, 12)] {
            let bench = Bench::new(count);
            let begin = |urgency| bench.slots.begin(bench.request(&[4096]), urgency);
            let ahead: Vec<_> = std::iter::from_fn(|| begin(Urgency::Readahead).ok()).collect();
            assert_eq!(ahead.len(), for_readahead, "of {count}");
            let demanded: Vec<_> = std::iter::from_fn(|| begin(Urgency::Demand).ok()).collect();
            assert_eq!(demanded.len(), count as usize - for_readahead);
            let freed = bench.slots.freed();
            for id in ahead.into_iter().chain(demanded) {
                bench.slots.prepare(id);
                assert!(matches!(bench.slots.attempt(id, Ok(4096)), Verdict::Finished(None)));
                assert!(!bench.slots.abandon(id));
            }
            event_listener::Listener::wait(freed);
            bench.assert_idle();
        }
    }

    /// Goal: a slot used again does not answer to its old name.
    #[test]
    #[should_panic(expected = "a completion is taken once")]
    fn an_old_name_is_refused() {
        let bench = Bench::new(1);
        let old = bench.begin(&[4096]);
        bench.slots.prepare(old);
        bench.slots.attempt(old, Ok(4096));
        drop(bench.take(old));
        let _new = bench.begin(&[4096]);
        let _ = bench.take(old);
    }
}
