//! Layout: how large the files on the disk are and what is in them; the same for the guest and for the host.

/// Four times what ax-fs-ng caches of a file (512 pages), and some seconds of reading page by page in an emulated
/// machine: 128 MiB would take minutes and ask the same 16 times over.
pub const FILE_BYTES: usize = 8 << 20;

/// As many files, or places in one file, are read by turns.
pub const STREAMS: usize = 4;

/// Long enough that how a reader begins is a small part of it.
pub const LONG_BYTES: usize = 8 * FILE_BYTES;

/// A file to write to, twice as large as the smallest cache.
pub const WRITES_PATH: &str = "/writes";
pub const WRITES_BYTES: usize = 4 << 20;

pub const WORD_BYTES: usize = size_of::<u64>();

/// Every path has content of its own, so that a page of another file is seen to be wrong. FNV-1a, 64 bits.
pub fn seed(path: &str) -> u64 {
    path.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The word of that index in a file: the finalizer of SplitMix64 (Steele, Lea and Flood 2014), after which neighbours
/// share no bits.
pub fn word(seed: u64, index: usize) -> u64 {
    let value = seed ^ index as u64;
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
