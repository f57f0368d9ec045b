//! Metrics: an engine's statistics for the recorder that the program has installed.
//!
//! Owns: the names.
//! Does not own: the figures (stats), when and where they are recorded.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::api::engine::Stats;
use crate::engine::Engine;
use crate::engine::stats::Latency;

impl Engine {
    /// Sends [`Engine::stats`] to the installed recorder of the crate `metrics`: counters with their absolute values, gauges with
    /// their present ones. Call it at the interval of collection; nothing is recorded in between, and reads do not get slower.
    /// With several engines in one process, wrap the recorder in one that adds a label, or record one engine only: the names are
    /// the same.
    ///
    /// Counters, named `headwater_cache_…_total`, are the fields of [`Counts`](crate::Counts) (`headwater_cache_hits_total`,
    /// `…_misses_total`, `…_sync_misses_total`, `…_joined_total`, `…_bypassed_total`, `…_device_reads_total`,
    /// `…_device_read_bytes_total`, `…_read_ahead_total`, `…_used_total`, `…_late_total`, `…_unused_total`,
    /// `…_evictions_total`, `…_device_writes_total`, `…_device_write_pages_total`, `…_device_write_bytes_total`,
    /// `…_conflicts_total`), and `headwater_cache_copied_bytes_total`. Gauges are `headwater_cache_resident_pages`,
    /// `…_loading_pages`, `…_pinned_pages`, `…_dirty_pages`, `…_metadata_bytes`, `…_loads`, `headwater_memory_used_bytes`,
    /// `headwater_memory_budget_bytes`, `headwater_memory_offered_bytes`, `headwater_memory_taken_bytes`,
    /// `headwater_lent_bytes`, `headwater_requests_in_flight`, and for loads and waits `headwater_cache_load_seconds` and
    /// `headwater_cache_wait_seconds` with the label `quantile` (`0.5`, `0.9`, `0.99`, `0.999`, `1`), in seconds since the
    /// engine was built.
    ///
    /// ```
    /// // metrics_exporter_prometheus::PrometheusBuilder::new().install()?;
    /// let engine = headwater::Engine::builder().build()?;
    /// engine.record_metrics();
    /// # Ok::<(), headwater::Error>(())
    /// ```
    pub fn record_metrics(&self) {
        describe();
        let stats = self.stats();
        record_counts(&stats);
        record_gauges(&stats);
        record_latency("headwater_cache_load_seconds", &stats.cache.load_latency);
        record_latency("headwater_cache_wait_seconds", &stats.cache.wait_latency);
    }
}

fn describe() {
    describe_counter!("headwater_cache_hits_total", "pages found in the cache");
    describe_counter!("headwater_cache_misses_total", "pages neither found nor on their way");
    describe_counter!("headwater_cache_evictions_total", "pages that left the cache");
    describe_counter!("headwater_cache_conflicts_total", "changes by others while bytes were not written");
    describe_gauge!("headwater_cache_dirty_pages", "pages of 4 KiB that the device does not have yet");
    describe_gauge!("headwater_cache_resident_pages", "pages of 4 KiB that can be read without the device");
    describe_gauge!(
        "headwater_cache_load_seconds",
        "time from the decision to read pages until they can be read"
    );
    describe_gauge!("headwater_cache_wait_seconds", "time that readers waited for pages on their way");
}

fn record_counts(stats: &Stats) {
    let counts = &stats.cache.counts;
    counter!("headwater_cache_hits_total").absolute(counts.hits);
    counter!("headwater_cache_misses_total").absolute(counts.misses);
    counter!("headwater_cache_sync_misses_total").absolute(counts.sync_misses);
    counter!("headwater_cache_joined_total").absolute(counts.joined);
    counter!("headwater_cache_bypassed_total").absolute(counts.bypassed);
    counter!("headwater_cache_device_reads_total").absolute(counts.device_reads);
    counter!("headwater_cache_device_read_bytes_total").absolute(counts.device_read_bytes);
    counter!("headwater_cache_read_ahead_total").absolute(counts.read_ahead);
    counter!("headwater_cache_used_total").absolute(counts.used);
    counter!("headwater_cache_late_total").absolute(counts.late);
    counter!("headwater_cache_unused_total").absolute(counts.unused);
    counter!("headwater_cache_evictions_total").absolute(counts.evictions);
    counter!("headwater_cache_device_writes_total").absolute(counts.device_writes);
    counter!("headwater_cache_device_write_pages_total").absolute(counts.device_write_pages);
    counter!("headwater_cache_device_write_bytes_total").absolute(counts.device_write_bytes);
    counter!("headwater_cache_conflicts_total").absolute(counts.conflicts);
    counter!("headwater_cache_copied_bytes_total").absolute(stats.cache.copied_bytes);
}

fn record_gauges(stats: &Stats) {
    let cache = &stats.cache;
    gauge!("headwater_cache_resident_pages").set(cache.resident_pages as f64);
    gauge!("headwater_cache_loading_pages").set(cache.loading_pages as f64);
    gauge!("headwater_cache_pinned_pages").set(cache.pinned_pages as f64);
    gauge!("headwater_cache_dirty_pages").set(cache.dirty_pages as f64);
    gauge!("headwater_cache_metadata_bytes").set(cache.metadata_bytes as f64);
    gauge!("headwater_cache_loads").set(cache.loads as f64);
    gauge!("headwater_memory_used_bytes").set(stats.arena.used_bytes as f64);
    gauge!("headwater_memory_budget_bytes").set(stats.arena.budget_bytes as f64);
    gauge!("headwater_memory_offered_bytes").set(stats.memory.offered_bytes as f64);
    gauge!("headwater_memory_taken_bytes").set(stats.memory.taken_bytes as f64);
    gauge!("headwater_lent_bytes").set(stats.lent_bytes as f64);
    gauge!("headwater_requests_in_flight").set(stats.driver.in_flight as f64);
}

fn record_latency(name: &'static str, latency: &Latency) {
    let quantiles = [
        ("0.5", latency.p50),
        ("0.9", latency.p90),
        ("0.99", latency.p99),
        ("0.999", latency.p999),
        ("1", latency.max),
    ];
    for (quantile, time) in quantiles {
        gauge!(name, "quantile" => quantile).set(time.as_secs_f64());
    }
}
