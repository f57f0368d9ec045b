//! Wakers: those of executors that panic, or poll their task at once.
//!
//! Owns: that other tasks go on.
//! Does not own: ordinary executors (reading).

use std::cell::RefCell;
use std::fs;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use headwater::{Caching, Engine, File, IoMode, OpenOptions, Result};
use headwater_testkit::{PATIENCE, ScratchDir, block_on, watched};

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
