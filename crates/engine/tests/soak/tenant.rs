//! Tenant: one thread with a file of its own, which it reads and writes through live windows, lists of reads, snapshots and whole
//! reads, while listeners hear of what leaves.
//!
//! Owns: what neither the readers of the world nor the writers of the oracle do.
//! Does not own: who does it, and for how long.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater::{
    Advice, ByteRange, Caching, EvictionListener, File, ManyRead, OpenOptions, SharedView, View,
};
use headwater_testkit::Rng;

use crate::rig::Rig;

pub(crate) struct Tenant<'a> {
    rig: &'a Rig,
    path: PathBuf,
    file: File,
    /// What the file has.
    bytes: Vec<u8>,
    windows: Vec<SharedView>,
    snapshots: Vec<(View, Vec<u8>)>,
    listeners: Vec<EvictionListener>,
    heard_pages: Arc<AtomicU64>,
    rng: Rng,
}

impl<'a> Tenant<'a> {
    pub(crate) fn new(rig: &'a Rig, path: &Path, seed: u64) -> Tenant<'a> {
        let mut rng = Rng::new(seed);
        let bytes = fresh(&mut rng, LENGTH);
        fs::write(path, &bytes).unwrap();
        let (windows, snapshots, listeners) = (Vec::new(), Vec::new(), Vec::new());
        let (path, file, heard_pages) = (path.to_owned(), open(rig, path), Arc::default());
        Tenant { rig, path, file, bytes, windows, snapshots, listeners, heard_pages, rng }
    }

    /// One operation.
    pub(crate) fn step(&mut self) {
        match self.rng.below(16) {
            0..=2 => self.read_window(),
            3..=5 => self.write_window(),
            6 => self.open_window(),
            7..=8 => self.read_many(),
            9 => self.read_whole(),
            10 => self.take_snapshot(),
            11 => self.listen(),
            12 => self.file.sync_data().unwrap(),
            13 => self.file.advise(Advice::DontNeed, ..).unwrap(),
            14 => self.file = open(self.rig, &self.path),
            _ => self.write(),
        }
    }

    /// Lets go of all it has.
    pub(crate) fn leave(self) -> u64 {
        self.file.sync_all().unwrap();
        assert!(fs::read(&self.path).unwrap() == self.bytes, "the disk has something else");
        self.snapshots
            .iter()
            .for_each(|(view, bytes)| assert!(view.to_vec() == *bytes, "a snapshot changed"));
        self.heard_pages.load(Ordering::Relaxed)
    }

    fn open_window(&mut self) {
        if self.windows.len() > WINDOWS_MAX {
            self.windows.remove(0);
        }
        let (start, end) = self.range();
        let range = ByteRange::new(start as u64, end as u64);
        if self.rng.chance(1, 2) {
            return self.windows.push(self.file.map(range).unwrap());
        }
        match self.file.map_contiguous(range) {
            Ok(window) => self.windows.push(window),
            Err(error) => {
                let expected = [ErrorKind::ResourceBusy, ErrorKind::OutOfMemory, ErrorKind::Unsupported];
                assert!(expected.contains(&error.kind()), "{error}");
            }
        }
    }

    /// A window, where a part of it begins, and the same place of the file, and how long the part is.
    fn window(&mut self) -> Option<(SharedView, usize, usize, usize)> {
        let window = self.windows.get(self.rng.below(WINDOWS_MAX as u64) as usize)?.clone();
        let at = self.rng.below(window.len()) as usize;
        let length = 1 + self.rng.below(window.len() - at as u64) as usize;
        let start = window.range().start as usize + at;
        Some((window, at, start, length))
    }

    fn read_window(&mut self) {
        let Some((window, at, start, length)) = self.window() else { return };
        let mut found = vec![0; length];
        window.read(at as u64, &mut found).unwrap();
        assert!(found == self.bytes[start..start + length], "a window has something else at {start}");
    }

    fn write_window(&mut self) {
        let Some((window, at, start, length)) = self.window() else { return };
        let new = fresh(&mut self.rng, length.min(LENGTH_WRITTEN_MAX));
        window.write(at as u64, &new).unwrap();
        self.bytes[start..start + new.len()].copy_from_slice(&new);
    }

    fn write(&mut self) {
        let (start, end) = self.range();
        let new = fresh(&mut self.rng, (end - start).min(LENGTH_WRITTEN_MAX));
        self.file.write_all_at(&new, start as u64).unwrap();
        self.bytes[start..start + new.len()].copy_from_slice(&new);
    }

    fn read_many(&mut self) {
        let ranges: Vec<(usize, usize)> = (0..8).map(|_| self.range()).collect();
        let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|(start, end)| vec![0; end - start]).collect();
        let places = ranges.iter().map(|(start, _)| *start as u64);
        let mut reads: Vec<_> =
            places.zip(&mut buffers).map(|(start, buffer)| ManyRead::new(start, buffer)).collect();
        self.file.read_many(&mut reads).unwrap();
        for (buffer, (start, end)) in buffers.iter().zip(ranges) {
            assert!(*buffer == self.bytes[start..end], "a list has something else at {start}");
        }
    }

    /// Which is what the disk has: a sync first.
    fn read_whole(&mut self) {
        self.file.sync_data().unwrap();
        assert!(self.rig.engine.read(&self.path).unwrap() == self.bytes, "the whole is something else");
    }

    fn take_snapshot(&mut self) {
        let (start, end) = self.range();
        let view = self.file.view(start as u64, end - start).unwrap();
        self.snapshots.push((view, self.bytes[start..end].to_vec()));
        if self.snapshots.len() > SNAPSHOTS_MAX {
            let (view, bytes) = self.snapshots.remove(0);
            assert!(view.to_vec() == bytes, "a snapshot changed");
        }
    }

    fn listen(&mut self) {
        let heard = self.heard_pages.clone();
        let listener = self.file.on_evicted(move |pages| {
            heard.fetch_add(pages.iter().count() as u64, Ordering::Relaxed);
        });
        self.listeners.push(listener);
        if self.listeners.len() > LISTENERS_MAX {
            drop(self.listeners.remove(0));
        }
    }

    fn range(&mut self) -> (usize, usize) {
        let start = self.rng.below(LENGTH as u64 - 1) as usize;
        let length_max = [8, 5000, 5000, 60_000][self.rng.below(4) as usize];
        (start, (start + 1 + self.rng.below(length_max) as usize).min(LENGTH))
    }
}

fn open(rig: &Rig, path: &Path) -> File {
    OpenOptions::new().engine(&rig.engine).caching(Caching::On).write(true).open(path).unwrap()
}

fn fresh(rng: &mut Rng, length: usize) -> Vec<u8> {
    let first = rng.next_u64();
    (0..length as u64).map(|at| (first.wrapping_add(at * 7) >> 3) as u8).collect()
}

const LENGTH: usize = 400_000;
const LENGTH_WRITTEN_MAX: usize = 30_000;
const WINDOWS_MAX: usize = 4;
const SNAPSHOTS_MAX: usize = 6;
const LISTENERS_MAX: usize = 3;
