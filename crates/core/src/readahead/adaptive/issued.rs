//! Issued: the planned reads that are not reported done, and how long reads take.
//!
//! A ring of bounded length: should more be under way, the oldest are forgotten, which costs a sample of the latency
//! and the news that they were refused.

use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use super::direction::Span;
use crate::readahead::ReadId;

/// Some planned reads of one stream.
#[derive(Clone, Debug)]
pub(super) struct Issue {
    pub(super) ids: Range<u64>,
    /// Of the stream.
    pub(super) serial: u64,
    pub(super) span: Span,
    pub(super) submitted: Duration,
}

/// The reads under way.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    ring: Vec<Issue>,
    oldest: usize,
    latency: Option<Duration>,
}

impl Issued {
    pub(super) fn new() -> Self {
        Self { ring: Vec::new(), oldest: 0, latency: None }
    }

    /// Shortest latency seen lately.
    pub(super) fn latency(&self) -> Option<Duration> {
        self.latency
    }

    pub(super) fn push(&mut self, issue: Issue) {
        if self.ring.len() < ISSUED_MAX {
            self.ring.push(issue);
        } else {
            self.ring[self.oldest] = issue;
            self.oldest = (self.oldest + 1) % ISSUED_MAX;
        }
    }

    pub(super) fn find(&self, id: ReadId) -> Option<&Issue> {
        // Those that end were begun lately.
        let (newer, older) = self.ring.split_at(self.oldest);
        newer.iter().rev().chain(older.iter().rev()).find(|issue| issue.ids.contains(&id.get()))
    }

    /// A read took this long. Reads of which all pages were cached take no time and say nothing.
    pub(super) fn on_latency(&mut self, sample: Duration) {
        if sample.is_zero() {
            return;
        }
        self.latency = Some(match self.latency {
            Some(shortest) if shortest < sample => shortest + (sample - shortest) / FORGET,
            _ => sample,
        });
    }
}

/// Twice the extents that the longest distance holds by default, were they of the smallest size: 128 KiB of 8 MiB.
const ISSUED_MAX: usize = 128;

/// A longer latency counts for a 64th: a device that got slow is believed after a few hundred reads, and one
/// read that stood in a queue changes little.
const FORGET: u32 = 64;
