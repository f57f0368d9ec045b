//! Locking: POSIX locks that the program holds on a file stay while this crate opens and closes descriptors of the file.
//!
//! ```text
//!   host: fcntl(F_SETLK) ─► OpenFile: opened, used, dropped ─► child: F_SETLK is refused, F_GETLK names the host
//! ```
//!
//! Owns: locks of every kind and range, every way to a descriptor, what is closed when the locks are gone.
//! Does not own: engines, which have tests of their own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use headwater_io::{Access, Creation, DirectIo, OpenFile, Route, SeenFile, close_parked};
use headwater_testkit::{ScratchDir, run_forked, run_self_with_env, scratch_dirs, watched};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::beside::as_root_and_nobody;

const LENGTH_BYTES: usize = 64 << 10;

/// `F_SETLK` or `F_GETLK`; an empty range reaches to the end of every file. Gives the kind that is there.
fn fcntl_lock(file: &File, command: i32, kind: i32, range: &Range<i64>) -> io::Result<i32> {
    // SAFETY: zeroes are a valid `struct flock`.
    let mut lock = unsafe { std::mem::zeroed::<libc::flock64>() };
    (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, range.start, range.end - range.start);
    // SAFETY: the structure lives until the call returns; the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        0 => Ok(i32::from(lock.l_type)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The part of the program that knows nothing of headwater.
struct Host(File);

impl Host {
    fn new(path: &Path) -> Host {
        Host(OpenOptions::new().read(true).write(true).open(path).unwrap())
    }

    fn lock(&self, kind: i32, range: &Range<i64>) {
        fcntl_lock(&self.0, libc::F_SETLK, kind, range).unwrap();
    }

    fn unlock(&self) {
        self.lock(libc::F_UNLCK, &(0..0));
    }
}

/// What another process finds.
fn assert_locked(path: &Path, kind: i32, range: &Range<i64>, context: &str) {
    run_forked(|| {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let found = fcntl_lock(&file, libc::F_GETLK, libc::F_WRLCK, range).unwrap();
        assert_eq!(found, kind, "{context}");
        assert!(fcntl_lock(&file, libc::F_SETLK, libc::F_WRLCK, range).is_err(), "{context}");
    });
}

/// Descriptors of the file that this process has.
fn descriptors(path: &Path) -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries.filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == path)).count()
}

type Step = (&'static str, fn(&Path));

/// Every way in which descriptors come and go.
fn steps() -> [Step; 7] {
    [
        ("opened and dropped", |path| drop(opened(path, DirectIo::Off, Access::Read))),
        ("opened for writing", |path| drop(opened(path, DirectIo::Preferred, Access::ReadWrite))),
        ("read buffered and directly", |path| use_both(&opened(path, DirectIo::Preferred, Access::Read))),
        ("written buffered and directly", |path| {
            let file = opened(path, DirectIo::Preferred, Access::ReadWrite);
            use_both(&file);
            file.write_blocking(Route::Buffered, b"x", 77).unwrap();
            file.set_len(LENGTH_BYTES as u64).unwrap();
        }),
        ("direct required", |path| {
            drop(OpenFile::open(path, DirectIo::Required, Access::Read));
        }),
        ("created where it is", |path| {
            let (access, creation) = (Access::ReadWrite, Creation::IfMissing);
            drop(OpenFile::create(path, DirectIo::Preferred, access, creation).unwrap());
        }),
        ("read whole", |path| drop(SeenFile::open(path).unwrap().read_whole().unwrap())),
    ]
}

fn opened(path: &Path, direct_io: DirectIo, access: Access) -> OpenFile {
    OpenFile::open(path, direct_io, access).unwrap()
}

/// Has both descriptors be there.
fn use_both(file: &OpenFile) {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let mut page = Page([0; 4096]);
    assert_eq!(file.read_blocking(Route::Buffered, &mut page.0, 0).unwrap(), 4096);
    if file.direct().is_some() {
        assert_eq!(file.read_blocking(Route::Direct, &mut page.0, 0).unwrap(), 4096);
    }
}

/// Goal: the locks of the host, of either kind, on the whole file and on ranges, outlive every descriptor that this crate closes; when
/// the host has given them up, no descriptor is left. Method: each way to a descriptor under each lock, asked in a child.
#[test]
fn locks_of_the_host_stay() {
    for (name, directory) in scratch_dirs() {
        let path = directory.path().join("file");
        fs::write(&path, vec![7; LENGTH_BYTES]).unwrap();
        let host = Host::new(&path);
        for (kind, range) in [
            (libc::F_WRLCK, 0..0),
            (libc::F_RDLCK, 0..0),
            (libc::F_WRLCK, 10..15),
            (libc::F_RDLCK, 0x4000_0000..0x4000_0200),
        ] {
            for (what, step) in steps() {
                let context = format!("{name}: {what}, lock {kind} on {range:?}");
                host.lock(kind, &range);
                step(&path);
                assert_locked(&path, kind, &range, &context);
                close_parked();
                step(&path);
                assert_locked(&path, kind, &range, &context);
                host.unlock();
                close_parked();
                assert_eq!(descriptors(&path), 1, "{context}");
                step(&path);
                assert_eq!(descriptors(&path), 1, "{context}: nothing is locked");
            }
        }
    }
}

/// Goal: what is parked is closed by itself when other files are opened or closed later. Method: until that has happened.
#[test]
fn later_use_closes_what_was_parked() {
    let directory = ScratchDir::on_target().unwrap();
    let (path, other) = (directory.path().join("file"), directory.path().join("other"));
    fs::write(&path, "x").unwrap();
    fs::write(&other, "x").unwrap();
    let host = Host::new(&path);
    host.lock(libc::F_WRLCK, &(0..0));
    drop(opened(&path, DirectIo::Off, Access::Read));
    assert_eq!(descriptors(&path), 2);
    host.unlock();
    while descriptors(&path) > 1 {
        drop(opened(&other, DirectIo::Off, Access::Read));
    }
}

/// Goal: a forked child parks nothing of its parent's, and closes what it drops; a descriptor that it opened itself it parks, while it
/// holds a lock. The parent's lock stays.
#[test]
fn a_child_closes_what_is_its_parents() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "x").unwrap();
    let host = Host::new(&path);
    host.lock(libc::F_RDLCK, &(0..0));
    drop(opened(&path, DirectIo::Off, Access::ReadWrite));
    let mut file = Some(opened(&path, DirectIo::Off, Access::Read));
    assert_eq!(descriptors(&path), 3);
    run_forked(|| {
        drop(file.take());
        assert_eq!(descriptors(&path), 2, "the host's and the one that its parent has parked");
        let own = Host::new(&path);
        own.lock(libc::F_RDLCK, &(5..6));
        drop(opened(&path, DirectIo::Off, Access::Read));
        assert_eq!(descriptors(&path), 4);
        own.unlock();
        assert_eq!(close_parked(), 1, "the parent's lock is another process's");
    });
    assert_locked(&path, libc::F_RDLCK, &(0..0), "after the child");
    drop(file);
    host.unlock();
    close_parked();
    assert_eq!(descriptors(&path), 1);
}

/// Goal: files that are locked for long may be opened any number of times: descriptors that are parked are used again, and the locks
/// stay. Method: a small limit of descriptors, in a child, and many more opens of each locked file, by every way.
#[test]
fn the_parked_are_used_again() {
    const CHILD: &str = "HEADWATER_SHARING_LIMIT";
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("locking::the_parked_are_used_again", CHILD, "1");
        return assert!(output.status.success(), "{output:?}");
    }
    let directory = ScratchDir::on_target().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum: Some(100) }).unwrap();
    let paths: Vec<_> = (0..5).map(|number| directory.path().join(number.to_string())).collect();
    let hosts: Vec<Host> = paths
        .iter()
        .map(|path| {
            fs::write(path, vec![7; LENGTH_BYTES]).unwrap();
            let host = Host::new(path);
            host.lock(libc::F_WRLCK, &(0..0));
            host
        })
        .collect();
    let mut left = 0;
    for round in 0..20 {
        for (what, step) in steps() {
            paths.iter().for_each(|path| step(path));
            let now = close_parked();
            assert!(round == 0 || now <= left, "{what}: {left} descriptors became {now}");
            left = left.max(now);
        }
    }
    assert!((5..=30).contains(&left), "{left} descriptors");
    paths.iter().for_each(|path| assert_locked(path, libc::F_WRLCK, &(0..0), "after all of it"));
    hosts.iter().for_each(Host::unlock);
    assert_eq!(close_parked(), 0);
}

/// Goal: what was parked is closed some time after the locks are gone, in a program that opens and closes nothing any more.
#[test]
fn what_is_parked_is_closed_in_the_end() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "contents").unwrap();
    let host = Host::new(&path);
    for _ in 0..2 {
        host.lock(libc::F_WRLCK, &(0..0));
        drop(opened(&path, DirectIo::Off, Access::Read));
        assert_eq!(descriptors(&path), 2);
        host.unlock();
        watched("the last close", || {
            while descriptors(&path) > 1 {
                thread::sleep(std::time::Duration::from_millis(10));
            }
        });
    }
}

/// Goal: a descriptor that is parked opens no door: what may not be opened any more is not, what is at the path now is opened, and a
/// descriptor for reading does not serve for writing. Method: a user without privileges takes its own rights away.
#[test]
fn what_is_parked_opens_no_door() {
    as_root_and_nobody("locking::what_is_parked_opens_no_door", |name, directory| {
        let path = directory.join("file");
        fs::write(&path, "old").unwrap();
        let host = Host::new(&path);
        host.lock(libc::F_WRLCK, &(0..0));
        drop(opened(&path, DirectIo::Off, Access::Read));
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o000);
        let refused = OpenFile::open(&path, DirectIo::Off, Access::Read).map_err(|error| error.kind());
        match rustix::process::geteuid().is_root() {
            true => drop(refused.unwrap()),
            false => assert_eq!(refused.unwrap_err(), io::ErrorKind::PermissionDenied, "{name}"),
        }
        mode(0o600);
        let file = opened(&path, DirectIo::Off, Access::ReadWrite);
        file.write_blocking(Route::Buffered, b"new", 0).unwrap();
        let other = directory.join("other");
        fs::write(&other, "another").unwrap();
        fs::rename(&other, &path).unwrap();
        let another = opened(&path, DirectIo::Off, Access::Read);
        assert_eq!(another.length_bytes().unwrap(), 7, "{name}");
        drop((file, another));
        host.unlock();
        close_parked();
        assert_eq!(descriptors(&path), 0, "{name}");
    });
}

/// Goal: the locks stay while many threads open and drop the file. Method: they take each other's parked descriptors.
#[test]
fn threads_that_open_a_locked_file() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, vec![7; LENGTH_BYTES]).unwrap();
    let host = Host::new(&path);
    host.lock(libc::F_RDLCK, &(100..200));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    steps().iter().for_each(|(_, step)| step(&path));
                }
            });
        }
        for _ in 0..20 {
            assert_locked(&path, libc::F_RDLCK, &(100..200), "meanwhile");
        }
    });
    assert_locked(&path, libc::F_RDLCK, &(100..200), "after all of it");
    host.unlock();
    close_parked();
    assert_eq!(descriptors(&path), 1);
}
