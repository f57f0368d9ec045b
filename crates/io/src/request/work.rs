//! Work: the steps of a call, with what its caller has given each of them, until all are done.
//!
//! ```text
//!   Step: given (descriptor, buffer) ◄── action points into it
//!   prepare ─► Attempt ─► (kernel) ─► record ─┬─ short, interrupted ─────────────► the step again
//!                                             ├─ done, and another step follows ─► that one
//!                                             └─ done or failed ─────────────────► Finished; later steps: ECANCELED
//! ```
//!
//! Owns: what was given, boxed: it stays where it is, untouched, from the first attempt of a step to the end of the last. Progress and
//! result of each step. The memory of ended works, by thread.
//! Does not own: how an attempt is carried out (backends); the slot that the work lies in.
//! Invariants: I4 an action points only into what its own step was given, which leaves the step only when no attempt is under way;
//! I5 recording allocates nothing.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use headwater_core::limits::Limits;
use headwater_core::units::PAGE_BYTES;
use io_uring::squeue;
use smallvec::SmallVec;

use crate::request::attempt::{Attempt, Segments, SyncAttempt, TransferAttempt, Verdict, build_segments};
use crate::request::attributes::Attributes;
use crate::request::slot_table::TOGETHER;
use crate::system::calls::SystemCall;
use crate::system::sys::{self, Direction, IoSegment, SyncScope};

/// One step, or several that are carried out in order.
pub struct Work {
    steps: Steps,
    /// The step under way.
    at: usize,
    /// Dropped when the work is done.
    kept: Vec<Box<dyn Send>>,
}

// SAFETY: what was given, and what is kept, is reached by `&mut` and by value alone; a shared reference shows numbers.
unsafe impl Sync for Work {}

/// Mostly one.
pub(crate) type Steps = SmallVec<[Step; 1]>;

/// One system call, from its submission to its result.
pub struct Step {
    action: Action,
    /// `None` once the caller has it back.
    given: Option<Given>,
    /// What the action points into beside what was given: paths, places for answers.
    _places: Option<Given>,
    /// To be closed, or opened.
    descriptor: Option<OwnedFd>,
    /// It waits, and was cancelled before the kernel got it.
    is_skipped: bool,
    done_bytes: usize,
    /// Attempts since the last byte moved.
    fruitless_attempts: u32,
    pub(crate) result: io::Result<usize>,
    /// The error behind the bytes that were moved.
    pub(crate) stopped_by: Option<io::Error>,
}

/// What the kernel is asked for.
pub(crate) enum Action {
    /// Nothing: the arguments cannot be passed on.
    Refused(io::ErrorKind),
    /// Only the way there and back.
    Nop,
    /// Moves bytes.
    Move(Move),
    /// Makes written data durable.
    Sync { descriptor: RawFd, scope: SyncScope },
    /// Anything else that a thread can do as well.
    Call(SystemCall),
    /// Anything that a ring can do.
    Raw(Box<squeue::Entry>),
}

/// Bytes between a file and memory.
pub(crate) struct Move {
    pub(crate) direction: Direction,
    pub(crate) descriptor: RawFd,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: usize,
    pub(crate) pieces: Pieces,
}

/// The memory of a [`Move`].
pub(crate) enum Pieces {
    One(IoSegment),
    Many(Box<[IoSegment]>),
}

impl Work {
    /// The memory comes first, and `make` writes into it: a step that exists before its place is known is made elsewhere and copied.
    #[inline(always)]
    pub(crate) fn of(make: impl FnOnce() -> Step) -> Box<Work> {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let place = spare.unwrap_or_else(Box::new_uninit);
        Box::write(place, Work { steps: SmallVec::from_buf([make()]), at: 0, kept: Vec::new() })
    }

    /// What the caller does not have back is dropped; the memory is kept for this thread's next call.
    #[inline]
    pub(crate) fn end(self: Box<Work>) {
        let work = Box::into_raw(self);
        // SAFETY: leaked just now. The work is dropped once, here, and its memory goes on without it.
        let place = unsafe {
            work.drop_in_place();
            Box::from_raw(work.cast::<MaybeUninit<Work>>())
        };
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(place);
            }
        });
    }

    /// These follow.
    pub(crate) fn append(&mut self, next: Work) {
        self.steps.extend(next.steps);
        self.kept.extend(next.kept);
    }

    /// Keeps this as well.
    pub(crate) fn keep(&mut self, kept: Box<dyn Send>) {
        self.kept.push(kept);
    }

    /// What is asked for, in order.
    pub(crate) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.steps.iter().map(|step| &step.action)
    }

    /// Whether it ends when no caller waits for it any more: it may last for ever, or changes nothing.
    pub(crate) fn ends_with_its_caller(&self) -> bool {
        self.actions().any(Action::is_wait) || !self.changes()
    }

    /// The steps, for their results.
    pub(crate) fn ended_steps(&mut self) -> std::slice::IterMut<'_, Step> {
        self.steps.iter_mut()
    }

    /// The first step was refused, so that none is carried out.
    pub(crate) fn refuse(&mut self, error: io::Error) {
        self.steps[0].result = Err(error);
    }

    /// Segments of an attempt, if they take a list.
    pub(super) fn segments_max(&self) -> usize {
        self.steps.iter().map(Step::segments).max().unwrap_or(0)
    }

    /// Whether an unfinished step changes anything stored.
    fn changes(&self) -> bool {
        self.steps[self.at..].iter().any(|step| step.action.changes())
    }

    pub(super) fn prepare(&mut self, segments: &mut Vec<IoSegment>, is_cancelled: bool) -> Attempt {
        self.steps[self.at].prepare(segments, is_cancelled)
    }

    /// As [`Active::record`](super::active::Active).
    pub(super) fn record(
        &mut self,
        result: io::Result<usize>,
        may_end_early: impl Fn(bool) -> bool,
    ) -> Verdict {
        let ends_early = may_end_early(self.changes());
        let step = &mut self.steps[self.at];
        if step.record(result, ends_early) == Verdict::Again {
            return Verdict::Again;
        }
        if !step.is_complete() || self.at + 1 == self.steps.len() {
            return Verdict::Finished;
        }
        self.at += 1;
        if may_end_early(self.changes()) { Verdict::Finished } else { Verdict::Again }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work(step {} of {})", self.at + 1, self.steps.len())
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").finish_non_exhaustive()
    }
}

impl Step {
    /// Takes over what is `given`, and points into it from then on.
    #[inline]
    pub(crate) fn new<G: Send + 'static>(given: G, act: impl FnOnce(&mut G) -> Action) -> Step {
        let (given, mut place) = Given::new(given);
        // SAFETY: it was boxed just now, and no other pointer to it is used before the step ends: what `act` borrows from it stays
        // borrowed until then, as if for as long as the program runs, which is possible because `G` is 'static.
        let action = act(unsafe { place.as_mut() });
        let cancelled = io::Error::from_raw_os_error(libc::ECANCELED);
        Step {
            action,
            given: Some(given),
            _places: None,
            descriptor: None,
            is_skipped: false,
            done_bytes: 0,
            fruitless_attempts: 0,
            result: Err(cancelled),
            stopped_by: None,
        }
    }

    /// The same for a call that points into more than was given.
    pub(crate) fn with_places<G: Send + 'static, P: Send + 'static>(
        given: G,
        places: P,
        act: impl FnOnce(&mut G, &mut P) -> SystemCall,
    ) -> Step {
        let (places, mut place) = Given::new(places);
        // SAFETY: as in `new`.
        let act = |given: &mut G| Action::Call(act(given, unsafe { place.as_mut() }));
        Step { _places: Some(places), ..Step::new(given, act) }
    }

    /// Closes a descriptor, also if the call is not made.
    pub(crate) fn closing(descriptor: OwnedFd) -> Step {
        let close = SystemCall::Close { descriptor: descriptor.as_raw_fd() };
        Step { descriptor: Some(descriptor), ..Step::new((), |()| Action::Call(close)) }
    }

    /// What was opened.
    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// The answer of `statx(2)`.
    pub(crate) fn attributes(&self) -> Option<Attributes> {
        match (&self.action, &self.result) {
            (Action::Call(SystemCall::Attributes { into, .. }), Ok(_)) => {
                // SAFETY: the call has succeeded, so the answer is there, in the step's own places.
                Some(Attributes::of(unsafe { (*into.as_ptr()).assume_init_ref() }))
            }
            _ => None,
        }
    }

    /// What was given, back again.
    ///
    /// # Panics
    /// If `G` is not what the step was made with, or the caller has it already.
    pub(crate) fn take_given<G: 'static>(&mut self) -> G {
        self.given.take().expect("it is given back once").into_inner()
    }

    fn segments(&self) -> usize {
        match &self.action {
            Action::Move(Move { pieces: Pieces::Many(pieces), .. }) => pieces.len(),
            _ => 0,
        }
    }

    fn prepare(&mut self, segments: &mut Vec<IoSegment>, is_cancelled: bool) -> Attempt {
        if is_cancelled && self.action.is_wait() {
            self.is_skipped = true;
            return Attempt::Nop;
        }
        match &mut self.action {
            Action::Refused(_) | Action::Nop => Attempt::Nop,
            Action::Move(moving) => Attempt::Transfer(TransferAttempt {
                direction: moving.direction,
                descriptor: moving.descriptor,
                segments: moving.segments(self.done_bytes, segments),
                offset_bytes: moving.offset_bytes.saturating_add(self.done_bytes as u64),
                chunk: None,
                // The caller's descriptor may have `O_DIRECT`; a page is a multiple of what any device demands.
                alignment_bytes: PAGE_BYTES,
            }),
            &mut Action::Sync { descriptor, scope } => Attempt::Sync(SyncAttempt { descriptor, scope }),
            Action::Call(call) => {
                // SAFETY: it points into the step's places, and no attempt is under way.
                unsafe { call.begin() };
                Attempt::Call(*call)
            }
            Action::Raw(entry) => Attempt::Raw(entry.clone()),
        }
    }

    /// Whether the step is done, with its result noted, or must be attempted again. `ends_early`: no caller wants the rest.
    fn record(&mut self, result: io::Result<usize>, ends_early: bool) -> Verdict {
        if self.is_skipped {
            return self.finish(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
        }
        match self.action {
            Action::Refused(kind) => self.finish(Err(kind.into())),
            Action::Move(_) => self.record_move(result, ends_early),
            Action::Sync { .. } => match result {
                Err(error) if self.is_to_repeat(&error, ends_early) => Verdict::Again,
                result => self.finish(result),
            },
            Action::Call(call) => self.record_call(call, result, ends_early),
            Action::Nop | Action::Raw(_) => self.finish(result),
        }
    }

    /// Only an attempt that was not made is repeated: the thread that submitted it ended, or a signal came before it began.
    fn record_call(&mut self, call: SystemCall, result: io::Result<usize>, ends_early: bool) -> Verdict {
        let error_number = result.as_ref().err().and_then(io::Error::raw_os_error);
        match (call, error_number) {
            (SystemCall::Timeout { .. }, Some(libc::ETIME)) => return self.finish(Ok(0)),
            // The number is free whatever the file system reports, and may be another file's by now.
            (SystemCall::Close { .. }, number) if !matches!(number, Some(libc::EBADF | libc::ECANCELED)) => {
                let _ = self.descriptor.take().map(IntoRawFd::into_raw_fd);
            }
            (_, Some(libc::ECANCELED)) if ends_early => {}
            (_, Some(libc::ECANCELED | libc::EINTR)) if self.fruitless_attempts < Limits::RETRIES_MAX => {
                self.fruitless_attempts += 1;
                return Verdict::Again;
            }
            (SystemCall::Open { .. }, None) => {
                let number = result.as_ref().map_or(-1, |&number| number as RawFd);
                // SAFETY: the kernel has opened it for this call.
                self.descriptor = Some(unsafe { OwnedFd::from_raw_fd(number) });
            }
            _ => {}
        }
        self.finish(result)
    }

    fn record_move(&mut self, result: io::Result<usize>, ends_early: bool) -> Verdict {
        let Action::Move(moving) = &self.action else { unreachable!("it moves bytes") };
        match result {
            Ok(moved_bytes) => {
                (self.done_bytes, self.fruitless_attempts) = (self.done_bytes + moved_bytes, 0);
                assert!(self.done_bytes <= moving.length_bytes, "no more is moved than was asked for");
                if self.done_bytes == moving.length_bytes {
                    return self.end_move(None);
                }
                match (moved_bytes, moving.direction) {
                    (0, Direction::Read) => self.end_move(None),
                    (0, Direction::Write) => self.end_move(Some(io::ErrorKind::WriteZero.into())),
                    _ if ends_early => self.end_move(Some(io::Error::from_raw_os_error(libc::ECANCELED))),
                    _ => Verdict::Again,
                }
            }
            Err(error) if self.is_to_repeat(&error, ends_early) => Verdict::Again,
            Err(error) => self.end_move(Some(error)),
        }
    }

    /// Whether the error is none of the device's, and the step not cancelled. Counts it.
    fn is_to_repeat(&mut self, error: &io::Error, ends_early: bool) -> bool {
        let is_cancelled = ends_early && error.raw_os_error() == Some(libc::ECANCELED);
        let repeats =
            sys::is_transient(error) && !is_cancelled && self.fruitless_attempts < Limits::RETRIES_MAX;
        self.fruitless_attempts += u32::from(repeats);
        repeats
    }

    fn end_move(&mut self, error: Option<io::Error>) -> Verdict {
        match error {
            Some(error) if self.done_bytes == 0 => self.finish(Err(error)),
            stopped_by => {
                self.stopped_by = stopped_by;
                self.finish(Ok(self.done_bytes))
            }
        }
    }

    fn finish(&mut self, result: io::Result<usize>) -> Verdict {
        self.result = result;
        Verdict::Finished
    }

    /// Whether all that was asked for is done, so that the next step may follow.
    fn is_complete(&self) -> bool {
        match &self.action {
            Action::Move(moving) => self.result.is_ok() && self.done_bytes == moving.length_bytes,
            _ => self.result.is_ok(),
        }
    }
}

impl Action {
    fn changes(&self) -> bool {
        match self {
            Action::Refused(_) | Action::Nop => false,
            Action::Move(moving) => moving.direction == Direction::Write,
            Action::Call(call) => call.changes(),
            Action::Sync { .. } | Action::Raw(_) => true,
        }
    }

    fn is_wait(&self) -> bool {
        matches!(self, Action::Call(call) if call.is_wait())
    }
}

impl Move {
    /// What is left.
    fn segments(&self, done_bytes: usize, segments: &mut Vec<IoSegment>) -> Segments {
        match &self.pieces {
            Pieces::One(piece) => Segments::One(piece.behind(done_bytes).shortened_to(ATTEMPT_BYTES_MAX)),
            Pieces::Many(pieces) => {
                let memory = pieces.iter().map(|piece| (piece.start(), piece.length_bytes()));
                build_segments(memory, done_bytes, self.length_bytes, segments);
                Segments::Many(&raw const segments[..])
            }
        }
    }
}

/// Anything, kept on the heap where it does not move.
struct Given(NonNull<dyn Any + Send>);

// SAFETY: owns what is in it, which is `Send`.
unsafe impl Send for Given {}

impl Given {
    /// With a pointer to what was given, which is valid for as long as the result lives.
    #[inline]
    fn new<G: Send + 'static>(given: G) -> (Given, NonNull<G>) {
        let place = NonNull::from(Box::leak(Box::new(given)));
        (Given(place), place)
    }

    /// # Panics
    /// If it is no `G`.
    fn into_inner<G: 'static>(self) -> G {
        let place = self.0;
        std::mem::forget(self);
        // SAFETY: leaked by `new`, and taken back once: `drop` does not run any more.
        let given: Box<dyn Any> = unsafe { Box::from_raw(place.as_ptr()) };
        *given.downcast::<G>().expect("the type of the call says what was given")
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and taken back once, here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

thread_local! {
    /// The memory of ended works. 32 calls at once are more than malloc keeps at hand for a thread: together they took 4.9 us, of which malloc
    /// and free 0.8.
    #[allow(clippy::vec_box)] // The memory stays where it is.
    static SPARE: RefCell<Vec<Box<MaybeUninit<Work>>>> = const { RefCell::new(Vec::new()) };
}

/// As many as are begun together, and begun again while those are looked at.
const SPARE_MAX: usize = 2 * TOGETHER;

/// The kernel moves no more in one call (MAX_RW_COUNT), and an entry of a ring has 32 bits for it.
const ATTEMPT_BYTES_MAX: usize = 0x7fff_f000;
