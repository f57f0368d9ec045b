//! Lease: a file lease of the kernel, which notifies this process before another process may write to the file.
//!
//! ```text
//!   thread ─► LeaseWatch::here ─► owner ─► Lease::take ─► Held
//!   a writer opens the file, blocks ─► signal to that thread alone ─► wait returns ─► Lease::state: Asked ─► drop ─► the open returns
//! ```
//!
//! A read lease (`fcntl(2)`, `F_SETLEASE`) is granted while no process, this one included, has the file open or mapped for
//! writing. From then on, an open for writing or a truncation blocks until the lease is dropped, for at most
//! `/proc/sys/fs/lease-break-time` (45 s). The kernel announces it by a signal only: `poll(2)` always reports a leased file as
//! ready. The signal is sent to one thread by its number, which has it blocked and reads it from a `signalfd`: there is no handler,
//! no other thread is disturbed, and if that thread is gone, no signal is sent. Nothing polls the state, so a leased file costs
//! nothing until it is written.
//!
//! The signal is `SIGURG`, which is ignored by default and could not kill the process if it went astray. A program that has `SIGURG` sent to the
//! process as a whole, for out-of-band data of sockets, and waits for it, may lose one to this thread.
//!
//! Owns: taking a lease, the thread that receives the signal, dropping the lease.
//! Does not own: the reaction to the signal, the retry.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::open_file::OpenFile;
use super::status::FileKind;
use crate::system::fork::ProcessMark;

/// Receives lease breaks in the thread that made it.
#[derive(Debug)]
pub struct LeaseWatch {
    signals: OwnedFd,
    owner: LeaseOwner,
    /// What a `signalfd` shows is that of the thread that reads it.
    _stays_in_thread: PhantomData<*const ()>,
}

/// The thread that the kernel signals when a lease is to be broken.
#[derive(Clone, Debug)]
pub struct LeaseOwner {
    thread: libc::pid_t,
    wake_descriptor: Arc<OwnedFd>,
}

/// A lease on a file. While it is [`LeaseState::Held`], no process has the file open for writing; an open for writing blocks until
/// the lease is dropped.
#[derive(Debug)]
pub struct Lease {
    file: Arc<OpenFile>,
    process: ProcessMark,
}

/// State of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseState {
    /// No process has the file open for writing.
    Held,
    /// Another process waits to open the file for writing, or has waited too long and may write.
    Asked,
}

impl LeaseWatch {
    /// Makes this thread the receiver of lease breaks. Blocks `SIGURG` in it, for good.
    ///
    /// # Errors
    /// What `signalfd(2)` and `eventfd(2)` report.
    pub fn here() -> io::Result<LeaseWatch> {
        let signals = block_and_watch(SIGNAL)?;
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let wake_descriptor = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(LeaseWatch {
            signals,
            owner: LeaseOwner { thread, wake_descriptor },
            _stays_in_thread: PhantomData,
        })
    }

    /// For [`Lease::take`], from any thread.
    pub fn owner(&self) -> &LeaseOwner {
        &self.owner
    }

    /// Waits until a lease may have to be given up, or [`LeaseOwner::wake`] was called.
    ///
    /// # Errors
    /// What `poll(2)` and `read(2)` report: the thread receives no more lease breaks.
    pub fn wait(&self) -> io::Result<()> {
        let mut both = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&*self.owner.wake_descriptor, PollFlags::IN),
        ];
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        drain(self.signals.as_fd())?;
        drain(self.owner.wake_descriptor.as_fd())
    }
}

impl LeaseOwner {
    /// Ends the wait of that thread.
    ///
    /// # Errors
    /// What `write(2)` reports.
    pub fn wake(&self) -> io::Result<()> {
        match rustix::io::write(&*self.wake_descriptor, &1_u64.to_ne_bytes()) {
            // AGAIN: it was rung so often that it cannot count, and not heard yet.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Lease {
    /// Leases a file that is open for reading only, on a file system whose every writer this kernel sees.
    ///
    /// # Errors
    /// `WouldBlock` if any process has the file open for writing, this handle included; `PermissionDenied` if this process neither
    /// owns the file nor has `CAP_LEASE`; `Unsupported` if it is no regular file or lies on another file system; else what
    /// `fcntl(2)` reports.
    pub fn take(file: &Arc<OpenFile>, owner: &LeaseOwner) -> io::Result<Lease> {
        if file.kind() != FileKind::Regular || !sees_every_writer(file)? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        take(file.buffered().as_raw_fd(), owner.thread)?;
        Ok(Lease { file: file.clone(), process: ProcessMark::here() })
    }

    /// The state. One syscall.
    pub fn state(&self) -> LeaseState {
        // SAFETY: takes no argument; the descriptor is open.
        match unsafe { libc::fcntl(self.descriptor(), libc::F_GETLEASE) } {
            libc::F_RDLCK => LeaseState::Held,
            // The type that the lease must become; that of a lease that was taken from us; or an error.
            _ => LeaseState::Asked,
        }
    }

    fn descriptor(&self) -> RawFd {
        self.file.buffered().as_raw_fd()
    }
}

impl Drop for Lease {
    /// Releases the lease, even if a child of this process has the descriptor as well. That child does nothing.
    fn drop(&mut self) {
        if self.process.is_here() {
            // SAFETY: takes a plain number; the descriptor is open. It fails if the lease is gone already.
            unsafe { libc::fcntl(self.descriptor(), libc::F_SETLEASE, libc::F_UNLCK) };
        }
    }
}

/// Sets the signal and its receiver first: once the lease is taken, the kernel may send it.
fn take(file: RawFd, thread: libc::pid_t) -> io::Result<()> {
    let owner = OwnerEx { kind: OWNER_THREAD, thread };
    // SAFETY: takes a plain number; the caller has the descriptor open.
    done(unsafe { libc::fcntl(file, F_SETSIG, SIGNAL) })?;
    // SAFETY: reads a `struct f_owner_ex`, which lives until it returns; the caller has the descriptor open.
    done(unsafe { libc::fcntl(file, F_SETOWN_EX, &raw const owner) })?;
    // SAFETY: takes a plain number; the caller has the descriptor open.
    done(unsafe { libc::fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct f_owner_ex` of <fcntl.h>.
#[repr(C)]
struct OwnerEx {
    kind: libc::c_int,
    thread: libc::pid_t,
}

/// Whether this kernel sees all writers: not on network file systems, FUSE, or the layers below an overlay.
fn sees_every_writer(file: &OpenFile) -> io::Result<bool> {
    let magic = rustix::fs::fstatfs(file.buffered())?.f_type as u32;
    Ok(LOCAL_FILE_SYSTEMS.contains(&magic))
}

fn drain(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        match rustix::io::read(descriptor, &mut buffer) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn block_and_watch(signal: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a zeroed set is valid memory for `sigemptyset`, and lives through the calls; the old mask is not asked for. The
    // descriptor is new, and has no other owner.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            descriptor @ 0.. => Ok(OwnedFd::from_raw_fd(descriptor)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Ignored by default, and hardly used.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Of <asm-generic/fcntl.h>; `libc` has them for some targets only.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const OWNER_THREAD: libc::c_int = 0;

/// ext2 to ext4, XFS, Btrfs, tmpfs, F2FS: of <linux/magic.h>.
const LOCAL_FILE_SYSTEMS: [u32; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0xF2F5_2010];

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use headwater_testkit::{run_forked, scratch_dirs};

    use super::*;
    use crate::file::{Access, DirectIo};

    /// Goal: an open of a leased file for writing, or a truncate, waits until the lease is given up, on every file system; a reader
    /// does not. Method: the thread that gets the signal gives the lease up; the writer's is the only way out.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_writer_waits_until_it_is_given_up() {
        for (name, directory) in scratch_dirs() {
            let path = directory.path().join("file");
            std::fs::write(&path, [7; 8192]).unwrap();
            let open = |access| Arc::new(OpenFile::open(&path, DirectIo::Preferred, access).unwrap());
            for round in 0..20 {
                let (owners, owner) = mpsc::channel();
                let (leases, to_lease) = mpsc::channel::<Lease>();
                thread::scope(|scope| {
                    scope.spawn(move || {
                        let watch = LeaseWatch::here().unwrap();
                        owners.send(watch.owner().clone()).unwrap();
                        let lease = to_lease.recv().unwrap();
                        while lease.state() == LeaseState::Held {
                            watch.wait().unwrap();
                        }
                    });
                    let reader = open(Access::Read);
                    let lease = granted(&reader, &owner.recv().unwrap());
                    assert_eq!(lease.state(), LeaseState::Held, "{name}");
                    drop(open(Access::Read));
                    assert_eq!(lease.state(), LeaseState::Held, "{name}");
                    leases.send(lease).unwrap();
                    match round % 2 {
                        0 => drop(open(Access::ReadWrite)),
                        _ => truncate(&path),
                    }
                });
            }
        }
    }

    /// A child that another test forks has our descriptors, also one that was open for writing, for as long as it lives.
    fn granted(file: &Arc<OpenFile>, owner: &LeaseOwner) -> Lease {
        loop {
            match Lease::take(file, owner) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
                lease => return lease.unwrap(),
            }
        }
    }

    fn truncate(path: &std::path::Path) {
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero and lives until it returns.
        assert_eq!(unsafe { libc::truncate(path.as_ptr(), 4096) }, 0);
    }

    /// Goal: no lease while the file is open for writing, on other than regular files, and for a thread that is gone.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn what_is_refused() {
        let directory = headwater_testkit::ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 8192]).unwrap();
        let open = |access| Arc::new(OpenFile::open(&path, DirectIo::Off, access).unwrap());
        let kind = |result: io::Result<Lease>| result.map_err(|error| error.kind()).map(|_| ());
        let watch = LeaseWatch::here().unwrap();
        let (reader, writer) = (open(Access::Read), open(Access::ReadWrite));
        assert_eq!(kind(Lease::take(&reader, watch.owner())), Err(io::ErrorKind::WouldBlock));
        assert_eq!(kind(Lease::take(&writer, watch.owner())), Err(io::ErrorKind::WouldBlock));
        drop(writer);
        drop(granted(&reader, watch.owner()));
        let zero = Arc::new(OpenFile::open("/dev/zero".as_ref(), DirectIo::Off, Access::Read).unwrap());
        assert_eq!(kind(Lease::take(&zero, watch.owner())), Err(io::ErrorKind::Unsupported));
        let gone = thread::spawn(|| LeaseWatch::here().unwrap().owner().clone()).join().unwrap();
        // The kernel takes a thread off its list a moment after it was joined.
        while std::path::Path::new(&format!("/proc/self/task/{}", gone.thread)).exists() {
            thread::yield_now();
        }
        assert!(Lease::take(&reader, &gone).is_err());
    }

    /// Goal: a child that drops what it has of a lease leaves it to its parent, whose own drop ends it although the child
    /// has the descriptor too.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_child_leaves_it_alone() {
        let directory = headwater_testkit::ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 8192]).unwrap();
        let watch = LeaseWatch::here().unwrap();
        let reader = Arc::new(OpenFile::open(&path, DirectIo::Off, Access::Read).unwrap());
        let mut lease = Some(granted(&reader, watch.owner()));
        run_forked(|| drop(lease.take()));
        assert_eq!(lease.as_ref().unwrap().state(), LeaseState::Held);
        drop(lease);
        drop(OpenFile::open(&path, DirectIo::Off, Access::ReadWrite).unwrap());
    }

    /// Goal: the waiting thread is woken by `LeaseOwner::wake`, also by a call before the wait.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn ringing_ends_the_wait() {
        let (owners, owner) = mpsc::channel();
        let thread = thread::spawn(move || {
            let watch = LeaseWatch::here().unwrap();
            owners.send(watch.owner().clone()).unwrap();
            watch.wait().unwrap();
        });
        owner.recv().unwrap().wake().unwrap();
        thread.join().unwrap();
    }
}
