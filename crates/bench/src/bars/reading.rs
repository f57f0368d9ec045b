//! Reading: ways of reading the file, cold and warm, in order and at random.
//!
//! Owns: which suites, arms and jobs of fio are rows of a group, and what is in the page cache before each.
//! Does not own: how an arm reads (arms), how a suite measures (`headwater bench`, peers).

use std::io;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use headwater_measure::{Figures, child, syscalls};
use serde_json::Value;

use super::readahead::KernelReadahead;
use crate::arms::{self, Arm, HotFiles};
use crate::contest::{Contest, Runs};
use crate::setup::Bench;
use crate::tools;

/// Against fio, and against std with the kernel's readahead as it is set and as Linux has it by default.
pub(super) fn scan<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let (mut contest, file) = (Contest::default(), &*bench.options.file);
    contest.several("headwater bench scan", || suite(bench, file, "", &SCAN));
    for (name, options) in FIO_SCANS {
        contest.optional(name, move || fio_cold(file, &options.map(str::to_owned)));
    }
    contest.note("128K: the kernel's read_ahead_kb is 128 while these rows run");
    contest.several("headwater bench scan, readahead 128 KiB", || {
        let _readahead = KernelReadahead::set_kib(file, "128")?;
        suite(bench, file, "128K, ", &SCAN)
    });
    // Only root may set it.
    contest.make_optional();
    Ok(contest)
}

/// Of the suite, which takes off what a process has that does nothing.
pub(super) fn memory<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let (mut contest, file) = (Contest::default(), &*bench.options.file);
    contest.note("4 MiB: the budget of the engine; 32 MiB elsewhere");
    for (tag, memory) in [("", "32M"), ("4 MiB, ", "4M")] {
        let arguments = ["scan", "--only", "headwater-tuned", "--memory", memory];
        contest
            .several(format!("headwater bench scan, {memory}"), move || suite(bench, file, tag, &arguments));
    }
    Ok(contest)
}

/// 4 KiB, one at a time.
pub(super) fn random<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let mut contest = Contest::default();
    settle(&mut contest, &bench.options.file);
    contest.several("headwater-bench peers", || peers(bench, "cold-random-1"));
    contest.way("headwater, auto mode", arm(bench, Arm::RandomReadAtAuto, Cache::Cold));
    Ok(contest)
}

/// 4 KiB at random, 32 in flight, from every kind of caller.
pub(super) fn ring<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let (mut contest, file) = (Contest::default(), &*bench.options.file);
    settle(&mut contest, file);
    for (name, of) in [
        ("headwater, tokio, 2 workers", Arm::RandomTokioMulti),
        ("headwater, tokio, current thread", Arm::RandomTokio),
        ("headwater, smol, one thread", Arm::RandomSmol),
        ("headwater, 32 threads", Arm::RandomThreads),
    ] {
        let command = arms::command(of, file, MEMORY_MIB, COUNTED_SECONDS)?;
        let read = |stdout: &[u8]| Ok(serde_json::from_slice::<Figures>(stdout)?);
        let counted = counted(&mut contest, name, file, &command, read);
        let run = arm(bench, of, Cache::Cold);
        contest.way(name, move || Ok(with_syscalls(run()?, counted)));
    }
    let command = tools::fio_command(file, &fio_random(COUNTED_SECONDS));
    let counted = counted(&mut contest, "fio", file, &command, tools::fio_figures);
    let seconds = bench.options.seconds;
    contest.optional("fio", move || Ok(with_syscalls(fio_cold(file, &fio_random(seconds))?, counted)));
    Ok(contest)
}

/// Through the kernel's page cache, which has all of the file.
pub(super) fn warm<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let mut contest = Contest::default();
    contest.needs_page_cache();
    tools::make_warm(bench.warm_file())?;
    for (name, of) in [
        ("headwater, fill_buf", Arm::ScanHeadwaterAuto),
        ("headwater, read 128K", Arm::ScanHeadwaterCopy),
        ("std 128K", Arm::ScanStd),
        ("headwater, read_at 4K", Arm::RandomReadAtAuto),
        ("pread 4K", Arm::RandomPreadBuffered),
    ] {
        contest.way(name, arm(bench, of, Cache::Warm));
    }
    Ok(contest)
}

/// A cold file in order through headwater's cache, and what that leaves of a hot set, which is read before the scan and not
/// during it: that is harder than being in use all the time.
pub(super) fn cached<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let (mut contest, file) = (Contest::default(), &*bench.options.file);
    let length_bytes = file.metadata()?.len();
    if length_bytes < CACHED_BYTES_MIN {
        let (have, need) = (length_bytes >> 20, CACHED_BYTES_MIN >> 20);
        contest.skip("scan through the cache", &format!("takes a file of {need} MiB, not {have}"));
        return Ok(contest);
    }
    contest.way("headwater, direct scan", arm(bench, Arm::ScanHeadwater, Cache::Cold));
    let hot = Rc::new(HotFiles::beside(file)?);
    for (name, of) in
        [("headwater, read_at 64K", Arm::ScanCached64k), ("headwater, read_at 1M", Arm::ScanCached1m)]
    {
        let hot = Rc::clone(&hot);
        contest.way(name, move || {
            let mut command = arms::command(of, file, CACHED_MEMORY_MIB, bench.options.seconds)?;
            Ok(child::result(command.arg("--hot").arg(hot.folder()), None)?)
        });
    }
    let (name, options) = FIO_SCANS[0];
    contest.optional(name, move || fio_cold(file, &options.map(str::to_owned)));
    Ok(contest)
}

#[derive(Clone, Copy)]
enum Cache {
    Cold,
    Warm,
}

fn arm<'a>(bench: &'a Bench<'a>, arm: Arm, cache: Cache) -> impl Fn() -> io::Result<Figures> + 'a {
    move || {
        let file = match cache {
            Cache::Cold => &*bench.options.file,
            Cache::Warm => bench.warm_file(),
        };
        match cache {
            Cache::Cold => tools::make_cold(file)?,
            Cache::Warm => tools::make_warm(file)?,
        }
        Ok(child::result(&mut arms::command(arm, file, MEMORY_MIB, bench.options.seconds)?, None)?)
    }
}

/// A suite of `headwater bench` on a file. `tag` is what its rows begin with. Two rounds of it, forwards and backwards: the first row that fills
/// the kernel's page cache after rows that do not pays for memory that the next one finds there.
pub(super) fn suite(bench: &Bench<'_>, file: &Path, tag: &str, arguments: &[&str]) -> io::Result<Runs> {
    let mut command = Command::new(&bench.options.headwater);
    command.arg("bench").args(arguments).args(["--rounds", "2", "--json", "--file"]).arg(file);
    rows_of(&child::result::<Value>(&mut command, None)?["rows"], "id", tag)
}

/// A round of a row of `peers`, std and headwater alone.
fn peers(bench: &Bench<'_>, row: &str) -> io::Result<Runs> {
    let mut command = Command::new(tools::this_program());
    command.args(["peers", "--only", row, "--peers", "std", "--rounds", "1", "--json"]);
    command.args(["--seconds", &bench.options.seconds.to_string(), "--file"]).arg(&bench.options.file);
    command.arg("--dir").arg(bench.folder.path());
    rows_of(&child::result::<Value>(&mut command, None)?["suites"][0]["rows"], "name", "")
}

/// All figures of each row.
fn rows_of(rows: &Value, label: &str, tag: &str) -> io::Result<Runs> {
    let run = |row: &Value| {
        let figures = row.as_object().into_iter().flatten();
        let figures = figures.filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)));
        let figures = figures.fold(Figures::default(), |all, (name, value)| all.with(name, value));
        (format!("{tag}{}", row[label].as_str().unwrap_or_default()), figures)
    };
    let rows = rows.as_array().ok_or_else(|| io::Error::other("the suite has no rows"))?;
    Ok(rows.iter().map(run).collect())
}

/// Reads the file once, around the page cache, so that whatever caches below it, such as the host of a virtual machine, is as
/// warm for the first random row as for the last.
fn settle(contest: &mut Contest<'_>, file: &Path) {
    let pass = ["--rw=read", "--bs=1M", "--iodepth=32"].map(str::to_owned);
    if let Err(error) = tools::fio(file, &pass) {
        contest.note(format!("the file was not read once before: {error}"));
    }
}

fn fio_cold(file: &Path, arguments: &[String]) -> io::Result<Figures> {
    tools::make_cold(file)?;
    tools::fio(file, arguments)
}

/// System calls for each request, in a run of its own: being counted slows it down.
fn counted(
    contest: &mut Contest<'_>,
    name: &str,
    file: &Path,
    command: &Command,
    figures_of: impl Fn(&[u8]) -> io::Result<Figures>,
) -> Option<f64> {
    let count = || {
        tools::make_cold(file)?;
        let (count, stdout) = syscalls::count(command)?;
        Ok::<_, io::Error>(count / figures_of(&stdout)?.get("requests"))
    };
    count().map_err(|error| contest.skip(format!("system calls of {name}"), &error)).ok()
}

fn with_syscalls(figures: Figures, count: Option<f64>) -> Figures {
    match count {
        Some(count) => figures.with("syscalls", count),
        None => figures,
    }
}

fn fio_random(seconds: f64) -> Vec<String> {
    // Other offsets in every run, as the arms have them.
    let words =
        ["--rw=randread", "--bs=4k", "--iodepth=32", "--time_based", "--randrepeat=0"].map(str::to_owned);
    // Fio takes whole milliseconds.
    words.into_iter().chain([format!("--runtime={:.0}ms", seconds * 1e3)]).collect()
}

const SCAN: [&str; 3] = ["scan", "--only", "headwater-tuned,buffered-128k"];

/// What the device gives at most: large requests into huge pages, at a depth that suits disks and at those that suit
/// devices in memory.
pub(super) const FIO_SCANS: [(&str, [&str; 4]); 4] = [
    ("fio 1M x 32", ["--rw=read", "--bs=1M", "--iodepth=32", "--mem=mmaphuge"]),
    ("fio 1M x 8", ["--rw=read", "--bs=1M", "--iodepth=8", "--mem=mmaphuge"]),
    ("fio 1M x 1", ["--rw=read", "--bs=1M", "--iodepth=1", "--mem=mmaphuge"]),
    ("fio 2M x 1", ["--rw=read", "--bs=2M", "--iodepth=1", "--mem=mmaphuge"]),
];

/// Of the engine, where nothing else is said.
const MEMORY_MIB: u64 = 32;

/// Of the engine with a hot set; its cache takes seven eighths at most.
const CACHED_MEMORY_MIB: u64 = 1024;

/// Twice that: all of it would leave the cache, if it could be pushed out by a scan.
const CACHED_BYTES_MIN: u64 = 2 << 30;

/// Tens of thousands of requests on any flash device, so that what starting costs does not show.
const COUNTED_SECONDS: f64 = 1.0;
