//! Peers: headwater against the libraries that read files, on the same work in the same run.
//!
//! ```text
//!   rows ─► rounds × arms, each in a process of its own (peers-arm) ─► sums that agree ─► medians ─► table
//!                                               ─► best of headwater : best peer ─► geometric mean of all rows
//! ```
//!
//! Owns: the options, the order of runs, what happens to an arm that fails.
//! Does not own: which arms a row has (rows), files and their state (fixture), how an arm uses its
//! library (ours, and a file for each peer), the words (table).

mod caches;
mod compio;
mod fixture;
mod glommio;
mod kernel;
mod monoio;
#[cfg(feature = "nuclei")]
mod nuclei;
mod ours;
mod rows;
mod runtime;
mod table;
mod tokio_fs;
mod tokio_uring;
mod work;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use headwater_measure::child;

use crate::tools::name_of;

use fixture::Fixture;
use rows::{Arm, Peer, Row};
use table::{Line, Report};
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
    #[arg(long, default_value_t = 10_000)]
    files: u32,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each arm that reads at random places.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seconds after which an arm counts as hung, beyond those that it is to run.
    #[arg(long, default_value_t = 120.0)]
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
    let fixture = Fixture::make(options, &rows)?;
    let mut report = Report::new(options);
    for row in rows {
        let lines = measure(row, &fixture, options);
        if is_text {
            table::print_row(row, &lines)?;
        }
        report.add(row, lines);
    }
    if is_text {
        report.print_verdicts()?;
    }
    match &options.json {
        None => Ok(()),
        Some(None) => writeln!(io::stdout(), "{}", report.json()),
        Some(Some(path)) => std::fs::write(path, report.json() + "\n"),
    }
}

/// All arms of a row in turn, `rounds` times. An arm that fails runs no more.
fn measure(row: Row, fixture: &Fixture, options: &Options) -> Vec<Line> {
    let is_wanted = |arm: &Arm| {
        let peer = arm.peer();
        peer == Peer::Headwater || options.peers.is_empty() || options.peers.contains(&peer)
    };
    let mut lines: Vec<Line> = row.arms().into_iter().filter(is_wanted).map(Line::new).collect();
    for _ in 0..options.rounds {
        for line in &mut lines {
            if line.failure.is_some() {
                continue;
            }
            match measure_once(row, line.arm, fixture, options) {
                Ok(sample) => line.samples.push(sample),
                Err(error) => line.failure = Some(error.to_string()),
            }
        }
    }
    table::compare_sums(&mut lines);
    lines
}

fn measure_once(row: Row, arm: Arm, fixture: &Fixture, options: &Options) -> io::Result<Sample> {
    fixture.prepare(row, arm)?;
    let mut command = Command::new(std::env::current_exe()?);
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
        Peer::Headwater => ours::run(&job),
    }?;
    println!("{}", serde_json::to_string(&sample)?);
    Ok(())
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
