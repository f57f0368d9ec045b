//! Stuck: a thread of the program waits in the kernel, and nothing can interrupt it.
//!
//! Owns: that others read what that thread had begun to read.
//! Does not own: single requests (io), wakers, listeners.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::AsyncReadExt;
use headwater::testing::uring_refusal;
use headwater::{Advice, ByteRange, Caching, DriverKind, Engine, File, IoMode, OpenOptions};
use headwater_testkit::{Pattern, ScratchDir, block_on, let_age, make_cold, skip, stuck_in_kernel, watched};
use tokio::runtime::{Builder, Runtime};

/// Goal: pages that a stuck thread had begun to read, for itself or ahead, are read by others all the same, and right; they are cached,
/// and nothing is left when the thread goes on. Method: a thread that nothing can interrupt, after a task's first poll and an advice.
#[test]
fn readers_beside_a_stuck_thread() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    let (directory, pattern) = (ScratchDir::on_target().unwrap(), Pattern::new(4));
    let path = directory.path().join("file");
    pattern.write_file(&path, LENGTH_BYTES).unwrap();
    make_cold(&std::fs::File::open(&path).unwrap()).unwrap();
    let engine = Engine::builder().memory(16 << 20).driver(DriverKind::Uring).build().unwrap();
    let_age(&path);
    let mut options = OpenOptions::new();
    let Ok(file) = options.engine(&engine).caching(Caching::On).io(IoMode::Direct).open(&path) else {
        return skip("no direct I/O");
    };
    let (is_stuck, (give, take)) = (AtomicBool::new(true), channel());
    let waited = watched("readers beside a stuck thread", || {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut reading = Box::pin(file.read_at_async(0, 300_000));
                let polled = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                file.advise(Advice::WillNeed, ByteRange::new(1 << 20, LENGTH_BYTES)).unwrap();
                give.send(polled.is_pending()).unwrap();
                assert!(stuck_in_kernel(&is_stuck), "this thread was waited for");
            });
            assert!(take.recv().unwrap(), "the task has nothing to wait for");
            let (began, mut bytes) = (Instant::now(), vec![0; LENGTH_BYTES as usize]);
            for (number, piece) in bytes.chunks_mut(100_000).enumerate() {
                file.read_exact_at(piece, number as u64 * 100_000).unwrap();
            }
            is_stuck.store(false, Ordering::SeqCst);
            assert_eq!(pattern.mismatch(0, &bytes), None);
            began.elapsed()
        })
    });
    println!("{waited:?}");
    let misses = file.stats().counts.misses;
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    assert_eq!(file.stats().counts.misses, misses, "it is cached");
    drop(file);
    while engine.stats().driver.slots_used > 0 {
        thread::yield_now();
    }
}

/// Goal: the same for a task that a stuck thread has polled first and another goes on with, of single reads or a stream, cached or not; on
/// a runtime that the ring's driver thread serves, and on tokio's, which the ring's reactor serves when the feature is on: also long after
/// its first look at stuck threads. Method: that runtime has read, and rested, before.
#[test]
fn tasks_beside_a_stuck_thread() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for caching in [Caching::On, Caching::Off] {
        for read in [pieces, streamed] {
            read_beside_a_stuck_thread(caching, read, None);
            read_beside_a_stuck_thread(caching, read, Some(&runtime));
        }
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = Vec<u8>> + Send + 'a>>;

fn pieces(file: &File) -> Task<'_> {
    Box::pin(async {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < LENGTH_BYTES {
            bytes.extend_from_slice(&file.read_at_async(bytes.len() as u64, 100_000).await.unwrap());
        }
        bytes
    })
}

fn streamed(file: &File) -> Task<'_> {
    Box::pin(async {
        let mut bytes = Vec::new();
        file.async_reader().read_to_end(&mut bytes).await.unwrap();
        bytes
    })
}

fn read_beside_a_stuck_thread(caching: Caching, begin: fn(&File) -> Task<'_>, runtime: Option<&Runtime>) {
    let (directory, pattern) = (ScratchDir::on_target().unwrap(), Pattern::new(4));
    let path = directory.path().join("file");
    pattern.write_file(&path, LENGTH_BYTES).unwrap();
    make_cold(&std::fs::File::open(&path).unwrap()).unwrap();
    let engine = Engine::builder().memory(16 << 20).driver(DriverKind::Uring).rings(1).build().unwrap();
    let mut options = OpenOptions::new();
    let Ok(file) = options.engine(&engine).caching(caching).io(IoMode::Direct).open(&path) else {
        return skip("no direct I/O");
    };
    if let Some(runtime) = runtime {
        let uncached = options.caching(Caching::Off).open(&path).unwrap();
        runtime.block_on(async {
            assert_eq!(pieces(&uncached).await.len() as u64, LENGTH_BYTES);
            tokio::time::sleep(REST).await;
        });
    }
    let is_stuck = AtomicBool::new(true);
    let waited = watched("a task beside a stuck thread", || {
        thread::scope(|scope| {
            let (file, is_stuck, (give, take)) = (&file, &is_stuck, channel());
            scope.spawn(move || {
                let _context = runtime.map(Runtime::enter);
                let mut task = begin(file);
                let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                give.send((task, polled)).unwrap();
                assert!(stuck_in_kernel(is_stuck), "this thread was waited for");
            });
            let (task, polled) = take.recv().unwrap();
            assert!(polled.is_pending(), "the task has nothing to wait for");
            let began = Instant::now();
            let bytes = match runtime {
                Some(runtime) => runtime.block_on(task),
                None => block_on(task),
            };
            is_stuck.store(false, Ordering::SeqCst);
            assert_eq!(pattern.mismatch(0, &bytes), None);
            began.elapsed()
        })
    });
    println!("{caching:?}: {waited:?}");
    drop(file);
    while engine.stats().driver.slots_used > 0 {
        thread::yield_now();
    }
}

const LENGTH_BYTES: u64 = 3 << 20;
/// Some tens of looks at stuck threads.
const REST: Duration = Duration::from_millis(50);
