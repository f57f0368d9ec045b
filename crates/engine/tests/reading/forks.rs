//! Forks: an engine in a child process, which is told so and builds its own.
//!
//! Owns: files, readers and futures of the parent's engine in the child.
//! Does not own: the driver below, whose tests fork too.

use std::future::Future;
use std::io::Read;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::io::AsyncReadExt;
use headwater::{Caching, Engine, Error, EvictionListener, File, IoMode, ManyRead, OpenOptions};
use headwater_testkit::{Rng, run_forked, with_seed};

use crate::refusal::in_child;
use crate::rig::{Rig, Scratch, block_on, drivers, watched};

/// Goal: with reads and readahead under way, a child gets [`Error::Forked`] from every way to read, drops all it has and
/// reads by an engine of its own, while the parent's reads end as if nothing had been.
#[test]
fn a_child_of_a_reading_process() {
    with_seed("forks::a_child_of_a_reading_process", |seed| {
        if !in_child("forks::a_child_of_a_reading_process") {
            return;
        }
        let scratch = Scratch::new(seed, 3_000_000);
        for kind in drivers(seed) {
            let rig = Rig::new(kind);
            watched(rig.name(), || (0..5).for_each(|_| fork_while_reading(&rig, &scratch)));
            rig.assert_idle();
        }
    });
}

fn fork_while_reading(rig: &Rig, scratch: &Scratch) {
    let file = rig.open(&scratch.path(), IoMode::Direct);
    let mut reader = file.reader();
    let mut first = vec![0; 100_000];
    reader.read_exact(&mut first).unwrap();
    let mut reads: Vec<_> = (0..6).map(|n| Box::pin(file.read_at_async(n * 400_000, 100_000))).collect();
    let started: Vec<_> = reads.iter_mut().map(|read| poll_once(read.as_mut())).collect();
    let mut everything = Some((file, reader, reads));
    run_forked(|| {
        let (file, mut reader, reads) = everything.take().unwrap();
        assert_refused(&file);
        let error = reader.read(&mut vec![0; 3_000_000]).unwrap_err();
        assert!(matches!(error.get_ref().unwrap().downcast_ref(), Some(Error::Forked(_))), "{error:?}");
        let own = Engine::builder().memory(6 << 20).build().unwrap();
        let copy = OpenOptions::new().engine(&own).io(IoMode::Direct).open(scratch.path()).unwrap();
        let mut contents = Vec::new();
        copy.reader().read_to_end(&mut contents).unwrap();
        scratch.check_all(0, usize::MAX, &contents);
        scratch.check_all(7, 500_000, &block_on(copy.read_at_async(7, 500_000)).unwrap());
        drop((file, reader, reads));
    });
    let (file, mut reader, reads) = everything.expect("taken by the child alone");
    for (number, (started, read)) in started.into_iter().zip(reads).enumerate() {
        let bytes = started.unwrap_or_else(|| block_on(read)).unwrap();
        scratch.check_all(number as u64 * 400_000, 100_000, &bytes);
    }
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    scratch.check_all(100_000, usize::MAX, &rest);
    drop(file);
}

/// Goal: a child never waits for a lock that a thread of its parent held. Method: threads that read, evict, look, listen and ask all the time;
/// children that ask everything that waits for no device.
#[test]
fn a_child_waits_for_no_thread_of_its_parent() {
    if !in_child("forks::a_child_waits_for_no_thread_of_its_parent") {
        return;
    }
    for kind in drivers(5) {
        let (rig, scratch) = (Rig::sized(kind, 3 << 20, 16), Scratch::new(5, 8_000_000));
        let mut options = OpenOptions::new();
        let options = options.engine(&rig.engine).caching(Caching::On);
        let (file, end) = (options.open(scratch.path()).unwrap(), AtomicBool::new(false));
        let listener = file.on_evicted(|_| {});
        let mut listener = Some(listener);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (file, end, engine) = (&file, &end, &rig.engine);
                scope.spawn(move || busy(engine, file, end, thread));
            }
            let _ends = Ends(&end);
            for _ in 0..60 {
                run_forked(|| ask(&rig.engine, &file, listener.take()));
                std::thread::sleep(Duration::from_micros(300));
            }
        });
    }
}

/// Also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn busy(engine: &Engine, file: &File, end: &AtomicBool, thread: u64) {
    let (mut rng, mut buffers) = (Rng::new(thread), vec![vec![0; 5000]; 8]);
    while !end.load(Ordering::Relaxed) {
        let reads = buffers.iter_mut().map(|buffer| ManyRead::new(rng.below(7_900_000), buffer));
        file.read_many(&mut reads.collect::<Vec<_>>()).unwrap();
        let _ = (file.stats(), engine.stats(), file.coherence());
        file.refresh().unwrap();
        drop(file.on_evicted(|_| {}));
        file.advise(headwater::Advice::DontNeed, ..).unwrap();
    }
}

fn ask(engine: &Engine, file: &File, listener: Option<EvictionListener>) {
    let _ = (file.stats(), engine.stats(), file.coherence(), engine.info());
    let mut buffer = [0; 5000];
    let error = file.read_many(&mut [ManyRead::new(4096, &mut buffer)]).unwrap_err();
    assert!(matches!(error, Error::Forked(_)), "{error}");
    assert!(file.refresh().is_err() && file.advise(headwater::Advice::DontNeed, ..).is_err());
    drop(file.on_evicted(|_| {}));
    drop(listener);
    let _ = (format!("{engine:?} {file:?}"), file.len());
}

fn assert_refused(file: &File) {
    let is_forked = |error: &Error| matches!(error, Error::Forked(_)) && error.path().is_some();
    for length in [1, 4096, 2_000_000] {
        assert!(is_forked(&file.read_at(&mut vec![0; length], 4096).unwrap_err()));
        assert!(is_forked(&file.read_exact_at(&mut vec![0; length], 4096).unwrap_err()));
        assert!(is_forked(&block_on(file.read_at_async(4096, length)).unwrap_err()));
    }
    let error = block_on(file.stream().next()).unwrap().unwrap_err();
    assert!(matches!(error.get_ref().unwrap().downcast_ref(), Some(Error::Forked(_))), "{error:?}");
    assert!(file.reader().read(&mut [0; 10]).is_err());
    assert!(block_on(file.async_reader().read(&mut [0; 10])).is_err());
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
