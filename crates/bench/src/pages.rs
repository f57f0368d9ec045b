//! Pages: where random reads go, in which order, and memory for them.
//!
//! Owns: places, orders, alignment.
//! Does not own: reading.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Instant;

use headwater_testkit::Rng;

pub(crate) use headwater_core::units::PAGE_SIZE_BYTES as PAGE;

/// Reads pages until time is up; how many bytes that were.
pub(crate) fn random_loop(
    mut offsets: Offsets,
    seconds: f64,
    mut read: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < seconds {
        read(offsets.next())?;
        bytes += PAGE;
    }
    Ok(bytes)
}

/// Page-aligned offsets in a pseudo-random order, another in every run: what lies below the page cache, a controller or a
/// host, remembers what was read. Of a file on a virtual disk, fio read pages new to the host at 9 k/s and others at 77 k/s.
pub(crate) struct Offsets {
    rng: Rng,
    pages: u64,
}

impl Offsets {
    pub(crate) fn new(seed: u64, length_bytes: u64) -> Offsets {
        Offsets::known(RandomState::new().hash_one(seed), length_bytes)
    }

    /// The same order for the same seed in every run.
    pub(crate) fn known(seed: u64, length_bytes: u64) -> Offsets {
        Offsets { rng: Rng::new(seed), pages: (length_bytes / PAGE).max(1) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.rng.below(self.pages) * PAGE
    }
}

/// Fisher and Yates.
pub(crate) fn shuffle(items: &mut [u32], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

/// Memory aligned for O_DIRECT.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
}

impl AlignedBuffer {
    pub(crate) fn new(length_bytes: usize) -> AlignedBuffer {
        AlignedBuffer { memory: vec![0; length_bytes + PAGE as usize] }
    }

    pub(crate) fn of_a_page() -> AlignedBuffer {
        AlignedBuffer::new(PAGE as usize)
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let lead = self.memory.as_ptr().align_offset(PAGE as usize);
        let length_bytes = self.memory.len() - PAGE as usize;
        &mut self.memory[lead..lead + length_bytes]
    }
}
