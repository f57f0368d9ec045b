//! Traces: accesses to pages as caches meet them, decided by a seed.
//!
//! ```text
//!   popular pages (Zipf)   ▪▪ ▪ ▪▪▪ ▪ ▪▪ ▪▪▪▪ ▪ ▪▪
//!   scans                      ▸▸▸▸▸▸        ▸▸▸▸▸▸       one after the other, or interleaved
//! ```
//!
//! Owns: the patterns and their proportions.
//! Does not own: sizes (the caller gives them), what a cache makes of the accesses.

use crate::rng::{Rng, mix};

/// A pattern of accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trace {
    /// Popular pages; from time to time a scan over pages that never come again, one to two caches long.
    ZipfThenScans,
    /// Popular pages, and among them a scan that touches each page four times in a row, as a reader of records does
    /// whose buffer is a quarter of a page.
    ZipfAmongScan,
    /// Popular pages; from time to time a scan over a table, one and a half caches long and always the same.
    ZipfThenTable,
    /// One page after the other, again and again; the cache holds four fifths of them.
    Loop,
    /// Popular pages alone.
    Zipf,
    /// All pages alike.
    Uniform,
}

/// How large everything is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TraceShape {
    /// Pages that the cache holds: scans and loops are measured by it.
    pub cache_pages: u64,
    /// Pages that are accessed by popularity, or all alike.
    pub pages: u64,
    /// The exponent of Zipf's law: the page of rank n is accessed in proportion to 1 / n^skew.
    pub skew: f64,
}

impl Trace {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ZipfThenScans,
        Self::ZipfAmongScan,
        Self::ZipfThenTable,
        Self::Loop,
        Self::Zipf,
        Self::Uniform,
    ];

    /// The pages accessed, without an end; the same for the same seed.
    pub fn accesses(self, shape: TraceShape, seed: u64) -> impl Iterator<Item = u64> {
        let mut generator = Generator::new(self, shape, seed);
        std::iter::repeat_with(move || generator.next())
    }
}

struct Generator {
    trace: Trace,
    shape: TraceShape,
    rng: Rng,
    /// For each rank, how many of the accesses go to it or one above it.
    cumulated: Vec<f64>,
    /// What is left of the scan, or of the touches of its page.
    scan_left: u64,
    /// The next page of the scan, counted from [`SCANNED_PAGES_START`].
    scan_page: u64,
    /// Accesses by popularity until the next scan.
    popular_left: u64,
}

impl Generator {
    fn new(trace: Trace, shape: TraceShape, seed: u64) -> Self {
        let is_popular = !matches!(trace, Trace::Loop | Trace::Uniform);
        let cumulated = if is_popular { zipf(shape.pages, shape.skew) } else { Vec::new() };
        let popular_left = shape.cache_pages * POPULAR_CACHES;
        Self { trace, shape, rng: Rng::new(seed), cumulated, scan_left: 0, scan_page: 0, popular_left }
    }

    fn next(&mut self) -> u64 {
        match self.trace {
            Trace::ZipfThenScans | Trace::ZipfThenTable => self.popular_or_scan(),
            Trace::ZipfAmongScan => self.popular_or_touch(),
            Trace::Loop => self.next_of_loop(),
            Trace::Zipf => self.popular(),
            Trace::Uniform => self.rng.below(self.shape.pages),
        }
    }

    fn popular_or_scan(&mut self) -> u64 {
        if self.scan_left > 0 {
            self.scan_left -= 1;
            return self.scanned();
        }
        self.popular_left -= 1;
        if self.popular_left == 0 {
            self.popular_left = self.shape.cache_pages * POPULAR_CACHES;
            self.begin_scan();
        }
        self.popular()
    }

    fn begin_scan(&mut self) {
        let cache_pages = self.shape.cache_pages;
        self.scan_left = match self.trace {
            Trace::ZipfThenTable => cache_pages * 3 / 2,
            _ => self.rng.range(cache_pages, 2 * cache_pages + 1),
        };
        if self.trace == Trace::ZipfThenTable {
            self.scan_page = 0;
        }
    }

    fn popular_or_touch(&mut self) -> u64 {
        if self.scan_left == 0 && self.rng.chance(SCAN_CHANCE.0, SCAN_CHANCE.1) {
            self.scan_left = TOUCHES;
        }
        if self.scan_left == 0 {
            return self.popular();
        }
        self.scan_left -= 1;
        let page = SCANNED_PAGES_START + self.scan_page;
        self.scan_page += u64::from(self.scan_left == 0);
        page
    }

    fn next_of_loop(&mut self) -> u64 {
        self.scan_page = (self.scan_page + 1) % (self.shape.cache_pages * 5 / 4);
        self.scan_page
    }

    fn scanned(&mut self) -> u64 {
        self.scan_page += 1;
        SCANNED_PAGES_START + self.scan_page - 1
    }

    /// Popularity has nothing to do with where a page is.
    fn popular(&mut self) -> u64 {
        let share = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = self.cumulated.partition_point(|&cumulated| cumulated < share);
        mix(rank as u64) >> 1
    }
}

/// The share of all accesses that goes to a page or a more popular one, by rank.
fn zipf(pages: u64, skew: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut cumulated: Vec<f64> = (1..=pages)
        .map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        })
        .collect();
    cumulated.iter_mut().for_each(|share| *share /= sum);
    cumulated
}

/// Popular pages are below.
const SCANNED_PAGES_START: u64 = 1 << 63;

/// Between two scans, in caches: scans are a fifth to a third of a database's reads while reports run.
const POPULAR_CACHES: u64 = 4;

/// One in 16 accesses begins a page of the interleaved scan; with its touches it makes a fifth of all accesses.
const SCAN_CHANCE: (u64, u64) = (1, 16);

const TOUCHES: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: TraceShape = TraceShape { cache_pages: 100, pages: 1000, skew: 0.9 };

    fn accesses(trace: Trace, seed: u64) -> Vec<u64> {
        trace.accesses(SHAPE, seed).take(10_000).collect()
    }

    /// Goal: a seed decides a trace, and another seed another; but for the loop, which has nothing to decide.
    #[test]
    fn seeds_decide() {
        for trace in Trace::ALL {
            assert_eq!(accesses(trace, 1), accesses(trace, 1), "{trace:?}");
            assert_eq!(accesses(trace, 1) == accesses(trace, 2), trace == Trace::Loop, "{trace:?}");
        }
    }

    /// Goal: the proportions are those promised. Method: count accesses of scans, and of the most popular page.
    #[test]
    fn proportions() {
        let scanned = |trace| accesses(trace, 3).iter().filter(|&&page| page >= SCANNED_PAGES_START).count();
        assert!((2000..=3500).contains(&scanned(Trace::ZipfThenScans)));
        assert!((2000..=3500).contains(&scanned(Trace::ZipfThenTable)));
        assert!((1800..=2300).contains(&scanned(Trace::ZipfAmongScan)));
        let harmonic: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.9)).sum();
        let most_popular = accesses(Trace::Zipf, 3).iter().filter(|&&page| page == mix(0) >> 1).count();
        let expected = 10_000.0 / harmonic;
        assert!((most_popular as f64 - expected).abs() < 0.1 * expected, "{most_popular}");
    }

    /// Goal: a page of the interleaved scan is touched four times in a row, and never again.
    #[test]
    fn touches_are_in_a_row() {
        let scanned: Vec<u64> = accesses(Trace::ZipfAmongScan, 3)
            .into_iter()
            .filter(|&page| page >= SCANNED_PAGES_START)
            .collect();
        for (index, page) in scanned.iter().enumerate() {
            assert_eq!(page - SCANNED_PAGES_START, index as u64 / TOUCHES);
        }
    }
}
