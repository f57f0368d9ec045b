//! Stats: what an engine's cache did and holds, as numbers for people and recorders.
//!
//! Owns: their names, units and meaning.
//! Does not own: counting (counters, the page cache, loads).

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::base::counters::Counts;
use crate::engine::Shared;

/// What the cache of an engine did since it was built, and holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// The exact sums over all files, those included that are closed and forgotten.
    pub counts: Counts,
    /// Pages of 4 KiB that can be read without the device.
    pub resident_pages: u64,
    /// Pages on their way, those included that nobody wants any more.
    pub loading_pages: u64,
    /// Pages that users hold as [`bytes::Bytes`] or [`View`](crate::View)s, and pages being written, which cannot be evicted meanwhile.
    pub pinned_pages: u64,
    /// Pages that were written and that their devices do not have yet; cannot be evicted either.
    pub unwritten_pages: u64,
    /// Memory of tables, states and queues, bytes, beside the budget of the pages themselves.
    pub metadata_bytes: u64,
    /// Loads under way: requests, not pages. None is owed to a reader that is gone.
    pub loads: u64,
    /// From the decision to read pages until they can be read. What was read ahead and arrived counts until somebody
    /// notices: a reader, a shortage of memory or [`Engine::stats`](crate::Engine::stats).
    pub load_latency: Latency,
    /// How long readers waited for pages on their way; a hit waits for none, and a small lone miss that a thread reads by
    /// itself counts as a load only.
    pub wait_latency: Latency,
}

/// How long something took. Durations are right to 1 %, and count as a minute where they are longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Latency {
    /// How often.
    pub count: u64,
    /// The mean.
    pub mean: Duration,
    /// Half took no longer.
    pub p50: Duration,
    /// Nine in ten took no longer.
    pub p90: Duration,
    /// 99 % took no longer.
    pub p99: Duration,
    /// 99.9 % took no longer.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

impl Latency {
    /// Of a histogram of nanoseconds. All zero if it is empty.
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

/// All zero in a forked child, where a thread that is gone may hold the locks.
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
        pinned_pages: pages.pinned_pages as u64,
        unwritten_pages: cache.writes.dirty().pages(),
        metadata_bytes: pages.metadata_bytes as u64,
        loads: cache.loads.len() as u64,
        load_latency: Latency::of(&loads),
        wait_latency: Latency::of(&waits),
    }
}
