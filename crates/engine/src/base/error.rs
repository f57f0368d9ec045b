//! Error: what failed, on which file, at which byte, and why.
//!
//! Owns: the error type and its conversion into [`std::io::Error`].
//! Does not own: which failures are errors.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use headwater_io::RejectReason;
use os_display::Quotable;

/// The result of every fallible function here.
pub type Result<T> = std::result::Result<T, Error>;

/// The operation that failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Building an engine.
    Build,
    /// Opening a file.
    Open,
    /// Asking for a file's length.
    Length,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Changing a file's length.
    SetLength,
    /// Reserving space.
    Allocate,
    /// Making a hole.
    PunchHole,
    /// Making earlier writes durable.
    Sync,
    /// Making a view.
    View,
    /// Changing a reader's or writer's position.
    Seek,
    /// Taking advice.
    Advise,
    /// Asking for permissions, times and the like.
    Metadata,
    /// Changing permissions or times.
    SetMetadata,
    /// Locking or unlocking a file.
    Lock,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Build => "build the engine",
            Operation::Open => "open",
            Operation::Length => "get the length of",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::SetLength => "set the length of",
            Operation::Allocate => "reserve space for",
            Operation::PunchHole => "make a hole in",
            Operation::Sync => "sync",
            Operation::View => "view",
            Operation::Seek => "seek in",
            Operation::Advise => "take advice on",
            Operation::Metadata => "get the metadata of",
            Operation::SetMetadata => "set the metadata of",
            Operation::Lock => "lock",
        })
    }
}

/// A failure. Its text reads after "failed to": `read data.bin at byte 4096: Input/output error (os error 5)`. A path with
/// characters that a shell would interpret is quoted as coreutils do, so that no name can send commands to a terminal.
///
/// ```
/// let error = headwater::File::open("/nowhere").unwrap_err();
/// assert_eq!(error.to_string(), "open /nowhere: No such file or directory (os error 2)");
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// let error = headwater::File::open("/no\x1b[2Jwhere").unwrap_err();
/// assert!(error.to_string().starts_with(r"open $'/no\x1B[2Jwhere': No such file"));
/// ```
///
/// The text ends with the cause, and [`source`](std::error::Error::source) is what lies behind that cause, mostly nothing: a reporter
/// that prints the whole chain says the cause once. [`Error::io_error`] is the cause itself. `{:?}` prints the text too, which is what a
/// `main` that fails and `unwrap` show; `{:#?}` prints the fields.
///
/// ```
/// let error = headwater::File::open("/nowhere").unwrap_err();
/// assert_eq!(format!("{error:?}"), error.to_string());
/// assert!(std::error::Error::source(&error).is_none());
/// assert_eq!(error.io_error().to_string(), "No such file or directory (os error 2)");
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused, or a limit was reached.
    #[error(transparent)]
    Io(Failure),
    /// The engine was built by the parent of this process, and a `fork` copies none of its rings, memory and threads. Build a new
    /// engine in the child.
    #[error(transparent)]
    Forked(Failure),
    /// Another program changed the file while this engine had dirty bytes of it, and the file was opened with
    /// [`Coherence::Checked`](crate::Coherence::Checked). This call did nothing; the next one proceeds.
    #[error(transparent)]
    Conflict(Failure),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Error::Io(_) => "Io",
            Error::Forked(_) => "Forked",
            Error::Conflict(_) => "Conflict",
        };
        if f.alternate() { f.debug_tuple(name).field(self.failure()).finish() } else { write!(f, "{self}") }
    }
}

/// The operation that failed, where and why.
pub struct Failure {
    operation: Operation,
    path: Option<PathBuf>,
    offset_bytes: Option<u64>,
    io_error: io::Error,
}

impl std::error::Error for Failure {
    /// What lies behind the cause: the text has the cause already.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.io_error.source()
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return write!(f, "{self}");
        }
        let mut fields = f.debug_struct("Failure");
        fields.field("operation", &self.operation).field("path", &self.path);
        fields.field("offset_bytes", &self.offset_bytes).field("io_error", &self.io_error).finish()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(path) = &self.path {
            match path.to_str().filter(|name| is_in_brackets(name)) {
                Some(name) => write!(f, " {name}")?,
                None => write!(f, " {}", path.maybe_quote())?,
            }
        }
        if let Some(offset) = self.offset_bytes {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.io_error)
    }
}

/// Whether the name is of the form `<memory>`, which is no path and needs no quotes.
fn is_in_brackets(name: &str) -> bool {
    name.starts_with('<') && name.ends_with('>') && !name.contains(char::is_control)
}

impl Error {
    pub(crate) fn build(io_error: io::Error) -> Error {
        Failure { operation: Operation::Build, path: None, offset_bytes: None, io_error }.into()
    }

    pub(crate) fn flush(path: Option<PathBuf>, io_error: io::Error) -> Error {
        Failure { operation: Operation::Sync, path, offset_bytes: None, io_error }.into()
    }

    pub(crate) fn on_file(operation: Operation, path: &Path, io_error: io::Error) -> Error {
        Failure { operation, path: Some(path.to_owned()), offset_bytes: None, io_error }.into()
    }

    pub(crate) fn at(operation: Operation, path: &Path, offset_bytes: u64, io_error: io::Error) -> Error {
        Failure { operation, path: Some(path.to_owned()), offset_bytes: Some(offset_bytes), io_error }.into()
    }

    pub(crate) fn conflict(operation: Operation, path: &Path) -> Error {
        let text = "another program changed the file while bytes of this one were not written; read it again, or sync earlier";
        let io_error = io::Error::new(io::ErrorKind::ResourceBusy, text);
        Error::Conflict(Failure { operation, path: Some(path.to_owned()), offset_bytes: None, io_error })
    }

    fn failure(&self) -> &Failure {
        match self {
            Error::Io(failure) | Error::Forked(failure) | Error::Conflict(failure) => failure,
        }
    }

    /// The kind, as the standard library names it.
    pub fn kind(&self) -> io::ErrorKind {
        self.failure().io_error.kind()
    }

    /// The operation that failed.
    pub fn operation(&self) -> Operation {
        self.failure().operation
    }

    /// The file, if the failure belongs to one.
    pub fn path(&self) -> Option<&Path> {
        self.failure().path.as_deref()
    }

    /// Offset of the first byte that could not be read or written.
    ///
    /// ```
    /// use headwater::{File, Operation};
    /// let error = File::from_bytes("abc").read_exact_at(&mut [0; 5], 0).unwrap_err();
    /// assert_eq!((error.operation(), error.offset_bytes()), (Operation::Read, Some(3)));
    /// assert_eq!(error.path(), Some(std::path::Path::new("<memory>")));
    /// ```
    pub fn offset_bytes(&self) -> Option<u64> {
        self.failure().offset_bytes
    }

    /// The kernel's error number, if the kernel reported one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.failure().io_error.raw_os_error()
    }

    /// The cause, without operation, path and offset.
    pub fn io_error(&self) -> &io::Error {
        &self.failure().io_error
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let reason = failure.io_error.get_ref().and_then(|inner| inner.downcast_ref::<RejectReason>());
        match reason {
            Some(RejectReason::Forked) => Error::Forked(failure),
            _ => Error::Io(failure),
        }
    }
}

impl From<Error> for io::Error {
    /// Keeps the kind and, as the inner error, everything else. [`io::Error::raw_os_error`] is `None`, since an
    /// [`io::Error`] holds either a number or an inner error; the number is the inner error's:
    ///
    /// ```
    /// let error = headwater::File::open("/nowhere").unwrap_err();
    /// assert_eq!(error.raw_os_error(), Some(2));
    /// let error = std::io::Error::from(error);
    /// let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<headwater::Error>());
    /// assert_eq!(inner.and_then(headwater::Error::raw_os_error), Some(2));
    /// ```
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
