//! Bars: the comparisons that headwater promises to win.
//!
//! ```text
//!   groups ─► ways: suites of `headwater bench`, `peers`, arms, other programs ─► Contest ─► rows ─► promises
//! ```
//!
//! Owns: which groups there are, the order.
//! Does not own: the options (setup), rounds and verdicts (contest), what is promised (promises), ways (defaults, reading with readahead, programs, short, sizes, write).

mod defaults;
mod programs;
mod promises;
mod readahead;
mod reading;
mod short;
mod sizes;

use std::io;

use headwater_measure::Findings;

use crate::contest::{self, Contest, Outcome};
use crate::setup::{Bench, Options};
use crate::{tools, write};

pub(crate) use defaults::{ArmOptions as DefaultArm, run_arm as run_default};
pub(crate) use readahead::{COMMAND as READAHEAD_GUARD, guard as guard_readahead};
pub(crate) use short::{ArmOptions as ShortArm, run_arm as run_short};

/// All groups, though one fails.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let groups = contest::chosen(&GROUPS, |(group, _)| group, &options.only, contest::is_family)?;
    contest::begin(options.json.as_deref())?;
    let bench = Bench::new(options)?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for &(group, build) in groups {
        let findings = match build(&bench) {
            Ok(contest) => {
                let Outcome { report, failed: failures, .. } =
                    contest.run(group, options.rounds, promises::ALL)?;
                failed.extend(failures);
                let is_limit = |name: &str| write::FIO_WRITES.iter().any(|(limit, _)| *limit == name);
                let limits = report.rows.iter().filter(|row| is_limit(&row.name));
                if let Some(most) = limits.filter_map(|row| row.value("mib_per_s")).reduce(f64::max) {
                    bench.write_limit_mib_per_s.set(Some(most));
                }
                report.findings()
            }
            Err(error) => {
                failed.push(group.to_owned());
                Findings::skipped(group, group, &error.to_string())
            }
        };
        tools::print(&findings.text)?;
        all.push(findings);
        // What has been measured is worth something; a group for which there is no room then says so itself.
        failed.extend(bench.remove_files().err().map(|error| format!("{group}, {error}")));
    }
    contest::finish("bars", &all, &failed, options.json.as_deref())
}

/// Makes the files of a group and says which ways it has.
type Build = for<'a> fn(&'a Bench<'a>) -> io::Result<Contest<'a>>;

/// In the order in which they run.
const GROUPS: [(&str, Build); 26] = [
    ("scan", reading::scan),
    ("memory", reading::memory),
    ("random", reading::random),
    ("ring", reading::ring),
    ("warm", reading::warm),
    ("cache", reading::cached),
    ("cat", programs::cat),
    ("short", short::short),
    ("sizes-cat", sizes::cat),
    ("sizes-cp", sizes::cp),
    ("hash-tree", programs::hash_tree),
    ("hash-file", programs::hash_file),
    ("write-new", write::new),
    ("write-overwrite", write::overwrite),
    ("write-small", write::small),
    ("write-random", write::random_once),
    ("write-repeated", write::random_repeated),
    ("write-dense", write::random_dense),
    ("write-reread", write::reread),
    ("write-beside", write::beside),
    ("write-fork", write::fork),
    ("write-copy", write::copy),
    ("default-confined", defaults::confined),
    ("default-service", defaults::service),
    ("default-fill", defaults::fill),
    ("tune", programs::tune),
];
