//! Quick: all suites but alignment in one to two minutes, on one file that is made for them.
//!
//! Owns: how large and how long each suite is then.
//! Does not own: the suites.

use std::time::Duration;

use headwater::ReadaheadPolicy;

use super::{Part, cache, cat, nop, random, readahead, scan, ubc};
use crate::bench::arguments::BenchCommon;
use crate::shared::target::{Fitting, Wanted};
use crate::shared::units::ByteSize;
use crate::tune;

/// # Errors
/// One sentence for the user.
pub(super) fn run(common: &BenchCommon) -> Result<(), String> {
    let (engine, queue) = (common.engine.clone(), common.engine.queue.clone());
    let scan = scan::Plan::quick(QUICK_ROUNDS, QUICK_LIMIT, engine.clone());
    let (set_bytes, rounds) = (QUICK_SET_BYTES, QUICK_ROUNDS);
    let cache = cache::Plan { set_bytes, rounds, limit: QUICK_CACHE_LIMIT, queue: queue.clone() };
    let readahead = readahead::Plan {
        bytes_max: QUICK_READAHEAD_BYTES,
        places: QUICK_PLACES,
        rounds: 1,
        limit: QUICK_READAHEAD_LIMIT,
        engine,
        policies: vec![ReadaheadPolicy::Adaptive],
    };
    let random = random::Plan::quick(queue.clone());
    let cat = cat::Plan::quick();
    let ubc = ubc::Plan { bytes_max: QUICK_UBC_BYTES, rounds: 1, limit: QUICK_UBC_LIMIT, queue };
    let nop = nop::Plan::table(QUICK_NOP_TIME);
    let size = ByteSize(QUICK_BYTES);
    let wanted = Wanted::New { dir: common.place.dir.clone(), size, fitting: Fitting::AsPossible };
    let suites = [
        Part { id: "scan", title: scan::TITLE, measure: &|target| scan::run(&scan, target) },
        Part { id: "tune", title: tune::TITLE, measure: &|target| tune::quick(target, QUICK_TUNE_TIME) },
        Part { id: "random", title: random::TITLE, measure: &|target| random::run_plan(&random, target) },
        Part { id: "cat", title: cat::TITLE, measure: &|target| cat::run_plan(&cat, target) },
        Part { id: "cache", title: cache::TITLE, measure: &|target| cache::run(&cache, target) },
        Part {
            id: "readahead",
            title: readahead::TITLE,
            measure: &|target| readahead::run(&readahead, target),
        },
        Part { id: "ubc", title: ubc::TITLE, measure: &|target| ubc::run(&ubc, target) },
        Part { id: "nop", title: nop::TITLE, measure: &|_| nop::measure(&nop) },
    ];
    super::measure_all(&wanted, &common.place, &suites)
}

// The quick form takes less than two minutes on a slow device. Longest times: 20 s to make the file, 42 s for the scan, 8 s for
// tune, 9 s for random reads, 6 s or a round for cat, 3 s for the cache, 11 s for readahead, 8 s for UBC, 2 s for the ring: 109 s.

/// Made within 20 s (`file`), or as much of it as is made by then.
const QUICK_BYTES: u64 = 1 << 30;

const QUICK_ROUNDS: u32 = 3;

/// The scan: fourteen rows and three rounds.
const QUICK_LIMIT: Duration = Duration::from_secs(1);

/// Far more than processors cache.
const QUICK_SET_BYTES: u64 = 128 << 20;

/// The cache: eighteen cells and three rounds.
const QUICK_CACHE_LIMIT: Duration = Duration::from_millis(50);

const QUICK_READAHEAD_BYTES: u64 = 64 << 20;

const QUICK_PLACES: u64 = 2000;

/// Readahead: thirty-six rows, a round.
const QUICK_READAHEAD_LIMIT: Duration = Duration::from_millis(300);

/// More than the 50 MB that some rows read, and little to write.
const QUICK_UBC_BYTES: u64 = 64 << 20;

/// A request size or two less than the full search tries.
const QUICK_TUNE_TIME: Duration = Duration::from_secs(8);

/// UBC: thirty-one rows of 46 passes, a round; what waits in fsync comes on top of it.
const QUICK_UBC_LIMIT: Duration = Duration::from_millis(150);

/// The ring: four rows.
const QUICK_NOP_TIME: Duration = Duration::from_millis(300);
