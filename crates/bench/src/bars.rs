//! Bars: the comparisons that headwater promises to win.
//!
//! Owns: which arm is held against which, in what state of the page cache, and what ratio is promised.
//! Does not own: how arms run.

mod cached;
mod hash;
mod ring;
mod tune;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::arms::{self, Arm};
use crate::tools;
use crate::tools::Sample;
use crate::write;
use headwater_measure::median;
use headwater_measure::rounds::interleave;
use headwater_measure::verdict::{Limit, detail, report, skipped};

/// Options of `bars`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// File to read: larger is better, 8 GiB was used for the figures in the README. For the warm rows it should fit
    /// in memory.
    #[arg(long)]
    file: PathBuf,
    /// File for the warm rows of `cat`; by default the same.
    #[arg(long)]
    warm_file: Option<PathBuf>,
    /// The headwater command.
    #[arg(long, default_value = "target/release/headwater")]
    headwater: PathBuf,
    /// GNU cat.
    #[arg(long, default_value = "/bin/cat")]
    gnu_cat: PathBuf,
    /// The uutils multi-call binary (`cargo install coreutils`); its rows are skipped without it.
    #[arg(long, default_value = "coreutils")]
    uutils: PathBuf,
    /// b3sum; the rows of `hash` are skipped without it.
    #[arg(long, default_value = "b3sum")]
    b3sum: PathBuf,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of each random arm.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Only these groups [default: all].
    #[arg(long, value_delimiter = ',')]
    only: Vec<Group>,
    #[command(flatten)]
    write: write::Options,
}

/// A group of comparisons that share arms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Group {
    Scan,
    Memory,
    Random,
    Ring,
    Warm,
    Cache,
    Cat,
    Hash,
    Write,
    Tune,
}

/// One thing that is run.
enum Runner {
    /// With this many MiB of memory.
    Arm(Arm, u64),
    /// The same beside a hot set, whose files are in this folder.
    Beside(Arm, u64, PathBuf),
    Fio(Vec<String>),
    Shell(String),
}

#[derive(Clone, Copy, PartialEq)]
enum Cache {
    Cold,
    Warm,
}

struct Contest<'a> {
    options: &'a Options,
    file: &'a Path,
    length_bytes: u64,
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let contest =
        Contest { options, file: &options.file, length_bytes: std::fs::metadata(&options.file)?.len() };
    writeln!(io::stdout(), "{:<66} {:>9} {:>7}  result", "comparison (medians)", "measured", "bar")?;
    let is_wanted = |group: &&Group| options.only.is_empty() || options.only.contains(group);
    for group in Group::value_variants().iter().filter(is_wanted) {
        match group {
            Group::Scan => contest.scan()?,
            Group::Memory => contest.memory()?,
            Group::Random => contest.random()?,
            Group::Ring => contest.ring()?,
            Group::Warm => contest.warm()?,
            Group::Cache => contest.cached()?,
            Group::Cat => contest.cat()?,
            Group::Hash => contest.hash()?,
            Group::Write => contest.write()?,
            Group::Tune => contest.tune()?,
        }
    }
    Ok(())
}

impl Contest<'_> {
    fn scan(&self) -> io::Result<()> {
        let mut arms = vec![Runner::Arm(Arm::ScanHeadwater, 32)];
        arms.extend(FIO_SCANS.iter().map(|scan| Runner::Fio(scan.map(str::to_owned).to_vec())));
        let rates: Vec<f64> = self.rounds(&arms, Cache::Cold)?.iter().map(|samples| rate(samples)).collect();
        let list: Vec<String> = rates[1..].iter().map(|rate| format!("{rate:.0}")).collect();
        detail(&format!(
            "headwater {:.0} MiB/s, fio 1M x 32, 1M x 8, 1M x 1, 2M x 1: {}",
            rates[0],
            list.join(", ")
        ))?;
        report("scan, headwater : fio 1M x 32 huge pages", rates[0] / rates[1], Limit::AtLeast(0.95))?;
        let best = rates[1..].iter().copied().fold(0.0, f64::max);
        report("scan, headwater : the best of fio's four", rates[0] / best, Limit::AtLeast(0.9))?;
        let readahead = match tools::KernelReadahead::of(self.file) {
            Ok(readahead) => readahead,
            Err(error) => return skipped("scan against std", &error),
        };
        let default_kib = readahead.default_kib().to_owned();
        detail(&format!(
            "the kernel's read_ahead_kb is changed now; if you interrupt, put it back to {default_kib}"
        ))?;
        for (kib, bar) in [("128", 1.3), (default_kib.as_str(), 1.1)] {
            if let Err(error) = readahead.set_kib(kib) {
                skipped(&format!("scan against std with readahead {kib} KiB"), &error)?;
                continue;
            }
            self.scan_against_std(kib, bar)?;
        }
        Ok(())
    }

    fn scan_against_std(&self, kib: &str, bar: f64) -> io::Result<()> {
        let arms = [Runner::Arm(Arm::ScanHeadwater, 32), Runner::Arm(Arm::ScanStd, 32)];
        let samples = self.rounds(&arms, Cache::Cold)?;
        let cpu = |of: usize| median(samples[of].iter().map(|sample| sample.cpu_s_per_gib));
        let rates = (rate(&samples[0]), rate(&samples[1]));
        detail(&format!(
            "headwater {:.0} MiB/s {:.3} CPU-s/GiB, std {:.0} MiB/s {:.3} CPU-s/GiB",
            rates.0,
            cpu(0),
            rates.1,
            cpu(1)
        ))?;
        report(
            &format!("scan, headwater : std 128K, kernel readahead {kib} KiB"),
            rates.0 / rates.1,
            Limit::AtLeast(bar),
        )?;
        report(&format!("  its CPU per GiB, readahead {kib} KiB"), cpu(0) / cpu(1), Limit::AtMost(0.25))?;
        Ok(())
    }

    fn memory(&self) -> io::Result<()> {
        let arms = [
            Runner::Arm(Arm::Nothing, 32),
            Runner::Arm(Arm::ScanHeadwater, 32),
            Runner::Arm(Arm::ScanHeadwater, 4),
        ];
        let samples = self.rounds(&arms, Cache::Cold)?;
        let peak = |of: usize| median(samples[of].iter().map(|sample| sample.peak_rss_mib));
        report(
            "memory of a scan beyond a process that does nothing, MiB",
            peak(1) - peak(0),
            Limit::AtMost(40.0),
        )?;
        report("  the same with a budget of 4 MiB", peak(2) - peak(0), Limit::AtMost(4.0))?;
        report("  its rate : with 32 MiB", rate(&samples[2]) / rate(&samples[1]), Limit::AtLeast(0.85))?;
        Ok(())
    }

    fn random(&self) -> io::Result<()> {
        let arms = [Arm::RandomPread, Arm::RandomReadAt, Arm::RandomReadAtAuto];
        self.settle()?;
        let samples = self.rounds(&arms.map(|arm| Runner::Arm(arm, 32)), Cache::Cold)?;
        let iops: Vec<f64> =
            samples.iter().map(|samples| median(samples.iter().map(|sample| sample.iops))).collect();
        detail(&format!("pread {:.0}, read_at {:.0}, read_at auto {:.0}", iops[0], iops[1], iops[2]))?;
        report(
            "4 KiB read_at one at a time, direct : pread O_DIRECT",
            iops[1] / iops[0],
            Limit::AtLeast(0.95),
        )?;
        report("  the same in auto mode", iops[2] / iops[0], Limit::AtLeast(0.95))?;
        Ok(())
    }

    /// What is resident must not become slower by not being read directly.
    fn warm(&self) -> io::Result<()> {
        let file = self.options.warm_file.as_deref().unwrap_or(self.file);
        let contest = Contest { file, ..*self };
        let scans =
            [Arm::ScanHeadwaterAuto, Arm::ScanHeadwaterCopy, Arm::ScanStd].map(|arm| Runner::Arm(arm, 32));
        let samples = contest.rounds(&scans, Cache::Warm)?;
        let std = rate(&samples[2]);
        report("warm scan, fill_buf : std 128K", rate(&samples[0]) / std, Limit::AtLeast(1.0))?;
        report("warm scan, read 128K : std 128K", rate(&samples[1]) / std, Limit::AtLeast(0.95))?;
        let randoms = [Arm::RandomReadAtAuto, Arm::RandomPreadBuffered].map(|arm| Runner::Arm(arm, 32));
        let samples = contest.rounds(&randoms, Cache::Warm)?;
        let ratio = rate(&samples[0]) / rate(&samples[1]);
        report("warm 4 KiB read_at, the kernel's page cache : pread", ratio, Limit::AtLeast(0.9))?;
        Ok(())
    }

    fn cat(&self) -> io::Result<()> {
        let warm = self.options.warm_file.as_deref().unwrap_or(self.file);
        self.cats("cold, to /dev/null", self.file, Cache::Cold, "> /dev/null", (1.3, 1.05))?;
        self.cats("warm, to /dev/null", warm, Cache::Warm, "> /dev/null", (2.0, 1.0))?;
        self.cats("warm, into a pipe", warm, Cache::Warm, "| wc -c > /dev/null", (3.0, 1.0))
    }

    /// On files of its own beside the file.
    fn write(&self) -> io::Result<()> {
        let Options { write: options, headwater, rounds, seconds, .. } = self.options;
        let setup = write::Setup { options, file: self.file, headwater, rounds: *rounds, seconds: *seconds };
        write::run(&setup)
    }

    fn cats(&self, title: &str, file: &Path, cache: Cache, to: &str, bars: (f64, f64)) -> io::Result<()> {
        let contest = Contest { file, length_bytes: std::fs::metadata(file)?.len(), ..*self };
        let options = self.options;
        let command = |tool: &Path, verb: &str| {
            Runner::Shell(format!("'{}' {verb} '{}' {to}", tool.display(), file.display()))
        };
        let mut arms = vec![command(&options.headwater, "cat"), command(&options.gnu_cat, "")];
        let has_uutils = std::process::Command::new(&options.uutils).arg("--help").output().is_ok();
        if has_uutils {
            arms.push(command(&options.uutils, "cat"));
        }
        let samples = contest.rounds(&arms, cache)?;
        let rates: Vec<String> = samples.iter().map(|samples| format!("{:.0}", rate(samples))).collect();
        detail(&format!("headwater, GNU, uutils: {} MiB/s", rates.join(", ")))?;
        report(
            &format!("cat {title}: headwater : GNU"),
            rate(&samples[0]) / rate(&samples[1]),
            Limit::AtLeast(bars.0),
        )?;
        match samples.get(2) {
            Some(uutils) => {
                let ratio = rate(&samples[0]) / rate(uutils);
                report(&format!("cat {title}: headwater : uutils"), ratio, Limit::AtLeast(bars.1))?;
            }
            None => skipped("uutils cat", &"not found; cargo install coreutils, or --uutils")?,
        }
        Ok(())
    }

    /// Reads the file once, around the page cache, so that whatever caches below it, such as the host of a virtual
    /// machine, is as warm for the first random arm as for the last.
    fn settle(&self) -> io::Result<()> {
        tools::fio(self.file, &["--rw=read", "--bs=1M", "--iodepth=32"].map(str::to_owned)).map(drop)
    }

    fn rounds(&self, arms: &[Runner], cache: Cache) -> io::Result<Vec<Vec<Sample>>> {
        self.rounds_of(arms, cache, self.options.rounds)
    }

    fn rounds_of(&self, arms: &[Runner], cache: Cache, rounds: u32) -> io::Result<Vec<Vec<Sample>>> {
        if cache == Cache::Warm {
            // The first pass brings the pages in, the second marks them as used.
            tools::make_warm(self.file)?;
            tools::make_warm(self.file)?;
        }
        interleave(arms, rounds, |runner| {
            if cache == Cache::Cold {
                tools::make_cold(self.file)?;
            }
            match runner {
                Runner::Arm(arm, memory_mib) => {
                    arms::run_child(*arm, self.file, *memory_mib, self.options.seconds)
                }
                Runner::Beside(arm, memory_mib, hot) => {
                    arms::run_beside(*arm, self.file, *memory_mib, self.options.seconds, hot)
                }
                Runner::Fio(arguments) => tools::fio(self.file, arguments),
                Runner::Shell(command) => tools::shell(command, self.length_bytes),
            }
        })
    }
}

fn rate(samples: &[Sample]) -> f64 {
    median(samples.iter().map(|sample| sample.mib_per_s))
}

/// What the device gives at most: large requests into huge pages, at a depth that suits disks and at those that suit
/// devices in memory.
const FIO_SCANS: [[&str; 4]; 4] = [
    ["--rw=read", "--bs=1M", "--iodepth=32", "--mem=mmaphuge"],
    ["--rw=read", "--bs=1M", "--iodepth=8", "--mem=mmaphuge"],
    ["--rw=read", "--bs=1M", "--iodepth=1", "--mem=mmaphuge"],
    ["--rw=read", "--bs=2M", "--iodepth=1", "--mem=mmaphuge"],
];
