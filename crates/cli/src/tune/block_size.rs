//! Block size: the preferred block size that a file system reports (`st_blksize`), checked.

use headwater_core::units::PAGE_SIZE_BYTES;
use serde::Serialize;

use crate::shared::units::readable;

/// The size that `stat(2)` reports, and the size used instead if that is implausible.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockSize {
    pub(crate) said_bytes: u64,
    pub(crate) taken_bytes: u64,
}

impl BlockSize {
    /// Checks a reported size: some file systems report 0, others sizes that no buffer can have.
    pub(crate) fn of(said_bytes: u64) -> BlockSize {
        let is_sound = said_bytes.is_power_of_two() && (BYTES_MIN..=BYTES_MAX).contains(&said_bytes);
        BlockSize { said_bytes, taken_bytes: if is_sound { said_bytes } else { PAGE_SIZE_BYTES } }
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

/// A sector, the smallest transfer of any device.
const BYTES_MIN: u64 = 512;

/// The largest size that network file systems report.
const BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: plausible sizes are used; zero and implausible ones become a page, and the text says so.
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
