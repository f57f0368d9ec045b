//! Bounds: numbers as they go wrong, near zero and near where a type, a file or a page ends.

use arbitrary::Arbitrary;

/// A number that is small, near a bound, or any.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    /// Up to sixteen pages.
    Small(u16),
    /// A bound and a distance from it.
    Near(u8, i8),
    /// Any.
    Any(u64),
}

impl Number {
    /// The number; near a bound it wraps around.
    pub fn get(self) -> u64 {
        match self {
            Number::Small(number) => u64::from(number),
            Number::Near(bound, distance) => {
                BOUNDS[usize::from(bound) % BOUNDS.len()].wrapping_add_signed(i64::from(distance))
            }
            Number::Any(number) => number,
        }
    }

    /// The number, or one that keeps its last bits and is below `limit`, a power of two.
    pub fn below(self, limit: u64) -> u64 {
        self.get() & (limit - 1)
    }

    /// The number if a request of that size is cheap: `little` at the most, or more than any machine has.
    pub fn cheap(self, little: u64) -> u64 {
        let number = self.get();
        if number <= little || number >= MORE_THAN_THERE_IS { number } else { number % (little + 1) }
    }
}

/// More than an address space, a disk or a memory has.
pub const MORE_THAN_THERE_IS: u64 = 1 << 48;

const BOUNDS: [u64; 20] = [
    512,
    4096,
    8192,
    64 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
    1 << 31,
    1 << 32,
    1 << 40,
    // Where ext4 ends.
    1 << 44,
    // The last page of any offset, and the pages that frames can number.
    1 << 52,
    1 << 56,
    (1 << 56) - 4096,
    // The last whole page that a file can have.
    (1 << 63) - 8192,
    (1 << 63) - 4096,
    1 << 63,
    u64::MAX - 8191,
    u64::MAX - 4095,
    0,
];
