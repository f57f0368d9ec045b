//! Settings: how a cache is set up.
//!
//! Owns: the defaults.
//! Does not own: whether settings fit together (`page_cache`, readahead).

use core::time::Duration;

use headwater_core::readahead::{ReadaheadLimits, ReadaheadPolicy};
use headwater_core::replacement::Policy;

/// How a cache is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most memory for pages, bytes: rounded down to 2 MiB, but at least that. Taken from the global allocator as it is needed, and given
    /// back by [`PageCache::shrink`](crate::PageCache::shrink) and [`PageCache::tend`](crate::PageCache::tend).
    pub memory_bytes: usize,
    /// Which pages leave when it is used up.
    pub replacement: Policy,
    /// What is read before it is asked for.
    pub readahead: ReadaheadPolicy,
    /// The bounds of that. The largest size is what one read of a node asks for.
    pub readahead_limits: ReadaheadLimits,
    /// How long a file has dirty pages before [`PageCache::tend`](crate::PageCache::tend) writes them back.
    pub dirty_age_max: Duration,
}

impl Settings {
    /// The defaults, with this much memory.
    pub fn new(memory_bytes: usize) -> Self {
        let distance_bytes_max =
            (memory_bytes as u64 / DISTANCE_SHARE).clamp(SIZE_BYTES_MAX, DISTANCE_BYTES_MAX);
        let readahead_limits = ReadaheadLimits {
            size_bytes_max: SIZE_BYTES_MAX,
            distance_bytes_max,
            share_bytes_max: (memory_bytes as u64 / SHARE).max(distance_bytes_max),
            ..ReadaheadLimits::default()
        };
        let (replacement, readahead) = (Policy::default(), ReadaheadPolicy::default());
        Self { memory_bytes, replacement, readahead, readahead_limits, dirty_age_max: DIRTY_AGE_MAX }
    }
}

/// The largest read. ArceOS's NVMe driver splits it into two requests of 512 KiB, which are in flight together, and does
/// not submit a third while these are.
const SIZE_BYTES_MAX: u64 = 1 << 20;

/// The most that is read ahead of a reader: four reads, more than hides the latency of one.
const DISTANCE_BYTES_MAX: u64 = 4 << 20;

/// Of the memory, what one stream of a file may have read ahead.
const DISTANCE_SHARE: u64 = 8;

/// Of the memory, what all streams of a file may have read ahead.
const SHARE: u64 = 4;

/// As Linux has it (`dirty_expire_centisecs`): what is written and deleted again within this time never reaches the disk, and a crash
/// loses little more than this.
const DIRTY_AGE_MAX: Duration = Duration::from_secs(30);
