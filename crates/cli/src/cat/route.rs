//! Route: which parts of a file the kernel's page cache holds.
//!
//! ```text
//!   window ─ in the cache? ─┬─ all of it ─► kernel,  next window longer
//!                           ├─ none ──────► device,  next window longer
//!                           └─ some ──────► half the window, asked again; at 128 KiB: device
//! ```
//!
//! Owns: the length of the windows.
//! Does not own: how residency is found (`cachestat`, or probing), moving the bytes.
//! Hot path: one cheap system call for 8 MiB of a fully cached file, two for each window of an uncached one.

use headwater::{ByteRange, Residency};

/// The source of a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The page cache holds it.
    Kernel,
    /// The device has to read it.
    Device,
}

#[derive(Debug)]
pub(super) struct Router {
    window_bytes: u64,
    last: Option<Source>,
}

impl Router {
    pub(super) fn new() -> Router {
        Router { window_bytes: WINDOW_BYTES_FIRST, last: None }
    }

    /// The source of the bytes at `rest.start`, and the position up to which it is the same. `rest` must not be empty.
    pub(super) fn next(
        &mut self,
        rest: ByteRange,
        mut residency: impl FnMut(ByteRange) -> Residency,
    ) -> (ByteRange, Source) {
        loop {
            let window =
                ByteRange::new(rest.start, rest.end.min(rest.start.saturating_add(self.window_bytes)));
            let source = match look(window, &mut residency) {
                Residency::Whole | Residency::Unknown => Source::Kernel,
                Residency::None => Source::Device,
                Residency::Part if self.window_bytes <= WINDOW_BYTES_MIN => Source::Device,
                Residency::Part => {
                    self.window_bytes /= 2;
                    continue;
                }
            };
            self.window_bytes = (self.window_bytes * WINDOW_GROWTH).min(WINDOW_BYTES_MAX);
            let source = self.keep_reading_ahead(source, window);
            self.last = Some(source);
            return (window, source);
        }
    }

    /// A small island of cached pages does not end reading ahead: the reader takes it from the page cache by itself.
    fn keep_reading_ahead(&self, source: Source, window: ByteRange) -> Source {
        let island = self.last == Some(Source::Device) && window.len() < ISLAND_BYTES_MAX;
        if island { Source::Device } else { source }
    }
}

/// Long windows are sampled first: counting every page took a quarter as long as moving it (27 and 100 ns). What follows
/// cached pages and is cached every 8 MiB counts as cached; a cold gap in between is then read by the kernel.
fn look(window: ByteRange, residency: &mut impl FnMut(ByteRange) -> Residency) -> Residency {
    if window.len() < SAMPLED_BYTES_MIN {
        return residency(window);
    }
    let samples = window.len().div_ceil(SAMPLE_EVERY_BYTES) + 1;
    let stride_bytes = (window.len() - SAMPLE_BYTES) / (samples - 1);
    let sample = |index: u64| ByteRange::at(window.start + index * stride_bytes, SAMPLE_BYTES);
    let all = (0..samples).all(|index| residency(sample(index)) == Residency::Whole);
    if all {
        return Residency::Whole;
    }
    match residency(window) {
        // Where the kernel does not tell, this comes from the ends of the window, and a sample knew better.
        Residency::Whole => Residency::Part,
        other => other,
    }
}

const SAMPLED_BYTES_MIN: u64 = 4 << 20;

/// Asking about this much takes 0.5 % of the time to move it.
const SAMPLE_EVERY_BYTES: u64 = 8 << 20;

const SAMPLE_BYTES: u64 = 4 << 10;

const WINDOW_BYTES_FIRST: u64 = 1 << 20;

/// From the first window to the longest in two steps; a wrong guess is halved until it is right.
const WINDOW_GROWTH: u64 = 16;

/// Below, the question costs as much as the answer saves; a mixed window is read from the device, which leaves the
/// page cache as it was.
const WINDOW_BYTES_MIN: u64 = 128 << 10;

/// Pages may be evicted between the question and the move, which takes 5 ms for this much.
const WINDOW_BYTES_MAX: u64 = 256 << 20;

const ISLAND_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks a file whose pages of `MIB` are resident as given, and returns what went through the kernel.
    fn kernel_bytes(resident: &[bool]) -> (u64, usize) {
        let end = resident.len() as u64 * MIB;
        let mut asked = 0;
        let mut at = |range: ByteRange| {
            asked += 1;
            let (first, last) = (range.start / MIB, (range.end - 1) / MIB);
            let held = (first..=last).filter(|&page| resident[page as usize]).count() as u64;
            match held {
                0 => Residency::None,
                held if held == last - first + 1 => Residency::Whole,
                _ => Residency::Part,
            }
        };
        let (mut router, mut position, mut kernel) = (Router::new(), 0, 0);
        while position < end {
            let (range, source) = router.next(ByteRange::new(position, end), &mut at);
            assert!(range.start == position && range.end > position);
            if source == Source::Kernel {
                kernel += range.len();
            }
            position = range.end;
        }
        (kernel, asked)
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn uniform_files_are_asked_about_rarely() {
        assert_eq!(kernel_bytes(&[true; 128]).0, 128 * MIB);
        assert_eq!(kernel_bytes(&[false; 128]).0, 0);
        assert!(kernel_bytes(&[true; 128]).1 < 200);
    }

    /// Goal: mixed files go mostly the right way. Method: 8 MiB resident, 8 MiB not, in turn.
    #[test]
    fn mixed_files_are_split() {
        let resident: Vec<bool> = (0..128).map(|mib| mib / 8 % 2 == 0).collect();
        let (kernel, asked) = kernel_bytes(&resident);
        assert!(kernel > 45 * MIB, "{kernel}");
        assert!(kernel <= 64 * MIB, "no whole MiB that is cold goes through the kernel");
        assert!(asked < 300, "{asked}");
    }
}
