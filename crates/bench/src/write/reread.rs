//! Reread: the first time that a file is read again, by whatever kept it: headwater, or the kernel's page cache.
//!
//! Owns: the cold start of each cycle, the pass over the file, the sum that both sides compute.
//! Does not own: the file (target).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use headwater::{ByteRange, IoMode, OpenOptions, Residency};
use headwater_measure::{Figures, sum_of_words};

use super::target::{engine, timed};
use super::{ArmOptions, Side, Work};
use crate::tools;

/// Where the bytes are now.
enum Kept {
    Headwater(headwater::File),
    View(headwater::File),
    Std(File),
    Memory(Vec<u8>),
    /// As a view, which copies nothing.
    InPlace(Vec<u8>),
}

/// What is done with each piece.
type Look = fn(&[u8]) -> u64;

/// The median of several cycles: one of them takes milliseconds.
pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    let look = if options.work == Work::RereadSum { sum_of_words } else { first_word };
    let expected = Kept::Std(File::open(&options.file)?).pass(options, look)?;
    let mut cycles = Vec::new();
    for _ in 0..CYCLES {
        let kept = Kept::read_once(options)?;
        let (found, figures) = timed(options.length_bytes(), || kept.pass(options, look))?;
        if found != expected {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the second reading gave other bytes"));
        }
        kept.check_kept(options)?;
        cycles.push(figures);
    }
    Ok(Figures::median(&cycles))
}

impl Kept {
    fn read_once(options: &ArmOptions) -> io::Result<Kept> {
        let open = || {
            tools::make_cold(&options.file)?;
            let file = OpenOptions::new().engine(&engine(MEMORY_BYTES)?).open(&options.file)?;
            Kept::Headwater(file.clone()).pass(options, first_word)?;
            Ok::<_, io::Error>(file)
        };
        match options.side {
            Side::Headwater => Ok(Kept::Headwater(open()?)),
            Side::View => Ok(Kept::View(open()?)),
            Side::Std => {
                tools::make_warm(&options.file)?;
                tools::make_warm(&options.file)?;
                Ok(Kept::Std(File::open(&options.file)?))
            }
            Side::Memory if options.work == Work::RereadSum => Ok(Kept::InPlace(fs::read(&options.file)?)),
            Side::Memory => Ok(Kept::Memory(fs::read(&options.file)?)),
            Side::Headwater64M | Side::StdDirect | Side::Nothing => Err(options.unknown()),
        }
    }

    /// Reads the file in order.
    fn pass(&self, options: &ArmOptions, look: Look) -> io::Result<u64> {
        let (mut buffer, mut sum) = (vec![0; BUFFER_BYTES], 0_u64);
        for offset_bytes in (0..options.length_bytes()).step_by(BUFFER_BYTES) {
            sum = sum.wrapping_add(self.piece(offset_bytes, &mut buffer, look)?);
        }
        Ok(sum)
    }

    fn piece(&self, offset_bytes: u64, buffer: &mut [u8], look: Look) -> io::Result<u64> {
        match self {
            Kept::Headwater(file) => file.read_exact_at(buffer, offset_bytes)?,
            Kept::View(file) => {
                let view = file.view(offset_bytes, buffer.len())?;
                return Ok(view.chunks().fold(0, |sum, chunk| sum.wrapping_add(look(chunk))));
            }
            Kept::Std(file) => file.read_exact_at(buffer, offset_bytes)?,
            Kept::Memory(bytes) => {
                buffer.copy_from_slice(&bytes[offset_bytes as usize..][..BUFFER_BYTES]);
            }
            Kept::InPlace(bytes) => return Ok(look(&bytes[offset_bytes as usize..][..BUFFER_BYTES])),
        }
        Ok(look(buffer))
    }

    /// What was read again must have come from memory, or the comparison is none.
    fn check_kept(&self, options: &ArmOptions) -> io::Result<()> {
        let lost = match self {
            Kept::Headwater(file) | Kept::View(file) => {
                let counts = file.stats().counts;
                let read_bytes = counts.device_read_bytes;
                (read_bytes > options.length_bytes() || counts.bypassed > 0).then(|| {
                    format!(
                        "headwater read {read_bytes} bytes and went past its cache {} times",
                        counts.bypassed
                    )
                })
            }
            Kept::Std(_) => {
                let file = OpenOptions::new().io(IoMode::Buffered).open(&options.file)?;
                let residency = file.residency(ByteRange::new(0, options.length_bytes()));
                (residency != Residency::Whole).then(|| "the kernel's page cache lost some of it".to_owned())
            }
            Kept::Memory(_) | Kept::InPlace(_) => None,
        };
        lost.map_or(Ok(()), |lost| Err(io::Error::other(lost)))
    }
}

fn first_word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// As many as a file copy or a parser asks for.
const BUFFER_BYTES: usize = 128 << 10;

/// Of the engine: twice the file and more.
const MEMORY_BYTES: u64 = 128 << 20;

const CYCLES: usize = 5;
