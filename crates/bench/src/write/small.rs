//! Small: files of 4 KiB to 64 MiB, new or over what is there, closed or synced.
//!
//! ```text
//!   a fresh process: file after file ─► opened, written, synced if asked, closed: timed ─► all on the device: its processor time too
//! ```
//!
//! The first file of each process counts like the others: its memory is touched for the first time.
//!
//! Owns: one file after another, what is timed.
//! Does not own: the sizes and ways (ways).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use headwater::{Engine, OpenOptions};
use headwater_measure::Figures;
use headwater_measure::process::system_cpu_seconds;
use headwater_testkit::Rng;

use super::{ArmOptions, Side, Work};

pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    let (bytes, is_synced) = (contents(options.kib << 10), options.work.is_synced());
    let least = if is_synced { SYNCED_MAX } else { FILES_MAX };
    let count = (MOVED_KIB / options.kib.max(1)).clamp(1, least);
    let files: Vec<PathBuf> = (0..count).map(|number| options.file.join(number.to_string())).collect();
    if options.work.is_over() {
        files.iter().try_for_each(|file| write_durably(file, &bytes))?;
    }
    let (system_before, mut elapsed_s) = (system_cpu_seconds(), 0.0);
    for file in &files {
        let began = Instant::now();
        write(options, file, &bytes)?;
        elapsed_s += began.elapsed().as_secs_f64();
    }
    if options.side == Side::Headwater {
        Engine::global()?.flush()?;
    }
    files.iter().try_for_each(|file| File::open(file)?.sync_all())?;
    let system_cpu_s = system_cpu_seconds().zip(system_before).map(|(now, before)| now - before);
    for file in &files {
        if fs::read(file)? != bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: other bytes", file.display()),
            ));
        }
        fs::remove_file(file)?;
    }
    let (mib, each) = ((options.kib * count) as f64 / 1024.0, count as f64);
    let figures = Figures::from([
        ("files_per_s", each / elapsed_s),
        ("ms_each", elapsed_s * 1e3 / each),
        ("mib_per_s", mib / elapsed_s),
    ]);
    // Counted in ticks of 10 ms: fewer say nothing.
    let counted = system_cpu_s.filter(|&seconds| seconds >= CPU_SECONDS_MIN);
    Ok(counted.into_iter().fold(figures, |all, seconds| all.with("cpu_us", seconds * 1e6 / each)))
}

const CPU_SECONDS_MIN: f64 = 0.5;

/// Opened, written in pieces, synced if asked, and closed.
fn write(options: &ArmOptions, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (is_over, is_synced) = (options.work.is_over(), options.work.is_synced());
    match options.side {
        Side::Headwater => {
            let file = match is_over {
                true => OpenOptions::new().write(true).open(path)?,
                false => headwater::File::create(path)?,
            };
            let mut writer = file.writer();
            bytes.chunks(PIECE_BYTES).try_for_each(|piece| writer.write_all(piece))?;
            writer.flush()?;
            if is_synced { Ok(file.sync_all()?) } else { Ok(()) }
        }
        Side::Std => {
            let mut file = match is_over {
                true => File::options().write(true).open(path)?,
                false => File::create(path)?,
            };
            bytes.chunks(PIECE_BYTES).try_for_each(|piece| file.write_all(piece))?;
            if is_synced { file.sync_all() } else { Ok(()) }
        }
        _ => Err(options.unknown()),
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Noise, which no device compresses.
fn contents(length_bytes: u64) -> Vec<u8> {
    let (mut bytes, mut rng) = (vec![0; length_bytes as usize], Rng::new(length_bytes));
    bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]));
    bytes
}

impl Work {
    pub(super) const SMALL: [(Work, &'static str); 4] = [
        (Work::SmallNew, "new"),
        (Work::SmallOver, "over"),
        (Work::SmallNewSynced, "new, synced"),
        (Work::SmallOverSynced, "over, synced"),
    ];

    fn is_over(self) -> bool {
        matches!(self, Work::SmallOver | Work::SmallOverSynced)
    }

    fn is_synced(self) -> bool {
        matches!(self, Work::SmallNewSynced | Work::SmallOverSynced)
    }
}

/// From a configuration to a photograph or a segment of a log.
pub(super) const SIZES_KIB: [u64; 7] = [4, 64, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10];

/// As much as most programs hand over at once.
const PIECE_BYTES: usize = 128 << 10;

/// A process moves no more than this, but one file at least.
const MOVED_KIB: u64 = 64 << 10;

const FILES_MAX: u64 = 256;

/// A sync takes as long as many small files.
const SYNCED_MAX: u64 = 16;
