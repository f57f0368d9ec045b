//! Target: a file to write to, by headwater or by std.
//!
//! Owns: the two ways of writing and syncing, what is timed around them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

use headwater::{Engine, OpenOptions};
use rustix::fs::OFlags;

use super::{ArmOptions, Figures, Side};
use headwater_measure::process::cpu_seconds;

pub(super) enum Target {
    Headwater(headwater::File),
    Std(File),
}

impl Target {
    /// Makes the file if it is not there.
    pub(super) fn open(options: &ArmOptions, engine: &Engine) -> io::Result<Target> {
        let flags = match options.side {
            Side::Headwater => {
                return Ok(Target::Headwater(
                    OpenOptions::new().engine(engine).create().open(&options.file)?,
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
            Target::Headwater(file) => Ok(file.sync_data()?),
            Target::Std(file) => file.sync_all(),
        }
    }

    /// With what headwater counted of the device's writes.
    pub(super) fn counted(&self, figures: Figures) -> Figures {
        let Target::Headwater(file) = self else { return figures };
        let counts = file.stats().counts;
        Figures {
            device_writes: counts.device_writes as f64,
            device_write_pages: counts.device_write_pages as f64,
            device_write_bytes: counts.device_write_bytes as f64,
            ..figures
        }
    }
}

pub(super) fn engine(memory_bytes: u64) -> io::Result<Engine> {
    Ok(Engine::builder().memory(memory_bytes).build()?)
}

/// What the work took, on the clock and of processors.
pub(super) fn timed<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Figures)> {
    let (start, cpu_before_s) = (Instant::now(), cpu_seconds());
    let result = work()?;
    let (elapsed_s, cpu_s) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_before_s);
    Ok((result, Figures { elapsed_s, cpu_s, ..Figures::default() }))
}

/// What an engine needs for itself with the smallest of files.
pub(super) const MEMORY_BYTES_SPARE: u64 = 16 << 20;
