//! On demand: windows larger than their memory, whose pages come when they are touched.
//!
//! Owns: the bytes, whatever else happens to the file; what is reported of those that cannot be had; the bound of memory.
//! Does not own: windows that are in memory as a whole (contiguous).

use std::io::ErrorKind;
use std::ops::RangeBounds;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use headwater::testing::{FaultRange, SimOptions};
use headwater::{ByteRange, Caching, DriverKind, Error, File, IoMode, OpenOptions, SharedView};
use headwater_testkit::{
    PATIENCE, Rng, forbid_io_uring, forbid_userfaultfd, run_forked, run_self_with_env, skip,
};

use crate::contiguous::roomy_rigs;
use crate::open;
use crate::rig::{Rig, Scratch, calm, watched};

/// The least memory that a window has.
const MEMORY_BYTES: u64 = 1 << 20;

const PAGE: u64 = 4096;

/// A view, unless this system has none; then the reason is printed.
pub(crate) fn window(file: &File, range: impl RangeBounds<u64>) -> Option<SharedView> {
    match file.map_on_demand(range, MEMORY_BYTES) {
        Ok(view) => Some(view),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            headwater_testkit::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn cell(view: &SharedView, at_bytes: u64) -> u8 {
    view.as_cells().unwrap()[at_bytes as usize].load(Ordering::Relaxed)
}

/// The memory that the mapping of these cells takes, by the kernel's account.
fn resident_bytes(cells: &[AtomicU8]) -> u64 {
    let address = cells.as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines();
    let is_there = |line: &str| {
        let ends = line.split_whitespace().next().and_then(|ends| ends.split_once('-'));
        let parse = |text| usize::from_str_radix(text, 16).ok();
        ends.and_then(|(start, end)| Some((parse(start)?..parse(end)?).contains(&address))) == Some(true)
    };
    lines.find(|line| is_there(line)).expect("cells are mapped");
    let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Goal: every byte is the file's, by calls, cells and words, in order and at random, of several threads at once, in a sixteenth of the
/// memory; and nothing is left afterwards. Method: from the kernel's page cache, and around it.
#[test]
fn pages_come_and_go() {
    roomy_rigs(1).iter().for_each(|rig| pages_come_and_go_of(rig, IoMode::Auto));
    roomy_rigs(2).iter().for_each(|rig| pages_come_and_go_of(rig, IoMode::Direct));
}

fn pages_come_and_go_of(rig: &Rig, mode: IoMode) {
    let scratch = Scratch::new(1, (16 << 20) - 77);
    let file = rig.open(&scratch.path(), mode);
    let Some(view) = window(&file, 4096 + 8..scratch.length_bytes) else { return };
    let start = view.range().start;
    watched("threads that touch pages", || {
        thread::scope(|scope| {
            for number in 0..4 {
                let (view, scratch) = (view.clone(), &scratch);
                scope.spawn(move || {
                    let (mut rng, mut bytes) = (Rng::new(number), [0; 9000]);
                    for _ in 0..1500 {
                        let at = rng.below(view.len() - 9000);
                        scratch.check(start + at, &view.load_u64(at).unwrap().to_ne_bytes());
                        scratch.check(start + at + 5000, &[cell(&view, at + 5000)]);
                        let at = at.next_multiple_of(8);
                        let word = view.atomic_u64(at).unwrap().load(Ordering::Relaxed);
                        scratch.check(start + at, &word.to_ne_bytes());
                        if rng.chance(1, 10) {
                            view.read(at, &mut bytes[..8900]).unwrap();
                            scratch.check(start + at, &bytes[..8900]);
                        }
                    }
                });
            }
        });
    });
    let in_order: Vec<u8> =
        view.as_cells().unwrap().iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
    scratch.check(start, &in_order);
    view.check().unwrap();
    let resident_bytes = resident_bytes(view.as_cells().unwrap());
    assert!((1..=MEMORY_BYTES).contains(&resident_bytes), "{resident_bytes}");
    assert_eq!(rig.engine.stats().arena.lent_out_bytes, 2 << 20);
    drop((view, file));
    assert_eq!(rig.engine.stats().arena.lent_out_bytes, 0);
    rig.assert_idle();
}

/// Goal: accesses that overlap go on where the process forbids itself io_uring in between, and later windows do without. Method: a child;
/// twenty threads, which make any handler have several reads under way.
#[test]
fn the_ring_is_forbidden_later() {
    const CHILD: &str = "HEADWATER_ON_DEMAND_RING";
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("on_demand::the_ring_is_forbidden_later", CHILD, "1");
        return assert!(output.status.success(), "{output:?}");
    }
    let scratch = Scratch::new(11, 8 << 20);
    let rig = Rig::sized(DriverKind::Auto, 64 << 20, 16);
    let file = rig.open(&scratch.path(), IoMode::Direct);
    let Some(view) = window(&file, ..) else { return };
    let touch = |view: &SharedView, number: u64| {
        let mut rng = Rng::new(number);
        (0..1000).map(|_| rng.below(view.len())).for_each(|at| scratch.check(at, &[cell(view, at)]));
    };
    watched("threads that touch pages under a filter", || {
        thread::scope(|scope| {
            (0..20).for_each(|number| {
                _ = scope.spawn({
                    let (view, touch) = (&view, &touch);
                    move || touch(view, number)
                })
            });
            thread::sleep(std::time::Duration::from_millis(20));
            forbid_io_uring();
        });
        let Some(later) = window(&file, ..) else { return };
        thread::scope(|scope| {
            (0..20).for_each(|number| {
                _ = scope.spawn({
                    let (later, touch) = (&later, &touch);
                    move || touch(later, number)
                })
            });
        });
    });
    drop((view, file));
    rig.assert_idle();
}

/// Goal: pages that are touched in order are read together, those at random alone. Method: the simulated device counts.
#[test]
fn pages_in_order_are_read_ahead() {
    let rig = calm(2);
    let scratch = Scratch::new(2, 8 << 20);
    let file = rig.open(&scratch.path(), IoMode::Direct);
    let Some(view) = window(&file, ..) else { return };
    let attempts = || rig.control().attempts();
    let before = attempts();
    for at in (0..4 << 20).step_by(PAGE as usize) {
        scratch.check(at, &[cell(&view, at)]);
    }
    let in_order = attempts() - before;
    // Four alone, four and so on up to 64 at once.
    assert!((16..40).contains(&in_order), "{in_order}");
    let before = attempts();
    for page in 0..100 {
        let at = (5 << 20) + page * 37 % 100 * 6 * PAGE;
        scratch.check(at, &view.load_u8(at).unwrap().to_ne_bytes());
    }
    assert_eq!(attempts() - before, 100);
}

/// Goal: a write through any handle shows in cells as soon as it returns, and bytes from before never come back, however the file is
/// changed, while other threads touch the same pages; in each of two windows that overlap.
#[test]
fn changes_show_at_once() {
    for rig in roomy_rigs(3) {
        let scratch = Scratch::new(3, 4 << 20);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let beside = open(&rig, &scratch.path(), IoMode::Auto, Caching::Off);
        let Some(view) = window(&file, ..) else { return };
        let Some(overlapping) = window(&beside, 100 * PAGE + 8..) else { return };
        let is_over = AtomicBool::new(false);
        watched("writes beside a window", || {
            thread::scope(|scope| {
                for start in [0, 3] {
                    let (view, is_over) = (view.clone(), &is_over);
                    scope.spawn(move || {
                        for page in (start..).step_by(2) {
                            if is_over.load(Ordering::Relaxed) {
                                break;
                            }
                            cell(&view, page % 512 * PAGE);
                        }
                    });
                }
                let mut rng = Rng::new(3);
                for round in 0..600_u64 {
                    let writer = if round % 3 == 0 { &beside } else { &file };
                    let at = rng.below(500) * PAGE + rng.below(3000);
                    let bytes = [round as u8; 6000];
                    let length = rng.range(1, 6000) as usize;
                    writer.write_all_at(&bytes[..length], at).unwrap();
                    assert_eq!(cell(&view, at), round as u8);
                    assert_eq!(cell(&view, at + length as u64 - 1), round as u8);
                    assert_eq!(view.load_u8(at).unwrap(), round as u8);
                    if let Some(there) = at.checked_sub(overlapping.range().start) {
                        assert_eq!(cell(&overlapping, there), round as u8);
                        assert_eq!(overlapping.load_u8(there).unwrap(), round as u8);
                    }
                    if round % 50 == 0 {
                        file.sync_data().unwrap();
                    }
                    if round % 60 == 7 {
                        file.punch_hole(at..at + length as u64).unwrap();
                        assert_eq!(cell(&view, at), 0);
                    }
                    if round % 100 == 9 {
                        view.write(at, &[7; 5]).unwrap();
                        assert_eq!(
                            (cell(&view, at + 4), view.fetch_add_u64(at / 8 * 8, 0).is_ok()),
                            (7, true)
                        );
                    }
                }
                is_over.store(true, Ordering::Relaxed);
            });
        });
        let mut bytes = vec![0; 4 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let cells = view.as_cells().unwrap().iter().map(|cell| cell.load(Ordering::Relaxed));
        assert!(cells.eq(bytes), "{}", rig.name());
        view.check().unwrap();
        overlapping.check().unwrap();
        drop((view, overlapping, file, beside));
        rig.assert_idle();
    }
}

/// Goal: beyond the end are zeros, and the view reports it; a file that this engine or another program cuts or lets grow is seen as it is.
#[test]
fn the_end_moves() {
    for rig in roomy_rigs(4) {
        let scratch = Scratch::new(4, 100_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let Some(view) = window(&file, ..200_000) else { return };
        let ended = |result: Result<(), Error>, offset_bytes| {
            let error = result.unwrap_err();
            assert_eq!(
                (error.kind(), error.offset_bytes()),
                (ErrorKind::UnexpectedEof, Some(offset_bytes)),
                "{error}"
            );
        };
        scratch.check(99_999, &[cell(&view, 99_999)]);
        assert_eq!(cell(&view, 100_000), 0);
        view.check().unwrap();
        assert_eq!(cell(&view, 150_000), 0);
        ended(view.check(), 147_456);
        view.check().unwrap();
        ended(view.load_u64(99_996).map(drop), 100_000);
        ended(view.load_u8(180_000).map(drop), 180_000);

        file.set_len(50_000).unwrap();
        assert_eq!((cell(&view, 50_000), cell(&view, 99_999)), (0, 0));
        ended(view.check(), 98_304);
        scratch.check(49_999, &[cell(&view, 49_999)]);
        file.set_len(150_001).unwrap();
        assert_eq!((cell(&view, 99_999), view.load_u8(150_000).unwrap()), (0, 0));
        file.write_all_at(&[5; 10], 160_000).unwrap();
        assert_eq!((cell(&view, 160_009), cell(&view, 155_000)), (5, 0));
        file.sync_data().unwrap();
        view.check().unwrap();

        // Another program.
        let other = scratch.file();
        other.set_len(10_000).unwrap();
        file.refresh().unwrap();
        assert_eq!((cell(&view, 10_000), cell(&view, 40_000), cell(&view, 160_000)), (0, 0, 0));
        scratch.check(9_999, &[cell(&view, 9_999)]);
        ended(view.check(), 36_864);
        ended(view.load_u8(40_000).map(drop), 40_000);
        std::os::unix::fs::FileExt::write_all_at(&other, &[6; 5000], 38_000).unwrap();
        file.refresh().unwrap();
        assert_eq!((cell(&view, 40_000), cell(&view, 20_000), view.load_u8(42_999).unwrap()), (6, 0, 6));
        view.check().unwrap();
        drop((view, file));
        rig.assert_idle();
    }
}

/// Goal: what the device cannot read fails calls with its error, reads as zeros in cells, and is reported afterwards; what is beside it
/// is not affected, and it is read when that is possible. Method: the simulated device fails a page, alone and among those read ahead.
#[test]
fn errors_are_reported() {
    let rig = calm(5);
    let scratch = Scratch::new(5, 1 << 20);
    let file = rig.open(&scratch.path(), IoMode::Direct);
    let Some(view) = window(&file, ..) else { return };
    let fail = |page: u64| rig.control().add_fault(FaultRange::new(ByteRange::at(page * PAGE, PAGE), 5));
    [10, 40].into_iter().for_each(fail);
    assert_eq!(view.load_u64(10 * PAGE).unwrap_err().raw_os_error(), Some(5));
    view.check().unwrap();
    for at in (0..60 * PAGE).step_by(PAGE as usize) {
        match at / PAGE {
            10 | 40 => assert_eq!(cell(&view, at), 0),
            _ => scratch.check(at, &[cell(&view, at)]),
        }
    }
    let bytes = &mut [0; 3 * PAGE as usize];
    assert_eq!(view.read(39 * PAGE, bytes).unwrap_err().raw_os_error(), Some(5));
    let error = view.check().unwrap_err();
    assert_eq!((error.raw_os_error(), error.offset_bytes()), (Some(5), Some(10 * PAGE)), "{error}");
    view.check().unwrap();
    assert_eq!(cell(&view, 10 * PAGE), 0);
    view.check().unwrap_err();
    rig.control().clear_faults();
    scratch.check(10 * PAGE, &[cell(&view, 10 * PAGE)]);
    view.read(39 * PAGE, bytes).unwrap();
    scratch.check(39 * PAGE, bytes);
    view.check().unwrap();
    drop((view, file));
    rig.assert_idle();
}

/// Goal: code of the program that a handler comes to run may touch the window. Method: wakers of reads under way load a cell; a load of
/// pages of which one is dirty goes through the cache, where the simulated device does what it was asked for before.
#[test]
fn a_waker_touches_the_window() {
    struct Touches(SharedView, AtomicBool, AtomicU64);
    impl Wake for Touches {
        fn wake(self: Arc<Self>) {
            // Another one each time, which is not there yet.
            cell(&self.0, self.2.fetch_add(2 * PAGE, Ordering::Relaxed));
            self.1.fetch_or(thread::current().name() == Some("headwater-window"), Ordering::Relaxed);
        }
    }
    let mut ran_in_handlers = 0;
    // Under an old kernel in a virtual machine no handler ran one for eight seeds, once.
    for seed in 0..64 {
        if seed >= 8 && ran_in_handlers > 0 {
            break;
        }
        let hostile = SimOptions::hostile(seed);
        let options = SimOptions { short_per_mille: 0, transient_per_mille: 0, repolls: false, ..hostile };
        let rig = Rig::sized(DriverKind::Sim(options), 64 << 20, 16);
        let scratch = Scratch::new(12, 400 * PAGE);
        let file = open(&rig, &scratch.path(), IoMode::Direct, Caching::On);
        let Some(view) = window(&file, ..) else { return };
        file.write_all_at(&[9; 10], 4 * PAGE + 100).unwrap();
        let touches = Arc::new(Touches(view.clone(), AtomicBool::new(false), AtomicU64::new(300 * PAGE)));
        let waker = Waker::from(touches.clone());
        // A poll has the device do one thing of those that it is asked for.
        file.will_need(&[0, 1, 2, 3, 4, 5, 6].map(|number| ByteRange::at((250 + 2 * number) * PAGE, 10)))
            .unwrap();
        let mut reads: Vec<_> =
            (0..12).map(|number| Box::pin(file.read_at_async((200 + 2 * number) * PAGE, 10))).collect();
        reads.retain_mut(|reading| reading.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        watched("wakers that touch the window", || {
            (0..5).for_each(|page| scratch.check(page * PAGE + 3, &[cell(&view, page * PAGE + 3)]));
        });
        ran_in_handlers += u32::from(touches.1.load(Ordering::Relaxed));
        assert_eq!(cell(&view, 4 * PAGE + 100), 9);
        drop((reads, waker, touches, view, file));
    }
    if ran_in_handlers == 0 {
        skip("no handler ran a waker, for 64 seeds");
    }
}

/// Goal: when a handler of a window finds that others changed the file, listeners may touch that window, and drop its last view. Method:
/// another program writes to the file, of which pages are cached; then pages of the window are touched, one or several at once.
#[test]
fn a_listener_touches_the_window() {
    for rig in roomy_rigs(13) {
        for threads in [1, 6] {
            let scratch = Scratch::new(13, 400 * PAGE);
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).caching(Caching::On).revalidate(Duration::ZERO);
            let mut heard = 0;
            for round in 0..6 {
                let file = options.open(scratch.path()).unwrap();
                let Some(view) = window(&file, ..) else { return };
                file.read_exact_at(&mut [0; 8 * PAGE as usize], 0).unwrap();
                let last = Arc::new(Mutex::new(Some(view.clone())));
                let (to_touch, (news, hears)) = (last.clone(), channel());
                let listener = file.on_evicted(move |_| {
                    let Some(view) = to_touch.lock().unwrap().take() else { return };
                    cell(&view, 300 * PAGE);
                    // The threads that touch pages drop theirs.
                    thread::sleep(Duration::from_millis(5));
                    drop(view);
                    news.send(()).unwrap();
                });
                let other = std::fs::OpenOptions::new().write(true).open(scratch.path()).unwrap();
                other.write_all_at(&[7], 20 * PAGE + round).unwrap();
                watched("a listener that touches the window and drops it", || {
                    thread::scope(|scope| {
                        for number in 0..threads {
                            let view = view.clone();
                            scope.spawn(move || {
                                (0..30).for_each(|page| _ = cell(&view, (100 + 30 * number + page) * PAGE))
                            });
                        }
                    });
                    drop(view);
                    heard += u32::from(hears.recv_timeout(PATIENCE / 2).is_ok());
                });
                drop((listener, file));
            }
            assert_eq!(heard, 6);
            rig.assert_idle();
        }
    }
}

/// Goal: views end while others are in use and pages are on their way; no thread, page or request is left.
#[test]
fn views_end_at_any_moment() {
    for rig in roomy_rigs(6) {
        let scratch = Scratch::new(6, 8 << 20);
        for round in 0..30 {
            let file = rig.open(&scratch.path(), IoMode::Auto);
            let Some(view) = window(&file, ..) else { return };
            watched("views that end", || {
                thread::scope(|scope| {
                    for number in 0..6 {
                        let (view, scratch) = (view.clone(), &scratch);
                        scope.spawn(move || {
                            let mut rng = Rng::new(round * 10 + number);
                            for _ in 0..number * 9 {
                                let at = rng.below(view.len());
                                scratch.check(at, &[cell(&view, at)]);
                            }
                            drop(view);
                        });
                    }
                    drop((view, file));
                });
            });
            assert_eq!(rig.engine.stats().arena.lent_out_bytes, 0);
        }
        rig.assert_idle();
    }
}

/// Goal: a child has no bytes, calls give an error, and dropping the view there changes nothing for the parent. Method: in a process of
/// its own, where no other test runs.
#[test]
fn a_child_has_no_windows() {
    const CHILD: &str = "HEADWATER_ON_DEMAND_FORK";
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("on_demand::a_child_has_no_windows", CHILD, "1");
        return assert!(output.status.success(), "{output:?}");
    }
    for rig in roomy_rigs(7) {
        let scratch = Scratch::new(7, 4 << 20);
        let file = rig.open(&scratch.path(), IoMode::Auto);
        let Some(view) = window(&file, ..) else { return };
        scratch.check(5, &[cell(&view, 5)]);
        let mut parents = Some((file, view));
        run_forked(|| {
            let (file, view) = parents.take().unwrap();
            assert!(view.as_cells().is_none() && view.atomic_u64(0).is_none());
            let calls = [view.load_u64(0).map(drop), view.check(), file.map_on_demand(.., 2 << 20).map(drop)];
            assert!(calls.iter().all(|call| matches!(call, Err(Error::Forked(_)))), "{calls:?}");
            drop((file, view));
        });
        let (file, view) = parents.unwrap();
        (0..1000).for_each(|page| scratch.check(page * PAGE, &[cell(&view, page * PAGE)]));
        drop((view, file));
        rig.assert_idle();
    }
}

/// Goal: what cannot be is refused, with the reason.
#[test]
fn what_cannot_be_is_refused() {
    let rig = Rig::sized(DriverKind::Threads, 17 << 20, 16);
    let scratch = Scratch::new(8, 40_000_000);
    let file = rig.open(&scratch.path(), IoMode::Auto);
    if window(&file, ..).is_none() {
        return;
    }
    let refused = |range: ByteRange, memory_bytes, kind| {
        let error = file.map_on_demand(range.start..range.end, memory_bytes).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    };
    refused(ByteRange::new(5, 5), 1 << 20, ErrorKind::InvalidInput);
    refused(ByteRange::new(0, 5), (1 << 20) - 1, ErrorKind::InvalidInput);
    refused(ByteRange::new(0, 40_000_000), 40 << 20, ErrorKind::OutOfMemory);
    // A short window takes no more memory than its pages.
    assert!(file.map_on_demand(..9, u64::MAX).unwrap().load_u8(8).is_ok());
    assert_eq!(
        File::from_bytes("abc").map_on_demand(.., 1 << 20).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    drop(file);
    rig.assert_idle();
}

/// Goal: where userfaultfd is forbidden, the error says so, and views of `map` work. Method: a child in which it is.
#[test]
fn refused_where_it_is_forbidden() {
    const CHILD: &str = "HEADWATER_ON_DEMAND_FORBID";
    if std::env::var_os(CHILD).is_some() {
        forbid_userfaultfd();
        let scratch = Scratch::new(9, 5000);
        let rig = Rig::new(DriverKind::Threads);
        let file = rig.open(&scratch.path(), IoMode::Auto);
        let error = file.map_on_demand(.., MEMORY_BYTES).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("userfaultfd"), "{error}");
        scratch.check(0, &file.map(..).unwrap().load_u64(0).unwrap().to_ne_bytes());
        println!("saw: {error}");
        return;
    }
    let output = run_self_with_env("on_demand::refused_where_it_is_forbidden", CHILD, "1");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("saw: "), "{output:?}");
}

/// Goal: while a file is cut and written again and again, a call returns bytes of the file or says that it ended, and a cell has the byte or
/// zero, whatever is in flight.
#[test]
fn cuts_race_with_loads() {
    for rig in roomy_rigs(10) {
        let scratch = Scratch::new(10, 2 << 20);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let Some(view) = window(&file, ..) else { return };
        let is_over = AtomicBool::new(false);
        watched("cuts beside loads", || {
            thread::scope(|scope| {
                for number in 0..3 {
                    let (view, scratch, is_over) = (&view, &scratch, &is_over);
                    scope.spawn(move || {
                        let mut rng = Rng::new(number);
                        while !is_over.load(Ordering::Relaxed) {
                            let at = rng.below(view.len() - 5000);
                            let mut bytes = [0; 5000];
                            match view.read(at, &mut bytes) {
                                Ok(()) => scratch.check_or_zero(at, &bytes),
                                Err(error) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}"),
                            }
                            scratch.check_or_zero(at, &[cell(view, at)]);
                        }
                    });
                }
                let mut rest = vec![0; 1 << 20];
                scratch.pattern.fill(1 << 20, &mut rest);
                for _ in 0..40 {
                    file.set_len(1 << 20).unwrap();
                    assert_eq!(cell(&view, (2 << 20) - 1), 0);
                    file.write_all_at(&rest, 1 << 20).unwrap();
                    scratch.check((2 << 20) - 1, &[cell(&view, (2 << 20) - 1)]);
                }
                is_over.store(true, Ordering::Relaxed);
            });
        });
        let error = view.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        let cells: Vec<u8> =
            view.as_cells().unwrap().iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
        scratch.check(0, &cells);
        view.check().unwrap();
        drop((view, file));
        rig.assert_idle();
    }
}
