//! Limits: everything has one, and all of them are here.
//!
//! Invariants:
//!
//! - L1 A request never needs more memory than the smallest budget has.
//
// Owns: the numbers that bound queues, memory, requests, retries and threads, with their reasons.
// Does not own: the enforcement; each limit is asserted or waited for by the code it bounds.

use crate::readahead::ReadaheadLimits;

/// Every limit of one engine. [`Limits::default`] holds the constants below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Fewest requests in flight that can be configured.
    pub queue_depth_min: u32,
    /// Most requests in flight that can be configured.
    pub queue_depth_max: u32,
    /// Requests in flight unless configured.
    pub queue_depth_default: u32,
    /// Smallest memory budget in bytes that can be configured.
    pub memory_bytes_min: u64,
    /// Largest memory budget in bytes that can be configured.
    pub memory_bytes_max: u64,
    /// Memory budget in bytes unless configured, of an engine that cannot follow what the system has to spare.
    pub memory_bytes_default: u64,
    /// Longest request to a device in bytes.
    pub run_bytes_max: u64,
    /// How often in a row a request is submitted again without progress (EINTR, EAGAIN, ECANCELED) before
    /// that becomes the caller's error. A short read that delivered a byte starts the count again.
    pub retries_max: u32,
    /// Most threads of the driver that works without a ring.
    pub threads_max: u32,
    /// Most requests of one queue that wait for a place, are in flight, or are done and not taken.
    pub outstanding_max: u32,
    /// Bounds of each sequential stream.
    pub readahead: ReadaheadLimits,
}

impl Limits {
    /// One request at a time: slow, and the easiest to debug.
    pub const QUEUE_DEPTH_MIN: u32 = 1;
    /// 4096 is 32 times the default, an eighth of the entries io_uring accepts (`IORING_MAX_ENTRIES`), and
    /// keeps all slots of the queue within a few hundred KiB.
    pub const QUEUE_DEPTH_MAX: u32 = 4096;
    /// 128 requests: cold scans reach the device's speed with 32 of 1 MiB; the rest is for random reads of a
    /// page beside them.
    pub const QUEUE_DEPTH_DEFAULT: u32 = 128;
    /// 3 MiB: a chunk of 2 MiB, which holds the longest request, and 1 MiB for what is consumed meanwhile:
    /// one extent of the largest readahead size.
    pub const MEMORY_BYTES_MIN: u64 = 3 << 20;
    /// 4 TiB: a billion frames, whose numbers fit 32 bits with room for marks; the lists of chunks and nodes take a
    /// hundred-thousandth of that at once.
    pub const MEMORY_BYTES_MAX: u64 = 4 << 40;
    /// 64 MiB: seven streams at their full readahead distance, and small enough to surprise no user where nothing would return it.
    pub const MEMORY_BYTES_DEFAULT: u64 = 64 << 20;
    /// 256 MiB: an engine that may take all memory that is free plans its readahead as with this much, because it does not know
    /// beforehand how much that will be. A file has 64 MiB of it in flight: eight streams at their full distance.
    pub const MEMORY_BYTES_PLANNED: u64 = 256 << 20;
    /// 2 MiB: a huge page, so a run is one physically contiguous piece of memory. Devices gain nothing beyond
    /// 1 MiB.
    pub const RUN_BYTES_MAX: u64 = 2 << 20;
    /// 16 in a row: signals and a full device queue pass after one or two; what is refused 16 times without a
    /// byte of progress is broken, and the caller hears of it rather than hang.
    pub const RETRIES_MAX: u32 = 16;
    /// 64 threads: a blocking read each, they reach the queue depth of a flash device; beyond it their stacks
    /// and switches cost more than depth gains.
    pub const THREADS_MAX: u32 = 64;
    /// A million: each holds at least a page of the memory budget, so this is 4 GiB in flight or waiting for their
    /// owners. A caller with more has lost track of them.
    pub const OUTSTANDING_MAX: u32 = 1 << 20;
    /// Readahead leaves a quarter of the places in a queue to demand and writeback: enough that a demand finds one
    /// without waiting, little enough to keep the device busy with guesses alone.
    pub const DEMAND_SLOTS_DIVISOR: u32 = 4;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_depth_min: Self::QUEUE_DEPTH_MIN,
            queue_depth_max: Self::QUEUE_DEPTH_MAX,
            queue_depth_default: Self::QUEUE_DEPTH_DEFAULT,
            memory_bytes_min: Self::MEMORY_BYTES_MIN,
            memory_bytes_max: Self::MEMORY_BYTES_MAX,
            memory_bytes_default: Self::MEMORY_BYTES_DEFAULT,
            run_bytes_max: Self::RUN_BYTES_MAX,
            retries_max: Self::RETRIES_MAX,
            threads_max: Self::THREADS_MAX,
            outstanding_max: Self::OUTSTANDING_MAX,
            readahead: ReadaheadLimits::default(),
        }
    }
}

const _: () = assert!(Limits::RUN_BYTES_MAX <= Limits::MEMORY_BYTES_MIN, "L1");
const _: () = assert!(Limits::RUN_BYTES_MAX == crate::buddy::CHUNK_BYTES as u64, "a run fits one chunk");
const _: () = assert!(Limits::QUEUE_DEPTH_MIN <= Limits::QUEUE_DEPTH_DEFAULT);
const _: () = assert!(Limits::QUEUE_DEPTH_DEFAULT <= Limits::QUEUE_DEPTH_MAX);
