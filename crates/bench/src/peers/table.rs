//! Table: what was measured, for people and as JSON.
//!
//! Owns: medians and spreads, which arm is best, the verdicts.
//! Does not own: the measurements.

use std::io::{self, Write};

use serde::Serialize;

use super::Options;
use super::rows::{Arm, Peer, Row, Unit};
use super::work::Sample;
use crate::tools::name_of;
use headwater_measure::median;
use headwater_measure::verdict::{self, Limit, Verdict};

/// An arm of a row.
#[derive(Serialize)]
pub(super) struct Line {
    pub(super) arm: Arm,
    pub(super) samples: Vec<Sample>,
    /// Why there are not more.
    pub(super) failure: Option<String>,
}

impl Line {
    pub(super) fn new(arm: Arm) -> Line {
        Line { arm, samples: Vec::new(), failure: None }
    }

    fn median(&self, value: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(value))
    }

    /// Difference of the best and the worst, in parts of the median.
    fn spread(&self, unit: Unit) -> f64 {
        let values = || self.samples.iter().map(|sample| unit.value(sample));
        (values().fold(0.0, f64::max) - values().fold(f64::INFINITY, f64::min))
            / self.median(|s| unit.value(s))
    }

    fn has_run(&self) -> bool {
        self.failure.is_none() && !self.samples.is_empty()
    }
}

impl Unit {
    fn value(self, sample: &Sample) -> f64 {
        match self {
            Unit::MibPerS => mib(sample) / sample.elapsed_s,
            Unit::ThousandPerS => sample.requests as f64 / 1e3 / sample.elapsed_s,
        }
    }

    /// Processor seconds of a GiB, or microseconds of a request.
    fn cpu(self, sample: &Sample) -> f64 {
        match self {
            Unit::MibPerS => sample.cpu_s / (mib(sample) / 1024.0),
            Unit::ThousandPerS => sample.cpu_s * 1e6 / sample.requests as f64,
        }
    }

    fn heads(self) -> (&'static str, &'static str) {
        match self {
            Unit::MibPerS => ("MiB/s", "CPU s/GiB"),
            Unit::ThousandPerS => ("k/s", "CPU us"),
        }
    }
}

/// Arms that did not read what the others did have failed: those whose sum is not that of most samples.
pub(super) fn compare_sums(lines: &mut [Line]) {
    let sums: Vec<u64> = lines.iter().flat_map(|line| &line.samples).map(|sample| sample.sum).collect();
    let count = |sum: u64| sums.iter().filter(|&&other| other == sum).count();
    let Some(right) = sums.iter().copied().max_by_key(|&sum| count(sum)) else { return };
    for line in lines.iter_mut().filter(|line| line.failure.is_none()) {
        if let Some(wrong) = line.samples.iter().find(|sample| sample.sum != right) {
            line.failure = Some(format!("read other bytes: their sum is {}, not {right}", wrong.sum));
        }
    }
}

pub(super) fn print_row(row: Row, lines: &[Line]) -> io::Result<()> {
    let (unit, mut out) = (row.unit(), io::stdout().lock());
    let (value, cpu) = unit.heads();
    writeln!(out, "\n{:<18} {value:>10} {:>8} {cpu:>10} {:>10}", name_of(row), "spread", "peak MiB")?;
    for line in lines {
        let arm = name_of(line.arm);
        if let Some(failure) = &line.failure {
            writeln!(out, "{arm:<18} skipped: {failure}")?;
            continue;
        }
        let (value, spread) = (line.median(|s| unit.value(s)), line.spread(unit) * 100.0);
        let (cpu, peak) = (line.median(|s| unit.cpu(s)), line.median(|s| s.peak_rss_mib));
        writeln!(out, "{arm:<18} {value:>10.1} {spread:>6.0} % {cpu:>10.3} {peak:>10.0}")?;
    }
    Ok(())
}

/// Everything that was measured.
pub(super) struct Report<'a> {
    options: &'a Options,
    rows: Vec<(Row, Vec<Line>)>,
}

impl<'a> Report<'a> {
    pub(super) fn new(options: &'a Options) -> Report<'a> {
        Report { options, rows: Vec::new() }
    }

    pub(super) fn add(&mut self, row: Row, lines: Vec<Line>) {
        self.rows.push((row, lines));
    }

    pub(super) fn print_verdicts(&self) -> io::Result<()> {
        writeln!(io::stdout())?;
        for (row, lines) in &self.rows {
            match Contest::of(*row, lines) {
                Some(contest) => {
                    contest.verdict().print()?;
                    verdict::detail(&contest.of_cpu())?;
                }
                None => verdict::skipped(&name_of(*row), &"headwater or all of its peers did not run")?,
            }
        }
        match self.mean() {
            Some(mean) => mean.print(),
            None => Ok(()),
        }
    }

    fn contests(&self) -> Vec<Contest<'_>> {
        self.rows.iter().filter_map(|(row, lines)| Contest::of(*row, lines)).collect()
    }

    /// Geometric.
    fn mean(&self) -> Option<Verdict> {
        let ratios: Vec<f64> = self.contests().iter().map(Contest::ratio).collect();
        let count = ratios.len();
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count as f64).exp();
        let title = format!("best of headwater : best peer, geometric mean of {count} rows");
        (count > 0).then(|| Verdict::new(title, mean, MEAN))
    }

    pub(super) fn json(&self) -> io::Result<String> {
        let rows =
            self.rows.iter().map(|(row, lines)| JsonRow { row: *row, unit: row.unit().heads().0, lines });
        let verdicts = self.contests().iter().map(Contest::verdict).chain(self.mean()).collect();
        let (rounds, seconds) = (self.options.rounds, self.options.seconds);
        let report = JsonReport { suite: "peers", rounds, seconds, rows: rows.collect(), verdicts };
        Ok(serde_json::to_string_pretty(&report)?)
    }
}

#[derive(Serialize)]
struct JsonReport<'a> {
    suite: &'static str,
    rounds: u32,
    seconds: f64,
    rows: Vec<JsonRow<'a>>,
    verdicts: Vec<Verdict>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    row: Row,
    unit: &'static str,
    lines: &'a [Line],
}

/// The best of headwater and the best of its peers.
struct Contest<'a> {
    row: Row,
    ours: &'a Line,
    theirs: &'a Line,
}

impl<'a> Contest<'a> {
    fn of(row: Row, lines: &'a [Line]) -> Option<Contest<'a>> {
        let value = |line: &Line| line.median(|sample| row.unit().value(sample));
        let best = |is_ours: fn(Peer) -> bool| {
            let candidates = lines.iter().filter(|line| line.has_run() && is_ours(line.arm.peer()));
            candidates.max_by(|one, other| value(one).total_cmp(&value(other)))
        };
        let ours = best(|peer| peer == Peer::Headwater)?;
        let theirs = best(|peer| peer != Peer::Headwater)?;
        Some(Contest { row, ours, theirs })
    }

    fn ratio(&self) -> f64 {
        let value = |line: &Line| line.median(|sample| self.row.unit().value(sample));
        value(self.ours) / value(self.theirs)
    }

    fn verdict(&self) -> Verdict {
        let (ours, theirs) = (name_of(self.ours.arm), name_of(self.theirs.arm));
        Verdict::new(format!("{}: {ours} : {theirs}", name_of(self.row)), self.ratio(), EACH)
    }

    fn of_cpu(&self) -> String {
        let cpu = |line: &Line| line.median(|sample| self.row.unit().cpu(sample));
        format!("of its processor time: {:.2}", cpu(self.ours) / cpu(self.theirs))
    }
}

fn mib(sample: &Sample) -> f64 {
    sample.bytes as f64 / f64::from(1 << 20)
}

/// Nowhere slower than the best of them.
const EACH: Limit = Limit::AtLeast(1.0);

/// And clearly faster on the whole.
const MEAN: Limit = Limit::AtLeast(1.3);

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arm: Arm, sum: u64, requests: u64) -> Line {
        let sample = Sample { bytes: 4096, requests, elapsed_s: 1.0, cpu_s: 1.0, peak_rss_mib: 1.0, sum };
        Line { samples: vec![sample], ..Line::new(arm) }
    }

    /// Goal: who reads other bytes than the rest wins nothing.
    #[test]
    fn wrong_sums_are_out() {
        let mut lines = [
            line(Arm::Headwater, 7, 30),
            line(Arm::Std, 7, 20),
            line(Arm::Compio, 8, 90),
            line(Arm::Moka, 7, 10),
        ];
        compare_sums(&mut lines);
        let contest = Contest::of(Row::WarmRandom, &lines).unwrap();
        assert_eq!((contest.ours.arm, contest.theirs.arm), (Arm::Headwater, Arm::Std));
        assert_eq!(contest.ratio(), 1.5);
        assert!(lines[2].failure.is_some() && lines[0].failure.is_none());
    }

    /// Goal: without a peer there is no contest, and no mean of none.
    #[test]
    fn alone_is_no_contest() {
        assert!(Contest::of(Row::Hash, &[line(Arm::Headwater, 1, 1)]).is_none());
    }
}
