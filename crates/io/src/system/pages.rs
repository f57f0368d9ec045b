//! Pages: how large the kernel's pages are, beside those of 4 KiB in which files are cached.
//!
//! Owns: the conversion of what the kernel counts, in pages of 4, 16 or 64 KiB.
//! Does not own: asking the kernel.

use std::io;

use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageRange};

/// The size of the kernel's pages: a power of two, of 4 KiB or more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SystemPages {
    size_bytes: u64,
}

impl SystemPages {
    /// Of this kernel: no system call.
    pub(crate) fn here() -> SystemPages {
        // Miri does not show a process what the kernel tells it.
        let size_bytes = if cfg!(miri) { PAGE_SIZE_BYTES } else { rustix::param::page_size() as u64 };
        SystemPages { size_bytes }
    }

    /// Where the kernel's page with this byte begins.
    pub(crate) fn start_of(self, offset_bytes: usize) -> usize {
        offset_bytes - offset_bytes % self.size_bytes as usize
    }

    /// How many of the kernel's pages a mapping of this length has.
    pub(crate) fn covering(self, bytes: usize) -> usize {
        bytes.div_ceil(self.size_bytes as usize)
    }

    /// How many pages of 4 KiB of the range are there, if the kernel counts `counted` of its own. All of them only if it counts all of
    /// its own; else fewer than all, and at most as many as fit into those that it counts.
    pub(crate) fn resident(self, range: ByteRange, counted: u64) -> u64 {
        let pages = PageRange::covering(range).len().get();
        let bytes = PageRange::covering(range).bytes();
        let whole = bytes.end.div_ceil(self.size_bytes) - bytes.start / self.size_bytes;
        if counted >= whole {
            return pages;
        }
        (counted * (self.size_bytes / PAGE_SIZE_BYTES)).min(pages.saturating_sub(1))
    }

    /// # Errors
    /// `Unsupported` where a page of 4 KiB cannot be protected, moved and looked up by itself.
    pub(crate) fn require_small(self) -> io::Result<()> {
        if self.size_bytes == PAGE_SIZE_BYTES {
            return Ok(());
        }
        let text = format!("live memory: the kernel has pages of {} KiB", self.size_bytes >> 10);
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZES: [u64; 3] = [4096, 16_384, 65_536];

    /// The kernel's answer for a range, with these of its pages in its cache, and how many pages of 4 KiB of the range they hold.
    fn counted(size_bytes: u64, range: ByteRange, cached: u64) -> (u64, u64) {
        let is_cached = |offset_bytes: u64| cached >> (offset_bytes / size_bytes) & 1 == 1;
        let offsets: Vec<u64> = PageRange::covering(range).iter().map(|page| page.start_bytes()).collect();
        let mut system: Vec<u64> = offsets.iter().map(|offset| offset / size_bytes).collect();
        system.dedup();
        let system = system.iter().filter(|&&page| is_cached(page * size_bytes)).count();
        (system as u64, offsets.into_iter().filter(|&offset| is_cached(offset)).count() as u64)
    }

    proptest! {
        /// Goal: a range counts as whole exactly if it is, as absent exactly if it is, on kernels with pages of each size; with pages of
        /// 4 KiB the count is exact. Method: any pages of the kernel's cached, against a model that looks at each.
        #[test]
        fn residency_does_not_depend_on_the_size_of_pages(
            size_bytes in prop::sample::select(&SIZES[..]),
            (start, length) in (0_u64..65_536, 1_u64..8 * 65_536),
            cached in prop::sample::select(vec![0, 1, 0b10, 0b1_1111_1110, 0b1011, u64::MAX]),
        ) {
            // Up to ten of the kernel's pages; the range begins in the first.
            let range = ByteRange::at(start % size_bytes, 1 + length % (8 * size_bytes));
            let (counted, expected) = counted(size_bytes, range, cached);
            let pages = PageRange::covering(range).len().get();
            let resident = SystemPages { size_bytes }.resident(range, counted);
            prop_assert_eq!(resident == pages, expected == pages);
            prop_assert_eq!(resident == 0, expected == 0);
            if size_bytes == PAGE_SIZE_BYTES {
                prop_assert_eq!(resident, expected);
            }
        }
    }

    /// Goal: a chunk of 2 MiB has as many of the kernel's pages as `mincore` answers for; where these are larger than 4 KiB, live memory
    /// is refused with a reason.
    #[test]
    fn larger_pages_are_fewer() {
        let chunk = SIZES.map(|size_bytes| SystemPages { size_bytes }.covering(2 << 20));
        assert_eq!(chunk, [512, 128, 32]);
        let starts = SIZES.map(|size_bytes| SystemPages { size_bytes }.start_of(135_170));
        assert_eq!(starts, [135_168, 131_072, 131_072]);
        let [small, middle, large] = SIZES.map(|size_bytes| SystemPages { size_bytes }.require_small());
        assert!(small.is_ok());
        for (refused, text) in [(middle, "16 KiB"), (large, "64 KiB")] {
            let error = refused.unwrap_err();
            assert!(
                error.kind() == io::ErrorKind::Unsupported && error.to_string().contains(text),
                "{error}"
            );
        }
    }
}
