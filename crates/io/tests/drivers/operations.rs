//! Operations: calls that move no bytes, and calls in order, on each driver; also on rings that are not allowed to make them.
//!
//! Owns: results and errors of each, what becomes of those that are dropped, waits that end and that do not.
//! Does not own: transfers (calls).

use std::fs::File;
use std::io::{self, PipeReader, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use headwater_io::{
    Call, Calling, DeviceEvent, Driver, DriverKind, DriverOptions, LocalDriver, RingOperations, SimControl,
    SimOptions,
};
use headwater_testkit::{FuseMount, PATIENCE, Rng, forbid_io_uring, lack, run_forked, with_seed};

use crate::bench::{
    Bench, all_kinds, block_on, drivers, errno, errno_of, in_child, is_closed_on_exec, watched,
};

/// Goal: each call does what its namesake does. Method: the life of a file, and a look at it by std.
#[test]
fn the_life_of_a_file() {
    for bench in all_kinds(1) {
        let (driver, directory) = (&bench.driver, bench.directory.path());
        let [path, other] = ["one", "other"].map(|name| directory.join(name));
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let file = driver.call(Call::open(&path, flags, 0o640)).wait().result.unwrap();
        assert!(is_closed_on_exec(&file));
        let written = driver.call(Call::pwrite(file, [5; 10_000], 0)).wait();
        let (file, _) = written.given;
        let file = Arc::new(file);
        driver.call(Call::sync_range(file.clone(), 0, 0, libc::SYNC_FILE_RANGE_WRITE)).wait().result.unwrap();
        driver.call(Call::sync_data(file.clone())).wait().result.unwrap();
        block_on(driver.call(Call::sync_all(file.clone()))).result.unwrap();
        driver.call(Call::allocate(file.clone(), 0, 8192, 8192)).wait().result.unwrap();
        let known = std::fs::metadata(&path).unwrap();
        assert_eq!(known.len(), 16_384);
        let by_path = driver.call(Call::attributes(&path)).wait().result.unwrap();
        let by_file = block_on(driver.call(Call::attributes_of(file.clone())));
        assert_eq!(by_path, by_file.result.unwrap());
        assert_eq!((by_path.mode, by_path.length_bytes, by_path.inode), (known.mode(), 16_384, known.ino()));
        assert_eq!((by_path.device, by_path.links, by_path.user), (known.dev(), 1, known.uid()));
        assert_eq!(by_path.allocated_bytes, known.blocks() * 512);
        assert_eq!(by_path.modified, known.modified().unwrap());
        assert_eq!(by_path.created, known.created().ok());
        assert!(
            by_path.changed.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64 == known.ctime()
        );
        driver.call(Call::rename(&path, &other, 0)).wait().result.unwrap();
        assert!(!path.exists() && other.exists());
        drop(by_file.given);
        let file = Arc::into_inner(file).expect("all calls gave it back");
        let number = file.as_raw_fd();
        driver.call(Call::close(file)).wait().result.unwrap();
        assert_ne!(driver.call(Call::unlink(&other)).wait().result.map_err(|_| number), Err(number));
        assert!(!other.exists());
        std::fs::create_dir(&path).unwrap();
        driver.call(Call::remove_directory(&path)).wait().result.unwrap();
        assert!(!path.exists());
        assert_eq!(driver.call(Call::nop("given")).wait().given, "given");
        bench.assert_idle();
    }
}

/// Goal: errors are those of the system calls.
#[test]
fn errors() {
    for bench in all_kinds(2) {
        let (driver, missing) = (&bench.driver, bench.directory.path().join("missing"));
        let open = |path: &Path, flags| driver.call(Call::open(path, flags, 0o600)).wait().result.map(drop);
        assert_eq!(errno_of(open(&missing, libc::O_RDONLY)), libc::ENOENT);
        assert_eq!(errno_of(open(&bench.path(), libc::O_CREAT | libc::O_EXCL)), libc::EEXIST);
        let invalid = open(Path::new("with\0zero"), libc::O_RDONLY).unwrap_err();
        assert_eq!(invalid.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(errno_of(driver.call(Call::attributes(&missing)).wait().result.map(drop)), libc::ENOENT);
        assert_eq!(errno_of(driver.call(Call::unlink(&missing)).wait().result), libc::ENOENT);
        assert_eq!(errno_of(driver.call(Call::unlink(bench.directory.path())).wait().result), libc::EISDIR);
        let keep = driver.call(Call::rename(bench.path(), bench.path(), libc::RENAME_NOREPLACE)).wait();
        assert_eq!(errno_of(keep.result), libc::EEXIST);
        let read_only = File::open(bench.path()).unwrap();
        assert_eq!(errno_of(driver.call(Call::allocate(read_only, 0, 0, 10)).wait().result), libc::EBADF);
        let (reader, _writer) = pipe().unwrap();
        assert_eq!(errno_of(driver.call(Call::sync_all(reader)).wait().result), libc::EINVAL);
        let (reader, _writer) = pipe().unwrap();
        let read = driver.call(Call::pread(reader, [0; 1], 0));
        if bench.name() == "uring" {
            // Waits for a byte, until it is given up.
            drop(read);
        } else {
            assert_eq!(errno(&read.wait().result), Some(libc::ESPIPE));
        }
        watched(bench.name(), || bench.assert_idle());
    }
}

/// Goal: a file is closed once whatever its file system reports: its number may be another file's by then. Method: a FUSE server that
/// reports an error, and files opened before the result is looked at.
#[test]
fn what_a_file_system_reports_at_a_close() {
    if !in_child("operations::what_a_file_system_reports_at_a_close") {
        return;
    }
    let mount = match FuseMount::new(PATIENCE) {
        Ok(mount) => mount,
        Err(reason) => return lack(reason),
    };
    let path = mount.put("file", b"x");
    mount.refuse_flushes();
    // The simulation goes on only while a thread waits.
    for bench in all_kinds(3).into_iter().filter(|bench| bench.name() != "sim") {
        let file = OwnedFd::from(File::open(&path).unwrap());
        let number = file.as_raw_fd();
        let closing = bench.driver.call(Call::close(file));
        watched(bench.name(), || {
            while !closing.is_done() {
                thread::yield_now();
            }
        });
        let others: Vec<File> = (0..20).map(|_| File::open(bench.path()).unwrap()).collect();
        assert!(others.iter().any(|other| other.as_raw_fd() == number), "{}", bench.name());
        assert_eq!(errno_of(closing.wait().result), libc::EACCES, "{}", bench.name());
        assert!(
            others.iter().all(|other| other.metadata().is_ok()),
            "{}: another file is closed",
            bench.name()
        );
        bench.assert_idle();
    }
}

/// Goal: descriptors of calls that no caller waits for are closed: those that come to be, and those to be closed, also if the call is refused.
/// Method: count them, in a process of its own.
#[test]
fn no_descriptor_is_left() {
    if !in_child("operations::no_descriptor_is_left") {
        return;
    }
    with_seed("operations::no_descriptor_is_left", |seed| {
        for bench in all_kinds(seed) {
            let mut rng = Rng::new(seed);
            drop(bench.driver.call(Call::timeout(Duration::ZERO)).wait());
            let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
            let before = count();
            for _ in 0..100 {
                give_up(bench.driver.call(Call::open(bench.path(), libc::O_RDONLY, 0)), &mut rng);
                let directory = File::open(bench.directory.path()).unwrap();
                give_up(bench.driver.call(Call::open_at(directory, ".", libc::O_RDONLY, 0)), &mut rng);
                let file = OwnedFd::from(File::open(bench.path()).unwrap());
                give_up(bench.driver.call(Call::close(file)), &mut rng);
            }
            bench.assert_idle();
            let file = OwnedFd::from(File::open(bench.path()).unwrap());
            run_forked(|| {
                // The parent's driver refuses; the child's copy is closed.
                let copy = file.try_clone().unwrap();
                let number = copy.as_raw_fd();
                assert!(bench.driver.call(Call::close(copy)).wait().result.is_err());
                assert!(!Path::new(&format!("/proc/self/fd/{number}")).exists());
            });
            drop(file);
            let deadline = Instant::now() + PATIENCE;
            while count() != before {
                assert!(Instant::now() < deadline, "{} descriptors instead of {before}", count());
                thread::yield_now();
            }
        }
    });
}

fn give_up<T: headwater_io::CallOutput>(mut call: Calling<T>, rng: &mut Rng) {
    for _ in 0..rng.below(3) {
        if Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
    }
    if rng.chance(1, 3) {
        call.cancel();
    }
}

/// Goal: timeouts end in their order and not before, awaited by threads and tasks, beside transfers.
#[test]
fn timeouts() {
    for bench in all_kinds(3) {
        let began = Instant::now();
        let call = |milliseconds| bench.driver.call(Call::timeout(Duration::from_millis(milliseconds)));
        watched(bench.name(), || {
            let (late, soon) = (call(80), call(20));
            bench
                .driver
                .call(Call::pread(File::open(bench.path()).unwrap(), [0; 1], 0))
                .wait()
                .result
                .unwrap();
            block_on(soon).result.unwrap();
            assert!(began.elapsed() >= Duration::from_millis(20));
            assert!(!late.is_done() || began.elapsed() >= Duration::from_millis(80));
            late.wait().result.unwrap();
            assert!(began.elapsed() >= Duration::from_millis(80));
            call(0).wait().result.unwrap();
        });
        bench.assert_idle();
    }
}

/// Goal: a simulated hour is over when the driver's clock says so.
#[test]
fn timeouts_of_a_simulated_clock() {
    let control = SimControl::default();
    let options = SimOptions { control: control.clone(), ..SimOptions::hostile(4) };
    let bench = Bench::new(DriverKind::Sim(options), 4, 4);
    control.advance(Duration::from_secs(7200));
    let mut hour = bench.driver.call(Call::timeout(Duration::from_secs(3600)));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..50 {
        assert!(Pin::new(&mut hour).poll(&mut context).is_pending());
    }
    bench.driver.attend();
    control.advance(Duration::from_secs(3600));
    watched("sim", || hour.wait().result.unwrap());
    bench.assert_idle();
}

/// Goal: waits that never end by themselves end when they are cancelled or dropped, in any state, by any thread; and hold up neither other
/// requests nor the end of the driver. Method: more of them than have a place; some leaked.
#[test]
fn endless_waits_end() {
    with_seed("operations::endless_waits_end", |seed| {
        for bench in all_kinds(seed) {
            let (mut rng, driver) = (Rng::new(seed), bench.driver.clone());
            let (reader, _writer) = pipe().unwrap();
            let reader = Arc::new(reader);
            watched(bench.name(), || {
                for _ in 0..30 {
                    end_all(&driver, &reader, &mut rng);
                }
                drop(driver);
            });
            bench.assert_idle();
            let deadline = Instant::now() + PATIENCE;
            while Arc::strong_count(&reader) > 1 {
                assert!(Instant::now() < deadline, "a call keeps its descriptor");
                thread::yield_now();
            }
        }
        for kind in drivers(seed) {
            // By itself: what is leaked keeps its queue alive.
            let options = DriverOptions { kind, queue_depth: 4, ..DriverOptions::default() };
            let driver = Driver::new(&options).unwrap();
            watched("leaked", || {
                std::mem::forget(driver.call(Call::timeout(ENDLESS)));
                drop(driver);
            });
        }
    });
}

fn end_all(driver: &Driver, reader: &Arc<PipeReader>, rng: &mut Rng) {
    let mut polls = Vec::new();
    let mut timeouts = Vec::new();
    for _ in 0..6 {
        polls.push(driver.call(Call::poll(reader.clone(), libc::POLLIN as u32)));
        timeouts.push(driver.call(Call::timeout(ENDLESS)));
    }
    while let Some(mut poll) = polls.pop() {
        match rng.below(4) {
            0 if driver.stats().queued == 0 => {
                poll.cancel();
                let cancelled = if rng.chance(1, 2) { poll.wait() } else { block_on(poll) };
                assert_eq!(cancelled.result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
            }
            1 => drop(thread::spawn(move || drop(poll)).join()),
            2 => {
                assert!(Pin::new(&mut poll).poll(&mut Context::from_waker(Waker::noop())).is_pending());
                drop(poll);
            }
            _ => drop(poll),
        }
    }
    timeouts.into_iter().for_each(|timeout| give_up(timeout, rng));
    driver.call(Call::nop(())).wait().result.unwrap();
}

/// Goal: a poll says what a descriptor is ready for: at once, later, and that the other end is gone.
#[test]
fn polls() {
    for bench in all_kinds(5) {
        let (reader, mut writer) = pipe().unwrap();
        let reader = Arc::new(reader);
        let poll = || bench.driver.call(Call::poll(reader.clone(), libc::POLLIN as u32));
        watched(bench.name(), || {
            let waiting = [poll(), poll()];
            thread::scope(|scope| {
                let [first, second] = waiting;
                let waited = scope.spawn(|| first.wait().result.unwrap());
                writer.write_all(b"x").unwrap();
                assert_eq!(waited.join().unwrap(), libc::POLLIN as u32);
                assert_eq!(block_on(second).result.unwrap(), libc::POLLIN as u32);
            });
            let ready = poll().wait();
            assert!(ready.result.is_ok() && Arc::ptr_eq(&ready.given, &reader));
            drop(writer);
            assert_ne!(poll().wait().result.unwrap() & libc::POLLHUP as u32, 0);
        });
        bench.assert_idle();
    }
}

/// Goal: what waits goes on when the thread that asked for it has ended.
#[test]
fn the_thread_that_asked_is_gone() {
    for bench in all_kinds(6) {
        let ((reader, mut writer), began) = (pipe().unwrap(), Instant::now());
        let driver = bench.driver.clone();
        let asked = thread::spawn(move || {
            let timeout = driver.call(Call::timeout(Duration::from_millis(50)));
            (timeout, driver.call(Call::poll(reader, libc::POLLIN as u32)))
        });
        let (timeout, poll) = asked.join().unwrap();
        watched(bench.name(), || {
            timeout.wait().result.unwrap();
            assert!(began.elapsed() >= Duration::from_millis(50));
            writer.write_all(b"x").unwrap();
            poll.wait().result.unwrap();
        });
        bench.assert_idle();
    }
}

/// Goal: calls in order are made in order, each when the one before has succeeded in full, and not at all otherwise.
#[test]
fn one_after_the_other() {
    for bench in all_kinds(7) {
        let (driver, directory) = (&bench.driver, bench.directory.path());
        let [new, path] = ["new", "path"].map(|name| directory.join(name));
        watched(bench.name(), || {
            for round in 0..20_u8 {
                let file = Arc::new(File::create(&new).unwrap());
                let replaced = Call::pwritev(file.clone(), vec![[round; 3000], [round; 3000]], 0)
                    .then(Call::pwrite(file.clone(), vec![round; 50_000], 6000))
                    .then(Call::sync_data(file.clone()))
                    .then(Call::timeout(Duration::from_micros(100)))
                    .then(Call::rename(&new, &path, 0));
                let done = if round % 2 == 0 {
                    driver.call(replaced).wait()
                } else {
                    block_on(driver.call(replaced))
                };
                let ((((first, second), synced), _), renamed) = done;
                assert_eq!((first.result.unwrap(), second.result.unwrap()), (6000, 50_000));
                synced.result.unwrap();
                renamed.result.unwrap();
                assert!(std::fs::read(&path).unwrap() == [round; 56_000]);
            }
            let read_only = Arc::new(File::open(&path).unwrap());
            let failed = Call::pwrite(read_only.clone(), "x", 0).then(Call::unlink(&path));
            let (written, unlinked) = driver.call(failed).wait();
            assert_eq!(errno(&written.result), Some(libc::EBADF));
            assert_eq!(errno_of(unlinked.result), libc::ECANCELED);
            let short = Call::pread(read_only.clone(), vec![0; 10], 55_995).then(Call::unlink(&path));
            let (read, unlinked) = driver.call(short).wait();
            assert_eq!((read.result.unwrap(), errno_of(unlinked.result)), (5, libc::ECANCELED));
            let cancelled = driver.call(Call::timeout(ENDLESS).then(Call::unlink(&path)));
            cancelled.cancel();
            let (waited, unlinked) = cancelled.wait();
            assert_eq!(
                (errno_of(waited.result), errno_of(unlinked.result)),
                (libc::ECANCELED, libc::ECANCELED)
            );
            assert!(path.exists());
        });
        bench.assert_idle();
    }
}

/// Goal: calls in order that were dropped are carried out if they change anything; with a wait in them they end there.
#[test]
fn one_after_the_other_without_a_caller() {
    for bench in all_kinds(8) {
        let directory = bench.directory.path();
        let [new, path, waited] = ["new", "path", "waited"].map(|name| directory.join(name));
        watched(bench.name(), || {
            let file = Arc::new(File::create(&new).unwrap());
            let replaced = Call::pwrite(file.clone(), vec![7; 100_000], 0)
                .then(Call::sync_data(file.clone()))
                .then(Call::rename(&new, &path, 0));
            drop(bench.driver.call(replaced));
            drop(bench.driver.call(Call::timeout(ENDLESS).then(Call::rename(&path, &waited, 0))));
            bench.assert_idle();
            assert!(std::fs::read(&path).unwrap() == [7; 100_000]);
            assert!(!waited.exists());
            assert_eq!(Arc::strong_count(&file), 1);
        });
    }
}

/// Goal: with a lock for each key that its calls keep, no two calls of a key are under way at a time, also when futures are dropped in the
/// middle; an endless call of one key holds up no other. Method: the locks count their holders.
#[test]
fn one_at_a_time_for_each_key() {
    with_seed("operations::one_at_a_time_for_each_key", |seed| {
        for bench in all_kinds(seed) {
            let keys = [(); 3].map(|()| Key::default());
            let file = Arc::new(File::options().read(true).write(true).open(bench.path()).unwrap());
            let (reader, _writer) = pipe().unwrap();
            watched(bench.name(), || {
                let blocked = keys[2].lock();
                let endless = bench.driver.call(Call::poll(reader, libc::POLLIN as u32).keeping(blocked));
                thread::scope(|scope| {
                    for number in 0..2 {
                        let (bench, keys, file) = (&bench, &keys[..2], &file);
                        scope.spawn(move || use_keys(bench, keys, file, &mut Rng::new(seed ^ number)));
                    }
                });
                assert!(!endless.is_done() && keys[2].is_held());
                drop(endless);
                bench.driver.attend();
                drop(keys[2].lock());
            });
            // The last write of a key may have been dropped, and may still be under way.
            bench.assert_idle();
            let written = std::fs::read(bench.path()).unwrap();
            for (key, part) in keys[..2].iter().zip(written.chunks(8192)) {
                assert_eq!(part[0], key.last(), "an earlier write was made later");
                assert!(part.iter().all(|byte| *byte == part[0]), "two writes were mixed");
            }
        }
    });
}

fn use_keys(bench: &Bench, keys: &[Key], file: &Arc<File>, rng: &mut Rng) {
    for _ in 0..60 {
        let place = rng.below(2) as usize;
        let turn = keys[place].lock();
        let byte = turn.byte();
        let write = Call::pwrite(file.clone(), vec![byte; 8192], 8192 * place as u64).keeping(turn);
        let call = bench.driver.call(write);
        match rng.below(3) {
            0 => assert_eq!(call.wait().result.unwrap(), 8192),
            1 => assert_eq!(block_on(call).result.unwrap(), 8192),
            _ => drop(call),
        }
        // The simulated device completes what was dropped while others wait.
        bench.driver.attend();
    }
}

/// A lock, and how often it was taken.
#[derive(Clone, Default)]
struct Key(Arc<(AtomicBool, AtomicU8)>);

struct Turn(Key, u8);

impl Key {
    fn lock(&self) -> Turn {
        while self.0.0.swap(true, Ordering::AcqRel) {
            thread::yield_now();
        }
        Turn(self.clone(), self.0.1.fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn is_held(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    fn last(&self) -> u8 {
        self.0.1.load(Ordering::Acquire)
    }
}

impl Turn {
    fn byte(&self) -> u8 {
        self.1
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        assert_eq!(self.0.last(), self.1, "another one was here meanwhile");
        assert!(self.0.0.0.swap(false, Ordering::AcqRel), "two held it");
    }
}

/// Goal: an entry that has no method is carried out by a ring that is allowed to; all else says that it is not supported.
#[test]
#[allow(unsafe_code)]
fn raw_entries() {
    for kind in drivers(9) {
        for operations in [RingOperations::Any, RingOperations::Calls] {
            let options =
                DriverOptions { kind: kind.clone(), operations, queue_depth: 4, ..Default::default() };
            let bench = Bench::with(&options, 9);
            let path = bench.directory.path().join("made");
            let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            let here = io_uring::types::Fd(libc::AT_FDCWD);
            let entry = io_uring::opcode::MkDirAt::new(here, text.as_ptr()).mode(0o700).build();
            // SAFETY: the path's bytes lie on the heap for as long as the call has the text.
            let call = unsafe { Call::raw(entry, text) };
            let made = bench.driver.call(call).wait();
            if bench.name() == "uring" && operations == RingOperations::Any {
                assert_eq!((made.result.unwrap(), path.is_dir()), (0, true));
            } else {
                assert_eq!(made.result.unwrap_err().kind(), io::ErrorKind::Unsupported);
                assert!(!path.exists());
            }
            assert!(made.given.to_str().unwrap().ends_with("made"));
            bench.driver.call(Call::attributes(bench.path())).wait().result.unwrap();
            bench.assert_idle();
        }
    }
}

/// Goal: on the simulated device, space that is set aside is its space, and in its log.
#[test]
fn space_of_the_simulated_device() {
    let control = SimControl::default();
    let options = SimOptions { control: control.clone(), ..SimOptions::hostile(10) };
    let bench = Bench::new(DriverKind::Sim(options), 4, 10);
    let file = Arc::new(File::create(bench.directory.path().join("new")).unwrap());
    control.space_left(Some(8192));
    control.record();
    let allocate = |mode, length_bytes| {
        bench.driver.call(Call::allocate(file.clone(), mode, 0, length_bytes)).wait().result
    };
    assert_eq!(errno_of(allocate(0, 10_000)), libc::ENOSPC);
    allocate(0, 8192).unwrap();
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    assert_eq!(allocate(hole, 4096).unwrap_err().kind(), io::ErrorKind::Unsupported);
    let log = control.take_log();
    assert!(matches!(&log[..], [DeviceEvent::Allocate { ended: Some(_), .. }]), "{log:?}");
    bench.assert_idle();
}

/// Goal: waits of a local driver end by its loop, and those that other threads drop when the driver ends.
#[test]
fn local_drivers() {
    let local = LocalDriver::new(&DriverOptions { queue_depth: 8, ..DriverOptions::default() }).unwrap();
    let (reader, mut writer) = pipe().unwrap();
    watched("waits", || {
        let call = |time| local.driver().call(Call::timeout(time));
        local.block_on(call(Duration::from_millis(5))).result.unwrap();
        drop(call(ENDLESS));
        let poll = local.driver().call(Call::poll(reader, libc::POLLIN as u32));
        writer.write_all(b"x").unwrap();
        local.block_on(poll).result.unwrap();
    });
    let elsewhere = local.driver().call(Call::timeout(ENDLESS));
    thread::spawn(move || drop(elsewhere)).join().unwrap();
    watched("dropping it", || drop(local));
}

/// Goal: a process that forbids itself the ring makes calls all the same, those that wait included.
#[test]
fn the_ring_is_forbidden_later() {
    if !in_child("operations::the_ring_is_forbidden_later") {
        return;
    }
    let Some(bench) = all_kinds(11).into_iter().find(|bench| bench.name() == "uring") else { return };
    let early = bench.driver.call(Call::timeout(Duration::from_millis(100)));
    forbid_io_uring();
    watched("calls", || {
        let opened = bench.driver.call(Call::open(bench.path(), libc::O_RDONLY, 0)).wait().result.unwrap();
        let poll = Call::poll(opened, libc::POLLIN as u32).then(Call::attributes(bench.path()));
        assert!(block_on(bench.driver.call(poll)).1.result.is_ok());
        block_on(bench.driver.call(Call::timeout(Duration::from_millis(10)))).result.unwrap();
        let endless = bench.driver.call(Call::timeout(ENDLESS));
        endless.cancel();
        assert_eq!(errno_of(endless.wait().result), libc::ECANCELED);
        drop(bench.driver.call(Call::timeout(ENDLESS)));
        early.wait().result.unwrap();
    });
    bench.assert_idle();
}

const ENDLESS: Duration = Duration::from_secs(1 << 40);
