//! Suites: the tests whose outcome depends on the kernel, and which of them a short run leaves out.
//!
//! Owns: the list, the choice.
//! Does not own: where the programs are (binaries), their end (inside).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::binaries::Binary;
use crate::guest::Halt;

/// A test program as the guest runs it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) suite: String,
    pub(crate) package: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
}

struct Suite {
    /// Folder of the package below `crates`, and name of the test program.
    package: &'static str,
    target: &'static str,
    runs: Runs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    Always,
    /// Not in a short run: much of it is the same on any kernel.
    InFull,
}

/// Which suites and tests are wanted.
pub(crate) struct Choice<'a> {
    /// A part of the suite's name.
    pub(crate) suite: Option<&'a str>,
    /// Parts of the names of tests; none for all.
    pub(crate) tests: &'a [String],
    pub(crate) extent: Extent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Short,
    Full,
}

/// The suites that are chosen.
///
/// # Errors
/// [`Halt::Failed`] when cargo built no such test program, or no suite is chosen.
pub(crate) fn jobs(binaries: &[Binary], choice: &Choice<'_>) -> Result<Vec<Job>, Halt> {
    let named = SUITES.iter().map(|suite| (format!("{} {}", suite.package, suite.target), suite));
    let chosen = named.filter(|(name, suite)| {
        choice.suite.is_none_or(|part| name.contains(part))
            && (choice.extent == Extent::Full || suite.runs == Runs::Always)
    });
    let jobs: Vec<Job> =
        chosen.map(|(name, suite)| job(name, suite, binaries, choice.tests)).collect::<Result<_, _>>()?;
    if jobs.is_empty() {
        return Err(Halt::Failed(std::io::Error::other("no suite has such a name")));
    }
    Ok(jobs)
}

fn job(name: String, suite: &Suite, binaries: &[Binary], tests: &[String]) -> Result<Job, Halt> {
    let is_it = |binary: &&Binary| binary.package.ends_with(suite.package) && binary.target == suite.target;
    let missing = || std::io::Error::other(format!("cargo built no tests {name}"));
    let binary = binaries.iter().find(is_it).ok_or_else(missing)?;
    Ok(Job {
        package: binary.package.clone(),
        program: binary.program.clone(),
        arguments: tests.to_vec(),
        suite: name,
    })
}

const fn suite(package: &'static str, target: &'static str, runs: Runs) -> Suite {
    Suite { package, target, runs }
}

const SUITES: &[Suite] = &[
    suite("io", "lib", Runs::Always),
    suite("io", "drivers", Runs::Always),
    suite("io", "sharing", Runs::Always),
    suite("io", "live", Runs::Always),
    suite("engine", "coherence", Runs::Always),
    suite("engine", "turns", Runs::Always),
    suite("engine", "mapping", Runs::Always),
    suite("engine", "reading", Runs::InFull),
    suite("engine", "caching", Runs::InFull),
    suite("engine", "writing", Runs::InFull),
    suite("engine", "host", Runs::InFull),
    suite("engine", "power", Runs::InFull),
];
