//! Suite: what the suites that read a file do alike.
//!
//! ```text
//!   file ─► rounds × rows, forwards and backwards in turn: child (bench-row) ─► a line of JSON ─► findings ─► output
//! ```
//!
//! Owns: the order of rows, children, the progress bar, medians, where results go.
//! Does not own: what a row does, what is made of its figures.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::file::{Target, Wanted};
use super::page;
use super::section::{self, Section};
use crate::bench::arguments::{ResultArguments, RowSuite};
use crate::shared::arguments::{EngineArguments, name_of};
use crate::shared::output;

/// What a suite has found out: a table for people, JSON for programs, a section of the report page.
pub(crate) struct Findings {
    text: String,
    json: String,
    section: Section,
}

#[derive(Serialize)]
struct Skipped<'a> {
    suite: &'a str,
    skipped: &'a str,
}

impl Findings {
    pub(crate) fn new(text: String, report: &impl Serialize, section: Section) -> Findings {
        let json = serde_json::to_string_pretty(report).expect("numbers and texts can be written");
        Findings { text, json, section }
    }

    /// Of a suite that cannot run here: the reason, everywhere where its results would be.
    pub(super) fn skipped(id: &'static str, title: &str, reason: &str) -> Findings {
        let report = Skipped { suite: id, skipped: reason };
        let notes = vec![section::sentence(&format!("skipped: {reason}"))];
        let section = Section { id, title: title.to_owned(), notes, ..Section::default() };
        Findings::new(format!("skipped {id}: {reason}\n"), &report, section)
    }

    /// The table on standard output, `before` in front of it.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn print(&self, before: &str) -> Result<(), String> {
        output::print(&format!("{before}{}", self.text))
    }
}

/// Writes JSON and the report page, as far as they are wanted.
///
/// # Errors
/// One sentence for the user.
pub(super) fn write_results(findings: &[Findings], results: &ResultArguments) -> Result<(), String> {
    if let Some(path) = &results.html {
        let sections: Vec<&Section> = findings.iter().map(|findings| &findings.section).collect();
        output::write_file(path, &page::page(&sections, &json_of(findings)))?;
    }
    results.json.to().write(|| json_of(findings))
}

/// One report as it is, several as those of the quick form.
fn json_of(findings: &[Findings]) -> String {
    match findings {
        [one] => one.json.clone(),
        several => {
            let reports: Vec<&str> = several.iter().map(|findings| findings.json.as_str()).collect();
            format!("{{\"suite\": \"quick\", \"suites\": [\n{}\n]}}", reports.join(",\n"))
        }
    }
}

/// Opens or makes the file, and shows how far that is.
pub(crate) fn prepare(wanted: &Wanted) -> Result<Target, String> {
    let progress = progress_bar(0);
    let target = Target::prepare(wanted, &mut |written_bytes| {
        progress.set_message(format!("writing the file: {} MiB", written_bytes >> 20));
        progress.tick();
    });
    progress.finish_and_clear();
    target
}

pub(super) fn progress_bar(steps: u64) -> ProgressBar {
    // Hidden when standard error is no terminal. Without colours, so NO_COLOR asks for nothing else.
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} left");
    ProgressBar::new(steps).with_style(style.expect("the template is well-formed"))
}

/// Rounds go through the rows forwards and backwards in turn, so that no row always follows the same other one.
pub(crate) fn order(rows: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// For the head of a table.
pub(super) fn rounds_words(rounds: u32) -> String {
    if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") }
}

/// For the report page: what becomes of the rounds, and in which order rows are measured in them.
pub(super) fn rounds_sentence(rounds: u32) -> String {
    if rounds == 1 {
        return "There was one round, so there is no spread.".to_owned();
    }
    format!(
        "The median of {rounds} rounds counts, which went through the rows forwards and backwards in turn; whiskers \
         show the lowest and the highest."
    )
}

/// For the report page: a directory or a file by a name that says something elsewhere.
pub(super) fn place_words(path: &str) -> &str {
    if path == "." { "the current directory" } else { path }
}

/// What a child is to measure.
pub(super) struct Task<'a> {
    pub(super) suite: RowSuite,
    pub(super) row: &'a str,
    pub(super) bytes: u64,
    pub(super) limit: Duration,
    pub(super) places: u64,
    pub(super) seed: u64,
    pub(super) engine: &'a EngineArguments,
}

impl Task<'_> {
    /// Measures in a process of its own, which gets the file as standard input.
    ///
    /// # Errors
    /// What the child complains of.
    pub(super) fn run<T: DeserializeOwned>(&self, target: &Target) -> Result<T, String> {
        let descriptor = target.descriptor();
        self.run_on(descriptor.map_err(|error| format!("failed to measure {}: {error}", self.row))?)
    }

    /// The same with a file that is no target.
    ///
    /// # Errors
    /// What the child complains of.
    pub(super) fn run_on<T: DeserializeOwned>(&self, descriptor: OwnedFd) -> Result<T, String> {
        self.run_in(None, descriptor)
    }

    /// The same in a cgroup, which the child enters before it does anything else.
    ///
    /// # Errors
    /// What the child complains of.
    pub(super) fn run_in<T: DeserializeOwned>(
        &self,
        cgroup: Option<&Path>,
        descriptor: OwnedFd,
    ) -> Result<T, String> {
        let failed = |error: String| format!("failed to measure {}: {error}", self.row);
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let output = Command::new(program)
            .args(["bench-row", "--suite", &name_of(self.suite), "--row", self.row])
            .args(["--bytes", &self.bytes.to_string(), "--limit-ms", &self.limit.as_millis().to_string()])
            .args(["--places", &self.places.to_string(), "--seed", &self.seed.to_string()])
            .args(self.engine.to_arguments())
            .args(cgroup.into_iter().flat_map(|path| ["--cgroup".as_ref(), path.as_os_str()]))
            .stdin(Stdio::from(descriptor))
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().trim_start_matches("headwater: ");
            return Err(match output.status.signal() {
                Some(SIGKILL) => failed(KILLED.to_owned()),
                _ if said.is_empty() => failed(output.status.to_string()),
                _ => said.to_owned(),
            });
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
    }
}

const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

const KILLED: &str = "it was killed, as the kernel does when memory runs out; give its cgroup more (memory.max), or measure \
                      less (--size, --set, --memory)";

/// The middle one; of an even number the mean of the two in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (odd, middle) if odd % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Processor time of this process, all of its threads and the kernel's part included.
pub(super) fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// splitmix64 (Steele, Lea and Flood, OOPSLA 2014): a number without a pattern for each number.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The file is handed over as standard input and opened again from there: it may have no name any more.
pub(super) const INPUT: &str = "/proc/self/fd/0";

pub(crate) const PAGE_BYTES: u64 = 4096;

pub(crate) const MIB: f64 = (1 << 20) as f64;
pub(super) const GIB: f64 = (1 << 30) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([].into_iter()), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    /// Goal: a suite that cannot run says why in the table, in the JSON and on the page.
    #[test]
    fn skipped_suites_say_why() {
        let findings = Findings::skipped("nop", "The ring", "a \"filter\" forbids it");
        assert_eq!(findings.text, "skipped nop: a \"filter\" forbids it\n");
        let json: serde_json::Value = serde_json::from_str(&findings.json).unwrap();
        assert_eq!(json, serde_json::json!({"suite": "nop", "skipped": "a \"filter\" forbids it"}));
        assert_eq!(findings.section.notes, ["Skipped: a \"filter\" forbids it."]);
    }

    /// Goal: one report stands by itself, several in a list, and both are JSON.
    #[test]
    fn reports_are_json() {
        let findings = || Findings::new(String::new(), &[1, 2], Section::default());
        let read = |findings: &[Findings]| -> serde_json::Value {
            serde_json::from_str(&json_of(findings)).unwrap()
        };
        assert_eq!(read(&[findings()]), serde_json::json!([1, 2]));
        assert_eq!(read(&[findings(), findings()])["suites"], serde_json::json!([[1, 2], [1, 2]]));
    }
}
