//! Peers: headwater against the libraries that read files, on the same work in the same run.
//!
//! ```text
//!   rows ─► rounds × arms, each in a process of its own (peers-arm) ─► sums that agree ─► medians ─► table
//!                                               ─► best of headwater : best peer ─► geometric mean of all rows
//! ```
//!
//! Owns: the options, that all arms read the same bytes, what is promised.
//! Does not own: rounds and verdicts (contest), which arms a row has (rows), files and their state (fixture), how an arm uses
//! its library (ours, ring, and a file for each peer).

mod caches;
mod compio;
mod cores;
mod fixture;
mod glommio;
mod kernel;
mod monoio;
#[cfg(feature = "nuclei")]
mod nuclei;
mod ours;
mod ring;
mod rows;
mod runtime;
mod tokio_fs;
mod tokio_uring;
mod work;

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use headwater_measure::{Limit, Report, Section, Verdict, child, report};
use serde_json::json;

use crate::contest::{self, Contest, Promise};
use crate::tools::{self, name_of};

use fixture::Fixture;
use rows::{Arm, Peer, Row};
use work::{Job, Sample};

/// Options of `peers`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The file of the cold scan and of random reads. By default one is made, and removed in the end.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Where files are made.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Length of the file that is made for the cold scan and for random reads.
    #[arg(long, default_value = "4G", value_parser = size)]
    scan: u64,
    /// Length of the file that is read warm.
    #[arg(long, default_value = "256M", value_parser = size)]
    set: u64,
    /// Length of the file that is hashed.
    #[arg(long, default_value = "1G", value_parser = size)]
    hash: u64,
    /// How many small files are opened, read and closed.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each arm that reads at random places.
    #[arg(long, default_value_t = 2.0, value_parser = tools::seconds)]
    seconds: f64,
    /// Seconds after which an arm counts as hung, beyond those that it is to run.
    #[arg(long, default_value_t = 120.0, value_parser = tools::seconds)]
    limit: f64,
    /// Only these rows.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Row>,
    /// Only these peers beside headwater.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Print JSON instead of tables, all samples included; with a path, write it there too.
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true)]
    json: Option<Option<PathBuf>>,
}

/// One arm, in a process of its own.
#[derive(clap::Args)]
pub(crate) struct ArmOptions {
    row: Row,
    arm: Arm,
    #[arg(long)]
    path: PathBuf,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    files: u32,
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let is_text = !matches!(options.json, Some(None));
    let rows: Vec<Row> =
        Row::all().filter(|row| options.only.is_empty() || options.only.contains(row)).collect();
    contest::begin(options.json.iter().flatten().next().map(PathBuf::as_path))?;
    let fixture = Fixture::make(options, &rows)?;
    let (mut all, mut verdicts, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let outcome = contest(row, &fixture, options).run(row.id(), options.rounds, &promises(row))?;
        verdicts.extend(outcome.verdicts.into_iter().next());
        failed.extend(outcome.failed);
        all.push(outcome.report.findings());
        if is_text {
            tools::print(&all[all.len() - 1].text)?;
        }
    }
    if let Some(mean) = mean(&verdicts) {
        if is_text {
            tools::print(&format!("\n{mean}\n"))?;
        }
        let fields = vec![("verdicts", json!([mean]))];
        let section = Section { id: "mean", ..Section::default() };
        all.push(Report { section, fields, ..Report::default() }.findings());
    }
    if !is_text {
        tools::print(&format!("{}\n", report::json_as("peers", &all)))?;
    }
    contest::finish("peers", &all, &failed, options.json.iter().flatten().next().map(PathBuf::as_path))
}

/// All arms of a row. One that fails, or reads other bytes than the first did, has no figures. Those of headwater must not.
fn contest<'a>(row: Row, fixture: &'a Fixture, options: &'a Options) -> Contest<'a> {
    let is_wanted = |arm: &Arm| {
        let peer = arm.peer();
        peer == Peer::Headwater || options.peers.is_empty() || options.peers.contains(&peer)
    };
    let mut contest = Contest::default();
    let first = Rc::new(OnceCell::new());
    for arm in row.arms().into_iter().filter(is_wanted) {
        let first = Rc::clone(&first);
        contest.way(name_of(arm), move || {
            let lacks = |error: io::Error| io::Error::new(io::ErrorKind::Unsupported, error);
            fixture.prepare(row, arm).map_err(lacks)?;
            let sample = measure_once(row, arm, fixture, options)?;
            compare(first.get_or_init(|| (arm, sample.sum)), sample.sum)?;
            Ok(sample.figures(row))
        });
        if arm.peer() != Peer::Headwater {
            contest.make_optional();
        }
    }
    contest
}

fn compare((arm, right): &(Arm, u64), sum: u64) -> io::Result<()> {
    if sum == *right {
        return Ok(());
    }
    let name = name_of(*arm);
    Err(io::Error::other(format!("read other bytes than {name}: their sum is {sum}, not {right}")))
}

/// Nowhere slower than the best of them; than Glommio with a thread for each processor, faster.
fn promises(row: Row) -> [Promise; 2] {
    let (rate, cpu) = row.judged();
    let least = if row.is_by_core() { 1.05 } else { 1.0 };
    [
        contest::ratio(row.id(), "headwater*", "*", rate, Limit::AtLeast(least)),
        contest::shown(row.id(), "headwater*", "*", cpu),
    ]
}

/// Geometric: clearly faster on the whole.
fn mean(verdicts: &[Verdict]) -> Option<Verdict> {
    let count = verdicts.len();
    let mean = (verdicts.iter().map(|verdict| verdict.measured.ln()).sum::<f64>() / count as f64).exp();
    let title = format!("best of headwater : best peer, geometric mean of {count} rows");
    (count > 0).then(|| Verdict::new(title, mean, Limit::AtLeast(1.3)))
}

fn measure_once(row: Row, arm: Arm, fixture: &Fixture, options: &Options) -> io::Result<Sample> {
    let mut command = Command::new(tools::this_program());
    command
        .args([OsStr::new("peers-arm"), OsStr::new(&name_of(row)), OsStr::new(&name_of(arm))])
        .args(["--seconds", &options.seconds.to_string(), "--files", &options.files.to_string()])
        .arg("--path")
        .arg(fixture.path(row));
    if arm.needs_uring() {
        command.env(runtime::HUGE_PAGES.0, runtime::HUGE_PAGES.1);
    }
    let limit = Duration::from_secs_f64(options.seconds + options.limit);
    Ok(child::result(&mut command, Some(limit))?)
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let job = Job {
        row: options.row,
        arm: options.arm,
        path: options.path.clone(),
        seconds: options.seconds,
        files: options.files,
    };
    let sample = match job.arm.peer() {
        Peer::Std | Peer::Mmap => kernel::run(&job),
        Peer::TokioFs => tokio_fs::run(&job),
        Peer::TokioUring => tokio_uring::run(&job),
        Peer::Compio => compio::run(&job),
        Peer::Monoio => monoio::run(&job),
        Peer::Glommio => glommio::run(&job),
        #[cfg(feature = "nuclei")]
        Peer::Nuclei => nuclei::run(&job),
        Peer::Foyer | Peer::QuickCache | Peer::Moka => caches::run(&job),
        Peer::Headwater if job.arm == Arm::HeadwaterCores => cores::run(&job),
        Peer::Headwater if job.arm == Arm::HeadwaterRing => ring::run(&job),
        Peer::Headwater => ours::run(&job),
    }?;
    tools::print_json(&sample)
}

/// `4G`, `256M`, `64K` or a number of bytes.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a size is a number, with K, M or G behind it".to_owned())?;
    number
        .checked_mul(1 << shift)
        .filter(|&bytes| bytes >= work::PIECE_BYTES as u64)
        .ok_or_else(|| "a size is 512K at least, and less than 2^64 bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an arm that reads other bytes than the first wins nothing, and without a peer there is no contest.
    #[test]
    fn wrong_sums_are_out() {
        let run = |arms: &[(&'static str, u64, f64)]| {
            let mut contest = Contest::default();
            for &(name, sum, elapsed_s) in arms {
                contest.optional(name, move || {
                    compare(&(Arm::Std, 7), sum)?;
                    let requests = 4;
                    let peak_rss_mib = 1.0;
                    let sample = Sample { bytes: 16384, requests, elapsed_s, cpu_s: 1.0, peak_rss_mib, sum };
                    Ok(sample.figures(Row::WarmRandom))
                });
            }
            contest.run("warm-random", 1, &promises(Row::WarmRandom)).unwrap().verdicts
        };
        let verdicts = run(&[("std", 7, 0.3), ("headwater", 7, 0.2), ("compio", 8, 0.1), ("moka", 7, 0.4)]);
        assert!(verdicts[0].to_string().starts_with("headwater : std, "), "{}", verdicts[0]);
        assert!((verdicts[0].measured - 1.5).abs() < 1e-9);
        assert!(run(&[("headwater", 7, 0.2), ("compio", 8, 0.1)]).is_empty());
        assert!(mean(&[]).is_none());
    }

    /// Goal: sizes as they are typed, and what is none.
    #[test]
    fn sizes() {
        assert_eq!(size("4G"), Ok(4 << 30));
        assert_eq!(size("512K"), Ok(512 << 10));
        assert_eq!(size("1048576"), Ok(1 << 20));
        for wrong in ["", "G", "1T", "1", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
