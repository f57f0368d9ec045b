//! Random: 4 KiB at random with 20 reads in flight, within memory and beyond it, in every way there is.
//!
//! ```text
//!   rounds × spans × ways: make cold ─► cgroup ─► child (bench-row) ─► warm ─► read until time is up ─► its peak ─► medians
//! ```
//!
//! Owns: spans, ways, which of them go together, what is warm before.
//! Does not own: reading (`row`), tasks (`tasks`), the words (`report`).

mod arguments;
mod figures;
mod report;
mod row;
mod tasks;

use std::time::Duration;

pub(crate) use arguments::{EXAMPLES, RandomArguments};
pub(super) use row::measure as measure_row;

use super::cgroup::MemoryCgroup;
use super::file::{SIZE_BYTES_MIN, Target};
use super::suite::{self, Findings, PAGE_BYTES, Task};
use super::{measure, wanted};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::{EngineArguments, QueueArguments};
use crate::shared::units::{ByteSize, readable};
use report::Report;
use row::Measured;

pub(super) struct Plan {
    /// Of each row; less where the file is too small for it.
    pub(super) memory_bytes: u64,
    pub(super) rounds: u32,
    /// For one measurement of one row.
    pub(super) limit: Duration,
    pub(super) queue: QueueArguments,
}

impl Plan {
    /// Fourteen rows that read a quarter of a second, and warm up: 8 s.
    pub(super) fn quick(queue: QueueArguments) -> Plan {
        Plan { memory_bytes: QUICK_MEMORY_BYTES, rounds: 1, limit: QUICK_LIMIT, queue }
    }
}

/// Which part of the file is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Span {
    /// Half of the memory.
    Within,
    /// Two and a half times of it.
    Beyond,
}

impl Span {
    const ALL: [Span; 2] = [Span::Within, Span::Beyond];

    /// For the child's command line and the JSON.
    fn id(self) -> &'static str {
        match self {
            Span::Within => "within",
            Span::Beyond => "beyond",
        }
    }

    fn bytes(self, memory_bytes: u64) -> u64 {
        let bytes = match self {
            Span::Within => memory_bytes / 2,
            Span::Beyond => memory_bytes / 2 * 5,
        };
        bytes / PAGE_BYTES * PAGE_BYTES
    }
}

/// How it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Buffered,
    Mapped,
    MappedRandom,
    Direct,
    HeadwaterThreads,
    HeadwaterTasks,
    HeadwaterViews,
    HeadwaterDirect,
}

impl Way {
    const ALL: [Way; 8] = [
        Way::Buffered,
        Way::Mapped,
        Way::MappedRandom,
        Way::Direct,
        Way::HeadwaterThreads,
        Way::HeadwaterTasks,
        Way::HeadwaterViews,
        Way::HeadwaterDirect,
    ];

    /// For the child's command line and the JSON.
    fn id(self) -> &'static str {
        match self {
            Way::Buffered => "buffered",
            Way::Mapped => "mmap",
            Way::MappedRandom => "mmap-random",
            Way::Direct => "direct",
            Way::HeadwaterThreads => "headwater-threads",
            Way::HeadwaterTasks => "headwater-tasks",
            Way::HeadwaterViews => "headwater-views",
            Way::HeadwaterDirect => "headwater-direct",
        }
    }

    fn name(self) -> String {
        match self {
            Way::Buffered => format!("std buffered, {IN_FLIGHT} threads"),
            Way::Mapped => format!("mmap, {IN_FLIGHT} threads"),
            Way::MappedRandom => format!("mmap, MADV_RANDOM, {IN_FLIGHT} threads"),
            Way::Direct => format!("O_DIRECT, {IN_FLIGHT} threads"),
            Way::HeadwaterThreads => format!("headwater cached, {IN_FLIGHT} threads"),
            Way::HeadwaterTasks => format!("headwater cached, {IN_FLIGHT} tasks on 1"),
            Way::HeadwaterViews => format!("headwater views, {IN_FLIGHT} threads"),
            Way::HeadwaterDirect => format!("headwater direct, {IN_FLIGHT} tasks on 1"),
        }
    }

    fn is_headwater(self) -> bool {
        use Way::{HeadwaterDirect, HeadwaterTasks, HeadwaterThreads, HeadwaterViews};
        matches!(self, HeadwaterThreads | HeadwaterTasks | HeadwaterViews | HeadwaterDirect)
    }

    /// Whether it takes nothing from a cache, and fills none.
    fn is_direct(self) -> bool {
        matches!(self, Way::Direct | Way::HeadwaterDirect)
    }

    /// Views are about what is in memory.
    fn can(self, span: Span) -> bool {
        self != Way::HeadwaterViews || span == Span::Within
    }
}

/// A span in one way, and what it took, a child a round.
struct Outcome {
    span: Span,
    way: Way,
    rounds: Vec<Measured>,
    /// Of the cgroup, in each round.
    peaks_bytes: Vec<u64>,
    /// In some round the page cache still held a part of the file when the row began.
    stayed_warm: bool,
}

pub(super) fn run(arguments: &RandomArguments) -> Result<(), String> {
    let place = &arguments.place;
    let size = ByteSize(Span::Beyond.bytes(arguments.memory.0));
    let wanted = wanted(arguments.file.as_ref(), Some(size), place);
    let (memory_bytes, rounds, limit) = (arguments.memory.0, arguments.rounds, arguments.seconds);
    let plan = Plan { memory_bytes, rounds, limit, queue: arguments.queue.clone() };
    measure(&wanted, place, &[&|target| run_plan(&plan, target)])
}

/// Measures all rows on one file.
///
/// # Errors
/// One sentence for the user.
pub(super) fn run_plan(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let mut contest = Contest::new(plan, target);
    let progress = suite::progress_bar(u64::from(plan.rounds) * contest.outcomes.len() as u64);
    for round in 0..plan.rounds {
        for index in suite::order(contest.outcomes.len(), round) {
            let outcome = &contest.outcomes[index];
            progress.set_message(format!("{} memory, {}", outcome.span.id(), outcome.way.name()));
            progress.tick();
            contest.measure(index, round)?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let report = Report::new(plan, target, &contest);
    Ok(Findings::new(report.text(), &report, report.section()))
}

struct Contest<'a> {
    plan: &'a Plan,
    target: &'a Target,
    memory_bytes: u64,
    /// Why rows are not in cgroups.
    cgroup_refusal: Option<String>,
    outcomes: Vec<Outcome>,
    skipped: Vec<(Span, Way, String)>,
}

impl<'a> Contest<'a> {
    fn new(plan: &'a Plan, target: &'a Target) -> Contest<'a> {
        let memory_bytes = memory_bytes(plan, target);
        let cgroup_refusal = MemoryCgroup::new(memory_bytes).err();
        let mut contest =
            Contest { plan, target, memory_bytes, cgroup_refusal, outcomes: Vec::new(), skipped: Vec::new() };
        let pairs = Span::ALL.into_iter().flat_map(|span| Way::ALL.map(|way| (span, way)));
        for (span, way) in pairs.filter(|(span, way)| way.can(*span)) {
            match contest.reason_to_skip(span, way) {
                Some(reason) => contest.skipped.push((span, way, reason)),
                None => {
                    let (rounds, peaks_bytes) = (Vec::new(), Vec::new());
                    contest.outcomes.push(Outcome { span, way, rounds, peaks_bytes, stayed_warm: false });
                }
            }
        }
        contest
    }

    fn reason_to_skip(&self, span: Span, way: Way) -> Option<String> {
        if let Some(refusal) = self.target.direct_refusal.as_ref().filter(|_| way.is_direct()) {
            return Some(refusal.clone());
        }
        if span == Span::Within {
            return None;
        }
        let needed_bytes = span.bytes(self.memory_bytes);
        let is_small = self.target.bytes < needed_bytes;
        let small = is_small.then(|| {
            let (has, needed) = (readable(self.target.bytes), readable(needed_bytes));
            format!("the file has {has}, and {needed} are the least that is more than memory")
        });
        self.cgroup_refusal.clone().or(small)
    }

    fn span_bytes(&self, span: Span) -> u64 {
        span.bytes(self.memory_bytes).min(self.target.bytes / PAGE_BYTES * PAGE_BYTES)
    }

    fn measure(&mut self, index: usize, round: u32) -> Result<(), String> {
        let (span, way) = (self.outcomes[index].span, self.outcomes[index].way);
        let was_cold = self.target.make_cold();
        let cgroup = match &self.cgroup_refusal {
            None => Some(MemoryCgroup::new(self.memory_bytes)?),
            Some(_) => None,
        };
        let memory = if way.is_direct() { DIRECT_MEMORY_BYTES } else { self.memory_bytes / 10 * 7 };
        let engine = EngineArguments { memory: ByteSize(memory), queue: self.plan.queue.clone() };
        let contents = if self.target.is_made { row::MADE } else { row::GIVEN };
        let task = Task {
            suite: RowSuite::Random,
            row: &format!("{}:{contents}", way.id()),
            bytes: self.span_bytes(span),
            limit: self.plan.limit,
            places: u64::MAX,
            seed: u64::from(round) << 1 | u64::from(span == Span::Beyond),
            engine: &engine,
        };
        let failed = |error: std::io::Error| format!("failed to measure {}: {error}", way.name());
        let descriptor = self.target.descriptor().map_err(failed)?;
        let measured = task.run_in(cgroup.as_ref().map(MemoryCgroup::path), descriptor);
        if measured.is_err() && cgroup.as_ref().is_some_and(|cgroup| cgroup.kills() > 0) {
            let (name, memory) = (way.name(), readable(self.memory_bytes));
            return Err(format!("{memory} are too little for {name}: give more --memory"));
        }
        let outcome = &mut self.outcomes[index];
        outcome.rounds.push(measured?);
        outcome.peaks_bytes.extend(cgroup.and_then(|cgroup| cgroup.peak_bytes()));
        outcome.stayed_warm |= !was_cold;
        Ok(())
    }
}

/// As much as is asked for, or as a given file is large enough for.
fn memory_bytes(plan: &Plan, target: &Target) -> u64 {
    let of_file = (target.bytes / 5 * 2) & !(SIZE_BYTES_MIN - 1);
    plan.memory_bytes.min(of_file.max(MEMORY_BYTES_MIN))
}

/// As in the comparison of Glommio's author (2020) whose second table this is.
const IN_FLIGHT: u32 = 20;

/// Twenty threads with their stacks and histograms, and an engine, which leaves the cgroup 16 MiB of headroom.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// What is in flight, and what the engine keeps for itself.
const DIRECT_MEMORY_BYTES: u64 = 4 << 20;

const QUICK_MEMORY_BYTES: u64 = 256 << 20;

const QUICK_LIMIT: Duration = Duration::from_millis(250);
