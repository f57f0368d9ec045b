//! Operations: the calls that move no bytes, calls one after the other, and any entry of a ring.
//!
//! Owns: their arguments and results.
//! Does not own: transfers (call), their progress (work), how they are made (backends).
//! Invariants: I4 what a call points to, paths and places for answers included, lies in what its step keeps.

use std::ffi::{CString, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::Timespec;
use rustix::fs::{AtFlags, CWD};

use crate::request::attributes::Attributes;
use crate::request::call::{Call, Returned};
use crate::request::work::{Action, Step};
use crate::system::calls::{Address, SystemCall};
use crate::system::sys::SyncScope;

impl Call<Returned<OwnedFd, ()>> {
    /// Opens a file: `open(2)` with these flags (`libc::O_RDWR | libc::O_CREAT`) and, if it is created, this mode less the process's
    /// umask. `O_CLOEXEC` is added. A relative path begins at the working directory. What is opened after the caller has dropped the call is
    /// closed.
    ///
    /// Errors: those of `open(2)`; `InvalidInput` for a path with a zero byte. On the `sim` driver, files that are created or truncated
    /// are not in the device's log.
    ///
    /// ```
    /// use headwater_io::{Call, Driver, DriverOptions};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// let driver = Driver::new(&DriverOptions::default())?;
    /// let opened = driver.call(Call::open(&path, libc::O_CREAT | libc::O_RDWR, 0o600)).wait();
    /// let written = driver.call(Call::pwrite(opened.result?, "headwater", 0)).wait();
    /// let (file, _) = written.given;
    /// assert_eq!(driver.call(Call::attributes(&path)).wait().result?.length_bytes, 9);
    /// driver.call(Call::close(file)).wait().result?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, flags: i32, mode: u32) -> Self {
        opened((), here, path.as_ref(), flags, mode)
    }
}

impl<D: AsFd + Send + 'static> Call<Returned<OwnedFd, D>> {
    /// As [`Call::open`], with a relative path that begins at a directory: `openat(2)`. The path is then that of the directory which was
    /// opened, whatever it is called by now. `rustix::fs::CWD` is the working directory; an absolute path leaves the directory aside. All
    /// this is so for each call with a directory.
    ///
    /// Errors: those of `openat(2)`; `InvalidInput` for a path with a zero byte.
    ///
    /// ```
    /// use std::{fs::File, sync::Arc};
    /// use headwater_io::{Call, Driver, DriverOptions};
    /// # let folder = tempfile::tempdir()?;
    /// let driver = Driver::new(&DriverOptions::default())?;
    /// let directory = Arc::new(File::open(folder.path())?);
    /// driver.call(Call::make_directory_at(directory.clone(), "logs", 0o700)).wait().result?;
    /// let flags = libc::O_CREAT | libc::O_WRONLY;
    /// let log = driver.call(Call::open_at(directory.clone(), "logs/1", flags, 0o600)).wait().result?;
    /// driver.call(Call::pwrite(log, "line", 0)).wait().result?;
    /// let found = driver.call(Call::attributes_at(directory, "logs/1", 0)).wait();
    /// assert_eq!(found.result?.length_bytes, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_at(directory: D, path: impl AsRef<Path>, flags: i32, mode: u32) -> Self {
        opened(directory, descriptor_of, path.as_ref(), flags, mode)
    }
}

impl Call<Returned<Attributes, ()>> {
    /// Attributes of a file by its path: `statx(2)`. The last part of the path may be a symbolic link, which is followed.
    ///
    /// Errors: those of `statx(2)`; `InvalidInput` for a path with a zero byte.
    pub fn attributes(path: impl AsRef<Path>) -> Self {
        looked_up((), here, path.as_ref(), AtFlags::empty())
    }
}

impl<F: AsFd + Send + 'static> Call<Returned<Attributes, F>> {
    /// Attributes of an open file: `statx(2)` with `AT_EMPTY_PATH`.
    ///
    /// Errors: those of `statx(2)`.
    pub fn attributes_of(file: F) -> Self {
        looked_up(file, descriptor_of, Path::new(""), AtFlags::EMPTY_PATH)
    }

    /// Attributes by a path from a [directory](Call::open_at): `statx(2)` with these flags (0, or `libc::AT_SYMLINK_NOFOLLOW` and others).
    ///
    /// Errors: those of `statx(2)`; `InvalidInput` for a path with a zero byte.
    pub fn attributes_at(directory: F, path: impl AsRef<Path>, flags: i32) -> Self {
        looked_up(directory, descriptor_of, path.as_ref(), AtFlags::from_bits_retain(flags.cast_unsigned()))
    }
}

impl Call<Returned<(), ()>> {
    /// Closes a descriptor: `close(2)`. It is closed whatever the result says, also if the call is dropped or refused.
    ///
    /// Errors: those of `close(2)`; on network file systems, that of an earlier write.
    pub fn close(descriptor: OwnedFd) -> Self {
        Call::of(|| Step::closing(descriptor))
    }

    /// Gives a file another name: `renameat2(2)` with these flags (0, or `libc::RENAME_NOREPLACE` and others). Carried out also if no
    /// caller waits for it any more.
    ///
    /// Errors: those of `renameat2(2)`; `InvalidInput` for a path with a zero byte. On the `sim` driver it is not in the device's log.
    pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>, flags: u32) -> Self {
        renamed((), |()| [CWD.as_raw_fd(); 2], [from.as_ref(), to.as_ref()], flags)
    }

    /// Removes a name of a file: `unlink(2)`. Carried out also if no caller waits for it any more.
    ///
    /// Errors: those of `unlink(2)`; `InvalidInput` for a path with a zero byte. On the `sim` driver it is not in the device's log.
    pub fn unlink(path: impl AsRef<Path>) -> Self {
        unlinked((), here, path.as_ref(), AtFlags::empty())
    }

    /// Removes an empty directory: `rmdir(2)`. Carried out also if no caller waits for it any more.
    ///
    /// Errors: those of `rmdir(2)`; `InvalidInput` for a path with a zero byte.
    pub fn remove_directory(path: impl AsRef<Path>) -> Self {
        unlinked((), here, path.as_ref(), AtFlags::REMOVEDIR)
    }

    /// Is done after this time, counted from when the driver begins it; on the `sim` driver, time of
    /// [`Driver::now`](crate::Driver::now). Dropping it ends it.
    ///
    /// Errors: `ECANCELED` if it was cancelled.
    pub fn timeout(time: Duration) -> Self {
        Call::of(|| {
            Step::with_places((), Timespec::new(), |(), place| SystemCall::Timeout {
                time,
                deadline: None,
                place: Address::of(place),
            })
        })
    }
}

impl<D, E> Call<Returned<(), (D, E)>>
where
    D: AsFd + Send + 'static,
    E: AsFd + Send + 'static,
{
    /// As [`Call::rename`], with paths that begin at a [directory](Call::open_at) each.
    ///
    /// Errors: as [`Call::rename`].
    pub fn rename_at(
        from_directory: D,
        from: impl AsRef<Path>,
        to_directory: E,
        to: impl AsRef<Path>,
        flags: u32,
    ) -> Self {
        let directories = |(from, to): &(D, E)| [descriptor_of(from), descriptor_of(to)];
        renamed((from_directory, to_directory), directories, [from.as_ref(), to.as_ref()], flags)
    }
}

impl<F: AsFd + Send + 'static> Call<Returned<(), F>> {
    /// Removes a name, by a path from a [directory](Call::open_at): `unlinkat(2)` with these flags (0, or `libc::AT_REMOVEDIR` for an empty
    /// directory). Carried out also if no caller waits for it any more.
    ///
    /// Errors: those of `unlinkat(2)`; `InvalidInput` for a path with a zero byte. On the `sim` driver it is not in the device's log.
    pub fn unlink_at(directory: F, path: impl AsRef<Path>, flags: i32) -> Self {
        unlinked(directory, descriptor_of, path.as_ref(), AtFlags::from_bits_retain(flags.cast_unsigned()))
    }

    /// Makes a directory, by a path from a [directory](Call::open_at), with this mode less the process's umask: `mkdirat(2)`. Carried out
    /// also if no caller waits for it any more.
    ///
    /// Errors: those of `mkdirat(2)`; `InvalidInput` for a path with a zero byte. On the `sim` driver it is not in the device's log.
    pub fn make_directory_at(directory: F, path: impl AsRef<Path>, mode: u32) -> Self {
        let make = |directory, path| SystemCall::MakeDirectory { directory, path, mode };
        by_path(directory, descriptor_of, path.as_ref(), make)
    }

    /// Makes durable what had been written to the file, its bytes and what is needed to read them: `fdatasync(2)`. Carried out also if no
    /// caller waits for it any more.
    ///
    /// Errors: those of `fdatasync(2)`; one means that earlier writes were lost, and the kernel reports it once for each open descriptor.
    pub fn sync_data(file: F) -> Self {
        Self::sync(file, SyncScope::Data)
    }

    /// As [`Call::sync_data`], and what else is known of the file, such as its times: `fsync(2)`.
    ///
    /// Errors: as [`Call::sync_data`].
    pub fn sync_all(file: F) -> Self {
        Self::sync(file, SyncScope::All)
    }

    fn sync(file: F, scope: SyncScope) -> Self {
        Call::of(|| Step::new(file, |file| Action::Sync { descriptor: file.as_fd().as_raw_fd(), scope }))
    }

    /// Begins or awaits write-back of a range, 0 bytes meaning up to the end: `sync_file_range(2)` with flags like
    /// `libc::SYNC_FILE_RANGE_WRITE`. It makes nothing durable. On the `sim` driver it is not in the device's log.
    ///
    /// Errors: those of `sync_file_range(2)`.
    pub fn sync_range(file: F, offset_bytes: u64, length_bytes: u64, flags: u32) -> Self {
        Call::of(|| {
            Step::new(file, |file| {
                let descriptor = file.as_fd().as_raw_fd();
                Action::Call(SystemCall::SyncRange { descriptor, offset_bytes, length_bytes, flags })
            })
        })
    }

    /// Sets space aside, or with a mode other than 0 frees or changes it: `fallocate(2)`. Carried out also if no caller waits for it any
    /// more.
    ///
    /// Errors: those of `fallocate(2)`. On the `sim` driver `Unsupported` for modes other than 0 and `FALLOC_FL_KEEP_SIZE`: its log has no
    /// holes.
    pub fn allocate(file: F, mode: i32, offset_bytes: u64, length_bytes: u64) -> Self {
        Call::of(|| {
            Step::new(file, |file| {
                let descriptor = file.as_fd().as_raw_fd();
                Action::Call(SystemCall::Allocate { descriptor, mode, offset_bytes, length_bytes })
            })
        })
    }
}

impl<F: AsFd + Send + 'static> Call<Returned<u32, F>> {
    /// Waits until a descriptor is ready for one of these events (`libc::POLLIN as u32`), and returns those that it is ready for, and
    /// errors: `poll(2)`. Dropping it ends it.
    ///
    /// Errors: those of `poll(2)`; `ECANCELED` if it was cancelled.
    pub fn poll(file: F, events: u32) -> Self {
        Call::of(|| {
            Step::new(file, |file| {
                Action::Call(SystemCall::Poll { descriptor: file.as_fd().as_raw_fd(), events })
            })
        })
    }
}

impl<G: Send + 'static> Call<Returned<(), G>> {
    /// Does nothing, and gives back what it was given: measures the way there and back.
    ///
    /// Errors: `ECANCELED` if it was cancelled.
    pub fn nop(given: G) -> Self {
        Call::of(|| Step::new(given, |_| Action::Nop))
    }
}

impl<G: Send + 'static> Call<Returned<usize, G>> {
    /// Any entry of a ring, made by the crate `io-uring`, for operations that have no method here. `given` is kept until it completes, like all that a call is given. Its
    /// `user_data` is replaced. Carried out also if no caller waits for it any more, so it has to end by itself.
    ///
    /// Errors: what the kernel reports; `Unsupported` on the drivers `threads` and `sim`, on a ring that the kernel refuses to be entered,
    /// and unless the driver was built with [`RingOperations::Any`](crate::RingOperations::Any).
    ///
    /// # Safety
    /// Every address and every descriptor in the entry stays valid until it completes, whatever happens to the thread, the future and the
    /// driver: they belong to `given`, whose value is moved to the heap by this call and then stays there. The entry completes once: it has
    /// neither several completions (`IORING_CQE_F_MORE`) nor none (`IOSQE_CQE_SKIP_SUCCESS`), and no flags that concern other entries
    /// (`IOSQE_IO_LINK`, `IOSQE_IO_DRAIN`), registered buffers or registered files.
    ///
    /// ```
    /// use headwater_io::{Call, Driver, DriverOptions, RingOperations};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = std::ffi::CString::new(directory.path().join("new").to_str().unwrap())?;
    /// # std::fs::write(directory.path().join("target"), "contents")?;
    /// let options = DriverOptions { operations: RingOperations::Any, ..DriverOptions::default() };
    /// let driver = Driver::new(&options)?;
    /// let working_directory = io_uring::types::Fd(libc::AT_FDCWD);
    /// let entry = io_uring::opcode::SymlinkAt::new(working_directory, c"target".as_ptr(), path.as_ptr()).build();
    /// // SAFETY: the path's bytes lie on the heap, where they are while `path` is; the other path is a constant.
    /// let call = unsafe { Call::raw(entry, path) };
    /// if driver.info().name == "uring" {
    ///     driver.call(call).wait().result?;
    ///     assert_eq!(std::fs::read(directory.path().join("new"))?, b"contents");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn raw(entry: Entry, given: G) -> Self {
        Call::of(|| Step::new(given, |_| Action::Raw(Box::new(entry))))
    }
}

impl<T> Call<T> {
    /// This call and then the next, which begins when this has succeeded in full, without waking the caller in between. If this fails, moves
    /// fewer bytes than asked, or is cancelled, the next is not made, and returns `ECANCELED`. The kernel's linked requests
    /// (`IOSQE_IO_LINK`) do the same, but take a short transfer, which is repeated here, for a failure.
    ///
    /// If the chain contains a call that changes what is stored, the driver carries out all of it once it has begun, even if the caller
    /// drops the future. With a timeout or a poll in it, dropping the future ends it.
    ///
    /// ```
    /// use headwater_io::{Call, Driver, DriverOptions};
    /// # let directory = tempfile::tempdir()?;
    /// # let [new, path] = ["new", "data"].map(|name| directory.path().join(name));
    /// let driver = Driver::new(&DriverOptions::default())?;
    /// let file = std::sync::Arc::new(std::fs::File::create(&new)?);
    /// let replaced = Call::pwrite(file.clone(), "contents", 0)
    ///     .then(Call::sync_all(file))
    ///     .then(Call::rename(&new, &path, 0));
    /// let ((written, synced), renamed) = driver.call(replaced).wait();
    /// renamed.result?;
    /// assert_eq!(std::fs::read(&path)?, b"contents");
    /// # assert!(written.result.is_ok() && synced.result.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn then<U>(mut self, next: Call<U>) -> Call<(T, U)> {
        self.work.append(*next.work);
        Call::of_work(self.work)
    }

    /// Keeps `value` until the kernel is done with the call, and the caller has its result or has dropped it; then drops the value. A lock that
    /// is kept so is still held when the future of the call was dropped, so that no later holder overtakes a call under way: with a lock for
    /// each key, calls of a key are made one after the other, and those of others at once.
    ///
    /// ```
    /// # use std::{fs::File, sync::Arc};
    /// # use headwater_io::{Call, Driver, DriverOptions};
    /// # let directory = tempfile::tempdir()?;
    /// # let driver = Driver::new(&DriverOptions::default())?;
    /// # let file = File::create(directory.path().join("data"))?;
    /// let turn = Arc::new(()); // Or the guard of a lock, such as `mutex.lock_owned().await` of tokio.
    /// let call = driver.call(Call::pwrite(file, "record", 0).keeping(turn.clone()));
    /// drop(call); // Written all the same.
    /// while Arc::strong_count(&turn) > 1 {
    ///     driver.attend();
    /// }
    /// assert_eq!(std::fs::read(directory.path().join("data"))?, b"record");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keeping(mut self, value: impl Send + 'static) -> Self {
        self.work.keep(Box::new(value));
        self
    }
}

/// Where paths begin that are given without a directory.
fn here((): &()) -> RawFd {
    CWD.as_raw_fd()
}

fn descriptor_of(file: &impl AsFd) -> RawFd {
    file.as_fd().as_raw_fd()
}

fn opened<G: Send + 'static, T>(
    given: G,
    directory: fn(&G) -> RawFd,
    path: &Path,
    flags: i32,
    mode: u32,
) -> Call<T> {
    let flags = flags | libc::O_CLOEXEC;
    by_path(given, directory, path, |directory, path| SystemCall::Open { directory, path, flags, mode })
}

fn unlinked<G: Send + 'static, T>(
    given: G,
    directory: fn(&G) -> RawFd,
    path: &Path,
    flags: AtFlags,
) -> Call<T> {
    let flags = flags.bits().cast_signed();
    by_path(given, directory, path, |directory, path| SystemCall::Unlink { directory, path, flags })
}

fn looked_up<G: Send + 'static, T>(
    given: G,
    directory: fn(&G) -> RawFd,
    path: &Path,
    flags: AtFlags,
) -> Call<T> {
    let Some(path) = text(path) else { return invalid(given) };
    Call::of(|| {
        Step::with_places(given, (path, MaybeUninit::uninit()), |given, (path, into)| {
            let (directory, path, flags) =
                (directory(given), Address::of_path(path), flags.bits().cast_signed());
            SystemCall::Attributes { directory, path, flags, into: Address::of(into) }
        })
    })
}

fn renamed<G: Send + 'static, T>(
    given: G,
    directories: fn(&G) -> [RawFd; 2],
    paths: [&Path; 2],
    flags: u32,
) -> Call<T> {
    let [Some(from), Some(to)] = paths.map(text) else { return invalid(given) };
    Call::of(|| {
        Step::with_places(given, (from, to), |given, (from, to)| {
            let (from, to) = (Address::of_path(from), Address::of_path(to));
            SystemCall::Rename { directories: directories(given), from, to, flags }
        })
    })
}

fn by_path<G: Send + 'static, T>(
    given: G,
    directory: fn(&G) -> RawFd,
    path: &Path,
    call: impl FnOnce(RawFd, Address<c_char>) -> SystemCall,
) -> Call<T> {
    let Some(path) = text(path) else { return invalid(given) };
    let call = |given: &mut G, path: &mut CString| call(directory(given), Address::of_path(path));
    Call::of(|| Step::with_places(given, path, call))
}

/// `None` for a path that the kernel cannot be given.
fn text(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// The path is no path.
fn invalid<G: Send + 'static, T>(given: G) -> Call<T> {
    Call::of(|| Step::new(given, |_| Action::Refused(io::ErrorKind::InvalidInput)))
}
