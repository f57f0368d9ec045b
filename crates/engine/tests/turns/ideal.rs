//! Ideal: a program that keeps what it writes for a while, and does all that is asked of headwater, in the simplest way.
//!
//! ```text
//!   write ─► list of unwritten ranges ─ at a random moment, or a sync ─► pwrite of exactly these bytes
//!   read  ─► the file as it is in the kernel, unwritten ranges over it
//! ```
//!
//! The games are played with it too: what they find wrong with it is wrong with them.
//!
//! Owns: the unwritten ranges of each inode.
//! Does not own: turns.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use headwater_testkit::Rng;

/// The program, with all that it has open.
pub(crate) struct Ideal {
    inodes: Mutex<HashMap<(u64, u64), IdealFile>>,
}

/// A file of it; clones share it.
#[derive(Clone)]
pub(crate) struct IdealFile {
    shared: Arc<Shared>,
}

struct Shared {
    file: std::fs::File,
    unwritten: Mutex<(Ranges, Rng)>,
}

/// Offsets and bytes, in the order in which they were written.
type Ranges = Vec<(u64, Vec<u8>)>;

impl Ideal {
    pub(crate) fn new() -> Ideal {
        Ideal { inodes: Mutex::default() }
    }

    /// As long as it knows a file, the number of its inode belongs to that.
    pub(crate) fn open(&self, path: &Path) -> io::Result<IdealFile> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        let status = file.metadata()?;
        let unwritten = Mutex::new((Vec::new(), Rng::new(status.ino())));
        let opened = IdealFile { shared: Arc::new(Shared { file, unwritten }) };
        let mut inodes = self.inodes.lock().unwrap();
        inodes.retain(|_, known| Arc::strong_count(&known.shared) > 1 || known.is_dirty());
        Ok(inodes.entry((status.dev(), status.ino())).or_insert(opened).clone())
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.inodes.lock().unwrap().values().try_for_each(IdealFile::sync)
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.open(path)?.read()
    }
}

impl IdealFile {
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (unwritten, rng) = &mut *self.shared.unwritten.lock().unwrap();
        unwritten.push((offset, bytes.to_vec()));
        // Early, as a program does that has little memory: the oldest first.
        while !unwritten.is_empty() && rng.chance(1, 5) {
            let (offset, bytes) = unwritten.remove(0);
            self.shared.file.write_all_at(&bytes, offset)?;
        }
        Ok(())
    }

    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let end = self.len()?;
        self.write_all_at(bytes, end)?;
        Ok(end)
    }

    pub(crate) fn set_len(&self, length: u64) -> io::Result<()> {
        let (unwritten, _) = &mut *self.shared.unwritten.lock().unwrap();
        for (offset, bytes) in unwritten.iter_mut() {
            bytes.truncate(length.saturating_sub(*offset) as usize);
        }
        unwritten.retain(|(_, bytes)| !bytes.is_empty());
        self.shared.file.set_len(length)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        let (unwritten, _) = &mut *self.shared.unwritten.lock().unwrap();
        unwritten.drain(..).try_for_each(|(offset, bytes)| self.shared.file.write_all_at(&bytes, offset))
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        self.read().map(|bytes| bytes.len() as u64)
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let (unwritten, _) = &*self.shared.unwritten.lock().unwrap();
        let mut bytes = vec![0; self.shared.file.metadata()?.len() as usize];
        self.shared.file.read_exact_at(&mut bytes, 0)?;
        for (offset, written) in unwritten {
            let (start, end) = (*offset as usize, *offset as usize + written.len());
            bytes.resize(bytes.len().max(end), 0);
            bytes[start..end].copy_from_slice(written);
        }
        Ok(bytes)
    }

    fn is_dirty(&self) -> bool {
        !self.shared.unwritten.lock().unwrap().0.is_empty()
    }
}
