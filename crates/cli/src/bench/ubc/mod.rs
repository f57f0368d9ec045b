//! UBC: the measurements of the paper on NetBSD's unified buffer cache (Silvers, FREENIX 2000), on the user's own device.
//!
//! ```text
//!   rounds × works × ways: make cold ─► child (bench-row) ─► passes, a measurement each ─► same bytes? ─► medians
//! ```
//!
//! Owns: works, ways, which of them go together, the files that are written to.
//! Does not own: reading and writing (`row`), the words (`report`).

mod arguments;
mod report;
mod row;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use arguments::{EXAMPLES, UbcArguments};
pub(super) use row::measure as measure_row;

use super::file::{self, Fitting, SIZE_BYTES_MIN, Target, Wanted};
use super::suite::{self, Findings, PAGE_BYTES, Task};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::{EngineArguments, QueueArguments};
use crate::shared::units::ByteSize;
use os_display::Quotable;
use report::Report;
use row::Measured;

pub(super) struct Plan {
    /// Of a large file, at most.
    pub(super) bytes_max: u64,
    pub(super) rounds: u32,
    /// For one pass.
    pub(super) limit: Duration,
    pub(super) queue: QueueArguments,
}

/// What is done with a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Work {
    /// A large cold file is read from start to end, and not kept.
    Raw,
    /// Zeros go to an empty file.
    New,
    /// Zeros go to a file that has contents.
    Overwrite,
    /// A large cold file is read at positions.
    Large,
    /// A part of it.
    Small,
    /// The same part four times.
    Again,
}

impl Work {
    const ALL: [Work; 6] = [Work::Raw, Work::New, Work::Overwrite, Work::Large, Work::Small, Work::Again];

    fn id(self) -> &'static str {
        match self {
            Work::Raw => "raw",
            Work::New => "new",
            Work::Overwrite => "overwrite",
            Work::Large => "large",
            Work::Small => "small",
            Work::Again => "again",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Work::New | Work::Overwrite)
    }

    /// How many rows of the table it is.
    fn passes(self) -> usize {
        if self == Work::Again { PASSES } else { 1 }
    }

    fn bytes(self, large_bytes: u64) -> u64 {
        match self {
            Work::Raw | Work::Large => large_bytes,
            // Direct writes are whole pages.
            Work::New | Work::Overwrite => large_bytes / PAGE_BYTES * PAGE_BYTES,
            Work::Small | Work::Again => large_bytes.min(SMALL_BYTES),
        }
    }
}

/// How it is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Way {
    Buffered,
    Mapped,
    Direct,
    Headwater,
    View,
    /// What the device can do.
    Device,
}

impl Way {
    const ALL: [Way; 6] = [Way::Buffered, Way::Mapped, Way::Direct, Way::Headwater, Way::View, Way::Device];

    /// For the child's command line and the JSON.
    fn id(self) -> &'static str {
        match self {
            Way::Buffered => "buffered",
            Way::Mapped => "mmap",
            Way::Direct => "direct",
            Way::Headwater => "headwater",
            Way::View => "view",
            Way::Device => "device",
        }
    }

    /// The head of its column.
    fn name(self) -> &'static str {
        if self == Way::Direct { "O_DIRECT" } else { self.id() }
    }

    fn can(self, work: Work) -> bool {
        match self {
            Way::Buffered | Way::Direct | Way::Headwater => true,
            Way::Mapped | Way::View => !work.writes(),
            Way::Device => work != Work::Again,
        }
    }
}

/// A work in one way, and what it took, a child a round.
struct Outcome {
    work: Work,
    way: Way,
    rounds: Vec<Measured>,
    stayed_warm: bool,
}

/// A new file to read, of the size asked for or what fits: the files that are written to need as much each.
///
/// # Errors
/// One sentence for the user.
pub(super) fn wanted(size: Option<ByteSize>, dir: Option<&Path>) -> Result<Wanted, String> {
    let dir = file::usable_directory(dir)?;
    let fitting_bytes = (file::free_bytes_in(&dir)? / FILES_AND_ROOM) & !(SIZE_BYTES_MIN - 1);
    let size = size.unwrap_or(ByteSize(SIZE_DEFAULT.0.min(fitting_bytes.max(SIZE_BYTES_MIN))));
    file::require_room(size.0.saturating_mul(FILES), &dir)?;
    Ok(Wanted::New { dir: Some(dir), size, fitting: Fitting::Exact })
}

pub(super) fn run(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let mut contest = Contest::new(plan, target);
    let progress = suite::progress_bar(u64::from(plan.rounds) * contest.outcomes.len() as u64);
    for round in 0..plan.rounds {
        for index in suite::order(contest.outcomes.len(), round) {
            let outcome = &contest.outcomes[index];
            progress.set_message(format!("{}, {}", outcome.work.id(), outcome.way.name()));
            progress.tick();
            contest.measure(index)?;
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
    large_bytes: u64,
    engine: EngineArguments,
    /// Where files are written, and the one that is overwritten.
    written: Option<(PathBuf, Target)>,
    outcomes: Vec<Outcome>,
    /// Why there are no figures for something.
    notes: Vec<String>,
    /// By the end of what was read: the sum, and whose.
    sums: HashMap<u64, (u64, Way)>,
}

impl<'a> Contest<'a> {
    fn new(plan: &'a Plan, target: &'a Target) -> Contest<'a> {
        let large_bytes = target.bytes.min(plan.bytes_max);
        let mut notes = Vec::new();
        let written = match written(target, large_bytes) {
            Ok(written) => Some(written),
            Err(reason) => {
                notes.push(format!("nothing was written: {reason}"));
                None
            }
        };
        if let Some(refusal) = &target.direct_refusal {
            notes.push(format!("no figures for O_DIRECT and device: {refusal}"));
        }
        let is_possible = |work: Work, way: Way| {
            let used = match &written {
                _ if !work.writes() => Some(target),
                Some((_, overwritten)) => Some(overwritten),
                None => None,
            };
            let is_direct = matches!(way, Way::Direct | Way::Device);
            way.can(work) && used.is_some_and(|used| !is_direct || used.direct_refusal.is_none())
        };
        let pairs = Work::ALL.into_iter().flat_map(|work| Way::ALL.map(|way| (work, way)));
        let outcomes = pairs
            .filter(|&(work, way)| is_possible(work, way))
            .map(|(work, way)| Outcome { work, way, rounds: Vec::new(), stayed_warm: false })
            .collect();
        let engine = EngineArguments { memory: ByteSize(MEMORY_BYTES), queue: plan.queue.clone() };
        Contest { plan, target, large_bytes, engine, written, outcomes, notes, sums: HashMap::new() }
    }

    fn measure(&mut self, index: usize) -> Result<(), String> {
        let (work, way) = (self.outcomes[index].work, self.outcomes[index].way);
        let (descriptor, was_cold) = self.descriptor(work)?;
        let task = Task {
            suite: RowSuite::Ubc,
            row: &format!("{}:{}", work.id(), way.id()),
            bytes: work.bytes(self.large_bytes),
            limit: self.plan.limit,
            places: u64::MAX,
            seed: 0,
            engine: &self.engine,
        };
        let measured: Measured = task.run_on(descriptor)?;
        self.compare_sums(way, &measured)?;
        let outcome = &mut self.outcomes[index];
        outcome.stayed_warm |= !was_cold;
        outcome.rounds.push(measured);
        Ok(())
    }

    /// The file that a child works on, and whether the page cache holds nothing of it.
    fn descriptor(&self, work: Work) -> Result<(OwnedFd, bool), String> {
        let of = |target: &Target| {
            let was_cold = target.make_cold();
            let descriptor = target.descriptor();
            descriptor.map(|descriptor| (descriptor, was_cold)).map_err(|error| error.to_string())
        };
        match (work, &self.written) {
            (Work::New, Some((dir, _))) => {
                // Without a name, so it goes with the child.
                let made = tempfile::tempfile_in(dir);
                let made =
                    made.map_err(|error| format!("failed to make a file in {}: {error}", dir.maybe_quote()))?;
                Ok((made.into(), true))
            }
            (Work::Overwrite, Some((_, overwritten))) => of(overwritten),
            _ => of(self.target),
        }
    }

    /// All ways read the same bytes, or the table is worthless.
    fn compare_sums(&mut self, way: Way, measured: &Measured) -> Result<(), String> {
        for &(offset_bytes, sum) in measured.passes.iter().flat_map(|pass| &pass.sums) {
            let first = *self.sums.entry(offset_bytes).or_insert((sum, way));
            if first.0 != sum {
                let (one, other) = (first.1.name(), way.name());
                return Err(format!("{one} and {other} read different bytes: has the file changed?"));
            }
        }
        Ok(())
    }
}

/// Where to write, and the file that is overwritten there.
fn written(target: &Target, large_bytes: u64) -> Result<(PathBuf, Target), String> {
    if target.is_device() {
        return Err("beside a device there is no place for files".to_owned());
    }
    let dir = match (target.is_made, target.path.parent()) {
        (true, _) => target.path.clone(),
        (false, Some(parent)) if !parent.as_os_str().is_empty() => parent.to_owned(),
        (false, _) => PathBuf::from("."),
    };
    let size = ByteSize(large_bytes);
    file::require_room(size.0.saturating_mul(FILES - 1), &dir)?;
    let wanted = Wanted::New { dir: Some(dir.clone()), size, fitting: Fitting::Exact };
    Ok((dir, suite::prepare(&wanted)?))
}

const PASSES: usize = 4;

/// The 50 MB of the paper.
const SMALL_BYTES: u64 = 50 << 20;

/// A second or more on the fastest devices of a few years ago, and more than headwater's memory here.
pub(super) const SIZE_DEFAULT: ByteSize = ByteSize(1 << 30);

/// One is read, one overwritten, one new.
const FILES: u64 = 3;

/// So that a file system is not filled by what nobody asked for.
const FILES_AND_ROOM: u64 = FILES + 1;

/// Twice of what is read again, and a fraction of a large file.
const MEMORY_BYTES: u64 = 128 << 20;
