//! Steps: what a run consists of.
//!
//! Owns: which steps there are, what else decides a run.
//! Does not own: how often each step comes (draw), what it does (world).

use std::time::Duration;

use headwater::testing::FaultOn;
use headwater::{Advice, Caching, Coherence, IoMode, ReadaheadPolicy, ReplacementPolicy};
use headwater_testkit::Rng;

use crate::moods::Mood;

/// Everything that decides a run, besides its steps.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) queue_depth: u32,
    /// Whether requests are delayed, short and interrupted.
    pub(crate) is_hostile: bool,
    pub(crate) replacement: ReplacementPolicy,
    pub(crate) readahead: ReadaheadPolicy,
    pub(crate) headroom: Headroom,
    /// Whether the device makes holes, and shares extents.
    pub(crate) remaps: bool,
    /// Whether files on this file system can have extents in common.
    pub(crate) shares_extents: bool,
    /// Handles may be opened that refuse to change what others have changed.
    pub(crate) is_checked: bool,
    /// Whether there is a file whose device does not answer.
    pub(crate) has_silent: bool,
    pub(crate) has_windows: bool,
    pub(crate) has_strangers: bool,
    pub(crate) count: usize,
    pub(crate) length_bytes_max: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) offset_bytes: u64,
    pub(crate) length: usize,
}

/// One of the files, by one of its handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) handle: usize,
}

/// What of the system's memory the engine may have beside its own limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Headroom {
    /// Whatever the machine has, which is plenty.
    Real,
    /// As much as steps say.
    Simulated,
    /// The engine does not ask.
    Unasked,
}

/// How a handle is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opening {
    pub(crate) caching: Caching,
    pub(crate) mode: IoMode,
    /// `None` as the engine does.
    pub(crate) readahead: Option<ReadaheadPolicy>,
    pub(crate) revalidate: Option<Duration>,
    pub(crate) coherence: Coherence,
}

impl Opening {
    /// How the steps open a file that has no handle.
    pub(crate) const PLAIN: Opening = Opening {
        caching: Caching::On,
        mode: IoMode::Auto,
        readahead: None,
        revalidate: None,
        coherence: Coherence::Revalidated,
    };
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Read(Span),
    View(Span),
    /// This many items from the beginning.
    Stream(usize),
    /// By a reader.
    ReadInOrder(Span),
    /// The last number decides the bytes.
    Write(Span, u64),
    /// By a writer, in three pieces.
    WriteInOrder(Span, u64),
    /// By a handle that cannot read.
    WriteAlone(Span, u64),
    Append(usize, u64),
    /// Appends, and syncs.
    AppendDurable(usize, u64),
    /// Appends by a handle that appends together with other programs.
    AppendShared(usize, u64),
    SetLength(u64),
    PunchHole(Span),
    /// To another place of the same file, here if the two do not overlap.
    CopyWithin(Span, u64),
    /// To this place, from the other file.
    CopyFrom(Span, u64),
    SyncData,
    SyncAll,
    Flush,
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exit {
    pub(crate) way: Way,
    /// Threads that use the engine meanwhile.
    pub(crate) threads: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// In an orderly way: the exit flushes the engine.
    Exits,
    /// While another thread drops the last handles of the engine.
    Ending,
    Killed,
}

/// What becomes of a file's handles before it is read by its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handles {
    Kept,
    Closed,
}

/// What is done with a range that was advised, and waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    Nothing,
    /// By a read that blocks.
    ReadNow,
    /// By a task.
    Read(Mood),
    DontNeed,
}

/// What the device has yet to do when a call begins that blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    Nothing,
    /// Pages around the place of the call are being written: a flush began that and was dropped. The number decides their bytes.
    Writes(u64),
}

/// Where a window has its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// In the cache.
    Pages,
    /// In memory of its own.
    Contiguous,
    /// In memory of its own, as far as it is touched.
    OnDemand,
}

/// Numbers of tasks and windows count modulo those that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A task is polled once.
    Begin(Place, Work, Mood),
    Poll(usize),
    PollWoken,
    /// All tasks are polled until this one is done.
    Finish(usize),
    Drop(usize),
    /// The task is never polled nor dropped, if it is one that reads.
    Forget(usize),
    ReadNow(Place, Span),
    ReadManyNow(Place, Span),
    /// Into buffers, and from buffers, of which one is empty.
    ReadVectoredNow(Place, Span),
    WriteVectoredNow(Place, Span, u64),
    /// What a task would do, by a call that blocks.
    Now(Place, Work, Before),
    AllocateNow(Place, Span),
    /// The pages of a span are borrowed while this many further steps are performed.
    Peek(Place, Span, usize),
    /// A borrowed page is never given back.
    ForgetPeek(Place, Span),
    /// By a reader and a writer that block.
    ReadInOrderNow(Place, Span),
    WriteInOrderNow(Place, Span, u64),
    /// By its path.
    ReadWholeNow(usize, Handles),
    /// If it calls itself clean.
    CheckClean(usize),
    CheckKept,
    DropKept,
    ForgetKept,
    Map(Place, Span, Shape),
    /// Spans of windows count from where they begin, and are clipped.
    ReadWindow(usize, Span),
    /// Reads without a call.
    LoadFromWindow(usize, Span),
    /// The last number decides the bytes, or is added.
    WriteWindow(usize, Span, u64),
    AddToWindow(usize, Span, u64),
    /// Adds, in a window without memory of its own.
    StoreInWindow(usize, Span, u64),
    SyncWindow(usize),
    Unmap(usize),
    ForgetWindow,
    Open(Place, Opening),
    Close(Place),
    Listen(Place, Mood),
    Unlisten,
    WillNeed(Place, Span),
    DontNeed(Place, Span),
    /// Of reads to come.
    Advise(Place, Advice, Span),
    /// So many pages of a file that is cold, from where the span begins.
    WillNeedMany(Place, Span, u64, Then),
    Fault(FaultOn, Span, i32),
    FailSync,
    /// The device has room for so many bytes.
    Fill(u64),
    Heal,
    /// Another file is read, so that pages are evicted.
    Press,
    /// The system has this many MiB free, less or more than its reserve; the engine looks at it.
    Squeeze(u64),
    /// The kernel takes what memory is on offer.
    TakeOffered,
    /// Milliseconds pass, and the engine does what it does from time to time.
    Later(u64),
    Fork(Place),
    FlushAll,
    /// Another program seems to write to the file: it sets its time.
    Touch(usize),
    /// Neither the cache nor the kernel has pages of the file any more.
    Cool(usize),
    /// A page of a file whose device does not answer is read.
    Hang(u64),
    /// The process ends, as it is.
    Exit(Exit),
}

impl Setup {
    pub(crate) fn new(seed: u64) -> Setup {
        let mut rng = Rng::new(seed ^ 0x5E7);
        let has_windows = rng.chance(1, 2);
        let headroom = match rng.below(8) {
            0..=1 => Headroom::Simulated,
            2 => Headroom::Unasked,
            _ => Headroom::Real,
        };
        // Windows get memory that the cache has not used yet.
        let memory = if has_windows { [3, 6, 16, 16] } else { [3, 3, 4, 6] };
        // The first mebibytes are the engine's, whatever the system has.
        let mebibytes = if headroom == Headroom::Simulated { 16 } else { memory[rng.below(4) as usize] };
        let mut setup = Setup {
            seed,
            has_silent: false,
            has_windows,
            headroom,
            remaps: rng.chance(1, 2),
            shares_extents: false,
            memory_bytes: mebibytes << 20,
            queue_depth: 1 + rng.below(12) as u32,
            is_hostile: rng.chance(3, 4),
            count: 20 + rng.below(100) as usize,
            length_bytes_max: [20_000, 150_000, 150_000, 2_000_000][rng.below(4) as usize],
            has_strangers: rng.chance(1, 3),
            replacement: [
                ReplacementPolicy::Clock2QPlus,
                ReplacementPolicy::Clock2QPlus,
                ReplacementPolicy::Clock,
                ReplacementPolicy::S3Fifo,
            ][rng.below(4) as usize],
            readahead: [
                ReadaheadPolicy::Adaptive,
                ReadaheadPolicy::Adaptive,
                ReadaheadPolicy::Linux,
                ReadaheadPolicy::Fixed(3),
            ][rng.below(4) as usize],
            is_checked: rng.chance(1, 4),
        };
        setup.has_silent = rng.chance(1, 4);
        if setup.has_silent {
            // What it holds must leave places for others.
            setup.queue_depth += SILENT_MAX as u32 + 1;
        }
        setup
    }
}

pub(crate) const FILES: usize = 2;

/// Pages of a file without an answer that are asked for, at most.
pub(crate) const SILENT_MAX: usize = 3;

/// Of each file, at most.
pub(crate) const HANDLES: usize = 3;

pub(crate) const EIO: i32 = 5;
