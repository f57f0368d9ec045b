//! Watching: changes by other processes are counted, those of this one are not.
//!
//! Owns: every way to change a file, in any order, by threads, rings, other processes and children.
//! Does not own: what an engine makes of it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater_core::units::ByteRange;
use headwater_io::{
    Access, Arena, ChangeWatch, DirectIo, Direction, Driver, DriverKind, DriverOptions, FileSystem, Fsync,
    OpenFile, Request, Route, SubmissionPolling, SyncScope, Transfer, Urgency, Watched, uring_refusal,
};
use headwater_testkit::{
    LoopMount, Rng, ScratchDir, run_forked, scratch_dirs, skip, tmpfs, with_seed, with_uring,
};
use rustix::io::Errno;

use crate::beside::{Shell, as_root_and_nobody};

const LENGTH_BYTES: usize = 64 << 10;

fn make(path: &Path) -> OpenFile {
    fs::write(path, vec![7; LENGTH_BYTES]).unwrap();
    open(path)
}

fn open(path: &Path) -> OpenFile {
    OpenFile::open(path, DirectIo::Preferred, Access::ReadWrite).unwrap()
}

/// Whether files here can be watched. Before Linux 5.13 only root may watch, and file systems without a number, such as tmpfs before
/// Linux 6.7, cannot be watched.
fn is_watchable(name: &str, directory: &Path) -> bool {
    let refused = match ChangeWatch::new().and_then(|watch| watch.add(&make(&directory.join("probe")))) {
        Ok(_) => return true,
        Err(error) => error,
    };
    let errno = refused.raw_os_error().map(Errno::from_raw_os_error);
    assert!(matches!(errno, Some(Errno::NODEV | Errno::PERM)), "{name}: {refused}");
    skip(format!("{name}: watching files: {refused}"));
    false
}

/// What was counted since it was asked last.
struct Counted<'a> {
    watch: &'a ChangeWatch,
    watched: &'a Watched,
    seen: u64,
}

impl<'a> Counted<'a> {
    fn new(watch: &'a ChangeWatch, watched: &'a Watched) -> Counted<'a> {
        Counted { watch, watched, seen: watched.foreign_changes() }
    }

    fn is_changed(&mut self) -> bool {
        self.watch.drain();
        let before = std::mem::replace(&mut self.seen, self.watched.foreign_changes());
        assert!(self.seen >= before);
        self.seen > before
    }
}

/// Goal: every way in which another program changes a file is counted by the time that its system call has returned, for root
/// and for a user without privileges, on every file system; what changes no contents is not. Method: a shell, and forked
/// children for calls that no tool makes.
#[test]
fn foreign_changes_are_counted() {
    as_root_and_nobody("watching::foreign_changes_are_counted", |name, directory| {
        if !is_watchable(name, directory) {
            return;
        }
        let (path, other) = (directory.join("file"), directory.join("other"));
        let (file, mut shell, watch) = (make(&path), Shell::new(), ChangeWatch::new().unwrap());
        fs::write(&other, [9; 8192]).unwrap();
        let watched = watch.add(&file).unwrap();
        let mut counted = Counted::new(&watch, &watched);
        assert!(!counted.is_changed(), "{name}: nothing was done yet");
        let text = path.display();
        for command in [
            format!("printf x >>{text}"),
            format!("printf x 1<>{text}"),
            format!("printf x >{text}"),
            format!("truncate -s 100000 {text}"),
            format!("truncate -s 1000 {text}"),
            format!("fallocate -l 200000 {text}"),
            format!("fallocate -n -l 400000 {text}"),
            format!("fallocate -p -o 4096 -l 4096 {text}"),
            format!("dd if=/dev/zero of={text} bs=4096 count=2 conv=notrunc"),
            format!("dd if=/dev/zero of={text} bs=4096 count=2 conv=notrunc oflag=direct"),
            format!("cp {} {text}", other.display()),
        ] {
            if command.ends_with("oflag=direct") && !takes_direct_io(&path) {
                continue; // tmpfs before Linux 6.6
            }
            shell.run(&command);
            assert!(counted.is_changed(), "{name}: {command}");
            assert!(!counted.is_changed(), "{name}: {command} is counted once");
        }
        for (call, change) in calls() {
            run_forked(|| change(&path, &other));
            assert!(counted.is_changed(), "{name}: {call}");
        }
        for options in drivers() {
            run_forked(|| {
                let (driver, arena) = (Driver::new(&options).unwrap(), Arena::new(9 << 20).unwrap());
                write_at_once(&driver, &arena, &Arc::new(open(&path)), 0);
            });
            assert!(counted.is_changed(), "{name}: {options:?}");
        }
        for command in [
            format!("chmod 644 {text}"),
            format!("touch {text}"),
            format!("cat {text} >/dev/null"),
            format!("ln {text} {text}.link"),
            format!("mv {} {text}", other.display()),
            format!("printf x >>{text}"),
        ] {
            shell.run(&command);
            assert!(!counted.is_changed(), "{name}: {command}");
        }
        watch.remove(&watched, &file).unwrap();
    });
}

fn takes_direct_io(path: &Path) -> bool {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).is_ok()
}

/// Goal: openings by another process are counted as that, whatever for, and not as changes; those of this one are not.
#[test]
fn foreign_openings_are_counted() {
    as_root_and_nobody("watching::foreign_openings_are_counted", |name, directory| {
        if !is_watchable(name, directory) {
            return;
        }
        let path = directory.join("file");
        let (file, mut shell, watch) = (make(&path), Shell::new(), ChangeWatch::new().unwrap());
        let watched = watch.add(&file).unwrap();
        let mut counted = Counted::new(&watch, &watched);
        drop((File::open(&path).unwrap(), open(&path)));
        assert!(!counted.is_changed());
        assert_eq!(watched.foreign_openings(), 0, "{name}: they are this process's");
        for (number, command) in ["cat {}", ": <>{}", ": >>{}"].into_iter().enumerate() {
            shell.run(&format!("{} >/dev/null", command.replace("{}", &path.display().to_string())));
            assert!(!counted.is_changed(), "{name}: {command}");
            assert_eq!(watched.foreign_openings(), number as u64 + 1, "{name}: {command}");
        }
        watch.remove(&watched, &file).unwrap();
    });
}

type Change = fn(&Path, &Path);

/// What a child does to the first file, by the second.
fn calls() -> [(&'static str, Change); 6] {
    [
        ("pwrite", |path, _| writes(path).write_all_at(b"x", 5).unwrap()),
        ("ftruncate", |path, _| writes(path).set_len(20_000).unwrap()),
        ("open with O_TRUNC", |path, _| drop(File::create(path).unwrap())),
        ("copy_file_range", |path, other| {
            let (mut from, mut to) = (0, 0);
            let (source, target) = (File::open(other).unwrap(), writes(path));
            rustix::fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), 4096).unwrap();
        }),
        ("sendfile", |path, other| {
            rustix::fs::sendfile(writes(path), File::open(other).unwrap(), None, 4096).unwrap();
        }),
        ("splice", |path, _| {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&writer, b"spliced").unwrap();
            let flags = rustix::pipe::SpliceFlags::empty();
            rustix::pipe::splice(&reader, None, writes(path).as_fd(), Some(&mut 3), 7, flags).unwrap();
        }),
    ]
}

fn writes(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Goal: what this process does is never taken for another's: by whichever descriptor, thread, driver or ring. Method: all of
/// them, with as many writes in flight as make the kernel use threads of its own.
#[test]
fn own_changes_are_not_counted() {
    as_root_and_nobody("watching::own_changes_are_not_counted", |name, directory| {
        if !is_watchable(name, directory) {
            return;
        }
        let file = Arc::new(make(&directory.join("file")));
        let watch = ChangeWatch::new().unwrap();
        let watched = watch.add(&file).unwrap();
        let mut counted = Counted::new(&watch, &watched);
        file.write_blocking(Route::Buffered, b"own", 100).unwrap();
        file.set_len(1 << 20).unwrap();
        let _ = file.allocate(ByteRange::new(0, 2 << 20)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| file.write_blocking(Route::Buffered, b"own", 200).unwrap());
        });
        for options in drivers() {
            let (driver, arena) = (Driver::new(&options).unwrap(), Arena::new(9 << 20).unwrap());
            for round in 0..40 {
                write_at_once(&driver, &arena, &file, round);
            }
            assert!(!counted.is_changed(), "{name}: {options:?}");
        }
        run_forked(|| writes(&directory.join("file")).write_all_at(b"a", 0).unwrap());
        assert!(counted.is_changed(), "{name}: it is counted at all");
    });
}

fn drivers() -> Vec<DriverOptions> {
    let with = |kind| DriverOptions { kind, ..DriverOptions::default() };
    let drivers = with_uring([with(DriverKind::Threads)], with(DriverKind::Uring), uring_refusal());
    let submission_polling = SubmissionPolling::On { idle_ms: 50, processor: None };
    let polled = DriverOptions { submission_polling, ..with(DriverKind::Uring) };
    with_uring(drivers, polled, uring_refusal())
}

/// A few writes by each route, and a sync, which a ring leaves to a thread of the kernel.
fn write_at_once(driver: &Driver, arena: &Arena, file: &Arc<OpenFile>, round: u64) {
    let mut batch = driver.batch();
    for number in 0..8 {
        let route = if number % 2 == 0 || file.direct().is_none() { Route::Buffered } else { Route::Direct };
        let extents = arena.allocate_run(64 << 10, Urgency::Demand).expect("there is memory");
        let offset_bytes = (round * 8 + number) * (64 << 10);
        let (direction, file, length_bytes) = (Direction::Write, file.clone(), 64 << 10);
        batch.push(Transfer { direction, file, route, offset_bytes, length_bytes, extents }).unwrap();
    }
    batch.push(Request::Fsync(Fsync { file: file.clone(), scope: SyncScope::Data })).unwrap();
    batch.finish(|_, finished| _ = finished.result.unwrap());
}

/// Goal: whatever the order in which own and foreign changes come, and however many of them wait in the queue, where the kernel
/// merges them, the foreign ones show. Method: random sequences between two looks.
#[test]
fn own_changes_hide_no_foreign_ones() {
    with_seed("watching::own_changes_hide_no_foreign_ones", |seed| {
        as_root_and_nobody("watching::own_changes_hide_no_foreign_ones", |name, directory| {
            if !is_watchable(name, directory) {
                return;
            }
            let (mut rng, mut shells) = (Rng::new(seed), [Shell::new(), Shell::new()]);
            let watch = ChangeWatch::new().unwrap();
            let paths = ["a", "b", "c"].map(|file| directory.join(file));
            let files = paths.each_ref().map(|path| make(path));
            let watched = files.each_ref().map(|file| watch.add(file).unwrap());
            let mut counted = watched.each_ref().map(|watched| Counted::new(&watch, watched));
            for round in 0..300 {
                let mut is_foreign = [false; 3];
                for _ in 0..rng.below(12) {
                    let which = rng.below(3) as usize;
                    let path = paths[which].display();
                    match rng.below(6) {
                        0..4 => {
                            _ = files[which].write_blocking(Route::Buffered, b"x", rng.below(4096)).unwrap()
                        }
                        4 => {
                            shells[rng.below(2) as usize].run(&format!("printf x 1<>{path}"));
                            is_foreign[which] = true;
                        }
                        _ => files[which].set_len(rng.below(10_000)).unwrap(),
                    }
                }
                let seen = counted.each_mut().map(Counted::is_changed);
                assert_eq!(seen, is_foreign, "{name}, round {round}");
            }
        });
    });
}

/// Goal: when the queue was too short, every watched file counts as changed. Method: own changes of many files fill the queue; the
/// foreign change that comes then is lost. No descriptor of the files is open by then.
#[test]
fn an_overflow_counts_for_every_file() {
    let queue = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let queue: usize = queue.trim().parse().unwrap();
    let directory = tmpfs().unwrap();
    if !is_watchable("tmpfs", directory.path()) {
        return;
    }
    let (mut shell, watch) = (Shell::new(), ChangeWatch::new().unwrap());
    let file = make(&directory.path().join("file"));
    let watched = watch.add(&file).unwrap();
    let others: Vec<Watched> = (0..queue + 10)
        .map(|number| {
            let path = directory.path().join(format!("{number}"));
            fs::write(&path, "x").unwrap();
            let watched = watch.add(&open(&path)).unwrap();
            fs::write(&path, "y").unwrap();
            watched
        })
        .collect();
    shell.run(&format!("printf x >>{}", directory.path().join("file").display()));
    watch.drain();
    assert!(watched.foreign_changes() > 0);
    assert!(others.iter().all(|other| other.foreign_changes() > 0));
    let mut counted = Counted::new(&watch, &watched);
    assert!(!counted.is_changed(), "it is over");
    shell.run(&format!("printf x >>{}", directory.path().join("file").display()));
    assert!(counted.is_changed());
    assert_eq!(others[0].foreign_changes(), 1);
}

/// Goal: a forked child takes no events from its parent, counts none, and removes no mark. Method: it does all of it while an event
/// waits; the parent then finds that one and the next.
#[test]
fn a_child_takes_no_events() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    let (file, mut shell) = (make(&path), Shell::new());
    let (mut watch, other) = (Some(ChangeWatch::new().unwrap()), ChangeWatch::new().unwrap());
    let mut watched = watch.as_ref().map(|watch| watch.add(&file).unwrap());
    let mut of_other = Some(other.add(&file).unwrap());
    shell.run(&format!("printf x >>{}", path.display()));
    other.drain();
    run_forked(|| {
        let here = watch.as_ref().unwrap();
        here.drain();
        assert_eq!(watched.as_ref().unwrap().foreign_changes(), 0);
        assert!(here.add(&file).is_err());
        here.remove(&watched.take().unwrap(), &file).unwrap();
        drop(of_other.take());
        drop(watch.take());
    });
    let (watch, watched) = (watch.unwrap(), watched.unwrap());
    let mut counted = Counted::new(&watch, &watched);
    assert!(counted.is_changed());
    shell.run(&format!("printf x >>{}", path.display()));
    assert!(counted.is_changed());
    other.drain();
    assert_eq!(of_other.unwrap().foreign_changes(), 2);
}

/// Goal: a file that is watched twice stays watched until both are removed; then the kernel's mark is gone. Only a descriptor of the
/// file removes it. Method: a change after the removal would be counted by the next watch of the file.
#[test]
fn the_last_removal_takes_the_mark() {
    for (name, directory) in scratch_dirs() {
        if !is_watchable(name, directory.path()) {
            continue;
        }
        let (path, other) = (directory.path().join("file"), make(&directory.path().join("other")));
        let (first, second) = (make(&path), open(&path));
        let (mut shell, watch) = (Shell::new(), ChangeWatch::new().unwrap());
        let mut change = || shell.run(&format!("printf x >>{}", path.display()));
        let (one, two) = (watch.add(&first).unwrap(), watch.add(&second).unwrap());
        watch.remove(&one, &second).unwrap();
        change();
        watch.drain();
        assert_eq!(two.foreign_changes(), 1, "{name}");
        watch.remove(&two, &first).unwrap();
        drop((one, two));
        change();
        let after = watch.add(&first).unwrap();
        watch.drain();
        assert_eq!(after.foreign_changes(), 0, "{name}: the mark has stayed");
        let refused = watch.remove(&after, &other).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::InvalidInput), "{name}");
        change();
        let left = watch.add(&first).unwrap();
        watch.drain();
        assert_eq!(left.foreign_changes(), 1, "{name}: without a removal the mark stays");
        let elsewhere = ChangeWatch::new().unwrap();
        assert!(elsewhere.remove(&left, &first).is_err(), "{name}: it is another's");
    }
}

/// Goal: what has changed a file before the watch of it ended is counted by a drain after that. Method: a change, the end, a drain.
#[test]
fn a_removal_keeps_what_was_queued() {
    let (directory, watch) = (ScratchDir::on_target().unwrap(), ChangeWatch::new().unwrap());
    let path = directory.path().join("file");
    let (file, mut shell) = (make(&path), Shell::new());
    let watched = watch.add(&file).unwrap();
    shell.run(&format!("printf x >>{}", path.display()));
    watch.remove(&watched, &file).unwrap();
    watch.remove(&watched, &file).unwrap();
    shell.run(&format!("printf x >>{}", path.display()));
    watch.drain();
    assert_eq!(watched.foreign_changes(), 1);
}

/// Goal: deleted files give up their mark by themselves, and other kinds of files are refused.
#[test]
fn what_cannot_be_watched() {
    let (directory, watch) = (ScratchDir::on_target().unwrap(), ChangeWatch::new().unwrap());
    let path = directory.path().join("file");
    let file = make(&path);
    let watched = watch.add(&file).unwrap();
    fs::remove_file(&path).unwrap();
    watch.remove(&watched, &file).unwrap();
    let zero = OpenFile::open("/dev/zero".as_ref(), DirectIo::Off, Access::Read).unwrap();
    assert_eq!(watch.add(&zero).unwrap_err().kind(), io::ErrorKind::Unsupported);
}

/// Goal: a drain that finds the queue empty returns only when the events that a drain of another thread took are counted. Method: some
/// threads drain all the time, more than there are processors, so that they are stopped anywhere; another asks after each foreign
/// change.
#[test]
fn a_drain_waits_for_the_drain_that_took_the_event() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    let (file, mut shell, watch) = (make(&path), Shell::new(), ChangeWatch::new().unwrap());
    let (watched, stopping) = (watch.add(&file).unwrap(), AtomicBool::new(false));
    let mut counted = Counted::new(&watch, &watched);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..2 * processors {
            scope.spawn(|| {
                while !stopping.load(Ordering::Relaxed) {
                    watch.drain();
                }
            });
        }
        let seen = (0..3000).all(|_| {
            shell.run(&format!("printf x 1<>{}", path.display()));
            counted.is_changed()
        });
        stopping.store(true, Ordering::Relaxed);
        assert!(seen);
    });
}

/// Goal: files lie on the kind of file system that they do.
#[test]
fn file_systems_are_told_apart() {
    for (name, directory) in scratch_dirs() {
        let file = make(&directory.path().join("file"));
        let expected = if name == "default" { file.file_system() } else { FileSystem::Local };
        assert_eq!(file.file_system(), expected, "{name}");
    }
    let version = OpenFile::open("/proc/version".as_ref(), DirectIo::Off, Access::Read).unwrap();
    assert_eq!(version.file_system(), FileSystem::Unknown);
}

/// Goal: on an overlay, what goes through the overlay is counted, by the file's handle there; what goes to the layer below is not, which
/// is why [`FileSystem::Overlay`] is told apart.
#[test]
fn an_overlay_shows_its_own_writers() {
    let layers = match LoopMount::new(headwater_testkit::FileSystem::Ext4, 16 << 20) {
        Ok(layers) => layers,
        Err(reason) => return skip(format!("overlay: {reason}")),
    };
    let place = |name: &str| {
        let path = layers.path().join(name);
        fs::create_dir(&path).unwrap();
        path.display().to_string()
    };
    let (merged, lower, upper, work) = (place("merged"), place("lower"), place("upper"), place("work"));
    let mut shell = Shell::new();
    shell.run(&format!(
        "mount -t overlay -o lowerdir={lower},upperdir={upper},workdir={work} overlay {merged}"
    ));
    let (seen, kind) = {
        let (file, watch) = (make(&Path::new(&merged).join("file")), ChangeWatch::new().unwrap());
        let watched = match watch.add(&file) {
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                shell.run(&format!("umount --lazy {merged}"));
                return skip("overlay: files there have no handles (before Linux 6.6)");
            }
            watched => watched.unwrap(),
        };
        let mut counted = Counted::new(&watch, &watched);
        let seen = [&merged, &upper].map(|layer| {
            shell.run(&format!("printf x >>{layer}/file"));
            counted.is_changed()
        });
        (seen, file.file_system())
    };
    // A child that another test forks may have the file open for a moment.
    shell.run(&format!("umount --lazy {merged}"));
    assert_eq!((seen, kind), ([true, false], FileSystem::Overlay));
}
