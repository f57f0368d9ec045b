//! Units: bytes, pages, and the way from one to the other.
//!
//! ```text
//!   bytes   0        4096       8192       12288
//!           ├──────────┼──────────┼──────────┤
//!   pages   │  page 0  │  page 1  │  page 2  │
//!                 └─ ByteRange ─┘                 2000..6000
//!           └────── PageRange ────┘               covering it: pages 0..2
//! ```
//!
//! Invariants:
//!
//! - U1 A range is half open and never ends before it starts.
//! - U2 A page index is at most [`PageIndex::MAX`], so no conversion to bytes wraps around.
//! - U3 Arithmetic that could pass `u64::MAX` saturates where the documentation says so and panics elsewhere;
//!   it never wraps.
//
// Owns: the types of an index, a count and a range, and every conversion between them (nowhere else in
// headwater is a byte offset shifted or masked).
// Does not own: what is in a page.

use core::ops::{Add, Sub};

/// Size of a page in bytes. It is the page of x86-64 and the smallest of AArch64, and the logical block of
/// most devices divides it.
pub const PAGE_SIZE_BYTES: u64 = 4096;

/// [`PAGE_SIZE_BYTES`] as the size of memory.
pub const PAGE_BYTES: usize = PAGE_SIZE_BYTES as usize;

/// Binary logarithm of [`PAGE_SIZE_BYTES`].
pub const PAGE_SHIFT: u32 = 12;

/// Pages that cover every offset a `u64` can hold.
const PAGES_MAX: u64 = 1 << (u64::BITS - PAGE_SHIFT);

const _: () = assert!(PAGE_SIZE_BYTES == 1 << PAGE_SHIFT);

/// Number of a page in a file: 0 is the page of the file's first byte.
///
/// ```
/// # use headwater_core::units::{PageCount, PageIndex};
/// let page = PageIndex::containing(10_000);
/// assert_eq!(page, PageIndex::new(2));
/// assert_eq!(page.start_bytes(), 8192);
/// assert_eq!(page + PageCount::new(3) - page, PageCount::new(3));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageIndex(u64);

impl PageIndex {
    /// One past the last page that a `u64` offset can fall into; only ever the end of a range.
    pub const MAX: Self = Self(PAGES_MAX);

    /// The page with this number.
    ///
    /// # Panics
    /// If `index` is beyond the last page.
    pub const fn new(index: u64) -> Self {
        assert!(index <= PAGES_MAX, "page index beyond the last page");
        Self(index)
    }

    /// The page that the byte at `offset_bytes` falls into.
    pub const fn containing(offset_bytes: u64) -> Self {
        Self(offset_bytes >> PAGE_SHIFT)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Offset of the page's first byte. Saturates to `u64::MAX` for [`PageIndex::MAX`].
    pub const fn start_bytes(self) -> u64 {
        self.0.saturating_mul(PAGE_SIZE_BYTES)
    }
}

impl Add<PageCount> for PageIndex {
    type Output = Self;

    /// The page this many further on.
    ///
    /// # Panics
    /// Beyond [`PageIndex::MAX`].
    fn add(self, count: PageCount) -> Self {
        Self::new(self.0 + count.0)
    }
}

impl Sub for PageIndex {
    type Output = PageCount;

    /// The pages from `earlier` to this one.
    ///
    /// # Panics
    /// If `earlier` comes later.
    fn sub(self, earlier: Self) -> PageCount {
        assert!(earlier <= self, "a distance in pages is never negative");
        PageCount(self.0 - earlier.0)
    }
}

/// A number of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageCount(u64);

impl PageCount {
    /// This many pages.
    ///
    /// # Panics
    /// If `count` is beyond the last page.
    pub const fn new(count: u64) -> Self {
        assert!(count <= PAGES_MAX, "more pages than there are offsets");
        Self(count)
    }

    /// The pages needed to hold `bytes`, rounded up.
    pub const fn covering(bytes: u64) -> Self {
        Self(bytes.div_ceil(PAGE_SIZE_BYTES))
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The bytes these pages hold. Saturates to `u64::MAX` for the whole of the address space.
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(PAGE_SIZE_BYTES)
    }
}

/// Adjacent pages, half open: `end` is not one of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PageRange {
    /// The first page.
    pub start: PageIndex,
    /// One past the last page; never before `start`.
    pub end: PageIndex,
}

impl PageRange {
    /// The pages from `start` up to `end`.
    ///
    /// # Panics
    /// If the range ends before it starts.
    pub fn new(start: PageIndex, end: PageIndex) -> Self {
        assert!(start <= end, "a page range ends before it starts");
        Self { start, end }
    }

    /// The pages that hold at least one byte of `range`; none if `range` is empty.
    ///
    /// ```
    /// # use headwater_core::units::{ByteRange, PageCount, PageRange};
    /// assert_eq!(PageRange::covering(ByteRange::new(4095, 4097)).len(), PageCount::new(2));
    /// assert!(PageRange::covering(ByteRange::new(4095, 4095)).is_empty());
    /// ```
    pub fn covering(range: ByteRange) -> Self {
        let start = PageIndex::containing(range.start);
        if range.is_empty() {
            return Self::new(start, start);
        }
        Self::new(start, PageIndex::containing(range.end - 1) + PageCount(1))
    }

    /// How many pages.
    ///
    /// # Panics
    /// If the fields were set against U1.
    pub fn len(&self) -> PageCount {
        self.end - self.start
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// From the first byte of the first page to the last byte of the last.
    pub fn bytes(&self) -> ByteRange {
        ByteRange::new(self.start.start_bytes(), self.end.start_bytes())
    }

    /// Whether a page is in both.
    ///
    /// ```
    /// # use headwater_core::units::{PageIndex, PageRange};
    /// let pages = |start, end| PageRange::new(PageIndex::new(start), PageIndex::new(end));
    /// assert!(pages(1, 3).meets(pages(2, 9)));
    /// assert!(!pages(1, 3).meets(pages(3, 9)));
    /// ```
    pub fn meets(&self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The pages one by one, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = PageIndex> + Clone + use<> {
        (self.start.0..self.end.0).map(PageIndex)
    }
}

/// Adjacent bytes of a file, half open: the byte at `end` is not one of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// One past the offset of the last byte; never before `start`.
    pub end: u64,
}

impl ByteRange {
    /// The bytes from `start` up to `end`.
    ///
    /// # Panics
    /// If the range ends before it starts.
    pub const fn new(start: u64, end: u64) -> Self {
        assert!(start <= end, "a byte range ends before it starts");
        Self { start, end }
    }

    /// `length_bytes` bytes from `start_bytes` on, fewer where offsets end (`u64::MAX`).
    pub const fn at(start_bytes: u64, length_bytes: u64) -> Self {
        Self { start: start_bytes, end: start_bytes.saturating_add(length_bytes) }
    }

    /// How many bytes.
    ///
    /// # Panics
    /// If the range ends before it starts.
    pub const fn len(&self) -> u64 {
        assert!(self.start <= self.end, "a byte range ends before it starts");
        self.end - self.start
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether the byte at `offset_bytes` is one of them.
    pub const fn contains(&self, offset_bytes: u64) -> bool {
        self.start <= offset_bytes && offset_bytes < self.end
    }

    /// The bytes in both ranges. Where they share none, an empty range at the offset of `self` nearest to
    /// `other`, so the result always lies within `self`.
    ///
    /// ```
    /// # use headwater_core::units::ByteRange;
    /// let range = ByteRange::new(10, 20);
    /// assert_eq!(range.intersect(ByteRange::new(15, 30)), ByteRange::new(15, 20));
    /// assert_eq!(range.intersect(ByteRange::new(25, 30)), ByteRange::new(20, 20));
    /// ```
    pub fn intersect(&self, other: Self) -> Self {
        let start = other.start.clamp(self.start, self.end);
        Self { start, end: other.end.clamp(start, self.end) }
    }

    /// The bytes before `length_bytes`, the length of a file. A range wholly beyond it becomes empty where it
    /// starts.
    ///
    /// ```
    /// # use headwater_core::units::ByteRange;
    /// assert_eq!(ByteRange::new(10, 20).clip(15), ByteRange::new(10, 15));
    /// assert!(ByteRange::new(10, 20).clip(5).is_empty());
    /// ```
    pub fn clip(&self, length_bytes: u64) -> Self {
        self.intersect(Self::new(0, length_bytes))
    }
}

impl core::ops::RangeBounds<u64> for ByteRange {
    fn start_bound(&self) -> core::ops::Bound<&u64> {
        core::ops::Bound::Included(&self.start)
    }

    fn end_bound(&self) -> core::ops::Bound<&u64> {
        core::ops::Bound::Excluded(&self.end)
    }
}

/// Number of a frame: a page of the arena's memory, counted through its chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameId(u32);

impl FrameId {
    /// The frame with this number.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A power of two that offsets, lengths or addresses must be multiples of.
///
/// ```
/// # use headwater_core::units::{Alignment, ByteRange};
/// let alignment = Alignment::new(512).unwrap();
/// assert_eq!((alignment.down(1000), alignment.up(1000)), (512, 1024));
/// assert_eq!(alignment.expand(ByteRange::new(1000, 1025)), ByteRange::new(512, 1536));
/// assert_eq!(Alignment::new(1000), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Alignment(u32);

impl Alignment {
    /// Largest alignment: a huge page of x86-64. Logical blocks of devices end at 64 KiB.
    pub const BYTES_MAX: u64 = 2 << 20;
    /// No constraint.
    pub const ONE: Self = Self(1);
    /// Multiples of [`PAGE_SIZE_BYTES`].
    pub const PAGE: Self = Self(PAGE_SIZE_BYTES as u32);

    /// Multiples of `bytes`; `None` unless `bytes` is a power of two from 1 to [`Alignment::BYTES_MAX`].
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() && bytes <= Self::BYTES_MAX { Some(Self(bytes as u32)) } else { None }
    }

    /// The alignment in bytes.
    pub const fn get(self) -> u64 {
        self.0 as u64
    }

    /// The last multiple at or before `offset_bytes`.
    pub const fn down(self, offset_bytes: u64) -> u64 {
        offset_bytes & !(self.get() - 1)
    }

    /// The first multiple at or after `offset_bytes`. Beyond the last multiple that a `u64` holds, that last
    /// one: the only case in which the result is less than `offset_bytes`.
    pub const fn up(self, offset_bytes: u64) -> u64 {
        match offset_bytes.checked_next_multiple_of(self.get()) {
            Some(offset_bytes) => offset_bytes,
            None => self.down(u64::MAX),
        }
    }

    /// Whether `offset_bytes` is a multiple.
    pub const fn is_aligned(self, offset_bytes: u64) -> bool {
        self.down(offset_bytes) == offset_bytes
    }

    /// The smallest aligned range around `range`; its end saturates as in [`Alignment::up`]. An empty range
    /// that does not start at a multiple becomes one unit.
    pub const fn expand(self, range: ByteRange) -> ByteRange {
        ByteRange::new(self.down(range.start), self.up(range.end))
    }

    /// The stricter of the two; what is aligned to it is aligned to both.
    pub const fn max(self, other: Self) -> Self {
        if self.0 >= other.0 { self } else { other }
    }
}
