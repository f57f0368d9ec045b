//! Latency: how long batches took, of a thread or of many.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Batch latencies in nanoseconds, to three digits.
pub(super) struct Latencies {
    histogram: Histogram<u64>,
}

/// Microseconds of a batch.
#[derive(Serialize, Clone, Copy, Debug)]
pub(super) struct Percentiles {
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p99_9_us: f64,
    pub(super) p99_99_us: f64,
    pub(super) p99_999_us: f64,
    pub(super) max_us: f64,
}

impl Latencies {
    pub(super) fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
        Latencies { histogram: histogram.expect("the bounds are well-formed") }
    }

    /// What is beyond a minute counts as a minute.
    pub(super) fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(latency.as_nanos() as u64);
    }

    pub(super) fn merge(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Microseconds that the share `quantile` of the batches stayed within.
    pub(super) fn within_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e3
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        Percentiles {
            mean_us: self.histogram.mean() / 1e3,
            p50_us: self.within_us(0.5),
            p90_us: self.within_us(0.9),
            p99_us: self.within_us(0.99),
            p99_9_us: self.within_us(0.999),
            p99_99_us: self.within_us(0.9999),
            p99_999_us: self.within_us(0.999_99),
            max_us: self.histogram.max() as f64 / 1e3,
        }
    }
}

const LATENCY_NS_MAX: u64 = 60_000_000_000;
