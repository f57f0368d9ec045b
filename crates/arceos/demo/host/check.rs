//! Check: holds the rows of several runs against what the cache has to reach. `check [--times] FILE...`
//!
//! Counts repeat, so one that is missed is a failure. Times are those of an emulated machine on whatever else runs beside
//! it: they are shown beside what they should be. With `--times` one that misses its bar is a failure; without, rates
//! beside those of ArceOS's own cache are one where they miss even half of it, and other times fail nothing.
//!
//! Owns: the bars.
//! Does not own: how the rows came about.

use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> io::Result<ExitCode> {
    let (mut rows, mut strictness) = (Vec::new(), Strictness::Counts);
    for argument in env::args().skip(1) {
        if argument == "--times" {
            strictness = Strictness::CountsAndTimes;
        } else {
            rows.extend(fs::read_to_string(argument)?.lines().map(Row::from));
        }
    }
    let mut checks = Checks { rows, strictness, failures: 0 };
    println!("{:<74}{:>10}{:>10}", "", "seen", "bar");
    checks.count_requests();
    checks.count_in_flight();
    checks.compare_times();
    checks.compare_rates();
    println!("{}", if checks.failures == 0 { "all that has to be met is met" } else { "BARS ARE MISSED" });
    Ok(if checks.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Checks {
    rows: Vec<Row>,
    strictness: Strictness,
    failures: u32,
}

/// What fails when it misses its bar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    Counts,
    /// For a machine that does nothing else meanwhile.
    CountsAndTimes,
}

impl Checks {
    fn count_requests(&mut self) {
        for machine in self.machines("ext4", "stock").iter().filter(|machine| !machine.contains(SLOW)) {
            let row = |arm, workload| self.find(machine, arm, workload);
            let number = |arm, workload, key| row(arm, workload).map_or(f64::NAN, |row| row.number(key));
            let requests = |arm, workload| number(arm, workload, "requests");
            let (sequential, random) = ("fio read 4 KiB", "fio randread 4 KiB");
            let streams =
                requests("adaptive", "4 streams, one file") / requests("adaptive", "4 files in turn");
            let met = [
                at_most("fio read 4 KiB: requests", requests("adaptive", sequential), 40.0),
                at_most(
                    "  as a part of ArceOS's own cache's",
                    ratio(requests("adaptive", sequential), requests("stock", sequential)),
                    1.0,
                ),
                at_most("  misses", number("adaptive", sequential, "misses"), 1.0),
                at_most(
                    "fio randread 4 KiB: requests beside ArceOS's own cache's",
                    ratio(requests("adaptive", random), requests("stock", random)),
                    1.0,
                ),
                at_most(
                    "  bytes read beside bytes wanted",
                    ratio(number("adaptive", random, "disk_bytes"), number("adaptive", random, "bytes")),
                    1.02,
                ),
                at_most("4 streams of one file beside 4 files: requests", streams, 1.1),
                at_most(
                    "mixed: requests beside ArceOS's own cache's",
                    ratio(requests("adaptive", "mixed 4 KiB"), requests("stock", "mixed 4 KiB")),
                    1.0,
                ),
                at_most("read again: requests", requests("adaptive", "sequential again"), 0.0),
            ];
            self.failures += met.iter().filter(|met| !**met).count() as u32;
        }
    }

    /// A fast disk may be done before the reader has looked once, so only slow ones have to be seen at work.
    fn count_in_flight(&mut self) {
        for machine in self.machines("ext4", "adaptive") {
            let Some(row) = self.find(&machine, "adaptive", "computing reader") else { continue };
            let what = format!("in flight while a reader computes, {machine}");
            let met = at_least(&what, row.number("inflight_max"), 2.0);
            self.failures += u32::from(!met && machine.contains(SLOW));
        }
    }

    fn compare_times(&mut self) {
        // On a fast disk a reader waits for nothing that could be done meanwhile.
        for machine in self.machines("ext4", "sync").iter().filter(|machine| machine.contains(SLOW)) {
            if self.find(machine, "adaptive", "computing reader").is_none() {
                continue;
            }
            let micros = |arm, workload| median(&self.all(machine, arm, workload, "micros"));
            let gain = |workload| micros("sync", workload) / micros("adaptive", workload);
            let met = [
                at_least(
                    &format!("time, by the reader : by a task, computing reader, {machine}"),
                    gain("computing reader"),
                    1.5,
                ),
                at_least(&format!("  pure reader, {machine}"), gain("pure reader"), 1.0),
            ];
            if self.strictness == Strictness::CountsAndTimes {
                self.failures += met.iter().filter(|met| !**met).count() as u32;
            }
        }
    }

    /// MiB/s of the better arm of headwater's beside those of ArceOS's own cache, where a request takes some time: the medians of the rounds.
    fn compare_rates(&mut self) {
        for machine in self.machines("ext4", "stock").iter().filter(|machine| machine.contains(SLOW)) {
            println!("MiB/s beside ArceOS's own cache's, {machine}");
            for (workload, bar) in [("fio read 4 KiB", 2.0), ("fio randread 4 KiB", 1.0)] {
                let micros = |arm| self.all(machine, arm, workload, "micros");
                let (ours, stock) = (["sync", "adaptive"].map(micros), micros("stock"));
                let ours = ours.iter().min_by(|one, other| median(one).total_cmp(&median(other)));
                let ours = ours.expect("there are two");
                let gain = median(&stock) / median(ours);
                let is_met = at_least(&format!("  {workload}"), gain, bar);
                let gains: Vec<f64> = stock.iter().zip(ours).map(|(stock, ours)| stock / ours).collect();
                let (mean, spread) = mean_and_spread(&gains);
                println!("    round by round {mean:.3}, with 95 % within {spread:.3} of it");
                let fails = match self.strictness {
                    Strictness::Counts => gain.is_nan() || gain < bar / 2.0,
                    Strictness::CountsAndTimes => !is_met && mean + spread < bar,
                };
                self.failures += u32::from(fails);
            }
        }
    }

    /// What each round of an arm gives.
    fn all(&self, machine: &str, arm: &str, workload: &str, key: &str) -> Vec<f64> {
        let rounds = self.rows.iter().filter(|row| row.is_of(machine, arm, workload));
        rounds.map(|row| row.number(key)).collect()
    }

    /// The machines of the rows with this file system and arm.
    fn machines(&self, file_system: &str, arm: &str) -> Vec<String> {
        let matching = |row: &&Row| row.text("file_system") == file_system && row.text("arm") == arm;
        let mut machines: Vec<String> = self.rows.iter().filter(matching).map(Row::machine).collect();
        machines.dedup();
        machines
    }

    fn find(&self, machine: &str, arm: &str, workload: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.is_of(machine, arm, workload))
    }
}

/// A row as the guest prints it: one object of numbers, nulls and plain names.
struct Row(String);

impl From<&str> for Row {
    fn from(line: &str) -> Self {
        Self(line.to_owned())
    }
}

impl Row {
    fn value(&self, key: &str) -> &str {
        let (_, rest) =
            self.0.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key} in {}", self.0));
        let end = if let Some(text) = rest.strip_prefix('"') {
            return text.split_once('"').map_or("", |(text, _)| text);
        } else {
            rest.find([',', '}']).unwrap_or(rest.len())
        };
        &rest[..end]
    }

    fn text(&self, key: &str) -> &str {
        self.value(key)
    }

    /// Not a number where there is none, which meets no bar.
    fn number(&self, key: &str) -> f64 {
        self.value(key).parse().unwrap_or(f64::NAN)
    }

    fn is_of(&self, machine: &str, arm: &str, workload: &str) -> bool {
        self.machine() == machine && self.text("arm") == arm && self.text("workload") == workload
    }

    fn machine(&self) -> String {
        let (processors, latency) = (self.text("processors"), self.text("latency_ms"));
        let slow = if latency == "null" { String::new() } else { format!(", {latency} {SLOW}") };
        format!("{} processor(s){slow}", processors)
    }
}

/// How a machine with a slow disk is told.
const SLOW: &str = "ms a request";

fn at_most(what: &str, seen: f64, bar: f64) -> bool {
    show(what, seen, &format!("<= {bar}"), seen <= bar)
}

fn at_least(what: &str, seen: f64, bar: f64) -> bool {
    show(what, seen, &format!(">= {bar}"), seen >= bar)
}

fn show(what: &str, seen: f64, bar: &str, is_met: bool) -> bool {
    let digits = if seen.fract() == 0.0 { 0 } else { 3 };
    println!("{what:<74}{seen:>10.digits$}{bar:>10}{}", if is_met { "" } else { "  missed" });
    is_met
}

/// Not a number of no values, which meets no bar.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
    }
}

/// The mean, and how far from it that of endless rounds lies at most, with 95 %: by Student's distribution.
fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, QUANTILE_OF_FIVE * (variance / count).sqrt())
}

/// 97.5 % of Student's distribution with four degrees of freedom: `test` runs five rounds.
const QUANTILE_OF_FIVE: f64 = 2.78;

fn ratio(part: f64, whole: f64) -> f64 {
    part / whole
}
