//! Latency: how long batches took, of a thread or of many, and the medians of that over rounds.
//!
//! Owns: the histogram, the columns.
//! Does not own: the clock (crew), their layout (table).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::measure::median;

/// Batch latencies in nanoseconds, to three digits.
pub(super) struct Latencies {
    histogram: Histogram<u64>,
}

/// What an arm reports; latencies are of a batch.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct NopSample {
    pub(super) batches: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p99_9_us: f64,
    pub(super) p99_99_us: f64,
    pub(super) p99_999_us: f64,
    pub(super) max_us: f64,
    /// `io_uring_enter` calls a batch, where the arm knows.
    pub(super) enters: Option<f64>,
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

    pub(super) fn sample(&self, enters: Option<u64>) -> NopSample {
        let batches = self.histogram.len() as f64;
        let within_us = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1e3;
        NopSample {
            batches,
            mean_us: self.histogram.mean() / 1e3,
            p50_us: within_us(0.5),
            p90_us: within_us(0.9),
            p99_us: within_us(0.99),
            p99_9_us: within_us(0.999),
            p99_99_us: within_us(0.9999),
            p99_999_us: within_us(0.999_99),
            max_us: self.histogram.max() as f64 / 1e3,
            enters: enters.map(|enters| enters as f64 / batches.max(1.0)),
        }
    }
}

impl NopSample {
    /// Column by column.
    pub(super) fn medians(samples: &[NopSample]) -> NopSample {
        let of = |column: fn(&NopSample) -> f64| median(samples.iter().map(column));
        let enters: Option<Vec<f64>> = samples.iter().map(|sample| sample.enters).collect();
        NopSample {
            batches: of(|sample| sample.batches),
            mean_us: of(|sample| sample.mean_us),
            p50_us: of(|sample| sample.p50_us),
            p90_us: of(|sample| sample.p90_us),
            p99_us: of(|sample| sample.p99_us),
            p99_9_us: of(|sample| sample.p99_9_us),
            p99_99_us: of(|sample| sample.p99_99_us),
            p99_999_us: of(|sample| sample.p99_999_us),
            max_us: of(|sample| sample.max_us),
            enters: enters.map(|enters| median(enters.into_iter())),
        }
    }
}

const LATENCY_NS_MAX: u64 = 60_000_000_000;
