//! Chunk index: a set of chunk numbers that finds its smallest and largest members quickly.
//!
//! ```text
//!   summary   bit w: word w is not zero          1 word for 4096 chunks (8 GiB)
//!   words     bit c: chunk c is a member         1 word for 64 chunks
//! ```
//!
//! Owns: membership. Does not own: what membership means.
//!
//! Invariants:
//!
//! - C1 A bit of the summary is set exactly if its word is not zero.
//!
//! Hot path: every operation touches one word of each level; `first` reads one word of the summary for 8 GiB.

use alloc::vec::Vec;

/// A set of chunk numbers below the number it was grown to.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkIndex {
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl ChunkIndex {
    /// Makes room for the chunks `0..chunk_count`; the only function that allocates.
    pub(super) fn grow(&mut self, chunk_count: usize) {
        self.words.resize(chunk_count.div_ceil(64), 0);
        self.summary.resize(self.words.len().div_ceil(64), 0);
    }

    pub(super) fn contains(&self, chunk: u32) -> bool {
        self.words[chunk as usize / 64] & bit(chunk as usize) != 0
    }

    pub(super) fn insert(&mut self, chunk: u32) {
        let word = chunk as usize / 64;
        self.words[word] |= bit(chunk as usize);
        self.summary[word / 64] |= bit(word);
    }

    pub(super) fn remove(&mut self, chunk: u32) {
        let word = chunk as usize / 64;
        self.words[word] &= !bit(chunk as usize);
        if self.words[word] == 0 {
            self.summary[word / 64] &= !bit(word);
        }
    }

    /// The smallest member.
    pub(super) fn first(&self) -> Option<u32> {
        let word = first_bit(&self.summary)?;
        let chunk = word * 64 + self.words[word].trailing_zeros() as usize;
        Some(chunk as u32)
    }

    /// The largest member.
    pub(super) fn last(&self) -> Option<u32> {
        let word = last_bit(&self.summary)?;
        let chunk = word * 64 + last_bit(&self.words[word..=word])?;
        Some(chunk as u32)
    }

    /// Asserts C1.
    pub(super) fn check(&self) {
        for (word, members) in self.words.iter().enumerate() {
            let is_summarised = self.summary[word / 64] & bit(word) != 0;
            assert!(is_summarised == (*members != 0), "C1: word {word}");
        }
    }
}

const fn bit(number: usize) -> u64 {
    1 << (number % 64)
}

fn first_bit(words: &[u64]) -> Option<usize> {
    let word = words.iter().position(|word| *word != 0)?;
    Some(word * 64 + words[word].trailing_zeros() as usize)
}

fn last_bit(words: &[u64]) -> Option<usize> {
    let word = words.iter().rposition(|word| *word != 0)?;
    Some(word * 64 + words[word].ilog2() as usize)
}
