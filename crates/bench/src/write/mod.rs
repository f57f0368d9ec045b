//! Write: the cost of writing, and of writing for concurrent readers, against std, fio and GNU cp.
//!
//! ```text
//!   rounds × contenders, each in a process of its own (write-arm, fio, cp) ─► bytes checked ─► medians ─► ratios against bars
//! ```
//!
//! Owns: the options, the arms and which of them exist.
//! Does not own: what an arm does (sequential, random, reread, beside, forked), what is held against what (rows), the table
//! (report).

mod beside;
mod contents;
mod forked;
mod random;
mod report;
mod reread;
mod rows;
mod sequential;
mod target;

use std::io;
use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::tools;
use headwater_measure::median;

pub(crate) use rows::{Setup, run};

/// Options of the group `write`.
#[derive(clap::Args)]
#[group(skip)] // `bars` has a group of this name.
pub(crate) struct Options {
    /// GNU cp.
    #[arg(long, default_value = "/bin/cp")]
    gnu_cp: PathBuf,
    /// `write`: only these rows.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<Row>,
    /// `write`: divides all sizes, which are up to 8 GiB.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    shrink: u64,
    /// `write`: writes the results to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Row {
    /// A new file in order.
    New,
    /// The same over what is there.
    Overwrite,
    /// Pages at random.
    Random,
    /// The first time a file is read again.
    Reread,
    /// Reading while another thread writes.
    Beside,
    /// A fork with much memory.
    Fork,
    /// `headwater cp`.
    Copy,
}

/// One arm, in a process of its own.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ArmOptions {
    work: Work,
    side: Side,
    #[arg(long)]
    file: PathBuf,
    /// Of the file.
    #[arg(long)]
    mib: u64,
    /// Of arms that read while something happens.
    #[arg(long)]
    seconds: f64,
    /// What the second thread does in a second at most; 0 for as much as it can.
    #[arg(long, default_value_t = 0)]
    pace: u32,
}

/// What an arm does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Work {
    /// Writes the file in order, 1 MiB at a time.
    Sequential,
    /// As many pages at random as the file has.
    RandomOnce,
    /// Four times as many as a quarter of the file has, there.
    RandomRepeated,
    /// Every page of half of the blocks of 256 KiB.
    RandomDense,
    /// Reads the file again, copying.
    RereadCopy,
    /// Reads the file again, looking at every byte.
    RereadSum,
    /// Reads half of the file at random, alone.
    BesideNothing,
    /// The same while another thread copies pages of its own.
    BesideCopying,
    /// The same while another thread writes the other half.
    BesideWriting,
    /// Forks.
    Fork,
}

/// With what it does that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Side {
    Headwater,
    /// `headwater::File::view` for what is read again.
    View,
    /// Through the kernel's page cache.
    Std,
    /// With O_DIRECT.
    StdDirect,
    /// Memory of the process: the limit of all that copies.
    Memory,
    /// Nothing at all.
    Nothing,
}

/// What one run of an arm reports. Fields that mean nothing for an arm are zero.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Figures {
    elapsed_s: f64,
    /// Of the process with all its threads, and what the kernel did for them in threads of theirs.
    cpu_s: f64,
    reads_per_s: f64,
    /// What the second thread did meanwhile.
    beside_per_s: f64,
    dirtied_pages: f64,
    device_writes: f64,
    device_write_pages: f64,
    device_write_bytes: f64,
}

impl Figures {
    /// Each field's.
    fn median(samples: &[Figures]) -> Figures {
        let of = |field: fn(&Figures) -> f64| median(samples.iter().map(field));
        Figures {
            elapsed_s: of(|figures| figures.elapsed_s),
            cpu_s: of(|figures| figures.cpu_s),
            reads_per_s: of(|figures| figures.reads_per_s),
            beside_per_s: of(|figures| figures.beside_per_s),
            dirtied_pages: of(|figures| figures.dirtied_pages),
            device_writes: of(|figures| figures.device_writes),
            device_write_pages: of(|figures| figures.device_write_pages),
            device_write_bytes: of(|figures| figures.device_write_bytes),
        }
    }
}

impl ArmOptions {
    fn length_bytes(&self) -> u64 {
        self.mib << 20
    }

    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["write-arm", &tools::name_of(self.work), &tools::name_of(self.side)])
            .args(["--mib", &self.mib.to_string(), "--seconds", &self.seconds.to_string()])
            .args(["--pace", &self.pace.to_string(), "--file"])
            .arg(&self.file);
        Ok(command)
    }

    /// There is no such arm.
    fn unknown(&self) -> io::Error {
        io::Error::other(format!("nobody does {:?} with {:?}", self.work, self.side))
    }
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let figures = match options.work {
        Work::Sequential => sequential::run(options),
        Work::RandomOnce | Work::RandomRepeated | Work::RandomDense => random::run(options),
        Work::RereadCopy | Work::RereadSum => reread::run(options),
        Work::BesideNothing | Work::BesideCopying | Work::BesideWriting => beside::run(options),
        Work::Fork => forked::run(options),
    }?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// What is read and written at once where that is large.
const PIECE_BYTES: usize = 1 << 20;
