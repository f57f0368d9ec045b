//! Copied runs: how far the kernel's page cache had a file before copies of it made the kernel read ahead.
//!
//! ```text
//!   |<----- resident ------------------->|
//!    copied, copied, a page that is marked ─► the kernel reads on behind the end, and marks a page there
//!                                         └► limit: copies end here, the rest comes from the device
//! ```
//!
//! A program that reads a file in order leaves marked pages in the page cache; whatever reads one of them makes the kernel read ahead
//! (Linux 6.18, also with `RWF_NOWAIT` and `POSIX_FADV_RANDOM`). What it reads is resident then, and would be copied, with the next
//! marked page: the whole file went through the page cache, and lay in two caches at the end.
//!
//! Owns: the runs that are being copied, and where each of them ends.
//! Does not own: what is resident (kernel cache).
//! Locks: `runs`, innermost, never waited for; kept across the `cachestat(2)` of a look ahead.
//! Hot path: a read at random tries one lock, and makes no system call.

use std::sync::Mutex;
use std::time::Duration;

use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};

/// Parts of a file that readers copy from the kernel's page cache in order.
#[derive(Debug, Default)]
pub(crate) struct CopiedRuns {
    runs: Mutex<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    all: [Run; RUNS_MAX],
    /// The one that makes room for another.
    next: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Copied in order so far.
    copied_bytes: u64,
    /// Where the reader is, also behind the limit.
    position: u64,
    /// Resident up to here when the run was looked at.
    limit: u64,
    /// Whether the look ended there, and not the resident pages.
    is_open: bool,
    /// When something of it was copied last, by the clock that [`CopiedRuns::admits`] is given.
    used: Duration,
}

impl CopiedRuns {
    /// Whether to copy a range that is resident. `is_resident` answers for other ranges.
    pub(crate) fn admits(
        &self,
        range: ByteRange,
        now: Duration,
        is_resident: impl Fn(ByteRange) -> bool,
    ) -> bool {
        // Threads that copy at the same moment do not wait for each other: one copy more or less ends no run.
        let Ok(mut runs) = self.runs.try_lock() else { return true };
        let runs = &mut *runs;
        let Some(run) = runs.all.iter_mut().find(|run| run.leads_to(range, now)) else {
            let (copied_bytes, end) = (range.len(), range.end);
            runs.all[runs.next] = Run { copied_bytes, position: end, limit: end, is_open: true, used: now };
            runs.next = (runs.next + 1) % RUNS_MAX;
            return true;
        };
        run.position = run.position.max(range.end);
        let is_in_order = run.copied_bytes >= ORDER_BYTES_MIN;
        if is_in_order && run.is_open && range.end > run.limit {
            (run.limit, run.is_open) = look_ahead(range, is_resident);
        }
        let is_copied = !is_in_order || range.end <= run.limit;
        if is_copied {
            (run.copied_bytes, run.used) = (run.copied_bytes.saturating_add(range.len()), now);
        }
        is_copied
    }
}

impl Run {
    fn leads_to(&self, range: ByteRange, now: Duration) -> bool {
        let is_near = range.start.saturating_sub(self.position) <= NEAR_BYTES
            && self.position.saturating_sub(range.end) <= NEAR_BYTES;
        is_near && now.saturating_sub(self.used) < FORGOTTEN_AFTER
    }
}

/// Where the resident pages from the range on end, and whether that is only as far as was looked. Single pages are looked at: to count
/// all takes a fifth of the time of copying them. The kernel reads ahead without holes.
fn look_ahead(range: ByteRange, is_resident: impl Fn(ByteRange) -> bool) -> (u64, bool) {
    let is_resident_up_to = |end: u64| is_resident(ByteRange::new(end - 1, end));
    let (mut low, mut high) = (range.start, range.start.saturating_add(AHEAD_BYTES));
    if is_resident_up_to(high) {
        return (high.max(range.end), true);
    }
    while high - low > PAGE_SIZE_BYTES {
        let middle = low + (high - low) / 2;
        if is_resident_up_to(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (Alignment::PAGE.up(low).max(range.end), false)
}

/// Readers of one file that copy in order at once.
const RUNS_MAX: usize = 8;

/// A read so near to where the last one ended goes on with its run; as long as the extents of a stream.
const NEAR_BYTES: u64 = 2 << 20;

/// Copied in order before the first look ahead, so that small reads at random hardly ever pay for one.
const ORDER_BYTES_MIN: u64 = 128 << 10;

/// Longer than the kernel reads ahead on nearly all devices.
const AHEAD_BYTES: u64 = 16 << 20;

/// After this time something else may have read the file.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Goal: copies in order end where the resident pages ended at first, however far the kernel reads ahead of them and however long the
    /// copies are; copies of a file that is resident whole do not end. Method: a kernel that reads 8 MiB on whenever something is copied
    /// from its last 8 MiB, and a reader that asks again after a refusal.
    #[test]
    fn copies_do_not_follow_the_kernel() {
        let now = Duration::from_secs(100);
        let files = [(20, 200), (200, 200), (3, 200), (100, 100)];
        let cases = files
            .iter()
            .flat_map(|&(resident, file)| [512 << 10, 3 * MIB].map(|copy| (resident, file, copy)));
        for (resident_mib, file_mib, copy_bytes) in cases {
            let runs = CopiedRuns::default();
            let (mut resident, mut copied, file_bytes) = (resident_mib * MIB, 0, file_mib * MIB);
            while copied < file_bytes {
                let range = ByteRange::at(copied, copy_bytes).clip(file_bytes);
                let is_resident =
                    |range: ByteRange| range.clip(file_bytes).end <= resident && range.start < file_bytes;
                if !is_resident(range) || (0..2).all(|_| !runs.admits(range, now, is_resident)) {
                    break;
                }
                copied = range.end;
                if resident - copied < 8 * MIB {
                    resident = (resident + 8 * MIB).min(file_bytes);
                }
            }
            let least = (resident_mib * MIB).min(file_bytes) - copy_bytes;
            let most = ((resident_mib + 8) * MIB).min(file_bytes);
            assert!(least < copied && copied <= most, "{copied} of {resident_mib} MiB by {copy_bytes}");
        }
    }

    /// Goal: of a file that is resident whole, the last page is copied too, wherever the reader began and the file ends.
    #[test]
    fn the_end_of_a_file_is_no_limit() {
        const COPY_BYTES: u64 = if cfg!(miri) { 500_000 } else { 50_000 };
        let now = Duration::from_secs(100);
        for start in [0, 77, 4096, 100_000] {
            for file_bytes in [300_000, 2_000_000, 20 * MIB, 20 * MIB + 1] {
                let runs = CopiedRuns::default();
                let resident_end = file_bytes.next_multiple_of(PAGE_SIZE_BYTES);
                let is_resident = |range: ByteRange| range.end <= resident_end;
                let mut copied = start;
                while copied < file_bytes {
                    let range = ByteRange::at(copied, COPY_BYTES).clip(file_bytes);
                    assert!(runs.admits(range, now, is_resident), "{range:?} of {file_bytes} from {start}");
                    copied = range.end;
                }
            }
        }
    }

    /// Goal: readers at several places do not end each other's runs, reads at random are not looked ahead for, and a run ends with time.
    #[test]
    fn runs_are_apart() {
        let (runs, now) = (CopiedRuns::default(), Duration::from_secs(100));
        let never = |_: ByteRange| -> bool { panic!("nothing is in order") };
        for place in [0, 100, 200, 300, 50, 150] {
            assert!(runs.admits(ByteRange::at(place * MIB, 4096), now, never));
        }
        let up_to = |end: u64| move |range: ByteRange| range.end <= end;
        for at in 0..10 {
            for start in [0, 100, 200] {
                let range = ByteRange::at(start * MIB + 4096 + at * MIB, MIB);
                let is_admitted = runs.admits(range, now, up_to((start + 5) * MIB));
                assert_eq!(is_admitted, range.end <= (start + 5) * MIB, "{range:?}");
            }
        }
        let behind = ByteRange::at(9 * MIB, MIB);
        assert!(!runs.admits(behind, now, never));
        assert!(runs.admits(behind, now + 2 * FORGOTTEN_AFTER, never));
    }

    /// Goal: ranges at the end of all offsets, which no file has, are answered like others. Method: readers in order that end there, with
    /// a kernel that holds everything and one that holds nothing of what a look ahead asks for.
    #[test]
    fn ranges_that_no_file_has() {
        let now = Duration::from_secs(100);
        let readers = [[(3 * MIB, 2 * MIB), (100, 0), (0, 0)], [(MIB, 1), (5000, 0), (4097, 4095)]];
        for (is_held, reader) in
            [true, false].into_iter().flat_map(|held| readers.map(|reader| (held, reader)))
        {
            let runs = CopiedRuns::default();
            for (start, end) in reader {
                let range = ByteRange::new(u64::MAX - start, u64::MAX - end);
                assert!(runs.admits(range, now, |_| is_held), "{range:?}, {is_held}");
            }
        }
    }
}
