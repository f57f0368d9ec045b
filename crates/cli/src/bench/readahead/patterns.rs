//! Patterns: in which order a file is read.
//!
//! Owns: names, and the place of each read as a function of its number.
//! Does not own: the reader, when it ends for lack of time.

use headwater_core::units::PAGE_SIZE_BYTES as PAGE;

use crate::shared::random::mixed;

/// An order of reads, as programs have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pattern {
    Sequential {
        bytes: u64,
    },
    /// Readers of parts of the file that take turns on one descriptor.
    Streams {
        count: u64,
    },
    Backward {
        bytes: u64,
    },
    /// A read every this number of bytes.
    Stride {
        bytes: u64,
        every_bytes: u64,
    },
    /// 64 KiB in pages, then on by 1 MiB.
    Runs,
    Random {
        bytes: u64,
    },
    /// From start to end by a consumer that computes (BLAKE3).
    Hash,
}

/// What a pattern is laid out on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) file_bytes: u64,
    /// Reads of patterns that touch places, at most.
    pub(super) places: u64,
    /// Of random orders.
    pub(super) seed: u64,
}

impl Pattern {
    pub(super) const ALL: [Pattern; 12] = [
        Pattern::Sequential { bytes: PAGE },
        Pattern::Sequential { bytes: 1 << 20 },
        Pattern::Streams { count: 4 },
        Pattern::Streams { count: 8 },
        Pattern::Backward { bytes: PAGE },
        Pattern::Backward { bytes: 16 * PAGE },
        Pattern::Stride { bytes: PAGE, every_bytes: 64 * PAGE },
        Pattern::Stride { bytes: 16 * PAGE, every_bytes: 128 * PAGE },
        Pattern::Runs,
        Pattern::Random { bytes: PAGE },
        Pattern::Random { bytes: 16 * PAGE },
        Pattern::Hash,
    ];

    /// Stable, for the child's command line and the JSON.
    pub(super) fn id(self) -> &'static str {
        match self {
            Pattern::Sequential { bytes: PAGE } => "sequential-4k",
            Pattern::Sequential { .. } => "sequential-1m",
            Pattern::Streams { count: 4 } => "streams-4",
            Pattern::Streams { .. } => "streams-8",
            Pattern::Backward { bytes: PAGE } => "backward-4k",
            Pattern::Backward { .. } => "backward-64k",
            Pattern::Stride { bytes: PAGE, .. } => "stride-64",
            Pattern::Stride { .. } => "stride-128",
            Pattern::Runs => "runs",
            Pattern::Random { bytes: PAGE } => "random-4k",
            Pattern::Random { .. } => "random-64k",
            Pattern::Hash => "hash",
        }
    }

    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self.id() {
            "sequential-4k" => "sequential, 4 KiB",
            "sequential-1m" => "sequential, 1 MiB",
            "streams-4" => "4 streams, 16 KiB",
            "streams-8" => "8 streams, 16 KiB",
            "backward-4k" => "backward, 4 KiB",
            "backward-64k" => "backward, 64 KiB",
            "stride-64" => "4 KiB every 64 pages",
            "stride-128" => "64 KiB every 128 pages",
            "runs" => "runs of 64 KiB every 1 MiB",
            "random-4k" => "random, 4 KiB",
            "random-64k" => "random, 64 KiB",
            _ => "64 KiB into BLAKE3",
        }
    }

    /// Of one read.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Pattern::Sequential { bytes } | Pattern::Backward { bytes } | Pattern::Random { bytes } => bytes,
            Pattern::Stride { bytes, .. } => bytes,
            Pattern::Streams { .. } => 4 * PAGE,
            Pattern::Runs => PAGE,
            Pattern::Hash => 16 * PAGE,
        }
    }

    /// How many reads there are: no byte is read twice but by accident.
    pub(super) fn reads(self, layout: Layout) -> u64 {
        let whole = layout.file_bytes / self.bytes();
        match self {
            Pattern::Sequential { .. } | Pattern::Backward { .. } | Pattern::Hash => whole,
            Pattern::Streams { count } => whole / count * count,
            Pattern::Stride { bytes, every_bytes } => {
                ((layout.file_bytes + every_bytes - bytes) / every_bytes).min(layout.places)
            }
            Pattern::Runs => {
                let runs = (layout.file_bytes + RUN_EVERY_BYTES - RUN_BYTES) / RUN_EVERY_BYTES;
                (runs * RUN_READS).min(layout.places)
            }
            Pattern::Random { .. } => whole.min(layout.places),
        }
    }

    /// Where a read begins.
    pub(super) fn offset_bytes(self, read: u64, layout: Layout) -> u64 {
        let (bytes, reads) = (self.bytes(), self.reads(layout));
        debug_assert!(read < reads);
        match self {
            Pattern::Sequential { .. } | Pattern::Hash => read * bytes,
            Pattern::Streams { count } => (read % count * (reads / count) + read / count) * bytes,
            Pattern::Backward { .. } => (reads - 1 - read) * bytes,
            Pattern::Stride { every_bytes, .. } => read * every_bytes,
            Pattern::Runs => read / RUN_READS * RUN_EVERY_BYTES + read % RUN_READS * bytes,
            Pattern::Random { .. } => mixed(layout.seed << 40 | read) % (layout.file_bytes / bytes) * bytes,
        }
    }
}

const RUN_BYTES: u64 = 64 << 10;
const RUN_EVERY_BYTES: u64 = 1 << 20;
const RUN_READS: u64 = RUN_BYTES / PAGE;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn layout(file_bytes: u64, places: u64) -> Layout {
        Layout { file_bytes, places, seed: 7 }
    }

    fn offsets(pattern: Pattern, layout: Layout) -> Vec<u64> {
        (0..pattern.reads(layout)).map(|read| pattern.offset_bytes(read, layout)).collect()
    }

    /// Goal: every read lies within the file and none is made twice, but at random. Method: odd lengths too.
    #[test]
    fn reads_lie_within_the_file() {
        for file_bytes in [16 << 20, (16 << 20) - 1, (5 << 20) + 12_345, 1 << 20] {
            for pattern in Pattern::ALL {
                let all = offsets(pattern, layout(file_bytes, u64::MAX));
                assert!(!all.is_empty(), "{pattern:?} of {file_bytes}");
                assert!(all.iter().all(|offset| offset + pattern.bytes() <= file_bytes), "{pattern:?}");
                let distinct: HashSet<&u64> = all.iter().collect();
                let is_random = matches!(pattern, Pattern::Random { .. });
                assert!(is_random || distinct.len() == all.len(), "{pattern:?}");
            }
        }
    }

    /// Goal: the orders are what they are called.
    #[test]
    fn orders() {
        let small = layout(2 << 20, u64::MAX);
        assert_eq!(
            offsets(Pattern::Streams { count: 4 }, small)[..5],
            [0, 512 << 10, 1 << 20, 1536 << 10, 16 << 10]
        );
        assert_eq!(offsets(Pattern::Backward { bytes: PAGE }, small)[..2], [511 * PAGE, 510 * PAGE]);
        let stride = Pattern::Stride { bytes: 16 * PAGE, every_bytes: 128 * PAGE };
        assert_eq!(offsets(stride, small), [0, 128 * PAGE, 256 * PAGE, 384 * PAGE]);
        assert_eq!(offsets(Pattern::Runs, small)[14..18], [14 * PAGE, 15 * PAGE, 1 << 20, (1 << 20) + PAGE]);
    }

    /// Goal: the limit on places holds for patterns that jump and for no other, and identifiers are distinct.
    #[test]
    fn places_are_limited() {
        let limited = layout(64 << 20, 10);
        for pattern in Pattern::ALL {
            let reads = pattern.reads(limited);
            let jumps = matches!(pattern, Pattern::Stride { .. } | Pattern::Runs | Pattern::Random { .. });
            assert_eq!(reads <= 10, jumps, "{pattern:?}");
        }
        let ids: HashSet<&str> = Pattern::ALL.iter().map(|pattern| pattern.id()).collect();
        let names: HashSet<&str> = Pattern::ALL.iter().map(|pattern| pattern.name()).collect();
        assert_eq!((ids.len(), names.len()), (Pattern::ALL.len(), Pattern::ALL.len()));
    }
}
