//! World: some files with known contents, handles of all kinds on them, and whatever threads can do with these.
//!
//! Owns: the files, the mixture of operations, what each must return.
//! Does not own: who does them, and for how long.

use std::future::Future;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use headwater::{Caching, File, IoMode, OpenOptions, Result};
use headwater_testkit::{Pattern, Rng, ScratchDir};

use crate::rig::{Rig, block_on};

/// Files in one directory.
pub(crate) struct Shelf {
    directory: ScratchDir,
    pub(crate) files: Vec<Contents>,
}

/// What one of them contains.
#[derive(Clone, Copy)]
pub(crate) struct Contents {
    number: usize,
    pub(crate) pattern: Pattern,
    pub(crate) length_bytes: u64,
}

impl Shelf {
    /// From one byte to some mebibytes, with ends inside pages and at their edges.
    pub(crate) fn new(directory: ScratchDir, rng: &mut Rng) -> Shelf {
        let lengths = [1, 4095, 4096, 4097, 65_537, 700_001, 1 << 20, 3_000_000 + rng.below(3_000_000)];
        let file =
            |(number, length_bytes)| Contents { number, pattern: Pattern::new(rng.next_u64()), length_bytes };
        let files: Vec<Contents> = lengths.into_iter().enumerate().map(file).collect();
        let shelf = Shelf { directory, files };
        for file in &shelf.files {
            file.pattern.write_file(shelf.path(file), file.length_bytes).unwrap();
        }
        shelf.make_cold();
        shelf
    }

    pub(crate) fn path(&self, file: &Contents) -> PathBuf {
        self.directory.path().join(file.number.to_string())
    }

    pub(crate) fn make_cold(&self) {
        for file in &self.files {
            headwater_testkit::make_cold(&std::fs::File::open(self.path(file)).unwrap()).unwrap();
        }
    }

    /// One handle on each file, which keeps their gauges in sight.
    pub(crate) fn open_all(&self, rig: &Rig) -> Vec<File> {
        let open = |file: &Contents| self.open(rig, file, IoMode::Auto).expect("any file opens in this mode");
        self.files.iter().map(open).collect()
    }

    fn open(&self, rig: &Rig, file: &Contents, mode: IoMode) -> Result<File> {
        OpenOptions::new().engine(&rig.engine).io(mode).caching(Caching::On).open(self.path(file))
    }
}

impl Contents {
    /// `bytes` are all that the file has in this range.
    fn check(&self, offset_bytes: u64, wanted_bytes: usize, bytes: &[u8]) {
        let left_bytes = self.length_bytes.saturating_sub(offset_bytes);
        assert_eq!(bytes.len() as u64, left_bytes.min(wanted_bytes as u64), "read at {offset_bytes}");
        self.check_some(offset_bytes, bytes);
    }

    fn check_some(&self, offset_bytes: u64, bytes: &[u8]) {
        assert_eq!(self.pattern.mismatch(offset_bytes, bytes), None, "{} at {offset_bytes}", bytes.len());
    }
}

/// One thread of the world: its handles, what it has under way, and what it was lent and keeps.
pub(crate) struct Dweller<'a> {
    rig: &'a Rig,
    shelf: &'a Shelf,
    rng: Rng,
    handles: Vec<(File, Contents)>,
    under_way: Vec<(Reading, Asked)>,
    kept: Vec<(Bytes, Asked)>,
    /// Bytes read and checked.
    pub(crate) read_bytes: u64,
}

type Reading = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

#[derive(Clone, Copy)]
struct Asked {
    contents: Contents,
    offset_bytes: u64,
    length: usize,
}

impl<'a> Dweller<'a> {
    pub(crate) fn new(rig: &'a Rig, shelf: &'a Shelf, seed: u64) -> Dweller<'a> {
        let (handles, under_way, kept) = (Vec::new(), Vec::new(), Vec::new());
        Dweller { rig, shelf, rng: Rng::new(seed), handles, under_way, kept, read_bytes: 0 }
    }

    /// One operation.
    pub(crate) fn step(&mut self) {
        if self.handles.is_empty() {
            self.open();
        }
        match self.rng.below(16) {
            0 => self.open(),
            1 => self.close(),
            2..=5 => self.read_at(),
            6 => self.read_exact_at(),
            7 => self.scan(),
            8 => self.read_beside(),
            9 | 10 => self.begin(),
            11 => self.poll(),
            12 => self.abandon(),
            13 => self.finish(),
            _ => self.read_async(),
        }
        let arena = self.rig.engine.stats().arena;
        assert!(arena.mapped_bytes <= arena.budget_bytes, "I6: {arena:?}");
        assert!(arena.used_bytes + arena.cached_bytes <= arena.mapped_bytes, "I6: {arena:?}");
    }

    fn open(&mut self) {
        let contents = self.shelf.files[self.rng.below(self.shelf.files.len() as u64) as usize];
        let mode = [IoMode::Auto, IoMode::Direct, IoMode::Buffered][self.rng.below(3) as usize];
        match self.shelf.open(self.rig, &contents, mode) {
            Ok(file) => self.handles.push((file, contents)),
            Err(error) => assert_eq!(mode, IoMode::Direct, "{error}"),
        }
        if self.handles.len() > HANDLES_MAX {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.handles.is_empty() {
            let place = self.rng.below(self.handles.len() as u64) as usize;
            self.handles.swap_remove(place);
        }
    }

    /// A handle, and a range that begins within its file, or shortly behind.
    fn draw(&mut self) -> Option<(File, Asked)> {
        if self.handles.is_empty() {
            return None;
        }
        let (file, contents) = self.handles[self.rng.below(self.handles.len() as u64) as usize].clone();
        let length_max = [1, 600, 5000, 70_000, 70_000, 1_500_000][self.rng.below(6) as usize];
        let offset_bytes = match self.rng.below(8) {
            0 => 0,
            1 => contents.length_bytes.saturating_sub(self.rng.below(9000)),
            2 => contents.length_bytes + self.rng.below(9000),
            3 => self.rng.below(contents.length_bytes) / 4096 * 4096,
            _ => self.rng.below(contents.length_bytes),
        };
        let length = self.rng.below(length_max) as usize + usize::from(self.rng.chance(9, 10));
        Some((file, Asked { contents, offset_bytes, length }))
    }

    fn read_at(&mut self) {
        let Some((file, asked)) = self.draw() else { return };
        let mut buffer = vec![0xAA; asked.length + 7];
        let read_bytes = file.read_at(&mut buffer[..asked.length], asked.offset_bytes).unwrap();
        self.check(asked, &buffer[..read_bytes]);
        assert!(buffer[read_bytes..].iter().all(|&byte| byte == 0xAA), "padding shows");
    }

    fn read_exact_at(&mut self) {
        let Some((file, asked)) = self.draw() else { return };
        let mut buffer = vec![0; asked.length];
        let result = file.read_exact_at(&mut buffer, asked.offset_bytes);
        let fits = asked.offset_bytes + asked.length as u64 <= asked.contents.length_bytes;
        assert_eq!(result.is_ok(), fits || buffer.is_empty(), "{result:?}");
        if fits {
            self.check(asked, &buffer);
        }
    }

    /// A few reads that follow each other, forwards, backwards, or in steps.
    fn scan(&mut self) {
        let Some((file, mut asked)) = self.draw() else { return };
        asked.length = asked.length.min(100_000);
        let delta = [asked.length as i64, -(asked.length as i64), 3 * asked.length as i64];
        let delta = delta[self.rng.below(3) as usize];
        for _ in 0..self.rng.below(20) {
            let mut buffer = vec![0; asked.length];
            let read_bytes = file.read_at(&mut buffer, asked.offset_bytes).unwrap();
            self.check(asked, &buffer[..read_bytes]);
            let Some(next) = asked.offset_bytes.checked_add_signed(delta) else { return };
            asked.offset_bytes = next;
        }
    }

    /// A reader, which does without the cache.
    fn read_beside(&mut self) {
        let Some((file, asked)) = self.draw() else { return };
        let (mut reader, mut buffer) = (file.reader(), Vec::new());
        reader.seek(SeekFrom::Start(asked.offset_bytes)).unwrap();
        reader.take(asked.length as u64).read_to_end(&mut buffer).unwrap();
        self.check(asked, &buffer);
    }

    fn read_async(&mut self) {
        let Some((file, asked)) = self.draw() else { return };
        let bytes = block_on(file.read_at_async(asked.offset_bytes, asked.length)).unwrap();
        self.check(asked, &bytes);
        self.keep(bytes, asked);
    }

    fn begin(&mut self) {
        let Some((file, asked)) = self.draw() else { return };
        let reading: Reading = Box::pin(file.read_at_async(asked.offset_bytes, asked.length));
        self.under_way.push((reading, asked));
        self.poll();
        if self.under_way.len() > UNDER_WAY_MAX {
            self.abandon();
        }
    }

    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut done = Vec::new();
        self.under_way.retain_mut(|(reading, asked)| match reading.as_mut().poll(&mut context) {
            Poll::Ready(result) => {
                done.push((result.unwrap(), *asked));
                false
            }
            Poll::Pending => true,
        });
        for (bytes, asked) in done {
            self.check(asked, &bytes);
            self.keep(bytes, asked);
        }
    }

    fn abandon(&mut self) {
        if !self.under_way.is_empty() {
            let place = self.rng.below(self.under_way.len() as u64) as usize;
            drop(self.under_way.swap_remove(place));
        }
    }

    fn finish(&mut self) {
        let Some((reading, asked)) = self.under_way.pop() else { return };
        let bytes = block_on(reading).unwrap();
        self.check(asked, &bytes);
    }

    fn keep(&mut self, bytes: Bytes, asked: Asked) {
        self.kept.push((bytes, asked));
        if self.kept.len() > KEPT_MAX {
            let (bytes, asked) = self.kept.swap_remove(self.rng.below(KEPT_MAX as u64) as usize);
            asked.contents.check(asked.offset_bytes, asked.length, &bytes);
        }
    }

    fn check(&mut self, asked: Asked, bytes: &[u8]) {
        asked.contents.check(asked.offset_bytes, asked.length, bytes);
        self.read_bytes += bytes.len() as u64;
    }
}

/// Nothing is in use, and what is cached is what the files have.
pub(crate) fn assert_exact(rig: &Rig, files: &[File]) {
    rig.assert_idle();
    let stats: Vec<_> = files.iter().map(File::stats).collect();
    let resident: u64 = stats.iter().map(|stats| stats.resident_pages).sum();
    let loading: u64 = stats.iter().map(|stats| stats.loading_pages).sum();
    assert_eq!(loading, 0);
    assert_eq!(rig.engine.stats().arena.cached_bytes as u64, resident * 4096);
}

const HANDLES_MAX: usize = 6;
const UNDER_WAY_MAX: usize = 4;
const KEPT_MAX: usize = 24;
