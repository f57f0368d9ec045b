//! Alignment: what misaligned buffers, offsets and lengths cost, where they fail, and what writing less than a block costs.
//!
//! Question: What has to be aligned, and what does it cost where it is not?
//!
//! ```text
//!   rounds × works × ways × shapes: make cold ─► child (bench-row) ─► requests one at a time ─► right bytes? ─► medians, EINVAL
//! ```
//!
//! Owns: works, ways and shapes, which of them go together.
//! Does not own: the requests (`row`), the words (`report`).

mod arguments;
mod report;
mod row;

use std::time::Duration;

use headwater::ring::{Access, DirectAlignment, DirectIo, OpenFile};
use headwater_measure::{Findings, rounds};

pub(crate) use arguments::{AlignmentArguments, EXAMPLES};
pub(super) use row::measure as measure_row;

use super::suite::Task;
use super::{measure, wanted};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::EngineArguments;
use crate::shared::target::Target;
use crate::shared::units::{ByteSize, readable};
use os_display::Quotable;
use row::Measured;

/// # Errors
/// One sentence for the user.
pub(super) fn run(arguments: &AlignmentArguments) -> Result<(), String> {
    let wanted = wanted(arguments.file.as_ref(), Some(arguments.size), "--size", &arguments.place);
    measure(&wanted, &arguments.place, &|target| run_on(arguments, target))
}

fn run_on(arguments: &AlignmentArguments, target: &Target) -> Result<Findings, String> {
    if target.bytes < FILE_BYTES_MIN {
        let (path, least) = (target.path.maybe_quote(), readable(FILE_BYTES_MIN));
        return Err(format!("failed to measure with {path}: it is too small, it takes {least}"));
    }
    let engine = EngineArguments { memory: ByteSize(MEMORY_BYTES), queue: arguments.queue.clone() };
    let contest = Contest {
        target,
        engine,
        ops: arguments.ops,
        rounds: arguments.rounds,
        alignment: alignment(target),
    };
    let mut outcomes = contest.outcomes();
    let name = |outcome: &Outcome| {
        format!("{}, {}, {}", outcome.work.name(), outcome.way.name(), outcome.shape.name())
    };
    rounds::with_progress(&mut outcomes, arguments.rounds, name, |outcome, round| {
        contest.measure(outcome, round)
    })?;
    Ok(report::report(&contest, &outcomes).findings())
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// Reads of a cold file.
    Read,
    /// Reads of what is in memory.
    Held,
    /// Writes to a cold file, until they are on the device.
    Write,
}

impl Work {
    const ALL: [Work; 3] = [Work::Read, Work::Held, Work::Write];

    /// For the child's command line and the JSON.
    fn id(self) -> &'static str {
        match self {
            Work::Read => "read",
            Work::Held => "held",
            Work::Write => "write",
        }
    }

    fn of(id: &str) -> Option<Work> {
        Work::ALL.into_iter().find(|work| work.id() == id)
    }

    fn name(self) -> &'static str {
        match self {
            Work::Read => "read from the device",
            Work::Held => "read from memory",
            Work::Write => "written and synced",
        }
    }

    fn limit(self) -> Duration {
        if self == Work::Held { HELD_LIMIT } else { DEVICE_LIMIT }
    }
}

/// How it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Buffered,
    Direct,
    Headwater,
    Uncached,
}

impl Way {
    const ALL: [Way; 4] = [Way::Buffered, Way::Direct, Way::Headwater, Way::Uncached];

    fn id(self) -> &'static str {
        match self {
            Way::Buffered => "buffered",
            Way::Direct => "direct",
            Way::Headwater => "headwater",
            Way::Uncached => "uncached",
        }
    }

    fn of(id: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| way.id() == id)
    }

    /// The head of its column.
    fn name(self) -> &'static str {
        match self {
            Way::Direct => "O_DIRECT",
            Way::Uncached => "headwater, uncached",
            named => named.id(),
        }
    }

    fn can(self, work: Work) -> bool {
        match work {
            Work::Read => true,
            Work::Held => matches!(self, Way::Buffered | Way::Headwater),
            Work::Write => self != Way::Uncached,
        }
    }
}

/// What is misaligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Aligned,
    BufferBy512,
    BufferBy1,
    OffsetBy1,
    Length,
    All,
    Block,
    Few,
}

impl Shape {
    const ALL: [Shape; 8] = [
        Shape::Aligned,
        Shape::BufferBy512,
        Shape::BufferBy1,
        Shape::OffsetBy1,
        Shape::Length,
        Shape::All,
        Shape::Block,
        Shape::Few,
    ];

    fn id(self) -> &'static str {
        match self {
            Shape::Aligned => "aligned",
            Shape::BufferBy512 => "buffer-512",
            Shape::BufferBy1 => "buffer-1",
            Shape::OffsetBy1 => "offset-1",
            Shape::Length => "length",
            Shape::All => "all",
            Shape::Block => "block",
            Shape::Few => "few",
        }
    }

    fn of(id: &str) -> Option<Shape> {
        Shape::ALL.into_iter().find(|shape| shape.id() == id)
    }

    fn name(self) -> &'static str {
        match self {
            Shape::Aligned => "aligned",
            Shape::BufferBy512 => "buffer + 512",
            Shape::BufferBy1 => "buffer + 1",
            Shape::OffsetBy1 => "offset + 1",
            Shape::Length => "length - 1",
            Shape::All => "all of them",
            Shape::Block => "512 bytes",
            Shape::Few => "100 bytes",
        }
    }
}

/// A row, and what it took, a child a round.
struct Outcome {
    work: Work,
    way: Way,
    shape: Shape,
    rounds: Vec<Measured>,
    stayed_warm: bool,
}

struct Contest<'a> {
    target: &'a Target,
    engine: EngineArguments,
    ops: u64,
    rounds: u32,
    /// What the kernel says that direct I/O needs here.
    alignment: Option<DirectAlignment>,
}

impl Contest<'_> {
    fn outcomes(&self) -> Vec<Outcome> {
        let target = self.target;
        let is_possible = |work: Work, way: Way| {
            way.can(work)
                && (work != Work::Write || target.is_made)
                && (way != Way::Direct || target.direct_refusal.is_none())
        };
        let pairs = Work::ALL.into_iter().flat_map(|work| Way::ALL.map(|way| (work, way)));
        let pairs = pairs.filter(|&(work, way)| is_possible(work, way));
        let rows = pairs.flat_map(|(work, way)| Shape::ALL.map(|shape| (work, way, shape)));
        let outcome =
            |(work, way, shape)| Outcome { work, way, shape, rounds: Vec::new(), stayed_warm: false };
        rows.map(outcome).collect()
    }

    fn measure(&self, outcome: &mut Outcome, round: u32) -> Result<(), String> {
        let Outcome { work, way, shape, .. } = *outcome;
        let task = Task {
            suite: RowSuite::Alignment,
            row: &format!("{}:{}:{}", work.id(), way.id(), shape.id()),
            bytes: self.target.bytes,
            limit: work.limit(),
            places: self.ops,
            seed: u64::from(round),
            engine: &self.engine,
            kernel_affinity: None,
        };
        outcome.stayed_warm |= work != Work::Held && !self.target.make_cold();
        outcome.rounds.push(task.run(self.target)?);
        Ok(())
    }
}

fn alignment(target: &Target) -> Option<DirectAlignment> {
    OpenFile::open(&target.input_path(), DirectIo::Required, Access::Read).ok()?.direct()
}

/// Eight places.
const FILE_BYTES_MIN: u64 = 64 << 10;

/// Four times of what is held.
const MEMORY_BYTES: u64 = 64 << 20;

/// A hard disk makes a hundred requests within it.
const DEVICE_LIMIT: Duration = Duration::from_secs(1);

/// A hundred thousand reads.
const HELD_LIMIT: Duration = Duration::from_millis(50);
