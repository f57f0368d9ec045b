//! Linux readahead: what `mm/readahead.c` of Linux 6.18 does on demand, as a reference to compare with.
//!
//! ```text
//!   window:  start              start+size-async            start+size
//!            ├──────────────────────▼─────────────────────────┤
//!             read at the miss      mark: its use reads the next window
//! ```
//!
//! A miss is *sync*: at the start of the file, after an oversized request, or right behind the previous read
//! it opens a window sized by the request; elsewhere the pages cached before it decide ("context readahead").
//! A mark is *async*: the next window follows, larger, and ends at a boundary of its large folios. After
//! `page_cache_sync_ra` and `page_cache_async_ra`. Where one stream reads a file, the device reads of a real kernel
//! are reproduced to the page (see the case table among the tests); several streams of one descriptor only nearly,
//! since a mark belongs to a page here and to a folio there. Not modelled: congestion, memory cgroups, and where the
//! block layer splits a request.
//!
//! Two differences follow from the interface. What one request demands is planned at once, where Linux goes
//! through a request larger than `io_pages` in windows. And reads that only hit are known only if
//! [`Readahead::on_hit`](super::Readahead::on_hit) tells of them.
//!
//! Owns: the window, and the end of the previous read.
//!
//! Does not own: what is cached (it asks), the marks.
//!
//! States: empty -> window `[sync]` -> next window `[next]`; a window elsewhere replaces it `[sync]`.

use super::limits::ReadaheadLimits;
use super::reads::{Planner, saturating_add};
use super::{Access, Advice, Lookup, Outcome, Presence, first_absent};
use crate::units::{ByteRange, PageIndex, PageRange};

/// State of one open file (`struct file_ra_state`).
#[derive(Clone, Debug)]
pub(super) struct Linux {
    ra_pages: u64,
    io_pages: u64,
    start: PageIndex,
    size: u64,
    async_size: u64,
    /// Binary logarithm of the pages in the window's folios.
    order: u32,
    /// The read before the current one.
    previous_end_bytes: Option<u64>,
    current: Option<ByteRange>,
}

impl Linux {
    pub(super) fn new(limits: ReadaheadLimits) -> Self {
        Self {
            ra_pages: limits.size_pages_min(),
            io_pages: limits.size_pages_max(),
            start: PageIndex::new(0),
            size: 0,
            async_size: 0,
            order: 0,
            previous_end_bytes: None,
            current: None,
        }
    }

    pub(super) fn on_read(
        &mut self,
        access: Access,
        advice: Advice,
        cache: &impl Lookup,
        planner: &mut Planner<'_>,
    ) {
        self.on_hit(access.bytes);
        let rest = PageRange::new(access.at, access.pages.end);
        match access.outcome {
            Outcome::Miss => self.sync(rest, advice, cache, planner),
            Outcome::Hit | Outcome::PendingMarked => self.next(rest, advice, cache, planner),
            Outcome::Pending => {}
        }
    }

    /// Several calls with the same bytes are one read: `prev_pos` moves once for each.
    pub(super) fn on_hit(&mut self, bytes: ByteRange) {
        if self.current != Some(bytes) {
            self.previous_end_bytes = self.current.map(|read| read.end);
            self.current = Some(bytes);
        }
    }

    fn sync(&mut self, rest: PageRange, advice: Advice, cache: &impl Lookup, planner: &mut Planner<'_>) {
        let (requested, max) = (rest.len().get(), self.window_pages_max(rest, advice));
        if rest.start == PageIndex::new(0) || requested > max || self.continues_previous(rest.start) {
            self.start = rest.start;
            self.size = initial_pages(requested, max);
            self.async_size = if self.size > requested { self.size - requested } else { self.size / 2 };
            self.order = 0;
            return self.submit(rest, planner);
        }
        let mut history = cached_before(rest.start, max, cache);
        if history <= requested {
            return planner.demand(rest, None);
        }
        if history >= rest.start.get() {
            history *= 2;
        }
        self.start = rest.start;
        self.size = history.saturating_add(requested).min(max);
        self.async_size = 1;
        self.order = 0;
        self.submit(rest, planner);
    }

    /// Linux's "async": the mark at the start of `rest` was used.
    fn next(&mut self, rest: PageRange, advice: Advice, cache: &impl Lookup, planner: &mut Planner<'_>) {
        let max = self.window_pages_max(rest, advice);
        let expected = saturating_add(self.start, self.size.saturating_sub(self.async_size));
        if rest.start == expected && self.size > 0 {
            self.start = saturating_add(self.start, self.size);
            self.size = self.size.max(next_pages(self.size, max));
        } else {
            let after = saturating_add(rest.start, 1);
            let Some(start) = first_absent(PageRange::new(after, saturating_add(after, max)), cache) else {
                return;
            };
            let reach = (start - rest.start).get() + rest.len().get();
            self.start = start;
            self.size = next_pages(reach, max);
        }
        self.end_at_boundary(max);
        self.async_size = self.size;
        let window_start = self.start;
        self.submit(PageRange::new(window_start, window_start), planner);
    }

    /// Windows that follow another end where a folio of their order does; the order grows with each, as far as
    /// the window holds a folio of it.
    fn end_at_boundary(&mut self, max: u64) {
        self.order += 2;
        let align = 1 << self.order.min(max.trailing_zeros());
        let end = saturating_add(self.start, self.size).get();
        let aligned_end = end - end % align;
        if aligned_end > self.start.get() {
            self.size = aligned_end - self.start.get();
        }
        self.order = self.order.min(FOLIO_ORDER_MAX).min(self.size.max(1).ilog2());
    }

    /// Plans `demanded` and what of the window is beyond it.
    fn submit(&self, demanded: PageRange, planner: &mut Planner<'_>) {
        let end = saturating_add(self.start, self.size);
        let mark = saturating_add(self.start, self.size - self.async_size);
        planner.demand(demanded, Some(mark));
        if demanded.end < end {
            planner.ahead_all(PageRange::new(demanded.end, end), Some(mark));
        }
    }

    fn window_pages_max(&self, rest: PageRange, advice: Advice) -> u64 {
        let doubled = if advice == Advice::Sequential { 2 } else { 1 };
        let ra_pages = self.ra_pages * doubled;
        let requested = rest.len().get();
        if requested > ra_pages && self.io_pages > ra_pages { requested.min(self.io_pages) } else { ra_pages }
    }

    /// Whether `page` is the last page of the previous read or the next one. Pages are subtracted only where
    /// the result is not negative: a jump back continues nothing.
    fn continues_previous(&self, page: PageIndex) -> bool {
        let previous = self.previous_end_bytes.map(PageIndex::containing);
        previous.is_some_and(|previous| previous <= page && (page - previous).get() <= 1)
    }
}

/// Window of a new stream (`get_init_ra_size`).
fn initial_pages(requested: u64, max: u64) -> u64 {
    let pages = requested.min(max).next_power_of_two();
    if pages <= max / 32 {
        pages * 4
    } else if pages <= max / 4 {
        pages * 2
    } else {
        max
    }
}

/// Window after one of `pages` (`get_next_ra_size`).
fn next_pages(pages: u64, max: u64) -> u64 {
    if pages < max / 16 {
        pages * 4
    } else if pages <= max / 2 {
        pages * 2
    } else {
        max
    }
}

/// How many pages right before `page` are cached, at most `max`.
fn cached_before(page: PageIndex, max: u64, cache: &impl Lookup) -> u64 {
    let first = PageIndex::new(page.get().saturating_sub(max));
    let before = PageRange::new(first, page);
    before.iter().rev().take_while(|page| cache.is_cached(*page) == Presence::Cached).count() as u64
}

/// A huge page: no folio is larger.
const FOLIO_ORDER_MAX: u32 = 9;
