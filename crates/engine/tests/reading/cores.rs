//! Cores: a local engine for each processor, in a thread that stays there.
//!
//! Owns: placement, work that is handed over, panics, ends, forks.
//! Does not own: futures within one engine (spawned).

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::thread;

use headwater::{DriverKind, Engine, IoMode, LocalEngine, LocalEngines};
use headwater_testkit::{forbid_affinity_here, forbid_io_uring, run_forked, with_seed};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::refusal::in_child;
use crate::rig::{Scratch, block_on, drivers, watched};

fn engines(kind: DriverKind) -> LocalEngines {
    Engine::builder().memory(8 << 20).queue_depth(16).driver(kind).per_processor().unwrap()
}

fn processors() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
}

/// Every core reads all of the file, in two tasks.
async fn read_all(engine: Rc<LocalEngine>, scratch: Arc<Scratch>) {
    let file = engine.open_as(scratch.path(), IoMode::Direct).unwrap();
    let half = scratch.length_bytes / 2;
    let first = engine.spawn(file.read_at_async(0, half as usize));
    let second = file.read_at_async(half, half as usize).await.unwrap();
    scratch.check_all(0, half as usize, &first.await.unwrap());
    scratch.check_all(half, half as usize, &second);
}

/// Goal: there is an engine for each processor, its thread is there and blocks signals of the program, and all of them read, on
/// every driver; outputs come in order.
#[test]
fn an_engine_for_each_processor() {
    with_seed("cores::an_engine_for_each_processor", |seed| {
        let scratch = Arc::new(Scratch::new(seed, 1_000_000));
        for kind in drivers(seed) {
            let engines = engines(kind);
            let shared = scratch.clone();
            let places = watched("cores", || {
                engines.run(move |engine, core| {
                    let scratch = shared.clone();
                    async move {
                        read_all(engine, scratch).await;
                        (core, processors())
                    }
                })
            });
            assert_eq!(engines.count(), thread::available_parallelism().unwrap().get());
            let is_placed = processors().len() == engines.count();
            for (index, (core, found)) in places.into_iter().enumerate() {
                assert_eq!(core, index);
                let place = is_placed.then(|| processors()[index]);
                assert_eq!(engines.processor(core), place);
                assert_eq!(found, place.map_or_else(processors, |place| vec![place]));
            }
        }
    });
}

/// Goal: a panic of the work, of its future, and of one core of all comes out at the waiter, after the others are done; each core
/// goes on.
#[test]
fn panics_come_out_at_the_waiter() {
    let engines = engines(DriverKind::Threads);
    let last = engines.count() - 1;
    let at_once = engines.spawn(last, |_| -> std::future::Ready<()> { panic!("at once") });
    let later = engines.spawn(last, |engine| async move {
        engine.spawn(async { panic!("later") }).await;
    });
    assert_eq!(text_of(|| at_once.wait()), "at once");
    assert_eq!(text_of(|| block_on(later)), "later");
    let done = Arc::new(AtomicUsize::new(0));
    let counted = done.clone();
    let all = text_of(|| {
        engines.run(move |_, core| {
            let done = counted.clone();
            async move {
                assert_ne!(core, 0, "the first core");
                done.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    assert!(all.contains("the first core"), "{all}");
    assert_eq!(done.load(Ordering::SeqCst), last);
    assert_eq!(engines.run(|_, core| async move { core }), (0..=last).collect::<Vec<_>>());
}

/// Goal: engines that are shared may be caught in a closure, as their `UnwindSafe` says. What panics in a core's thread besides, because it
/// is dropped there, ends no thread and no task but its own: a future that is cancelled, work that has not begun, an output that no task
/// takes. Method: `catch_unwind` without `AssertUnwindSafe`; each several times, on every core.
#[test]
fn engines_outlive_panics() {
    let engines = engines(DriverKind::Auto);
    let caught = catch_unwind(|| {
        engines.run(|_, core| async move { assert_ne!(core, 0, "on purpose") });
    });
    assert!(caught.is_err());
    let ended = Arc::new(AtomicUsize::new(0));
    let mut expected = 0;
    watched("panics", || {
        for core in (0..engines.count()).cycle().take(4 * engines.count()) {
            // A task that begins, and is cancelled.
            let (begun, begins) = channel();
            let inside = PanicsInTheEnd(ended.clone());
            let cancelled = engines.spawn(core, move |_| async move {
                let _inside = inside;
                begun.send(()).unwrap();
                pending::<()>().await;
            });
            begins.recv().unwrap();
            drop(cancelled);
            // One that never does, since the thread is held until it is cancelled.
            let (held, hold) = channel::<()>();
            let holding = engines.spawn(core, move |_| async move { hold.recv().unwrap() });
            let inside = PanicsInTheEnd(ended.clone());
            let never = engines.spawn(core, move |_| async move { drop(inside) });
            drop(never);
            held.send(()).unwrap();
            holding.wait();
            // One whose output no task takes.
            let output = PanicsInTheEnd(ended.clone());
            let (held, hold) = channel::<()>();
            let detached = engines.spawn(core, move |_| async move {
                hold.recv().unwrap();
                output
            });
            detached.detach();
            held.send(()).unwrap();
            expected += 3;
            // In order, so that what was dropped is dropped by now.
            engines.spawn(core, |engine| async move { engine.spawn(async {}).await }).wait();
            assert_eq!(ended.load(Ordering::SeqCst), expected, "each is dropped once");
        }
        let path = "/proc/version";
        let read = engines.run(move |engine, _| async move { engine.open(path)?.read_at_async(0, 5).await });
        assert!(read.into_iter().all(|bytes| bytes.unwrap() == b"Linux"[..]));
    });
}

struct PanicsInTheEnd(Arc<AtomicUsize>);

impl Drop for PanicsInTheEnd {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        // Without the message of a panic.
        resume_unwind(Box::new("on purpose"));
    }
}

fn text_of<T>(work: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).err().expect("it panics");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap()
}

/// Goal: cores hand work to each other, and wait for it without a thread in between. Method: a ball that goes round.
#[test]
fn cores_hand_work_to_each_other() {
    async fn pass(engines: Weak<LocalEngines>, core: usize, passes: usize) -> usize {
        let next = engines.upgrade().filter(|_| passes > 0).map(|shared| {
            let next = (core + 1) % shared.count();
            shared.spawn(next, move |_| Box::pin(pass(engines, next, passes - 1)))
        });
        match next {
            Some(task) => 1 + task.await,
            None => 0,
        }
    }
    let engines = Arc::new(engines(DriverKind::Threads));
    let weak = Arc::downgrade(&engines);
    let passes = watched("a ball", || engines.spawn(0, move |_| pass(weak, 0, 500)).wait());
    assert_eq!(passes, 500);
}

/// Goal: a dropped task drops its future in the core's thread, with a read in flight, and work that has not begun never does.
#[test]
fn dropped_tasks_are_cancelled() {
    with_seed("cores::dropped_tasks_are_cancelled", |seed| {
        let scratch = Arc::new(Scratch::new(seed, 1_000_000));
        for kind in drivers(seed) {
            let engines = engines(kind);
            let (begun, begins) = channel();
            let (ended, ends) = channel();
            let shared = scratch.clone();
            let task = engines.spawn(0, move |engine| async move {
                let _ended = Ended(ended);
                let file = engine.open_as(shared.path(), IoMode::Direct).unwrap();
                let read = engine.spawn(file.read_at_async(0, 500_000));
                begun.send(thread::current().id()).unwrap();
                pending::<()>().await;
                drop(read);
            });
            let (held, hold) = channel::<()>();
            let home = begins.recv().unwrap();
            drop(task);
            assert_eq!(watched("a cancelled task", || ends.recv()).unwrap(), home);
            // The thread is held while work arrives and is cancelled.
            let holding = engines.spawn(0, move |_| async move { hold.recv().unwrap() });
            let never = engines.spawn(0, |_| async { unreachable!("it was cancelled") });
            drop(never);
            held.send(()).unwrap();
            holding.wait();
            drop(engines);
        }
    });
}

/// Tells in which thread it was dropped.
struct Ended(std::sync::mpsc::Sender<thread::ThreadId>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap();
    }
}

/// Goal: dropping the engines waits for detached work and what that spawned, writes back, and does not wait inside of itself.
#[test]
fn dropping_waits() {
    with_seed("cores::dropping_waits", |seed| {
        for kind in drivers(seed) {
            let scratch = Scratch::new(seed, 100_000);
            let (path, is_simulated) = (scratch.path(), matches!(kind, DriverKind::Sim(_)));
            let engines = Arc::new(engines(kind));
            let inner = engines.clone();
            let work = engines.spawn(engines.count() - 1, move |engine| async move {
                let file = engine.open_with(headwater::OpenOptions::new().write(true), &path).unwrap();
                let later = file.write_all_at_async(&b"written"[..], 50_000);
                engine.spawn(async move { later.await.unwrap() }).detach();
                drop(inner);
            });
            work.detach();
            // Whichever drops it last: this thread waits, its own does not.
            watched("the end", || drop(engines));
            if !is_simulated {
                watched("the write", || {
                    while std::fs::read(scratch.path()).unwrap()[50_000..50_007] != *b"written" {
                        thread::yield_now();
                    }
                });
            }
        }
    });
}

/// Goal: with one processor there is one engine; where placement is refused, or io_uring too, the threads run and read all the same.
#[test]
fn affinity_is_refused() {
    if !in_child("cores::affinity_is_refused") {
        return;
    }
    let scratch = Arc::new(Scratch::new(1, 1_000_000));
    let mut one = CpuSet::new();
    let all = processors();
    one.set(all[all.len() - 1]);
    let read = |engines: &LocalEngines| {
        let shared = scratch.clone();
        watched("cores", || engines.run(move |engine, _| read_all(engine, shared.clone()))).len()
    };
    let few = thread::spawn(move || {
        sched_setaffinity(None, &one).unwrap();
        LocalEngines::per_processor().unwrap()
    });
    let few = few.join().unwrap();
    assert_eq!((few.count(), few.processor(0)), (1, Some(all[all.len() - 1])));
    assert_eq!(read(&few), 1);
    forbid_affinity_here();
    forbid_io_uring();
    let free = LocalEngines::per_processor().unwrap();
    assert_eq!((free.count(), free.processor(0)), (thread::available_parallelism().unwrap().get(), None));
    assert_eq!(read(&free), free.count());
}

/// Goal: a core's thread goes on with its work when the process loses the thread's processor. Method: all threads are put on one processor, then
/// on another, from outside, while they read.
#[test]
fn a_processor_is_taken_away() {
    with_seed("cores::a_processor_is_taken_away", |seed| {
        let scratch = Arc::new(Scratch::new(seed, 1_000_000));
        let engines = engines(DriverKind::Auto);
        let threads = engines.run(|_, _| async { gettid().as_raw_nonzero().get() });
        for processor in processors() {
            let mut set = CpuSet::new();
            set.set(processor);
            let shared = scratch.clone();
            let reading: Vec<_> = (0..engines.count())
                .map(|core| {
                    let scratch = shared.clone();
                    engines.spawn(core, |engine| async move { read_all(engine, scratch).await })
                })
                .collect();
            for &thread in &threads {
                sched_setaffinity(Pid::from_raw(thread), &set).unwrap();
            }
            watched("cores", || reading.into_iter().for_each(headwater::Task::wait));
            assert!(engines.run(|_, _| async { processors() }).iter().all(|found| found == &[processor]));
        }
    });
}

/// Goal: a child of `fork` is told that it has no threads, and drops what it has; the parent goes on.
#[test]
fn a_forked_child() {
    if !in_child("cores::a_forked_child") {
        return;
    }
    let mut everything = Some(engines(DriverKind::Auto));
    let mut waiting = everything.as_ref().map(|engines| engines.spawn(0, |_| pending::<()>()));
    run_forked(|| {
        let engines = everything.take().unwrap();
        assert!(text_of(|| engines.spawn(0, |_| async {})).contains("forked child"));
        assert!(text_of(|| waiting.take().unwrap().wait()).contains("forked child"));
        drop(engines);
        let own = LocalEngines::per_processor().unwrap();
        assert_eq!(own.run(|_, core| async move { core }).len(), own.count());
    });
    let engines = everything.expect("taken by the child alone");
    assert_eq!(engines.run(|_, core| async move { core }).len(), engines.count());
    drop(waiting);
}
