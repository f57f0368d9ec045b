//! Pace: whether the device or the hash limits the rate at which a file is read.
//!
//! Hashing a piece in several threads costs half as much processor time again (measured with BLAKE3 and 1 MiB: 2.2 and 3.5 s
//! for 8 GiB), which pays only where the device is faster than one thread.
//!
//! Owns: recent times of waiting and hashing, the choice between one thread and several.
//! Does not own: the threads.

use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hashing {
    /// By the thread that reads.
    Alone,
    /// By all threads.
    Shared,
}

#[derive(Debug)]
pub(super) struct Pace {
    waited_s: f64,
    hashed_s: f64,
    hashing: Hashing,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { waited_s: 0.0, hashed_s: 0.0, hashing: Hashing::Alone }
    }

    pub(super) fn hashing(&self) -> Hashing {
        self.hashing
    }

    /// Notes how long a piece was waited for, and how long hashing it took.
    pub(super) fn note(&mut self, waited: Duration, hashed: Duration) {
        self.waited_s = self.waited_s * KEPT + waited.as_secs_f64();
        self.hashed_s = self.hashed_s * KEPT + hashed.as_secs_f64();
        let waited_share = self.waited_s / (self.waited_s + self.hashed_s).max(f64::MIN_POSITIVE);
        self.hashing = match self.hashing {
            Hashing::Alone if waited_share < WAITED_SHARE_MIN => Hashing::Shared,
            Hashing::Shared if waited_share > WAITED_SHARE_MAX => Hashing::Alone,
            other => other,
        };
    }
}

/// The decay of older times: some ten pieces count.
const KEPT: f64 = 0.9;

/// Below this share of waiting, the next piece is ready when it is needed: the hash is the limit.
const WAITED_SHARE_MIN: f64 = 0.05;

/// Above this share of waiting, one thread would keep up with the device. The two limits are far apart, so that the choice does not
/// change with every piece: a second thread raises the share from nothing to a half at most.
const WAITED_SHARE_MAX: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pieces: &[(u64, u64)]) -> Hashing {
        let mut pace = Pace::new();
        for &(waited_us, hashed_us) in pieces {
            pace.note(Duration::from_micros(waited_us), Duration::from_micros(hashed_us));
        }
        pace.hashing()
    }

    /// Goal: threads are called where hashing is what takes the time, stay while they are needed, and go again.
    #[test]
    fn the_slower_one_decides() {
        assert_eq!(after(&[(200, 300); 20]), Hashing::Alone, "the device is slower");
        assert_eq!(after(&[(0, 300); 20]), Hashing::Shared, "hashing is");
        let mut pieces = vec![(0, 300); 20];
        pieces.extend([(140, 160); 40]);
        assert_eq!(after(&pieces), Hashing::Shared, "and is needed to keep up");
        pieces.extend([(500, 160); 40]);
        assert_eq!(after(&pieces), Hashing::Alone, "the device became slower");
        assert_eq!(after(&[(0, 0); 20]), Hashing::Shared, "no time at all is no reason to wait");
    }
}
