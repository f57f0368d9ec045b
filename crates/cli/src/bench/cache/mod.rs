//! Cache: what it costs to read again what is cached, by headwater, `pread` and `mmap`.
//!
//! ```text
//!   rounds × sources: a child each ─► fill the source's cache, check ─► accesses × threads: random reads ─► medians
//! ```
//!
//! Owns: sources, accesses, the order.
//! Does not own: filling and reading (`row`), the words (`report`).

mod report;
mod row;

use std::time::Duration;

pub(super) use row::measure as measure_row;

use super::file::Target;
use super::suite::{self, Findings, Task};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::{EngineArguments, QueueArguments};
use crate::shared::units::ByteSize;
use report::Report;
use row::{Cell, Measured};

pub(super) struct Plan {
    pub(super) set_bytes: u64,
    pub(super) rounds: u32,
    /// For one cell of one row.
    pub(super) limit: Duration,
    pub(super) queue: QueueArguments,
}

/// Whose cache is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// headwater's own memory.
    Headwater,
    /// The kernel's page cache, a system call for each read.
    Pread,
    /// The kernel's page cache, mapped.
    Mapped,
}

impl Source {
    const ALL: [Source; 3] = [Source::Headwater, Source::Pread, Source::Mapped];

    fn id(self) -> &'static str {
        match self {
            Source::Headwater => "headwater",
            Source::Pread => "pread",
            Source::Mapped => "mmap",
        }
    }
}

/// What one read takes. Another way to read (several places in one call, say) is a row here and an arm in `row`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// A number somewhere in a page.
    Word,
    Page,
    /// Sixteen pages.
    Extent,
}

impl Access {
    const ALL: [Access; 3] = [Access::Word, Access::Page, Access::Extent];

    fn bytes(self) -> u64 {
        match self {
            Access::Word => 8,
            Access::Page => 4 << 10,
            Access::Extent => EXTENT_BYTES,
        }
    }
}

/// One thread, and two that must not be in each other's way.
const THREADS: [u32; 2] = [1, 2];

pub(super) fn run(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let set_bytes = plan.set_bytes.min(target.bytes) / EXTENT_BYTES * EXTENT_BYTES;
    if set_bytes == 0 {
        return Err(format!("a set of {} is too small, it takes at least 64K", ByteSize(target.bytes)));
    }
    let memory = ByteSize((set_bytes + set_bytes / 4).max(MEMORY_BYTES_MIN));
    let engine = EngineArguments { memory, queue: plan.queue.clone() };
    let mut measured = Source::ALL.map(|source| (source, Vec::new()));
    let progress = suite::progress_bar(u64::from(plan.rounds) * measured.len() as u64);
    for round in 0..plan.rounds {
        for index in suite::order(measured.len(), round) {
            let (source, results) = &mut measured[index];
            progress.set_message(format!("cached reads by {}", source.id()));
            progress.tick();
            results.push(child(plan, target, *source, set_bytes, round, &engine)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let report = Report::new(plan, target, set_bytes, &measured);
    Ok(Findings::new(report.text(), &report, report.section()))
}

fn child(
    plan: &Plan,
    target: &Target,
    source: Source,
    set_bytes: u64,
    round: u32,
    engine: &EngineArguments,
) -> Result<Measured, String> {
    // What the kernel holds must not be what headwater's rows read from.
    target.make_cold();
    let (suite, row, limit) = (RowSuite::Cache, source.id(), plan.limit);
    Task { suite, row, bytes: set_bytes, limit, places: u64::MAX, seed: round.into(), engine }.run(target)
}

/// The largest read, which sets consist of.
const EXTENT_BYTES: u64 = 64 << 10;

/// A quarter more than a small set is not much.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
