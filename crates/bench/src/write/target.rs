//! Target: a file to write to, by headwater or by std.
//!
//! Owns: the two ways of writing and syncing, what is timed around them.
//! Does not own: which bytes are written where (sequential, random).

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use headwater::{Engine, OpenOptions};
use headwater_measure::{Figures, Meter};
use rustix::fs::OFlags;

use super::{ArmOptions, Side};

pub(super) enum Target {
    Headwater(headwater::File),
    Std(File),
}

impl Target {
    /// Makes the file if it is not there.
    pub(super) fn open(options: &ArmOptions, engine: &Engine) -> io::Result<Target> {
        let flags = match options.side {
            Side::Headwater | Side::Headwater64M => {
                return Ok(Target::Headwater(
                    OpenOptions::new().engine(engine).write(true).create(true).open(&options.file)?,
                ));
            }
            Side::Std => OFlags::empty(),
            Side::StdDirect => OFlags::DIRECT,
            Side::View | Side::Memory | Side::Nothing => return Err(options.unknown()),
        };
        let mut open = File::options();
        open.write(true).create(true).truncate(false).custom_flags(flags.bits() as i32);
        Ok(Target::Std(open.open(&options.file)?))
    }

    pub(super) fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        match self {
            Target::Headwater(file) => Ok(file.write_all_at(bytes, offset_bytes)?),
            Target::Std(file) => file.write_all_at(bytes, offset_bytes),
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Target::Headwater(file) => Ok(file.sync_all()?),
            Target::Std(file) => file.sync_all(),
        }
    }

    /// With what headwater counted of the device's writes.
    pub(super) fn counted(&self, figures: Figures) -> Figures {
        let Target::Headwater(file) = self else { return figures };
        let counts = file.stats().counts;
        let [writes, pages, bytes] =
            [counts.device_writes, counts.device_write_pages, counts.device_write_bytes].map(|of| of as f64);
        let written = pages / figures.get("dirtied_pages");
        let figures =
            if written.is_finite() { figures.with("written_per_dirtied", written) } else { figures };
        figures
            .with("device_writes", writes)
            .with("device_write_pages", pages)
            .with("kib_per_write", bytes / writes.max(1.0) / 1024.0)
    }
}

pub(super) fn engine(memory_bytes: u64) -> io::Result<Engine> {
    Ok(Engine::builder().memory(memory_bytes).build()?)
}

/// What the work took for this number of bytes, on the clock and of processors, the kernel's work for the process included.
pub(super) fn timed<T>(bytes: u64, work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Figures)> {
    let meter = Meter::start();
    let result = work()?;
    let (elapsed_s, cpu_s) = (meter.seconds(), meter.cpu_seconds());
    let mib = bytes as f64 / f64::from(1 << 20);
    let rates = [("mib_per_s", mib / elapsed_s), ("cpu_s_per_gib", cpu_s / mib * 1024.0)];
    Ok((result, Figures::from(rates).with("elapsed_s", elapsed_s).with("cpu_s", cpu_s)))
}

/// What an engine needs for itself with the smallest of files.
pub(super) const MEMORY_BYTES_SPARE: u64 = 16 << 20;
