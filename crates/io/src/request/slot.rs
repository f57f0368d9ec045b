//! Slot: one request between its owner and its driver, without a lock.
//!
//! ```text
//!   Free ─┬─ begin ──────────────► InFlight ──finish──► Done ──take──► Free     (or Taken, see below)
//!         └─ enqueue ─► Queued ─launch─┘ │
//!                         └─ withdraw ─► Free
//!                                        └─ abandon ─► Abandoned ──finish──► Free
//! ```
//!
//! One word holds generation, attempt, phase and flags; it decides which side may access the body and the waiter:
//!
//! | phase | body belongs to | waiter belongs to |
//! |---|---|---|
//! | Free | the thread that takes the index from the slot table | the same |
//! | Queued | the holder of the slot table's lock | the owner, or with `WAITER` neither until it is taken back |
//! | InFlight | the driver | the owner, or with `WAITER` the side that ends the phase |
//! | Abandoned | the driver | the owner that abandons |
//! | Done | the owner | with `WAITER` the driver, which wakes it |
//! | Taken | neither | the driver, which then frees the slot |
//!
//! With `LENT`, a third thread has the waiter for a moment, to wake it early ([`Slot::take_waiter`]). The flag replaces `WAITER`, so that
//! the driver wakes no task; the owner lets that thread finish before it touches the waiter or leaves the slot.
//!
//! Taken exists because the driver reads the waiter after it published Done: an owner that comes in between must not
//! free the slot yet, so whichever of the two is last does.
//!
//! Owns: the phases and their transitions, one function each.
//! Does not own: what a request is; which slots are free (the slot table).
//! Invariants: I4 while a request is in flight or abandoned its body is the driver's alone; I5 no transition
//! allocates, and only the owner waits, while the waiter is lent.
//! Hot path: one atomic read-modify-write for a request without a registered waiter.

use std::mem::MaybeUninit;

use crate::sync::{AtomicU64, Ordering, UnsafeCell, thread};

/// `A` is a request under way and then its outcome, `W` the waiter to wake.
pub(crate) struct Slot<A, W> {
    word: AtomicU64,
    /// There is a request in it in every phase but Free and Taken. It is moved in and out only by the owner, so that
    /// finishing costs nothing but the word.
    body: UnsafeCell<MaybeUninit<A>>,
    waiter: UnsafeCell<Option<W>>,
}

// SAFETY: body and waiter are entered only as the table above allows, and the word orders one's last access before the
// other's first.
unsafe impl<A: Send, W: Send> Sync for Slot<A, W> {}
// SAFETY: owns its contents.
unsafe impl<A: Send, W: Send> Send for Slot<A, W> {}

/// What [`Slot::take`] found.
pub(crate) enum Taken<D> {
    /// Not done yet.
    NotYet,
    /// The result. With `vacated` the index goes back to the slot table, else the driver sees to that.
    Result { done: D, vacated: bool },
}

/// What [`Slot::abandon`] found.
pub(crate) enum Abandoned<D, W> {
    /// The driver is at it and will free the slot.
    UnderWay(Option<W>),
    /// It was done: as [`Taken::Result`].
    Done { done: D, vacated: bool },
}

impl<A, W> Slot<A, W> {
    pub(crate) fn new() -> Slot<A, W> {
        Slot {
            word: AtomicU64::new(FREE),
            body: UnsafeCell::new(MaybeUninit::uninit()),
            waiter: UnsafeCell::new(None),
        }
    }

    /// How often the slot was used before.
    pub(crate) fn generation(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> GENERATION_SHIFT) as u32
    }

    pub(crate) fn is_done(&self) -> bool {
        phase(self.word.load(Ordering::Acquire)) == DONE
    }

    /// The generation, if a request is not done and has a waiter.
    pub(crate) fn waited_for(&self) -> Option<u32> {
        let word = self.word.load(Ordering::Relaxed);
        let is_waited_for = word & WAITER != 0 && matches!(phase(word), QUEUED | IN_FLIGHT);
        is_waited_for.then_some((word >> GENERATION_SHIFT) as u32)
    }

    /// The generation, if a driver works on a request that was cancelled.
    pub(crate) fn cancelled_in_flight(&self) -> Option<u32> {
        let word = self.word.load(Ordering::Acquire);
        let is_cancelled = word & CANCELLED != 0 && matches!(phase(word), IN_FLIGHT | ABANDONED);
        is_cancelled.then_some((word >> GENERATION_SHIFT) as u32)
    }

    pub(crate) fn is_queued(&self) -> bool {
        phase(self.word.load(Ordering::Acquire)) == QUEUED
    }

    /// Free -> InFlight.
    ///
    /// # Safety
    /// The caller has taken this slot from the slot table; `write` initialises the body.
    #[inline]
    pub(crate) unsafe fn begin(&self, write: impl FnOnce(&mut MaybeUninit<A>)) {
        // SAFETY: as the caller promises.
        unsafe { self.occupy(write, IN_FLIGHT) }
    }

    /// Free -> Queued.
    ///
    /// # Safety
    /// The caller has taken this slot from the slot table, and holds the slot table's lock until the slot is in its queue; `write`
    /// initialises the body.
    pub(crate) unsafe fn enqueue(&self, write: impl FnOnce(&mut MaybeUninit<A>)) {
        // SAFETY: as the caller promises.
        unsafe { self.occupy(write, QUEUED) }
    }

    #[inline]
    unsafe fn occupy(&self, write: impl FnOnce(&mut MaybeUninit<A>), to: u64) {
        let word = self.word.load(Ordering::Relaxed);
        assert_eq!(word & FLAGS, FREE, "a slot in the slot table is free");
        // SAFETY: the body of a free slot belongs to who took it from the slot table.
        self.body.with_mut(|body| write(unsafe { &mut *body }));
        self.word.store(word | to, Ordering::Release);
    }

    /// Queued -> InFlight.
    ///
    /// # Safety
    /// The caller has taken the slot from the queue and still holds the slot table's lock.
    pub(crate) unsafe fn launch(&self) {
        // The owner may be changing the waiter flag, so only the phase bits are turned.
        let before = self.word.fetch_xor(QUEUED ^ IN_FLIGHT, Ordering::AcqRel);
        assert_eq!(phase(before), QUEUED, "only what is queued is launched");
    }

    /// Queued -> Free: returns the request and its waiter.
    ///
    /// # Safety
    /// The caller is the owner, has taken the slot from the queue and holds the slot table's lock.
    pub(crate) unsafe fn withdraw(&self) -> (A, Option<W>) {
        self.change_waiter_flag(WAITER, 0);
        let word = self.word.load(Ordering::Acquire);
        assert_eq!(phase(word), QUEUED, "only what is queued is withdrawn");
        // SAFETY: out of the queue no driver knows the slot, and the caller is its owner.
        unsafe {
            let waiter = self.waiter.with_mut(|waiter| (*waiter).take());
            let active = self.take_body();
            self.vacate(word);
            (active, waiter)
        }
    }

    /// The request in flight, for its driver.
    ///
    /// # Safety
    /// The caller is the driver of this request, or it has no driver yet; no other call of this is under way.
    pub(crate) unsafe fn with_active<R>(&self, enter: impl FnOnce(&mut A) -> R) -> R {
        // SAFETY: the body of a slot in flight or abandoned belongs to the driver.
        self.body.with_mut(|body| enter(unsafe { (*body).assume_init_mut() }))
    }

    /// InFlight -> Done, or Abandoned -> Free. Passes the waiter to `notify`, or the abandoned request to `orphan`.
    /// Returns whether the slot is free again, so that its index goes back to the slot table.
    ///
    /// # Safety
    /// The caller is the driver of this request and does not touch it afterwards.
    #[inline]
    pub(crate) unsafe fn finish(&self, notify: impl FnOnce(W), orphan: impl FnOnce(A)) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        while phase(word) == IN_FLIGHT {
            let to = word ^ (IN_FLIGHT ^ DONE);
            match self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if word & WAITER == 0 => return false,
                // SAFETY: Done with `WAITER` leaves the waiter to the driver.
                Ok(_) => return unsafe { self.notify_waiter(notify) },
                Err(now) => word = now,
            }
        }
        assert_eq!(phase(word), ABANDONED, "a request is finished once");
        // SAFETY: nobody but the driver knows an abandoned slot.
        orphan(unsafe { self.take_body() });
        self.vacate(word);
        true
    }

    /// # Safety
    /// The caller is the driver, and the phase Done or Taken with `WAITER`.
    unsafe fn notify_waiter(&self, notify: impl FnOnce(W)) -> bool {
        // SAFETY: as the caller promises.
        let waiter = self.waiter.with_mut(|waiter| unsafe { (*waiter).take() });
        notify(waiter.expect("the flag says so"));
        let before = self.word.fetch_and(!WAITER, Ordering::AcqRel);
        let vacated = phase(before) == TAKEN;
        if vacated {
            self.vacate(before);
        }
        vacated
    }

    /// Done -> Free, or Done -> Taken while the driver still wakes the waiter.
    ///
    /// # Safety
    /// The caller is the owner, and no longer is when this gives the result; `read` moves all out of the body.
    #[inline]
    pub(crate) unsafe fn take<D>(&self, read: impl FnOnce(&mut MaybeUninit<A>) -> D) -> Taken<D> {
        if !self.is_done() {
            return Taken::NotYet;
        }
        // SAFETY: as the caller promises.
        unsafe {
            let done = self.read_done(read);
            let vacated = self.leave();
            Taken::Result { done, vacated }
        }
    }

    /// The first half of [`Slot::take`], for a slot that is done; [`Slot::leave`] follows.
    ///
    /// # Safety
    /// As for [`Slot::take`].
    #[inline]
    pub(crate) unsafe fn read_done<D>(&self, read: impl FnOnce(&mut MaybeUninit<A>) -> D) -> D {
        assert!(self.is_done(), "only what is done is taken");
        // SAFETY: the body of a slot that is done belongs to the owner.
        self.body.with_mut(|body| read(unsafe { &mut *body }))
    }

    /// The second half: whether the index goes back to the slot table, or the driver sees to that.
    ///
    /// # Safety
    /// [`Slot::read_done`] came before, once.
    #[inline]
    pub(crate) unsafe fn leave(&self) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        if word & LENT != 0 {
            word = self.returned();
        }
        let to = word ^ (DONE ^ TAKEN);
        if word & WAITER != 0
            && self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            return false;
        }
        self.vacate(word);
        true
    }

    /// Registers a waiter. `update` changes the one that is there, if any. False when the request is done
    /// and no waiter will be woken.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(crate) unsafe fn register(&self, update: impl FnOnce(&mut Option<W>) -> Option<W>) -> bool {
        if self.change_waiter_flag(WAITER, 0) == DONE {
            return false;
        }
        // SAFETY: without the flag the waiter is the owner's, in every phase that it can be in.
        let replaced = self.waiter.with_mut(|waiter| update(unsafe { &mut *waiter }));
        let registered = self.change_waiter_flag(0, WAITER) != DONE;
        if !registered {
            // SAFETY: as above, the flag is not set.
            drop(self.waiter.with_mut(|waiter| unsafe { (*waiter).take() }));
        }
        // Dropping a waker may drop a task, and with it other completions.
        drop(replaced);
        registered
    }

    /// Takes the waiter of a request that is not done, for the caller to wake: its owner then registers again. For any thread and any
    /// slot, at any moment.
    #[cold]
    pub(crate) fn take_waiter(&self) -> Option<W> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & WAITER == 0 || !matches!(phase(word), QUEUED | IN_FLIGHT) {
                return None;
            }
            let to = word ^ (WAITER ^ LENT);
            match self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        // SAFETY: `WAITER` kept the owner from the waiter, and `LENT` does so now; the driver touches it only with `WAITER`.
        let waiter = self.waiter.with_mut(|waiter| unsafe { (*waiter).take() });
        self.word.fetch_and(!LENT, Ordering::Release);
        waiter
    }

    /// The word once the waiter is no longer lent.
    #[cold]
    fn returned(&self) -> u64 {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & LENT == 0 {
                return word;
            }
            // The other thread moves a waiter, but may have lost its processor meanwhile.
            thread::yield_now();
        }
    }

    /// Flips the flag unless the request is done; returns the phase.
    fn change_waiter_flag(&self, clear: u64, set: u64) -> u64 {
        let mut word = self.word.load(Ordering::Acquire);
        while phase(word) != DONE {
            if word & LENT != 0 {
                word = self.returned();
                continue;
            }
            let to = word & !clear | set;
            if to == word {
                break;
            }
            match self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        phase(word)
    }

    /// InFlight -> Abandoned, or as [`Slot::take`] when it is done.
    ///
    /// # Safety
    /// The caller is the owner, no longer is afterwards, and the slot is not queued.
    pub(crate) unsafe fn abandon(&self) -> Abandoned<A, W> {
        let mut waiter = None;
        if self.change_waiter_flag(WAITER, 0) != DONE {
            // SAFETY: without the flag the waiter is the owner's. It is taken now, because an abandoned slot may be
            // somebody else's at once.
            waiter = self.waiter.with_mut(|waiter| unsafe { (*waiter).take() });
            let mut word = self.word.load(Ordering::Acquire);
            while phase(word) == IN_FLIGHT {
                let to = word ^ (IN_FLIGHT ^ ABANDONED);
                match self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return Abandoned::UnderWay(waiter),
                    Err(now) => word = now,
                }
            }
        }
        drop(waiter);
        // SAFETY: as the caller promises.
        match unsafe { self.take(|body| body.assume_init_read()) } {
            Taken::Result { done, vacated } => Abandoned::Done { done, vacated },
            Taken::NotYet => unreachable!("the owner finds its request in flight or done"),
        }
    }

    /// Moves the body out.
    ///
    /// # Safety
    /// The body is the caller's and there; the phase changes to one where it is not.
    #[inline]
    unsafe fn take_body(&self) -> A {
        // SAFETY: as the caller promises.
        self.body.with_mut(|body| unsafe { (*body).assume_init_read() })
    }

    /// Which attempt the request is at, counted from 0 modulo [`ATTEMPTS`].
    pub(crate) fn attempt(&self) -> u32 {
        attempt(self.word.load(Ordering::Relaxed))
    }

    /// The attempt is over, and another one follows.
    ///
    /// # Safety
    /// The caller is the driver of this request.
    #[cold]
    pub(crate) unsafe fn next_attempt(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            // The owner may be changing flags and phase, so only these bits are replaced.
            let next = u64::from((attempt(word) + 1) % ATTEMPTS);
            let to = word & !ATTEMPT | next << ATTEMPT_SHIFT;
            match self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Whether a driver is at this attempt of this use of the slot.
    #[inline]
    pub(crate) fn is_at(&self, generation: u32, attempt: u32) -> bool {
        let at = u64::from(generation) << GENERATION_SHIFT | u64::from(attempt) << ATTEMPT_SHIFT;
        let word = self.word.load(Ordering::Acquire) & !(WAITER | CANCELLED | LENT);
        word == at | IN_FLIGHT || word == at | ABANDONED
    }

    /// Notes that the request may end without the device's answer.
    pub(crate) fn set_cancelled(&self) {
        self.word.fetch_or(CANCELLED, Ordering::AcqRel);
    }

    /// Whether the request may end early: it was abandoned, or its owner asked for that.
    pub(crate) fn may_end_early(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        phase(word) == ABANDONED || word & CANCELLED != 0
    }

    /// Whether its owner asked for an early end.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.word.load(Ordering::Acquire) & CANCELLED != 0
    }

    /// Makes the slot free for its next use. Only the caller has its index.
    fn vacate(&self, word: u64) {
        let generation = (word >> GENERATION_SHIFT).wrapping_add(1);
        self.word.store(generation << GENERATION_SHIFT | FREE, Ordering::Release);
    }
}

fn phase(word: u64) -> u64 {
    word & PHASE
}

fn attempt(word: u64) -> u32 {
    ((word & ATTEMPT) >> ATTEMPT_SHIFT) as u32
}

const PHASE: u64 = 0b111;
const FREE: u64 = 0;
const QUEUED: u64 = 1;
const IN_FLIGHT: u64 = 2;
const ABANDONED: u64 = 3;
const DONE: u64 = 4;
const TAKEN: u64 = 5;

/// A waiter is registered.
const WAITER: u64 = 1 << 3;

/// The owner asked for an early end.
const CANCELLED: u64 = 1 << 4;

/// Counts attempts. A completion tells which it belongs to, beside the slot (20 bits) and its generation (32).
pub(crate) const ATTEMPTS: u32 = 1 << 12;
const ATTEMPT_SHIFT: u32 = 5;
const ATTEMPT: u64 = (ATTEMPTS as u64 - 1) << ATTEMPT_SHIFT;

/// A third thread has the waiter.
const LENT: u64 = 1 << 17;

const FLAGS: u64 = PHASE | WAITER | CANCELLED | LENT | ATTEMPT;
const _: () = assert!(LENT & ATTEMPT == 0 && LENT < 1 << GENERATION_SHIFT);

const GENERATION_SHIFT: u32 = 32;

#[cfg(all(test, headwater_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::*;

    /// A request that notices when it is dropped twice or not at all.
    struct Token(Arc<AtomicU32>);

    impl Drop for Token {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn put(token: Token) -> impl FnOnce(&mut MaybeUninit<Token>) {
        |body| _ = body.write(token)
    }

    type TestSlot = Slot<Token, Arc<AtomicU32>>;

    struct Model {
        slot: Arc<TestSlot>,
        drops: Arc<AtomicU32>,
        wakes: Arc<AtomicU32>,
        vacated: Arc<AtomicU32>,
    }

    impl Model {
        fn in_flight() -> Model {
            let drops = Arc::new(AtomicU32::new(0));
            let slot = Arc::new(TestSlot::new());
            // SAFETY: nobody else knows the slot yet.
            unsafe { slot.begin(put(Token(drops.clone()))) };
            Model { slot, drops, wakes: Arc::new(AtomicU32::new(0)), vacated: Arc::new(AtomicU32::new(0)) }
        }

        /// The driver's part in a thread of its own.
        fn driver(&self) -> thread::JoinHandle<()> {
            let (slot, vacated) = (self.slot.clone(), self.vacated.clone());
            thread::spawn(move || {
                let mut waiting = None;
                // SAFETY: this thread is the driver.
                if unsafe { slot.finish(|waiter| waiting = Some(waiter), drop) } {
                    vacated.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(wakes) = waiting {
                    wakes.fetch_add(1, Ordering::Release);
                }
            })
        }

        fn register(&self) -> bool {
            let wakes = self.wakes.clone();
            // SAFETY: the model's thread is the owner.
            unsafe { self.slot.register(|place| place.replace(wakes)) }
        }

        fn take(&self) -> bool {
            // SAFETY: as above.
            match unsafe { self.slot.take(|body| body.assume_init_read()) } {
                Taken::NotYet => false,
                Taken::Result { done, vacated } => {
                    drop(done);
                    if vacated {
                        self.vacated.fetch_add(1, Ordering::Relaxed);
                    }
                    true
                }
            }
        }

        /// Whichever side was last, the slot was freed once, is free, and the request was dropped once.
        fn check(&self) {
            assert_eq!(self.vacated.load(Ordering::Relaxed), 1);
            assert_eq!(self.drops.load(Ordering::Relaxed), 1);
            assert_eq!(self.slot.generation(), 1);
            // SAFETY: it was vacated, and all other threads are gone.
            unsafe {
                self.slot.begin(put(Token(self.drops.clone())));
                assert!(!self.slot.finish(|_| unreachable!("nobody waits"), drop));
            }
            assert!(self.take());
        }
    }

    /// Goal: an owner that registers, once or again, and takes gets the result exactly once, and is told if it was registered while
    /// the request was under way, whether it has looked since or not.
    #[test]
    fn loom_register_and_take_against_finish() {
        for times in [1, 2] {
            loom::model(move || {
                let model = Model::in_flight();
                let driver = model.driver();
                let registered = (0..times).all(|_| model.register());
                let taken = model.take();
                driver.join().unwrap();
                assert!(!registered || model.wakes.load(Ordering::Acquire) == 1, "a wake-up was lost");
                assert!(taken || model.take());
                model.check();
            });
        }
    }

    /// Goal: a waiter that a third thread wakes early is woken once at the least, by that thread or the driver, whatever its owner
    /// does meanwhile; nothing touches the waiter of the slot's next use. Method: the owner looks, registers again, takes or abandons.
    #[test]
    fn loom_take_waiter_against_all() {
        for abandons in [false, true] {
            let mut builder = loom::model::Builder::new();
            // Three threads: without a bound, some minutes.
            builder.preemption_bound = Some(3);
            builder.check(move || {
                let model = Model::in_flight();
                let (driver, slot) = (model.driver(), model.slot.clone());
                let early = thread::spawn(move || {
                    if let Some(wakes) = slot.take_waiter() {
                        wakes.fetch_add(1, Ordering::Release);
                    }
                });
                let registered = model.register();
                if abandons {
                    // SAFETY: the model's thread is the owner, and done with it.
                    if let Abandoned::Done { done, vacated } = unsafe { model.slot.abandon() } {
                        drop(done);
                        if vacated {
                            model.vacated.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                let taken = !abandons && model.take();
                driver.join().unwrap();
                early.join().unwrap();
                if !abandons {
                    assert!(!registered || model.wakes.load(Ordering::Acquire) == 1, "a wake-up was lost");
                    assert!(taken || model.take());
                }
                model.check();
            });
        }
    }

    /// Goal: an owner that abandons a request with and without a waiter leaves nothing behind, whenever the driver
    /// comes.
    #[test]
    fn loom_abandon_against_finish() {
        for registers in [false, true] {
            loom::model(move || {
                let model = Model::in_flight();
                let driver = model.driver();
                if registers {
                    model.register();
                }
                // SAFETY: the model's thread is the owner, and done with it.
                if let Abandoned::Done { done, vacated } = unsafe { model.slot.abandon() } {
                    drop(done);
                    if vacated {
                        model.vacated.fetch_add(1, Ordering::Relaxed);
                    }
                }
                driver.join().unwrap();
                model.check();
            });
        }
    }

    /// Goal: an owner that registers while its queued request is launched and finished misses nothing.
    #[test]
    fn loom_register_against_launch_and_finish() {
        loom::model(|| {
            let model = Model::in_flight();
            // SAFETY: the slot is the model's alone; it is emptied and queued anew.
            unsafe {
                assert!(!model.slot.finish(|_| unreachable!(), drop));
                assert!(model.take());
                model.slot.enqueue(put(Token(model.drops.clone())));
            }
            let slot = model.slot.clone();
            let launcher = thread::spawn(move || {
                let mut waiting = None;
                // SAFETY: this thread plays the slot table and then the driver.
                unsafe {
                    slot.launch();
                    slot.finish(|waiter| waiting = Some(waiter), drop);
                }
                waiting
            });
            let registered = model.register();
            let taken = model.take();
            let waiter = launcher.join().unwrap();
            assert!(!registered || taken || waiter.is_some(), "a wake-up was lost");
            assert!(taken || model.take());
            assert_eq!(model.drops.load(Ordering::Relaxed), 2);
        });
    }
}
