//! Spawned: futures that a local engine runs beside that of its `block_on`.
//!
//! Owns: outputs, panics, cancellation, what outlives a `block_on`, loops within loops.
//! Does not own: engines with threads of their own (cores).

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::task::{Poll, Waker};
use std::thread;

use futures_util::future::join_all;
use headwater::{DriverKind, Engine, IoMode, LocalEngine, Task};
use headwater_testkit::with_seed;

use crate::rig::{Scratch, block_on, drivers, watched};

fn engine(kind: DriverKind) -> LocalEngine {
    Engine::builder().memory(8 << 20).queue_depth(16).driver(kind).local().unwrap()
}

/// Goal: many tasks read at once, spawn others and wait for them, on every driver; all outputs are right.
#[test]
fn tasks_that_read() {
    with_seed("spawned::tasks_that_read", |seed| {
        let scratch = Rc::new(Scratch::new(seed, 2_000_000));
        for kind in drivers(seed) {
            let engine = Rc::new(engine(kind));
            let file = engine.open_as(scratch.path(), IoMode::Direct).unwrap();
            let shared = scratch.clone();
            let read = move |offset: u64| {
                let (file, scratch) = (file.clone(), shared.clone());
                async move {
                    let bytes = file.read_at_async(offset, 20_000).await.unwrap();
                    scratch.check_all(offset, 20_000, &bytes);
                    offset
                }
            };
            let task = |number: u64| {
                let (inner, read) = (engine.clone(), read.clone());
                engine.spawn(async move { inner.spawn(read(number * 30_000)).await + read(number * 7).await })
            };
            let tasks: Vec<_> = (0..60).map(task).collect();
            let sums = watched("tasks", || engine.block_on(join_all(tasks)));
            assert_eq!(sums, (0..60).map(|number| number * 30_007).collect::<Vec<u64>>());
        }
    });
}

/// Goal: a panic comes out where the task is awaited or waited for, and nowhere else: other tasks and the engine go on.
#[test]
fn panics_come_out_at_the_waiter() {
    let engine = engine(DriverKind::Threads);
    let panics = |text: &'static str| engine.spawn(async move { panic!("{text}") });
    let (awaited, waited) = (panics("awaited"), panics("waited for"));
    panics("detached").detach();
    let other = engine.spawn(async { 7 });
    assert_eq!(engine.block_on(other), 7);
    assert!(awaited.is_finished());
    assert_eq!(text_of(|| engine.block_on(awaited)), "awaited");
    // In another thread, as a task may be waited for.
    assert_eq!(thread::spawn(move || text_of(|| waited.wait())).join().unwrap(), "waited for");
    assert_eq!(engine.block_on(engine.spawn(async { 8 })), 8);
}

fn text_of<T>(work: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).err().expect("it panics");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap()
}

/// Notes that it was dropped, and where.
struct Noted(Rc<RefCell<Vec<&'static str>>>, &'static str);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

/// Goal: a dropped task drops its future in the next pass, with reads in flight, whether it has begun or not, and also if it is
/// itself that drops it; a detached one goes on, in the next `block_on` too; the engine drops what is left.
#[test]
fn dropped_tasks_are_cancelled() {
    with_seed("spawned::dropped_tasks_are_cancelled", |seed| {
        let scratch = Scratch::new(seed, 2_000_000);
        for kind in drivers(seed) {
            let (engine, ends) = (engine(kind), Rc::<RefCell<Vec<_>>>::default());
            let file = engine.open_as(scratch.path(), IoMode::Direct).unwrap();
            let endless = |name| {
                let (noted, read) = (Noted(ends.clone(), name), file.read_at_async(0, 100_000));
                engine.spawn(async move {
                    let _noted = noted;
                    read.await.unwrap();
                    pending::<()>().await;
                })
            };
            let begun = endless("begun");
            endless("detached").detach();
            engine.block_on(pass());
            drop(begun);
            drop(endless("not begun"));
            engine.block_on(pass());
            assert_eq!(*ends.borrow(), ["begun", "not begun"]);
            cancel_itself(&engine, Noted(ends.clone(), "itself"));
            assert_eq!(ends.borrow()[2..], ["itself"]);
            drop(engine);
            assert_eq!(ends.borrow()[3..], ["detached"]);
        }
    });
}

fn cancel_itself(engine: &LocalEngine, noted: Noted) {
    let own: Rc<Cell<Option<Task<()>>>> = Rc::default();
    let taken = own.clone();
    own.set(Some(engine.spawn(async move {
        let _noted = noted;
        drop(taken.take());
        pending::<()>().await;
    })));
    engine.block_on(pass());
    engine.block_on(pass());
}

/// Lets all that is woken be polled once.
async fn pass() {
    let mut polls = 0;
    poll_fn(|context| {
        polls += 1;
        context.waker().wake_by_ref();
        if polls > 2 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Goal: a task gets the output of another that was woken with it and comes after it, though it blocks its thread for that. Method: a
/// `block_on` inside of the poll of the first.
#[test]
fn a_task_blocks_on_one_that_was_woken_with_it() {
    for kind in drivers(7) {
        let engine = Rc::new(engine(kind));
        let later: Rc<Cell<Option<Task<u32>>>> = Rc::default();
        let (inner, taken) = (engine.clone(), later.clone());
        let first = engine.spawn(async move { inner.block_on(taken.take().expect("it was spawned")) });
        later.set(Some(engine.spawn(async { 7 })));
        assert_eq!(watched("two tasks", || engine.block_on(first)), 7);
    }
}

/// Goal: awaiting a task after its engine was dropped panics with a reason, in any thread, instead of waiting for ever; so does a
/// wait in the thread that would have to run the task.
#[test]
fn waits_that_cannot_end() {
    let engine = engine(DriverKind::Threads);
    let (lost, own) = (engine.spawn(pending::<()>()), engine.spawn(async {}));
    assert!(text_of(|| own.wait()).contains("awaits its tasks"));
    let waiting = thread::spawn(move || text_of(|| block_on(lost)));
    drop(engine);
    assert!(watched("a lost task", || waiting.join()).unwrap().contains("ended before it"));
}

/// Goal: tasks are woken by other threads, and a future in a `block_on` inside of a task's poll gets its wake-ups, as does the
/// task around it. Method: a thread that answers each request, so that a lost wake-up hangs.
#[test]
fn woken_in_nested_loops() {
    with_seed("spawned::woken_in_nested_loops", |seed| {
        for kind in drivers(seed) {
            let engine = Rc::new(engine(kind));
            let (ask, asked) = channel::<Waker>();
            let other = thread::spawn(move || asked.into_iter().for_each(Waker::wake));
            let answered = move || {
                let (ask, mut is_asked) = (ask.clone(), false);
                poll_fn(move |context| {
                    if std::mem::replace(&mut is_asked, true) {
                        return Poll::Ready(());
                    }
                    ask.send(context.waker().clone()).unwrap();
                    Poll::Pending
                })
            };
            let task = |number: u32| {
                let (engine, answered) = (engine.clone(), answered.clone());
                async move {
                    for _ in 0..50 {
                        answered().await;
                        if number == 0 {
                            engine.block_on(answered());
                        }
                    }
                }
            };
            watched("nested loops", || {
                let tasks: Vec<_> = (0..3).map(|number| engine.spawn(task(number))).collect();
                engine.block_on(async {
                    task(0).await;
                    join_all(tasks).await;
                });
            });
            drop((answered, engine));
            other.join().unwrap();
        }
    });
}
