//! Plan: which requests to the device deliver the bytes or pages that are wanted.
//!
//! ```text
//!   wanted                ├─────────────────────────────┤
//!   aligned hull       ├──────────────────────────────────┤
//!   multiples of max   ·   │           │           │          (run_bytes_max apart)
//!   runs               ├──┤├──────────┤├──────────┤├──────┤
//! ```
//!
//! A run is cut where the offset is a multiple of the largest run, as `blk_queue_chunk_sectors` and RAID
//! stripes want it, so the second of two neighbouring reads starts where the first one's last request ended.
//!
//! Owns: the cutting of byte ranges into runs and the merging of pages into runs.
//!
//! Does not own: what is cached already (the caller passes misses only), the order of submission, memory.
//!
//! Invariants:
//!
//! - P1 The runs of a range cover its aligned hull exactly, ascending, without gap or overlap.
//! - P2 Every run is aligned, not empty, and at most `run_bytes_max` long.
//! - P3 Every cut between two runs is at a multiple of `run_bytes_max`.
//! - P4 The wanted parts of the runs, one after the other, are the wanted range.
//! - P5 Merged runs hold the pages that went in, each once; no two neighbours among them would fit into one.

use core::iter::Fuse;

use crate::units::{Alignment, ByteRange, PageCount, PageIndex, PageRange};

/// What the device and the memory behind it accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Offsets and lengths of a request are multiples of this.
    pub alignment: Alignment,
    /// Longest request; a positive multiple of `alignment`.
    pub run_bytes_max: u64,
}

impl Geometry {
    /// Panics unless `run_bytes_max` is a positive multiple of `alignment`.
    pub const fn new(alignment: Alignment, run_bytes_max: u64) -> Self {
        assert!(run_bytes_max > 0, "a run holds at least one aligned unit");
        assert!(alignment.is_aligned(run_bytes_max), "the longest run is not aligned");
        Self { alignment, run_bytes_max }
    }
}

/// One request to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// What the device is asked for: aligned, not empty.
    pub range: ByteRange,
    /// The part of `range` that the caller asked for; not empty.
    pub wanted: ByteRange,
}

impl Run {
    /// The wanted bytes among the first `read_bytes` of the run: what a read that ended early (at the end of
    /// the file, or short) delivered. Empty at the start of `wanted` if it did not get there. Panics if more
    /// was read than asked for.
    pub fn delivered(&self, read_bytes: u64) -> ByteRange {
        assert!(read_bytes <= self.range.len(), "more was read than asked for");
        self.wanted.intersect(ByteRange::at(self.range.start, read_bytes))
    }

    /// Whether the first `read_bytes` of the run hold all that is wanted of it. Panics as
    /// [`Run::delivered`] does.
    pub fn is_complete(&self, read_bytes: u64) -> bool {
        self.delivered(read_bytes) == self.wanted
    }
}

/// The runs that deliver `wanted`, ascending: P1 to P4. None for an empty range. Bytes beyond the last
/// aligned offset that a `u64` holds are left out; no file has them.
///
/// Panics if the fields of `geometry` were set against [`Geometry::new`].
///
/// ```
/// # use headwater_core::{plan::{Geometry, runs}, units::{Alignment, ByteRange}};
/// let geometry = Geometry::new(Alignment::PAGE, 8192);
/// let cuts: Vec<_> = runs(ByteRange::new(5000, 20_000), geometry).map(|run| run.range).collect();
/// assert_eq!(cuts, [ByteRange::new(4096, 8192), ByteRange::new(8192, 16384), ByteRange::new(16384, 20480)]);
/// ```
pub fn runs(wanted: ByteRange, geometry: Geometry) -> Runs {
    let geometry = Geometry::new(geometry.alignment, geometry.run_bytes_max);
    if wanted.is_empty() {
        return Runs { wanted, rest: wanted, geometry };
    }
    let hull = geometry.alignment.expand(wanted);
    Runs { wanted, rest: hull, geometry }
}

/// Iterator of [`runs`].
#[derive(Clone, Debug)]
pub struct Runs {
    wanted: ByteRange,
    /// The part of the hull that no run has covered yet.
    rest: ByteRange,
    geometry: Geometry,
}

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.rest.is_empty() {
            return None;
        }
        let range = ByteRange::new(self.rest.start, self.next_cut_bytes().min(self.rest.end));
        self.rest.start = range.end;
        Some(Run { range, wanted: self.wanted.intersect(range) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.rest.is_empty() {
            return (0, Some(0));
        }
        let run_bytes_max = self.geometry.run_bytes_max;
        let count = self.rest.end.div_ceil(run_bytes_max) - self.rest.start / run_bytes_max;
        usize::try_from(count).map_or((usize::MAX, None), |count| (count, Some(count)))
    }
}

impl Runs {
    fn next_cut_bytes(&self) -> u64 {
        let run_bytes_max = self.geometry.run_bytes_max;
        (self.rest.start / run_bytes_max + 1).saturating_mul(run_bytes_max)
    }
}

#[cfg(target_pointer_width = "64")]
impl ExactSizeIterator for Runs {}

impl core::iter::FusedIterator for Runs {}

/// Merges adjacent pages into the longest runs of at most `run_pages_max` pages: P5. Lazy, without memory of
/// its own.
///
/// Panics if `run_pages_max` is zero, and while iterating if the pages are not strictly ascending.
///
/// ```
/// # use headwater_core::{plan::merge_pages, units::{PageCount, PageIndex}};
/// let pages = [3, 4, 5, 9].map(PageIndex::new);
/// let runs = merge_pages(pages, PageCount::new(2)).map(|run| (run.start.get(), run.end.get()));
/// assert_eq!(runs.collect::<Vec<_>>(), [(3, 5), (5, 6), (9, 10)]);
/// ```
pub fn merge_pages<I: IntoIterator<Item = PageIndex>>(
    pages: I,
    run_pages_max: PageCount,
) -> MergedRuns<I::IntoIter> {
    assert!(run_pages_max > PageCount::new(0), "a run holds at least one page");
    MergedRuns { pages: pages.into_iter().fuse(), held: None, run_pages_max }
}

/// Iterator of [`merge_pages`].
#[derive(Clone, Debug)]
pub struct MergedRuns<I> {
    pages: Fuse<I>,
    /// The page that ended the last run by not belonging to it; it starts the next.
    held: Option<PageIndex>,
    run_pages_max: PageCount,
}

impl<I: Iterator<Item = PageIndex>> Iterator for MergedRuns<I> {
    type Item = PageRange;

    fn next(&mut self) -> Option<PageRange> {
        let start = self.held.take().or_else(|| self.pages.next())?;
        let mut run = PageRange::new(start, start + PageCount::new(1));
        for page in self.pages.by_ref() {
            assert!(page >= run.end, "pages to merge are not strictly ascending");
            if page > run.end || run.len() == self.run_pages_max {
                self.held = Some(page);
                break;
            }
            run.end = page + PageCount::new(1);
        }
        Some(run)
    }
}

impl<I: Iterator<Item = PageIndex>> core::iter::FusedIterator for MergedRuns<I> {}
