//! Stats: counts and gauges of an engine's cache, for people and recorders.
//!
//! Owns: their names, units and meaning.
//! Does not own: counting (counters, the page cache, loads).

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::base::counters::Counts;
use crate::engine::Shared;

/// Counts since the engine was built, and gauges of its cache now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// The exact sums over all files, closed and forgotten ones included.
    pub counts: Counts,
    /// Pages of 4 KiB that can be read without the device.
    pub resident_pages: u64,
    /// Pages being loaded, including those that no reader needs any more.
    pub loading_pages: u64,
    /// Pages held by users as [`bytes::Bytes`] or [`View`](crate::View)s, and pages under writeback; they cannot be evicted
    /// meanwhile.
    pub pinned_pages: u64,
    /// Dirty pages, which cannot be evicted either.
    pub dirty_pages: u64,
    /// Bytes that [`View::into_contiguous`](crate::View::into_contiguous) and [`View::into_bytes`](crate::View::into_bytes) have copied since
    /// the engine was built, because pages of the view lie apart.
    pub copied_bytes: u64,
    /// Memory of tables, states and queues in bytes, in addition to the budget of the pages themselves.
    pub metadata_bytes: u64,
    /// Loads in flight: requests, not pages. Dropped readers leave none behind.
    pub loads: u64,
    /// Time from the decision to read pages until they can be read. A read ahead counts until its arrival is processed: by a
    /// reader, a shortage of memory or [`Engine::stats`](crate::Engine::stats).
    pub load_latency: Latency,
    /// How long readers waited for pages being loaded. Hits do not wait, and a small single miss that a thread reads by itself
    /// counts as a load only.
    pub wait_latency: Latency,
}

/// Distribution of durations, accurate to 1 %; those beyond a minute count as a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Latency {
    /// Number of durations.
    pub count: u64,
    /// The mean.
    pub mean: Duration,
    /// The median.
    pub p50: Duration,
    /// 90 % took no longer.
    pub p90: Duration,
    /// 99 % took no longer.
    pub p99: Duration,
    /// 99.9 % took no longer.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

impl Latency {
    /// From a histogram of nanoseconds. All zero if it is empty.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Latency {
        if histogram.is_empty() {
            return Latency::default();
        }
        let quantile = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        Latency {
            count: histogram.len(),
            mean: Duration::from_nanos(histogram.mean() as u64),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: Duration::from_nanos(histogram.max()),
        }
    }
}

/// All zero in a forked child, where locks may be held by threads that do not exist.
pub(crate) fn cache_stats(shared: &Shared) -> CacheStats {
    if shared.driver.is_forked() {
        return CacheStats::default();
    }
    let cache = &shared.cache;
    let (pages, (loads, waits)) = (cache.pages.stats(), cache.loads.latencies.histograms());
    CacheStats {
        counts: cache.inodes.counts(),
        resident_pages: pages.resident_pages as u64,
        loading_pages: pages.loading_pages as u64,
        pinned_pages: (pages.pinned_pages + shared.lending.cached_pages()) as u64,
        dirty_pages: cache.writes.dirty().pages(),
        copied_bytes: pages.copied_bytes,
        metadata_bytes: pages.metadata_bytes as u64,
        loads: cache.loads.len() as u64,
        load_latency: Latency::of(&loads),
        wait_latency: Latency::of(&waits),
    }
}

/// Pages of the cache.
#[derive(Default)]
pub(crate) struct HeldPages {
    pub(crate) resident: usize,
    pub(crate) dirty: u64,
}

/// As [`cache_stats`].
pub(crate) fn held_pages(shared: &Shared) -> HeldPages {
    if shared.driver.is_forked() {
        return HeldPages::default();
    }
    let resident = shared.cache.pages.stats().resident_pages;
    HeldPages { resident, dirty: shared.cache.writes.dirty().pages() }
}
