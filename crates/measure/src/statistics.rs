//! Statistics: what several runs of a program are summed up to, by the same formulas as hyperfine's.
//!
//! Owns: mean, deviation, range, which runs are outliers, their words; where a mean lies.
//! Does not own: which sample of a metric counts (`row`), whether rows differ (`verdict`).

use crate::row::median;

/// Runs in seconds, or any other unit.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The arithmetic mean.
    pub mean: f64,
    /// The standard deviation of a sample (n - 1); `None` of one run.
    pub stddev: Option<f64>,
    /// The middle one.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// Which runs are outliers, by their positions; of fewer than five, none.
    pub outliers: Vec<usize>,
}

impl Summary {
    /// `None` of no runs.
    pub fn of(runs: &[f64]) -> Option<Summary> {
        let samples = || runs.iter().copied();
        let (min, max) = (samples().reduce(f64::min)?, samples().reduce(f64::max)?);
        let count = runs.len() as f64;
        let mean = samples().sum::<f64>() / count;
        let squares: f64 = samples().map(|run| (run - mean).powi(2)).sum();
        let stddev = (runs.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Some(Summary { mean, stddev, median: median(samples()), min, max, outliers: outliers(runs) })
    }

    /// `12.3 ± 0.4`, each times a factor; without a deviation the mean alone.
    pub fn mean_words(&self, factor: f64, places: usize) -> String {
        let mean = self.mean * factor;
        match self.stddev {
            Some(stddev) => format!("{mean:.places$}\u{a0}±\u{a0}{:.places$}", stddev * factor),
            None => format!("{mean:.places$}"),
        }
    }

    /// `11.9 … 12.8`, each times a factor.
    pub fn range_words(&self, factor: f64, places: usize) -> String {
        format!("{:.places$}\u{a0}…\u{a0}{:.places$}", self.min * factor, self.max * factor)
    }
}

/// Where the mean of what the values are samples of lies with 95 %, by Student's distribution. `None` of fewer than two.
pub fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len();
    let quantile = QUANTILES.get(count.checked_sub(2)?).copied().unwrap_or(1.96);
    let mean = values.iter().sum::<f64>() / count as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
    let half = quantile * (variance / count as f64).sqrt();
    Some((mean - half, mean + half))
}

/// 97.5 % of Student's distribution with 1, 2, … degrees of freedom; with more, nearly 1.96.
const QUANTILES: [f64; 20] = [
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11,
    2.10, 2.09, 2.09,
];

/// Those with a modified Z-score above the threshold: their distance from the median, in median absolute deviations (Iglewicz and
/// Hoaglin, "How to detect and handle outliers", 1993).
fn outliers(runs: &[f64]) -> Vec<usize> {
    if runs.len() < OUTLIER_RUNS_MIN {
        return Vec::new();
    }
    let middle = median(runs.iter().copied());
    let deviation = median(runs.iter().map(|run| (run - middle).abs())).max(f64::EPSILON);
    let is_outlier = |&(_, run): &(usize, &f64)| ((run - middle) / deviation).abs() > OUTLIER_THRESHOLD;
    runs.iter().enumerate().filter(is_outlier).map(|(index, _)| index).collect()
}

/// hyperfine's: 1.4826 makes a median absolute deviation an estimate of the standard deviation, of which it takes ten.
const OUTLIER_THRESHOLD: f64 = 14.826;

/// Of three, one is far from the other two whenever those happen to be close.
const OUTLIER_RUNS_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// From a table of Student's distribution: n = 3, mean 2, deviation 1.
    #[test]
    fn intervals_are_those_of_student() {
        let (low, high) = interval(&[1.0, 2.0, 3.0]).unwrap();
        assert!((low + 0.483).abs() < 0.01 && (high - 4.483).abs() < 0.01, "{low} {high}");
        assert_eq!(interval(&[1.0]), None);
    }

    /// Goal: each figure by its formula. Method: values worked out by hand.
    #[test]
    fn figures_of_runs() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[2.0]).unwrap();
        assert_eq!((one.mean, one.stddev, one.median, one.min, one.max), (2.0, None, 2.0, 2.0, 2.0));
        assert_eq!(one.mean_words(1000.0, 1), "2000.0");
        let four = Summary::of(&[2.0, 4.0, 4.0, 6.0]).unwrap();
        assert_eq!((four.mean, four.median, four.min, four.max), (4.0, 4.0, 2.0, 6.0));
        assert!((four.stddev.unwrap() - (8.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(four.mean_words(1.0, 2).replace('\u{a0}', " "), "4.00 ± 1.63");
        assert_eq!(four.range_words(10.0, 0).replace('\u{a0}', " "), "20 … 60");
    }

    /// Goal: a run far from the others is an outlier, runs that only scatter are none, and equal runs do no harm.
    #[test]
    fn outliers_are_found() {
        let of = |runs: &[f64]| Summary::of(runs).unwrap().outliers;
        assert_eq!(of(&[9.0, 1.0, 1.1, 0.9, 1.0]), [0]);
        assert_eq!(of(&[1.0, 1.2, 0.8, 1.5, 0.7]), [0_usize; 0]);
        assert_eq!(of(&[1.0; 5]), [0_usize; 0]);
        assert_eq!(of(&[1.0, 1.0, 1.0, 1.0, 1.5]), [4]);
        assert_eq!(of(&[1.0, 1.001, 9.0]), [0_usize; 0]);
    }
}
