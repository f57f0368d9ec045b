//! Setting: a request size and a number of requests in flight, and what came of it.

use std::time::Duration;

use headwater::testing::profiles::TunedSetting;
use serde::Serialize;

use crate::bench::suite::MIB;
use crate::shared::units::readable;

#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    pub(crate) size_bytes: u64,
    pub(crate) depth: u32,
}

/// What one measurement of a setting gave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Measured {
    pub(crate) bytes_per_s: f64,
    /// Of a request, from being submitted to being complete.
    pub(crate) mean_us: f64,
    pub(crate) p99_us: f64,
    /// All of it, start and end included.
    pub(crate) took: Duration,
}

impl Setting {
    /// Memory that is with the device at any time: what a setting costs.
    pub(crate) fn queue_bytes(self) -> u64 {
        self.size_bytes * u64::from(self.depth)
    }

    /// Cheapest first; of two that cost the same, the one with fewer requests.
    pub(crate) fn cost(self) -> (u64, u32) {
        (self.queue_bytes(), self.depth)
    }

    pub(crate) fn words(self) -> String {
        format!("{} × {}", readable(self.size_bytes), self.depth)
    }

    /// As it is stored.
    pub(crate) fn tuned(self, bytes_per_s: f64) -> TunedSetting {
        TunedSetting { size_bytes: self.size_bytes, depth: self.depth, mib_per_s: bytes_per_s / MIB }
    }
}
