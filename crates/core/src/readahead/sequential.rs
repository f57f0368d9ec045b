//! Sequential stream: what a reader that only goes on reads next, how much at once, and how far ahead.
//!
//! ```text
//!   consumed       submitted, not consumed yet           not asked for yet
//!   ────────────┤├───────────┬───────────┬───────────┤┌ ─ ─ ─ ─ ─ ─ ┐
//!            position                            submitted  next extent
//!               │◄───────────── distance ──────────────────►│  (how far)
//!                                                    │◄────►│  (how large: size)
//! ```
//!
//! How far and how large are two controls. The **size** of an extent is what the device likes: it doubles
//! with every extent from the smallest to the largest. The **distance** is what hides the device's latency
//! from this reader: it doubles when the reader really waited, and shrinks by one size when it has not waited
//! for [`HOLD_OFF`] distances. After PostgreSQL's read stream (`src/backend/storage/aio/read_stream.c`),
//! which keeps `io_combine_limit` apart from its look-ahead distance and moves the latter the same way. Below
//! two sizes the distance also grows by twice of what is consumed: a reader that never waits still gets large
//! requests, but only once it has shown that it goes on.
//!
//! Owns: position, size and distance of one sequential stream.
//!
//! Does not own: which streams a file has, what is cached, the I/O itself. The caller submits each extent it
//! is given, in order, and reports what happened.
//!
//! States: new -> announced `[expect]` -> ramping; new -> ramping `[next_extent]` -> steady `[next_extent]`; any -> new `[restart]`; any -> probing
//! in pages `[on_failed]` -> ramping `[next_extent]`.
//!
//! Invariants:
//!
//! - R1 Between two calls that move the position by hand (`restart`, `resume_at`, `on_failed`), extents
//!   follow each other without gap or overlap.
//! - R2 An extent is aligned, not empty, at most `size` long, and crosses no multiple of `size`.
//! - R3 No extent starts at or beyond the end of the file, or ends beyond the aligned end.
//! - R4 An extent ends at most the distance ahead of the position when it is handed out; only one that is
//!   offered while nothing is ahead may reach further.
//! - R5 Size and distance stay within their limits.
//!
//! Hot path: a few comparisons when the distance is filled; no allocation ever.

use super::limits::ReadaheadLimits;
use crate::units::{Alignment, ByteRange};

/// One sequential stream of reads.
///
/// ```
/// # use headwater_core::{readahead::{ReadaheadLimits, SequentialStream}, units::{Alignment, ByteRange}};
/// let mut stream = SequentialStream::new(0, ReadaheadLimits::default(), Alignment::PAGE);
/// let file_bytes = 1_000_000;
/// assert_eq!(stream.next_extent(file_bytes), Some(ByteRange::new(0, 128 << 10)));
/// assert_eq!(stream.next_extent(file_bytes), Some(ByteRange::new(128 << 10, 256 << 10)));
/// assert_eq!(stream.next_extent(file_bytes), None); // as far ahead as a new stream goes
/// stream.on_wait();
/// stream.on_consumed(100_000);
/// assert_eq!(stream.next_extent(file_bytes), Some(ByteRange::new(256 << 10, 512 << 10)));
/// ```
#[derive(Clone, Debug)]
pub struct SequentialStream {
    /// Normalised: no size is less than the alignment, the distance no less than the largest size.
    limits: ReadaheadLimits,
    alignment: Alignment,
    /// Never submit beyond this offset, however long the file is; `u64::MAX` but for
    /// [`SequentialStream::whole`].
    bound_bytes: u64,
    position_bytes: u64,
    /// Aligned end of what was handed out.
    submitted_bytes: u64,
    /// Size of the next extent; a power of two.
    size_bytes: u64,
    distance_bytes: u64,
    /// Consumed since the last wait, or since the distance last shrank.
    unwaited_bytes: u64,
    /// The distance is always the largest.
    is_steady: bool,
    last: Option<HandedOut>,
}

/// The extent handed out last, with what is needed to take it back.
#[derive(Clone, Copy, Debug)]
struct HandedOut {
    extent: ByteRange,
    size_bytes_before: u64,
}

impl SequentialStream {
    /// A stream at `position_bytes` that has submitted nothing: smallest size, distance of two such sizes
    /// (one to consume while the other is read).
    ///
    /// # Panics
    /// If `limits` are not valid. Where `alignment` is larger than a limit, the alignment wins.
    pub fn new(position_bytes: u64, limits: ReadaheadLimits, alignment: Alignment) -> Self {
        let limits = limits.normalised(alignment);
        let mut stream = Self {
            limits,
            alignment,
            bound_bytes: u64::MAX,
            position_bytes,
            submitted_bytes: alignment.down(position_bytes),
            size_bytes: limits.size_bytes_min,
            distance_bytes: 0,
            unwaited_bytes: 0,
            is_steady: false,
            last: None,
        };
        stream.begin_ramp(limits.size_bytes_min);
        stream
    }

    /// A stream for one oversized request: the caller has said that it wants all of `range`, so the size and
    /// the distance are at their maximum from the start. The demanded first bytes come first, and nothing
    /// beyond the aligned end of `range` is ever handed out, not after a `restart` either.
    ///
    /// # Panics
    /// If `limits` are not valid.
    pub fn whole(range: ByteRange, limits: ReadaheadLimits, alignment: Alignment) -> Self {
        let mut stream = Self::new(range.start, limits, alignment);
        stream.bound_bytes = range.end;
        stream.size_bytes = stream.limits.size_bytes_max;
        stream.distance_bytes = stream.limits.distance_bytes_max;
        stream
    }

    /// A stream that goes by the largest size and distance of its limits from the start, whatever its consumer does: for a reader that
    /// knows its device. Only behind an error it asks for less, as every stream does.
    ///
    /// # Panics
    /// If `limits` are not valid.
    ///
    /// ```
    /// # use headwater_core::{readahead::{ReadaheadLimits, SequentialStream}, units::{Alignment, ByteRange}};
    /// let limits = ReadaheadLimits { size_bytes_max: 512 << 10, distance_bytes_max: 1 << 20, ..ReadaheadLimits::default() };
    /// let mut stream = SequentialStream::steady(0, limits, Alignment::PAGE);
    /// assert_eq!(stream.next_extent(1 << 30), Some(ByteRange::new(0, 512 << 10)));
    /// assert_eq!(stream.next_extent(1 << 30), Some(ByteRange::new(512 << 10, 1 << 20)));
    /// assert_eq!(stream.next_extent(1 << 30), None);
    /// ```
    pub fn steady(position_bytes: u64, limits: ReadaheadLimits, alignment: Alignment) -> Self {
        let limits = ReadaheadLimits { size_bytes_min: limits.size_bytes_max, ..limits };
        let mut stream = Self::new(position_bytes, limits, alignment);
        stream.is_steady = true;
        stream.begin_ramp(stream.limits.size_bytes_max);
        stream
    }

    /// The consumer has said that it will read `bytes` from the position on. As much of them is asked for at once as keeps a device
    /// busy, in several extents; from there the ramp goes on as ever.
    pub fn expect(&mut self, bytes: u64) {
        let wanted_bytes = bytes.min(EXPECTED_BYTES_MAX).min(self.limits.distance_bytes_max);
        self.distance_bytes = self.distance_bytes.max(wanted_bytes);
        let size_bytes = (wanted_bytes / EXPECTED_EXTENTS).checked_ilog2().map_or(0, |shift| 1 << shift);
        self.size_bytes = self.size_bytes.max(size_bytes).min(self.limits.size_bytes_max);
        self.last = None;
    }

    /// The next extent to submit, now counted as submitted; `None` while the distance is filled or nothing of
    /// the file is left. Call it until it returns `None`, after each of the other calls.
    ///
    /// `end_bytes` is the length of the file as known now. It may differ from call to call: when the file
    /// shrinks the stream stops, when it grows the stream goes on where it stopped. A file that grew within
    /// the last aligned unit needs [`SequentialStream::resume_at`]: that unit was handed out when less of it
    /// was file.
    ///
    /// An extent ends at a multiple of `size` or at the aligned end of the file, so the first one may be
    /// short. When nothing is ahead of the position an extent is offered whatever the distance: R2 to R4.
    pub fn next_extent(&mut self, end_bytes: u64) -> Option<ByteRange> {
        let end_bytes = self.alignment.up(end_bytes.min(self.bound_bytes));
        if self.submitted_bytes >= end_bytes {
            return None;
        }
        let extent_end_bytes = self.next_boundary_bytes().min(end_bytes);
        let is_demand = self.submitted_bytes <= self.position_bytes;
        if !is_demand && extent_end_bytes - self.position_bytes > self.distance_bytes {
            return None;
        }
        Some(self.hand_out(extent_end_bytes))
    }

    /// The consumer took `bytes` from the position on. Lets a young stream grow, and the distance of one that
    /// has long not waited shrink by one size (never below two sizes).
    ///
    /// pages for instance, says so with [`SequentialStream::resume_at`].
    ///
    /// # Panics
    /// If more is consumed than was submitted.
    pub fn on_consumed(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let ahead_bytes = self.submitted_bytes.saturating_sub(self.position_bytes);
        assert!(bytes <= ahead_bytes, "more is consumed than was submitted");
        self.position_bytes += bytes;
        self.grow_with_consumption(bytes);
        self.decay_with_consumption(bytes);
    }

    /// The consumer really waited for I/O of this stream: the distance doubles, and the hold-off of its decay
    /// starts again. Call it once for each wait, not for each extent that was late.
    pub fn on_wait(&mut self) {
        self.distance_bytes = self.distance_bytes.saturating_mul(2).min(self.limits.distance_bytes_max);
        self.unwaited_bytes = 0;
    }

    /// `extent`, the one handed out last, could not be submitted, for want of a frame or a slot. The same
    /// extent is offered again later (unless the file's length changes); the distance stays.
    ///
    /// # Panics
    /// If `extent` is not the one that was handed out last.
    pub fn on_refused(&mut self, extent: ByteRange) {
        let last = self.last.take().expect("an extent was handed out and not taken back");
        assert!(last.extent == extent, "only the extent handed out last can be refused");
        assert!(
            self.alignment.down(self.position_bytes) <= extent.start,
            "an extent that was consumed cannot be refused"
        );
        self.submitted_bytes = extent.start;
        self.size_bytes = last.size_bytes_before;
    }

    /// The consumer jumped to `position_bytes`. Forgets what is ahead, and ramps up anew from the smallest
    /// size and distance: a large distance at once would be read in vain if the next thing is another jump.
    pub fn restart(&mut self, position_bytes: u64) {
        self.forget_ahead(position_bytes);
        self.begin_ramp(self.limits.size_bytes_min);
    }

    /// Goes on at `position_bytes`, keeping size and distance, because the pattern is still sequential: after
    /// a short read, over a stretch that was cached, or when the file grew within its last aligned unit.
    /// Forgets what is ahead.
    pub fn resume_at(&mut self, position_bytes: u64) {
        self.forget_ahead(position_bytes);
    }

    /// The extent at `position_bytes` failed. Forgets what is ahead, and goes back to a page (or an aligned
    /// unit, if larger) at a time, doubling from there: the good bytes before a bad sector are delivered, and
    /// an extent of that smallest length that fails again is the exact place of the error.
    pub fn on_failed(&mut self, position_bytes: u64) {
        self.forget_ahead(position_bytes);
        self.begin_ramp(self.probe_bytes());
    }

    /// Offset of the next byte to consume.
    pub fn position_bytes(&self) -> u64 {
        self.position_bytes
    }

    /// Aligned offset up to which extents were handed out. Less than one aligned unit before the position
    /// while nothing is ahead of an unaligned one.
    pub fn submitted_bytes(&self) -> u64 {
        self.submitted_bytes
    }

    /// How far ahead of the position extents may reach.
    pub fn distance_bytes(&self) -> u64 {
        self.distance_bytes
    }

    /// Length of the next extent, where neither natural alignment nor the end of the file cut it short.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Asserts the invariants that the state alone can show: R5, and the order of the offsets.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        assert!(self.size_bytes.is_power_of_two(), "natural alignment needs a power of two");
        assert!(self.size_bytes >= self.probe_bytes(), "smaller than a page or an aligned unit");
        assert!(self.size_bytes <= self.limits.size_bytes_max, "size beyond its limit");
        assert!(self.distance_bytes >= self.probe_bytes(), "no room for a single extent");
        assert!(self.distance_bytes <= self.limits.distance_bytes_max, "distance beyond its limit");
        assert!(self.alignment.is_aligned(self.submitted_bytes), "submitted is not aligned");
        assert!(self.alignment.down(self.position_bytes) <= self.submitted_bytes, "consumed unread bytes");
        if let Some(last) = self.last {
            assert!(!last.extent.is_empty(), "an empty extent was handed out");
            assert!(last.extent.end == self.submitted_bytes, "the last extent is not the last");
        }
    }

    fn hand_out(&mut self, extent_end_bytes: u64) -> ByteRange {
        let extent = ByteRange::new(self.submitted_bytes, extent_end_bytes);
        self.last = Some(HandedOut { extent, size_bytes_before: self.size_bytes });
        self.submitted_bytes = extent.end;
        self.size_bytes = self.size_bytes.saturating_mul(2).min(self.limits.size_bytes_max);
        extent
    }

    /// The first multiple of the size beyond what was submitted.
    fn next_boundary_bytes(&self) -> u64 {
        (self.submitted_bytes & !(self.size_bytes - 1)).saturating_add(self.size_bytes)
    }

    /// Two sizes: one to consume while the other is read.
    fn distance_floor_bytes(&self) -> u64 {
        if self.is_steady {
            return self.limits.distance_bytes_max;
        }
        self.size_bytes.saturating_mul(2).min(self.limits.distance_bytes_max)
    }

    fn grow_with_consumption(&mut self, bytes: u64) {
        let floor_bytes = self.distance_floor_bytes();
        if self.distance_bytes < floor_bytes {
            let grown_bytes = self.distance_bytes.saturating_add(bytes.saturating_mul(2));
            self.distance_bytes = grown_bytes.min(floor_bytes);
        }
    }

    fn decay_with_consumption(&mut self, bytes: u64) {
        self.unwaited_bytes = self.unwaited_bytes.saturating_add(bytes);
        if self.unwaited_bytes < self.distance_bytes.saturating_mul(HOLD_OFF) {
            return;
        }
        self.unwaited_bytes = 0;
        let floor_bytes = self.distance_floor_bytes();
        if self.distance_bytes > floor_bytes {
            self.distance_bytes = (self.distance_bytes - self.size_bytes).max(floor_bytes);
        }
    }

    fn forget_ahead(&mut self, position_bytes: u64) {
        self.position_bytes = position_bytes;
        self.submitted_bytes = self.alignment.down(position_bytes);
        self.last = None;
    }

    fn begin_ramp(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
        self.distance_bytes = self.distance_floor_bytes();
        self.unwaited_bytes = 0;
    }

    fn probe_bytes(&self) -> u64 {
        self.alignment.max(Alignment::PAGE).get()
    }
}

/// What [`SequentialStream::expect`] asks for at once: a device of 10 GB/s that answers after 0.2 ms is kept busy by it, and it
/// fits into one chunk of memory, each of which takes 0.1 ms to touch first.
const EXPECTED_BYTES_MAX: u64 = 2 << 20;

/// It is asked for in this many parts: the first arrives before the last, and a device works on several.
const EXPECTED_EXTENTS: u64 = 8;

/// How many distances are consumed without a wait before the distance shrinks by one size. Shorter, and a
/// reader whose speed is close to the device's swings between waiting and shrinking; much longer, and memory
/// stays bound to a stream that got slow.
pub const HOLD_OFF: u64 = 4;
