//! Faults: a device that fails at some bytes, on `sim` (invariant 9).
//!
//! Owns: which reads see an error, what the error says, what is read beside it.
//! Does not own: transient errors and short transfers in themselves, which the hostile simulation adds everywhere.

use std::io::{self, BufRead, ErrorKind, Read, Seek, SeekFrom};

use futures_util::StreamExt;
use headwater::testing::{FaultRange, SimControl, SimOptions};
use headwater::{ByteRange, DriverKind, File, IoMode};
use headwater_testkit::{FileSystem, ScratchDir, skip, with_seed};

use crate::rig::{Rig, Scratch, block_on};

/// A file of which one range cannot be read.
struct Faulty {
    rig: Rig,
    scratch: Scratch,
    file: File,
    bad: ByteRange,
    /// The first byte that the device does not give: it moves whole blocks, of 512 bytes to a page.
    lost_bytes: u64,
}

impl Faulty {
    fn new(seed: u64, bad: ByteRange) -> Faulty {
        Faulty::on(ScratchDir::on_target().unwrap(), seed, bad)
    }

    fn on(directory: ScratchDir, seed: u64, bad: ByteRange) -> Faulty {
        let scratch = Scratch::on(directory, seed, LENGTH_BYTES);
        let rig = Rig::sim(seed);
        let file = rig.open(&scratch.path(), IoMode::Direct);
        rig.control().add_fault(FaultRange::new(bad, EIO));
        let from = bad.start.saturating_sub(8192);
        let lost_bytes = from + file.read_at(&mut [0; 8192], from).unwrap_or(0) as u64;
        assert!(lost_bytes <= bad.start && bad.start - lost_bytes < 4096, "lost from {lost_bytes} on");
        Faulty { rig, scratch, file, bad, lost_bytes }
    }

    /// The error names path and place.
    fn check_error(&self, error: &io::Error) {
        let error = error.get_ref().and_then(|inner| inner.downcast_ref::<headwater::Error>()).unwrap();
        self.check(error);
    }

    fn check(&self, error: &headwater::Error) {
        assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
        assert_eq!(error.path(), Some(self.scratch.path().as_path()));
        assert_eq!(error.offset_bytes(), Some(self.lost_bytes), "{error}");
    }

    /// All that comes before the error, checked; then the error.
    fn read_to_error(&self, reader: &mut headwater::Reader) -> io::Error {
        let mut position_bytes = reader.stream_position().unwrap();
        loop {
            match reader.fill_buf() {
                Ok(chunk) => {
                    assert!(!chunk.is_empty(), "an end at {position_bytes} instead of the error");
                    self.scratch.check(position_bytes, chunk);
                    let length = chunk.len();
                    reader.consume(length);
                    position_bytes += length as u64;
                }
                Err(error) => {
                    assert_eq!(position_bytes, self.lost_bytes, "where the good bytes end");
                    return error;
                }
            }
        }
    }
}

/// Bad ranges: a page, a block in the middle of a page, a few bytes, the first page, the last.
const BAD: [(u64, u64); 6] = [
    (1_200_128, 1_200_128 + 4096),
    (409_600, 413_696),
    (409_600 + 1536, 409_600 + 2048),
    (700_001, 700_003),
    (0, 100),
    (LENGTH_BYTES - 10, LENGTH_BYTES),
];

/// Goal: a reader gets every byte before the bad ones, then the error with path and offset; again while it lasts; the
/// bytes behind it after a seek; and all the rest when it has healed.
#[test]
fn a_reader_comes_to_the_bad_bytes_and_past_them() {
    with_seed("faults::a_reader_comes_to_the_bad_bytes_and_past_them", |seed| {
        for (start, end) in BAD {
            let faulty = Faulty::new(seed, ByteRange::new(start, end));
            let mut reader = faulty.file.reader();
            for _ in 0..2 {
                let error = faulty.read_to_error(&mut reader);
                faulty.check_error(&error);
            }
            check_past(&faulty, &mut reader);
            reader.seek(SeekFrom::Start(0)).unwrap();
            let error = faulty.read_to_error(&mut reader);
            faulty.check_error(&error);
            faulty.rig.control().clear_faults();
            let (from, mut rest) = (reader.stream_position().unwrap(), Vec::new());
            reader.read_to_end(&mut rest).unwrap();
            faulty.scratch.check_all(from, usize::MAX, &rest);
            drop(reader);
            faulty.rig.assert_idle();
        }
    });
}

fn check_past(faulty: &Faulty, reader: &mut headwater::Reader) {
    let past = faulty.bad.end.next_multiple_of(4096).min(LENGTH_BYTES);
    let mut rest = Vec::new();
    reader.seek(SeekFrom::Start(past)).unwrap();
    reader.read_to_end(&mut rest).unwrap();
    faulty.scratch.check_all(past, usize::MAX, &rest);
}

/// Goal: a stream of bytes delivers the good ones, then one error, then ends.
#[test]
fn a_stream_ends_after_the_error() {
    with_seed("faults::a_stream_ends_after_the_error", |seed| {
        for (start, end) in BAD {
            let faulty = Faulty::new(seed, ByteRange::new(start, end));
            let (mut stream, mut position_bytes) = (faulty.file.stream(), 0);
            let error = loop {
                match block_on(stream.next()).expect("the error comes before the end") {
                    Ok(bytes) => {
                        faulty.scratch.check(position_bytes, &bytes);
                        position_bytes += bytes.len() as u64;
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!(position_bytes, faulty.lost_bytes);
            faulty.check_error(&error);
            assert!(block_on(stream.next()).is_none());
            faulty.rig.assert_idle();
        }
    });
}

/// Goal: an error ahead of a reader that never gets there is nobody's. Method: the bad bytes are within readahead's
/// reach of the bytes wanted.
#[test]
fn an_error_ahead_reaches_nobody() {
    with_seed("faults::an_error_ahead_reaches_nobody", |seed| {
        let bad = ByteRange::new(300_000, LENGTH_BYTES);
        let faulty = Faulty::new(seed, bad);
        let (mut reader, mut good) = (faulty.file.reader(), vec![0; 299_000]);
        reader.read_exact(&mut good).unwrap();
        faulty.scratch.check(0, &good);
        reader.seek(SeekFrom::Start(50_000)).unwrap();
        reader.read_exact(&mut good[..200_000]).unwrap();
        faulty.scratch.check(50_000, &good[..200_000]);
        drop(reader);
        faulty.rig.assert_idle();
    });
}

/// Goal: healed before the reader gets there, an error of readahead leaves no trace.
#[test]
fn an_error_healed_in_time_reaches_nobody() {
    with_seed("faults::an_error_healed_in_time_reaches_nobody", |seed| {
        let faulty = Faulty::new(seed, ByteRange::new(200_000, 900_000));
        let (mut reader, mut contents) = (faulty.file.reader(), vec![0; 190_000]);
        reader.read_exact(&mut contents).unwrap();
        faulty.rig.control().clear_faults();
        reader.read_to_end(&mut contents).unwrap();
        faulty.scratch.check_all(0, usize::MAX, &contents);
        drop(reader);
        faulty.rig.assert_idle();
    });
}

/// Goal: a positional read over good and bad bytes returns the good prefix, one at the bad bytes the error; the exact
/// reads return the error with the first lost byte. Beside the bad bytes nothing is noticed.
#[test]
fn positional_reads_over_bad_bytes() {
    with_seed("faults::positional_reads_over_bad_bytes", |seed| {
        BAD.iter().for_each(|&(start, end)| check_around(&Faulty::new(seed, ByteRange::new(start, end))));
    });
}

/// Goal: the same where the kernel does not tell the alignment of direct reads, and pages are assumed. Method: btrfs.
#[test]
fn positional_reads_over_bad_bytes_of_untold_alignment() {
    with_seed("faults::positional_reads_over_bad_bytes_of_untold_alignment", |seed| {
        for (start, end) in BAD {
            match ScratchDir::on_loop(FileSystem::Btrfs) {
                Ok(directory) => check_around(&Faulty::on(directory, seed, ByteRange::new(start, end))),
                Err(reason) => return skip(reason),
            }
        }
    });
}

fn check_around(faulty: &Faulty) {
    let lost = faulty.lost_bytes;
    for (before, length) in [(10, 5000), (200_000, 250_000), (600_000, 900_000), (300_000, 3_000_000)] {
        check_positional(faulty, lost.saturating_sub(before), lost, length);
    }
    for offset_bytes in [lost, lost + 3] {
        let error = faulty.file.read_at(&mut [0; 9000], offset_bytes).unwrap_err();
        assert_eq!((error.raw_os_error(), error.offset_bytes()), (Some(EIO), Some(offset_bytes)));
        let error = block_on(faulty.file.read_at_async(offset_bytes, 9000)).unwrap_err();
        assert_eq!((error.raw_os_error(), error.offset_bytes()), (Some(EIO), Some(offset_bytes)));
    }
    faulty.rig.assert_idle();
}

fn check_positional(faulty: &Faulty, offset_bytes: u64, lost: u64, length: usize) {
    let (file, mut buffer) = (&faulty.file, vec![0; length]);
    if offset_bytes < lost && offset_bytes + length as u64 > lost {
        let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
        assert_eq!(offset_bytes + read_bytes as u64, lost, "the good prefix of {length} at {offset_bytes}");
        faulty.scratch.check(offset_bytes, &buffer[..read_bytes]);
        let bytes = block_on(file.read_at_async(offset_bytes, length)).unwrap();
        assert_eq!(bytes, &buffer[..read_bytes]);
        let fits = offset_bytes + length as u64 <= LENGTH_BYTES;
        if fits {
            faulty.check(&file.read_exact_at(&mut buffer, offset_bytes).unwrap_err());
            faulty.check(&block_on(file.read_exact_at_async(offset_bytes, length)).unwrap_err());
        }
    }
    let good_bytes = (lost - offset_bytes) as usize;
    file.read_exact_at(&mut vec![0; good_bytes], offset_bytes).unwrap();
    block_on(file.read_exact_at_async(offset_bytes, good_bytes)).unwrap();
}

/// Goal: a storm of EINTR, EAGAIN and ECANCELED is ridden out; one that never ends is an error, not a hang.
#[test]
fn transient_errors_are_ridden_out() {
    with_seed("faults::transient_errors_are_ridden_out", |seed| {
        let scratch = Scratch::new(seed, LENGTH_BYTES);
        for (transient_per_mille, short_per_mille) in [(400, 0), (300, 900), (0, 1000), (1000, 0)] {
            let control = SimControl::default();
            let options = SimOptions {
                delay_steps_max: 20,
                short_per_mille,
                transient_per_mille,
                control,
                ..SimOptions::hostile(seed)
            };
            let rig = Rig::new(DriverKind::Sim(options));
            let file = rig.open(&scratch.path(), IoMode::Direct);
            let mut contents = Vec::new();
            let result = file.reader().read_to_end(&mut contents);
            if transient_per_mille < 1000 {
                result.unwrap();
                scratch.check_all(0, usize::MAX, &contents);
                file.read_exact_at(&mut contents, 0).unwrap();
                scratch.check_all(0, usize::MAX, &contents);
            } else {
                assert!(
                    [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::Other]
                        .contains(&normalised(result.unwrap_err().kind()))
                );
                assert!(file.read_at(&mut [0; 10], 0).is_err());
            }
            rig.assert_idle();
        }
    });
}

/// ECANCELED has a kind of its own that has no stable name.
fn normalised(kind: ErrorKind) -> ErrorKind {
    if format!("{kind:?}") == "Uncategorized" { ErrorKind::Other } else { kind }
}

const LENGTH_BYTES: u64 = 2_000_100;
const EIO: i32 = 5;
