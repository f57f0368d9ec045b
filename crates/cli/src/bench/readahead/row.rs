//! Row, the child's side of the readahead suite: reads standard input in one order, by one reader.
//!
//! Owns: the measured loop, the clocks, what the device was asked for, the sums that prove that the right bytes arrived.
//! Does not own: the order of reads (`patterns`), making the file cold.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headwater_measure::{Meter, process::device_read_bytes};
use serde::{Deserialize, Serialize};

use super::patterns::{Layout, Pattern};
use super::{READ_AHEAD_KB, Reader};
use crate::bench::arguments::RowArguments;
use crate::bench::input::{INPUT, no_such_row};
use crate::shared::storage::read_ahead_setting;

/// What the reads have cost, all of them or as many as time allowed.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(in crate::bench) struct Measurement {
    pub(super) reads: u64,
    /// How many there would have been.
    pub(super) reads_wanted: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// What this process asked of devices meanwhile; `None` where the kernel does not count.
    pub(super) device_bytes: Option<u64>,
    /// Sums of what was looked at after this number of reads.
    pub(super) sums: Vec<(u64, u64)>,
    /// Which driver headwater used.
    pub(super) driver: Option<String>,
}

/// # Errors
/// What reading reports; an unknown row.
pub(in crate::bench) fn measure(arguments: &RowArguments) -> io::Result<Measurement> {
    let (pattern, reader) = arguments.row.split_once(':').ok_or_else(no_such_row)?;
    let pattern = Pattern::ALL.into_iter().find(|known| known.id() == pattern).ok_or_else(no_such_row)?;
    let reader = Reader::of_id(reader).ok_or_else(no_such_row)?;
    match reader {
        Reader::Kernel => kernel(arguments, pattern, &File::open(INPUT)?),
        Reader::Kernel128 => kernel(arguments, pattern, &open_with_readahead()?),
        Reader::Headwater(policy) => {
            let engine = arguments.engine.builder().build()?;
            let file = headwater::OpenOptions::new().engine(&engine).readahead(policy).open(INPUT)?;
            let read = |buffer: &mut [u8], offset_bytes| Ok(file.read_at(buffer, offset_bytes)?);
            let measured = reads(arguments, pattern, read)?;
            Ok(Measurement { driver: Some(engine.info().driver.to_owned()), ..measured })
        }
    }
}

fn kernel(arguments: &RowArguments, pattern: Pattern, file: &File) -> io::Result<Measurement> {
    reads(arguments, pattern, |buffer, offset_bytes| file.read_at(buffer, offset_bytes))
}

/// The kernel copies the setting of the device when a file is opened (`file_ra_state_init`), so it is put back at once.
fn open_with_readahead() -> io::Result<File> {
    let setting = read_ahead_setting(Path::new(INPUT));
    let setting = setting.ok_or_else(|| io::Error::other("the device's read_ahead_kb is not to be found"))?;
    let before = std::fs::read_to_string(&setting)?;
    let _put_back = PutBack { setting: setting.clone(), before };
    std::fs::write(&setting, READ_AHEAD_KB.to_string())?;
    File::open(INPUT)
}

struct PutBack {
    setting: PathBuf,
    before: String,
}

impl Drop for PutBack {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.setting, self.before.trim());
    }
}

fn reads(
    arguments: &RowArguments,
    pattern: Pattern,
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<Measurement> {
    let layout = Layout { file_bytes: arguments.bytes, places: arguments.places, seed: arguments.seed };
    let reads_wanted = pattern.reads(layout);
    let mut buffer = vec![0; pattern.bytes() as usize];
    let mut consumer = Consumer::of(pattern);
    let mut sums = Vec::new();
    let (meter, device_before) = (Meter::start(), device_read_bytes());
    let deadline = meter.started() + Duration::from_millis(arguments.limit_ms);
    let mut reads = 0;
    while reads < reads_wanted && (!reads.is_multiple_of(READS_BETWEEN_LOOKS) || Instant::now() < deadline) {
        let read_bytes = read(&mut buffer, pattern.offset_bytes(reads, layout))?;
        if read_bytes != buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        consumer.take(&buffer);
        reads += 1;
        if reads.is_power_of_two() {
            sums.push((reads, consumer.sum()));
        }
    }
    Ok(Measurement {
        reads,
        reads_wanted,
        bytes: reads * pattern.bytes(),
        seconds: meter.seconds(),
        cpu_seconds: meter.cpu_seconds(),
        device_bytes: device_read_bytes().zip(device_before).map(|(after, before)| after - before),
        sums,
        driver: None,
    })
}

/// What is done with the bytes.
enum Consumer {
    /// A look at the first bytes.
    Glance(u64),
    /// All of them are hashed.
    Hash(Box<blake3::Hasher>),
}

impl Consumer {
    fn of(pattern: Pattern) -> Consumer {
        match pattern {
            Pattern::Hash => Consumer::Hash(Box::default()),
            _ => Consumer::Glance(0),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        match self {
            Consumer::Glance(sum) => {
                let first = bytes.first_chunk().expect("a read has a page at least");
                *sum = sum.rotate_left(1) ^ u64::from_le_bytes(*first);
            }
            Consumer::Hash(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    fn sum(&self) -> u64 {
        match self {
            Consumer::Glance(sum) => *sum,
            Consumer::Hash(hasher) => {
                let hash = hasher.finalize();
                u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
            }
        }
    }
}

/// A look at the clock costs 30 ns, a read that was read ahead 1 µs.
const READS_BETWEEN_LOOKS: u64 = 16;
