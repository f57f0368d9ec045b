//! Pressure: less memory and fewer slots than everybody would like (invariant 6).
//!
//! Owns: the smallest budgets and depths, many handles in one thread, memory that callers keep.
//! Does not own: dropped work (see `drops`).

use std::future::Future;
use std::io::{BufRead, Read};
use std::task::{Context, Waker};

use futures_util::io::AsyncReadExt;
use futures_util::{StreamExt, TryStreamExt};
use headwater::{Caching, IoMode, OpenOptions, Reader};
use headwater_testkit::{Rng, with_seed};

use crate::rig::{Rig, Scratch, block_on, drivers, watched};

/// Goal: a merge over many readers in one thread ends, with right bytes, within the budget. Method: 50 readers, 3 MiB,
/// a little from each in turn; through the page cache and around it, at depths 16 and 1.
#[test]
fn many_readers_in_one_thread() {
    with_seed("pressure::many_readers_in_one_thread", |seed| {
        let scratch = Scratch::new(seed, 900_000);
        for (depth, mode) in
            [(16, IoMode::Direct), (16, IoMode::Auto), (2, IoMode::Direct), (1, IoMode::Direct)]
        {
            for kind in drivers(seed) {
                let rig = Rig::sized(kind, 3 << 20, depth);
                if mode == IoMode::Auto {
                    std::fs::read(scratch.path()).unwrap();
                }
                let file = rig.open(&scratch.path(), mode);
                let mut readers: Vec<_> = (0..50).map(|_| (file.reader(), 0)).collect();
                let what = format!("{} at depth {depth}, {mode:?}", rig.name());
                watched(&what, || merge(&rig, &scratch, &mut readers, seed));
                drop(readers);
                rig.assert_idle();
            }
            scratch.make_cold();
        }
    });
}

fn merge(rig: &Rig, scratch: &Scratch, readers: &mut [(Reader, u64)], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut buffer = vec![0; 9000];
    for _ in 0..20 {
        for (reader, position_bytes) in &mut *readers {
            let wanted = rng.below(buffer.len() as u64) as usize;
            let read_bytes = reader.read(&mut buffer[..wanted]).unwrap();
            scratch.check(*position_bytes, &buffer[..read_bytes]);
            *position_bytes += read_bytes as u64;
        }
        let arena = rig.engine.stats().arena;
        assert!(arena.mapped_bytes <= arena.budget_bytes && arena.budget_bytes <= 3 << 20, "{arena:?}");
    }
}

/// Goal: the same with async readers that are polled in turn by one task.
#[test]
fn many_async_readers_in_one_task() {
    with_seed("pressure::many_async_readers_in_one_task", |seed| {
        let scratch = Scratch::new(seed, 900_000);
        for kind in drivers(seed) {
            let rig = Rig::sized(kind, 3 << 20, 2);
            let file = rig.open(&scratch.path(), IoMode::Direct);
            let mut readers: Vec<_> = (0..50).map(|_| file.async_reader()).collect();
            watched(rig.name(), || {
                let mut buffer = vec![0; 5000];
                for round in 0..20 {
                    for reader in &mut readers {
                        block_on(reader.read_exact(&mut buffer)).unwrap();
                        scratch.check(round * 5000, &buffer);
                    }
                }
            });
            drop(readers);
            rig.assert_idle();
        }
    });
}

/// Goal: a file larger than the budget can be collected whole: beyond half of the budget the bytes are copies.
#[test]
fn a_stream_collected_whole() {
    with_seed("pressure::a_stream_collected_whole", |seed| {
        let scratch = Scratch::new(seed, 12_345_678);
        for kind in drivers(seed) {
            let rig = Rig::sized(kind, 4 << 20, 16);
            let file = rig.open(&scratch.path(), IoMode::Auto);
            scratch.make_cold();
            let parts: Vec<bytes::Bytes> =
                watched(rig.name(), || block_on(file.stream().try_collect()).unwrap());
            let stats = rig.engine.stats();
            assert!(stats.lent_bytes > 0 && stats.lent_bytes <= stats.arena.budget_bytes / 2, "{stats:?}");
            scratch.check_all(0, usize::MAX, &parts.concat());
            // While all that is kept, everybody else still gets on.
            let mut contents = Vec::new();
            watched(rig.name(), || file.reader().read_to_end(&mut contents).unwrap());
            scratch.check_all(0, usize::MAX, &contents);
            drop(parts);
            rig.assert_idle();
        }
    });
}

/// Goal: memory in pieces serves reads that would like it whole. Method: keep a page here and there, then read lengths
/// that need up to a whole chunk, in every way.
#[test]
fn scattered_pages_kept_by_the_caller() {
    with_seed("pressure::scattered_pages_kept_by_the_caller", |seed| {
        let scratch = Scratch::new(seed, 3_000_000);
        for kind in drivers(seed) {
            let rig = Rig::sized(kind, 3 << 20, 16);
            let file = rig.open(&scratch.path(), IoMode::Direct);
            let page = |number: u64| block_on(file.read_at_async(number * 4096, 4096)).unwrap();
            let all: Vec<_> = (0..256).map(page).collect();
            let kept: Vec<_> = all.into_iter().step_by(16).collect();
            watched(rig.name(), || {
                for length in [5000, 70_000, 250_000, 600_000, (2 << 20) - 8192, 2_500_000] {
                    let bytes = block_on(file.read_at_async(4097, length)).unwrap();
                    scratch.check_all(4097, length, &bytes);
                    drop(bytes);
                    let mut buffer = vec![0; length];
                    let read_bytes = file.read_at(&mut buffer, 4097).unwrap();
                    scratch.check_all(4097, length, &buffer[..read_bytes]);
                }
                let mut contents = Vec::new();
                file.reader().read_to_end(&mut contents).unwrap();
                scratch.check_all(0, usize::MAX, &contents);
            });
            (0..).step_by(16).zip(&kept).for_each(|(number, bytes)| scratch.check(number * 4096, bytes));
            drop(kept);
            rig.assert_idle();
        }
    });
}

/// Goal: a thread reads and writes although tasks of its own have all of the memory and are not polled. Method: so many reads
/// that are polled once that nothing is left; then one around the cache, into a buffer that no device takes; then a write.
#[test]
fn a_thread_whose_tasks_have_all_memory() {
    with_seed("pressure::a_thread_whose_tasks_have_all_memory", |seed| {
        let scratch = Scratch::new(seed, 3_000_000);
        for kind in drivers(seed) {
            let rig = Rig::sized(kind, 3 << 20, 16);
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).io(IoMode::Direct).caching(Caching::Off);
            let file = options.open(scratch.path()).unwrap();
            let mut context = Context::from_waker(Waker::noop());
            let mut reads: Vec<_> = (0..READS).map(|_| Box::pin(file.read_at_async(1001, 19))).collect();
            for read in &mut reads {
                let _ = read.as_mut().poll(&mut context);
            }
            let arena = rig.engine.stats().arena;
            assert_eq!(arena.used_bytes + CACHE_BYTES, arena.budget_bytes, "{}", rig.name());
            watched(rig.name(), || {
                let mut buffer = [0; 19];
                assert_eq!(file.read_at(&mut buffer, 1001).unwrap(), 19);
                scratch.check(1001, &buffer);
            });
            let written = Scratch::new(seed, 20_000);
            watched(rig.name(), || {
                let cached = options.write(true).caching(Caching::On).open(written.path()).unwrap();
                cached.write_all_at(b"written", 5000).unwrap();
                cached.sync_data().unwrap();
            });
            assert_eq!(&std::fs::read(written.path()).unwrap()[5000..5007], b"written");
            drop(reads);
            rig.assert_idle();
        }
    });
}

/// Goal: a stream gets its next bytes from a dirty page although only one page of memory can be had, which its own readahead would take.
/// Method: views and reads that are polled once have the rest; the file goes on behind the dirty page.
#[test]
fn a_stream_of_a_dirty_page_with_one_page_left() {
    with_seed("pressure::a_stream_of_a_dirty_page_with_one_page_left", |seed| {
        let scratch = Scratch::new(seed, VIEWED_PAGES * 4096);
        scratch.age();
        for kind in drivers(seed) {
            let written = Scratch::new(seed, 8192);
            let rig = Rig::sized(kind, 3 << 20, 16);
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).io(IoMode::Direct).caching(Caching::On);
            let file = options.write(true).open(written.path()).unwrap();
            file.write_all_at(&[1; 4096], 0).unwrap();
            let viewed = options.write(false).open(scratch.path()).unwrap();
            let views: Vec<_> =
                (0..VIEWED_PAGES).map(|page| viewed.view(page * 4096, 4096).unwrap()).collect();
            let around = options.caching(Caching::Off).open(scratch.path()).unwrap();
            let mut context = Context::from_waker(Waker::noop());
            let mut reads = Vec::new();
            let left_bytes = || {
                let stats = rig.engine.stats();
                let kept_pages = stats.cache.pinned_pages + stats.cache.dirty_pages;
                stats.arena.budget_bytes - stats.arena.used_bytes - kept_pages as usize * 4096
            };
            while left_bytes() > 4096 {
                reads.push(Box::pin(around.read_at_async(1001, 19)));
                let _ = reads.last_mut().unwrap().as_mut().poll(&mut context);
            }
            let parts: Vec<bytes::Bytes> =
                watched(rig.name(), || block_on(file.stream().try_collect()).unwrap());
            let contents = parts.concat();
            assert_eq!((contents.len(), &contents[..4096]), (8192, &[1; 4096][..]), "{}", rig.name());
            written.check(4096, &contents[4096..]);
            drop((parts, reads, views, viewed, around, file));
            rig.assert_idle();
        }
    });
}

/// Goal: a reader made a stream in the middle of an extent that lies in several pieces goes on at its position.
#[test]
fn a_stream_from_the_middle_of_scattered_memory() {
    with_seed("pressure::a_stream_from_the_middle_of_scattered_memory", |seed| {
        let scratch = Scratch::new(seed, 2_000_000);
        for kind in drivers(seed) {
            let rig = Rig::sized(kind, 3 << 20, 16);
            let file = rig.open(&scratch.path(), IoMode::Direct);
            let page = |number: u64| block_on(file.read_at_async(number * 4096, 4096)).unwrap();
            let all: Vec<_> = (0..256).map(page).collect();
            let kept: Vec<_> = all.into_iter().step_by(8).collect();
            for skip_bytes in [1, 4096, 40_000, 100_000, 131_000] {
                let mut reader = file.async_reader();
                block_on(reader.read_exact(&mut vec![0; skip_bytes])).unwrap();
                let parts: Vec<bytes::Bytes> = block_on(reader.into_stream().try_collect()).unwrap();
                scratch.check_all(skip_bytes as u64, usize::MAX, &parts.concat());
            }
            drop(kept);
            rig.assert_idle();
        }
    });
}

/// Goal: one request at a time is slow and right. Method: everything at once in several threads at depth 1.
#[test]
fn depth_one() {
    with_seed("pressure::depth_one", |seed| {
        let scratch = Scratch::new(seed, 700_000);
        for kind in drivers(seed) {
            let rig = Rig::sized(kind, 3 << 20, 1);
            let file = rig.open(&scratch.path(), IoMode::Direct);
            watched(rig.name(), || {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut contents = Vec::new();
                        file.reader().read_to_end(&mut contents).unwrap();
                        scratch.check_all(0, usize::MAX, &contents);
                    });
                    scope.spawn(|| {
                        let parts: Vec<_> = block_on(file.stream().map(Result::unwrap).collect());
                        scratch.check_all(0, usize::MAX, &parts.concat());
                    });
                    scope.spawn(|| {
                        let whole = block_on(file.read_at_async(0, 700_000)).unwrap();
                        scratch.check_all(0, 700_000, &whole);
                    });
                    scope.spawn(|| assert!(file.reader().split(b'\n').count() > 0));
                });
            });
            rig.assert_idle();
        }
    });
}

/// Each takes a page: more than there are.
const READS: usize = 600;

/// What they leave to the cache.
const CACHE_BYTES: usize = 64 << 10;

/// As many as may be lent of one chunk.
const VIEWED_PAGES: u64 = 256;
