//! Local: engines that stay in one thread.
//!
//! Owns: `block_on` and what may wake it, other threads, ends in the middle.
//! Does not own: reading as such, which is that of every engine.

use std::future::{Future, poll_fn};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::thread;

use futures_util::io::AsyncReadExt;
use futures_util::{StreamExt, future};
use headwater::ring::{Driver, DriverOptions, LocalDriver, Request, Urgency};
use headwater::{ByteRange, DriverKind, Engine, File, IoMode, Local, LocalEngine, Reader};
use headwater_testkit::{forbid_io_uring, with_seed};

use crate::refusal::in_child;
use crate::rig::{Scratch, drivers, uring_refusal, watched};

fn engine(kind: DriverKind) -> LocalEngine {
    Engine::builder().memory(8 << 20).queue_depth(16).driver(kind).local().unwrap()
}

/// Goal: more reads than there are places, readers and streams, all in one `block_on`, on every driver.
#[test]
fn many_reads_in_one_thread() {
    with_seed("local::many_reads_in_one_thread", |seed| {
        let scratch = Scratch::new(seed, 2_000_000);
        for kind in drivers(seed) {
            let engine = engine(kind);
            watched("a local engine", || engine.block_on(read_in_all_ways(&engine, &scratch)));
            assert_idle(&engine);
        }
    });
}

async fn read_in_all_ways(engine: &LocalEngine, scratch: &Scratch) {
    let file = engine.open_as(scratch.path(), IoMode::Direct).unwrap();
    let reads = (0..64).map(|number| read(&file, scratch, number * 30_000, 1 + number as usize * 700));
    future::join_all(reads).await;
    let (mut contents, mut streamed) = (Vec::new(), Vec::new());
    file.async_reader().read_to_end(&mut contents).await.unwrap();
    let builder = Local::<Reader>::builder(&file).request_bytes(64 << 10).ahead_bytes(256 << 10);
    let mut built = Vec::new();
    builder.clone().build_async().unwrap().read_to_end(&mut built).await.unwrap();
    scratch.check_all(0, usize::MAX, &built);
    built.clear();
    builder.build().unwrap().read_to_end(&mut built).unwrap();
    let mut stream = file.stream();
    while let Some(bytes) = stream.next().await {
        streamed.extend_from_slice(&bytes.unwrap());
    }
    scratch.check_all(0, usize::MAX, &built);
    scratch.check_all(0, usize::MAX, &contents);
    scratch.check_all(0, usize::MAX, &streamed);
}

async fn read(file: &Local<File>, scratch: &Scratch, offset_bytes: u64, length: usize) {
    let bytes = file.read_at_async(offset_bytes, length).await.unwrap();
    scratch.check_all(offset_bytes, length, &bytes);
}

/// All has come back; what is abandoned is completed while the engine's thread waits for something.
fn assert_idle(engine: &LocalEngine) {
    watched("what is abandoned", || {
        engine.block_on(async {
            while engine.stats().driver.slots_used > 0 || engine.stats().arena.used_bytes > 0 {
                let file = engine.open_as("/proc/version", IoMode::Buffered).unwrap();
                file.read_at_async(0, 100).await.unwrap();
            }
        });
    });
}

/// Goal: a future that waits for another thread is woken by it, with reads under way and without. Method: a thread that
/// answers each request of the future, so that a lost wake-up hangs.
#[test]
fn woken_by_another_thread() {
    with_seed("local::woken_by_another_thread", |seed| {
        let scratch = Scratch::new(seed, 2_000_000);
        for kind in drivers(seed) {
            let engine = engine(kind);
            let file = engine.open_as(scratch.path(), IoMode::Direct).unwrap();
            let (ask, asked) = channel::<futures_sender::Sender>();
            let other = thread::spawn(move || asked.into_iter().for_each(futures_sender::Sender::send));
            watched("a local engine", || {
                engine.block_on(async {
                    for round in 0..300 {
                        let (sender, receiver) = futures_sender::pair();
                        ask.send(sender).unwrap();
                        if round % 2 == 0 {
                            future::join(receiver, read(&file, &scratch, round * 4096, 4096)).await;
                        } else {
                            receiver.await;
                        }
                    }
                });
            });
            drop(ask);
            other.join().unwrap();
            assert_idle(&engine);
        }
    });
}

/// A channel for one signal.
mod futures_sender {
    use std::sync::{Arc, Mutex};
    use std::task::{Poll, Waker};

    #[derive(Default)]
    struct State {
        sent: bool,
        waker: Option<Waker>,
    }

    pub(super) struct Sender(Arc<Mutex<State>>);

    impl Sender {
        pub(super) fn send(self) {
            let mut state = self.0.lock().unwrap();
            state.sent = true;
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    pub(super) fn pair() -> (Sender, impl Future<Output = ()>) {
        let state: Arc<Mutex<State>> = Arc::default();
        let receiver = state.clone();
        let receive = std::future::poll_fn(move |context| {
            let mut state = receiver.lock().unwrap();
            state.waker = Some(context.waker().clone());
            if state.sent { Poll::Ready(()) } else { Poll::Pending }
        });
        (Sender(state), receive)
    }
}

/// Goal: an engine, its files and its futures may be dropped in any order with reads in flight.
#[test]
fn dropped_with_reads_in_flight() {
    with_seed("local::dropped_with_reads_in_flight", |seed| {
        let scratch = Scratch::new(seed, 2_000_000);
        for kind in drivers(seed) {
            watched("a local engine", || {
                for order in 0..30 {
                    let engine = engine(kind.clone());
                    let file = engine.open_as(scratch.path(), IoMode::Direct).unwrap();
                    let mut reads: Vec<_> =
                        (0..20).map(|n| Box::pin(file.read_at_async(n * 80_000, 70_000))).collect();
                    engine.block_on(poll_fn(|context| {
                        reads.retain_mut(|read| read.as_mut().poll(context).is_pending());
                        Poll::Ready(())
                    }));
                    match order % 3 {
                        0 => drop((engine, file, reads)),
                        1 => drop((reads, file, engine)),
                        _ => drop((file, reads.pop().map(|read| engine.block_on(read)), engine, reads)),
                    }
                }
            });
        }
    });
}

/// Goal: what this kernel offers to a thread of its own is used, and is not to others.
#[test]
fn completions_are_deferred() {
    if uring_refusal().is_some() {
        return;
    }
    let info = engine(DriverKind::Uring).info();
    assert_eq!((info.driver, info.rings), ("uring", 1));
    // Linux 6.1 brought it.
    assert_eq!(info.completions_deferred, kernel_version() >= (6, 1));
    assert_eq!((info.polled_rings, info.polling_refusal), (0, None));
    assert!(!Engine::builder().driver(DriverKind::Uring).build().unwrap().info().completions_deferred);
}

fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Goal: a foreign thread that submits, waits or polls is stopped with a word, and takes nothing with it: the owner goes
/// on, and all memory and slots come back.
#[test]
fn a_foreign_thread_is_stopped() {
    if uring_refusal().is_some() {
        return;
    }
    let options = DriverOptions { kind: DriverKind::Uring, queue_depth: 4, ..DriverOptions::default() };
    let local = LocalDriver::new(&options).unwrap();
    let submit = |driver: &Driver| driver.submit(Request::Nop, Urgency::Demand).unwrap();
    for _ in 0..10 {
        let (waited, mut polled) = (submit(local.driver()), submit(local.driver()));
        let (cancelled, dropped) = (submit(local.driver()), submit(local.driver()));
        let driver = local.driver().clone();
        thread::spawn(move || {
            assert_stopped(BY_OWNER, || drop(submit(&driver)));
            assert_stopped(BY_OWNER, || drop(driver.plug().submit(Request::Nop, Urgency::Demand)));
            assert_stopped(BY_OWNER, || {
                let mut batch = driver.batch();
                batch.push(Request::Nop).unwrap();
                batch.finish(|_, _| {});
            });
            assert_stopped(BY_OWNER, || cancelled.cancel());
            assert_stopped(IN_BLOCK_ON, || {
                _ = polled.poll(&mut Context::from_waker(Waker::noop()));
            });
            assert_stopped(BY_OWNER, || drop(waited.wait()));
            drop(dropped);
        })
        .join()
        .unwrap();
        assert!(submit(local.driver()).wait().result.is_ok());
    }
    assert_eq!(local.driver().stats().slots_used, 0);
}

/// The words of the documentation.
fn assert_stopped(words: &str, work: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err(words);
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap();
    assert!(text.contains(words), "{text}");
}

const BY_OWNER: &str = "a local driver is used by the thread that built it";
const IN_BLOCK_ON: &str = "futures of a local engine run inside its `block_on`";

/// Goal: outside of `block_on` a future says where it belongs.
#[cfg(not(feature = "tokio"))]
#[test]
fn polled_outside_of_block_on() {
    if uring_refusal().is_none() {
        poll_outside(IN_BLOCK_ON);
    }
}

fn poll_outside(words: &str) {
    let scratch = Scratch::new(1, 100_000);
    let engine = engine(DriverKind::Uring);
    let file = engine.open_as(scratch.path(), IoMode::Direct).unwrap();
    let mut read = pin!(file.read_at_async(0, 50_000));
    assert_stopped(words, || _ = read.as_mut().poll(&mut Context::from_waker(Waker::noop())));
}

/// Goal: on a tokio runtime of this thread local reads need no `block_on`, beside reads of a shared engine; on one that
/// runs tasks elsewhere they say so instead of waiting for ever.
#[cfg(feature = "tokio")]
#[test]
fn inside_tokio() {
    with_seed("local::inside_tokio", |seed| {
        if uring_refusal().is_some() {
            return;
        }
        poll_outside(IN_BLOCK_ON);
        let scratch = Scratch::new(seed, 2_000_000);
        let engine = engine(DriverKind::Uring);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        watched("tokio", || {
            runtime.block_on(read_in_all_ways(&engine, &scratch));
            // And as it was before.
            engine.block_on(read_in_all_ways(&engine, &scratch));
            runtime.block_on(read_in_all_ways(&engine, &scratch));
        });
        let elsewhere = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_io().build();
        let _entered = elsewhere.as_ref().unwrap().enter();
        poll_outside(IN_BLOCK_ON);
        assert_idle(&engine);
    });
}

/// Goal: where io_uring is forbidden, a local engine reads with threads all the same, and says why.
#[test]
fn local_without_io_uring() {
    if !in_child("local::local_without_io_uring") {
        return;
    }
    forbid_io_uring();
    let scratch = Scratch::new(1, 2_000_000);
    let engine = Engine::builder().memory(8 << 20).local().unwrap();
    let info = engine.info();
    assert_eq!((info.driver, info.rings, info.completions_deferred), ("threads", 0, false));
    assert!(info.uring_refusal.unwrap().contains("not permitted"));
    watched("threads", || engine.block_on(read_in_all_ways(&engine, &scratch)));
    let error = Engine::builder().driver(DriverKind::Uring).local().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(error.to_string().starts_with("build the engine: "), "{error}");
    assert_idle(&engine);
}

/// Goal: a blocking call that finds no memory completes the requests of its own thread, which no other thread does. Method: reads that take
/// all of it are begun and dropped, or announced; then a reader, reads of both kinds of file and a view.
#[test]
fn blocking_calls_find_memory_in_their_own_ring() {
    with_seed("local::blocking_calls_find_memory_in_their_own_ring", |seed| {
        let scratch = Scratch::new(seed, 8_000_000);
        for kind in drivers(seed) {
            for is_announced in [false, true] {
                let engine = Engine::builder().memory(3 << 20).queue_depth(64).driver(kind.clone());
                let engine = engine.local().unwrap();
                let file = engine.open_as(scratch.path(), IoMode::Auto).unwrap();
                let direct = engine.open_as(scratch.path(), IoMode::Direct).unwrap();
                watched("a local engine", || {
                    fill_and_drop(&engine, &file, &direct, is_announced);
                    let mut buffer = vec![0; 300_000];
                    file.reader().read_exact(&mut buffer).unwrap();
                    scratch.check(0, &buffer);
                    fill_and_drop(&engine, &file, &direct, is_announced);
                    direct.reader().read_exact(&mut buffer).unwrap();
                    scratch.check(0, &buffer);
                    fill_and_drop(&engine, &file, &direct, is_announced);
                    file.read_exact_at(&mut buffer, 7_000_001).unwrap();
                    scratch.check(7_000_001, &buffer);
                    fill_and_drop(&engine, &file, &direct, is_announced);
                    scratch.check(7_500_001, &file.view(7_500_001, 200_000).unwrap().to_vec());
                });
                assert_idle(&engine);
            }
        }
    });
}

/// Requests that take the memory, and that no task waits for any more.
fn fill_and_drop(engine: &LocalEngine, file: &Local<File>, direct: &Local<File>, is_announced: bool) {
    if is_announced {
        file.will_need(&[ByteRange::new(1_000_000, 2_500_000)]).unwrap();
    }
    engine.block_on(async {
        let large = (0..12).map(|nth| (nth * 400_000, 256 << 10));
        let small = (0..60).map(|nth| (nth * 70_000, 4096));
        let mut reads: Vec<_> =
            large.chain(small).map(|(place, length)| Box::pin(direct.read_at_async(place, length))).collect();
        poll_fn(|context| {
            reads.iter_mut().for_each(|read| _ = read.as_mut().poll(context));
            Poll::Ready(())
        })
        .await;
    });
}
