//! Statistics: the figures of an engine are those of its files, open, closed and forgotten.
//!
//! Owns: `Engine::stats().cache`, settings about replacement, the recorder.
//! Does not own: what is counted when (see `advice`, `evictions`).

use std::io::ErrorKind;
use std::time::Duration;

use headwater::ReplacementPolicy;
use headwater::{Advice, CacheStats, Caching, DriverKind, Engine, File, OpenOptions};
use headwater_testkit::with_seed;

use crate::rig::{Rig, Scratch, block_on, rigs};

fn cached(rig: &Rig, scratch: &Scratch) -> File {
    let mut options = OpenOptions::new();
    // The files are young, and a look that cannot tell whether they changed drops their pages.
    options.engine(&rig.engine).caching(Caching::On).revalidate(Duration::MAX);
    options.open(scratch.path()).unwrap()
}

/// Goal: totals are exact sums over files, and stay when files are forgotten; gauges follow the pages.
#[test]
fn totals_are_sums() {
    with_seed("statistics::totals_are_sums", |seed| {
        let scratches = [Scratch::new(seed, 300_000), Scratch::new(seed, 200_000)];
        for rig in rigs(seed) {
            assert_eq!(rig.engine.stats().cache.counts, CacheStats::default().counts);
            let mut sum = CacheStats::default().counts;
            for scratch in &scratches {
                scratch.make_cold();
                let file = cached(&rig, scratch);
                file.advise(Advice::Random, ..).unwrap();
                file.read_exact_at(&mut vec![0; 150_000], 1000).unwrap();
                block_on(file.read_exact_at_async(0, 180_000)).unwrap();
                sum += file.stats().counts;
                let cache = rig.engine.stats().cache;
                assert_eq!((cache.counts, cache.loads), (sum, 0), "{}", rig.name());
                assert_eq!(cache.resident_pages, file.stats().resident_pages);
                file.advise(Advice::DontNeed, ..).unwrap();
                sum.evictions += 44;
            }
            let cache = rig.engine.stats().cache;
            assert_eq!((cache.counts, cache.resident_pages, cache.loading_pages), (sum, 0, 0), "forgotten");
            assert!(cache.metadata_bytes > 0);
            assert_eq!(sum.device_read_bytes, 2 * 44 * 4096);
            rig.assert_idle();
        }
    });
}

/// Goal: each load has its latency, each wait its own, the quantiles are in order, and looking at them changes nothing.
#[test]
fn latencies_are_counted() {
    let scratch = Scratch::new(1, 2_000_000);
    for rig in rigs(1) {
        scratch.make_cold();
        let file = cached(&rig, &scratch);
        file.read_exact_at(&mut vec![0; 1_000_000], 0).unwrap();
        for page in 250..300 {
            block_on(file.read_exact_at_async(page * 4096, 4096)).unwrap();
        }
        let cache = rig.engine.stats().cache;
        assert!(
            cache.load_latency.count > 0 && cache.load_latency.count <= cache.counts.device_reads,
            "{cache:?}"
        );
        for latency in [cache.load_latency, cache.wait_latency] {
            let order = [Duration::ZERO, latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
            assert!(order.is_sorted(), "{latency:?}");
        }
        // Loads ahead are counted when they end.
        rig.assert_idle();
        assert_eq!(rig.engine.stats().cache.load_latency.count, rig.engine.stats().cache.load_latency.count);
    }
}

/// Goal: replacement by what frames count can be chosen; what would have to hear of each hit is refused with the reason.
#[test]
fn replacement_can_be_chosen() {
    let scratch = Scratch::new(2, 12 << 20);
    let builder = |policy| Engine::builder().memory(6 << 20).driver(DriverKind::Threads).replacement(policy);
    for policy in [ReplacementPolicy::Clock2QPlus, ReplacementPolicy::Clock, ReplacementPolicy::S3Fifo] {
        let engine = builder(policy).build().unwrap();
        let file = OpenOptions::new().engine(&engine).caching(Caching::On).open(scratch.path()).unwrap();
        let mut buffer = vec![0; 1 << 20];
        for offset_bytes in (0..12 << 20).step_by(1 << 20) {
            file.read_exact_at(&mut buffer, offset_bytes).unwrap();
            scratch.check(offset_bytes, &buffer);
        }
        assert!(engine.stats().cache.counts.evictions > 0);
    }
    let error = builder(ReplacementPolicy::Lru).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().starts_with("build the engine: the replacement lru needs to see"), "{error}");
    assert!(builder(ReplacementPolicy::Lru).local().is_err());
}

/// Goal: the bytes that views copy, to be in one piece, are counted, and no others. Method: views whose pages lie in one piece of memory, and one of
/// more than such a piece ever has, each as `is_copied` says.
#[test]
fn copies_of_views_are_counted() {
    let scratch = Scratch::new(4, 4 << 20);
    let engine = Engine::builder().memory(16 << 20).driver(DriverKind::Threads).build().unwrap();
    let file = OpenOptions::new().engine(&engine).caching(Caching::On).open(scratch.path()).unwrap();
    let copied_bytes = || engine.stats().cache.copied_bytes;
    let page = file.view(8192, 4096).unwrap();
    assert!(!page.clone().into_contiguous().is_copied());
    scratch.check(8192, &page.into_bytes());
    assert_eq!(copied_bytes(), 0);
    let view = file.view(5, 3 << 20).unwrap();
    scratch.check(5, &view.to_vec());
    assert_eq!((view.as_slice(), copied_bytes()), (None, 0), "a copy that is asked for is none of these");
    let whole = view.clone().into_contiguous();
    assert!(whole.is_copied());
    assert_eq!(copied_bytes(), 3 << 20);
    scratch.check(5, &whole.clone());
    scratch.check(5, &view.into_bytes());
    assert_eq!(copied_bytes(), 6 << 20);
}

/// Goal: the recorder gets what the statistics say, each count of them.
#[cfg(feature = "metrics")]
#[test]
fn the_recorder_gets_the_statistics() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    let scratch = Scratch::new(3, 100_000);
    let rig = Rig::new(DriverKind::Threads);
    let file = cached(&rig, &scratch);
    file.read_exact_at(&mut vec![0; 100_000], 0).unwrap();
    file.read_exact_at(&mut vec![0; 8192], 0).unwrap();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        rig.engine.record_metrics();
        rig.engine.record_metrics();
    });
    let cache = rig.engine.stats().cache;
    let recorded: Vec<(String, usize, DebugValue)> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| (key.key().name().to_owned(), key.key().labels().count(), value))
        .collect();
    let value = |name: &str| &recorded.iter().find(|(known, _, _)| known == name).expect(name).2;
    assert_eq!(value("headwater_cache_hits_total"), &DebugValue::Counter(cache.counts.hits));
    assert_eq!(value("headwater_cache_misses_total"), &DebugValue::Counter(cache.counts.misses));
    assert_eq!(value("headwater_cache_resident_pages"), &DebugValue::Gauge(25.0.into()));
    let text = format!("{:?}", cache.counts);
    let words: Vec<&str> = text.split([' ', '{', ',', '}']).filter(|word| !word.is_empty()).collect();
    let counts: Vec<(String, u64)> = words
        .windows(2)
        .filter_map(|pair| Some((format!("headwater_cache_{}_total", pair[0].strip_suffix(':')?), pair[1])))
        .map(|(name, count)| (name, count.parse().unwrap()))
        .collect();
    counts.iter().for_each(|(name, count)| assert_eq!(value(name), &DebugValue::Counter(*count), "{name}"));
    let counters = recorded.iter().filter(|(name, _, _)| name.ends_with("_total")).count();
    let quantiles = recorded.iter().filter(|(_, labels, _)| *labels == 1).count();
    assert_eq!(value("headwater_cache_copied_bytes_total"), &DebugValue::Counter(cache.copied_bytes));
    assert_eq!((counters, quantiles), (counts.len() + 1, 10), "{recorded:?}");
}
