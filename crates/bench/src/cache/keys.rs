//! Keys: the order in which pages are read, drawn beforehand so that drawing is not measured.
//!
//! Owns: the two orders.
//! Does not own: the threads that read in these orders.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How keys are spread over the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Each page as likely as any other.
    Uniform,
    /// The k-th most popular page as likely as 1 / k^0.99, the spread of YCSB (Cooper et al., SoCC 2010).
    Zipf,
}

/// Keys in an order; the same in every run.
pub(super) fn keys(order: Order, pages: u32) -> Vec<u32> {
    let mut random = Random { state: 1 };
    match order {
        Order::Uniform => (0..KEYS).map(|_| random.below(pages)).collect(),
        Order::Zipf => zipf(pages, &mut random),
    }
}

fn zipf(pages: u32, random: &mut Random) -> Vec<u32> {
    let mut total = 0.0;
    let sums: Vec<f64> = (1..=pages)
        .map(|rank| {
            total += f64::from(rank).powf(-EXPONENT);
            total
        })
        .collect();
    let by_rank = shuffled(pages, random);
    let draw = |_| {
        let wanted = random.unit() * total;
        by_rank[sums.partition_point(|&sum| sum <= wanted).min(sums.len() - 1)]
    };
    (0..KEYS).map(draw).collect()
}

/// Popular pages lie anywhere (Fisher and Yates).
fn shuffled(pages: u32, random: &mut Random) -> Vec<u32> {
    let mut all: Vec<u32> = (0..pages).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, random.below(last as u32 + 1) as usize);
    }
    all
}

/// xorshift64* (Vigna 2016).
struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Four times as many as there are pages; 4 MiB, gone through in order, which costs the loop next to nothing.
const KEYS: usize = 1 << 20;

const EXPONENT: f64 = 0.99;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(order: Order, pages: u32) -> Vec<usize> {
        let mut counts = vec![0; pages as usize];
        keys(order, pages).into_iter().for_each(|key| counts[key as usize] += 1);
        counts.sort_unstable();
        counts
    }

    /// Goal: uniform keys spread evenly, and zipf's most popular page gets what the law says. Method: 1000 pages; by the
    /// law the first has 1 / 7.73 of all.
    #[test]
    fn spreads() {
        let uniform = counts(Order::Uniform, 1000);
        assert!(uniform[0] > 800 && uniform[999] < 1300, "{} to {}", uniform[0], uniform[999]);
        let zipf = counts(Order::Zipf, 1000);
        let share = KEYS as f64 / zipf[999] as f64;
        assert!((7.5..8.0).contains(&share), "{share}");
        assert!(zipf[998] * 2 > zipf[999] && zipf[0] < 400, "{:?}", &zipf[990..]);
    }
}
