//! Table: what was measured, for people and as JSON.
//!
//! Owns: medians over rounds, the words and columns.
//! Does not own: the measurements, the bars (promises).

use std::io::{self, Write};

use serde::Serialize;

use super::gets::{Cell, ORDERS, THREADS};
use super::keys::Order;
use super::promises;
use super::{Arm, Options, Values};
use crate::measure::median;
use crate::tools::name_of;
use crate::verdict::Verdict;

#[derive(Serialize)]
pub(super) struct Table {
    pub(super) lines: Vec<Line>,
}

/// Medians of an arm.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Line {
    pub(super) arm: Arm,
    pub(super) order: Order,
    pub(super) threads: u32,
    pub(super) cpu_ns_per_get: f64,
    pub(super) gets_per_cpu_s: f64,
    /// By the clock on the wall, of all threads.
    pub(super) gets_per_s: f64,
    /// The rate of all threads against that of one.
    pub(super) scaling: f64,
}

impl Table {
    pub(super) fn new(arms: &[Arm], samples: &[Vec<Vec<Cell>>]) -> Table {
        let mut lines = Vec::new();
        for order in ORDERS {
            for (&arm, rounds) in arms.iter().zip(samples) {
                lines.extend(THREADS.map(|threads| line(arm, order, threads, rounds)));
            }
        }
        Table { lines }
    }

    pub(super) fn of(&self, arm: Arm, order: Order, threads: u32) -> Option<&Line> {
        self.lines.iter().find(|line| (line.arm, line.order, line.threads) == (arm, order, threads))
    }

    pub(super) fn print(&self, options: &Options) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for order in ORDERS {
            writeln!(
                out,
                "\n{} keys over {} pages of 4 KiB, libraries hold them as {}; {} s x {} rounds, medians",
                name_of(order),
                options.pages,
                name_of(options.values),
                options.seconds,
                options.rounds
            )?;
            writeln!(
                out,
                "{:<14} {:>9} {:>9}   {:>9} {:>9} {:>8}",
                "arm", "CPU ns", "M gets/s", "CPU ns x2", "M gets/s", "scaling"
            )?;
            for line in self.lines.iter().filter(|line| line.order == order && line.threads == 1) {
                let two = self.of(line.arm, order, 2).unwrap_or(line);
                writeln!(
                    out,
                    "{:<14} {:>9.1} {:>9.3}   {:>9.1} {:>9.3} {:>8.2}",
                    name_of(line.arm),
                    line.cpu_ns_per_get,
                    line.gets_per_s / 1e6,
                    two.cpu_ns_per_get,
                    two.gets_per_s / 1e6,
                    two.scaling
                )?;
            }
        }
        writeln!(out)
    }

    pub(super) fn json(&self, options: &Options) -> io::Result<String> {
        let (pages, values) = (options.pages, options.values);
        let (seconds, rounds) = (options.seconds, options.rounds);
        let (lines, verdicts) = (&self.lines, promises::verdicts(self));
        let report = Report { suite: "cache", pages, values, seconds, rounds, lines, verdicts };
        Ok(serde_json::to_string_pretty(&report)?)
    }
}

#[derive(Serialize)]
struct Report<'a> {
    suite: &'static str,
    pages: u32,
    values: Values,
    seconds: f64,
    rounds: usize,
    lines: &'a [Line],
    verdicts: Vec<Verdict>,
}

fn line(arm: Arm, order: Order, threads: u32, rounds: &[Vec<Cell>]) -> Line {
    let of = |threads, value: fn(&Cell) -> f64| {
        let cells = rounds.iter().flatten();
        median(cells.filter(|cell| cell.order == order && cell.threads == threads).map(value))
    };
    let gets_per_s = of(threads, |cell| cell.gets_per_s);
    Line {
        arm,
        order,
        threads,
        cpu_ns_per_get: of(threads, |cell| cell.cpu_s * 1e9 / cell.gets as f64),
        gets_per_cpu_s: of(threads, |cell| cell.gets as f64 / cell.cpu_s),
        gets_per_s,
        scaling: gets_per_s / of(1, |cell| cell.gets_per_s),
    }
}
