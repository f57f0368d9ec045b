//! Oracle: random accesses through handles, live views and snapshots, against a vector of bytes.
//!
//! Owns: which accesses are made, how often; what each must give.
//! Does not own: truncates and words under many threads (words).

use std::fmt::Debug;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use headwater::{Advice, ByteRange, Caching, File, IoMode, SharedView, View};
use headwater_testkit::{Rng, ScratchDir, with_seed};

use crate::open;
use crate::rig::{Rig, drivers, watched};

/// Goal: whatever is read and written through views and handles of all kinds, in whatever order, is what a vector of bytes has,
/// here and on disk, on every driver; also while pages are pinned, absent, written back and cut off.
#[test]
fn views_and_handles_agree() {
    with_seed("oracle::views_and_handles_agree", |seed| {
        let (mut rng, directory) = (Rng::new(seed), ScratchDir::on_target().unwrap());
        for (number, driver) in drivers(seed).into_iter().enumerate() {
            for case in 0..CASES {
                let rig = Rig::sized(driver.clone(), [3, 6, 64, 64][rng.below(4) as usize] << 20, 16);
                let path = directory.path().join(format!("{number}-{case}"));
                let mut actor = Actor::new(&rig, &path, Rng::new(rng.next_u64()));
                watched(rig.name(), || actor.act());
                drop(actor);
                rig.assert_idle();
            }
        }
    });
}

struct Actor {
    path: PathBuf,
    files: Vec<File>,
    views: Vec<SharedView>,
    /// Contiguous ones.
    windows: Vec<SharedView>,
    kept: Vec<(View, Vec<u8>)>,
    bytes: Vec<u8>,
    rng: Rng,
}

impl Actor {
    fn new(rig: &Rig, path: &Path, mut rng: Rng) -> Actor {
        let modes = [
            (IoMode::Auto, Caching::On),
            (IoMode::Buffered, Caching::On),
            (IoMode::Buffered, Caching::Off),
            (IoMode::Auto, Caching::Auto),
        ];
        let files: Vec<File> = modes.iter().map(|&(mode, caching)| open(rig, path, mode, caching)).collect();
        let ends = [(0, LENGTH_MAX), (0, 4096), (4096, 5000), (12_001, 90_000), (1000, LENGTH_MAX + 9000)];
        let views = ends.iter().map(|&(start, end)| {
            let file = &files[rng.below(files.len() as u64) as usize];
            file.map(ByteRange::new(start, end)).unwrap()
        });
        let views = views.collect();
        let (path, kept, windows, bytes) = (path.to_owned(), Vec::new(), Vec::new(), Vec::new());
        Actor { path, files, views, windows, kept, bytes, rng }
    }

    fn act(&mut self) {
        for step in 0..STEPS {
            match self.rng.below(21) {
                0..=3 => self.read_view(step),
                4..=6 => self.write_view(step),
                7 => self.load(step),
                8..=9 => self.change(step),
                10 => self.read_file(step),
                11..=12 => self.write_file(),
                13 => self.snapshot(),
                14 => self.set_len(),
                15..=18 => self.store(step),
                19 => self.open_window(),
                _ => self.rest(),
            }
        }
        self.compare_disk();
    }

    fn file(&mut self) -> File {
        self.files[self.rng.below(self.files.len() as u64) as usize].clone()
    }

    fn view(&mut self) -> SharedView {
        self.views[self.rng.below(self.views.len() as u64) as usize].clone()
    }

    fn length(&mut self) -> usize {
        [1, 8, 100, 4096, 5000, 30_000][self.rng.below(6) as usize]
    }

    fn fresh(&mut self, length: usize) -> Vec<u8> {
        let first = self.rng.next_u64();
        (0..length as u64).map(|at| (first.wrapping_add(at * 7) >> 3) as u8).collect()
    }

    /// A view and a range of it; where that lies in the file, and whether the file has it.
    fn span(&mut self, length: usize) -> (SharedView, u64, usize, bool) {
        let view = match self.windows.last() {
            Some(window) if self.rng.chance(1, 3) => window.clone(),
            _ => self.view(),
        };
        let length = length.min(view.len() as usize);
        let at = self.rng.below(view.len() - length as u64 + 1);
        let start = (view.range().start + at) as usize;
        (view, at, start, start + length <= self.bytes.len())
    }

    fn read_view(&mut self, step: usize) {
        let length = self.length();
        let (view, at, start, is_there) = self.span(length);
        let mut found = vec![0xAA; length.min(view.len() as usize)];
        let result = view.read(at, &mut found);
        if is_there {
            result.unwrap();
            assert!(found == self.bytes[start..start + found.len()], "{step}: {} at {start}", found.len());
        } else {
            self.check_end(result, start);
        }
    }

    fn write_view(&mut self, step: usize) {
        let length = self.length();
        let (view, at, start, is_there) = self.span(length);
        let bytes = self.fresh(length.min(view.len() as usize));
        let result = view.write(at, &bytes);
        if is_there {
            result.unwrap_or_else(|error| panic!("{step}: {error}"));
            self.bytes[start..start + bytes.len()].copy_from_slice(&bytes);
        } else {
            self.check_end(result, start);
        }
        assert_eq!(self.files[0].len().unwrap(), self.bytes.len() as u64);
    }

    fn load(&mut self, step: usize) {
        let (view, at, start, is_there) = self.span(8);
        let found = view.load_u64(at);
        if !is_there {
            return self.check_end(found, start);
        }
        let bytes = &self.bytes[start..start + 8];
        assert_eq!(found.unwrap().to_ne_bytes(), bytes, "{step}: at {start}");
        assert_eq!(view.load_u32(at).unwrap().to_ne_bytes(), bytes[..4]);
        assert_eq!(view.load_u16(at).unwrap().to_ne_bytes(), bytes[..2]);
        assert_eq!(view.load_u8(at).unwrap(), bytes[0]);
    }

    fn change(&mut self, step: usize) {
        let (view, mut at, mut start, mut is_there) = self.span(8);
        let after_word = start as u64 % 8;
        if at >= after_word && self.rng.chance(7, 8) {
            (at, start) = (at - after_word, start / 8 * 8);
            is_there = start + 8 <= self.bytes.len();
        }
        let (value, is_aligned) = (self.rng.next_u64(), start.is_multiple_of(8));
        if !is_aligned {
            let error = view.fetch_add_u64(at, value).unwrap_err();
            return assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        if !is_there {
            return self.check_end(view.compare_exchange_u64(at, value, 7), start);
        }
        let before = u64::from_ne_bytes(*self.bytes[start..].first_chunk().unwrap());
        let (found, after) = match self.rng.below(3) {
            0 => (view.fetch_add_u64(at, value).unwrap(), before.wrapping_add(value)),
            1 => (view.compare_exchange_u64(at, before, value).unwrap(), value),
            _ => (view.compare_exchange_u64(at, !before, value).unwrap(), before),
        };
        assert_eq!(found, before, "{step}: at {start}");
        self.bytes[start..start + 8].copy_from_slice(&after.to_ne_bytes());
    }

    fn read_file(&mut self, step: usize) {
        let (file, at) = (self.file(), self.rng.below(LENGTH_MAX) as usize);
        let mut found = vec![0; self.length()];
        let read_bytes = file.read_at(&mut found, at as u64).unwrap();
        let start = at.min(self.bytes.len());
        let expected = &self.bytes[start..(start + found.len()).min(self.bytes.len())];
        assert!(found[..read_bytes] == *expected, "{step}: {read_bytes} at {at}");
    }

    fn write_file(&mut self) {
        let length = self.length();
        let (file, bytes) = (self.file(), self.fresh(length));
        let at = self.rng.below(LENGTH_MAX - length as u64) as usize;
        file.write_all_at(&bytes, at as u64).unwrap();
        self.bytes.resize(self.bytes.len().max(at + length), 0);
        self.bytes[at..at + length].copy_from_slice(&bytes);
    }

    /// Pages that are pinned are replaced by who writes.
    fn snapshot(&mut self) {
        self.kept.iter().for_each(|(view, bytes)| assert!(view.to_vec() == *bytes, "a snapshot changed"));
        self.kept.truncate(3);
        let start = self.rng.below(self.bytes.len() as u64 + 1) as usize;
        let bytes = self.bytes[start..(start + 9000).min(self.bytes.len())].to_vec();
        let view = self.file().view(start as u64, bytes.len()).unwrap();
        self.kept.insert(0, (view, bytes));
    }

    fn open_window(&mut self) {
        if self.windows.len() > 1 || self.rng.chance(1, 2) {
            self.windows.drain(..self.windows.len().min(1));
            return;
        }
        let (start, length) = (self.rng.below(LENGTH_MAX), 1 + self.rng.below(40_000));
        match self.file().map_contiguous(ByteRange::at(start, length)) {
            Ok(window) => self.windows.push(window),
            Err(error) => {
                let expected = [ErrorKind::ResourceBusy, ErrorKind::OutOfMemory, ErrorKind::Unsupported];
                assert!(expected.contains(&error.kind()), "{error}");
            }
        }
    }

    /// Without a call, beyond the end too.
    fn store(&mut self, step: usize) {
        let Some(window) = self.windows.last() else { return };
        let (cells, start) = (window.as_cells().unwrap(), window.range().start as usize);
        for _ in 0..20 {
            let (at, value) = (self.rng.below(cells.len() as u64) as usize, self.rng.next_u64() as u8);
            if let Some(byte) = self.bytes.get_mut(start + at) {
                assert_eq!(cells[at].load(Ordering::Relaxed), *byte, "{step}: at {}", start + at);
                *byte = value;
            }
            cells[at].store(value, Ordering::Relaxed);
        }
        let is_there = start + 8 <= self.bytes.len() && window.len() >= 8;
        assert_eq!(window.load_u64(0).is_ok(), is_there, "{step}");
    }

    fn set_len(&mut self) {
        let length = if self.rng.chance(1, 3) { self.rng.below(LENGTH_MAX) } else { LENGTH_MAX };
        self.file().set_len(length).unwrap();
        self.bytes.resize(length as usize, 0);
    }

    fn rest(&mut self) {
        match self.rng.below(3) {
            0 => self.compare_disk(),
            1 => self.kept.clear(),
            _ => self.files[0].advise(Advice::DontNeed, ..).unwrap(),
        }
    }

    fn compare_disk(&mut self) {
        self.view().sync().unwrap();
        assert!(std::fs::read(&self.path).unwrap() == self.bytes, "the disk has something else");
    }

    /// What is missing is told with the path and the first offset that the file does not have.
    fn check_end<T: Debug>(&self, result: headwater::Result<T>, start: usize) {
        let error = result.unwrap_err();
        let offset_bytes = start.max(self.bytes.len()) as u64;
        assert_eq!(
            (error.kind(), error.offset_bytes()),
            (ErrorKind::UnexpectedEof, Some(offset_bytes)),
            "{error}"
        );
        assert_eq!(error.path(), Some(&*self.path));
    }
}

/// On each driver.
const CASES: usize = 4;
const STEPS: usize = 400;
const LENGTH_MAX: u64 = 120_000;
