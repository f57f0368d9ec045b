//! Arms: the ways of moving bytes through a buffer.
//!
//! ```text
//!   /dev/zero ─► buffer ─► /dev/null      file ─► read(2) ─► buffer      headwater ─► read_at ─► buffer
//!                                         buffer ─► write(2) ─► file     buffer ─► write_at ─► headwater ─► file
//! ```
//!
//! Owns: which there are, their loops and clocks, the proof that they move the right bytes.
//! Does not own: the order of measurements.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use headwater::Engine;
use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_measure::Whose;
use xxhash_rust::xxh3::Xxh3;

use crate::shared::target::Target;

/// A way, open for all of its measurements.
pub(super) enum Arm<'a> {
    Zero { zero: File, null: File },
    Read { file: File, target: &'a Target },
    Held { engine: Engine, file: headwater::File, bytes: u64 },
    Write { file: File },
    Through { engine: Engine, file: headwater::File },
}

/// What one measurement has moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Of writes: until they are on the device.
    pub(super) synced_seconds: Option<f64>,
}

impl<'a> Arm<'a> {
    /// # Errors
    /// What opening `/dev/zero`, the file or an engine reports.
    pub(super) fn to_read(target: &'a Target) -> io::Result<Vec<Arm<'a>>> {
        let (zero, null) = (File::open("/dev/zero")?, File::options().write(true).open("/dev/null")?);
        let (bytes, engine) = (target.bytes, engine_for(target)?);
        let file = headwater::OpenOptions::new().engine(&engine).open(target.input_path())?;
        let read = Arm::Read { file: File::open(target.input_path())?, target };
        Ok(vec![Arm::Zero { zero, null }, read, Arm::Held { engine, file, bytes }])
    }

    /// Each writes to a file of its own: an engine notices what others write, and that would cost it its pages.
    ///
    /// # Errors
    /// What opening a file or an engine reports.
    pub(super) fn to_write(plain: &'a Target, own: &'a Target) -> io::Result<Vec<Arm<'a>>> {
        let engine = engine_for(own)?;
        let through = headwater::OpenOptions::new().engine(&engine).write(true).open(own.input_path())?;
        let file = File::options().read(true).write(true).open(plain.input_path())?;
        Ok(vec![Arm::Write { file }, Arm::Through { engine, file: through }])
    }

    /// For the JSON.
    pub(super) fn id(&self) -> &'static str {
        match self {
            Arm::Zero { .. } => "zero",
            Arm::Read { .. } => "read",
            Arm::Write { .. } => "write",
            Arm::Held { .. } | Arm::Through { .. } => "headwater",
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Arm::Zero { .. } => "zero to null",
            Arm::Read { .. } => "read(2)",
            Arm::Write { .. } => "write(2)",
            Arm::Held { .. } | Arm::Through { .. } => "headwater",
        }
    }

    pub(super) fn whose(&self) -> Whose {
        match self {
            Arm::Zero { .. } => Whose::Limit,
            Arm::Read { .. } | Arm::Write { .. } => Whose::Peer,
            Arm::Held { .. } | Arm::Through { .. } => Whose::Headwater,
        }
    }

    pub(super) fn driver(&self) -> Option<String> {
        match self {
            Arm::Held { engine, .. } | Arm::Through { engine, .. } => Some(engine.info().driver.to_owned()),
            _ => None,
        }
    }

    /// Brings the file to where it is measured, and takes it for all of its bytes, or those of `pattern`, which a pass has written.
    ///
    /// # Errors
    /// What reading or writing reports; that other bytes arrive than were sent.
    pub(super) fn prepare(&mut self, buffer: &mut [u8], bytes: u64, target: &Target) -> io::Result<()> {
        match self {
            Arm::Zero { .. } => return Ok(()),
            Arm::Read { .. } => {}
            Arm::Held { file, .. } => {
                let mut sum = Xxh3::new();
                for offset in (0..bytes).step_by(buffer.len()) {
                    let part = part_of(buffer, bytes - offset);
                    file.read_exact_at(part, offset)?;
                    sum.update(part);
                }
                check(sum.digest(), sum_of(&File::open(target.input_path())?, buffer)?)?;
            }
            Arm::Write { .. } | Arm::Through { .. } => {
                buffer.fill(PATTERN);
                self.pass(buffer, bytes, Duration::MAX)?;
                let mut sum = Xxh3::new();
                (0..bytes).step_by(buffer.len()).for_each(|at| sum.update(part_of(buffer, bytes - at)));
                check(sum.digest(), sum_of(&File::open(target.input_path())?, buffer)?)?;
                buffer.fill(PATTERN);
            }
        }
        Ok(())
    }

    /// Moves this many bytes once through the buffer, or as many as time allows.
    ///
    /// # Errors
    /// What reading or writing reports.
    pub(super) fn pass(&mut self, buffer: &mut [u8], bytes: u64, limit: Duration) -> io::Result<Pass> {
        match self {
            Arm::Zero { zero, null } => timed(bytes, limit, buffer, |part, _| {
                zero.read_exact(part)?;
                null.write_all(part).map(|()| part.len())
            }),
            Arm::Read { file, target } => {
                if target.resident_pages().is_some_and(|pages| pages < target.bytes.div_ceil(PAGE_SIZE_BYTES))
                {
                    sum_of(file, buffer)?;
                }
                file.seek(SeekFrom::Start(0))?;
                timed(bytes, limit, buffer, |part, _| file.read(part))
            }
            Arm::Held { file, .. } => timed(bytes, limit, buffer, |part, at| Ok(file.read_at(part, at)?)),
            Arm::Write { file } => {
                file.seek(SeekFrom::Start(0))?;
                let writes = |part: &mut [u8], _| file.write(part);
                let (started, pass) = (Instant::now(), timed(bytes, limit, buffer, writes)?);
                file.sync_data()?;
                Ok(Pass { synced_seconds: Some(started.elapsed().as_secs_f64()), ..pass })
            }
            Arm::Through { file, .. } => {
                let writes = |part: &mut [u8], at| Ok(file.write_at(part, at)?);
                let (started, pass) = (Instant::now(), timed(bytes, limit, buffer, writes)?);
                file.sync_data()?;
                Ok(Pass { synced_seconds: Some(started.elapsed().as_secs_f64()), ..pass })
            }
        }
    }

    /// What a reader of the figures has to know.
    pub(super) fn note(&self) -> Option<String> {
        match self {
            Arm::Read { target, .. } => {
                let (pages, resident) = (target.bytes.div_ceil(PAGE_SIZE_BYTES), target.resident_pages()?);
                (resident < pages).then(|| {
                    format!("the page cache did not keep the file: {resident} of {pages} pages in the end")
                })
            }
            Arm::Held { file, .. } | Arm::Through { file, .. } if !file.is_direct() => {
                Some("no direct I/O here: headwater goes through the kernel's page cache".to_owned())
            }
            Arm::Held { engine, bytes, .. } => {
                let (pages, held) = (bytes.div_ceil(PAGE_SIZE_BYTES), engine.stats().cache.resident_pages);
                (held < pages)
                    .then(|| format!("headwater's memory did not keep the file: {held} of {pages} pages"))
            }
            _ => None,
        }
    }
}

fn timed(
    bytes: u64,
    limit: Duration,
    buffer: &mut [u8],
    mut step: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<Pass> {
    let started = Instant::now();
    let (mut moved_bytes, mut look_at_bytes) = (0, LOOK_BYTES);
    while moved_bytes < bytes {
        match step(part_of(buffer, bytes - moved_bytes), moved_bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => moved_bytes += length as u64,
        }
        if moved_bytes >= look_at_bytes {
            if started.elapsed() >= limit {
                break;
            }
            look_at_bytes = moved_bytes + LOOK_BYTES;
        }
    }
    Ok(Pass { bytes: moved_bytes, seconds: started.elapsed().as_secs_f64(), synced_seconds: None })
}

fn part_of(buffer: &mut [u8], left_bytes: u64) -> &mut [u8] {
    let length = buffer.len().min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
    &mut buffer[..length]
}

/// With memory for all of the file, and a quarter more.
fn engine_for(target: &Target) -> io::Result<Engine> {
    let memory_bytes = engine_bytes(target.bytes);
    Ok(Engine::builder().memory(memory_bytes).build()?)
}

/// The memory that headwater gets for a file.
pub(super) fn engine_bytes(bytes: u64) -> u64 {
    (bytes / 4 * 5).max(ENGINE_BYTES_MIN)
}

fn sum_of(mut file: &File, buffer: &mut [u8]) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let mut sum = Xxh3::new();
    loop {
        match file.read(buffer)? {
            0 => return Ok(sum.digest()),
            length => sum.update(&buffer[..length]),
        }
    }
}

fn check(own: u64, expected: u64) -> io::Result<()> {
    if own == expected { Ok(()) } else { Err(io::Error::other("other bytes arrive than were sent")) }
}

/// What is written, so that nothing could do without writing it.
const PATTERN: u8 = 0xa5;

/// A look at the clock costs as much as a short read.
const LOOK_BYTES: u64 = 256 << 10;

/// An engine of less has hardly a chunk.
const ENGINE_BYTES_MIN: u64 = 16 << 20;
