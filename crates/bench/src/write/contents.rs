//! Contents: pages that hold their own number and a version, so that every byte of a file can be checked.
//!
//! A page is noise, the same for every 256th page, behind a word: the page's number and a version. Stamping costs one store
//! for each page, so it does not show in what is measured.
//!
//! Owns: what a page holds, making a file of them, the check of every byte.
//! Does not own: the writers.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use headwater_testkit::Rng;

use super::PIECE_BYTES;
use crate::pages::{AlignedBuffer, PAGE};
use crate::tools;

/// A piece of noise, aligned for O_DIRECT.
pub(super) struct Contents {
    piece: AlignedBuffer,
}

impl Contents {
    pub(super) fn new() -> Contents {
        let (mut piece, mut rng) = (AlignedBuffer::new(PIECE_BYTES), Rng::new(NOISE_SEED));
        piece.bytes().as_chunks_mut().0.iter_mut().for_each(|word| *word = rng.next_u64().to_le_bytes());
        Contents { piece }
    }

    /// The pages from `first`, a multiple of a piece's, in this version.
    pub(super) fn piece(&mut self, first: u32, version: u32) -> &[u8] {
        let pages = self.piece.bytes().as_chunks_mut::<{ PAGE as usize }>().0;
        (first..).zip(pages).for_each(|(page, bytes)| stamp(bytes, page, version));
        self.piece.bytes()
    }

    pub(super) fn page(&mut self, page: u32, version: u32) -> &[u8] {
        let start = page as usize % PAGES_A_PIECE * PAGE as usize;
        let bytes = &mut self.piece.bytes()[start..start + PAGE as usize];
        stamp(bytes, page, version);
        bytes
    }
}

/// The page that the bytes begin with says it is.
pub(super) fn page_of(bytes: &[u8]) -> u32 {
    word_of(bytes) as u32
}

fn version_of(bytes: &[u8]) -> u32 {
    (word_of(bytes) >> u32::BITS) as u32
}

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a page has a first word"))
}

fn stamp(bytes: &mut [u8], page: u32, version: u32) {
    let word = u64::from(version) << u32::BITS | u64::from(page);
    bytes[..size_of::<u64>()].copy_from_slice(&word.to_le_bytes());
}

/// Makes a file that has all its blocks, durably and cold.
pub(super) fn make(path: &Path, length_bytes: u64) -> io::Result<()> {
    let (file, mut contents) = (File::create(path)?, Contents::new());
    for offset_bytes in (0..length_bytes).step_by(PIECE_BYTES) {
        file.write_all_at(contents.piece((offset_bytes / PAGE) as u32, 0), offset_bytes)?;
    }
    tools::make_cold(path)
}

/// Reads the file from the device and compares every byte. A page whose version is `None` may have any.
pub(super) fn check(path: &Path, length_bytes: u64, version: impl Fn(u32) -> Option<u32>) -> io::Result<()> {
    tools::make_cold(path)?;
    let mut file = File::open(path)?;
    let found_bytes = file.metadata()?.len();
    if found_bytes != length_bytes {
        return Err(wrong(path, &format!("{found_bytes} bytes, not {length_bytes}")));
    }
    let (mut contents, mut bytes) = (Contents::new(), vec![0; PIECE_BYTES]);
    for first in (0..(length_bytes / PAGE) as u32).step_by(PAGES_A_PIECE) {
        file.read_exact(&mut bytes)?;
        for (page, bytes) in (first..).zip(bytes.as_chunks::<{ PAGE as usize }>().0) {
            let found = version_of(bytes);
            if bytes != contents.page(page, version(page).unwrap_or(found)) {
                return Err(wrong(path, &format!("other bytes in page {page}, version {found}")));
            }
        }
    }
    tools::make_cold(path)
}

fn wrong(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

const PAGES_A_PIECE: usize = PIECE_BYTES / PAGE as usize;

/// Any: devices that compress find nothing.
const NOISE_SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a single wrong byte, a page of another version and a wrong length are found.
    #[test]
    fn the_check_finds_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        make(&path, 2 << 20).unwrap();
        check(&path, 2 << 20, |_| Some(0)).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(Contents::new().page(300, 7), 300 * PAGE).unwrap();
        check(&path, 2 << 20, |page| Some(if page == 300 { 7 } else { 0 })).unwrap();
        check(&path, 2 << 20, |_| None).unwrap();
        assert!(check(&path, 2 << 20, |_| Some(0)).is_err());
        assert!(check(&path, 1 << 20, |_| None).is_err());
        file.write_all_at(&[1, 2], 511 * PAGE + 500).unwrap();
        assert!(check(&path, 2 << 20, |_| None).is_err());
    }
}
