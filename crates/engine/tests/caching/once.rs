//! Once: a page is read from the device once, however many wait for it, and all of them are woken.
//!
//! Owns: who waits for whom: threads, tasks, tasks that go away, readers behind a slow device.
//! Does not own: what is read (see `oracle`).

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use headwater::{Caching, Counts, DriverKind, File, IoMode, OpenOptions, ReadaheadPolicy, Result};
use headwater_testkit::{Rng, with_seed};

use crate::rig::{Rig, Scratch, block_on, calm, drivers, watched};

/// Goal: whoever reads the same cold bytes at the same time, they are read once (I2). Method: threads and tasks that
/// start together and read the whole file in pieces of different sizes, in order and not.
#[test]
fn many_readers_of_one_cold_file_read_it_once() {
    with_seed("once::many_readers_of_one_cold_file_read_it_once", |seed| {
        let scratch = Scratch::new(seed, LENGTH_BYTES);
        scratch.age();
        for policy in [ReadaheadPolicy::Adaptive, ReadaheadPolicy::Off, ReadaheadPolicy::Linux] {
            for driver in drivers(seed) {
                let rig = Rig::sized(driver, 64 << 20, 16);
                let file = open(&rig, &scratch, policy);
                watched(rig.name(), || read_together(&file, &scratch, seed));
                rig.assert_idle();
                let counts = file.stats().counts;
                let whole_bytes = LENGTH_BYTES.next_multiple_of(4096);
                assert!(counts.device_read_bytes >= whole_bytes, "{policy:?} on {}: {counts:?}", rig.name());
                assert_read_once(&rig, &counts, &format!("{policy:?}"));
                let may_bypass = rig.engine.stats().driver.stuck_waits > 0;
                assert!((may_bypass || counts.bypassed == 0) && counts.evictions == 0, "{counts:?}");
            }
        }
    });
}

/// Goal: a task whose reads are all hits lets its executor run others. Method: one poll of a task that has very many reads
/// to do comes back before all are done.
#[test]
fn hits_let_others_run() {
    let scratch = Scratch::new(1, 100_000);
    let rig = Rig::sized(DriverKind::Threads, 16 << 20, 16);
    let file = open(&rig, &scratch, ReadaheadPolicy::Adaptive);
    file.read_exact_at(&mut vec![0; 100_000], 0).unwrap();
    let mut task = Box::pin(async {
        for page in 0..100_000 {
            file.read_at_async(page % 20 * 4096, 100).await.unwrap();
        }
    });
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(task);
    rig.assert_idle();
}

/// Not where a thread that had submitted got no processor for some milliseconds: others then read for themselves.
fn assert_read_once(rig: &Rig, counts: &Counts, case: &str) {
    if rig.engine.stats().driver.stuck_waits == 0 {
        let whole_bytes = LENGTH_BYTES.next_multiple_of(4096);
        assert!(counts.device_read_bytes <= whole_bytes, "{case} on {}: {counts:?}", rig.name());
    }
}

fn read_together(file: &File, scratch: &Scratch, seed: u64) {
    let start = Barrier::new(READERS);
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (start, mut rng) = (&start, Rng::new(seed ^ reader as u64));
            scope.spawn(move || {
                let piece_bytes = [4096, 10_000, 65_536, 300_000][reader % 4];
                let mut places: Vec<u64> = (0..LENGTH_BYTES).step_by(piece_bytes).collect();
                if reader >= READERS / 2 {
                    (1..places.len())
                        .rev()
                        .for_each(|last| places.swap(last, rng.below(last as u64 + 1) as usize));
                }
                start.wait();
                for place in places {
                    let bytes = if reader % 2 == 0 {
                        block_on(file.read_at_async(place, piece_bytes)).unwrap()
                    } else {
                        let mut buffer = vec![0; piece_bytes];
                        let read_bytes = file.read_at(&mut buffer, place).unwrap();
                        buffer.truncate(read_bytes);
                        buffer.into()
                    };
                    scratch.check_all(place, piece_bytes, &bytes);
                }
            });
        }
    });
}

/// Goal: of many tasks that wait for one load those that go away take no wake-up with them, and the others, and threads,
/// get their bytes. Method: tasks look once, every second is dropped, a thread or a task waits.
#[test]
fn tasks_that_go_away_wake_the_others() {
    with_seed("once::tasks_that_go_away_wake_the_others", |seed| {
        let (scratch, mut rng) = (Scratch::new(seed, LENGTH_BYTES), Rng::new(seed));
        scratch.age();
        for driver in drivers(seed) {
            let rig = Rig::sized(driver, 64 << 20, 16);
            let file = open(&rig, &scratch, ReadaheadPolicy::Off);
            watched(rig.name(), || {
                for place in (0..LENGTH_BYTES - PIECE as u64).step_by(PIECE) {
                    let tasks: Vec<Task> = (0..9).map(|_| Task::begin(&file, place)).collect();
                    let (kept, dropped): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|_| rng.chance(1, 2));
                    drop(dropped);
                    thread::scope(|scope| {
                        for task in kept {
                            scope.spawn(|| task.finish(&scratch));
                        }
                        let mut buffer = [0; PIECE];
                        file.read_exact_at(&mut buffer, place).unwrap();
                        scratch.check(place, &buffer);
                    });
                }
            });
            rig.assert_idle();
            let counts = file.stats().counts;
            assert_read_once(&rig, &counts, "");
        }
    });
}

/// Goal: a task that waits for what another task began hears of it although nobody else looks. Method: two tasks for one
/// page, the first to look is dropped; the second is polled only when it is woken.
#[test]
fn the_one_who_began_goes_away() {
    with_seed("once::the_one_who_began_goes_away", |seed| {
        let scratch = Scratch::new(seed, LENGTH_BYTES);
        for driver in drivers(seed).into_iter().filter(|driver| !matches!(driver, DriverKind::Sim(_))) {
            let rig = Rig::sized(driver, 64 << 20, 16);
            let file = open(&rig, &scratch, ReadaheadPolicy::Off);
            watched(rig.name(), || {
                for place in (0..LENGTH_BYTES - PIECE as u64).step_by(PIECE) {
                    let (first, second) = (Task::begin(&file, place), Task::begin(&file, place));
                    drop(first);
                    second.finish(&scratch);
                }
            });
            rig.assert_idle();
        }
    });
}

/// Goal: whoever meets a load, in whatever way, it ends once and for all of them. loom cannot see the event that they wait
/// for, so this is many short meetings of real threads instead: blocking readers, tasks that wait, tasks that go away,
/// and those who look what has arrived. Method: all go through the same pages, most of which are met by several.
#[test]
fn loads_met_in_every_way() {
    with_seed("once::loads_met_in_every_way", |seed| {
        let scratch = Scratch::new(seed, 16 << 20);
        scratch.age();
        for driver in drivers(seed) {
            let rig = Rig::sized(driver, 3 << 20, 16);
            let file = open(&rig, &scratch, ReadaheadPolicy::Adaptive);
            watched(rig.name(), || {
                let done = AtomicUsize::new(0);
                thread::scope(|scope| {
                    for way in 0..4 {
                        let (file, scratch, done) = (&file, &scratch, &done);
                        scope.spawn(move || {
                            meet_all(file, scratch, way);
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                    scope.spawn(|| {
                        // Takes what has arrived.
                        while done.load(Ordering::Relaxed) < 4 {
                            rig.engine.stats();
                        }
                    });
                });
            });
            rig.assert_idle();
            assert_eq!(file.stats().loading_pages, 0);
        }
    });
}

fn meet_all(file: &File, scratch: &Scratch, way: u64) {
    for place in (0..16 << 20).step_by(3 * PIECE) {
        match way {
            0 | 1 => {
                let mut buffer = [0; PIECE];
                file.read_exact_at(&mut buffer, place).unwrap();
                scratch.check(place, &buffer);
            }
            2 => Task::begin(file, place).finish(scratch),
            _ => drop(Task::begin(file, place)),
        }
    }
}

/// Goal: hits wait for no device. Method: on `sim` nothing comes unless somebody waits for it: what is read ahead of a
/// stream stays on its way, while threads and tasks read all that is there already.
#[test]
fn hits_do_not_wait_for_the_device() {
    with_seed("once::hits_do_not_wait_for_the_device", |seed| {
        let scratch = Scratch::new(seed, LENGTH_BYTES);
        let rig = calm(seed);
        let file = open(&rig, &scratch, ReadaheadPolicy::Adaptive);
        let mut buffer = vec![0; 1 << 20];
        file.read_exact_at(&mut buffer, 0).unwrap();
        let (attempts, loading_pages) = (rig.control().attempts(), file.stats().loading_pages);
        assert!(loading_pages > 0, "nothing is on its way");
        watched("hits beside a load", || {
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for place in (0..1_040_000).step_by(5000) {
                            let bytes = block_on(file.read_at_async(place, 5000)).unwrap();
                            scratch.check(place, &bytes);
                            file.read_exact_at(&mut [0; 5000], place).unwrap();
                        }
                    });
                }
            });
        });
        assert_eq!(rig.control().attempts(), attempts, "a hit asked the device");
        assert_eq!(file.stats().loading_pages, loading_pages);
        rig.assert_idle();
    });
}

/// Goal: those who wait for one load are woken in the order they came. Method: eight tasks, with wakers that write down
/// their turn, meet one load; nobody looks until all were woken. A round in which the device was faster says nothing.
#[test]
fn waiters_are_woken_in_order() {
    with_seed("once::waiters_are_woken_in_order", |seed| {
        let scratch = Scratch::new(seed, LENGTH_BYTES);
        scratch.age();
        let rig = Rig::sized(DriverKind::Threads, 64 << 20, 16);
        let file = open(&rig, &scratch, ReadaheadPolicy::Off);
        let places = (0..LENGTH_BYTES - PIECE as u64).step_by(PIECE);
        watched("waiters", || {
            let conclusive = places.filter(|&place| wake_in_order(&file, &scratch, place)).count();
            assert!(conclusive > 0, "in no round all had to wait");
        });
        rig.assert_idle();
    });
}

fn wake_in_order(file: &File, scratch: &Scratch, place: u64) -> bool {
    let turns = Arc::new(AtomicUsize::new(0));
    let wakers: Vec<_> = (0..8).map(|_| Arc::new(Turn::new(&turns))).collect();
    let mut tasks: Vec<_> = (0..8).map(|_| Task::new(file, place)).collect();
    for (task, waker) in tasks.iter_mut().zip(&wakers) {
        task.early = task.poll(&Waker::from(waker.clone()));
    }
    let all_wait = tasks.iter().all(|task| task.early.is_none());
    if all_wait {
        while wakers.iter().any(|turn| turn.first.load(Ordering::SeqCst) == 0) {
            thread::yield_now();
        }
        let order: Vec<_> = wakers.iter().map(|turn| turn.first.load(Ordering::SeqCst)).collect();
        assert_eq!(order, (1..=8).collect::<Vec<_>>());
    }
    tasks.into_iter().for_each(|task| task.finish(scratch));
    all_wait
}

/// A read under way.
struct Task {
    reading: Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>,
    place: u64,
    early: Option<Bytes>,
}

impl Task {
    fn new(file: &File, place: u64) -> Task {
        Task { reading: Box::pin(file.read_at_async(place, PIECE)), place, early: None }
    }

    /// Looked at once.
    fn begin(file: &File, place: u64) -> Task {
        let mut task = Task::new(file, place);
        task.early = task.poll(Waker::noop());
        task
    }

    fn poll(&mut self, waker: &Waker) -> Option<Bytes> {
        match self.reading.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(result) => Some(result.unwrap()),
            Poll::Pending => None,
        }
    }

    fn finish(self, scratch: &Scratch) {
        let bytes = self.early.unwrap_or_else(|| block_on(self.reading).unwrap());
        scratch.check_all(self.place, PIECE, &bytes);
    }
}

/// Notes when it was woken first.
struct Turn {
    turns: Arc<AtomicUsize>,
    first: AtomicUsize,
}

impl Turn {
    fn new(turns: &Arc<AtomicUsize>) -> Turn {
        Turn { turns: turns.clone(), first: AtomicUsize::new(0) }
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        let turn = 1 + self.turns.fetch_add(1, Ordering::SeqCst);
        let _ = self.first.compare_exchange(0, turn, Ordering::SeqCst, Ordering::SeqCst);
    }
}

fn open(rig: &Rig, scratch: &Scratch, policy: ReadaheadPolicy) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).io(IoMode::Auto).caching(Caching::On);
    options.readahead(policy).revalidate(Duration::MAX).open(scratch.path()).unwrap()
}

const LENGTH_BYTES: u64 = 3_000_001;
const PIECE: usize = 16_384;
const READERS: usize = 8;
