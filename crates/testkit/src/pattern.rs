//! Pattern: file contents that are a pure function of a seed and the offset.
//!
//! Word `i` (eight bytes, little-endian) is output `i` of a splitmix64 stream started at the seed (Steele, Lea
//! and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). The output function is a bijection
//! and its input never repeats within 2^64 words, so no two words of one file are equal, hence no two pages:
//! data read from the wrong offset, of whatever alignment, cannot pass for the right one. The contents do not
//! compress, so a file system or a disk that compresses gains nothing.
//!
//! Owns: the contents and their comparison.
//! Does not own: files, beyond writing one from the start.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::rng::{GAMMA, mix};

/// The contents of a file of any length, known by its seed. Copies are free; nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    start: u64,
}

impl Pattern {
    /// The contents with this seed; other seeds give other bytes at every offset.
    #[must_use]
    pub const fn new(seed: u64) -> Pattern {
        // Mixed once, because streams of neighbouring raw seeds would be shifted copies of one another.
        Pattern { start: mix(seed.wrapping_add(GAMMA)) }
    }

    /// Fills `buf` with the bytes of the file from `offset` on; neither needs to be aligned.
    pub fn fill(&self, offset: u64, buf: &mut [u8]) {
        let (head, rest) = buf.split_at_mut(head_length(offset, buf.len()));
        self.fill_partial(offset, head);
        let mut index = (offset + head.len() as u64) / WORD;
        let (words, tail) = rest.as_chunks_mut::<{ WORD as usize }>();
        for word in words {
            *word = self.word(index);
            index += 1;
        }
        self.fill_partial(index * WORD, tail);
    }

    /// The byte at `offset`.
    #[must_use]
    pub fn byte(&self, offset: u64) -> u8 {
        self.word(offset / WORD)[(offset % WORD) as usize]
    }

    /// Compares `buf` with the bytes of the file from `offset` on. Returns the offset in the file (not in `buf`) of
    /// the first byte that differs, `None` when all agree.
    #[must_use]
    pub fn mismatch(&self, offset: u64, buf: &[u8]) -> Option<u64> {
        let (head, rest) = buf.split_at(head_length(offset, buf.len()));
        if let Some(wrong) = self.mismatch_bytes(offset, head) {
            return Some(wrong);
        }
        let first = (offset + head.len() as u64) / WORD;
        let (words, tail) = rest.as_chunks::<{ WORD as usize }>();
        for (index, word) in (first..).zip(words) {
            if *word != self.word(index) {
                return self.mismatch_bytes(index * WORD, word);
            }
        }
        self.mismatch_bytes((first + words.len() as u64) * WORD, tail)
    }

    /// Creates or replaces the file at `path` with the first `length_bytes` bytes, written in blocks of 1 MiB, and
    /// syncs it. The file's pages may stay in the kernel's cache: see [`crate::make_cold`].
    ///
    /// # Errors
    /// What creating, writing or syncing reports; the file may then be shorter than asked.
    pub fn write_file(&self, path: impl AsRef<Path>, length_bytes: u64) -> io::Result<()> {
        let mut file = File::create(path)?;
        let mut block = vec![0; BLOCK_BYTES];
        let mut offset = 0;
        while offset < length_bytes {
            let count = (length_bytes - offset).min(BLOCK_BYTES as u64);
            let part = &mut block[..count as usize];
            self.fill(offset, part);
            file.write_all(part)?;
            offset += count;
        }
        file.sync_all()
    }

    fn word(&self, index: u64) -> [u8; WORD as usize] {
        mix(self.start.wrapping_add(index.wrapping_mul(GAMMA))).to_le_bytes()
    }

    fn fill_partial(&self, offset: u64, buf: &mut [u8]) {
        for (at, byte) in (offset..).zip(buf) {
            *byte = self.byte(at);
        }
    }

    fn mismatch_bytes(&self, offset: u64, buf: &[u8]) -> Option<u64> {
        (offset..).zip(buf).find(|&(at, &byte)| byte != self.byte(at)).map(|(at, _)| at)
    }
}

/// How many bytes from `offset` on lie before the next word, at most `limit`.
fn head_length(offset: u64, limit: usize) -> usize {
    (offset.wrapping_neg() % WORD).min(limit as u64) as usize
}

/// Bytes in a word of the stream.
const WORD: u64 = 8;

/// One write: large enough that the file system allocates long extents, small enough for the CPU's cache.
const BLOCK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rng, with_seed};

    /// Goal: `fill` agrees with the byte-by-byte definition. Method: random unaligned pieces.
    #[test]
    fn fill_at_any_offset_agrees_with_byte() {
        with_seed("pattern::tests::fill_at_any_offset_agrees_with_byte", |seed| {
            let (pattern, mut rng) = (Pattern::new(seed), Rng::new(seed));
            for _ in 0..500 {
                let offset = rng.below(1 << 40);
                let mut piece = vec![0; rng.below(60) as usize];
                pattern.fill(offset, &mut piece);
                for (at, &byte) in (offset..).zip(&piece) {
                    assert_eq!(byte, pattern.byte(at), "offset {at}");
                }
                assert_eq!(pattern.mismatch(offset, &piece), None);
            }
        });
    }

    /// Goal: the first wrong byte is named, in the head, the words and the tail alike.
    #[test]
    fn mismatch_names_the_first_wrong_offset() {
        let pattern = Pattern::new(7);
        let mut piece = [0; 43];
        for wrong in 0..piece.len() {
            pattern.fill(1003, &mut piece);
            piece[wrong] ^= 0x40;
            piece[piece.len() - 1] ^= 0x80;
            assert_eq!(pattern.mismatch(1003, &piece), Some(1003 + wrong as u64));
        }
    }

    /// Goal: a page of one file is found neither elsewhere in it nor in another. Method: compare 4096 pages.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn pages_differ_between_offsets_and_seeds() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..4 {
            for page in 0..1024 {
                let mut bytes = vec![0; 4096];
                Pattern::new(seed).fill(page * 4096, &mut bytes);
                assert!(seen.insert(bytes), "page {page} of seed {seed} is not new");
            }
        }
    }

    /// Goal: a file has the contents and length asked for, across the block boundary.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn write_file_writes_the_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let length = BLOCK_BYTES as u64 * 2 + 4097;
        Pattern::new(3).write_file(&path, length).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, length);
        assert_eq!(Pattern::new(3).mismatch(0, &bytes), None);
    }
}
