//! Arms: the things compared that run in a process of ours, each as plain as its users would write it.
//!
//! Positional reads go around headwater's cache, but for the arms that are named after it.
//!
//! Owns: headwater's and std's ways of scanning a file and of reading it at random.
//! Does not own: external programs (tools), the order of runs (contest).

mod hot_set;
mod in_flight;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use headwater::{Caching, Engine, IoMode, OpenOptions, ReadaheadLimits};

use headwater_measure::Meter;

use crate::pages::{AlignedBuffer, Offsets, PAGE, random_loop};
use crate::tools::{self, name_of};

pub(crate) use hot_set::HotFiles;
use hot_set::HotSet;

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Arm {
    /// `headwater::Reader::fill_buf` to the end, direct.
    ScanHeadwater,
    /// `headwater::Reader::fill_buf` to the end, auto.
    ScanHeadwaterAuto,
    /// `headwater::Reader::read` into 128 KiB to the end, auto.
    ScanHeadwaterCopy,
    /// `headwater::File::read_at` of 64 KiB to the end, direct, through headwater's cache.
    #[value(name = "scan-cached-64k")]
    ScanCached64k,
    /// The same with 1 MiB.
    #[value(name = "scan-cached-1m")]
    ScanCached1m,
    /// `std::fs::File::read` into 128 KiB to the end.
    ScanStd,
    /// `pread` of 4 KiB through the page cache at random places, one at a time.
    RandomPreadBuffered,
    /// `headwater::File::read_at` of 4 KiB at random places, one at a time, auto.
    RandomReadAtAuto,
    /// `headwater::File::read_at_async`, 32 tasks on a tokio current-thread runtime.
    RandomTokio,
    /// The same on a tokio multi-thread runtime with 2 workers.
    RandomTokioMulti,
    /// The same on smol's global executor, which has one thread.
    RandomSmol,
    /// `headwater::File::read_at`, 32 threads, direct.
    RandomThreads,
}

/// How an arm runs.
pub(crate) struct Settings {
    /// Memory budget of the engine.
    pub(crate) memory_mib: u64,
    /// Time limit of random arms.
    pub(crate) seconds: f64,
    /// Size and distance of scans in KiB, where the defaults are not wanted.
    pub(crate) readahead: Option<(u64, u64)>,
    /// Folder of [`HotFiles`], to be hot in the engine's cache when the arm starts.
    pub(crate) hot: Option<PathBuf>,
}

/// Runs an arm in a process of its own.
pub(crate) fn command(arm: Arm, file: &Path, memory_mib: u64, seconds: f64) -> io::Result<Command> {
    let mut command = Command::new(tools::this_program());
    command.args([OsStr::new("arm"), OsStr::new(&name_of(arm)), file.as_os_str()]).args([
        "--memory-mib",
        &memory_mib.to_string(),
        "--seconds",
        &seconds.to_string(),
    ]);
    Ok(command)
}

pub(crate) fn run(arm: Arm, path: &Path, settings: &Settings) -> io::Result<()> {
    let engine = build_engine(settings)?;
    let hot_set = settings.hot.as_deref().map(|folder| HotSet::heat(&engine, folder)).transpose()?;
    if hot_set.is_some() {
        tools::make_cold(path)?;
    }
    let meter = Meter::start();
    let bytes = read(arm, path, &engine, settings.seconds)?;
    let (mib, requests) = (bytes as f64 / f64::from(1 << 20), bytes as f64 / PAGE as f64);
    let mut figures = tools::figures(mib, requests, meter.seconds(), meter.cpu_seconds());
    if let Some(hot_set) = hot_set {
        figures = figures.with("hot_share", hot_set.resident_share()?);
    }
    tools::print_json(&figures)
}

fn build_engine(settings: &Settings) -> io::Result<Engine> {
    let mut builder = Engine::builder().memory(settings.memory_mib << 20);
    if let Some((size_kib, distance_kib)) = settings.readahead {
        let size_bytes_max = size_kib << 10;
        let size_bytes_min = size_bytes_max.min(ReadaheadLimits::SIZE_BYTES_MIN_DEFAULT);
        let distance_bytes_max = distance_kib << 10;
        builder = builder.readahead(ReadaheadLimits {
            size_bytes_min,
            size_bytes_max,
            distance_bytes_max,
            ..ReadaheadLimits::default()
        });
    }
    Ok(builder.build()?)
}

fn read(arm: Arm, path: &Path, engine: &Engine, seconds: f64) -> io::Result<u64> {
    let open_as = |mode, caching| OpenOptions::new().engine(engine).io(mode).caching(caching).open(path);
    let open = |mode| open_as(mode, Caching::Off);
    let open_cached = || open_as(IoMode::Direct, Caching::On);
    match arm {
        Arm::ScanHeadwater => scan_headwater(&open(IoMode::Direct)?),
        Arm::ScanHeadwaterAuto => scan_headwater(&open(IoMode::Auto)?),
        Arm::ScanHeadwaterCopy => scan_copying(open(IoMode::Auto)?.reader()),
        Arm::ScanCached64k => scan_read_at(&open_cached()?, 64 << 10),
        Arm::ScanCached1m => scan_read_at(&open_cached()?, 1 << 20),
        Arm::ScanStd => scan_copying(File::open(path)?),
        Arm::RandomPreadBuffered => random_pread(path, seconds),
        Arm::RandomReadAtAuto => random_read_at(&open(IoMode::Auto)?, seconds),
        Arm::RandomTokio => in_flight::tokio_current(&open(IoMode::Direct)?, seconds),
        Arm::RandomTokioMulti => in_flight::tokio_multi(&open(IoMode::Direct)?, seconds),
        Arm::RandomSmol => in_flight::smol(&open(IoMode::Direct)?, seconds),
        Arm::RandomThreads => in_flight::threads(&open(IoMode::Direct)?, seconds),
    }
}

fn scan_headwater(file: &headwater::File) -> io::Result<u64> {
    let mut reader = file.reader();
    let mut total = Total::default();
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok(total.finish());
        }
        total.add(chunk);
        let length = chunk.len();
        reader.consume(length);
    }
}

fn scan_copying(mut file: impl Read) -> io::Result<u64> {
    let mut buffer = vec![0; 128 << 10];
    let mut total = Total::default();
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            return Ok(total.finish());
        }
        total.add(&buffer[..length]);
    }
}

fn scan_read_at(file: &headwater::File, buffer_bytes: usize) -> io::Result<u64> {
    let mut buffer = vec![0; buffer_bytes];
    let mut total = Total::default();
    loop {
        let length = file.read_at(&mut buffer, total.bytes)?;
        if length == 0 {
            return Ok(total.finish());
        }
        total.add(&buffer[..length]);
    }
}

fn random_pread(path: &Path, seconds: f64) -> io::Result<u64> {
    let file = File::open(path)?;
    let mut memory = AlignedBuffer::of_a_page();
    let offsets = Offsets::new(1, file.metadata()?.len());
    random_loop(offsets, seconds, |offset| file.read_exact_at(memory.bytes(), offset))
}

fn random_read_at(file: &headwater::File, seconds: f64) -> io::Result<u64> {
    let mut memory = AlignedBuffer::of_a_page();
    let offsets = Offsets::new(1, file.len()?);
    random_loop(offsets, seconds, |offset| Ok(file.read_exact_at(memory.bytes(), offset)?))
}

/// Bytes seen, and one byte of each page, so that every arm really looks at what it read.
#[derive(Default)]
struct Total {
    bytes: u64,
    sum: u64,
}

impl Total {
    fn add(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        self.sum += chunk.iter().step_by(PAGE as usize).map(|&byte| u64::from(byte)).sum::<u64>();
    }

    fn finish(self) -> u64 {
        std::hint::black_box(self.sum);
        self.bytes
    }
}
