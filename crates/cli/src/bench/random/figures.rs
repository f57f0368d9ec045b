//! Figures: what counts of several rounds of a row.
//!
//! Owns: medians, ratios.
//! Does not own: the measurements, the words.

use serde::Serialize;

use super::row::{Measured, SHARES};
use super::{Outcome, Way};
use crate::bench::suite::{MIB, PAGE_BYTES, median};

/// A row of the table.
#[derive(Serialize)]
pub(super) struct Line {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) span: &'static str,
    pub(super) way: &'static str,
    pub(super) span_bytes: u64,
    pub(super) reads_per_s: f64,
    pub(super) reads_per_s_min: f64,
    pub(super) reads_per_s_max: f64,
    pub(super) cpu_us_per_read: f64,
    /// Of the cgroup, the page cache's part included; of the process alone where there was none.
    pub(super) memory_mib: f64,
    pub(super) memory_of: MemoryOf,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p99_9_us: f64,
    /// Share of the reads, and how many microseconds those took at most.
    pub(super) within_us: Vec<(f64, f64)>,
    /// Reads that headwater had in memory.
    pub(super) hit_share: Option<f64>,
    /// Of the span, in the kernel's page cache when the clock started: the least of all rounds.
    pub(super) kernel_share: Option<f64>,
    /// The same in headwater's memory.
    pub(super) own_share: Option<f64>,
    /// Against std buffered in the same span.
    pub(super) ratio: Option<f64>,
    #[serde(skip)]
    pub(super) is_headwater: bool,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MemoryOf {
    Cgroup,
    Process,
}

/// All rows, in the order of the outcomes.
pub(super) fn lines(outcomes: &[Outcome], span_bytes: impl Fn(&Outcome) -> u64) -> Vec<Line> {
    let mut lines: Vec<Line> = outcomes.iter().map(|outcome| line(outcome, span_bytes(outcome))).collect();
    let of_buffered = |line: &Line| (line.way == Way::Buffered.id()).then_some((line.span, line.reads_per_s));
    let buffered: Vec<_> = lines.iter().filter_map(of_buffered).collect();
    for line in &mut lines {
        let same_span = buffered.iter().find(|(span, _)| *span == line.span);
        line.ratio = same_span.map(|(_, reads_per_s)| line.reads_per_s / reads_per_s);
    }
    lines
}

fn line(outcome: &Outcome, span_bytes: u64) -> Line {
    let rounds = &outcome.rounds;
    let each = |value: &dyn Fn(&Measured) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
    let rates = each(&|measured| measured.reads as f64 / measured.seconds);
    let within = |index: usize| median(rounds.iter().map(|measured| measured.within_us[index].1));
    let within_us: Vec<(f64, f64)> =
        SHARES.into_iter().enumerate().map(|(index, share)| (share, within(index))).collect();
    let at = |wanted: f64| within_us.iter().find(|(share, _)| *share == wanted).map_or(0.0, |point| point.1);
    let pages = (span_bytes / PAGE_BYTES) as f64;
    let least_share = |pages_of: &dyn Fn(&Measured) -> Option<u64>| {
        let shares: Option<Vec<f64>> =
            rounds.iter().map(|measured| pages_of(measured).map(|held| held as f64 / pages)).collect();
        // headwater reads a little ahead of the span's end.
        shares.map(|shares| shares.into_iter().fold(1.0, f64::min))
    };
    let hits: Option<Vec<f64>> = rounds.iter().map(|measured| measured.hit_share).collect();
    let rss_mib = || rounds.iter().map(|measured| measured.peak_rss_kib as f64 / 1024.0).fold(0.0, f64::max);
    let charged_mib = outcome.peaks_bytes.iter().max().map(|&bytes| bytes as f64 / MIB);
    Line {
        id: format!("{}-{}", outcome.span.id(), outcome.way.id()),
        name: outcome.way.name(),
        span: outcome.span.id(),
        way: outcome.way.id(),
        span_bytes,
        reads_per_s: median(rates.iter().copied()),
        reads_per_s_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        reads_per_s_max: rates.iter().copied().fold(0.0, f64::max),
        cpu_us_per_read: median(
            each(&|measured| measured.cpu_seconds * 1e6 / measured.reads as f64).into_iter(),
        ),
        memory_mib: charged_mib.unwrap_or_else(rss_mib),
        memory_of: if charged_mib.is_some() { MemoryOf::Cgroup } else { MemoryOf::Process },
        p50_us: at(0.5),
        p99_us: at(0.99),
        p99_9_us: at(0.999),
        within_us,
        hit_share: hits.map(|hits| median(hits.into_iter())),
        kernel_share: least_share(&|measured| measured.kernel_pages),
        own_share: least_share(&|measured| measured.own_pages),
        ratio: None,
        is_headwater: outcome.way.is_headwater(),
    }
}
