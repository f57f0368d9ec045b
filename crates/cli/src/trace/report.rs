//! Report: the table and the JSON of a replay.
//!
//! Owns: the columns and their titles.
//! Does not own: the counts.

use os_display::Quotable;
use serde::Serialize;

use super::replay::Cache;
use crate::shared::readahead;
use crate::shared::units::{ByteSize, readable};
use crate::trace::arguments::ReplayArguments;

#[derive(Serialize)]
pub(super) struct Report {
    trace: String,
    format: &'static str,
    readahead: String,
    page_bytes: u64,
    rows: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    policy: &'static str,
    cache_bytes: ByteSize,
    requests: u64,
    page_accesses: u64,
    misses: u64,
    miss_ratio: f64,
    device_reads: u64,
    pages_read: u64,
    read_ahead_pages: u64,
    used_pages: u64,
    unused_pages: u64,
}

impl Report {
    pub(super) fn new(arguments: &ReplayArguments, format: &'static str, caches: &[Cache]) -> Report {
        Report {
            trace: arguments.trace.display().to_string(),
            format,
            readahead: readahead::name(arguments.readahead),
            page_bytes: headwater_core::units::PAGE_SIZE_BYTES,
            rows: caches.iter().map(line).collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let (page, readahead) = (readable(self.page_bytes), &self.readahead);
        let mut lines = vec![
            format!("{} ({}), pages of {page}, readahead {readahead}", self.trace.maybe_quote(), self.format),
            String::new(),
            format!(
                "{:8}  {:>9}  {:>12}  {:>13}  {:>12}  {:>10}  {:>12}  {:>12}  {:>12}  {:>12}  {:>12}",
                "policy",
                "cache",
                "requests",
                "page accesses",
                "misses",
                "miss ratio",
                "device reads",
                "pages read",
                "read ahead",
                "used",
                "unused"
            ),
        ];
        lines.extend(self.rows.iter().map(Line::text));
        lines.join("\n") + "\n"
    }
}

impl Line {
    fn text(&self) -> String {
        format!(
            "{:8}  {:>9}  {:>12}  {:>13}  {:>12}  {:>10.4}  {:>12}  {:>12}  {:>12}  {:>12}  {:>12}",
            self.policy,
            readable(self.cache_bytes.0),
            self.requests,
            self.page_accesses,
            self.misses,
            self.miss_ratio,
            self.device_reads,
            self.pages_read,
            self.read_ahead_pages,
            self.used_pages,
            self.unused_pages
        )
    }
}

fn line(cache: &Cache) -> Line {
    let counts = cache.counts;
    Line {
        policy: cache.policy().name(),
        cache_bytes: cache.size,
        requests: counts.requests,
        page_accesses: counts.page_accesses,
        misses: counts.misses,
        miss_ratio: counts.misses as f64 / counts.page_accesses.max(1) as f64,
        device_reads: counts.device_reads,
        pages_read: counts.pages_read,
        read_ahead_pages: counts.read_ahead_pages,
        used_pages: counts.used_pages,
        unused_pages: counts.unused_pages,
    }
}
