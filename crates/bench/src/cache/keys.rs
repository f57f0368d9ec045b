//! Keys: the order in which pages are read, drawn beforehand so that drawing is not measured.
//!
//! Owns: the two orders.
//! Does not own: the threads that read in these orders.

use clap::ValueEnum;
use headwater_testkit::Rng;
use serde::{Deserialize, Serialize};

use crate::pages::shuffle;

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
    let mut random = Rng::new(1);
    match order {
        Order::Uniform => (0..KEYS).map(|_| random.below(pages.into()) as u32).collect(),
        Order::Zipf => zipf(pages, &mut random),
    }
}

fn zipf(pages: u32, random: &mut Rng) -> Vec<u32> {
    let mut total = 0.0;
    let sums: Vec<f64> = (1..=pages)
        .map(|rank| {
            total += f64::from(rank).powf(-EXPONENT);
            total
        })
        .collect();
    // Popular pages lie anywhere.
    let mut by_rank: Vec<u32> = (0..pages).collect();
    shuffle(&mut by_rank, random);
    let draw = |_| {
        let wanted = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * total;
        by_rank[sums.partition_point(|&sum| sum <= wanted).min(sums.len() - 1)]
    };
    (0..KEYS).map(draw).collect()
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
