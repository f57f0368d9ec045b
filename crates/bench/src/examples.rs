//! Examples: the example programs of the library, each in its form with headwater and its form in plain std.
//!
//! Question: What does a program gain, as users write it, that opens its files with headwater?
//!
//! ```text
//!   program ─► rounds × forms, each in a process of its own (`EXAMPLE --once`) ─► medians ─► table ─► ratio against its bar
//! ```
//!
//! Owns: which programs there are, what is promised of each.
//! Does not own: rounds and verdicts (contest), what a program does, and its clock (`crates/engine/examples`).

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_measure::{Figures, Limit, child};

use crate::contest::{self, Contest, Promise};
use crate::folder::Folder;
use crate::tools;

/// Options of `examples`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder on the device to measure; what the programs write there is removed. One in memory shows nothing.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Where the programs are, as `cargo build --release -p headwater --examples` makes them.
    #[arg(long, default_value = "target/release/examples")]
    programs: PathBuf,
    /// Divides how much each program does.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    shrink: u64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only these programs.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the results to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

struct Program {
    name: &'static str,
    /// What a unit of its work is, and what is done with it.
    note: &'static str,
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let programs = chosen(&options.only)?;
    contest::begin(options.json.as_deref())?;
    let folder = Folder::create(&options.dir)?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for program in programs {
        let outcome = contest(program, options, folder.path()).run(program.name, options.rounds, PROMISES)?;
        failed.extend(outcome.failed);
        let findings = outcome.report.findings();
        tools::print(&findings.text)?;
        all.push(findings);
    }
    contest::finish("examples", &all, &failed, options.json.as_deref())
}

fn chosen(only: &[String]) -> io::Result<Vec<&'static Program>> {
    contest::chosen(&PROGRAMS, |program| program.name, only, contest::is_name)
}

fn contest<'a>(program: &'a Program, options: &'a Options, folder: &'a Path) -> Contest<'a> {
    let mut contest = Contest::default();
    for form in ["headwater", "std"] {
        contest.way(form, move || run_once(program.name, form, options, folder));
    }
    contest.note(program.note);
    if options.shrink > 1 {
        contest.note(format!("1/{} of the program's usual work", options.shrink));
    }
    contest
}

/// A run of one form, in a process that starts with an empty cache.
fn run_once(name: &str, form: &str, options: &Options, folder: &Path) -> io::Result<Figures> {
    let program = options.programs.join(name);
    let mut command = Command::new(&program);
    command
        .args([format!("--{form}"), "--once".to_owned(), format!("--shrink={}", options.shrink)])
        .arg(folder);
    child::result(&mut command, None).map_err(io::Error::from).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let (program, error) =
                (program.display(), "`cargo build --release -p headwater --examples` makes it");
            io::Error::other(format!("{program} is missing; {error}"))
        }
        _ => error,
    })
}

const PROGRAMS: [Program; 6] = [
    Program {
        name: "ledger",
        note: "a unit is a record of 100 bytes, made durable for one of eight threads and read by a follower; std locks, writes and syncs for each",
    },
    Program {
        name: "sort",
        note: "a unit is a key of 8 bytes, sorted in eight runs and merged, from a cold file; two thirds of the time of std are comparisons",
    },
    Program {
        name: "store",
        note: "a unit is a get of a value of 200 to 4000 bytes as `Bytes`, by four threads; the values are written first",
    },
    Program {
        name: "hasher",
        note: "a unit is a cold file of up to 128 KiB, read whole and hashed by one of four threads",
    },
    Program {
        name: "service",
        note: "a unit is a range of 16 KiB of a file of 128 MiB, cold at first and asked for eight times, over TCP for 64 connections on tokio",
    },
    Program {
        name: "cores",
        note: "a unit is a MiB of a cold file, hashed by a core for itself: an engine of its own each, against threads of std",
    },
];

const RATE: &str = "units_per_s";

const fn faster(program: &'static str, at_least: f64) -> Promise {
    contest::ratio(program, "headwater", "std", RATE, Limit::AtLeast(at_least))
}

const PROMISES: &[Promise] = &[
    faster("ledger", 1.0),
    faster("sort", 2.0),
    faster("store", 1.7),
    faster("hasher", 1.0),
    faster("service", 1.5),
    contest::shown("cores", "headwater", "std", RATE),
];

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Goal: every program is an example of the library, and has a promise or is shown. Method: its source is there, and so is a line of
    /// the promises.
    #[test]
    fn programs_are_examples() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/examples");
        for program in PROGRAMS {
            assert!(examples.join(program.name).with_extension("rs").exists(), "{}", program.name);
            let verdicts = run_of(program.name, 3.0, 1.0);
            assert_eq!(verdicts.len(), 1, "{}", program.name);
        }
        assert!(chosen(&["sort".to_owned(), "nothing".to_owned()]).is_err());
    }

    /// Goal: a program that is slower than std misses its bar.
    #[test]
    fn slower_programs_miss_their_bars() {
        for program in PROGRAMS.iter().filter(|program| program.name != "cores") {
            let [faster, slower] = [2.0, 0.9].map(|ours| run_of(program.name, ours, 1.0)[0].to_string());
            assert!(faster.ends_with("  met") && slower.ends_with("  MISSED"), "{faster}{slower}");
        }
    }

    fn run_of(name: &'static str, ours: f64, theirs: f64) -> Vec<headwater_measure::Verdict> {
        let mut contest = Contest::default();
        contest.way("headwater", move || Ok(Figures::from([(RATE, ours)])));
        contest.way("std", move || Ok(Figures::from([(RATE, theirs)])));
        contest.run(name, 1, PROMISES).unwrap().verdicts
    }

    fn options(folder: &TempDir) -> Options {
        Options {
            dir: folder.path().to_owned(),
            programs: folder.path().to_owned(),
            shrink: 8,
            rounds: 2,
            only: vec!["service".to_owned()],
            json: Some(folder.path().join("report.json")),
        }
    }

    /// Goal: what a program prints is its row, in each form and round, and what it is given is the folder and the divisor. Method: a script in its
    /// place, which another process writes: this one's children would keep it open, and a file that is open for writing cannot be run.
    #[test]
    fn programs_are_run_in_both_forms() {
        let folder = TempDir::new().unwrap();
        let script = "printf '%s\n' '#!/bin/sh' '[ $2$3 = --once--shrink=8 ] && [ -d $4 ] || exit 1' \
             'case $1 in --std) rate=10;; *) rate=20;; esac' 'echo \"{\\\"units_per_s\\\": $rate, \\\"elapsed_s\\\": 1}\"' > service; chmod +x service";
        let made = Command::new("sh").args(["-c", script]).current_dir(folder.path()).status().unwrap();
        assert!(made.success());
        run(&options(&folder)).unwrap();
        let report = std::fs::read(folder.path().join("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        let suite = &report["suites"][0];
        assert_eq!((&suite["suite"], suite["verdicts"].as_array().unwrap().len()), (&"service".into(), 1));
        assert_eq!(suite["verdicts"][0]["measured"], 2.0, "{suite}");
        for (row, rate) in suite["rows"].as_array().unwrap().iter().zip([20.0, 10.0]) {
            assert_eq!(
                (&row["units_per_s"], row["metrics"][0]["samples"].as_array().unwrap().len()),
                (&rate.into(), 2)
            );
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 2, "files are left behind");
    }

    /// Goal: what is missing is named with the command that makes it.
    #[test]
    fn missing_programs_are_named() {
        let folder = TempDir::new().unwrap();
        let error = run_once("sort", "std", &options(&folder), folder.path()).unwrap_err().to_string();
        assert!(error.contains("sort is missing") && error.contains("--examples"), "{error}");
    }
}
