//! Suite: what the suites that read a file do alike.
//!
//! Owns: the command line of a child, what a report says of the machine and the file.
//! Does not own: rounds, children, reports (`headwater-measure`); what a row does.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use headwater_measure::{Failure, Report, Section, child, machine};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::bench::arguments::RowSuite;
use crate::shared::arguments::{EngineArguments, name_of};
use crate::shared::foreign::Foreign;
use crate::shared::host::Host;
use crate::shared::json_path;
use crate::shared::target::Target;
use crate::shared::this_program::THIS_PROGRAM;

/// A report that says first what it was measured on, and warns where that is no disk of this machine, or holes.
pub(super) fn report<const FACTS: usize>(
    host: &Host,
    target: &Target,
    head: String,
    facts: [(&str, String); FACTS],
    section: Section,
) -> Report {
    let facts = host.facts().into_iter().chain(machine::known(facts)).collect();
    let fields = [("host", json!(host))].into_iter().chain(json_path::fields(&target.path)).collect();
    let foreign = Foreign::at(&target.path).map(|foreign| foreign.of_figures());
    let notes = foreign.into_iter().chain(target.note()).chain(section.notes).collect();
    let section = Section { facts, notes, ..section };
    Report { head: vec![host.line(), head], fields, section, ..Report::default() }
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
    /// Of the kernel's thread that submits, where a row has one.
    pub(super) kernel_affinity: Option<u32>,
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
        let mut command = Command::new(THIS_PROGRAM);
        command
            .args(["bench-row", "--suite", &name_of(self.suite), "--row", self.row])
            .args(["--bytes", &self.bytes.to_string(), "--limit-ms", &self.limit.as_millis().to_string()])
            .args(["--places", &self.places.to_string(), "--seed", &self.seed.to_string()])
            .args(["--parent", &std::process::id().to_string()])
            .args(self.engine.to_arguments())
            .args(self.kernel_affinity.map(|processor| format!("--kernel-affinity={processor}")))
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
