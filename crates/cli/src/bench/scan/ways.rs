//! Ways: how the scan reads a file.
//!
//! Owns: the list, the names, what each row needs.
//! Does not own: how a row is carried out (`row`).

use headwater::ReadaheadLimits;
use headwater::testing::MapAdvice;

use crate::shared::arguments::EngineArguments;
use crate::shared::units::readable;

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// Stable, for the child's command line and the JSON.
    pub(super) id: String,
    /// For people.
    pub(super) name: String,
    pub(super) method: Method,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    /// Does nothing: what a process costs by itself.
    Idle,
    /// `read(2)` through the page cache.
    Buffered { block_bytes: usize },
    /// `read(2)` with `O_DIRECT`, one at a time.
    Direct { block_bytes: usize, memory: Memory },
    /// `mmap(2)`, a byte of every page.
    Mapped(MapAdvice),
    /// headwater, around the page cache.
    Headwater { limits: Option<ReadaheadLimits>, delivery: Delivery, polls: bool },
}

/// What the buffer of a direct read is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    SmallPages,
    HugePages,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Delivery {
    /// `fill_buf`: the frames themselves.
    ZeroCopy,
    /// `read`: into a buffer of that size.
    Copying { buffer_bytes: usize },
}

impl Method {
    pub(super) fn is_direct(self) -> bool {
        matches!(self, Method::Direct { .. } | Method::Headwater { .. })
    }

    pub(super) fn is_headwater(self) -> bool {
        matches!(self, Method::Headwater { .. })
    }
}

/// The row all others are compared with.
pub(super) const BUFFERED_ID: &str = "buffered-128k";

/// The row that tells what a process costs that does nothing.
pub(super) const IDLE_ID: &str = "idle";

/// All rows in the order of the table.
pub(super) fn all(engine: &EngineArguments) -> Vec<Way> {
    let mut ways = Vec::new();
    for block_bytes in [4 << 10, 128 << 10, 1 << 20] {
        ways.push(way(
            format!("buffered-{}", short(block_bytes)),
            format!("std buffered {}", readable(block_bytes)),
            Method::Buffered { block_bytes: block_bytes as usize },
        ));
    }
    for block_bytes in [4 << 10, 1 << 20] {
        for (memory, suffix, text) in
            [(Memory::SmallPages, "", "4 KiB pages"), (Memory::HugePages, "-huge", "huge pages")]
        {
            ways.push(way(
                format!("direct-{}{suffix}", short(block_bytes)),
                format!("O_DIRECT {} × 1, {text}", readable(block_bytes)),
                Method::Direct { block_bytes: block_bytes as usize, memory },
            ));
        }
    }
    ways.push(way("mmap", "mmap", Method::Mapped(MapAdvice::Normal)));
    ways.push(way("mmap-sequential", "mmap, MADV_SEQUENTIAL", Method::Mapped(MapAdvice::Sequential)));
    ways.extend(headwater_rows(engine));
    ways.extend(steps(engine));
    ways
}

/// Those that a look at all suites has time for.
pub(super) fn quick(engine: &EngineArguments) -> Vec<Way> {
    let steps = steps(engine);
    all(engine).into_iter().filter(|way| steps.iter().all(|step| step.id != way.id)).collect()
}

/// From one small read at a time to few large ones without a copy, as Glommio's article "Modern storage is plenty fast. It is the
/// APIs that are bad" goes.
fn steps(engine: &EngineArguments) -> Vec<Way> {
    let copying = Delivery::Copying { buffer_bytes: 4 << 10 };
    let step = |id: &str, size_bytes: u64, depth: u64, delivery: Delivery, polls: bool| {
        let (limits, depth) = fixed_limits(engine, size_bytes, depth);
        let words = match delivery {
            _ if polls => "polled",
            Delivery::ZeroCopy => "zero-copy",
            Delivery::Copying { .. } => "copying",
        };
        let name = format!("headwater {} × {depth}, {words}", readable(size_bytes));
        way(format!("step-{id}"), name, Method::Headwater { limits: Some(limits), delivery, polls })
    };
    vec![
        step("4k-1", 4 << 10, 1, copying, false),
        step("4k-ahead", 4 << 10, STEP_DEPTH, copying, false),
        step("4k-ahead-lent", 4 << 10, STEP_DEPTH, Delivery::ZeroCopy, false),
        step("512k-5", 512 << 10, 5, Delivery::ZeroCopy, false),
        step("512k-5-polled", 512 << 10, 5, Delivery::ZeroCopy, true),
    ]
}

/// Requests of one size, `depth` of them in flight, or as many as half of the memory has room for.
fn fixed_limits(engine: &EngineArguments, size_bytes: u64, depth: u64) -> (ReadaheadLimits, u64) {
    let depth = depth.min(engine.memory.0 / 2 / size_bytes).max(1);
    let limits = ReadaheadLimits {
        size_bytes_min: size_bytes,
        size_bytes_max: size_bytes,
        distance_bytes_max: size_bytes * depth,
        ..ReadaheadLimits::default()
    };
    (limits, depth)
}

/// Whatever a child may be asked for.
pub(super) fn by_id(id: &str, engine: &EngineArguments) -> Option<Way> {
    let idle = way(IDLE_ID, "nothing", Method::Idle);
    all(engine).into_iter().chain([idle]).find(|way| way.id == id)
}

fn headwater_rows(engine: &EngineArguments) -> Vec<Way> {
    let depth = u64::from(engine.queue.queue_depth.unwrap_or(DEPTH_DEFAULT));
    let fixed = |size_bytes: u64| {
        let (limits, depth) = fixed_limits(engine, size_bytes, depth);
        let method = Method::Headwater { limits: Some(limits), delivery: Delivery::ZeroCopy, polls: false };
        way(
            format!("headwater-{}", short(size_bytes)),
            format!("headwater {} × {depth}", readable(size_bytes)),
            method,
        )
    };
    let tuned = |id: &str, text: &str, delivery, polls| {
        let method = Method::Headwater { limits: None, delivery, polls };
        way(id, format!("headwater tuned, {text}"), method)
    };
    vec![
        fixed(4 << 10),
        fixed(128 << 10),
        tuned("headwater-tuned", "zero-copy", Delivery::ZeroCopy, false),
        tuned("headwater-tuned-copying", "copying", Delivery::Copying { buffer_bytes: 1 << 20 }, false),
        tuned("headwater-tuned-polled", "zero-copy, polled", Delivery::ZeroCopy, true),
    ]
}

fn way(id: impl Into<String>, name: impl Into<String>, method: Method) -> Way {
    Way { id: id.into(), name: name.into(), method }
}

/// `4k`, `1m`.
fn short(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{}m", bytes >> 20) } else { format!("{}k", bytes >> 10) }
}

/// The depth at which flash devices reach their rate with requests of 128 KiB and more.
const DEPTH_DEFAULT: u32 = 32;

/// What Glommio's example of files has.
const STEP_DEPTH: u64 = 50;
