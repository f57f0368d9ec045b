//! Oracle: random operations through every interface, each compared with the pattern of the file.
//!
//! Owns: the operations and what each must return.
//! Does not own: adversity beyond order, temperature and the hostile simulation.

use std::io::{BufRead, Read, Seek, SeekFrom};

use futures_util::StreamExt;
use futures_util::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt};
use headwater::{AsyncReader, ByteStream, File, IoMode, Reader};
use headwater_testkit::{Rng, on_each, with_seed};
use proptest::prelude::{ProptestConfig, any};
use proptest::{collection, proptest};

use crate::rig::{Rig, Scratch, block_on, drivers, rigs, watched};

/// Goal: every byte right on every driver, file system, mode and temperature, with readers interleaved. Method: a
/// fleet of handles on one file takes random operations.
#[test]
fn every_interface_agrees_on_every_file_system() {
    with_seed("oracle::every_interface_agrees_on_every_file_system", |seed| {
        let mut rng = Rng::new(seed);
        for (kind, directory, driver) in on_each(drivers(rng.next_u64())) {
            let length_bytes = 2_500_000 + rng.below(2_000_000);
            let (scratch, rig) = (Scratch::on(directory, rng.next_u64(), length_bytes), Rig::new(driver));
            let what = format!("{} on {kind}", rig.name());
            eprintln!("{what}");
            watched(&what, || every_mode(&rig, &scratch, &mut rng));
        }
    });
}

fn every_mode(rig: &Rig, scratch: &Scratch, rng: &mut Rng) {
    for mode in [IoMode::Auto, IoMode::Direct, IoMode::Buffered] {
        let opened = headwater::OpenOptions::new().engine(&rig.engine).io(mode).open(scratch.path());
        let Ok(file) = opened else {
            assert_eq!(mode, IoMode::Direct, "{opened:?}");
            continue;
        };
        for temperature in [Temperature::Cold, Temperature::Half, Temperature::Warm] {
            temperature.prepare(scratch, rng);
            let mut fleet = Fleet::new(&file, scratch);
            for _ in 0..40 {
                fleet.apply(&mut Rng::new(rng.next_u64()));
            }
        }
    }
    rig.assert_idle();
}

/// Goal: as above, with a failing sequence made as short as possible. Method: proptest over the operations' seeds.
#[test]
fn short_sequences_agree() {
    let scratch = Scratch::new(1, 1_234_567);
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(seed: u64, operations in collection::vec(any::<u64>(), 1..25))| {
        let rig = Rig::sim(seed);
        scratch.make_cold();
        let file = rig.open(&scratch.path(), IoMode::Auto);
        let mut fleet = Fleet::new(&file, &scratch);
        operations.iter().for_each(|&operation| fleet.apply(&mut Rng::new(operation)));
        drop(fleet);
        rig.assert_idle();
    });
}

/// Goal: lines are those of the file. Method: text of random line lengths, against the standard library.
#[test]
fn lines_are_those_of_the_file() {
    with_seed("oracle::lines_are_those_of_the_file", |seed| {
        let (scratch, mut rng) = (Scratch::new(seed, 0), Rng::new(seed));
        let lengths = (0..3000).map(|_| if rng.chance(1, 50) { rng.below(90_000) } else { rng.below(200) });
        let line = |(number, length)| format!("{number}{}\n", "-".repeat(length as usize));
        let text: String = lengths.enumerate().map(line).collect();
        std::fs::write(scratch.path(), &text).unwrap();
        scratch.make_cold();
        for rig in rigs(seed) {
            let lines = rig.open(&scratch.path(), IoMode::Auto).reader().lines();
            assert!(lines.map(Result::unwrap).eq(text.lines()), "{}", rig.name());
            rig.assert_idle();
        }
    });
}

enum Temperature {
    Cold,
    Half,
    Warm,
}

impl Temperature {
    fn prepare(&self, scratch: &Scratch, rng: &mut Rng) {
        scratch.make_cold();
        let ordinary = scratch.file();
        let mut piece = vec![0; 100_000];
        let read_piece = |piece: &mut [u8], offset_bytes| {
            std::os::unix::fs::FileExt::read_at(&ordinary, piece, offset_bytes).unwrap();
        };
        match self {
            Temperature::Cold => {}
            Temperature::Half => {
                (0..10).for_each(|_| read_piece(&mut piece, rng.below(scratch.length_bytes)));
            }
            Temperature::Warm => {
                (0..scratch.length_bytes).step_by(100_000).for_each(|at| read_piece(&mut piece, at));
            }
        }
    }
}

/// Handles on one file, with the position each must have.
struct Fleet<'a> {
    file: &'a File,
    scratch: &'a Scratch,
    readers: Vec<(Reader, u64)>,
    async_readers: Vec<(AsyncReader, u64)>,
    streams: Vec<(ByteStream, u64)>,
}

impl<'a> Fleet<'a> {
    fn new(file: &'a File, scratch: &'a Scratch) -> Fleet<'a> {
        Fleet {
            file,
            scratch,
            readers: (0..3).map(|_| (file.reader(), 0)).collect(),
            async_readers: (0..3).map(|_| (file.async_reader(), 0)).collect(),
            streams: (0..2).map(|_| (file.stream(), 0)).collect(),
        }
    }

    /// One operation, decided by the numbers drawn.
    fn apply(&mut self, rng: &mut Rng) {
        match rng.below(13) {
            0 => self.read_at(rng),
            1 => self.read_exact_at(rng),
            2 => self.read_at_async(rng),
            3 => self.read_exact_at_async(rng),
            4 | 5 => self.read(rng),
            6 => self.fill(rng),
            7 => self.seek(rng),
            8 => self.read_async(rng),
            9 => self.fill_async(rng),
            10 => self.seek_async(rng),
            11 => pick(&mut self.readers, rng).0.will_read(rng.below(5 << 20)),
            _ => self.stream(rng),
        }
    }

    fn read_at(&self, rng: &mut Rng) {
        let (offset_bytes, length) = (self.draw_offset(rng), draw_length(rng));
        let skew = rng.below(9) as usize;
        let mut buffer = vec![0xAA; length + skew];
        let read_bytes = self.file.read_at(&mut buffer[skew..], offset_bytes).unwrap();
        self.scratch.check_all(offset_bytes, length, &buffer[skew..skew + read_bytes]);
        assert!(buffer[skew + read_bytes..].iter().all(|&byte| byte == 0xAA), "padding shows");
    }

    fn read_exact_at(&self, rng: &mut Rng) {
        let (offset_bytes, length) = (self.draw_offset(rng), draw_length(rng));
        let mut buffer = vec![0; length];
        let result = self.file.read_exact_at(&mut buffer, offset_bytes);
        self.check_exact(offset_bytes, length, result.map(|()| buffer.into()));
    }

    fn read_at_async(&self, rng: &mut Rng) {
        let (offset_bytes, length) = (self.draw_offset(rng), draw_length(rng));
        let bytes = block_on(self.file.read_at_async(offset_bytes, length)).unwrap();
        self.scratch.check_all(offset_bytes, length, &bytes);
    }

    fn read_exact_at_async(&self, rng: &mut Rng) {
        let (offset_bytes, length) = (self.draw_offset(rng), draw_length(rng));
        let result = block_on(self.file.read_exact_at_async(offset_bytes, length));
        self.check_exact(offset_bytes, length, result);
    }

    fn check_exact(&self, offset_bytes: u64, length: usize, result: headwater::Result<bytes::Bytes>) {
        if length == 0 || offset_bytes + length as u64 <= self.scratch.length_bytes {
            self.scratch.check(offset_bytes.min(self.scratch.length_bytes), &result.unwrap());
        } else {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
            assert_eq!(error.offset_bytes(), Some(offset_bytes.max(self.scratch.length_bytes)));
        }
    }

    fn read(&mut self, rng: &mut Rng) {
        let (reader, position_bytes) = pick(&mut self.readers, rng);
        let mut buffer = vec![0; draw_length(rng)];
        let read_bytes = reader.read(&mut buffer).unwrap();
        let at_end = *position_bytes >= self.scratch.length_bytes;
        assert_eq!(read_bytes == 0, at_end || buffer.is_empty(), "at {position_bytes}");
        self.scratch.check(*position_bytes, &buffer[..read_bytes]);
        *position_bytes += read_bytes as u64;
    }

    fn fill(&mut self, rng: &mut Rng) {
        let (reader, position_bytes) = pick(&mut self.readers, rng);
        for _ in 0..rng.below(6) {
            let chunk = reader.fill_buf().unwrap();
            assert_eq!(chunk.is_empty(), *position_bytes >= self.scratch.length_bytes);
            self.scratch.check(*position_bytes, chunk);
            let count =
                if rng.chance(1, 2) { chunk.len() } else { rng.below(chunk.len() as u64 + 1) as usize };
            reader.consume(count);
            *position_bytes += count as u64;
        }
    }

    fn seek(&mut self, rng: &mut Rng) {
        let target = self.draw_offset(rng);
        let (reader, position_bytes) = pick(&mut self.readers, rng);
        let how = draw_seek(rng, target, *position_bytes, self.scratch.length_bytes);
        *position_bytes = reader.seek(how).unwrap();
        assert_eq!(reader.stream_position().unwrap(), *position_bytes);
    }

    fn read_async(&mut self, rng: &mut Rng) {
        let (reader, position_bytes) = pick(&mut self.async_readers, rng);
        let mut buffer = vec![0; draw_length(rng)];
        let read_bytes = block_on(reader.read(&mut buffer)).unwrap();
        let at_end = *position_bytes >= self.scratch.length_bytes;
        assert_eq!(read_bytes == 0, at_end || buffer.is_empty(), "at {position_bytes}");
        self.scratch.check(*position_bytes, &buffer[..read_bytes]);
        *position_bytes += read_bytes as u64;
    }

    fn fill_async(&mut self, rng: &mut Rng) {
        let (reader, position_bytes) = pick(&mut self.async_readers, rng);
        for _ in 0..rng.below(6) {
            let chunk = block_on(reader.fill_buf()).unwrap();
            assert_eq!(chunk.is_empty(), *position_bytes >= self.scratch.length_bytes);
            self.scratch.check(*position_bytes, chunk);
            let count =
                if rng.chance(1, 2) { chunk.len() } else { rng.below(chunk.len() as u64 + 1) as usize };
            reader.consume_unpin(count);
            *position_bytes += count as u64;
        }
    }

    fn seek_async(&mut self, rng: &mut Rng) {
        let target = self.draw_offset(rng);
        let (reader, position_bytes) = pick(&mut self.async_readers, rng);
        let how = draw_seek(rng, target, *position_bytes, self.scratch.length_bytes);
        *position_bytes = block_on(reader.seek(how)).unwrap();
    }

    /// Takes an item; sometimes makes a reader in the middle of its work a stream instead.
    fn stream(&mut self, rng: &mut Rng) {
        if rng.chance(1, 3) {
            let (reader, position_bytes) = self.async_readers.swap_remove(rng.below(3) as usize);
            self.async_readers.push((self.file.async_reader(), 0));
            self.streams[rng.below(2) as usize] = (reader.into_stream(), position_bytes);
        }
        let (stream, position_bytes) = pick(&mut self.streams, rng);
        match block_on(stream.next()) {
            None => assert!(*position_bytes >= self.scratch.length_bytes),
            Some(bytes) => {
                let bytes = bytes.unwrap();
                assert!(!bytes.is_empty());
                self.scratch.check(*position_bytes, &bytes);
                *position_bytes += bytes.len() as u64;
            }
        }
    }

    /// Anywhere, near a page's edge, near the end, or beyond it.
    fn draw_offset(&self, rng: &mut Rng) -> u64 {
        let length_bytes = self.scratch.length_bytes;
        match rng.below(4) {
            0 => rng.below(length_bytes),
            1 => (rng.below(length_bytes) / 4096 * 4096 + rng.below(3)).saturating_sub(1),
            2 => length_bytes - 2000 + rng.below(3000),
            _ => rng.below(length_bytes + 10_000),
        }
    }
}

fn pick<'a, T>(handles: &'a mut [(T, u64)], rng: &mut Rng) -> (&'a mut T, &'a mut u64) {
    let place = rng.below(handles.len() as u64) as usize;
    let (handle, position_bytes) = &mut handles[place];
    (handle, position_bytes)
}

fn draw_length(rng: &mut Rng) -> usize {
    let length = match rng.below(8) {
        0 => rng.below(2),
        1 => rng.below(64),
        2 => 4095 + rng.below(3),
        3 => 4096 << rng.below(7),
        4 | 5 => rng.below(300_000),
        6 => (2 << 20) - 5000 + rng.below(10_000),
        _ => rng.below(5 << 20),
    };
    length as usize
}

fn draw_seek(rng: &mut Rng, target: u64, position_bytes: u64, length_bytes: u64) -> SeekFrom {
    match rng.below(4) {
        0 => SeekFrom::Start(target),
        1 => SeekFrom::Current(target as i64 - position_bytes as i64),
        2 => SeekFrom::End(target as i64 - length_bytes as i64),
        // Near where it is: within what is at hand or ahead.
        _ => SeekFrom::Current(rng.below(200_000) as i64 - (position_bytes.min(60_000)) as i64),
    }
}
