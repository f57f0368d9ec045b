//! Wakers: those of executors that panic, or poll their task at once.
//!
//! Owns: that other tasks go on.
//! Does not own: ordinary executors (reading).

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use headwater::testing::SimOptions;
use headwater::{Caching, DriverKind, Engine, File, IoMode, OpenOptions, Result};
use headwater_testkit::{PATIENCE, ScratchDir, block_on, make_cold, watched};

use super::drivers;

const READ_BYTES: usize = 64 << 10;

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

fn scratch() -> (ScratchDir, std::path::PathBuf) {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, vec![7; 4 << 20]).unwrap();
    (directory, path)
}

fn open(engine: &Engine, path: &std::path::Path, caching: Caching) -> File {
    OpenOptions::new().engine(engine).caching(caching).io(IoMode::Direct).open(path).unwrap()
}

/// Goal: a waker that panics stops nothing but its own task. Method: tasks with such wakers, and one with a good one after each, through
/// the cache and without.
#[test]
fn a_waker_that_panics_stops_no_other_task() {
    for driver in drivers() {
        for caching in [Caching::On, Caching::Off] {
            watched(&format!("{driver:?}, caching {caching:?}"), || {
                let (_directory, path) = scratch();
                let engine = Engine::builder().memory(16 << 20).driver(driver.clone()).build().unwrap();
                let file = open(&engine, &path, caching);
                let waker = Waker::from(Arc::new(Panics));
                for round in 0..8 {
                    let offset = round * 2 * READ_BYTES as u64;
                    let mut bad = Box::pin(file.read_at_async(offset, READ_BYTES));
                    let polled = bad.as_mut().poll(&mut Context::from_waker(&waker));
                    let good = block_on(file.read_at_async(offset + READ_BYTES as u64, READ_BYTES)).unwrap();
                    assert_eq!(good.len(), READ_BYTES);
                    if polled.is_pending() {
                        assert_eq!(block_on(bad).unwrap().len(), READ_BYTES);
                    }
                }
            });
        }
    }
}

type Reading = Pin<Box<dyn Future<Output = Result<bytes::Bytes>> + Send>>;

/// A task that its waker polls at once, in whatever thread that is.
struct Inline {
    task: Mutex<Option<Reading>>,
    polls: AtomicUsize,
}

impl Inline {
    fn poll(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        // Woken while it is polled: the next look finds it.
        let Ok(mut task) = self.task.try_lock() else { return };
        self.polls.fetch_add(1, Ordering::Relaxed);
        if let Some(reading) = task.as_mut()
            && let Poll::Ready(read) = reading.as_mut().poll(&mut Context::from_waker(&waker))
        {
            assert_eq!(read.unwrap().len(), READ_BYTES);
            *task = None;
        }
    }

    fn is_over(&self) -> bool {
        self.task.try_lock().is_ok_and(|task| task.is_none())
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// Goal: a waker may poll its task at once: no lock is held while it runs. Method: many such tasks that read the same places.
#[test]
fn a_waker_may_poll_at_once() {
    for driver in drivers() {
        for caching in [Caching::On, Caching::Off] {
            watched(&format!("{driver:?}, caching {caching:?}"), || {
                let (_directory, path) = scratch();
                let engine = Engine::builder().memory(16 << 20).driver(driver.clone()).build().unwrap();
                let file = Arc::new(open(&engine, &path, caching));
                let task = |number: usize| {
                    let (file, offset) = (file.clone(), (number / 4 * READ_BYTES) as u64);
                    let reading: Reading =
                        Box::pin(async move { file.read_at_async(offset, READ_BYTES).await });
                    Arc::new(Inline { task: Mutex::new(Some(reading)), polls: AtomicUsize::new(0) })
                };
                let tasks: Vec<_> = (0..64).map(task).collect();
                tasks.iter().for_each(Inline::poll);
                while !tasks.iter().all(|task| task.is_over()) {
                    thread::yield_now();
                    // One that was woken while it was polled.
                    tasks.iter().filter(|task| !task.is_over()).for_each(Inline::poll);
                }
            });
        }
    }
}

type LocalReading = Pin<Box<dyn Future<Output = Result<bytes::Bytes>>>>;

thread_local! {
    static TASKS: RefCell<Vec<Rc<RefCell<Option<LocalReading>>>>> = const { RefCell::new(Vec::new()) };
}

/// Polls the task of that number, in this thread.
struct LocalInline(usize);

impl Wake for LocalInline {
    fn wake(self: Arc<Self>) {
        let task = TASKS.with(|tasks| tasks.borrow()[self.0].clone());
        let Ok(mut task) = task.try_borrow_mut() else { return };
        let waker = Waker::from(self);
        if let Some(reading) = task.as_mut()
            && let Poll::Ready(read) = reading.as_mut().poll(&mut Context::from_waker(&waker))
        {
            assert_eq!(read.unwrap().len(), 4096);
            *task = None;
        }
    }
}

/// Goal: the same on an engine for one thread, where looking at one request completes others. Method: tasks that wait for the same loads;
/// then the engine is asked for its counts, which looks.
#[test]
fn a_waker_of_a_local_engine_may_poll_at_once() {
    watched("a_waker_of_a_local_engine_may_poll_at_once", || {
        let (_directory, path) = scratch();
        let engine = Engine::builder().memory(16 << 20).local().unwrap();
        let mut options = OpenOptions::new();
        let file = engine.open_with(options.caching(Caching::On).io(IoMode::Direct), &path).unwrap();
        let file = Rc::new(file);
        engine.block_on(async {
            for number in 0..32 {
                let (file, offset) = (file.clone(), (number / 4 * READ_BYTES) as u64);
                let reading: LocalReading = Box::pin(async move { file.read_at_async(offset, 4096).await });
                TASKS.with(|tasks| tasks.borrow_mut().push(Rc::new(RefCell::new(Some(reading)))));
                Arc::new(LocalInline(number)).wake();
            }
            let began = std::time::Instant::now();
            let is_over = || TASKS.with(|tasks| tasks.borrow().iter().all(|task| task.borrow().is_none()));
            while !is_over() {
                assert!(began.elapsed() < PATIENCE, "not woken");
                let _ = engine.stats().cache;
                thread::yield_now();
            }
        });
        TASKS.with(|tasks| tasks.borrow_mut().clear());
    });
}

/// Polls a read of a file that others have changed.
struct Looks {
    file: File,
    looks: AtomicUsize,
    /// Whether a thread flushes the file.
    is_flushing: AtomicBool,
    /// Those while it did, with bytes that were not written yet.
    early: AtomicUsize,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let is_early = self.is_flushing.load(Ordering::Relaxed) && !self.file.is_clean();
        self.early.fetch_add(usize::from(is_early), Ordering::Relaxed);
        let mut reading = Box::pin(self.file.read_at_async(16 * PAGE, 10));
        let _ = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// Goal: a waker may read a file that others have changed, and so wait for a write that its thread is about to complete, waits for, or is
/// the only one to carry out. Method: tasks with such wakers wait for the write of a page that is dirty in part, or for reads of another
/// file; beside them a task or a thread flushes the file. The simulated device does what was asked for in any order, in that thread; a
/// driver with one place has one worker. Wakers do not wait until the thread has waited.
#[test]
fn a_waker_may_read_what_its_thread_writes() {
    let (mut looks, mut early_in_thread) = (0, 0);
    for seed in 0..60 {
        let hostile = SimOptions::hostile(seed);
        let options = SimOptions { short_per_mille: 0, transient_per_mille: 0, repolls: false, ..hostile };
        let sim = DriverKind::Sim(options);
        for driver in if seed < 5 { [drivers(), vec![sim]].concat() } else { vec![sim] } {
            for in_thread in [false, true] {
                let what = format!("{driver:?}, in a thread: {in_thread}");
                let [all, early] = watched(&what, || look(driver.clone(), in_thread));
                looks += all;
                early_in_thread += if matches!(driver, DriverKind::Sim(_)) { early } else { 0 };
            }
        }
    }
    assert!(looks > 60, "{looks} wakers ran");
    assert!(early_in_thread > 0, "{early_in_thread} wakers ran while their thread waited");
}

/// Number of wakers that ran, and of those that ran while a thread waited.
fn look(driver: DriverKind, in_thread: bool) -> [usize; 2] {
    let (directory, path) = scratch();
    let other_path = directory.path().join("other");
    fs::copy(&path, &other_path).unwrap();
    let places = if matches!(driver, DriverKind::Sim(_)) { 16 } else { 1 };
    let engine = Engine::builder().memory(16 << 20).driver(driver).queue_depth(places).build().unwrap();
    let mut options = OpenOptions::new();
    options.engine(&engine).caching(Caching::On).io(IoMode::Direct).write(true);
    options.revalidate(Duration::ZERO);
    let (file, other) = (options.open(&path).unwrap(), options.open(&other_path).unwrap());
    let stranger = fs::OpenOptions::new().write(true).open(&path).unwrap();
    make_cold(&stranger).unwrap();
    file.write_all_at(&[1; 10], 16 * PAGE).unwrap();
    let looks =
        Arc::new(Looks { file: file.clone(), looks: 0.into(), is_flushing: false.into(), early: 0.into() });
    let waker = Waker::from(looks.clone());
    let context = &mut Context::from_waker(&waker);
    let mut reads: Vec<_> = (0..8).map(|page| Box::pin(other.read_at_async(100 * page * PAGE, 10))).collect();
    reads.retain_mut(|reading| reading.as_mut().poll(context).is_pending());
    stranger.write_all_at(&[2; 10], 3 * PAGE).unwrap();
    let mut flush = Box::pin(file.flush_async());
    let _ = flush.as_mut().poll(context);
    if in_thread {
        looks.is_flushing.store(true, Ordering::Relaxed);
        file.flush().unwrap();
        looks.is_flushing.store(false, Ordering::Relaxed);
    } else {
        // Each looks once, and so has the device do one thing.
        let is_over =
            || Box::pin(file.flush_async()).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        while !is_over() {}
    }
    drop((reads, flush));
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 16 * PAGE).unwrap();
    assert_eq!(bytes, [1; 10]);
    file.read_exact_at(&mut bytes, 3 * PAGE).unwrap();
    assert_eq!(bytes, [2; 10]);
    [&looks.looks, &looks.early].map(|count| count.load(Ordering::Relaxed))
}

const PAGE: u64 = 4096;
