//! Transfers: reads and writes, in one piece and in many, to the end and beyond, and the errors of the device.
//!
//! Owns: what one request does.
//! Does not own: many at once (see `waiting`).

use std::os::fd::AsRawFd;
use std::sync::Arc;

use headwater_core::units::ByteRange;
use headwater_io::{
    Access, DirectIo, Direction, Driver, DriverKind, DriverOptions, Extents, FaultRange, OpenFile, Route,
    SimOptions, Urgency,
};
use headwater_testkit::{Rng, with_seed};

use crate::bench::{Bench, LENGTH_BYTES, drivers, errno, in_child, watched};

/// Goal: a request over scattered memory fills it in file order. Method: keep every second page of an arena.
#[test]
fn reads_into_scattered_memory() {
    with_seed("transfers::reads_into_scattered_memory", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 16, seed), Rng::new(seed));
            let pages: Vec<_> = std::iter::from_fn(|| bench.arena.allocate(4096, Urgency::Demand)).collect();
            let (kept, freed): (Vec<_>, Vec<_>) =
                pages.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
            drop(freed);
            for _ in 0..60 {
                let (offset_bytes, length_bytes) = bench.draw(&mut rng, 100);
                let request = bench.request(offset_bytes, length_bytes);
                assert_eq!(request.extents.len(), length_bytes / 4096);
                let finished = bench.submit(request).wait();
                bench.check(offset_bytes, length_bytes, &finished);
            }
            drop(kept);
            bench.assert_idle();
        }
    });
}

/// Goal: what is written is what a reader of the standard library finds, and nothing else has changed.
#[test]
fn writes_arrive() {
    with_seed("transfers::writes_arrive", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 16, seed), Rng::new(seed));
            let mut expected = std::fs::read(bench.path()).unwrap();
            for number in 0..20_u8 {
                let (offset_bytes, length_bytes) = bench.draw(&mut rng, 60);
                let mut request = bench.request(offset_bytes, length_bytes);
                request.direction = Direction::Write;
                request.extents.iter_mut().for_each(|extent| extent.fill(number));
                let finished = bench.submit(request).wait();
                assert_eq!(finished.result.unwrap(), length_bytes);
                expected[offset_bytes as usize..][..length_bytes].fill(number);
            }
            assert!(std::fs::read(bench.path()).unwrap() == expected, "{}", bench.name());
            bench.assert_idle();
        }
    });
}

/// Goal: a read across the end is short, one beyond it is empty, and neither is stopped by anything.
#[test]
fn reads_at_the_end() {
    for kind in drivers(3) {
        let bench = Bench::new(kind, 4, 3);
        let ordinary = std::fs::File::options().write(true).open(bench.path()).unwrap();
        ordinary.set_len(LENGTH_BYTES - 3000).unwrap();
        for (offset_bytes, expected) in [(LENGTH_BYTES - 8192, 5192), (LENGTH_BYTES, 0), (1 << 40, 0)] {
            let finished = bench.submit(bench.request(offset_bytes, 65536)).wait();
            assert_eq!(finished.result.unwrap(), expected, "at {offset_bytes}");
            assert!(finished.stopped_by.is_none());
        }
        bench.assert_idle();
    }
}

/// Goal: an error is the device's own number; a partly good read keeps its bytes and says what stopped it.
#[test]
fn errors_of_the_device() {
    with_seed("transfers::errors_of_the_device", |seed| {
        let options = SimOptions::hostile(seed);
        let control = options.control.clone();
        let bench = Bench::new(DriverKind::Sim(options), 4, seed);
        control.add_fault(FaultRange::new(ByteRange::new(40_960, 45_056), 5));
        let read = |offset_bytes, length| bench.submit(bench.request(offset_bytes, length)).wait();
        assert_eq!(errno(&read(40_960, 8192).result), Some(5));
        let partly_good = read(0, 65536);
        assert_eq!(partly_good.result.as_ref().unwrap(), &40_960);
        assert_eq!(partly_good.stopped_by.as_ref().and_then(std::io::Error::raw_os_error), Some(5));
        control.clear_faults();
        bench.check(0, 65536, &read(0, 65536));
        drop(partly_good);
        bench.assert_idle();
    });
}

/// Goal: a write to a file open for reading fails with the kernel's word, on each driver.
#[test]
fn a_write_without_permission() {
    for kind in drivers(4) {
        let bench = Bench::new(kind, 4, 4);
        let file = OpenFile::open(&bench.path(), DirectIo::Preferred, Access::Read).unwrap();
        let mut request = bench.request(0, 4096);
        request.file = std::sync::Arc::new(file);
        request.direction = Direction::Write;
        let finished = bench.submit(request).wait();
        assert_eq!(errno(&finished.result), Some(libc::EBADF));
        drop(finished);
        bench.assert_idle();
    }
}

/// Goal: a descriptor that somebody closes under requests is an error of those that come too late, and hangs nobody.
/// Method: one place, so that most of them wait; in a process of its own, where nobody takes the number.
#[test]
fn a_descriptor_closed_under_a_request() {
    if !in_child("transfers::a_descriptor_closed_under_a_request") {
        return;
    }
    for kind in drivers(8) {
        let mut bench = Bench::new(kind, 1, 8);
        bench.file = Arc::new(OpenFile::open(&bench.path(), DirectIo::Off, Access::Read).unwrap());
        let number = bench.file.buffered().as_raw_fd();
        watched(bench.name(), || {
            let requests: Vec<_> =
                (0..20).map(|page| bench.submit(bench.request(page * 4096, 4096))).collect();
            // SAFETY: what the program's mistake would be; the number is given back its meaning below.
            let kept = unsafe { libc::dup(number) };
            // SAFETY: as above.
            unsafe { libc::close(number) };
            let mut errors = 0;
            for (page, completion) in (0..).zip(requests) {
                let finished = completion.wait();
                match errno(&finished.result) {
                    None => bench.check(page * 4096, 4096, &finished),
                    errno => {
                        assert_eq!(errno, Some(libc::EBADF));
                        errors += 1;
                    }
                }
            }
            assert!(errors > 0, "{}: at the least the last one came too late", bench.name());
            // SAFETY: the number was closed above and nobody else has taken it.
            assert_eq!(unsafe { libc::dup2(kept, number) }, number);
            // SAFETY: opened above.
            unsafe { libc::close(kept) };
        });
        bench.assert_idle();
    }
}

/// Goal: a request outlives the thread that submitted it, on each route. Method: cold reads of 1 MiB, each submitted by a thread that
/// ends at once. The kernel has no memory of that thread's left to copy to, and says EFAULT.
#[test]
fn a_request_outlives_its_thread() {
    for kind in drivers(7) {
        let bench = Bench::new(kind, 16, 7);
        for route in [Route::Buffered, bench.route()] {
            for round in 0..16 {
                bench.file.evict_from_kernel().unwrap();
                let (offset_bytes, length_bytes) = (round % 8 * (1 << 20), 1 << 20);
                let mut request = bench.request(offset_bytes, length_bytes);
                request.route = route;
                let submit = || bench.submit(request);
                let completion = std::thread::scope(|scope| scope.spawn(submit).join().unwrap());
                watched(bench.name(), || bench.check(offset_bytes, length_bytes, &completion.wait()));
            }
        }
        bench.assert_idle();
    }
}

/// Goal: a file without permission is refused at open. Method: a thread that gives up its rights over files.
#[test]
fn a_file_without_permission() {
    let bench = Bench::new(DriverKind::Threads, 1, 5);
    let path = bench.path();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    std::thread::spawn(move || {
        // SAFETY: changes the identity of this thread alone in the eyes of file systems.
        unsafe { libc::setfsuid(65534) };
        let error = OpenFile::open(&path, DirectIo::Preferred, Access::Read).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    })
    .join()
    .unwrap();
}

/// Goal: depths out of range are refused; a request that does not fit its memory is a panic before it is a request.
#[test]
fn what_cannot_be_submitted() {
    for queue_depth in [0, 4097] {
        let options = DriverOptions { queue_depth, kind: DriverKind::Threads, ..DriverOptions::default() };
        assert_eq!(Driver::new(&options).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
    let bench = Bench::new(DriverKind::Threads, 1, 6);
    let extents: Extents = [bench.arena.allocate(4096, Urgency::Demand).unwrap()].into_iter().collect();
    let request = bench.request_into(0, 8192, extents);
    let submit = std::panic::AssertUnwindSafe(|| bench.submit(request));
    assert!(std::panic::catch_unwind(submit).is_err());
    bench.assert_idle();
}
