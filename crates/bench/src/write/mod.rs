//! Write: the cost of writing, and of writing for concurrent readers, against std, fio and GNU cp.
//!
//! ```text
//!   ways, each in a process of its own (write-arm, fio, cp) ─► bytes checked ─► figures
//! ```
//!
//! Owns: the arms and which of them exist.
//! Does not own: what an arm does (sequential, random, reread, beside, forked, small), which ways a group has (ways), rounds
//! (contest), what is promised (bars).

mod beside;
mod contents;
mod forked;
mod random;
mod reread;
mod sequential;
mod small;
mod target;
mod ways;

use std::io;
use std::path::PathBuf;
use std::process::Command;

use crate::tools;
use clap::ValueEnum;

pub(crate) use ways::{
    FIO_WRITES, beside, copy, fork, new, overwrite, random_dense, random_once, random_repeated, reread, small,
};

/// One arm, in a process of its own.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ArmOptions {
    work: Work,
    side: Side,
    #[arg(long)]
    file: PathBuf,
    /// Of the file.
    #[arg(long, default_value_t = 0)]
    mib: u64,
    /// Of each of many small files; `file` is their folder.
    #[arg(long, default_value_t = 0)]
    kib: u64,
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
    /// Makes small files.
    SmallNew,
    /// Writes over small files.
    SmallOver,
    /// Makes small files, and syncs each.
    SmallNewSynced,
    /// Writes over small files, and syncs each.
    SmallOverSynced,
}

/// With what it does that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Side {
    Headwater,
    /// With 64 MiB, instead of as much as is free.
    #[value(name = "headwater-64m")]
    Headwater64M,
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

impl ArmOptions {
    fn length_bytes(&self) -> u64 {
        self.mib << 20
    }

    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(tools::this_program());
        command
            .args(["write-arm", &tools::name_of(self.work), &tools::name_of(self.side)])
            .args([
                "--mib",
                &self.mib.to_string(),
                "--kib",
                &self.kib.to_string(),
                "--seconds",
                &self.seconds.to_string(),
            ])
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
        Work::SmallNew | Work::SmallOver | Work::SmallNewSynced | Work::SmallOverSynced => {
            small::run(options)
        }
    }?;
    tools::print_json(&figures)
}

/// What is read and written at once where that is large.
const PIECE_BYTES: usize = 1 << 20;
