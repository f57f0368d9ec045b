//! Measure: what an arm reports, and medians over interleaved rounds.

use serde::{Deserialize, Serialize};

/// What one run of an arm reports. Fields that mean nothing for an arm are zero.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Of bytes read.
    pub(crate) mib_per_s: f64,
    /// Requests a second, for random arms.
    pub(crate) iops: f64,
    /// Requests in all, for random arms.
    pub(crate) requests: f64,
    /// Processor time of the whole process, its kernel part included.
    pub(crate) cpu_s: f64,
    /// The same for each GiB read.
    pub(crate) cpu_s_per_gib: f64,
    /// Peak resident memory (`VmHWM`) of the process.
    pub(crate) peak_rss_mib: f64,
    /// Of a hot set, what was still in the cache afterwards.
    pub(crate) hot_share: f64,
}

/// The middle value; the mean of the two middle ones for an even count.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// Runs the arms in turn, `rounds` times, and returns the samples of each.
pub(crate) fn interleave<A, S>(
    arms: &[A],
    rounds: usize,
    mut run: impl FnMut(&A) -> std::io::Result<S>,
) -> std::io::Result<Vec<Vec<S>>> {
    let mut samples: Vec<Vec<S>> = arms.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (arm, samples) in arms.iter().zip(&mut samples) {
            samples.push(run(arm)?);
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: medians of odd, even and empty sets.
    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
