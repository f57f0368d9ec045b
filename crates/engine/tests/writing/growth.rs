//! Growth: followers of a file, and all that makes it longer or shorter.
//!
//! Owns: that each change wakes every follower, and wakes it at once.
//! Does not own: the bytes that it reads then (oracle).

use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use headwater::{Caching, DriverKind, Engine, File, IoMode, OpenOptions};
use headwater_testkit::{Pattern, Rng, ScratchDir, block_on, on_each, run_self_with_env};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::rig::{Rig, drivers, watched};

/// Goal: whatever changes the length, here or in another program, a following thread and a following task hear of it at once, not
/// with the look of each second, and read what was written.
#[test]
fn followers_are_woken() {
    for kind in drivers(1) {
        // A busy machine may be late once.
        let mut tries = (0..3).map(|_| failures_to_wake(kind.clone()));
        let failures = tries.find(Vec::is_empty).unwrap_or_else(|| failures_to_wake(kind.clone()));
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

fn failures_to_wake(kind: DriverKind) -> Vec<String> {
    let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
    let path = directory.path().join("log");
    let open = |append| {
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).create(true).write(true).append(append).open(&path).unwrap()
    };
    let (log, journal) = (open(false), open(true));
    let theirs = || std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let changes: [(&str, &dyn Fn()); 8] = [
        ("append", &|| _ = log.append(b"one").unwrap()),
        ("append of a task", &|| _ = block_on(log.append_async("two")).unwrap()),
        ("write behind the end", &|| log.write_all_at(b"three", 100).unwrap()),
        ("append with O_APPEND", &|| _ = journal.append(b"four").unwrap()),
        ("durable append", &|| _ = journal.append_durable(b"five").unwrap()),
        ("another program", &|| theirs().write_all(b"six").unwrap()),
        ("truncate", &|| log.set_len(7).unwrap()),
        ("truncate by another program", &|| theirs().set_len(0).unwrap()),
    ];
    let (known, lengths) = mpsc::channel();
    let (thread_known, thread_lengths) = mpsc::channel();
    // Not asserted at once: the followers would wait on for ever.
    let mut failures = Vec::new();
    thread::scope(|scope| {
        let (task_file, thread_file) = (log.clone(), log.clone());
        scope.spawn(move || follow(&known, |length| block_on(task_file.wait_for_growth_async(length))));
        scope.spawn(move || follow(&thread_known, |length| thread_file.wait_for_growth(length, None)));
        for (name, change) in changes {
            // Both followers are asleep by now, or about to be.
            thread::sleep(Duration::from_millis(20));
            // Nothing of ours is on its way to the file while another program changes it.
            log.flush().unwrap();
            change();
            let begun = Instant::now();
            let expected = std::fs::metadata(&path).unwrap().len().max(log.len().unwrap());
            for lengths in [&lengths, &thread_lengths] {
                // A write behind the end makes the file longer in two steps.
                let mut found = lengths.recv_timeout(PATIENCE);
                while found.is_ok_and(|length| length != expected) {
                    found = lengths.recv_timeout(PATIENCE);
                }
                let took = begun.elapsed();
                if found != Ok(expected) || took > Duration::from_millis(700) {
                    failures.push(format!("{name} on {}: {found:?} after {took:?}", rig.name()));
                }
            }
        }
        drop((lengths, thread_lengths));
        // Wakes the followers, which find that no test listens.
        log.append(b"the end").unwrap();
    });
    drop((log, journal));
    rig.assert_idle();
    failures
}

fn follow(lengths: &mpsc::Sender<u64>, mut wait: impl FnMut(u64) -> headwater::Result<u64>) {
    let mut known = 0;
    loop {
        known = wait(known).unwrap();
        if lengths.send(known).is_err() {
            return;
        }
    }
}

/// Goal: a follower reads each record that another program appends, in order and once.
#[test]
fn a_follower_reads_what_others_append() {
    for kind in drivers(2) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let path = directory.path().join("log");
        std::fs::write(&path, b"").unwrap();
        let file = OpenOptions::new().engine(&rig.engine).open(&path).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
                for record in 0..200_u32 {
                    log.write_all(&record.to_le_bytes()).unwrap();
                    if record % 20 == 0 {
                        thread::sleep(Duration::from_millis(3));
                    }
                }
            });
            let (mut known, mut records) = (0, 0_u32);
            while records < 200 {
                let end = watched("growth", || file.wait_for_growth(known, None)).unwrap();
                let bytes = file.view(known, (end - known) as usize).unwrap().to_vec();
                for record in bytes.as_chunks().0 {
                    assert_eq!(u32::from_le_bytes(*record), records);
                    records += 1;
                }
                known += bytes.len() as u64 / 4 * 4;
            }
        });
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: a follower reads each record that threads of the same process append with `O_APPEND`, whole, also at the moment when the kernel
/// has it and the engine does not know the new length yet; and what other threads write to the last page meanwhile stays.
#[test]
fn a_follower_reads_what_this_engine_appends() {
    const RECORDS: u64 = 300;
    for kind in drivers(4) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let path = directory.path().join("log");
        let open = |append| {
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).create(true).write(true).append(append).open(&path).unwrap()
        };
        let (log, beside) = (open(true), open(false));
        log.append(&[9; 8]).unwrap();
        let wrong = watched(rig.name(), || {
            thread::scope(|scope| {
                for writer in 0..3 {
                    let log = &log;
                    scope.spawn(move || {
                        for record in 0..RECORDS / 3 {
                            let bytes = (1 + writer * RECORDS + record).to_le_bytes();
                            match record % 2 {
                                0 => log.append(&bytes).unwrap(),
                                _ => log.append_durable(&bytes).unwrap(),
                            };
                        }
                    });
                }
                scope.spawn(|| {
                    for value in 0..200 {
                        // Dirty in part: the page that the appends go to, while it is the first.
                        beside.write_all_at(&[value], 0).unwrap();
                        thread::yield_now();
                    }
                });
                let (mut known, mut wrong) = (8, 0);
                while known < 8 + RECORDS * 8 {
                    let end = log.wait_for_growth(known, None).unwrap() / 8 * 8;
                    let view = log.view(known, (end - known) as usize).unwrap().to_vec();
                    wrong += view.as_chunks().0.iter().filter(|word| u64::from_le_bytes(**word) == 0).count();
                    known = end;
                }
                wrong
            })
        });
        assert_eq!(wrong, 0, "zeros in place of records on {}", rig.name());
        log.sync_data().unwrap();
        let (ours, theirs) = (log.view(0, 8 + RECORDS as usize * 8).unwrap(), std::fs::read(&path).unwrap());
        assert!(ours == theirs[..] && theirs[0] == 199, "{}", rig.name());
        drop((log, beside, ours));
        rig.assert_idle();
    }
}

/// Goal: however a file is made longer, here or by another program, a reader that finds the new length finds the bytes as well, in views
/// and in copies, at once and later. Method: a thread that reads the end of the file again and again.
#[test]
fn a_follower_finds_no_gap() {
    for (_, directory, kind) in on_each(drivers(5)) {
        let rig = Rig::new(kind);
        let path = directory.path().join("file");
        std::fs::write(&path, b"").unwrap();
        let with = |set: &dyn Fn(&mut OpenOptions)| {
            let mut options = OpenOptions::new();
            set(&mut options);
            options.engine(&rig.engine).open(&path).unwrap()
        };
        let ours = with(&|options| _ = options.write(true));
        let log = with(&|options| _ = options.append(true));
        let uncached = with(&|options| _ = options.write(true).caching(Caching::Off));
        let buffered = with(&|options| _ = options.write(true).io(IoMode::Buffered));
        let theirs = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let ways: [(&str, &Grow<'_>); 8] = [
            ("write", &|bytes, at| ours.write_all_at(bytes, at).unwrap()),
            ("write by a task", &|bytes, at| block_on(ours.write_all_at_async(bytes.to_vec(), at)).unwrap()),
            ("append", &|bytes, _| _ = log.append(bytes).unwrap()),
            ("append by a task", &|bytes, _| _ = block_on(log.append_async(bytes.to_vec())).unwrap()),
            ("around the cache", &|bytes, at| uncached.write_all_at(bytes, at).unwrap()),
            ("buffered", &|bytes, at| buffered.write_all_at(bytes, at).unwrap()),
            ("copy", &|bytes, at| {
                let from = File::from_bytes(bytes.to_vec());
                assert_eq!(from.copy_range_to(.., &ours, at).unwrap(), bytes.len() as u64);
            }),
            ("another program", &|bytes, at| {
                ours.flush().unwrap();
                theirs.write_all_at(bytes, at).unwrap();
            }),
        ];
        for (way, grow) in ways {
            ours.set_len(0).unwrap();
            watched(way, || grow_beside(&with(&|_| {}), grow, &format!("{way} on {}", rig.name())));
        }
        drop((ours, log, uncached, buffered));
        rig.assert_idle();
    }
}

/// Writes the bytes at the offset, where the file ends.
type Grow<'a> = dyn Fn(&[u8], u64) + 'a;

fn grow_beside(reader: &File, grow: &Grow<'_>, what: &str) {
    const STEPS: usize = 60;
    const TAIL_BYTES: u64 = 30_000;
    let (written, is_done) = (Mutex::new(Vec::<u8>::new()), AtomicBool::new(false));
    let follow = || {
        for round in 0_u64.. {
            let is_last = is_done.load(Ordering::Acquire);
            let end = reader.len().unwrap();
            let start = if is_last { 0 } else { end.saturating_sub(TAIL_BYTES) };
            let mut found = vec![0; (end - start) as usize];
            match round % 2 {
                0 => found = reader.view(start, found.len()).unwrap().to_vec(),
                _ => reader.read_exact_at(&mut found, start).unwrap(),
            }
            let written = written.lock().unwrap();
            let expected = &written[start as usize..end as usize];
            let wrong = found.iter().zip(expected).position(|(found, expected)| found != expected);
            assert_eq!(wrong, None, "{what}: of {start}..{end}");
            if is_last {
                return assert_eq!(end, written.len() as u64, "{what}");
            }
        }
    };
    thread::scope(|scope| {
        let (following, mut rng) = (scope.spawn(follow), Rng::new(7));
        for _ in 0..STEPS {
            let at = written.lock().unwrap().len();
            let mut bytes = vec![0; 1 + rng.below(20_000) as usize];
            Pattern::new(3).fill(at as u64, &mut bytes);
            // Before the file has them: what is found is never more than this.
            written.lock().unwrap().extend(&bytes);
            if following.is_finished() {
                break;
            }
            grow(&bytes, at as u64);
        }
        is_done.store(true, Ordering::Release);
    });
}

/// Goal: time is up, a dropped task leaves nothing, and what cannot grow says so.
#[test]
fn waits_that_end() {
    for kind in drivers(3) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let path = directory.path().join("file");
        std::fs::write(&path, b"abc").unwrap();
        let file = OpenOptions::new().engine(&rig.engine).open(&path).unwrap();
        let begun = Instant::now();
        assert_eq!(file.wait_for_growth(3, Some(Duration::from_millis(30))).unwrap(), 3);
        assert!(begun.elapsed() >= Duration::from_millis(30));
        assert_eq!(file.wait_for_growth(5, None).unwrap(), 3, "it is shorter");
        let mut waiting = Box::pin(file.wait_for_growth_async(3));
        assert!(futures_util::FutureExt::now_or_never(waiting.as_mut()).is_none());
        drop(waiting);
        drop(file);
        rig.assert_idle();
    }
    let error = File::from_bytes("abc").wait_for_growth(3, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// Goal: where the kernel reports no writes, a follower sees what another program appends within about a second. Method: a process of its
/// own that may open no descriptor more.
#[test]
fn a_follower_without_a_descriptor() {
    const CHILD: &str = "HEADWATER_FOLLOWER_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("growth::a_follower_without_a_descriptor", CHILD, "1");
        let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "{texts:?}");
        return;
    }
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("log");
    let mut theirs = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let engine = Engine::builder().memory(16 << 20).driver(DriverKind::Threads).build().unwrap();
    let file = OpenOptions::new().engine(&engine).open(&path).unwrap();
    // Each new descriptor is the lowest that is free.
    let next = theirs.try_clone().unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: Some(next) }).unwrap();
    assert!(std::fs::File::open(&path).is_err(), "no descriptor is left");
    thread::scope(|scope| {
        let follower = scope.spawn(|| file.wait_for_growth(0, Some(PATIENCE)));
        // The follower waits by then, or finds the bytes at its first look: it has to return in both cases.
        thread::sleep(Duration::from_millis(100));
        theirs.write_all(b"one").unwrap();
        assert_eq!(follower.join().unwrap().unwrap(), 3);
    });
}

/// Longer than the look of each second takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
