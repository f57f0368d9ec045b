//! Suite: what the suites that read a file do alike.
//!
//! Owns: the file's preparation, the command line of a child, where results go.
//! Does not own: rounds, children, reports (`headwater-measure`); what a row does.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use headwater_measure::{Failure, Findings, child, report, rounds};
use serde::de::DeserializeOwned;

use super::file::{Target, Wanted};
use crate::bench::arguments::{ResultArguments, RowSuite};
use crate::shared::arguments::{EngineArguments, name_of};
use crate::shared::output;

/// Writes JSON and the report page, as far as they are wanted.
///
/// # Errors
/// One sentence for the user.
pub(super) fn write_results(findings: &[Findings], results: &ResultArguments) -> Result<(), String> {
    if let Some(path) = &results.html {
        output::write_file(path, &report::html(findings))?;
    }
    results.json.to().write(|| report::json(findings))
}

/// Opens or makes the file, and shows how far that is.
pub(crate) fn prepare(wanted: &Wanted) -> Result<Target, String> {
    let progress = rounds::bar(0);
    let target = Target::prepare(wanted, &mut |written_bytes| {
        progress.set_message(format!("writing the file: {} MiB", written_bytes >> 20));
        progress.tick();
    });
    progress.finish_and_clear();
    target
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
        self.run_in(None, descriptor.map_err(|error| format!("failed to measure {}: {error}", self.row))?)
    }

    /// The same in a cgroup, which the child enters before it does anything else, and with any file.
    ///
    /// # Errors
    /// What the child complains of.
    pub(super) fn run_in<T: DeserializeOwned>(
        &self,
        cgroup: Option<&Path>,
        descriptor: OwnedFd,
    ) -> Result<T, String> {
        let failed = |error: &dyn std::fmt::Display| format!("failed to measure {}: {error}", self.row);
        let mut command = Command::new(std::env::current_exe().map_err(|error| failed(&error))?);
        command
            .args(["bench-row", "--suite", &name_of(self.suite), "--row", self.row])
            .args(["--bytes", &self.bytes.to_string(), "--limit-ms", &self.limit.as_millis().to_string()])
            .args(["--places", &self.places.to_string(), "--seed", &self.seed.to_string()])
            .args(self.engine.to_arguments())
            .args(cgroup.into_iter().flat_map(|path| ["--cgroup".as_ref(), path.as_os_str()]))
            .stdin(Stdio::from(descriptor));
        child::result(&mut command, None).map_err(|failure| match failure {
            Failure::Said(said) => said,
            Failure::Signal(SIGKILL, _) => failed(&KILLED),
            failure => failed(&failure),
        })
    }
}

const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

const KILLED: &str = "it was killed, as the kernel does when memory runs out; give its cgroup more (memory.max), or measure \
                      less (--size, --set, --memory)";

/// splitmix64 (Steele, Lea and Flood, OOPSLA 2014): a number without a pattern for each number.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

pub(crate) const MIB: f64 = (1 << 20) as f64;
pub(super) const GIB: f64 = (1 << 30) as f64;
