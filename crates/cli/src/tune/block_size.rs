//! Block size: what a file system says it prefers (`st_blksize`), and what is made of it.

use headwater_core::units::PAGE_SIZE_BYTES as PAGE_BYTES;
use serde::Serialize;

use crate::shared::units::readable;

/// What `stat(2)` said, and what is taken instead where that is nonsense.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockSize {
    pub(crate) said_bytes: u64,
    pub(crate) taken_bytes: u64,
}

impl BlockSize {
    /// Some file systems say 0, and some numbers that no buffer can have.
    pub(crate) fn of(said_bytes: u64) -> BlockSize {
        let is_sound = said_bytes.is_power_of_two() && (BYTES_MIN..=BYTES_MAX).contains(&said_bytes);
        BlockSize { said_bytes, taken_bytes: if is_sound { said_bytes } else { PAGE_BYTES } }
    }

    pub(crate) fn words(self) -> String {
        let BlockSize { said_bytes, taken_bytes } = self;
        if said_bytes == taken_bytes {
            return format!("preferred block (st_blksize) {}", readable(taken_bytes));
        }
        let taken = readable(taken_bytes);
        format!(
            "preferred block (st_blksize) {said_bytes}, which is no size for a block: {taken} taken instead"
        )
    }
}

/// A sector: the least that any device transfers.
const BYTES_MIN: u64 = 512;

/// What network file systems ask for at most.
const BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sound sizes are taken, zero and nonsense become a page, and that is said.
    #[test]
    fn nonsense_is_replaced_and_said() {
        for sound in [512, 4096, 65_536, 1 << 20, 64 << 20] {
            assert_eq!(BlockSize::of(sound).taken_bytes, sound);
            assert!(!BlockSize::of(sound).words().contains("instead"));
        }
        for nonsense in [0, 1, 256, 4097, 12_288, 1 << 40, u64::MAX] {
            let block = BlockSize::of(nonsense);
            assert_eq!(block.taken_bytes, 4096, "{nonsense}");
            assert!(block.words().contains(&format!("{nonsense}, which is no size")), "{}", block.words());
        }
    }
}
