//! Amplify: 512 bytes at random, and how many bytes the device has to read for them.
//!
//! Question: What does a small read cost in bytes of the device, from a large file and from small ones, and how many are made a second?
//!
//! ```text
//!   shape ─► rounds × arms, cold, each in a process of its own (amplify-arm) ─► /proc/self/io ─► medians ─► table ─► ratios
//! ```
//!
//! Owns: the arms, the shapes, the files.
//! Does not own: rounds and verdicts (contest).

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use headwater::testing::{MapAdvice, MappedFile};
use headwater::{Caching, Engine};
use headwater_measure::process::{Meter, device_read_bytes};
use headwater_measure::{Figures, child};
use headwater_testkit::{Pattern, Rng};

use crate::contest::{self, Contest, Promise, shown};
use crate::folder::Folder;
use crate::pages::{AlignedBuffer, PAGE};
use crate::tools::{self, name_of};

/// Options of `amplify`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder on the device to measure; the files in it are removed afterwards.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// MiB of the large file.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=tools::MIB_MAX))]
    mib: u64,
    /// How many small files, of 16 KiB each.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    /// Reads of each arm.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    reads: u32,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the results to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One arm, in a process of its own.
#[derive(clap::Args)]
pub(crate) struct ArmOptions {
    arm: Arm,
    folder: PathBuf,
    /// Files in the folder.
    #[arg(long)]
    files: u32,
    /// Bytes of each.
    #[arg(long)]
    length_bytes: u64,
    #[arg(long)]
    reads: u32,
}

/// How 512 bytes are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Arm {
    Std,
    Mmap,
    MmapRandom,
    /// O_DIRECT: the 512 bytes.
    Direct512,
    /// O_DIRECT: the page that has them.
    Direct4096,
    Headwater,
    /// Around headwater's cache.
    HeadwaterUncached,
}

/// Which files are read.
struct Shape {
    id: &'static str,
    files: u32,
    length_bytes: u64,
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    contest::begin(options.json.as_deref())?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for shape in [
        Shape { id: ONE, files: 1, length_bytes: options.mib << 20 },
        Shape { id: MANY, files: options.files, length_bytes: SMALL_BYTES },
    ] {
        let folder = Folder::create(&options.dir)?;
        folder.require_room(u64::from(shape.files) * shape.length_bytes)?;
        for number in 0..shape.files {
            pattern(number).write_file(path(folder.path(), number), shape.length_bytes)?;
        }
        rustix::fs::syncfs(File::open(folder.path())?)?;
        let outcome = contest(options, &shape, folder.path()).run(shape.id, options.rounds, PROMISES)?;
        failed.extend(outcome.failed);
        let findings = outcome.report.findings();
        tools::print(&findings.text)?;
        all.push(findings);
    }
    contest::finish("amplify", &all, &failed, options.json.as_deref())
}

fn contest<'a>(options: &'a Options, shape: &'a Shape, folder: &'a Path) -> Contest<'a> {
    let mut contest = Contest::default();
    for &arm in Arm::value_variants() {
        let way = move || {
            (0..shape.files).try_for_each(|number| tools::make_cold(&path(folder, number)))?;
            let mut command = Command::new(tools::this_program());
            command.args(["amplify-arm", &name_of(arm)]).arg(folder);
            command.args(["--files", &shape.files.to_string(), "--reads", &options.reads.to_string()]);
            command.args(["--length-bytes", &shape.length_bytes.to_string()]);
            Ok(child::result::<Figures>(&mut command, None)?)
        };
        match arm {
            // Not on every device and file system.
            Arm::Direct512 | Arm::Direct4096 => contest.optional(name_of(arm), way),
            _ => contest.way(name_of(arm), way),
        }
    }
    let Shape { files, length_bytes, .. } = shape;
    contest.note(format!(
        "{} reads of 512 bytes one after the other, each opening one of {files} files of {} KiB; cold at the start",
        options.reads,
        length_bytes >> 10
    ));
    contest
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let mut places = Places { rng: Rng::new(RandomState::new().hash_one(options.reads)), options };
    let mut memory = AlignedBuffer::of_a_page();
    let mut read = options.reader()?;
    let (before, meter) = (device_read_bytes(), Meter::start());
    for _ in 0..options.reads {
        let (number, offset_bytes) = places.next();
        let buffer = memory.bytes();
        let at = read(&path(&options.folder, number), buffer, offset_bytes)?;
        let asked = &buffer[at..at + ASKED_BYTES];
        if pattern(number).mismatch(offset_bytes, asked).is_some() {
            return Err(io::Error::other("other bytes than were written"));
        }
    }
    let (reads, asked_bytes) = (f64::from(options.reads), f64::from(options.reads) * ASKED_BYTES as f64);
    let mut figures = Figures::from([
        (RATE, reads / meter.seconds()),
        ("cpu_us", meter.cpu_seconds() * 1e6 / reads),
        ("asked_kib", asked_bytes / 1024.0),
    ]);
    if let Some((before, after)) = before.zip(device_read_bytes()) {
        let device_bytes = (after - before) as f64;
        figures =
            figures.with("device_kib", device_bytes / 1024.0).with(AMPLIFICATION, device_bytes / asked_bytes);
    }
    tools::print_json(&figures)
}

/// Reads what is asked for at a place, or the page around it, and says where in the buffer that is.
type Reader = Box<dyn FnMut(&Path, &mut [u8], u64) -> io::Result<usize>>;

impl ArmOptions {
    fn reader(&self) -> io::Result<Reader> {
        let length_bytes = self.length_bytes;
        let direct =
            || OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).clone();
        Ok(match self.arm {
            Arm::Std => Box::new(|path, buffer, offset_bytes| {
                File::open(path)?.read_exact_at(&mut buffer[..ASKED_BYTES], offset_bytes)?;
                Ok(0)
            }),
            Arm::Mmap | Arm::MmapRandom => {
                let advice = if self.arm == Arm::Mmap { MapAdvice::Normal } else { MapAdvice::Random };
                Box::new(move |path, buffer, offset_bytes| {
                    let mapped = MappedFile::map(File::open(path)?.as_fd(), length_bytes, advice)?;
                    mapped.copy_at(&mut buffer[..ASKED_BYTES], offset_bytes);
                    Ok(0)
                })
            }
            Arm::Direct512 => Box::new(move |path, buffer, offset_bytes| {
                direct().open(path)?.read_exact_at(&mut buffer[..ASKED_BYTES], offset_bytes)?;
                Ok(0)
            }),
            Arm::Direct4096 => Box::new(move |path, buffer, offset_bytes| {
                direct().open(path)?.read_exact_at(buffer, offset_bytes / PAGE * PAGE)?;
                Ok((offset_bytes % PAGE) as usize)
            }),
            Arm::Headwater | Arm::HeadwaterUncached => {
                let engine = Engine::builder().build()?;
                let mut options = headwater::OpenOptions::new();
                options.engine(&engine);
                if self.arm == Arm::HeadwaterUncached {
                    options.caching(Caching::Off);
                }
                Box::new(move |path, buffer, offset_bytes| {
                    options.open(path)?.read_exact_at(&mut buffer[..ASKED_BYTES], offset_bytes)?;
                    Ok(0)
                })
            }
        })
    }
}

/// Sectors at random, in another order in every run: what lies below the page cache remembers what was read.
struct Places<'a> {
    rng: Rng,
    options: &'a ArmOptions,
}

impl Places<'_> {
    fn next(&mut self) -> (u32, u64) {
        let number = self.rng.below(self.options.files.into()) as u32;
        let sector = self.rng.below(self.options.length_bytes / ASKED_BYTES as u64);
        (number, sector * ASKED_BYTES as u64)
    }
}

fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(number.to_string())
}

/// What is in a file.
fn pattern(number: u32) -> Pattern {
    Pattern::new(number.into())
}

/// A sector of most devices: the least that they read.
const ASKED_BYTES: usize = 512;
const SMALL_BYTES: u64 = 16 << 10;

const ONE: &str = "amplify-one-file";
const MANY: &str = "amplify-many-files";

const RATE: &str = "reads_per_s";
const AMPLIFICATION: &str = "amplification";

const PROMISES: &[Promise] = &[
    // What a miss would gain that reads a sector instead of a page.
    shown(ONE, "direct512", "direct4096", RATE),
    shown(MANY, "direct512", "direct4096", RATE),
    shown(ONE, "headwater", "std", RATE),
    shown(ONE, "headwater", "std", AMPLIFICATION),
    shown(ONE, "headwater-uncached", "direct512", RATE),
    shown(MANY, "headwater", "std", RATE),
    shown(MANY, "headwater", "std", AMPLIFICATION),
    shown(MANY, "headwater-uncached", "direct512", RATE),
];
