//! Standard: standard input, output and error as the parent process passed them, closed ones included.
//!
//! ```text
//!   before main: closed ─► /dev/null, input for writing only, output and error for reading only
//!                          ─► each use fails as that of a closed descriptor: EBADF
//! ```
//!
//! The standard library would put `/dev/null` for reading *and* writing there, and counts EBADF of its own three streams
//! as success: results would be lost silently. By the time `main` runs, a closed descriptor cannot be recognised any more: a
//! `/dev/null` that the library opened looks like a shell's `<>/dev/null`. So this module opens `/dev/null` in place of closed
//! descriptors before the library looks at them, and commands write results to a duplicate of the descriptor, where no error is
//! hidden. Child processes inherit descriptors that fail in the same way, and no file that is opened later gets the number of one
//! of the three.
//!
//! Owns: the three descriptors, before `main` and after.
//! Does not own: what is read and written (`output`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, IntoRawFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// A duplicate of standard input. Reading it reports every error of `read(2)`.
///
/// # Errors
/// What duplicating the descriptor reports.
pub(crate) fn input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// A duplicate of standard output, without a buffer. Writing to it reports every error of `write(2)`.
///
/// # Errors
/// `EBADF` if it was closed, or opened for reading only, so that commands can fail before their work; else what `dup(2)` reports.
pub(crate) fn output() -> io::Result<File> {
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
pub(crate) fn error() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

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
