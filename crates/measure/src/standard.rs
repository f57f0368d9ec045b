//! Standard: standard input, output and error as the parent process passed them, closed ones included.
//!
//! ```text
//!   before main: closed ─► /dev/null, input for writing only, output and error for reading only
//!                          ─► each use fails as that of a closed descriptor: EBADF
//!
//!   end_with_reader ─► check_reader before each row ─► the reader has gone ─► Unread ─► the program ends with READER_GONE
//! ```
//!
//! The standard library would put `/dev/null` for reading *and* writing there, and counts EBADF of its own three streams
//! as success: results would be lost silently. By the time `main` runs, a closed descriptor cannot be recognised any more: a
//! `/dev/null` that the library opened looks like a shell's `<>/dev/null`. So this module opens `/dev/null` in place of closed
//! descriptors before the library looks at them, and programs write results to a duplicate of the descriptor, where no error is
//! hidden. Child processes inherit descriptors that fail in the same way, and no file that is opened later gets the number of one
//! of the three.
//!
//! A measurement prints when it has measured, minutes after the reader of a pipe may have left (`| head -1`), so it asks before each row
//! whether it still has one. The signal that would end it at its next print, SIGPIPE, is ignored by programs in Rust, and would leave
//! behind what a drop removes.
//
// Owns: the three descriptors, before `main` and after; whether the program ends with its reader.
// Does not own: what is read and written.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// A duplicate of standard input. Reading it reports every error of `read(2)`.
///
/// # Errors
/// What duplicating the descriptor reports.
pub fn input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// A duplicate of standard output, without a buffer. Writing to it reports every error of `write(2)`.
///
/// # Errors
/// `EBADF` if it was closed, or opened for reading only, so that commands can fail before their work; else what `dup(2)` reports.
pub fn output() -> io::Result<File> {
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    match rustix::fs::fcntl_getfl(&output)?.intersection(OFlags::RWMODE) {
        OFlags::RDONLY => Err(Errno::BADF.into()),
        _ => Ok(output),
    }
}

/// A duplicate of standard error, for results.
///
/// # Errors
/// What duplicating the descriptor reports.
pub fn error() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// Prints text on standard output. A closed pipe (`EPIPE`) is no error: its reader wants no more.
///
/// # Errors
/// As [`output`]; what `write(2)` reports.
pub fn print(text: &str) -> io::Result<()> {
    match output().and_then(|mut output| output.write_all(text.as_bytes())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// From now on [`check_reader`] fails once nothing reads standard output any more. Called by a program that writes its results nowhere else.
pub fn end_with_reader() {
    ENDS_WITH_READER.store(true, Ordering::Relaxed);
}

/// Whether the program is to end with its reader, and standard output is a pipe or a socket that nothing reads any more.
pub fn reader_has_gone() -> bool {
    if !ENDS_WITH_READER.load(Ordering::Relaxed) {
        return false;
    }
    let output = io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    // These two are reported without being asked for: a pipe has the one, a socket the other.
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// # Errors
/// If [`reader_has_gone`].
pub fn check_reader() -> Result<(), Unread> {
    if reader_has_gone() { Err(Unread) } else { Ok(()) }
}

/// Nothing reads standard output any more, so there is nothing to measure for. It ends the program without a word, and with
/// [`READER_GONE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing reads standard output any more")
    }
}

impl std::error::Error for Unread {}

impl From<Unread> for io::Error {
    fn from(unread: Unread) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, unread)
    }
}

/// The error as a sentence, which is what functions of the command return.
impl From<Unread> for String {
    fn from(unread: Unread) -> String {
        unread.to_string()
    }
}

/// The exit code then: 128 + SIGPIPE, as a shell shows it of a program that the signal ends.
pub const READER_GONE: u8 = 141;

static ENDS_WITH_READER: AtomicBool = AtomicBool::new(false);

/// Called by the C library before `main`, and so before the standard library looks at the three.
// SAFETY: the section holds functions of this type. This one only makes system calls: neither the standard library nor the
// allocator has to be ready.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = fill_closed;

extern "C" fn fill_closed() {
    use rustix::stdio::{stderr, stdin, stdout};
    let contrary = [(stdin(), OFlags::WRONLY), (stdout(), OFlags::RDONLY), (stderr(), OFlags::RDONLY)];
    for (descriptor, access) in contrary {
        if rustix::io::fcntl_getfd(descriptor) == Err(Errno::BADF)
            // The lowest free number, which is this one: those below are filled.
            && let Ok(filled) = rustix::fs::openat(CWD, c"/dev/null", access, Mode::empty())
        {
            // Without /dev/null the standard library ends the process in a moment.
            let _ = filled.into_raw_fd();
        }
    }
}
