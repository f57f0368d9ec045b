//! Rows: which contender is held against which, on which file, and what is promised.
//!
//! Owns: the files and their sizes, the order of runs, the bars.
//! Does not own: what a contender does (the arms, fio, cp).

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;
use tempfile::TempDir;

use super::report::Report;
use super::{ArmOptions, Figures, Options, Row, Side, Work, contents};
use crate::tools;
use headwater_measure::child;
use headwater_measure::process::page_cache_drops;
use headwater_measure::rounds::interleave;
use headwater_measure::verdict::{Limit, detail};

/// What the groups of `bars` share.
pub(crate) struct Setup<'a> {
    pub(crate) options: &'a Options,
    /// The files are made beside it.
    pub(crate) file: &'a Path,
    pub(crate) headwater: &'a Path,
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
}

struct Bench<'a> {
    setup: &'a Setup<'a>,
    folder: TempDir,
    report: Report,
    /// What the device takes, by fio over blocks that are there.
    limit_mib_per_s: Option<f64>,
}

struct Contender {
    name: String,
    how: How,
}

enum How {
    Arm(ArmOptions),
    /// Writes this many MiB in order.
    Fio(PathBuf, u64),
    Shell(String),
}

/// A row that fails is told, and the others go on.
pub(crate) fn run(setup: &Setup<'_>) -> io::Result<()> {
    let folder = tools::folder_beside(setup.file)?;
    let mut bench = Bench { setup, folder, report: Report::default(), limit_mib_per_s: None };
    let mut failed = Vec::new();
    for &row in Row::value_variants() {
        if !setup.options.rows.is_empty() && !setup.options.rows.contains(&row) {
            continue;
        }
        if let Err(error) = bench.row(row) {
            let title = format!("write, {}: FAILED", tools::name_of(row));
            bench.report.skipped(&title, &error)?;
            failed.push(tools::name_of(row));
        }
        bench.remove_files()?;
    }
    if let Some(path) = &setup.options.json {
        bench.report.write_json(path, setup.rounds, setup.seconds, setup.options.shrink)?;
    }
    if failed.is_empty() { Ok(()) } else { Err(io::Error::other(format!("failed: {}", failed.join(", ")))) }
}

impl Bench<'_> {
    fn row(&mut self, row: Row) -> io::Result<()> {
        match row {
            Row::New | Row::Overwrite => self.sequential(row),
            Row::Random => self.random(),
            Row::Reread => self.reread(),
            Row::Beside => self.beside(),
            Row::Fork => self.fork(),
            Row::Copy => self.copy(),
        }
    }

    fn sequential(&mut self, row: Row) -> io::Result<()> {
        let (file, mib) = (self.path("sequential"), self.mib(4096, 1)?);
        if row == Row::Overwrite {
            contents::make(&file, mib << 20)?;
        }
        let mut contenders = Vec::new();
        for (name, side) in
            [("headwater", Side::Headwater), ("std + fsync", Side::Std), ("std O_DIRECT", Side::StdDirect)]
        {
            contenders.push(self.arm(name, Work::Sequential, side, &file, mib));
        }
        if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_ok() {
            contenders.push(Contender { name: "fio 1M x 32".to_owned(), how: How::Fio(file.clone(), mib) });
        }
        let prepare = || if row == Row::New { remove(&file) } else { tools::make_cold(&file) };
        let figures = self.contest(&contenders, prepare, || check_length(&file, mib << 20))?;
        for (contender, &of) in contenders.iter().zip(&figures) {
            let (rate, cpu) = (mib as f64 / of.elapsed_s, of.cpu_s / mib as f64 * 1024.0);
            let words = format!("{rate:>6.0} MiB/s with its sync, {cpu:.3} CPU-s/GiB");
            self.report.line(row, &contender.name, mib << 20, of, &words)?;
        }
        self.judge_sequential(row, &figures, mib)
    }

    fn judge_sequential(&mut self, row: Row, figures: &[Figures], mib: u64) -> io::Result<()> {
        let (title, bar) = if row == Row::New { ("a new file", 0.9) } else { ("an overwritten file", 0.95) };
        let (headwater, std) = (figures[0], figures[1]);
        match figures.get(3) {
            Some(fio) => {
                self.limit_mib_per_s = Some(mib as f64 / fio.elapsed_s);
                let ratio = fio.elapsed_s / headwater.elapsed_s;
                self.report.verdict(
                    &format!("write {title}, headwater : fio"),
                    ratio,
                    Limit::AtLeast(bar),
                )?;
            }
            None => self.report.skipped(&format!("write {title}, against fio"), &"fio is not installed")?,
        }
        if row == Row::Overwrite {
            return Ok(());
        }
        let (ratio, cpu) = (std.elapsed_s / headwater.elapsed_s, headwater.cpu_s / std.cpu_s);
        self.report.verdict(
            &format!("write {title}, headwater : std + fsync"),
            ratio,
            Limit::AtLeast(1.0),
        )?;
        self.report.verdict("  its CPU", cpu, Limit::AtMost(0.333))
    }

    fn random(&mut self) -> io::Result<()> {
        let (file, mib) = (self.path("random"), self.mib(1024, 1)?);
        contents::make(&file, mib << 20)?;
        for (title, work) in [
            ("pages at random", Work::RandomOnce),
            ("4 times each, of a quarter", Work::RandomRepeated),
            ("all of random 256 KiB", Work::RandomDense),
        ] {
            let contenders = [("headwater", Side::Headwater), ("std + fsync", Side::Std)]
                .map(|(name, side)| self.arm(&format!("{name}, {title}"), work, side, &file, mib));
            let figures = self.contest(&contenders, || tools::make_cold(&file), || Ok(()))?;
            for (contender, &of) in contenders.iter().zip(&figures) {
                self.report.line(Row::Random, &contender.name, mib << 20, of, &random_words(&of))?;
            }
            self.tell_limit(figures[0].dirtied_pages / 256.0)?;
            detail(&format!(
                "  std's time : headwater's {:.3}",
                figures[1].elapsed_s / figures[0].elapsed_s
            ))?;
            let written = figures[0].device_write_pages / figures[0].dirtied_pages;
            let title = format!("{title}: pages written : pages dirtied");
            self.report.verdict(&title, written, Limit::AtMost(1.1))?;
            if work == Work::RandomDense {
                let kib = figures[0].device_write_bytes / figures[0].device_writes / 1024.0;
                self.report.verdict("  KiB of a write to the device", kib, Limit::AtLeast(64.0))?;
            }
        }
        Ok(())
    }

    fn reread(&mut self) -> io::Result<()> {
        let (file, mib) = (self.path("reread"), self.mib(50, 1)?);
        contents::make(&file, mib << 20)?;
        for (title, work, ours, bar) in [
            ("copying", Work::RereadCopy, Side::Headwater, 1.3),
            ("summed, View", Work::RereadSum, Side::View, 1.5),
        ] {
            let contenders =
                [("headwater", ours), ("warm pread 128K", Side::Std), ("memory (limit)", Side::Memory)]
                    .map(|(name, side)| self.arm(&format!("{name}, {title}"), work, side, &file, mib));
            let drops_before = page_cache_drops();
            let figures = self.contest(&contenders, || Ok(()), || Ok(()))?;
            for (contender, &of) in contenders.iter().zip(&figures) {
                let words = format!("{:>6.0} MiB/s", mib as f64 / of.elapsed_s);
                self.report.line(Row::Reread, &contender.name, mib << 20, of, &words)?;
            }
            let title = format!("first re-read, {title}: headwater : warm pread");
            if page_cache_drops() == drops_before {
                let ratio = figures[1].elapsed_s / figures[0].elapsed_s;
                self.report.verdict(&title, ratio, Limit::AtLeast(bar))?;
            } else {
                self.report.skipped(&title, &"somebody dropped the page cache meanwhile")?;
            }
        }
        Ok(())
    }

    fn beside(&mut self) -> io::Result<()> {
        let (file, mib) = (self.path("beside"), self.mib(128, 1)?.next_multiple_of(2));
        contents::make(&file, mib << 20)?;
        let arm = |name: &str, work, pace| {
            let mut arm = self.arm(name, work, Side::Headwater, &file, mib);
            if let How::Arm(options) = &mut arm.how {
                options.pace = pace;
            }
            arm
        };
        // Who copies does so as often as who writes, however often that is.
        tools::make_cold(&file)?;
        let writes_per_s = arm("", Work::BesideWriting, 0).run()?.beside_per_s;
        let mut contenders = vec![arm("alone", Work::BesideNothing, 0)];
        for (words, pace, copies) in [(PACES[0], 0, writes_per_s as u32), (PACES[1], PACE, PACE)] {
            contenders.push(arm(&format!("beside copying, {words}"), Work::BesideCopying, copies.max(1)));
            contenders.push(arm(&format!("beside writing, {words}"), Work::BesideWriting, pace));
        }
        let figures = self.contest(&contenders, || tools::make_cold(&file), || Ok(()))?;
        for (contender, &of) in contenders.iter().zip(&figures) {
            let words = format!("{:>8.0} reads/s, {:>8.0}/s beside", of.reads_per_s, of.beside_per_s);
            self.report.line(Row::Beside, &contender.name, mib << 20, of, &words)?;
        }
        let quiet = figures[0].reads_per_s;
        for (words, pair) in PACES.iter().zip(figures[1..].as_chunks::<2>().0) {
            for (against, theirs) in [("copying beside", pair[0].reads_per_s), ("alone", quiet)] {
                let title = format!("4 KiB cached reads beside a writer, {words} : {against}");
                self.report.verdict(&title, pair[1].reads_per_s / theirs, Limit::AtLeast(0.9))?;
            }
        }
        Ok(())
    }

    fn fork(&mut self) -> io::Result<()> {
        let (file, mib) = (self.path("fork"), self.mib(1024, 1)?);
        contents::make(&file, mib << 20)?;
        let contenders = [
            ("headwater, cache", Side::Headwater),
            ("memory of its own", Side::Memory),
            ("nothing (limit)", Side::Nothing),
        ]
        .map(|(name, side)| self.arm(name, Work::Fork, side, &file, mib));
        let figures = self.contest(&contenders, || tools::make_cold(&file), || Ok(()))?;
        for (contender, &of) in contenders.iter().zip(&figures) {
            let words = format!("{:.3} ms a fork, with {mib} MiB", of.elapsed_s * 1e3);
            self.report.line(Row::Fork, &contender.name, mib << 20, of, &words)?;
        }
        let title = format!("fork with {mib} MiB in headwater's cache, ms");
        self.report.verdict(&title, figures[0].elapsed_s * 1e3, Limit::AtMost(2.0))
    }

    fn copy(&mut self) -> io::Result<()> {
        let (headwater, gnu) = (self.setup.headwater, &self.setup.options.gnu_cp);
        if !headwater.exists() {
            let reason = format!("{} is missing; cargo build --release, or --headwater", headwater.display());
            return self.report.skipped("headwater cp : GNU cp", &reason);
        }
        let (source, copy, mib) = (self.path("source"), self.path("copy"), self.mib(8192, 2)?);
        contents::make(&source, mib << 20)?;
        let (from, to) = (source.display(), copy.display());
        for (title, flag, then) in
            [("cp", "", String::new()), ("cp and sync", "--sync", format!("&& sync '{to}'"))]
        {
            let ours = format!("'{}' cp {flag} --reflink never '{from}' '{to}'", headwater.display());
            let theirs = format!("'{}' --reflink=never '{from}' '{to}' {then}", gnu.display());
            let contenders = [("headwater", ours), ("GNU", theirs)].map(|(name, command)| Contender {
                name: format!("{name} {title}"),
                how: How::Shell(command),
            });
            let prepare = || remove(&copy).and_then(|()| tools::make_cold(&source));
            let figures =
                self.contest(&contenders, prepare, || contents::check(&copy, mib << 20, |_| Some(0)))?;
            for (contender, &of) in contenders.iter().zip(&figures) {
                let words = format!("{:>6.0} MiB/s", mib as f64 / of.elapsed_s);
                self.report.line(Row::Copy, &contender.name, mib << 20, of, &words)?;
            }
            self.tell_limit(mib as f64)?;
            let ratio = figures[1].elapsed_s / figures[0].elapsed_s;
            self.report.verdict(&format!("headwater {title} : GNU's"), ratio, Limit::AtLeast(1.2))?;
        }
        Ok(())
    }

    /// Medians over interleaved rounds. `prepare` and `check` are not timed.
    fn contest(
        &self,
        contenders: &[Contender],
        prepare: impl Fn() -> io::Result<()>,
        check: impl Fn() -> io::Result<()>,
    ) -> io::Result<Vec<Figures>> {
        let samples = interleave(contenders, self.setup.rounds, |contender| {
            prepare()?;
            let figures = contender.run()?;
            check()?;
            Ok::<_, io::Error>(figures)
        })?;
        Ok(samples.iter().map(|samples| Figures::median(samples)).collect())
    }

    fn arm(&self, name: &str, work: Work, side: Side, file: &Path, mib: u64) -> Contender {
        let (file, seconds) = (file.to_owned(), self.setup.seconds);
        let how = How::Arm(ArmOptions { work, side, file, mib, seconds, pace: 0 });
        Contender { name: name.to_owned(), how }
    }

    /// Prints the least time that writing `mib` takes, if that is known.
    fn tell_limit(&self, mib: f64) -> io::Result<()> {
        match self.limit_mib_per_s {
            Some(rate) => detail(&format!("{:<44} {:.3} s", "writing in order, fio (limit)", mib / rate)),
            None => Ok(()),
        }
    }

    /// So large as is wanted, or as the device has room for, with something to spare.
    fn mib(&self, wanted: u64, files: u64) -> io::Result<u64> {
        let room = rustix::fs::statvfs(self.folder.path())?;
        let room_mib = (room.f_bavail * room.f_frsize) >> 20;
        let mib = (wanted / self.setup.options.shrink).min(room_mib / 4 * 3 / files).max(1);
        if mib < wanted {
            detail(&format!("{mib} MiB instead of {wanted}"))?;
        }
        Ok(mib)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The next row may need the room.
    fn remove_files(&self) -> io::Result<()> {
        for entry in self.folder.path().read_dir()? {
            std::fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}

impl Contender {
    fn run(&self) -> io::Result<Figures> {
        match &self.how {
            How::Arm(options) => Ok(child::result(&mut options.command()?, None)?),
            How::Fio(file, mib) => {
                let size = format!("--size={mib}M");
                let arguments = ["--rw=write", "--bs=1M", "--iodepth=32", "--end_fsync=1", &size];
                let sample = tools::fio_writing(file, &arguments)?;
                let elapsed_s = *mib as f64 / sample.mib_per_s;
                Ok(Figures { elapsed_s, cpu_s: sample.cpu_s, ..Figures::default() })
            }
            How::Shell(command) => {
                let sample = tools::shell(command, 1 << 20)?;
                Ok(Figures { elapsed_s: 1.0 / sample.mib_per_s, ..Figures::default() })
            }
        }
    }
}

fn random_words(figures: &Figures) -> String {
    let of_device = if figures.device_writes > 0.0 {
        format!(
            ", {:.0} pages in {:.0} writes of {:.1} KiB",
            figures.device_write_pages,
            figures.device_writes,
            figures.device_write_bytes / figures.device_writes / 1024.0
        )
    } else {
        String::new()
    };
    format!(
        "{:.3} s, {:.3} CPU-s, {:.0} pages dirtied{of_device}",
        figures.elapsed_s, figures.cpu_s, figures.dirtied_pages
    )
}

fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// All that can be said of what fio writes; our own arms check every byte.
fn check_length(file: &Path, length_bytes: u64) -> io::Result<()> {
    let found_bytes = std::fs::metadata(file)?.len();
    if found_bytes == length_bytes {
        return Ok(());
    }
    Err(io::Error::other(format!("{} has {found_bytes} bytes, not {length_bytes}", file.display())))
}

/// Of the second thread, in words.
const PACES: [&str; 2] = ["unpaced", "50000/s"];

/// As much as a busy database writes, and far less than a thread could.
const PACE: u32 = 50_000;
