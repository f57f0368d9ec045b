//! Readahead limits: how large, how far, and how much altogether.
//!
//! Owns: the bounds of every readahead policy, their defaults with reasons, and which of them fit together.
//!
//! Does not own: which of them a stream is at.

use crate::units::{Alignment, PAGE_SIZE_BYTES};

/// Bounds of what is read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadaheadLimits {
    /// Size of a stream's first extent in bytes; a power of two, at least a page.
    pub size_bytes_min: u64,
    /// Size the extents grow to in bytes; a power of two, at least `size_bytes_min`.
    pub size_bytes_max: u64,
    /// Farthest that a stream reads ahead of its consumer in bytes, at least `size_bytes_max`. Below twice of
    /// it a consumer waits for every extent.
    pub distance_bytes_max: u64,
    /// Most that all streams of a file together have read ahead and not consumed, in bytes: the prefetch share
    /// of the memory budget. Zero turns reading ahead off. [`SequentialStream`](super::SequentialStream) has
    /// memory of its own and does not look at it.
    pub share_bytes_max: u64,
    /// Longest gap between two pieces of a pattern that is read rather than skipped, in bytes.
    pub span_bytes_max: u64,
}

impl ReadaheadLimits {
    /// First extent: 128 KiB, what Linux reads ahead by default. Smaller costs more per byte on every device;
    /// larger is wasted on a file of which only the header is read.
    pub const SIZE_BYTES_MIN_DEFAULT: u64 = 128 << 10;
    /// Largest extent: 1 MiB. Cold scans of a virtio disk (2.7 GB/s) ran equally fast from 256 KiB to 2 MiB, at
    /// 0.033 CPU-s/GiB with 256 KiB, 0.019 with 1 MiB and 0.015 with 2 MiB; on a memory-backed device (11 GB/s)
    /// 1 MiB gave 1.17 times the rate of 256 KiB.
    pub const SIZE_BYTES_MAX_DEFAULT: u64 = 1 << 20;
    /// Distance: 8 MiB. On the same disk 8 MiB ran at 2752 MiB/s, 16 MiB at 2629 and 32 MiB at 2496: a queue
    /// deeper than the device needs only makes it slower. At 7 GB/s it still covers a latency of 1 ms.
    pub const DISTANCE_BYTES_MAX_DEFAULT: u64 = 8 << 20;

    /// Share: 16 MiB, a quarter of the default memory budget: two streams at their full distance, or eight
    /// at the usual two extents.
    pub const SHARE_BYTES_MAX_DEFAULT: u64 = 16 << 20;
    /// Span: 8 KiB. A request costs the processor 3.8 us on huge pages, in which a device of 2.3 GB/s
    /// transfers 8.7 KB: a longer gap is cheaper to skip.
    pub const SPAN_BYTES_MAX_DEFAULT: u64 = 8 << 10;

    /// Checks that the limits fit together. Share and span may have any value.
    ///
    /// ```
    /// # use headwater_core::readahead::ReadaheadLimits;
    /// let usual = ReadaheadLimits::default();
    /// assert!(ReadaheadLimits { size_bytes_max: 2 << 20, ..usual }.validate().is_ok());
    /// assert!(ReadaheadLimits { size_bytes_max: 3 << 20, ..usual }.validate().is_err(), "it is no power of two");
    /// ```
    ///
    /// # Errors
    /// The first rule that the limits break.
    pub fn validate(&self) -> Result<(), LimitsError> {
        if self.size_bytes_min == 0 {
            return Err(LimitsError::SizeZero);
        }
        let is_size = |bytes: u64| bytes.is_power_of_two() && bytes.is_multiple_of(PAGE_SIZE_BYTES);
        if !is_size(self.size_bytes_min) || !is_size(self.size_bytes_max) {
            return Err(LimitsError::SizeNotPagesPowerOfTwo);
        }
        if self.size_bytes_min > self.size_bytes_max {
            return Err(LimitsError::SizeMinAboveMax);
        }
        if self.distance_bytes_max < self.size_bytes_max {
            return Err(LimitsError::DistanceBelowSize);
        }
        Ok(())
    }

    /// [`ReadaheadLimits::size_bytes_min`] in pages.
    pub(super) fn size_pages_min(&self) -> u64 {
        self.size_bytes_min / PAGE_SIZE_BYTES
    }

    /// [`ReadaheadLimits::size_bytes_max`] in pages.
    pub(super) fn size_pages_max(&self) -> u64 {
        self.size_bytes_max / PAGE_SIZE_BYTES
    }

    /// [`ReadaheadLimits::distance_bytes_max`] in whole pages.
    pub(super) fn distance_pages_max(&self) -> u64 {
        self.distance_bytes_max / PAGE_SIZE_BYTES
    }

    /// The limits, raised where the alignment asks for more.
    ///
    /// # Panics
    /// If they are not valid.
    pub(super) fn normalised(self, alignment: Alignment) -> Self {
        assert!(self.validate() == Ok(()), "readahead limits are not valid");
        let size_bytes_max = self.size_bytes_max.max(alignment.get());
        Self {
            size_bytes_min: self.size_bytes_min.max(alignment.get()),
            size_bytes_max,
            distance_bytes_max: self.distance_bytes_max.max(size_bytes_max),
            ..self
        }
    }
}

impl Default for ReadaheadLimits {
    fn default() -> Self {
        Self {
            size_bytes_min: Self::SIZE_BYTES_MIN_DEFAULT,
            size_bytes_max: Self::SIZE_BYTES_MAX_DEFAULT,
            distance_bytes_max: Self::DISTANCE_BYTES_MAX_DEFAULT,
            share_bytes_max: Self::SHARE_BYTES_MAX_DEFAULT,
            span_bytes_max: Self::SPAN_BYTES_MAX_DEFAULT,
        }
    }
}

/// Why limits cannot be used. Reads after "failed to apply the limits:".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitsError {
    /// The smallest size is zero.
    SizeZero,
    /// A size is not a power of two, or less than a page.
    SizeNotPagesPowerOfTwo,
    /// The smallest size is larger than the largest.
    SizeMinAboveMax,
    /// The distance does not hold one extent of the largest size.
    DistanceBelowSize,
    /// A fixed number of pages ahead is zero, or more than the distance holds.
    FixedBeyondDistance,
}

impl core::fmt::Display for LimitsError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::SizeZero => "smallest readahead size is zero",
            Self::SizeNotPagesPowerOfTwo => "readahead size is not a power of two of at least a page",
            Self::SizeMinAboveMax => "smallest readahead size is larger than the largest",
            Self::DistanceBelowSize => "readahead distance is less than the largest size",
            Self::FixedBeyondDistance => "fixed readahead is zero or beyond the largest distance",
        })
    }
}

impl core::error::Error for LimitsError {}
