//! Setting: a request size and a queue depth, and the result of measuring it.

use std::time::Duration;

use headwater::testing::profiles::TunedSetting;
use serde::Serialize;

use crate::shared::units::MIB;
use crate::shared::units::readable;

#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    pub(crate) size_bytes: u64,
    pub(crate) depth: u32,
}

/// The result of one measurement of a setting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Measured {
    pub(crate) bytes_per_s: f64,
    /// Latencies of requests, from submission to completion.
    pub(crate) mean_us: f64,
    pub(crate) p99_us: f64,
    /// All of it, start and end included.
    pub(crate) took: Duration,
}

impl Setting {
    /// Memory of the requests in flight: the cost of a setting.
    pub(crate) fn queue_bytes(self) -> u64 {
        self.size_bytes * u64::from(self.depth)
    }

    /// The order of settings: cheapest first; of equal cost, the one with fewer requests first.
    pub(crate) fn cost(self) -> (u64, u32) {
        (self.queue_bytes(), self.depth)
    }

    pub(crate) fn words(self) -> String {
        format!("{} × {}", readable(self.size_bytes), self.depth)
    }

    /// The setting as a profile stores it.
    pub(crate) fn tuned(self, bytes_per_s: f64) -> TunedSetting {
        TunedSetting { size_bytes: self.size_bytes, depth: self.depth, mib_per_s: bytes_per_s / MIB }
    }
}
