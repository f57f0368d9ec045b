//! Standard: options, locks, metadata and given descriptors mean what they mean in the standard library.
//!
//! Owns: comparisons with `std::fs` on the same paths.
//! Does not own: reading and writing.

use std::fs::{self, FileTimes, Permissions, TryLockError};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use headwater::{Caching, Coherence, DriverKind, File, IoMode, OpenOptions, Operation};
use headwater_testkit::{ScratchDir, forbid_status_here, run_forked, run_self_with_env, skip, tmpfs};
use rustix::fs::{FlockOperation, MemfdFlags, OFlags, fcntl_lock, memfd_create};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::rig::{Rig, drivers};

/// Goal: each combination of std's options does to a file that exists, and to one that does not, what std does: the same success or kind
/// of error, and the same contents afterwards.
#[test]
fn options_do_what_std_does() {
    let (directory, rig) = (ScratchDir::on_target().unwrap(), Rig::sim(1));
    let path = directory.path().join("file");
    for bits in 0..64_u32 {
        let [read, write, append, truncate, create, create_new] =
            [0, 1, 2, 3, 4, 5].map(|bit| bits >> bit & 1 == 1);
        for exists in [false, true] {
            let outcome = |open: &dyn Fn() -> Result<(), ErrorKind>| {
                _ = fs::remove_file(&path);
                if exists {
                    fs::write(&path, "contents").unwrap();
                }
                (open(), fs::read(&path).ok())
            };
            let theirs = outcome(&|| {
                let mut options = fs::OpenOptions::new();
                options.read(read).write(write).append(append).truncate(truncate);
                let opened = options.create(create).create_new(create_new).open(&path);
                opened.map(drop).map_err(|error| error.kind())
            });
            let ours = outcome(&|| {
                let mut options = OpenOptions::new();
                options.engine(&rig.engine).read(read).write(write).append(append).truncate(truncate);
                let opened = options.create(create).create_new(create_new).open(&path);
                opened.map(drop).map_err(|error| error.kind())
            });
            assert_eq!(
                ours, theirs,
                "read {read}, write {write}, append {append}, truncate {truncate}, create {create}, create_new {create_new}, \
                 exists {exists}"
            );
        }
    }
    rig.assert_idle();
}

/// Goal: a new file has the permissions asked for, less the umask; a flag of `open(2)` has its effect, and one that a method stands for
/// is refused by a text that names the method.
#[test]
fn permissions_and_flags() {
    let (directory, rig) = (ScratchDir::on_target().unwrap(), Rig::sim(2));
    let [ours, theirs, link] = ["ours", "theirs", "link"].map(|name| directory.path().join(name));
    for permissions in [0o600, 0o640, 0o777] {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(permissions).open(&theirs).unwrap();
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).write(true).create_new(true).mode(permissions).open(&ours).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode();
        assert_eq!(mode(&ours), mode(&theirs));
        fs::remove_file(&ours).unwrap();
        fs::remove_file(&theirs).unwrap();
    }
    fs::write(&ours, "contents").unwrap();
    std::os::unix::fs::symlink(&ours, &link).unwrap();
    let open = |flags: OFlags, path: &Path| {
        let flags = flags.bits().cast_signed();
        let mut theirs = fs::OpenOptions::new();
        let theirs = theirs.read(true).custom_flags(flags).open(path).map(drop).map_err(|error| error.kind());
        let mut ours = OpenOptions::new();
        let ours = ours.engine(&rig.engine).custom_flags(flags).open(path);
        (ours, theirs)
    };
    let (refused, theirs) = open(OFlags::NOFOLLOW, &link);
    assert_eq!(refused.unwrap_err().kind(), theirs.unwrap_err());
    let (opened, theirs) = open(OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::RDWR, &ours);
    assert!(theirs.is_ok());
    let mut bytes = [0; 8];
    opened.unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"contents");
    for (flag, method) in [
        (OFlags::APPEND, "append"),
        (OFlags::DIRECT, "IoMode::Direct"),
        (OFlags::TRUNC, "truncate"),
        (OFlags::CREATE, "create"),
        (OFlags::EXCL, "create_new"),
        (OFlags::SYNC, "sync_all"),
        (OFlags::DSYNC, "sync_data"),
        (OFlags::PATH, "O_PATH"),
    ] {
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).custom_flags(flag.bits().cast_signed());
        let error = options.open(&ours).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(method), "{error}");
    }
    assert_eq!(fs::read(&ours).unwrap(), b"contents");
    rig.assert_idle();
}

/// Goal: descriptors that the program has opened are read and written, whatever they are open for, and their position stays.
#[test]
fn given_descriptors_are_read_and_written() {
    for kind in drivers(3) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let by_path = |flags: OFlags| {
            fs::OpenOptions::new().write(true).read(true).custom_flags(flags.bits().cast_signed()).open(&path)
        };
        let memory: fs::File = memfd_create("in memory", MemfdFlags::CLOEXEC).unwrap().into();
        let givens = [
            ("without a name", tempfile::tempfile_in(directory.path()).unwrap()),
            ("in memory", memory),
            ("read and write", by_path(OFlags::empty()).unwrap()),
            ("write only", fs::OpenOptions::new().write(true).open(&path).unwrap()),
            ("direct", by_path(OFlags::DIRECT).unwrap_or_else(|_| by_path(OFlags::empty()).unwrap())),
            ("appending", fs::OpenOptions::new().append(true).open(&path).unwrap()),
        ];
        for (name, mut given) in givens {
            given.set_len(0).unwrap();
            given.seek(SeekFrom::Start(7)).unwrap();
            let another = given.try_clone().unwrap();
            let file = OpenOptions::new().engine(&rig.engine).open_std(given).unwrap();
            if name == "appending" {
                assert_eq!(file.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::InvalidInput);
                assert_eq!(file.append(b"0123456789").unwrap(), 0);
            } else {
                file.write_all_at(b"0123456789", 0).unwrap();
            }
            let mut seen = [0; 4];
            file.read_exact_at(&mut seen, 3).unwrap();
            assert_eq!(&seen, b"3456", "{name}");
            file.sync_data().unwrap();
            assert_eq!((&another).stream_position().unwrap(), 7, "{name}");
            drop(file);
            assert_eq!(another.metadata().unwrap().len(), 10, "{name}");
        }
        let file = OpenOptions::new().engine(&rig.engine).open_std(fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(file.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(file.path().ends_with("file"), "{}", file.path().display());
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: what has no positions, or no contents, is refused.
#[test]
fn descriptors_that_are_refused() {
    let (rig, directory) = (Rig::sim(4), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    fs::write(&path, "contents").unwrap();
    let (pipe, _writer) = std::io::pipe().unwrap();
    let pathless = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::PATH.bits().cast_signed())
        .open(&path)
        .unwrap();
    for (given, kind) in [
        (OwnedFd::from(pipe), ErrorKind::Unsupported),
        (fs::File::open(directory.path()).unwrap().into(), ErrorKind::IsADirectory),
    ] {
        let error = OpenOptions::new().engine(&rig.engine).open_std(given.into()).unwrap_err();
        assert_eq!((error.kind(), error.operation()), (kind, Operation::Open), "{error}");
    }
    let error = OpenOptions::new().engine(&rig.engine).open_std(pathless).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(9), "{error}");
    rig.assert_idle();
}

/// Goal: a descriptor of a file that the process may not open itself serves as it is, and one that cannot serve is refused. Method: a
/// child gives up its rights.
#[test]
fn descriptors_of_others_serve() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can give up its rights");
    }
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "contents").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let open =
        |append: bool| fs::OpenOptions::new().read(true).write(true).append(append).open(&path).unwrap();
    let (given, appending) = (open(false), open(true));
    run_forked(move || {
        let user = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let rig = Rig::sim(5);
        let mut options = OpenOptions::new();
        let file = options.engine(&rig.engine).open_std(given).unwrap();
        assert!(!file.is_direct());
        file.write_all_at(b"C", 0).unwrap();
        file.sync_data().unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"Contents");
        let refused = options.open_std(appending).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    });
    assert_eq!(fs::read(&path).unwrap(), b"Contents");
}

/// Goal: locks that the program took through a descriptor before giving it stay until the file is dropped.
#[test]
fn a_given_lock_stays() {
    let (rig, directory) = (Rig::sim(6), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    fs::write(&path, "contents").unwrap();
    let given = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    given.lock().unwrap();
    let theirs = fs::File::open(&path).unwrap();
    let file = OpenOptions::new().engine(&rig.engine).open_std(given).unwrap();
    file.write_all_at(b"C", 0).unwrap();
    file.sync_data().unwrap();
    let another = file.try_clone().unwrap();
    drop(file);
    assert!(matches!(theirs.try_lock(), Err(TryLockError::WouldBlock)));
    drop(another);
    rig.assert_idle();
    theirs.try_lock().unwrap();
}

/// Goal: what was written under a lock is in the file when the next program has it, however the lock ended, also while a POSIX lock keeps
/// descriptors of the file open; and the next lock sees what others wrote.
#[test]
fn a_lock_hands_the_file_over() {
    for kind in drivers(7) {
        for is_parked in [false, true] {
            let (rig, directory) = (Rig::new(kind.clone()), ScratchDir::on_target().unwrap());
            let path = directory.path().join("file");
            fs::write(&path, vec![b'-'; 10_000]).unwrap();
            let theirs = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
            if is_parked {
                fcntl_lock(&theirs, FlockOperation::NonBlockingLockShared).unwrap();
            }
            let open = || {
                let mut options = OpenOptions::new();
                options.engine(&rig.engine).caching(Caching::On).revalidate(Duration::MAX).write(true);
                options.open(&path).unwrap()
            };
            let file = open();
            file.lock().unwrap();
            assert!(matches!(theirs.try_lock_shared(), Err(TryLockError::WouldBlock)));
            file.write_all_at(b"one", 5000).unwrap();
            file.unlock().unwrap();
            theirs.try_lock().unwrap();
            assert_eq!(&fs::read(&path).unwrap()[5000..5003], b"one");
            assert!(matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
            assert!(matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)));
            (&theirs).write_all(b"two").unwrap();
            theirs.unlock().unwrap();
            file.lock_shared().unwrap();
            let mut seen = [0; 3];
            file.read_exact_at(&mut seen, 0).unwrap();
            assert_eq!(&seen, b"two");
            file.unlock().unwrap();
            file.try_lock().unwrap();
            file.write_all_at(b"end", 9997).unwrap();
            drop(file);
            theirs.try_lock().unwrap();
            assert_eq!(&fs::read(&path).unwrap()[9997..], b"end");
            rig.assert_idle();
        }
    }
}

/// Goal: a call that takes the lock and then cannot look at the file fails, and holds no lock; one that the file had before stays. Method:
/// all four calls, in a child in which the system refuses `statx(2)` and its like.
#[test]
fn a_lock_that_fails_is_not_held() {
    const CHILD: &str = "HEADWATER_TEST_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("standard::a_lock_that_fails_is_not_held", CHILD, "1");
        return assert!(output.status.success(), "{output:?}");
    }
    let (rig, directory) = (Rig::new(headwater::DriverKind::Threads), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    fs::write(&path, "contents").unwrap();
    let mut options = OpenOptions::new();
    let file = options.engine(&rig.engine).caching(Caching::On).write(true).open(&path).unwrap();
    let theirs = fs::File::open(&path).unwrap();
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            forbid_status_here();
            let is_free = || theirs.try_lock().map(|()| theirs.unlock().unwrap());
            file.lock().expect_err("the file cannot be looked at");
            is_free().unwrap();
            file.lock_shared().expect_err("the file cannot be looked at");
            is_free().unwrap();
            assert!(matches!(file.try_lock(), Err(TryLockError::Error(_))));
            is_free().unwrap();
            assert!(matches!(file.try_lock_shared(), Err(TryLockError::Error(_))));
            is_free().unwrap();
        });
        refused.join().unwrap();
        file.lock().unwrap();
        let refused = scope.spawn(|| {
            forbid_status_here();
            file.lock().expect_err("the file cannot be looked at");
            assert!(
                matches!(theirs.try_lock(), Err(TryLockError::WouldBlock)),
                "the lock from before has ended"
            );
        });
        refused.join().unwrap();
    });
    file.unlock().unwrap();
    theirs.try_lock().unwrap();
    drop(file);
    rig.assert_idle();
}

/// Goal: where the file system has no direct I/O, opening for that fails and leaves no file behind that it has created, whether it must be
/// new or not; one that was there stays. Method: tmpfs.
#[test]
fn a_refused_opening_leaves_no_file() {
    let directory = match tmpfs() {
        Ok(directory) => directory,
        Err(reason) => return skip(reason),
    };
    let path = directory.path().join("file");
    for kind in drivers(10) {
        let rig = Rig::new(kind);
        let open = |is_new: bool, append: bool| {
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).io(IoMode::Direct).write(true).append(append);
            options.create(true).create_new(is_new).open(&path).unwrap_err()
        };
        for (is_new, append) in [(false, false), (true, false), (false, true), (true, true)] {
            assert_eq!(open(is_new, append).kind(), ErrorKind::Unsupported);
            assert!(!path.exists(), "a file of a call that failed");
        }
        for contents in ["", "contents"] {
            fs::write(&path, contents).unwrap();
            assert_eq!(open(false, false).kind(), ErrorKind::Unsupported);
            assert_eq!(open(true, false).kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
        fs::remove_file(&path).unwrap();
        rig.assert_idle();
    }
}

/// Goal: the same where the file is created and there is no descriptor left to append with. Method: a child that may open one more
/// descriptor.
#[test]
fn an_opening_without_descriptors_leaves_no_file() {
    const CHILD: &str = "HEADWATER_TEST_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let name = "standard::an_opening_without_descriptors_leaves_no_file";
        let output = run_self_with_env(name, CHILD, "1");
        return assert!(output.status.success(), "{output:?}");
    }
    let (rig, directory) = (Rig::new(headwater::DriverKind::Threads), ScratchDir::on_target().unwrap());
    let path = directory.path().join("log");
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).append(true).create(true);
    // What is opened once for all files is open by then.
    drop(options.open(directory.path().join("another")).unwrap());
    rig.assert_idle();
    // Each new descriptor is the lowest that is free.
    let next = fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next + 1), maximum: Some(next + 1) }).unwrap();
    let error = options.open(&path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()), "{error}");
    assert!(!path.exists(), "a file of a call that failed");
}

/// Goal: times and permissions that a handle sets are no change by another program: pages stay, and the file is written to as before. Method:
/// checks after each, with and without a write before; conflicts are looked for.
#[test]
fn metadata_that_is_set_is_an_own_change() {
    for kind in drivers(3) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let path = directory.path().join("file");
        fs::write(&path, [1; 64 << 10]).unwrap();
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).caching(Caching::On).coherence(Coherence::Checked).write(true);
        let file = options.open(&path).unwrap();
        for round in 0..6 {
            file.read_exact_at(&mut [0; 64 << 10], 0).unwrap();
            if round % 2 == 0 {
                file.write_all_at(&[1; 100], 5000).unwrap();
                file.sync_data().unwrap();
                file.read_exact_at(&mut [0; 64 << 10], 0).unwrap();
            }
            match round / 2 {
                0 => file.set_modified(SystemTime::UNIX_EPOCH).unwrap(),
                1 => file.set_permissions(Permissions::from_mode(0o600 + round)).unwrap(),
                _ => file.set_times(FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH)).unwrap(),
            }
            file.write_all_at(&[2; 100], 0).unwrap();
            file.refresh().unwrap();
            let pages = file.stats().resident_pages;
            assert!(
                file.coherence() != Coherence::Checked || pages == 16,
                "{round}: {pages} on {}",
                rig.name()
            );
            file.sync_data().unwrap();
        }
    }
}

/// Goal: metadata knows the length of what was written, times that were set stay, permissions change; a file in memory has none of it.
#[test]
fn metadata_is_that_of_the_written_file() {
    for kind in drivers(8) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let path = directory.path().join("file");
        let file = created(&rig, &path);
        file.append(&[1; 70_000]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 70_000);
        file.write_all_at(&[2; 100], 4000).unwrap();
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_times(FileTimes::new().set_accessed(past).set_modified(past)).unwrap();
        file.set_permissions(Permissions::from_mode(0o604)).unwrap();
        drop(file);
        rig.engine.flush().unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.modified().unwrap(), found.mode() & 0o777), (past, 0o604));
        rig.assert_idle();
    }
    let memory = File::from_bytes("contents");
    assert!(memory.as_std().is_none());
    for error in [memory.metadata().map(drop), memory.lock(), memory.set_modified(SystemTime::now())] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

fn created(rig: &Rig, path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).write(true).create(true).open(path).unwrap()
}

/// Goal: the time of modification moves when bytes reach the file, at a flush for instance, and neither when they are written into memory nor
/// when a sync or a flush has nothing to write. Method: a time that is long past, looked for behind each step.
#[test]
fn times_move_when_bytes_reach_the_file() {
    for kind in drivers(8) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let (path, past) =
            (directory.path().join("file"), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let file = created(&rig, &path);
        let modified = || fs::metadata(&path).unwrap().modified().unwrap();
        file.write_all_at(&[1; 100_000], 0).unwrap();
        // Some file systems note the time of a write when its blocks are on the device.
        file.sync_all().unwrap();
        file.set_modified(past).unwrap();
        file.sync_all().unwrap();
        file.flush().unwrap();
        assert_eq!(modified(), past, "{}: nothing was written", rig.name());
        file.write_all_at(&[2; 100], 50_000).unwrap();
        assert_eq!(modified(), past, "{}: the bytes are in memory", rig.name());
        file.flush().unwrap();
        assert!(modified() > past, "{}: the bytes are in the file", rig.name());
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: vectored reads and writes move the buffers in order, also where the file ends within one, and beyond it.
#[test]
fn vectors_are_moved_in_order() {
    for kind in drivers(9) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let mut options = OpenOptions::new();
        let file =
            options.engine(&rig.engine).write(true).create(true).open(directory.path().join("file")).unwrap();
        let parts: [&[u8]; 4] = [b"one", b"", &[7; 9000], b"end"];
        assert_eq!(file.write_vectored_at(&parts.map(IoSlice::new), 4090).unwrap(), 9006);
        let [mut head, mut none, mut middle, mut tail] = [vec![0; 5], vec![], vec![0; 9000], vec![0; 5000]];
        let mut buffers = [&mut head, &mut none, &mut middle, &mut tail].map(|part| IoSliceMut::new(part));
        assert_eq!(file.read_vectored_at(&mut buffers, 4088).unwrap(), 9008);
        assert_eq!(head, b"\0\0one");
        assert_eq!((&middle[..], &tail[..3]), (&[7; 9000][..], &b"end"[..]));
        assert_eq!(file.read_vectored_at(&mut [IoSliceMut::new(&mut head)], 50_000).unwrap(), 0);
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: a vectored read that met the end of the file within a buffer reads nothing into those behind it, also if the file grows meanwhile:
/// what it says it read are the first bytes of the buffers. Method: a thread cuts and writes the end of the file while another reads. A byte
/// that was cut off beside the read may be zero.
#[test]
fn a_file_that_grows_beside_a_vectored_read() {
    const ROUNDS: usize = 20_000;
    const CUT: usize = 4500;
    const UNREAD: u8 = 255;
    let (rig, directory) = (Rig::new(DriverKind::Threads), ScratchDir::on_target().unwrap());
    let expected: Vec<u8> = (0..13_000_u32).map(|at| (at % 251) as u8 + 1).collect();
    let mut options = OpenOptions::new();
    let options = options.engine(&rig.engine).caching(Caching::On).write(true).create(true);
    let file = options.open(directory.path().join("file")).unwrap();
    file.write_all_at(&expected, 0).unwrap();
    let is_over = AtomicBool::new(false);
    let wrong = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.set_len(CUT as u64).unwrap();
                file.write_all_at(&expected[CUT..], CUT as u64).unwrap();
            }
        });
        let wrong = (0..ROUNDS).find_map(|_| {
            let mut parts = [4000, 1000, 4000, 4000].map(|length| vec![UNREAD; length]);
            let mut buffers = parts.each_mut().map(|part| IoSliceMut::new(part));
            let read = file.read_vectored_at(&mut buffers, 0).unwrap();
            let found = &parts.concat()[..read];
            found.iter().zip(&expected).position(|(found, expected)| ![*expected, 0].contains(found))
        });
        is_over.store(true, Ordering::Relaxed);
        wrong
    });
    assert_eq!(wrong, None, "the place of the first wrong byte");
    drop(file);
    rig.assert_idle();
}
