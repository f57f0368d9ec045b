//! Fuzzing: replays a trace as the command does, with a limit of work, and checks invariants that hold for every trace.

use std::path::Path;

use headwater::ReadaheadPolicy;
use headwater_core::replacement::Policy;

use super::replay::{Cache, Counts};
use super::requests::Requests;
use crate::shared::units::ByteSize;
use crate::trace::arguments::FormatChoice;

/// Replays the beginning of the trace at `path`, in whichever format it is, through a small cache of each policy.
///
/// # Errors
/// What the command would print.
///
/// # Panics
/// If the counts contradict each other or the requests.
pub fn replay(path: &Path) -> Result<(), String> {
    for format in [FormatChoice::Csv, FormatChoice::OracleGeneral] {
        // Fails for one of them at least; `Auto` takes the other.
        let _ = Requests::open(path, format);
    }
    let mut requests = Requests::open(path, FormatChoice::Auto)?;
    let readahead = [ReadaheadPolicy::Off, ReadaheadPolicy::Linux, ReadaheadPolicy::Adaptive];
    let readahead = readahead.into_iter().chain([ReadaheadPolicy::Fixed(7)]);
    let new = |(&policy, readahead)| Cache::new(policy, CACHE, readahead);
    let mut caches: Vec<Cache> = Policy::ALL.iter().zip(readahead).map(new).collect();
    let mut pages = 0;
    while let Some(request) = requests.next_request()? {
        assert!(requests.position_bytes() <= requests.length_bytes(), "no byte is read twice");
        pages += request.pages;
        if pages > PAGES_MAX {
            return Ok(());
        }
        caches.iter_mut().try_for_each(|cache| cache.serve(&request))?;
        caches.iter().for_each(|cache| check(cache.counts, pages));
    }
    requests.check_not_empty()
}

fn check(counts: Counts, pages: u64) {
    assert_eq!(counts.page_accesses, pages, "each page of each request is looked for once");
    assert!(counts.misses <= counts.page_accesses, "{counts:?}");
    assert!(counts.read_ahead_pages <= counts.pages_read, "{counts:?}");
    assert!(counts.used_pages + counts.unused_pages <= counts.read_ahead_pages, "{counts:?}");
    assert!(counts.device_reads <= counts.pages_read, "{counts:?}");
}

/// Sixteen pages, so that a short trace evicts.
const CACHE: ByteSize = ByteSize(64 << 10);

/// The longest replay: two requests may have 1 GiB each, which tests no more than a few pages do.
const PAGES_MAX: u64 = 2000;
