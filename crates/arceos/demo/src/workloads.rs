//! Workloads: lists of reads, and how each is begun and paced.
//!
//! Owns: what is read, in which order, in reads of which size.
//! Does not own: the ways to read (`arms`), timing and counting (`measure`).

use alloc::vec::Vec;

use crate::layout::{FILE_BYTES, LONG_BYTES, STREAMS, word};

pub struct Workload {
    pub name: &'static str,
    /// Names in the arm's directory; reads give an index into these.
    pub files: &'static [&'static str],
    pub reads: fn() -> Vec<Read>,
    pub start: Start,
    pub pace: Pace,
}

#[derive(Clone, Copy)]
pub struct Read {
    pub file: usize,
    pub offset: usize,
    pub bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing of the files has been read.
    Cold,
    /// The same reads have been done once, by the same arm, with the same open files.
    Again,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// One read after the other.
    Pure,
    /// The same, and how long a read takes is how long computing readers compute.
    Calibrating,
    /// After each read the reader computes; over all reads for as long as pure reading took.
    Computing,
}

/// Each is done by each arm, in this order.
pub const WORKLOADS: [Workload; 9] = [
    cold("fio read 4 KiB", &["small"], || sequential(FILE_BYTES, PAGE_BYTES)),
    cold("dd 1 MiB", &["large"], || sequential(FILE_BYTES, 1 << 20)),
    cold("mixed 4 KiB", &["mixed"], mixed),
    cold("fio randread 4 KiB", &["random"], random),
    cold("4 streams, one file", &["streams"], streams),
    cold("4 files in turn", &["apart0", "apart1", "apart2", "apart3"], files_in_turn),
    Workload { pace: Pace::Calibrating, ..cold("pure reader", &["long"], long) },
    Workload { pace: Pace::Computing, ..cold("computing reader", &["compute"], long) },
    Workload {
        start: Start::Again,
        ..cold("sequential again", &["again"], || sequential(FILE_BYTES, PAGE_BYTES))
    },
];

const fn cold(name: &'static str, files: &'static [&'static str], reads: fn() -> Vec<Read>) -> Workload {
    Workload { name, files, reads, start: Start::Cold, pace: Pace::Pure }
}

/// From the beginning to the end, as `fio` (4 KiB) and `dd` (1 MiB) read.
fn sequential(length: usize, bytes: usize) -> Vec<Read> {
    (0..length / bytes).map(|index| Read { file: 0, offset: index * bytes, bytes }).collect()
}

/// The first half of the file in order, and between each two reads one from a random place in the second half. No page
/// is read twice, so the number of requests says what was read ahead and nothing else.
fn mixed() -> Vec<Read> {
    let half = PAGES / 2;
    (0..half).zip(shuffled(half)).flat_map(|(first, second)| [page(first), page(half + second)]).collect()
}

/// No page twice, as `fio` does it.
fn random() -> Vec<Read> {
    shuffled(PAGES).into_iter().take(RANDOM_READS).map(page).collect()
}

/// One file, read in order from several places at once, through one handle.
fn streams() -> Vec<Read> {
    (0..PAGES).flat_map(|index| (0..STREAMS).map(move |stream| page(stream * PAGES + index))).collect()
}

/// As much, from as many files, one after the other.
fn files_in_turn() -> Vec<Read> {
    (0..STREAMS).flat_map(|file| (0..PAGES).map(move |index| Read { file, ..page(index) })).collect()
}

fn long() -> Vec<Read> {
    sequential(LONG_BYTES, PAGE_BYTES)
}

fn page(index: usize) -> Read {
    Read { file: 0, offset: index * PAGE_BYTES, bytes: PAGE_BYTES }
}

/// The numbers below `count` in an order that is the same each time (Fisher and Yates).
fn shuffled(count: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        numbers.swap(last, (word(SEED, last) % (last as u64 + 1)) as usize);
    }
    numbers
}

const PAGE_BYTES: usize = 4096;
const PAGES: usize = FILE_BYTES / PAGE_BYTES;
/// Half of the pages: two seconds where the disk serves 500 requests a second.
const RANDOM_READS: usize = PAGES / 2;
/// Any number; with another one the requests of the random workloads may differ.
const SEED: u64 = 0x6865_6164;
