//! Latency: how long steps took, of a thread or of many.
//
// Owns: the histogram, which percentiles are shown.
// Does not own: the clock (`crew`), drawings (`page`).

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::row::Figures;

/// Latencies in nanoseconds, to three digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    /// Of nothing yet.
    pub fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
        Latencies { histogram: histogram.expect("the bounds are well-formed") }
    }

    /// Counts a step. What is beyond a minute counts as a minute.
    pub fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(latency.as_nanos() as u64);
    }

    /// The same to two digits, which takes a tenth of the memory.
    pub fn coarse() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2);
        Latencies { histogram: histogram.expect("the bounds are well-formed") }
    }

    /// All of several threads.
    pub fn sum(parts: impl IntoIterator<Item = Latencies>) -> Latencies {
        let add = |mut sum: Latencies, part: Latencies| {
            sum.histogram.add(&part.histogram).expect("all histograms have the same bounds");
            sum
        };
        parts.into_iter().reduce(add).unwrap_or_default()
    }

    /// How many steps there were.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Microseconds that the share `quantile` of the steps stayed within.
    pub fn within_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Their mean in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.histogram.mean() / 1e3
    }

    /// Minimum, mean, percentiles and maximum in microseconds, by the names of [`COLUMNS`].
    pub fn figures(&self) -> Figures {
        let least_us = if self.count() == 0 { 0.0 } else { self.histogram.min() as f64 / 1e3 };
        let ends = [
            ("min_us", least_us),
            ("mean_us", self.mean_us()),
            ("max_us", self.histogram.max() as f64 / 1e3),
        ];
        let percentiles = PERCENTILES.map(|(share, name, _)| (name, self.within_us(share)));
        let figures = ends.into_iter().chain(percentiles);
        figures.fold(Figures::default(), |figures, (name, us)| figures.with(name, us))
    }

    /// A curve for a drawing, from the median on, as far as there are steps enough to tell.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let nines_max = (self.count().max(10) as f64).log10().min(NINES_MAX);
        let step = (nines_max - NINES_MIN) / f64::from(STEPS);
        let nines = (0..=STEPS).map(|index| NINES_MIN + step * f64::from(index));
        nines.map(|nines| 1.0 - 10_f64.powf(-nines)).map(|share| (share, self.within_us(share))).collect()
    }
}

/// Shares, and their names in JSON and for people.
const PERCENTILES: [(f64, &str, &str); 7] = [
    (0.5, "p50_us", "p50"),
    (0.9, "p90_us", "p90"),
    (0.99, "p99_us", "p99"),
    (0.999, "p99_9_us", "p99.9"),
    (0.9999, "p99_99_us", "p99.99"),
    (0.999_99, "p99_999_us", "p99.999"),
    (0.999_999, "p99_9999_us", "p99.9999"),
];

/// The figures of latencies as columns: the name in JSON, the head, and how many places are shown.
pub const COLUMNS: [(&str, &str, usize); 10] = [
    ("min_us", "min", 2),
    ("mean_us", "mean", 2),
    (PERCENTILES[0].1, PERCENTILES[0].2, 2),
    (PERCENTILES[1].1, PERCENTILES[1].2, 2),
    (PERCENTILES[2].1, PERCENTILES[2].2, 2),
    (PERCENTILES[3].1, PERCENTILES[3].2, 1),
    (PERCENTILES[4].1, PERCENTILES[4].2, 1),
    (PERCENTILES[5].1, PERCENTILES[5].2, 1),
    (PERCENTILES[6].1, PERCENTILES[6].2, 1),
    ("max_us", "max", 0),
];

const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// The median.
const NINES_MIN: f64 = std::f64::consts::LOG10_2;

/// p99.999, the last of the columns.
const NINES_MAX: f64 = 5.0;

/// Smooth at the width of the page.
const STEPS: u32 = 100;
