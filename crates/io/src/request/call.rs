//! Call: a system call to be made by a driver, with the caller's own descriptor and buffers.
//!
//! ```text
//!   Call::pwritev(descriptor, buffers, offset) ─► Driver::call ─► Calling ─► Returned { result, given: (descriptor, buffers) }
//! ```
//!
//! Owns: the arguments of each call, what is given back with its result.
//! Does not own: the call's progress (work), its submission (driver).
//! Invariants: I1 what a caller gives is moved into the call, and comes back only when the kernel is done with it.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use crate::request::work::{Action, Move, Pieces, Step, Work};
use crate::system::sys::{Direction, IO_SEGMENTS_MAX, IoSegment};

/// A system call to be made by [`Driver::call`](crate::Driver::call), with whatever descriptor and buffers the caller has.
///
/// Both are *moved* into the call and come back with its result, as [`Returned::given`]. A descriptor is anything that owns or shares
/// one for as long as it lives (`OwnedFd`, `File`, `Arc<File>`, a `BorrowedFd<'static>`); a buffer to read into is anything that gives
/// access to its bytes (`Vec<u8>`, `Box<[u8]>`, `BytesMut`, `[u8; 512]`), a buffer to write from can also be shared (`Arc<[u8]>`,
/// `Bytes`, `&'static str`). No trait has to be implemented, and there is nothing to promise: the call keeps what it was given on the
/// heap, where it neither moves nor is looked at before the kernel is done. So whatever becomes of the future, the thread or the
/// process that waits for it, the memory stays valid, and the descriptor open.
///
/// Positions are those of `pread(2)`. A file that has none, such as a pipe, answers `ESPIPE` on the drivers `threads` and `sim`; a ring
/// transfers as `read(2)` would, and waits for bytes, or for room, as long as that takes: see [`Call::poll`]. Bytes that are read go to `buffer[..]`
/// as it is (`vec![0; length]`), not to what a `Vec` has room for.
///
/// ```
/// use std::{fs::File, sync::Arc};
/// use headwater_io::{Call, Driver, DriverOptions};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// let driver = Driver::new(&DriverOptions::default())?;
/// let file = Arc::new(File::options().read(true).write(true).create(true).open(&path)?);
/// let written = driver.call(Call::pwritev(file.clone(), vec![&b"head"[..], b"water"], 0)).wait();
/// assert_eq!(written.result?, 9);
/// let read = driver.call(Call::pread(file, vec![0; 100], 4)).wait();
/// assert_eq!(read.result?, 5); // The file ends there.
/// let (_, buffer) = read.given;
/// assert!(buffer.starts_with(b"water"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a task:
///
/// ```
/// # use headwater_io::{Call, Driver, DriverOptions};
/// # async fn copy(driver: &Driver, from: std::fs::File, to: std::fs::File) -> std::io::Result<usize> {
/// let read = driver.call(Call::pread(from, vec![0; 64 << 10], 0)).await;
/// let length_bytes = read.result?;
/// let (_, mut buffer) = read.given;
/// buffer.truncate(length_bytes);
/// driver.call(Call::pwrite(to, buffer, 0)).await.result
/// # }
/// ```
#[must_use = "nothing happens before `Driver::call`"]
pub struct Call<T> {
    pub(crate) work: Box<Work>,
    output: PhantomData<fn() -> T>,
}

/// What a [`Call`] resulted in, and what its caller had given it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Returned<T, G> {
    /// What the system call returned, or the error. For transfers, bytes moved: fewer than asked mean that the file ended there, unless
    /// `stopped_by` says otherwise, which it always does for writes. `ECANCELED` after [`Calling::cancel`](crate::Calling::cancel).
    pub result: io::Result<T>,
    /// Why the bytes beyond those transferred were not.
    pub stopped_by: Option<io::Error>,
    /// Descriptor and buffers, back from the call. After a read that failed, the buffer may hold some of its bytes.
    pub given: G,
}

impl<F, B> Call<Returned<usize, (F, B)>>
where
    F: AsFd + Send + 'static,
    B: Send + 'static,
{
    /// Reads into `buffer` from a position, until it is full or the file ends: `pread(2)`.
    ///
    /// Errors: those of `pread(2)`. An error behind bytes that were read is [`Returned::stopped_by`].
    pub fn pread(file: F, buffer: B, offset_bytes: u64) -> Self
    where
        B: AsMut<[u8]>,
    {
        Call::of(|| {
            Step::new((file, buffer), |(file, buffer)| {
                move_one(Direction::Read, file, segment_of_mut(buffer.as_mut()), offset_bytes)
            })
        })
    }

    /// Writes all of `buffer` at a position: `pwrite(2)`. Carried out also if no caller waits for it any more.
    ///
    /// Errors: those of `pwrite(2)`. An error behind bytes that were written is [`Returned::stopped_by`].
    pub fn pwrite(file: F, buffer: B, offset_bytes: u64) -> Self
    where
        B: AsRef<[u8]>,
    {
        Call::of(|| {
            Step::new((file, buffer), |(file, buffer)| {
                move_one(Direction::Write, file, segment_of((*buffer).as_ref()), offset_bytes)
            })
        })
    }
}

impl<F, B> Call<Returned<usize, (F, Vec<B>)>>
where
    F: AsFd + Send + 'static,
    B: Send + 'static,
{
    /// Reads into several buffers in turn: `preadv(2)`.
    ///
    /// Errors: as [`Call::pread`]; `InvalidInput` for more than 1024 buffers.
    pub fn preadv(file: F, buffers: Vec<B>, offset_bytes: u64) -> Self
    where
        B: AsMut<[u8]>,
    {
        Call::of(|| {
            Step::new((file, buffers), |(file, buffers)| {
                let pieces = buffers.iter_mut().map(|buffer| segment_of_mut(buffer.as_mut()));
                move_many(Direction::Read, file, pieces.collect(), offset_bytes)
            })
        })
    }

    /// Writes several buffers one behind the other: `pwritev(2)`. Carried out also if no caller waits for it any more.
    ///
    /// Errors: as [`Call::pwrite`]; `InvalidInput` for more than 1024 buffers.
    pub fn pwritev(file: F, buffers: Vec<B>, offset_bytes: u64) -> Self
    where
        B: AsRef<[u8]>,
    {
        Call::of(|| {
            Step::new((file, buffers), |(file, buffers)| {
                let pieces = buffers.iter().map(|buffer| segment_of(buffer.as_ref()));
                move_many(Direction::Write, file, pieces.collect(), offset_bytes)
            })
        })
    }
}

impl<T> Call<T> {
    #[inline(always)] // As is the making of its work.
    pub(super) fn of(make: impl FnOnce() -> Step) -> Call<T> {
        Call::of_work(Work::of(make))
    }

    #[inline]
    pub(super) fn of_work(work: Box<Work>) -> Call<T> {
        Call { work, output: PhantomData }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({:?})", self.work)
    }
}

/// What calls give back. Only the types of this crate do.
pub trait CallOutput: output::FromSteps {}

impl<T: output::FromSteps> CallOutput for T {}

/// Results of steps as what a caller gets.
pub(crate) mod output {
    use std::io;
    use std::os::fd::OwnedFd;

    use super::Returned;
    use crate::request::attributes::Attributes;
    use crate::request::work::Step;

    /// Steps of a call, where they lie.
    pub(crate) type EndedSteps<'a> = std::slice::IterMut<'a, Step>;

    /// Made from steps that are done.
    pub trait FromSteps: Sized {
        /// Takes as many steps as it is made from.
        fn from_steps(steps: &mut EndedSteps<'_>) -> Self;
    }

    /// A number that the kernel returned, as what it means.
    pub trait Value: Sized {
        /// The value.
        fn of_step(step: &mut Step) -> io::Result<Self>;
    }

    impl<T: Value, G: 'static> FromSteps for Returned<T, G> {
        #[inline]
        fn from_steps(steps: &mut EndedSteps<'_>) -> Self {
            let step = steps.next().expect("a call has as many steps as results");
            Returned {
                result: T::of_step(step),
                stopped_by: step.stopped_by.take(),
                given: step.take_given(),
            }
        }
    }

    impl Value for usize {
        fn of_step(step: &mut Step) -> io::Result<usize> {
            std::mem::replace(&mut step.result, Ok(0))
        }
    }

    impl<A: FromSteps, B: FromSteps> FromSteps for (A, B) {
        fn from_steps(steps: &mut EndedSteps<'_>) -> (A, B) {
            (A::from_steps(steps), B::from_steps(steps))
        }
    }

    impl Value for () {
        fn of_step(step: &mut Step) -> io::Result<()> {
            usize::of_step(step).map(drop)
        }
    }

    impl Value for u32 {
        fn of_step(step: &mut Step) -> io::Result<u32> {
            usize::of_step(step).map(|number| number as u32)
        }
    }

    impl Value for OwnedFd {
        fn of_step(step: &mut Step) -> io::Result<OwnedFd> {
            usize::of_step(step)?;
            Ok(step.take_descriptor().expect("it was opened"))
        }
    }

    impl Value for Attributes {
        fn of_step(step: &mut Step) -> io::Result<Attributes> {
            let answer = step.attributes();
            usize::of_step(step)?;
            Ok(answer.expect("the kernel has answered"))
        }
    }
}

/// What steps resulted in.
#[inline]
pub(crate) fn returned<T: CallOutput>(mut work: Box<Work>) -> T {
    let output = T::from_steps(&mut work.ended_steps());
    work.end();
    output
}

fn move_one(direction: Direction, file: &impl AsFd, piece: IoSegment, offset_bytes: u64) -> Action {
    move_pieces(direction, file, piece.length_bytes(), Pieces::One(piece), offset_bytes)
}

fn move_many(direction: Direction, file: &impl AsFd, pieces: Box<[IoSegment]>, offset_bytes: u64) -> Action {
    let length_bytes = pieces.iter().map(IoSegment::length_bytes).fold(0, usize::saturating_add);
    if pieces.len() > IO_SEGMENTS_MAX {
        return Action::Refused(io::ErrorKind::InvalidInput);
    }
    move_pieces(direction, file, length_bytes, Pieces::Many(pieces), offset_bytes)
}

/// Offsets from 2^63 on mean something else to the kernel: the position of the descriptor.
fn move_pieces(
    direction: Direction,
    file: &impl AsFd,
    length_bytes: usize,
    pieces: Pieces,
    offset_bytes: u64,
) -> Action {
    let end_bytes = offset_bytes.checked_add(length_bytes as u64);
    if end_bytes.is_none_or(|end_bytes| i64::try_from(end_bytes).is_err()) {
        return Action::Refused(io::ErrorKind::InvalidInput);
    }
    let descriptor = file.as_fd().as_raw_fd();
    Action::Move(Move { direction, descriptor, offset_bytes, length_bytes, pieces })
}

fn segment_of_mut(bytes: &mut [u8]) -> IoSegment {
    IoSegment::new(NonNull::from(&mut *bytes).cast(), bytes.len())
}

/// The kernel only reads from it.
fn segment_of(bytes: &[u8]) -> IoSegment {
    IoSegment::new(NonNull::from(bytes).cast(), bytes.len())
}
