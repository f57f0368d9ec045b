//! Report: the table and the JSON of a replay.
//!
//! Owns: the columns and their titles.
//! Does not own: the counts.

use std::path::PathBuf;

use headwater_measure::{Media, Shown, Table, Whose, hanging, terminal_width};
use os_display::Quotable;
use serde::Serialize;

use super::replay::Cache;
use crate::shared::units::{ByteSize, readable};
use crate::shared::{json_path, readahead};
use crate::trace::arguments::ReplayArguments;

#[derive(Serialize)]
pub(super) struct Report {
    #[serde(flatten, serialize_with = "json_path::as_trace")]
    trace: PathBuf,
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
            trace: arguments.trace.clone(),
            format,
            readahead: readahead::name(arguments.readahead),
            page_bytes: headwater_core::units::PAGE_SIZE_BYTES,
            rows: caches.iter().map(line).collect(),
        }
    }

    pub(super) fn text(&self, shown: Shown) -> String {
        let (page, readahead) = (readable(self.page_bytes), &self.readahead);
        let head =
            format!("{} ({}), pages of {page}, readahead {readahead}", self.trace.maybe_quote(), self.format);
        let table = Table {
            caption: String::new(),
            columns: COLUMNS.map(str::to_owned).to_vec(),
            minor: MINOR.to_vec(),
            rows: self.rows.iter().map(|line| (Whose::Peer, line.cells())).collect(),
            media: Media::Text,
        };
        let head: String = hanging("", &head, terminal_width()).into_iter().map(|line| line + "\n").collect();
        format!("{head}\n{}", table.text(shown))
    }
}

impl Line {
    fn cells(&self) -> Vec<String> {
        let counts =
            [self.device_reads, self.pages_read, self.read_ahead_pages, self.used_pages, self.unused_pages];
        let cells = [
            self.policy.to_owned(),
            readable(self.cache_bytes.0),
            self.requests.to_string(),
            self.page_accesses.to_string(),
            self.misses.to_string(),
            format!("{:.4}", self.miss_ratio),
        ];
        cells.into_iter().chain(counts.map(|count| count.to_string())).collect()
    }
}

const COLUMNS: [&str; 11] = [
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
    "unused",
];

/// Of [`COLUMNS`], in the order in which they go from a narrow terminal: what is the same in all rows, then what others tell in part.
const MINOR: [usize; 7] = [2, 10, 9, 3, 8, 7, 4];

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
