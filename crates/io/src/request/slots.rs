//! Slots: the requests of one queue, from submission until their results are taken.
//!
//! ```text
//!   begin ─► prepare ─► (kernel) ─► attempt ─┬─ Finished ─► release_places ─► wake_owners ─► take
//!               ▲                            └─ Again ─┐
//!               └──────────────────────────────────────┘
//! ```
//!
//! Owns: the requests, and with each its memory.
//! Does not own: progress within a request (attempt), phases (slot), places and waiting (slot table), how a request reaches
//! the kernel.
//! Invariants: I1, I4 memory leaves a slot only when no attempt is under way.

use std::io;
use std::mem::MaybeUninit;
use std::task::Waker;
use std::thread::{self, Thread};

use crate::memory::arena::Urgency;
use crate::request::active::Active;
use crate::request::attempt::{Attempt, AttemptId, Verdict};
use crate::request::slot_table::{Begun, CompletedBatch, SlotId, SlotIds, SlotTable};
use crate::request::work::Work;
use crate::request::{Finished, Request};
use crate::sync::event;

/// The slots of one queue.
pub(crate) struct Slots {
    table: SlotTable<Active, Waiter>,
}

/// What a driver has finished, whose places and waiters are still to be released and woken.
pub(crate) type Completed = CompletedBatch<Active, Waiter>;

/// The thread or task to wake when a request is done.
pub(crate) enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
    pub(crate) fn wake(self) {
        match self {
            Waiter::Thread(thread) => thread.unpark(),
            Waiter::Task(waker) => event::wake(waker),
        }
    }
}

impl Slots {
    pub(crate) fn new(depth: u32) -> Slots {
        Slots { table: SlotTable::new(depth) }
    }

    /// Requests in flight at most.
    pub(crate) fn depth(&self) -> u32 {
        self.table.depth()
    }

    /// Requests that the driver works on, abandoned ones included.
    pub(crate) fn in_flight(&self) -> usize {
        self.table.in_flight()
    }

    /// Requests that wait for a place in the queue.
    pub(crate) fn queued(&self) -> usize {
        self.table.queued()
    }

    /// See [`SlotTable::hasten`].
    pub(crate) fn hasten(&self, id: SlotId) -> bool {
        self.table.hasten(id)
    }

    /// Slots in use, for gauges.
    pub(crate) fn used(&self) -> usize {
        self.table.used()
    }

    /// Accepts a request, or returns it; see [`SlotTable::begin`].
    #[allow(clippy::result_large_err)] // The request goes back to its owner by value; boxing it would allocate.
    pub(crate) fn begin(&self, mut request: Request, urgency: Urgency) -> Result<Begun, Request> {
        request.check();
        // SAFETY: it writes.
        let begun = unsafe { self.table.begin(urgency, |body| Active::write_into(body, &mut request)) };
        begun.ok_or(request)
    }

    /// Accepts the first of these demands, which were checked, as far as there are places for them. What is accepted is
    /// taken out and a [`Request::Nop`] left.
    #[inline]
    pub(crate) fn begin_together(&self, requests: &mut [Request], ids: &mut SlotIds) {
        let count = requests.len();
        let write = |number: usize, body: &mut MaybeUninit<Active>| {
            Active::write_into(body, &mut requests[number]);
        };
        // SAFETY: it writes.
        unsafe { self.table.begin_together(count, ids, write) }
    }

    /// What the next attempt of a request has to move.
    ///
    /// # Safety
    /// The caller is the driver of this request.
    pub(crate) unsafe fn prepare(&self, id: SlotId) -> Attempt {
        // SAFETY: as the caller promises.
        unsafe {
            let slot = self.table.slot(id);
            slot.with_active(|active| active.prepare(slot.is_cancelled()))
        }
    }

    /// Whether no caller wants the request any more.
    pub(crate) fn may_end_early(&self, id: SlotId) -> bool {
        self.table.slot(id).may_end_early()
    }

    /// Requests in flight that were cancelled.
    pub(crate) fn cancelled(&self) -> Vec<SlotId> {
        self.table.cancelled()
    }

    /// The attempt that a request is at.
    pub(crate) fn attempt_id(&self, id: SlotId) -> AttemptId {
        AttemptId { request: id, number: self.table.slot(id).attempt() }
    }

    /// The same of a request that may be over, and then `None`.
    pub(crate) fn attempt_under_way(&self, id: SlotId) -> Option<AttemptId> {
        let attempt = AttemptId { request: id, number: self.table.find(id.index)?.attempt() };
        self.is_under_way(attempt).then_some(attempt)
    }

    /// Whether the attempt is under way, for any numbers. True at most once
    /// for an attempt whose result is then given to [`Slots::attempt`].
    #[inline]
    pub(crate) fn is_under_way(&self, attempt: AttemptId) -> bool {
        let AttemptId { request: SlotId { index, generation }, number } = attempt;
        self.table.find(index).is_some_and(|slot| slot.is_at(generation, number))
    }

    /// Records the result of an attempt. What is finished is collected in `completed`, until its places are released and its waiters woken.
    ///
    /// # Safety
    /// The caller is the driver of this request, and the attempt is over.
    pub(crate) unsafe fn attempt(
        &self,
        id: SlotId,
        result: io::Result<usize>,
        completed: &mut Completed,
    ) -> Verdict {
        let slot = self.table.slot(id);
        // What is to be stored is stored, although nobody waits for it, unless its owner wanted it stopped.
        let may_end_early = |changes| if changes { slot.is_cancelled() } else { slot.may_end_early() };
        // SAFETY: as the caller promises.
        unsafe {
            let verdict = slot.with_active(|active| active.record(result, may_end_early));
            match verdict {
                Verdict::Finished => self.table.finish(id, completed),
                Verdict::Again => slot.next_attempt(),
            }
            verdict
        }
    }

    /// Releases places; returns the queued requests that got one, which the caller starts.
    pub(crate) fn release_places(&self, completed: &mut Completed) -> SlotIds {
        self.table.release_places(completed)
    }

    /// Wakes the owners, and drops the requests that have none any more. The caller holds no lock: a waker runs user
    /// code, and the last user of a file closes it.
    pub(crate) fn wake_owners(&self, completed: &mut Completed) {
        completed.waiters.drain(..).for_each(Waiter::wake);
        self.table.drop_orphans(completed);
    }

    /// See [`SlotTable::waited_for`].
    pub(crate) fn waited_for(&self, ids: &mut Vec<(u32, u32)>) {
        self.table.waited_for(ids);
    }

    /// Wakes all that wait for requests which are not done; they look again. The caller holds no lock.
    #[cold]
    pub(crate) fn wake_early(&self) {
        self.table.take_waiters().into_iter().for_each(Waiter::wake);
    }

    /// The result; if there is none yet, registers the task, which is woken when there is.
    ///
    /// # Safety
    /// The caller is the owner, and no longer is when this gives the result.
    pub(crate) unsafe fn take_or_wait(&self, id: SlotId, waker: &Waker) -> Option<Finished> {
        // SAFETY: as the caller promises.
        unsafe { self.read_or_wait(id, waker, Active::move_out) }
    }

    /// The same for a call.
    ///
    /// # Safety
    /// As for [`Slots::take_or_wait`].
    pub(crate) unsafe fn take_work_or_wait(&self, id: SlotId, waker: &Waker) -> Option<Box<Work>> {
        // SAFETY: as the caller promises.
        unsafe { self.read_or_wait(id, waker, Active::move_out_work) }
    }

    /// # Safety
    /// As for [`Slots::take_or_wait`]; `read` moves all out of the body.
    unsafe fn read_or_wait<D>(
        &self,
        id: SlotId,
        waker: &Waker,
        read: fn(&mut MaybeUninit<Active>) -> D,
    ) -> Option<D> {
        let slot = self.table.slot(id);
        let keep_or_replace = |place: &mut Option<Waiter>| match place {
            Some(Waiter::Task(known)) if known.will_wake(waker) => None,
            place => place.replace(Waiter::Task(waker.clone())),
        };
        // SAFETY: as the caller promises.
        unsafe {
            match self.table.take(id, read) {
                None if slot.register(keep_or_replace) => None,
                None => self.table.take(id, read),
                finished => finished,
            }
        }
    }

    /// Registers this thread to be woken when the request is done. False when it is done already.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(crate) unsafe fn register_thread(&self, id: SlotId) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.table.slot(id).register(|place| place.replace(Waiter::Thread(thread::current()))) }
    }

    /// The result if the request is done.
    ///
    /// # Safety
    /// The caller is the owner, and no longer is when this gives the result.
    pub(crate) unsafe fn take(&self, id: SlotId) -> Option<Finished> {
        // SAFETY: as the caller promises.
        unsafe { self.table.take(id, Active::move_out) }
    }

    /// The same for a call.
    ///
    /// # Safety
    /// As for [`Slots::take`].
    pub(crate) unsafe fn take_work(&self, id: SlotId) -> Option<Box<Work>> {
        // SAFETY: as the caller promises.
        unsafe { self.table.take(id, Active::move_out_work) }
    }

    /// Several results, all of them done, counted from `place` on; see [`SlotTable::take_together`].
    ///
    /// # Safety
    /// The caller is the owner of all and no longer is afterwards.
    #[inline]
    pub(crate) unsafe fn take_together(
        &self,
        ids: &[SlotId],
        place: usize,
        each: impl FnMut(usize, Finished),
    ) {
        // SAFETY: as the caller promises.
        unsafe { self.table.take_together(ids, place, Active::move_out, each) }
    }

    /// The same for calls.
    ///
    /// # Safety
    /// As for [`Slots::take_together`].
    pub(crate) unsafe fn take_works_together(
        &self,
        ids: &[SlotId],
        place: usize,
        each: impl FnMut(usize, Box<Work>),
    ) {
        // SAFETY: as the caller promises.
        unsafe { self.table.take_together(ids, place, Active::move_out_work, each) }
    }

    /// Whether the request is done and waits to be taken.
    pub(crate) fn is_done(&self, id: SlotId) -> bool {
        self.table.slot(id).is_done()
    }

    /// Notes that the request may end without the device's answer.
    pub(crate) fn set_cancelled(&self, id: SlotId) {
        self.table.slot(id).set_cancelled();
    }

    /// Abandons a request. Returns whether the driver still works on it.
    ///
    /// # Safety
    /// The caller is the owner, and no longer is.
    pub(crate) unsafe fn abandon(&self, id: SlotId) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.table.abandon(id) }
    }

    #[cfg(all(test, not(headwater_loom)))]
    pub(crate) fn check_idle(&self) {
        self.table.check_idle();
    }
}

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use headwater_core::limits::Limits;

    use super::*;
    use crate::file::{Access, DirectIo, OpenFile, Route};
    use crate::memory::arena::{Arena, Extents};
    use crate::request::Transfer;
    use crate::request::attempt::TransferAttempt;
    use crate::system::sys::Direction;

    /// Slots without a driver: the tests play its part, and the owners'.
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
            Request::Transfer(Transfer {
                direction: Direction::Read,
                file: self.file.clone(),
                route: Route::Buffered,
                offset_bytes: 0,
                length_bytes: sizes.iter().sum(),
                extents,
            })
        }

        fn begin(&self, sizes: &[usize]) -> SlotId {
            self.slots.begin(self.request(sizes), Urgency::Demand).unwrap().id
        }

        fn prepare(&self, id: SlotId) -> TransferAttempt {
            // SAFETY: the test is the only driver.
            let attempt = unsafe { self.slots.prepare(id) };
            let Attempt::Transfer(transfer) = attempt else { unreachable!("tests transfer") };
            transfer
        }

        fn attempt(&self, id: SlotId, result: io::Result<usize>) -> (Verdict, Completed) {
            let mut completed = Completed::new();
            // SAFETY: as above.
            let verdict = unsafe { self.slots.attempt(id, result, &mut completed) };
            assert!(self.slots.release_places(&mut completed).is_empty(), "nobody is queued here");
            (verdict, completed)
        }

        fn verdict(&self, id: SlotId, result: io::Result<usize>) -> Verdict {
            self.prepare(id);
            let (verdict, mut completed) = self.attempt(id, result);
            self.slots.wake_owners(&mut completed);
            verdict
        }

        fn abandon(&self, id: SlotId) -> bool {
            // SAFETY: the test is the only owner.
            unsafe { self.slots.abandon(id) }
        }

        /// What the device does with an attempt: one byte value everywhere.
        fn write(&self, attempt: &TransferAttempt, byte: u8) {
            // SAFETY: the attempt is under way, and nobody else touches the memory of its request.
            unsafe {
                for segment in attempt.segments.as_slice() {
                    segment.base().write_bytes(byte, segment.length_bytes());
                }
            }
        }

        fn take(&self, id: SlotId) -> Option<Finished> {
            // SAFETY: the test is the only owner.
            unsafe { self.slots.take_or_wait(id, Waker::noop()) }
        }

        fn assert_idle(&self) {
            self.slots.check_idle();
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
            let attempt = bench.prepare(id);
            assert!(bench.abandon(id), "the I/O is under way");
            assert_eq!((bench.slots.in_flight(), bench.slots.used()), (1, 1));
            bench.write(&attempt, 7);
            let (verdict, mut completed) = bench.attempt(id, Ok(sizes.iter().sum()));
            assert!(verdict == Verdict::Finished && completed.waiters.is_empty());
            assert_eq!(completed.orphans.len(), 1);
            assert_eq!(bench.slots.used(), 1, "its memory is held until it is dropped");
            bench.slots.wake_owners(&mut completed);
            bench.assert_idle();
        }
    }

    /// Goal: the same while the owner asks for the result in between, which writes into the slot.
    #[test]
    fn an_attempt_survives_being_asked_for() {
        let bench = Bench::new(4);
        let id = bench.begin(&[4096, 4096]);
        let attempt = bench.prepare(id);
        assert!(bench.take(id).is_none());
        assert!(!bench.slots.is_done(id));
        bench.write(&attempt, 9);
        let (verdict, mut completed) = bench.attempt(id, Ok(8192));
        assert_eq!((verdict, completed.waiters.len()), (Verdict::Finished, 1));
        completed.waiters.pop().unwrap().wake();
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
            let attempt = bench.prepare(id);
            assert_eq!(attempt.offset_bytes, done_bytes as u64);
            // SAFETY: the attempt is under way.
            let left: usize = unsafe { attempt.segments.as_slice() }.iter().map(|s| s.length_bytes()).sum();
            assert_eq!(left, 12_288 - done_bytes);
            bench.write(&attempt, moved_bytes as u8);
            let again = bench.attempt(id, Ok(moved_bytes)).0 == Verdict::Again;
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
                assert_eq!(bench.verdict(id, error(libc::EINTR)), Verdict::Again);
            }
            assert_eq!(bench.verdict(id, Ok(100)), Verdict::Again);
        }
        assert_eq!(bench.verdict(id, error(libc::EIO)), Verdict::Finished);
        let finished = bench.take(id).unwrap();
        assert_eq!(finished.result.unwrap(), 200);
        assert_eq!(finished.stopped_by.unwrap().raw_os_error(), Some(libc::EIO));
        let id = bench.begin(&[4096]);
        assert_eq!(bench.verdict(id, error(libc::EIO)), Verdict::Finished);
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
            // SAFETY: the test is the only owner.
            assert!(unsafe { bench.slots.take_or_wait(id, &counter.clone().into()) }.is_none());
        }
        bench.prepare(id);
        bench.attempt(id, Ok(4096)).1.waiters.drain(..).for_each(Waiter::wake);
        let woken: Vec<_> = counters.iter().map(|counter| counter.woken.load(Ordering::Relaxed)).collect();
        assert_eq!(woken, [0, 0, 1]);
        assert!(counters.iter().all(|counter| Arc::strong_count(counter) == 1));
        assert!(!bench.abandon(id), "what is done is not under way");
        bench.assert_idle();
    }

    /// Goal: the rest of a short read is not read without need: not after it was abandoned, and not after its owner cancelled it,
    /// whose result then shows why it is short.
    #[test]
    fn reads_that_nobody_wants_end_early() {
        let bench = Bench::new(4);
        let abandoned = bench.begin(&[8192]);
        assert!(bench.abandon(abandoned));
        assert_eq!(bench.verdict(abandoned, Ok(100)), Verdict::Finished);
        let cancelled = bench.begin(&[8192]);
        bench.slots.set_cancelled(cancelled);
        assert_eq!(bench.verdict(cancelled, Ok(100)), Verdict::Finished);
        let finished = bench.take(cancelled).unwrap();
        assert_eq!(finished.result.unwrap(), 100);
        assert_eq!(finished.stopped_by.unwrap().raw_os_error(), Some(libc::ECANCELED));
        drop(finished.extents);
        let unmoved = bench.begin(&[4096]);
        bench.slots.set_cancelled(unmoved);
        let canceled = Err(io::Error::from_raw_os_error(libc::ECANCELED));
        assert_eq!(bench.verdict(unmoved, canceled), Verdict::Finished);
        assert_eq!(bench.take(unmoved).unwrap().result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        bench.assert_idle();
    }

    /// Goal: the rest of a short write is written although no caller waits for it, also when the kernel cancels it because the
    /// thread that submitted it is gone; only its owner ends it early. One that cannot go on says why it is short.
    #[test]
    fn writes_that_nobody_wants_are_carried_out() {
        let bench = Bench::new(4);
        let begin = || {
            let Request::Transfer(read) = bench.request(&[8192]) else { unreachable!("it is a transfer") };
            let write = Transfer { direction: Direction::Write, ..read };
            bench.slots.begin(write.into(), Urgency::Demand).unwrap().id
        };
        let canceled = || Err(io::Error::from_raw_os_error(libc::ECANCELED));
        let abandoned = begin();
        assert!(bench.abandon(abandoned));
        for result in [Ok(100), canceled(), Ok(100)] {
            assert_eq!(bench.verdict(abandoned, result), Verdict::Again);
        }
        assert_eq!(bench.verdict(abandoned, Ok(7992)), Verdict::Finished);
        let cancelled = begin();
        bench.slots.set_cancelled(cancelled);
        assert_eq!(bench.verdict(cancelled, Ok(100)), Verdict::Again);
        assert_eq!(bench.verdict(cancelled, canceled()), Verdict::Finished);
        assert_eq!(bench.take(cancelled).unwrap().result.unwrap(), 100);
        let stuck = begin();
        assert_eq!(bench.verdict(stuck, Ok(100)), Verdict::Again);
        assert_eq!(bench.verdict(stuck, Ok(0)), Verdict::Finished);
        let finished = bench.take(stuck).unwrap();
        assert_eq!(finished.result.unwrap(), 100);
        assert_eq!(finished.stopped_by.unwrap().kind(), io::ErrorKind::WriteZero);
        drop(finished.extents);
        bench.assert_idle();
    }

    /// Goal: a slot used again does not answer to its old name. Method: an assertion of debug builds.
    #[cfg(debug_assertions)]
    #[test]
    fn an_old_name_is_refused() {
        let bench = Bench::new(1);
        let old = bench.begin(&[4096]);
        assert_eq!(bench.verdict(old, Ok(4096)), Verdict::Finished);
        drop(bench.take(old));
        let new = bench.begin(&[4096]);
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.take(old))).unwrap_err();
        let text = refused.downcast_ref::<String>().unwrap();
        assert!(text.contains("a slot is used by who owns it now"), "{text}");
        assert_eq!(bench.verdict(new, Ok(4096)), Verdict::Finished);
        drop(bench.take(new));
        bench.assert_idle();
    }
}
