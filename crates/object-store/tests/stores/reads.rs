//! Reads: large ones, many at once, shared memory, the cache, without threads of the executor, dropped at any moment.

use std::ops::Range;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::{ByteRange, Engine, OpenOptions, ReadaheadLimits};
use headwater_object_store::v0_14::HeadwaterFileSystem;
use headwater_object_store::v0_14::object_store::path::Path;
use headwater_object_store::v0_14::object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use headwater_testkit::{
    PATIENCE, Pattern, Rng, ScratchDir, again_if_dropped, block_on, lack, watched, with_seed,
};

use crate::rig::{engines, engines_of, folder, run};

const LENGTH: u64 = 9_000_001;

/// An object of known contents, on the device alone.
fn object(seed: u64) -> (ScratchDir, Pattern) {
    let (folder, pattern) = (folder(), Pattern::new(seed));
    let path = folder.path().join("object");
    pattern.write_file(&path, LENGTH).unwrap();
    make_cold(&folder);
    (folder, pattern)
}

fn make_cold(folder: &ScratchDir) {
    headwater_testkit::make_cold(&std::fs::File::open(folder.path().join("object")).unwrap()).unwrap();
}

fn store(folder: &ScratchDir, engine: &Engine) -> HeadwaterFileSystem {
    HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap().with_engine(engine)
}

fn location() -> Path {
    Path::from("object")
}

fn ranged(range: GetRange) -> GetOptions {
    GetOptions { range: Some(range), ..GetOptions::default() }
}

/// Pages that are pinned or requests that are under way return when the device is done.
fn assert_idle(engine: &Engine) {
    let began = std::time::Instant::now();
    loop {
        let stats = engine.stats();
        if stats.lent_bytes == 0 && stats.driver.in_flight == 0 && stats.cache.pinned_pages == 0 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "still in use: {stats:?}");
        std::thread::yield_now();
    }
}

/// Goal: streams of any range, and lists of ranges in any order, overlapping too, have the bytes of the file, cold and warm.
#[test]
fn streams_and_ranges_have_the_bytes_of_the_file() {
    with_seed("reads::streams_and_ranges_have_the_bytes_of_the_file", |seed| {
        let (folder, pattern) = object(seed);
        for engine in engines() {
            make_cold(&folder);
            let (store, mut rng) = (store(&folder, &engine), Rng::new(seed));
            run("reads", async {
                for _ in 0..30 {
                    let start = rng.below(LENGTH);
                    let end = rng.range(start + 1, LENGTH + 1);
                    let result =
                        store.get_opts(&location(), ranged(GetRange::Bounded(start..end))).await.unwrap();
                    let mut at = start;
                    let mut stream = result.into_stream();
                    while let Some(bytes) = stream.next().await {
                        let bytes = bytes.unwrap();
                        assert_eq!(pattern.mismatch(at, &bytes), None);
                        at += bytes.len() as u64;
                    }
                    assert_eq!(at, end);
                    let ranges = ranges(&mut rng);
                    let read = store.get_ranges(&location(), &ranges).await.unwrap();
                    for (range, bytes) in ranges.iter().zip(&read) {
                        assert_eq!(bytes.len() as u64, range.end - range.start);
                        assert_eq!(pattern.mismatch(range.start, bytes), None, "{range:?}");
                    }
                }
            });
            assert_idle(&engine);
            assert!(engine.stats().arena.mapped_bytes <= 16 << 20);
        }
    });
}

fn ranges(rng: &mut Rng) -> Vec<Range<u64>> {
    let count = rng.below(60);
    let mut ranges = Vec::new();
    for _ in 0..count {
        let start = rng.below(LENGTH);
        let longest = if rng.chance(1, 20) { 3_000_000 } else { 70_000 };
        ranges.push(start..rng.range(start, (start + longest).min(LENGTH) + 1));
    }
    ranges
}

/// Goal: what was read is cached: neither a second stream nor ranges ask the device again. Its pieces share the cache's memory, and
/// short ranges pin none of it.
#[test]
fn what_was_read_is_cached_and_shared() {
    let (folder, _) = object(1);
    let engine = Engine::builder().memory(64 << 20).build().unwrap();
    let store = store(&folder, &engine);
    let file = OpenOptions::new().engine(&engine).open(folder.path().join("object")).unwrap();
    run("reads", async {
        let stream = || async {
            store.get(&location()).await.unwrap().into_stream().try_collect::<Vec<Bytes>>().await.unwrap()
        };
        drop(stream().await);
        let reads = file.stats().counts.device_reads;
        assert!((9..=20).contains(&reads), "{reads} requests for 9 MB");
        let pieces = stream().await;
        assert!(
            engine.stats().lent_bytes as u64 >= LENGTH,
            "{} of {LENGTH} bytes are lent",
            engine.stats().lent_bytes
        );
        assert!(pieces.len() <= 20, "{} pieces", pieces.len());
        drop(pieces);
        let short: Vec<Range<u64>> = (0..100).map(|at| at * 50_000..at * 50_000 + 900).collect();
        let short = store.get_ranges(&location(), &short).await.unwrap();
        assert_eq!((engine.stats().lent_bytes, short.len()), (0, 100));
        let long = store.get_ranges(&location(), &[4096..69_632]).await.unwrap();
        assert_eq!((engine.stats().lent_bytes, long[0].len()), (65_536, 65_536));
        let is_read_again = engine.stats().driver.stuck_waits > 0;
        assert!(is_read_again || file.stats().counts.device_reads == reads, "the device was asked again");
    });
    assert_idle(&engine);
}

/// Goal: an engine may have any distance of readahead; a stream reads no farther ahead than 32 MiB.
#[test]
fn readahead_of_any_distance() {
    let (folder, pattern) = object(4);
    let limits = ReadaheadLimits { distance_bytes_max: u64::MAX, ..ReadaheadLimits::default() };
    let engine = Engine::builder().memory(16 << 20).readahead(limits).build().unwrap();
    let store = store(&folder, &engine);
    run("far readahead", async {
        let range = GetRange::Bounded(0..LENGTH - 1);
        for options in [GetOptions::default(), ranged(range)] {
            let read = store.get_opts(&location(), options).await.unwrap().bytes().await.unwrap();
            assert!(read.len() as u64 >= LENGTH - 1);
            assert_eq!(pattern.mismatch(0, &read), None);
        }
    });
    drop(store);
    assert_idle(&engine);
}

/// Goal: a cold file that is read through the store leaves the kernel's page cache as it was: nothing of it is there afterwards, and what
/// was there of another file stays. Method: all ways to read, cold and again, on each driver; the kernel counts.
#[test]
fn the_page_cache_stays_as_it_was() {
    again_if_dropped(|| {
        let (folder, pattern) = object(3);
        let warm_path = folder.path().join("warm");
        pattern.write_file(&warm_path, 1 << 20).unwrap();
        let kept = |path: &std::path::Path, length| {
            let file = OpenFile::open(path, DirectIo::Off, Access::Read).unwrap();
            file.resident_pages(ByteRange::new(0, length))
        };
        if kept(&warm_path, 1 << 20).is_none() {
            return lack("the kernel has no cachestat (before Linux 6.5)");
        }
        for engine in engines() {
            make_cold(&folder);
            std::fs::read(&warm_path).unwrap();
            let warm_pages = kept(&warm_path, 1 << 20);
            assert_eq!(warm_pages, Some(256));
            let store = store(&folder, &engine);
            run("the page cache", async {
                for _ in 0..2 {
                    let whole = store.get(&location()).await.unwrap().bytes().await.unwrap();
                    assert_eq!((whole.len() as u64, pattern.mismatch(0, &whole)), (LENGTH, None));
                    let stream = store.get(&location()).await.unwrap().into_stream();
                    let pieces = stream.try_collect::<Vec<Bytes>>().await.unwrap();
                    assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>() as u64, LENGTH);
                    let ranges: Vec<Range<u64>> =
                        (0..100).map(|at| at * 80_000..at * 80_000 + 3000).collect();
                    assert_eq!(store.get_ranges(&location(), &ranges).await.unwrap().len(), 100);
                    let range = store.get_range(&location(), LENGTH / 2..LENGTH).await.unwrap();
                    assert_eq!(pattern.mismatch(LENGTH / 2, &range), None);
                }
            });
            assert_eq!(kept(&folder.path().join("object"), LENGTH), Some(0), "the kernel has what was read");
            assert_eq!(kept(&warm_path, 1 << 20), warm_pages, "pages of another file have left");
            drop(store);
            assert_idle(&engine);
        }
    });
}

/// Goal: all ranges are in flight before the first is waited for. Method: one poll of a cold read, then the requests are counted; the
/// file's readahead may add some.
#[test]
fn ranges_are_in_flight_at_once() {
    let (folder, pattern) = object(2);
    for engine in engines() {
        make_cold(&folder);
        let store = store(&folder, &engine);
        let file = OpenOptions::new().engine(&engine).open(folder.path().join("object")).unwrap();
        let ranges: Vec<Range<u64>> = (0..40).map(|at| at * 200_000..at * 200_000 + 5000).collect();
        run("ranges", async {
            let location = location();
            let mut reading = Box::pin(store.get_ranges(&location, &ranges));
            let polled = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let counts = file.stats().counts;
            assert!(counts.device_reads >= 40, "{counts:?}");
            let read = match polled {
                Poll::Ready(read) => read,
                Poll::Pending => reading.await,
            };
            for (range, bytes) in ranges.iter().zip(read.unwrap()) {
                assert_eq!((bytes.len(), pattern.mismatch(range.start, &bytes)), (5000, None));
            }
        });
    }
}

/// Goal: columns that are named one after the other, as neighbours in the file, are read and nothing behind them; one that is longer
/// than a piece as a whole at once. Method: bytes that the device was asked for, with the pages in which columns begin and end.
#[test]
fn no_more_is_read_than_was_named() {
    let (folder, pattern) = object(6);
    for engine in engines() {
        let store = store(&folder, &engine);
        let file = OpenOptions::new().engine(&engine).open(folder.path().join("object")).unwrap();
        let columns =
            [1_000_000..1_300_000, 1_300_000..1_700_000, 1_700_000..4_900_000, 4_900_000..5_400_000];
        run("columns", async {
            let location = location();
            for (number, column) in columns.iter().enumerate() {
                make_cold(&folder);
                let bytes = match number % 2 {
                    0 => store.get_ranges(&location, std::slice::from_ref(column)).await.unwrap().remove(0),
                    _ => store.get_range(&location, column.clone()).await.unwrap(),
                };
                assert_eq!(
                    (bytes.len() as u64, pattern.mismatch(column.start, &bytes)),
                    (column.end - column.start, None)
                );
            }
        });
        let (named, counts) = (columns[3].end - columns[0].start, file.stats().counts);
        // Where a thread got no processor for some milliseconds, others read again for themselves.
        let is_read_again = engine.stats().driver.stuck_waits > 0;
        assert!(
            is_read_again || counts.device_read_bytes <= named + columns.len() as u64 * 8192,
            "of {named} bytes: {counts:?}"
        );
    }
}

/// Goal: the same in an engine so small that a range of less than a piece is more than a reader's part of it. Method: neighbours of
/// 700 kB, two in a call.
#[test]
fn no_more_is_read_with_little_memory() {
    let (folder, pattern) = object(8);
    for engine in engines_of(4 << 20) {
        let store = store(&folder, &engine);
        let file = OpenOptions::new().engine(&engine).open(folder.path().join("object")).unwrap();
        make_cold(&folder);
        run("columns", async {
            for pair in 0..6 {
                let start = pair * 1_400_000;
                let columns = [start..start + 700_000, start + 700_000..start + 1_400_000];
                let read = store.get_ranges(&location(), &columns).await.unwrap();
                for (column, bytes) in columns.iter().zip(&read) {
                    assert_eq!((bytes.len(), pattern.mismatch(column.start, bytes)), (700_000, None));
                }
                let (named, counts) = ((pair + 1) * 1_400_000, file.stats().counts);
                let is_read_again = engine.stats().driver.stuck_waits > 0;
                assert!(
                    is_read_again || counts.device_read_bytes <= named + (pair + 1) * 16_384,
                    "of {named} bytes: {counts:?}"
                );
            }
        });
    }
}

/// Goal: a task that reads what is cached lets others run. Method: a runtime of one thread, a warm stream and a warm list of ranges.
#[test]
fn warm_reads_let_other_tasks_run() {
    let (folder, _) = object(9);
    let engine = Engine::builder().memory(64 << 20).build().unwrap();
    let store = store(&folder, &engine);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = async || {
        let stream = store.get(&location()).await.unwrap().into_stream();
        stream.try_for_each(async |_| Ok(())).await.unwrap();
    };
    let ranges: Vec<Range<u64>> = (0..9).map(|at| at << 20..(at << 20) + (1 << 19)).collect();
    watched("warm reads", || {
        runtime.block_on(async {
            stream().await;
            let other = tokio::spawn(async {});
            stream().await;
            stream().await;
            assert!(other.is_finished(), "two streams of 9 MB");
            let other = tokio::spawn(async {});
            for _ in 0..4 {
                store.get_ranges(&location(), &ranges).await.unwrap();
            }
            assert!(other.is_finished(), "lists of 18 MiB in all");
        });
    });
}

/// Goal: a file that the kernel keeps in memory is read anew by each get, because stores through a mapping move none of its times.
/// Method: tmpfs; nothing of it is in the cache.
#[test]
fn files_in_memory_are_not_cached() {
    let folder = match headwater_testkit::tmpfs() {
        Ok(folder) => folder,
        Err(reason) => return headwater_testkit::skip(reason),
    };
    let pattern = Pattern::new(10);
    pattern.write_file(folder.path().join("object"), LENGTH).unwrap();
    for engine in engines() {
        let store = store(&folder, &engine);
        run("files in memory", async {
            let whole = store.get(&location()).await.unwrap().bytes().await.unwrap();
            assert_eq!((whole.len() as u64, pattern.mismatch(0, &whole)), (LENGTH, None));
            let read = store.get_ranges(&location(), &[5..900, 4_000_000..8_000_000]).await.unwrap();
            assert_eq!(pattern.mismatch(5, &read[0]).or(pattern.mismatch(4_000_000, &read[1])), None);
        });
        assert_eq!(engine.stats().cache.resident_pages, 0);
        assert_idle(&engine);
    }
}

/// Goal: reads need no thread of tokio's blocking pool. Method: its only one is taken.
#[test]
fn reads_need_no_blocking_thread() {
    let (folder, pattern) = object(3);
    for engine in engines() {
        make_cold(&folder);
        let store = store(&folder, &engine);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let blocker = runtime.spawn_blocking(move || released.recv());
        watched("reads without blocking threads", || {
            runtime.block_on(async {
                assert_eq!(store.head(&location()).await.unwrap().size, LENGTH);
                let bytes = store.get(&location()).await.unwrap().bytes().await.unwrap();
                assert_eq!(pattern.mismatch(0, &bytes), None);
                let ranges = store.get_ranges(&location(), &[5..100, 8_000_000..9_000_000]).await.unwrap();
                assert_eq!(pattern.mismatch(8_000_000, &ranges[1]), None);
                release.send(()).unwrap();
                blocker.await.unwrap().unwrap();
            });
        });
    }
}

/// Goal: the store works without any runtime, and `head` offers the bytes as well.
#[test]
fn reads_need_no_runtime() {
    let (folder, pattern) = object(4);
    for engine in engines() {
        let store = store(&folder, &engine);
        watched("reads without a runtime", || {
            let bytes = block_on(async { store.get(&location()).await.unwrap().bytes().await.unwrap() });
            assert_eq!(pattern.mismatch(0, &bytes), None);
            let head = GetOptions { head: true, range: Some(GetRange::Suffix(10)), ..GetOptions::default() };
            let result = block_on(store.get_opts(&location(), head)).unwrap();
            assert_eq!(result.range, LENGTH - 10..LENGTH);
            let bytes = block_on(result.bytes()).unwrap();
            assert_eq!((bytes.len(), pattern.mismatch(LENGTH - 10, &bytes)), (10, None));
        });
    }
}

/// Goal: reads may be dropped at any moment; nothing stays in use, and the next read is right.
#[test]
fn reads_may_be_dropped_at_any_moment() {
    with_seed("reads::reads_may_be_dropped_at_any_moment", |seed| {
        let (folder, pattern) = object(seed);
        for engine in engines() {
            let (store, mut rng) = (store(&folder, &engine), Rng::new(seed));
            run("dropped reads", async {
                for round in 0..100 {
                    if round % 10 == 0 {
                        make_cold(&folder);
                        OpenOptions::new()
                            .engine(&engine)
                            .open(folder.path().join("object"))
                            .unwrap()
                            .advise(headwater::Advice::DontNeed, ..)
                            .unwrap();
                    }
                    let ranges = ranges(&mut rng);
                    let location = location();
                    let (mut reading, polls) = (store.get_ranges(&location, &ranges), rng.below(3));
                    for _ in 0..polls {
                        if reading.as_mut().now_or_never().is_some() {
                            break;
                        }
                    }
                    drop(reading);
                    let mut stream = store.get(&location).await.unwrap().into_stream();
                    let mut at = 0;
                    for _ in 0..rng.below(6) {
                        let Some(bytes) = stream.next().now_or_never() else { break };
                        let bytes = bytes.unwrap().unwrap();
                        assert_eq!(pattern.mismatch(at, &bytes), None);
                        at += bytes.len() as u64;
                    }
                }
            });
            assert_idle(&engine);
        }
    });
}

/// Goal: in an engine with little memory what is named is read once, not evicted before its reader comes: a range, lists of ranges, one
/// behind a long one, whole objects, and several streams side by side. Method: bytes that the device is asked for, of an object with eight
/// times the memory.
#[test]
fn little_memory_reads_once() {
    const MEMORY: u64 = 16 << 20;
    let (folder, pattern) = (folder(), Pattern::new(7));
    let path = folder.path().join("object");
    let length = 8 * MEMORY;
    pattern.write_file(&path, length).unwrap();
    let mib = |at: u64, count: u64| at << 20..(at + count) << 20;
    let streams = |count: u64| (0..count).map(|at| at * length / count..(at + 1) * length / count).collect();
    let ways: [(&str, Way); 7] = [
        ("a whole object", Way::Whole),
        ("a range", Way::Streams(streams(1))),
        ("four ranges side by side", Way::Streams(streams(4))),
        ("sixteen ranges side by side", Way::Streams(streams(16))),
        ("MiBs", Way::List((0..128).map(|at| mib(at, 1)).collect())),
        ("four MiBs each", Way::List((0..32).map(|at| mib(at * 4, 4)).collect())),
        (
            "a long one first",
            Way::List([mib(0, 64)].into_iter().chain((64..128).map(|at| mib(at, 1))).collect()),
        ),
    ];
    let mut excesses = Vec::new();
    for (name, way) in ways {
        make_cold(&folder);
        let engine = Engine::builder().memory(MEMORY).build().unwrap();
        let file = OpenOptions::new().engine(&engine).open(&path).unwrap();
        assert_eq!(run(name, way.read(&store(&folder, &engine), &pattern)), length);
        // Where a thread got no processor for some milliseconds, others read again for themselves.
        let is_read_again = engine.stats().driver.stuck_waits > 0;
        let read_bytes = file.stats().counts.device_read_bytes;
        // The pieces at hand of sixteen readers are as much as the memory: some of them are evicted.
        if !is_read_again && read_bytes > length / 4 * 5 {
            excesses.push(format!("{name}: {} MiB of {}", read_bytes >> 20, length >> 20));
        }
    }
    assert!(excesses.is_empty(), "{excesses:?}");
}

/// A way to read all of an object.
enum Way {
    Whole,
    /// A stream for each range, all at once.
    Streams(Vec<Range<u64>>),
    /// One call.
    List(Vec<Range<u64>>),
}

impl Way {
    /// How many bytes that is.
    async fn read(&self, store: &HeadwaterFileSystem, pattern: &Pattern) -> u64 {
        let streamed = async |options: GetOptions| {
            let result = store.get_opts(&location(), options).await.unwrap();
            let (start, mut stream) = (result.range.start, result.into_stream());
            let mut read = 0;
            while let Some(bytes) = stream.next().await {
                let bytes = bytes.unwrap();
                assert_eq!(pattern.mismatch(start + read, &bytes), None);
                read += bytes.len() as u64;
                tokio::task::yield_now().await;
            }
            read
        };
        match self {
            Way::Whole => streamed(GetOptions::default()).await,
            Way::Streams(ranges) => {
                let streams = ranges.iter().map(|range| streamed(ranged(GetRange::Bounded(range.clone()))));
                futures_util::future::join_all(streams).await.iter().sum()
            }
            Way::List(ranges) => {
                let read = store.get_ranges(&location(), ranges).await.unwrap();
                let is_right =
                    |(range, bytes): (&Range<u64>, &Bytes)| pattern.mismatch(range.start, bytes).is_none();
                assert!(ranges.iter().zip(&read).all(is_right));
                read.iter().map(|bytes| bytes.len() as u64).sum()
            }
        }
    }
}
