//! Calls: system calls with the caller's own descriptors and buffers, on each driver.
//!
//! Owns: what comes back and when; descriptors and buffers of calls that are dropped, leaked, cancelled, left by their thread or process.
//! Does not own: requests in frames of an arena (the other modules).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use headwater_io::{
    Call, Calling, Driver, DriverKind, DriverOptions, FaultOn, FaultRange, LocalDriver, RejectReason,
    SimControl, SimOptions,
};
use headwater_testkit::{PATIENCE, Rng, run_forked, with_seed};

use crate::bench::{Bench, LENGTH_BYTES, block_on, drivers, errno, in_child, watched};

/// Goal: what is written from any kind of buffer is read into any other, and all that was given comes back as it was. Method: one call
/// of each kind on each driver.
#[test]
fn whatever_the_caller_has() {
    for kind in drivers(1) {
        let bench = Bench::new(kind, 4, 1);
        let (driver, path) = (&bench.driver, bench.directory.path().join("calls"));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let number = file.as_raw_fd();
        let written = driver.call(Call::pwrite(file, "head", 0)).wait();
        assert_eq!(written.result.unwrap(), 4);
        let (file, text) = written.given;
        assert_eq!((file.as_raw_fd(), text), (number, "head"));
        let file = Arc::new(OwnedFd::from(file));
        let vectored = vec![Bytes::from_static(b"wa"), Bytes::new(), Bytes::from_static(b"ter")];
        assert_eq!(driver.call(Call::pwritev(file.clone(), vectored, 4)).wait().result.unwrap(), 5);
        let shared: Arc<[u8]> = Arc::from(&b"!"[..]);
        let written = block_on(driver.call(Call::pwrite(file.clone(), shared.clone(), 9)));
        assert!(written.result.is_ok() && Arc::ptr_eq(&written.given.1, &shared));
        drop(written.given);
        assert_eq!(std::fs::read(&path).unwrap(), b"headwater!");
        let read = driver.call(Call::pread(file.clone(), [0; 4], 1)).wait();
        assert_eq!((read.result.unwrap(), read.given.1), (4, *b"eadw"));
        drop(read.given.0);
        let read = block_on(driver.call(Call::pread(file.clone(), BytesMut::zeroed(10), 0)));
        assert_eq!(&read.given.1[..], b"headwater!");
        drop(read);
        let boxes = vec![vec![0; 3].into_boxed_slice(), vec![0; 100].into_boxed_slice()];
        let places: Vec<_> = boxes.iter().map(|buffer| buffer.as_ptr()).collect();
        let read = driver.call(Call::preadv(file.clone(), boxes, 2)).wait();
        assert_eq!(read.result.unwrap(), 8, "the file ends there");
        assert_eq!((&read.given.1[0][..], &read.given.1[1][..5]), (&b"adw"[..], &b"ater!"[..]));
        assert!(read.given.1.iter().map(|buffer| buffer.as_ptr()).eq(places), "nothing was copied");
        assert_eq!(driver.call(Call::pread(file.clone(), Vec::new(), 0)).wait().result.unwrap(), 0);
        assert_eq!(
            driver.call(Call::pwritev(file.clone(), Vec::<Vec<u8>>::new(), 0)).wait().result.unwrap(),
            0
        );
        drop(read.given);
        assert_eq!(Arc::strong_count(&file), 1);
        bench.assert_idle();
    }
}

/// Goal: single, plugged and vectored calls of any shape move the right bytes. Method: random offsets, lengths and cuts into buffers; a
/// model of the file; short and transient attempts on `sim`.
#[test]
fn random_transfers() {
    with_seed("calls::random_transfers", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 4, seed), Rng::new(seed));
            let mut model = vec![0; LENGTH_BYTES as usize];
            bench.pattern.fill(0, &mut model);
            let file = open(&bench);
            watched(bench.name(), || {
                for _ in 0..60 {
                    transfer_some(&bench, &file, &mut model, &mut rng);
                }
            });
            assert!(std::fs::read(bench.path()).unwrap() == model);
            bench.assert_idle();
        }
    });
}

fn transfer_some(bench: &Bench, file: &Arc<File>, model: &mut [u8], rng: &mut Rng) {
    let length_bytes = 1 + rng.below(200_000) as usize;
    let offset_bytes = rng.below(LENGTH_BYTES - length_bytes as u64) as usize;
    let range = offset_bytes..offset_bytes + length_bytes;
    if rng.chance(1, 3) {
        let mut bytes = vec![0; length_bytes];
        bytes.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
        model[range].copy_from_slice(&bytes);
        let call = Call::pwritev(file.clone(), cut(bytes, rng), offset_bytes as u64);
        let written = bench.driver.call(call).wait();
        assert_eq!(written.result.unwrap(), length_bytes);
        return;
    }
    let mut plug = bench.driver.plug();
    let calls: Vec<_> = (0..6)
        .map(|_| {
            let buffers = cut(vec![0; length_bytes], rng);
            plug.call(Call::preadv(file.clone(), buffers, offset_bytes as u64))
        })
        .collect();
    drop(plug);
    for call in calls {
        let read = if rng.chance(1, 2) { call.wait() } else { block_on(call) };
        assert_eq!(read.result.unwrap(), length_bytes);
        assert!(read.given.1.concat() == model[range.clone()]);
    }
}

/// As several buffers.
fn cut(mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut pieces = VecDeque::new();
    while !bytes.is_empty() && pieces.len() < 20 {
        pieces.push_front(bytes.split_off(rng.below(bytes.len() as u64) as usize));
    }
    pieces.push_front(bytes);
    pieces.into()
}

/// Goal: errors are those of the system call, with what was given. Method: one of each, on each driver.
#[test]
fn errors() {
    for kind in drivers(2) {
        let bench = Bench::new(kind, 4, 2);
        let driver = &bench.driver;
        let file = open(&bench);
        let read_only = Arc::new(File::open(bench.path()).unwrap());
        let written = driver.call(Call::pwrite(read_only.clone(), vec![1; 10], 0)).wait();
        assert_eq!((errno(&written.result), written.given.1.len()), (Some(libc::EBADF), 10));
        let directory = File::open(bench.directory.path()).unwrap();
        let read = driver.call(Call::pread(directory, vec![0; 10], 0)).wait();
        assert_eq!(errno(&read.result), Some(libc::EISDIR));
        let at_end = driver.call(Call::pread(file.clone(), vec![0; 10], LENGTH_BYTES - 3)).wait();
        assert_eq!(at_end.result.unwrap(), 3);
        assert!(at_end.stopped_by.is_none());
        assert_eq!(
            driver.call(Call::pread(file.clone(), vec![0; 10], LENGTH_BYTES + 3)).wait().result.unwrap(),
            0
        );
        let invalid = |result: io::Result<usize>| {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        };
        invalid(driver.call(Call::preadv(file.clone(), vec![vec![0; 1]; 1025], 0)).wait().result);
        invalid(driver.call(Call::pread(file.clone(), vec![0; 1], u64::MAX)).wait().result);
        invalid(driver.call(Call::pread(file.clone(), vec![0; 2], i64::MAX as u64 - 1)).wait().result);
        assert_eq!(driver.call(Call::preadv(file, vec![vec![0; 1]; 1024], 0)).wait().result.unwrap(), 1024);
        bench.assert_idle();
    }
}

/// Goal: a full device, and a bad block, show in the result as in a system call: bytes moved before, and the error behind them. Method:
/// faults of the simulated device.
#[test]
fn errors_of_the_device() {
    let control = SimControl::default();
    let options = SimOptions { transient_per_mille: 0, control: control.clone(), ..SimOptions::hostile(3) };
    let bench = Bench::new(DriverKind::Sim(options), 4, 3);
    let file = open(&bench);
    control.space_left(Some(8192));
    let written = bench.driver.call(Call::pwrite(file.clone(), vec![1; 20_000], 0)).wait();
    assert_eq!(written.result.unwrap(), 8192);
    assert_eq!(written.stopped_by.unwrap().raw_os_error(), Some(libc::ENOSPC));
    let written = bench.driver.call(Call::pwrite(file.clone(), vec![1; 4096], 0)).wait();
    assert_eq!(errno(&written.result), Some(libc::ENOSPC));
    control.space_left(None);
    let bad = headwater_core::units::ByteRange::new(4096, 8192);
    control.add_fault(FaultRange { operation: FaultOn::Reads, ..FaultRange::new(bad, libc::EIO) });
    let read = bench.driver.call(Call::pread(file.clone(), vec![0; 8192], 0)).wait();
    assert_eq!(read.result.unwrap(), 4096);
    assert_eq!(read.stopped_by.unwrap().raw_os_error(), Some(libc::EIO));
    assert!(read.given.1[..4096].iter().all(|&byte| byte == 1));
    let read = bench.driver.call(Call::pread(file, vec![0; 100], 5000)).wait();
    assert_eq!(errno(&read.result), Some(libc::EIO));
    bench.assert_idle();
}

/// Goal: I4: a call that was dropped at any moment neither loses its memory before the kernel is done, nor its descriptor; both are
/// dropped afterwards, once, and what was to be written is written. Method: buffers that paint their memory when they are dropped, out
/// of a pool that is looked at in the end: late I/O would show.
#[test]
fn dropped_at_any_moment() {
    with_seed("calls::dropped_at_any_moment", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 4, seed), Rng::new(seed));
            let (pool, descriptors) = (Arc::new(Pool::default()), Arc::new(AtomicUsize::new(0)));
            watched(bench.name(), || {
                for _ in 0..200 {
                    drop_one(&bench, &pool, &descriptors, &mut rng);
                }
            });
            bench.assert_idle();
            let deadline = Instant::now() + PATIENCE;
            while descriptors.load(Ordering::Acquire) > 0 {
                assert!(Instant::now() < deadline, "a descriptor is still open");
                thread::yield_now();
            }
            let painted = pool.returned.lock().unwrap();
            assert_eq!(painted.len(), pool.made.load(Ordering::Relaxed), "each came back, once");
            assert!(painted.iter().all(|memory| memory.iter().all(|&byte| byte == PAINT)), "late I/O");
            let written = std::fs::read(bench.path()).unwrap();
            assert!(written[..WRITTEN_BYTES].iter().all(|&byte| byte == 0x57), "a write was lost");
        }
    });
}

fn drop_one(bench: &Bench, pool: &Arc<Pool>, descriptors: &Arc<AtomicUsize>, rng: &mut Rng) {
    let (offset_bytes, length_bytes) = bench.draw(rng, 40);
    let file = Counted::new(File::options().read(true).write(true).open(bench.path()).unwrap(), descriptors);
    if rng.chance(1, 10) {
        let written = bench.driver.call(Call::pwrite(file, pool.take(WRITTEN_BYTES, 0x57), 0));
        return poll_and_drop(written, rng);
    }
    poll_and_drop(bench.driver.call(Call::pread(file, pool.take(length_bytes, 0), offset_bytes)), rng);
}

fn poll_and_drop<T: headwater_io::CallOutput + 'static>(mut call: Calling<T>, rng: &mut Rng) {
    for _ in 0..rng.below(4) {
        if Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            break;
        }
    }
    if rng.chance(1, 4) {
        call.cancel();
    }
    if rng.chance(1, 4) {
        // Elsewhere.
        thread::spawn(move || drop(call)).join().unwrap();
    }
}

/// Memory that is never freed.
#[derive(Default)]
struct Pool {
    made: AtomicUsize,
    returned: Mutex<Vec<&'static mut [u8]>>,
}

struct Painted {
    memory: Option<&'static mut [u8]>,
    pool: Arc<Pool>,
}

impl Pool {
    fn take(self: &Arc<Pool>, length_bytes: usize, byte: u8) -> Painted {
        self.made.fetch_add(1, Ordering::Relaxed);
        Painted { memory: Some(vec![byte; length_bytes].leak()), pool: self.clone() }
    }
}

impl AsMut<[u8]> for Painted {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().unwrap()
    }
}

impl AsRef<[u8]> for Painted {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().unwrap()
    }
}

impl Drop for Painted {
    fn drop(&mut self) {
        let memory = self.memory.take().unwrap();
        memory.fill(PAINT);
        self.pool.returned.lock().unwrap().push(memory);
    }
}

/// Goal: a call in the memory of an ended one begins anew: nothing is left of that one's place in a chain, of what it was given, or of what
/// it kept. Method: one thread, more calls than it keeps memory for.
#[test]
fn memory_of_ended_calls_is_used_again() {
    for kind in drivers(8) {
        let (bench, held) = (Bench::new(kind, 2, 8), Arc::new(()));
        watched(bench.name(), || {
            for _ in 0..3 {
                let chain = || Call::nop(held.clone()).then(Call::nop(held.clone())).keeping(held.clone());
                let chains: Vec<_> = (0..100).map(|_| bench.driver.call(chain())).collect();
                for ((first, second), number) in chains.into_iter().map(Calling::wait).zip(0_usize..) {
                    first.result.and(second.result).unwrap();
                    drop((first.given, second.given));
                    assert_eq!(Arc::strong_count(&held), 1 + 3 * (99 - number));
                }
                bench.driver.call_all((0..100).map(Call::nop), |number, nothing| {
                    nothing.result.unwrap();
                    assert_eq!(nothing.given, number);
                });
            }
        });
        bench.assert_idle();
    }
}

/// A descriptor that is counted while it is open.
struct Counted(File, Arc<AtomicUsize>);

impl Counted {
    fn new(file: File, open: &Arc<AtomicUsize>) -> Counted {
        open.fetch_add(1, Ordering::AcqRel);
        Counted(file, open.clone())
    }
}

impl AsFd for Counted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Goal: a handle that is leaked keeps its call's memory for good; the bytes are written, and the driver is dropped without a wait.
#[test]
fn leaked() {
    for kind in drivers(4) {
        let bench = Bench::new(kind.clone(), 4, 4);
        let options = DriverOptions { kind, queue_depth: 2, ..DriverOptions::default() };
        let (driver, open_count) = (Driver::new(&options).unwrap(), Arc::new(AtomicUsize::new(0)));
        watched(bench.name(), || {
            for _ in 0..4 {
                let file = Counted::new(File::options().write(true).open(bench.path()).unwrap(), &open_count);
                std::mem::forget(driver.call(Call::pwrite(file, vec![0xEE; 4096], 0)));
            }
            // On the simulated device, nothing happens without a caller that waits.
            driver.call(Call::pread(open(&bench), vec![0; 1], 0)).wait().result.unwrap();
            driver.attend();
            let mut buffer = [0; 4096];
            let deadline = Instant::now() + PATIENCE;
            while open(&bench).read_exact_at(&mut buffer, 0).is_err() || buffer != [0xEE; 4096] {
                assert!(Instant::now() < deadline);
                thread::yield_now();
            }
            drop(driver);
        });
        assert_eq!(open_count.load(Ordering::Acquire), 4, "what is leaked is never dropped");
    }
}

/// Goal: a thread that ends takes its calls' memory with it as little as it takes their results. Method: threads that submit large
/// direct transfers and end at once; other threads wait.
#[test]
fn the_thread_that_submitted_is_gone() {
    with_seed("calls::the_thread_that_submitted_is_gone", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 8, seed);
            let flags = if bench.file.direct().is_some() { libc::O_DIRECT } else { 0 };
            let file = Arc::new(File::options().read(true).custom_flags(flags).open(bench.path()).unwrap());
            watched(bench.name(), || {
                for round in 0..40 {
                    let (bench, file) = (&bench, &file);
                    let offset_bytes = round % 8 * (1 << 20);
                    let calls: Vec<_> = thread::scope(|scope| {
                        let submit =
                            || bench.driver.call(Call::pread(file.clone(), Aligned::default(), offset_bytes));
                        let threads: Vec<_> = (0..3).map(|_| scope.spawn(submit)).collect();
                        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
                    });
                    for call in calls {
                        let read = if round % 2 == 0 { call.wait() } else { block_on(call) };
                        assert_eq!(read.result.unwrap(), 1 << 20);
                        let buffer = read.given.1;
                        assert_eq!(bench.pattern.mismatch(offset_bytes, buffer.as_ref()), None);
                    }
                }
            });
            bench.assert_idle();
        }
    });
}

/// As direct transfers need it.
#[repr(align(4096))]
struct Mebibyte([u8; 1 << 20]);

struct Aligned(Box<Mebibyte>);

impl Default for Aligned {
    fn default() -> Aligned {
        Aligned(Box::new(Mebibyte([0; 1 << 20])))
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}

/// Goal: a forked child is refused, gets back what it gave, and drops calls of its parent without a trace; the parent's go on, into the
/// parent's memory. Method: calls held across the fork; the child writes to its copy of the memory.
#[test]
fn forked_children() {
    if !in_child("calls::forked_children") {
        return;
    }
    for kind in drivers(5) {
        let bench = Bench::new(kind, 2, 5);
        let file = open(&bench);
        watched(bench.name(), || {
            for round in 0..20 {
                let offset_bytes = round * 4096;
                let calls = [(); 5]
                    .map(|()| bench.driver.call(Call::pread(file.clone(), vec![0; 100_000], offset_bytes)));
                let mut held = Some(calls);
                run_forked(|| {
                    let refused = bench.driver.call(Call::pread(file.clone(), vec![7; 10], 0));
                    assert!(refused.is_done());
                    let refused = refused.wait();
                    let error = refused.result.unwrap_err();
                    assert_eq!(error.to_string(), RejectReason::Forked.to_string());
                    assert_eq!(refused.given.1, [7; 10]);
                    let mut plug = bench.driver.plug();
                    assert!(block_on(plug.call(Call::pwrite(file.clone(), vec![7; 10], 0))).result.is_err());
                    drop(held.take());
                });
                for call in held.expect("taken by the child alone") {
                    let read = call.wait();
                    assert_eq!(read.result.unwrap(), 100_000);
                    assert_eq!(bench.pattern.mismatch(offset_bytes, &read.given.1), None);
                }
            }
        });
        bench.assert_idle();
    }
}

/// Goal: calls on a local driver, by its loop, and given up in other threads.
#[test]
fn local_drivers() {
    let bench = Bench::new(DriverKind::Threads, 4, 6);
    let local = LocalDriver::new(&DriverOptions { queue_depth: 4, ..DriverOptions::default() }).unwrap();
    let file = open(&bench);
    let driver = local.driver().clone();
    let read = |offset_bytes| driver.call(Call::pread(file.clone(), vec![0; 50_000], offset_bytes));
    watched("local", || {
        for round in 0..50 {
            let dropped = read(0);
            let finished = local.block_on(read(round * 1000));
            assert_eq!(bench.pattern.mismatch(round * 1000, &finished.given.1), None);
            thread::spawn(move || drop(dropped)).join().unwrap();
        }
    });
    watched("dropping it", || drop((local, driver)));
    assert_eq!(Arc::strong_count(&file), 1);
}

/// Goal: a thread that completes the requests of its local ring comes back in time although none ends. Method: a poll that nothing answers.
#[test]
fn a_local_ring_is_reaped_for_so_long() {
    let local = LocalDriver::new(&DriverOptions { queue_depth: 4, ..DriverOptions::default() }).unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let poll = local.driver().call(Call::poll(reader, libc::POLLIN as u32));
    let began = Instant::now();
    let is_under_way = watched("reaping", || local.driver().reap_own(Duration::from_millis(10)));
    assert!(is_under_way || local.driver().info().name == "threads");
    println!("{:?}", began.elapsed());
    drop(poll);
}

/// Goal: the last handle of a call that was never waited for may be dropped by whatever drops first. Method: the driver goes first.
#[test]
fn a_call_outlives_its_driver() {
    for kind in drivers(7) {
        let bench = Bench::new(kind.clone(), 4, 7);
        let options = DriverOptions { kind, queue_depth: 1, ..DriverOptions::default() };
        let driver = Driver::new(&options).unwrap();
        let file = open(&bench);
        let calls = [(); 3].map(|()| driver.call(Call::pread(file.clone(), vec![0; 8192], 4096)));
        drop(driver);
        watched(bench.name(), || {
            let [first, second, third] = calls;
            drop(third);
            assert_eq!(bench.pattern.mismatch(4096, &second.wait().given.1), None);
            assert!(matches!(first.is_done(), true | false));
            assert_eq!(bench.pattern.mismatch(4096, &block_on(first).given.1), None);
        });
        assert_eq!(Arc::strong_count(&file), 1);
    }
}

/// Goal: calls that are made together come back in their order, each with what it was given, also more than have a place, and such as the
/// ring leaves to worker threads; a forked child gets all of them back.
#[test]
fn calls_made_together() {
    with_seed("calls::calls_made_together", |seed| {
        if !in_child("calls::calls_made_together") {
            return;
        }
        for kind in drivers(seed) {
            let operations = headwater_io::RingOperations::Transfers;
            let options = DriverOptions { kind, operations, queue_depth: 4, ..DriverOptions::default() };
            let (bench, mut rng) = (Bench::with(&options, seed), Rng::new(seed));
            let file = open(&bench);
            watched(bench.name(), || {
                for count in [0, 1, 3, 40, 100] {
                    let ranges: Vec<_> = (0..count).map(|_| bench.draw(&mut rng, 10)).collect();
                    let reads = || {
                        let read = |&(offset_bytes, length_bytes): &(u64, usize)| {
                            Call::pread(file.clone(), vec![0; length_bytes], offset_bytes)
                        };
                        ranges.iter().map(read)
                    };
                    let mut places = Vec::new();
                    bench.driver.call_all(reads(), |place, read| {
                        let (offset_bytes, length_bytes) = ranges[place];
                        assert_eq!(read.result.unwrap(), length_bytes);
                        assert_eq!(bench.pattern.mismatch(offset_bytes, &read.given.1), None);
                        places.push(place);
                    });
                    assert!(places.into_iter().eq(0..count));
                    run_forked(|| {
                        let mut refused = 0;
                        bench.driver.call_all(reads(), |place, read| {
                            assert_eq!((place, read.given.1.len()), (refused, ranges[place].1));
                            refused += usize::from(read.result.is_err());
                        });
                        assert_eq!(refused, count);
                    });
                }
                let mut lengths = Vec::new();
                let both = [bench.path(), bench.directory.path().join("missing")].map(Call::attributes);
                bench.driver.call_all(both, |_, of| lengths.push(of.result.ok().map(|of| of.length_bytes)));
                assert_eq!(lengths, [Some(LENGTH_BYTES), None]);
                let panics = std::panic::AssertUnwindSafe(|| {
                    let reads = (0..9).map(|_| Call::pread(file.clone(), vec![0; 100], 0));
                    bench.driver.call_all(reads, |place, _| assert!(place < 2, "on purpose"));
                });
                assert!(std::panic::catch_unwind(panics).is_err());
            });
            bench.assert_idle();
            assert_eq!(Arc::strong_count(&file), 1);
        }
    });
}

/// Goal: calls and their handles can be moved to other threads and shared, whatever they were given. Method: the compiler.
#[test]
fn calls_travel() {
    fn travels<T: Send + Sync>() {}
    travels::<Calling<headwater_io::Returned<usize, (OwnedFd, std::cell::Cell<u8>)>>>();
    travels::<Call<headwater_io::Returned<usize, (OwnedFd, std::cell::Cell<u8>)>>>();
    travels::<(headwater_io::Rejected, headwater_io::Request)>();
}

/// Goal: polled again when it was ready, a future says so.
#[test]
fn asked_again() {
    for kind in drivers(8) {
        let bench = Bench::new(kind, 4, 8);
        let mut call = bench.driver.call(Call::pread(open(&bench), vec![0; 1], 0));
        let mut context = Context::from_waker(Waker::noop());
        watched(bench.name(), || {
            while Pin::new(&mut call).poll(&mut context).is_pending() {
                thread::yield_now();
            }
        });
        assert!(call.is_done());
        let again = std::panic::AssertUnwindSafe(|| Pin::new(&mut call).poll(&mut context).is_ready());
        assert!(std::panic::catch_unwind(again).is_err());
        drop(call);
        bench.assert_idle();
    }
}

fn open(bench: &Bench) -> Arc<File> {
    Arc::new(File::options().read(true).write(true).open(bench.path()).unwrap())
}

const PAINT: u8 = 0xC5;
const WRITTEN_BYTES: usize = 30_000;
