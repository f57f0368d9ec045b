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
//! result of each step.
//! Does not own: how an attempt is carried out (backends); the slot that the work lies in.
//! Invariants: I4 an action points only into what its own step was given, which leaves the step only when no attempt is under way;
//! I5 recording allocates nothing.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use headwater_core::limits::Limits;
use headwater_core::units::PAGE_BYTES;
use smallvec::SmallVec;

use crate::request::attempt::{Attempt, Segments, TransferAttempt, Verdict, build_segments};
use crate::system::sys::{self, Direction, IoSegment};

/// One step, or several that are carried out in order.
pub struct Work {
    steps: Steps,
    /// The step under way.
    at: usize,
}

/// Mostly one.
pub(crate) type Steps = SmallVec<[Step; 1]>;

/// One system call, from its submission to its result.
pub struct Step {
    action: Action,
    given: Given,
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
    /// Moves bytes.
    Move(Move),
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
    pub(crate) fn of(step: Step) -> Box<Work> {
        Box::new(Work { steps: SmallVec::from_buf([step]), at: 0 })
    }

    pub(crate) fn into_steps(self) -> Steps {
        self.steps
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

    pub(super) fn prepare(&mut self, segments: &mut Vec<IoSegment>) -> Attempt {
        self.steps[self.at].prepare(segments)
    }

    /// As [`Active::record`](super::attempt::Active).
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

impl Step {
    /// Takes over what is `given`, and points into it from then on.
    pub(crate) fn new<G: Send + 'static>(given: G, act: impl FnOnce(&mut G) -> Action) -> Step {
        let (given, mut place) = Given::new(given);
        // SAFETY: it was boxed just now, and no other pointer to it is used before the step ends: what `act` borrows from it stays
        // borrowed until then, as if for as long as the program runs, which is possible because `G` is 'static.
        let action = act(unsafe { place.as_mut() });
        let cancelled = io::Error::from_raw_os_error(libc::ECANCELED);
        Step { action, given, done_bytes: 0, fruitless_attempts: 0, result: Err(cancelled), stopped_by: None }
    }

    /// What was given, back again.
    ///
    /// # Panics
    /// If `G` is not what the step was made with.
    pub(crate) fn into_given<G: 'static>(self) -> G {
        self.given.into_inner()
    }

    fn segments(&self) -> usize {
        match &self.action {
            Action::Move(Move { pieces: Pieces::Many(pieces), .. }) => pieces.len(),
            Action::Move(_) | Action::Refused(_) => 0,
        }
    }

    fn prepare(&mut self, segments: &mut Vec<IoSegment>) -> Attempt {
        match &self.action {
            Action::Refused(_) => Attempt::Nop,
            Action::Move(moving) => Attempt::Transfer(TransferAttempt {
                direction: moving.direction,
                descriptor: moving.descriptor,
                segments: moving.segments(self.done_bytes, segments),
                offset_bytes: moving.offset_bytes.saturating_add(self.done_bytes as u64),
                chunk: None,
                // The caller's descriptor may have `O_DIRECT`; a page is a multiple of what any device demands.
                alignment_bytes: PAGE_BYTES,
            }),
        }
    }

    /// Whether the step is done, with its result noted, or must be attempted again. `ends_early`: no caller wants the rest.
    fn record(&mut self, result: io::Result<usize>, ends_early: bool) -> Verdict {
        match &self.action {
            &Action::Refused(kind) => self.finish(Err(kind.into())),
            Action::Move(_) => self.record_move(result, ends_early),
        }
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
        match (&self.result, &self.action) {
            (Ok(_), Action::Move(moving)) => self.done_bytes == moving.length_bytes,
            (result, Action::Refused(_)) => result.is_ok(),
            (Err(_), _) => false,
        }
    }
}

impl Action {
    fn changes(&self) -> bool {
        match self {
            Action::Refused(_) => false,
            Action::Move(moving) => moving.direction == Direction::Write,
        }
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

/// The kernel moves no more in one call (MAX_RW_COUNT), and an entry of a ring has 32 bits for it.
const ATTEMPT_BYTES_MAX: usize = 0x7fff_f000;
