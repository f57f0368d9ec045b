//! Counters: counts of a file's reads and writes, without contention between threads.
//!
//! Owns: the counters of one file, and the latencies of an engine.
//! Does not own: the events counted.
//! Hot path: a hit adds to a cache line that other threads rarely touch.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use headwater_core::frame::Usage;
use headwater_io::lock;

/// Counts of one file.
#[derive(Debug, Default)]
pub(crate) struct FileCounters {
    hits: Striped,
    pub(crate) misses: AtomicU64,
    pub(crate) sync_misses: AtomicU64,
    pub(crate) joined: AtomicU64,
    pub(crate) bypassed: AtomicU64,
    pub(crate) device_reads: AtomicU64,
    pub(crate) device_read_bytes: AtomicU64,
    pub(crate) read_ahead: AtomicU64,
    pub(crate) used: AtomicU64,
    pub(crate) late: AtomicU64,
    unused: AtomicU64,
    evictions: AtomicU64,
    device_writes: AtomicU64,
    device_write_pages: AtomicU64,
    device_write_bytes: AtomicU64,
    pub(crate) conflicts: AtomicU64,
}

impl FileCounters {
    #[inline]
    pub(crate) fn hit(&self, pages: u64) {
        self.hits.add(pages);
    }

    /// Counts a completed write to the device.
    pub(crate) fn wrote(&self, pages: u64, bytes: u64) {
        self.device_writes.fetch_add(1, Ordering::Relaxed);
        self.device_write_pages.fetch_add(pages, Ordering::Relaxed);
        self.device_write_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn evicted(&self, pages: u64, usage: Usage) {
        self.evictions.fetch_add(pages, Ordering::Relaxed);
        if usage == Usage::Unused {
            self.unused.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// All counts, as of about this moment.
    pub(crate) fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            hits: self.hits.sum(),
            misses: load(&self.misses),
            sync_misses: load(&self.sync_misses),
            joined: load(&self.joined),
            bypassed: load(&self.bypassed),
            device_reads: load(&self.device_reads),
            device_read_bytes: load(&self.device_read_bytes),
            read_ahead: load(&self.read_ahead),
            used: load(&self.used),
            late: load(&self.late),
            unused: load(&self.unused),
            evictions: load(&self.evictions),
            device_writes: load(&self.device_writes),
            device_write_pages: load(&self.device_write_pages),
            device_write_bytes: load(&self.device_write_bytes),
            conflicts: load(&self.conflicts),
        }
    }
}

/// Counts since the file was first opened, or the engine built. In pages, unless noted otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Read from the cache, also after waiting. Each read of a page counts.
    pub hits: u64,
    /// Neither cached nor being loaded.
    pub misses: u64,
    /// Reads (not pages) that waited for a page that nothing had requested before.
    pub sync_misses: u64,
    /// Reads (not pages) that met a page being loaded, and waited for it instead of reading it again.
    pub joined: u64,
    /// Reads (not pages) that went around the cache, because there was no memory, or a page had failed to load.
    pub bypassed: u64,
    /// Requests to the device, or to the kernel's page cache where that holds the pages.
    pub device_reads: u64,
    /// Bytes of these requests.
    pub device_read_bytes: u64,
    /// Read ahead of demand.
    pub read_ahead: u64,
    /// Pages read ahead that were used.
    pub used: u64,
    /// Pages read ahead that were demanded before they arrived.
    pub late: u64,
    /// Pages read ahead that were evicted unused.
    pub unused: u64,
    /// Pages that left the cache: evicted, dropped on advice, or dropped because the file had changed.
    pub evictions: u64,
    /// Write requests to the device, including failed ones.
    pub device_writes: u64,
    /// Pages of these requests.
    pub device_write_pages: u64,
    /// Bytes of these requests.
    pub device_write_bytes: u64,
    /// Changes of the file by others that were detected while this engine had dirty bytes of it. Both changes are kept, except
    /// where they concern the same bytes: of those the last to reach the kernel stays.
    pub conflicts: u64,
}

/// Counts of a file's cached reads, and what the cache holds of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FileStats {
    /// Counts since the file was first opened.
    pub counts: Counts,
    /// Pages that can be read without the device.
    pub resident_pages: u64,
    /// Pages being loaded.
    pub loading_pages: u64,
    /// Dirty pages.
    pub dirty_pages: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.sync_misses += other.sync_misses;
        self.joined += other.joined;
        self.bypassed += other.bypassed;
        self.device_reads += other.device_reads;
        self.device_read_bytes += other.device_read_bytes;
        self.read_ahead += other.read_ahead;
        self.used += other.used;
        self.late += other.late;
        self.unused += other.unused;
        self.evictions += other.evictions;
        self.device_writes += other.device_writes;
        self.device_write_pages += other.device_write_pages;
        self.device_write_bytes += other.device_write_bytes;
        self.conflicts += other.conflicts;
    }
}

/// A counter in several stripes: one for each of a few threads, which adds without a locked instruction, and one for all other
/// threads.
#[derive(Debug, Default)]
struct Striped {
    own: [CachePadded<AtomicU64>; STRIPES],
    shared: CachePadded<AtomicU64>,
}

impl Striped {
    #[inline]
    fn add(&self, count: u64) {
        let stripe = STRIPE.try_with(|stripe| stripe.0).unwrap_or(STRIPES);
        match self.own.get(stripe) {
            // No other thread writes to the stripe while this one lives.
            Some(own) => own.store(own.load(Ordering::Relaxed) + count, Ordering::Relaxed),
            None => _ = self.shared.fetch_add(count, Ordering::Relaxed),
        }
    }

    fn sum(&self) -> u64 {
        self.own.iter().chain([&self.shared]).map(|stripe| stripe.load(Ordering::Relaxed)).sum()
    }
}

thread_local! {
    static STRIPE: OwnStripe = OwnStripe::claim();
}

/// A thread's claim to one stripe of every counter; `STRIPES` if all are claimed.
struct OwnStripe(usize);

impl OwnStripe {
    fn claim() -> OwnStripe {
        let mut taken = TAKEN.load(Ordering::Acquire);
        loop {
            let stripe = (!taken).trailing_zeros() as usize;
            if stripe >= STRIPES {
                return OwnStripe(STRIPES);
            }
            match TAKEN.compare_exchange(taken, taken | 1 << stripe, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return OwnStripe(stripe),
                Err(now) => taken = now,
            }
        }
    }
}

impl Drop for OwnStripe {
    fn drop(&mut self) {
        if self.0 < STRIPES {
            // The next thread with this stripe sees the counts of this one.
            TAKEN.fetch_and(!(1 << self.0), Ordering::AcqRel);
        }
    }
}

/// A bit for each claimed stripe.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A kilobyte for each known file.
const STRIPES: usize = 7;

/// Durations of loads and waits.
#[derive(Debug)]
pub(crate) struct Latencies {
    loads: Mutex<Histogram<u64>>,
    waits: Mutex<Histogram<u64>>,
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        let histogram =
            || Histogram::new_with_bounds(1, NANOSECONDS_MAX, DIGITS).expect("the bounds are valid");
        Latencies { loads: Mutex::new(histogram()), waits: Mutex::new(histogram()) }
    }

    /// Records the time from the beginning of a load until its pages could be read.
    pub(crate) fn note_load(&self, time: Duration) {
        note(&self.loads, time);
    }

    /// Records the time that a reader waited.
    pub(crate) fn note_wait(&self, time: Duration) {
        note(&self.waits, time);
    }

    /// Copies of both.
    pub(crate) fn histograms(&self) -> (Histogram<u64>, Histogram<u64>) {
        let copy = |histogram: &Mutex<Histogram<u64>>| lock(histogram).clone();
        (copy(&self.loads), copy(&self.waits))
    }
}

fn note(histogram: &Mutex<Histogram<u64>>, time: Duration) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    lock(histogram).saturating_record(nanoseconds.max(1));
}

/// A duration of more than a minute counts as a minute.
const NANOSECONDS_MAX: u64 = 60_000_000_000;

/// Two significant digits: 1 % is finer than any device's repeatability, and takes 36 KiB.
const DIGITS: u8 = 2;
