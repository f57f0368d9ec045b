//! Ways: which arm, job of fio or program is a row of a group, on which file, and that its bytes are right.
//!
//! Owns: the files and their sizes, what is done before and after each run.
//! Does not own: what an arm does.

use std::io;
use std::path::{Path, PathBuf};

use headwater_measure::{Figures, child};

use super::small::SIZES_KIB;
use super::{ArmOptions, Side, Work, contents};
use crate::contest::Contest;
use crate::setup::Bench;
use crate::tools;

type Outcome<'a> = io::Result<Contest<'a>>;

/// A new file in order.
pub(crate) fn new<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    sequential(bench, remove)
}

/// The same over what is there.
pub(crate) fn overwrite<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    sequential(bench, tools::make_cold)
}

fn sequential<'a>(bench: &'a Bench<'a>, prepare: fn(&Path) -> io::Result<()>) -> Outcome<'a> {
    let mut contest = Contest::default();
    let file = file(bench, &mut contest, 4096, 1)?;
    contents::make(&file.path, file.mib << 20)?;
    for (name, side) in [
        ("headwater", Side::Headwater),
        ("headwater, 64 MiB", Side::Headwater64M),
        ("std + fsync", Side::Std),
        ("std O_DIRECT", Side::StdDirect),
    ] {
        let arm = file.arm(Work::Sequential, side);
        contest.way(name, move || prepare(&arm.file).and_then(|()| arm.run()));
    }
    for (name, depth) in FIO_WRITES {
        let file = file.clone();
        contest.optional(name, move || {
            prepare(&file.path)?;
            let size = format!("--size={}M", file.mib);
            let arguments = ["--rw=write", "--bs=1M", depth, "--mem=mmaphuge", "--end_fsync=1", &size];
            let figures = tools::fio_writing(&file.path, &arguments)?;
            // All that can be said of what fio writes; our own arms check every byte.
            let found_bytes = std::fs::metadata(&file.path)?.len();
            if found_bytes == file.mib << 20 {
                return Ok(figures);
            }
            let (path, mib) = (file.path.display(), file.mib);
            Err(io::Error::other(format!("{path} has {found_bytes} bytes, not {mib} MiB")))
        });
    }
    Ok(contest)
}

/// Files of all sizes, closed or synced.
pub(crate) fn small<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    let (mut contest, mut endings) = (Contest::default(), Vec::new());
    let folder = bench.path("small");
    std::fs::create_dir_all(&folder)?;
    for (work, words) in Work::SMALL {
        for kib in SIZES_KIB {
            let size = if kib < 1024 { format!("{kib} KiB") } else { format!("{} MiB", kib / 1024) };
            let ending = format!(", {size} {words}");
            for (name, side) in [("headwater", Side::Headwater), ("std", Side::Std)] {
                let arm = ArmOptions { work, side, file: folder.clone(), mib: 0, kib, seconds: 0.0, pace: 0 };
                contest.way(format!("{name}{ending}"), move || arm.run());
            }
            endings.push(ending);
        }
    }
    contest.judge_each(endings);
    Ok(contest)
}

/// As many pages at random as the file has.
pub(crate) fn random_once<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    random(bench, Work::RandomOnce)
}

/// Four times as many as a quarter of the file has, there.
pub(crate) fn random_repeated<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    random(bench, Work::RandomRepeated)
}

/// Every page of half of the blocks of 256 KiB.
pub(crate) fn random_dense<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    random(bench, Work::RandomDense)
}

fn random<'a>(bench: &'a Bench<'a>, work: Work) -> Outcome<'a> {
    let mut contest = Contest::default();
    let file = file(bench, &mut contest, 1024, 1)?;
    contents::make(&file.path, file.mib << 20)?;
    for (name, side) in [("headwater", Side::Headwater), ("std + fsync", Side::Std)] {
        contest.way(name, file.cold(work, side));
    }
    limit(bench, &mut contest);
    Ok(contest)
}

/// The first time a file is read again.
pub(crate) fn reread<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    let mut contest = Contest::default();
    contest.needs_page_cache();
    let file = memory_file(bench, 50);
    contents::make(&file.path, file.mib << 20)?;
    for (name, work, side) in [
        ("headwater, copying", Work::RereadCopy, Side::Headwater),
        ("warm pread 128K, copying", Work::RereadCopy, Side::Std),
        ("memory (limit), copying", Work::RereadCopy, Side::Memory),
        ("headwater View, summed", Work::RereadSum, Side::View),
        ("warm pread 128K, summed", Work::RereadSum, Side::Std),
        ("memory (limit), summed", Work::RereadSum, Side::Memory),
    ] {
        let arm = file.arm(work, side);
        contest.way(name, move || arm.run());
    }
    Ok(contest)
}

/// Reading while another thread writes.
pub(crate) fn beside<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    let mut contest = Contest::default();
    let file = memory_file(bench, 128);
    contents::make(&file.path, file.mib << 20)?;
    // The copying thread is as fast as the writing one, however fast that is.
    let writes_per_s = file.arm(Work::BesideWriting, Side::Headwater).run()?.get("beside_per_s");
    for (name, work, pace) in [
        ("alone", Work::BesideNothing, 0),
        ("beside copying, unpaced", Work::BesideCopying, (writes_per_s as u32).max(1)),
        ("beside writing, unpaced", Work::BesideWriting, 0),
        ("beside copying, 50000/s", Work::BesideCopying, PACE),
        ("beside writing, 50000/s", Work::BesideWriting, PACE),
    ] {
        let arm = ArmOptions { pace, ..file.arm(work, Side::Headwater) };
        contest.way(name, move || tools::make_cold(&arm.file).and_then(|()| arm.run()));
    }
    Ok(contest)
}

/// A fork with much memory.
pub(crate) fn fork<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    let mut contest = Contest::default();
    let file = file(bench, &mut contest, 1024, 1)?;
    contents::make(&file.path, file.mib << 20)?;
    for (name, side) in [
        ("headwater, cache", Side::Headwater),
        ("memory of its own", Side::Memory),
        ("nothing (limit)", Side::Nothing),
    ] {
        contest.way(name, file.cold(Work::Fork, side));
    }
    Ok(contest)
}

/// `headwater cp` and GNU cp.
pub(crate) fn copy<'a>(bench: &'a Bench<'a>) -> Outcome<'a> {
    let mut contest = Contest::default();
    let (headwater, gnu) = (&bench.options.headwater, &bench.options.gnu_cp);
    if !headwater.exists() {
        let reason = format!("{} is missing; cargo build --release, or --headwater", headwater.display());
        contest.skip("headwater cp", &reason);
        return Ok(contest);
    }
    let source = file(bench, &mut contest, 8192, 2)?;
    contents::make(&source.path, source.mib << 20)?;
    let copy = bench.path("copy");
    for (name, program, command) in [
        ("headwater cp", headwater, r#""$1" cp --reflink=never "$2" "$3""#),
        ("GNU cp", gnu, r#""$1" --reflink=never "$2" "$3""#),
        ("headwater cp and sync", headwater, r#""$1" cp --sync --reflink=never "$2" "$3" && sync "$3""#),
        ("GNU cp and sync", gnu, r#""$1" --reflink=never "$2" "$3" && sync "$3""#),
    ] {
        let (path, length_bytes, copy) = (source.path.clone(), source.mib << 20, copy.clone());
        contest.way(name, move || {
            remove(&copy)?;
            tools::make_cold(&path)?;
            let words = [program, &path, &copy].map(|path| path.as_os_str());
            let figures = tools::shell(command, &words, length_bytes)?;
            contents::check(&copy, length_bytes, |_| Some(0))?;
            Ok(figures)
        });
    }
    limit(bench, &mut contest);
    Ok(contest)
}

/// A file of a group.
#[derive(Clone)]
struct Target {
    path: PathBuf,
    mib: u64,
    seconds: f64,
}

/// As large as is wanted, or as the device has room for, with something to spare.
fn file(bench: &Bench<'_>, contest: &mut Contest<'_>, wanted: u64, files: u64) -> io::Result<Target> {
    let path = bench.path("file");
    let room = rustix::fs::statvfs(path.parent().unwrap_or(Path::new(".")))?;
    let room_mib = (room.f_bavail * room.f_frsize) >> 20;
    let mib = (wanted / bench.options.shrink).min(room_mib / 4 * 3 / files).max(1);
    let instead = if mib < wanted { format!(" instead of {wanted}") } else { String::new() };
    contest.note(format!("the file has {mib} MiB{instead}"));
    Ok(Target { path, mib, seconds: bench.options.seconds })
}

/// A file that is read from memory: how large it is decides what is measured, and it takes little time.
fn memory_file(bench: &Bench<'_>, mib: u64) -> Target {
    Target { path: bench.path("file"), mib, seconds: bench.options.seconds }
}

impl Target {
    fn arm(&self, work: Work, side: Side) -> ArmOptions {
        ArmOptions {
            work,
            side,
            file: self.path.clone(),
            mib: self.mib,
            kib: 0,
            seconds: self.seconds,
            pace: 0,
        }
    }

    /// An arm that begins with nothing in the page cache.
    fn cold(&self, work: Work, side: Side) -> impl Fn() -> io::Result<Figures> + 'static {
        let arm = self.arm(work, side);
        move || tools::make_cold(&arm.file).and_then(|()| arm.run())
    }
}

impl ArmOptions {
    fn run(&self) -> io::Result<Figures> {
        Ok(child::result(&mut self.command()?, None)?)
    }
}

/// What the device takes at most, by fio over blocks that are there, if that is known from another group.
fn limit(bench: &Bench<'_>, contest: &mut Contest<'_>) {
    if let Some(mib_per_s) = bench.write_limit_mib_per_s.get() {
        contest.way("writing in order, fio (limit)", move || Ok(Figures::from([("mib_per_s", mib_per_s)])));
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The rows of which the fastest is the limit of the device.
pub(crate) const FIO_WRITES: [(&str, &str); 3] = [
    ("fio 1M x 32 writing", "--iodepth=32"),
    ("fio 1M x 8 writing", "--iodepth=8"),
    ("fio 1M x 1 writing", "--iodepth=1"),
];

/// As much as a busy database writes, and far less than a thread could.
const PACE: u32 = 50_000;
