//! Table: what was measured, for people and as JSON.
//!
//! Owns: the columns, which arms have failed, the verdicts.
//! Does not own: the measurements.

use std::io::{self, Write};

use headwater_measure::verdict::{detail, skipped};
use headwater_measure::{Better, Column, Comparison, Limit, Metric, Row as Measured, Table, Verdict, Whose};
use serde::Serialize;
use serde_json::json;

use super::Options;
use super::rows::{Arm, Peer, Row, Unit};
use super::work::Sample;
use crate::tools::name_of;

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

    /// As it is compared; without figures if it has failed.
    fn measured(&self, unit: Unit) -> Measured {
        let samples = self.samples.iter().filter(|_| self.failure.is_none());
        let each = |value: fn(Unit, &Sample) -> f64| samples.clone().map(move |sample| value(unit, sample));
        let whose = if self.arm.peer() == Peer::Headwater { Whose::Headwater } else { Whose::Peer };
        let (value, cpu) = unit.heads();
        Measured::new(whose, name_of(self.arm))
            .metric(Metric::new(VALUE, value, Better::Higher, each(Unit::value)))
            .metric(Metric::new(CPU, cpu, Better::Lower, each(Unit::cpu)))
            .metric(Metric::new("peak", "MiB", Better::Lower, each(|_, sample| sample.peak_rss_mib)))
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
    let (value, cpu) = row.unit().heads();
    let spread = |line: &Measured| {
        let (low, high) = line.spread(VALUE).unwrap_or_default();
        format!("{:.0} %", (high - low) / line.value(VALUE).unwrap_or(1.0) * 100.0)
    };
    let columns = [
        Column::names(name_of(row)),
        Column::value(value, VALUE, 1),
        Column::new("spread", spread),
        Column::value(cpu, CPU, 3),
        Column::value("peak MiB", "peak", 0),
    ];
    let ran: Vec<Measured> = measured(row, lines).filter(|line| line.value(VALUE).is_some()).collect();
    write!(io::stdout(), "\n{}", Table::of("", &columns, &ran))?;
    let failed = lines.iter().filter_map(|line| Some((line.arm, line.failure.as_ref()?)));
    failed.into_iter().try_for_each(|(arm, failure)| skipped(&name_of(arm), failure))
}

fn measured(row: Row, lines: &[Line]) -> impl Iterator<Item = Measured> {
    lines.iter().map(move |line| line.measured(row.unit()))
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
            match verdict(*row, lines) {
                Some((verdict, of_cpu)) => {
                    verdict.print()?;
                    detail(&format!("of its processor time: {of_cpu:.2}"))?;
                }
                None => skipped(&name_of(*row), &"headwater or all of its peers did not run")?,
            }
        }
        self.mean().map_or(Ok(()), |mean| mean.print())
    }

    fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.rows.iter().filter_map(|(row, lines)| Some(verdict(*row, lines)?.0))
    }

    /// Geometric.
    fn mean(&self) -> Option<Verdict> {
        let ratios: Vec<f64> = self.verdicts().map(|verdict| verdict.measured).collect();
        let count = ratios.len();
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count as f64).exp();
        let title = format!("best of headwater : best peer, geometric mean of {count} rows");
        (count > 0).then(|| Verdict::new(title, mean, MEAN))
    }

    pub(super) fn json(&self) -> String {
        let row = |(row, lines): &(Row, Vec<Line>)| json!({"row": name_of(*row), "unit": row.unit().heads().0, "lines": lines});
        let report = json!({
            "suite": "peers",
            "rounds": self.options.rounds,
            "seconds": self.options.seconds,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "verdicts": self.verdicts().chain(self.mean()).collect::<Vec<_>>(),
        });
        format!("{report:#}")
    }
}

/// The best of headwater against the best of its peers, and the ratio of their processor times.
fn verdict(row: Row, lines: &[Line]) -> Option<(Verdict, f64)> {
    let measured: Vec<Measured> = measured(row, lines).collect();
    let best = Comparison::of_best(measured.iter(), VALUE)?;
    let title = format!("{}: {} : {}", name_of(row), best.ours.name, best.theirs.name);
    Some((Verdict::of(title, &best, EACH), best.ours.value(CPU)? / best.theirs.value(CPU)?))
}

fn mib(sample: &Sample) -> f64 {
    sample.bytes as f64 / f64::from(1 << 20)
}

const VALUE: &str = "value";
const CPU: &str = "cpu";

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

    /// Goal: an arm that reads other bytes than the rest wins nothing.
    #[test]
    fn wrong_sums_are_out() {
        let mut lines = [
            line(Arm::Headwater, 7, 30),
            line(Arm::Std, 7, 20),
            line(Arm::Compio, 8, 90),
            line(Arm::Moka, 7, 10),
        ];
        compare_sums(&mut lines);
        let (verdict, _) = verdict(Row::WarmRandom, &lines).unwrap();
        assert!(verdict.to_string().starts_with("warm-random: headwater : std "), "{verdict}");
        assert_eq!(verdict.measured, 1.5);
        assert!(lines[2].failure.is_some() && lines[0].failure.is_none());
    }

    /// Goal: without a peer there is no contest, and no mean of none.
    #[test]
    fn alone_is_no_contest() {
        assert!(verdict(Row::Hash, &[line(Arm::Headwater, 1, 1)]).is_none());
    }
}
