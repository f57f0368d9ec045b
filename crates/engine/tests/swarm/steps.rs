//! Steps: what a run consists of, drawn from its seed.
//!
//! Owns: which steps there are, how often each comes.
//! Does not own: what a step does (world).

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
    has_windows: bool,
    has_strangers: bool,
    count: usize,
    length_bytes_max: u64,
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
    /// By an engine that an exit flushes.
    Global,
    /// By one that only its handles keep.
    Own,
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
        Setup {
            seed,
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
        }
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut rng = Rng::new(self.seed);
        let hot_bytes = [0; 3].map(|_| rng.below(self.length_bytes_max));
        // Some runs have no moods and no faults, so that what they find is not forgiven.
        let (is_moody, is_faulty) = (rng.chance(1, 2), rng.chance(1, 3));
        let Setup { length_bytes_max, has_windows, has_strangers, is_checked, headroom, .. } = *self;
        let mut draw = Draw {
            rng,
            hot_bytes,
            length_bytes_max,
            is_moody,
            is_faulty,
            has_windows,
            has_strangers,
            is_checked,
            is_squeezed: headroom == Headroom::Simulated,
        };
        let mut steps: Vec<Step> = (0..self.count).map(|_| draw.step()).collect();
        if self.seed % EXITS == 1 {
            steps.push(Step::Exit(draw.exit()));
        }
        steps
    }
}

struct Draw {
    rng: Rng,
    /// Places around which most of it happens, so that steps meet.
    hot_bytes: [u64; 3],
    length_bytes_max: u64,
    is_moody: bool,
    is_faulty: bool,
    has_windows: bool,
    has_strangers: bool,
    is_checked: bool,
    is_squeezed: bool,
}

impl Draw {
    fn step(&mut self) -> Step {
        let (place, span, task) = (self.place(), self.span(), self.rng.below(64) as usize);
        if self.has_windows && self.rng.chance(1, 5) {
            return self.window(place, span, task);
        }
        if self.has_strangers && self.rng.chance(1, 12) {
            return Step::Touch(place.file);
        }
        if self.is_squeezed && self.rng.chance(1, 8) {
            return self.squeeze();
        }
        match self.rng.below(108) {
            100..=102 => self.now(place),
            103 => Step::ReadVectoredNow(place, span),
            104 => Step::WriteVectoredNow(place, span, self.rng.next_u64()),
            105 => Step::AllocateNow(place, span),
            106 => Step::Peek(place, span, 1 + self.rng.below(12) as usize),
            107 => Step::Advise(place, self.advice(), span),
            0..=37 => Step::Begin(place, self.work(), self.mood()),
            38..=49 => Step::Poll(task),
            50..=52 => Step::PollWoken,
            53..=54 => Step::Cool(place.file),
            55..=61 => Step::Finish(task),
            62..=67 => Step::Drop(task),
            68..=70 => Step::ReadNow(place, span),
            71 => self.read_whole(place.file),
            72 => self.in_order_now(place, span),
            73 => Step::ReadManyNow(place, span),
            74 => Step::CheckKept,
            75 => Step::CheckClean(place.file),
            76..=77 => Step::DropKept,
            78..=80 => Step::Open(place, self.opening()),
            81 => Step::Close(place),
            82..=83 => Step::Listen(place, self.mood()),
            84 => Step::Unlisten,
            85 => self.will_need(place, span),
            86..=87 => Step::DontNeed(place, span),
            88 => Step::Press,
            89..=90 => Step::Cool(place.file),
            91..=92 => Step::Later([10, 1000, 6000, 40_000][self.rng.below(4) as usize]),
            93 => Step::FlushAll,
            94 => self.rare(place, task),
            _ => self.fault(span),
        }
    }

    fn window(&mut self, place: Place, span: Span, window: usize) -> Step {
        if self.is_faulty && self.rng.chance(1, 12) {
            return Step::Fault(FaultOn::Reads, span, EIO);
        }
        match self.rng.below(28) {
            0..=2 => Step::Map(place, span, Shape::Contiguous),
            3 => Step::Map(place, span, Shape::Pages),
            20..=21 => Step::Map(place, span, Shape::OnDemand),
            22..=27 => Step::LoadFromWindow(window, span),
            4..=6 => Step::ReadWindow(window, span),
            7..=9 => Step::WriteWindow(window, span, self.rng.next_u64()),
            10..=11 => Step::AddToWindow(window, span, self.rng.next_u64()),
            12..=15 => Step::StoreInWindow(window, span, self.rng.next_u64()),
            16..=17 => Step::SyncWindow(window),
            18 => Step::Unmap(window),
            _ if self.is_moody && self.rng.chance(1, 4) => Step::ForgetWindow,
            _ => Step::Later(6000),
        }
    }

    fn in_order_now(&mut self, place: Place, span: Span) -> Step {
        match self.rng.below(2) {
            0 => Step::ReadInOrderNow(place, span),
            _ => Step::WriteInOrderNow(place, span, self.rng.next_u64()),
        }
    }

    fn will_need(&mut self, place: Place, span: Span) -> Step {
        let then = match self.rng.below(5) {
            0 => return Step::WillNeed(place, span),
            1 => Then::Nothing,
            2 => Then::ReadNow,
            3 => Then::Read(self.mood()),
            _ => Then::DontNeed,
        };
        Step::WillNeedMany(place, span, 2 + self.rng.below(38), then)
    }

    fn read_whole(&mut self, file: usize) -> Step {
        Step::ReadWholeNow(file, [Handles::Kept, Handles::Closed][self.rng.below(2) as usize])
    }

    fn exit(&mut self) -> Exit {
        let way = [Way::Global, Way::Global, Way::Own, Way::Ending, Way::Killed][self.rng.below(5) as usize];
        Exit { way, threads: self.rng.below(4) as usize }
    }

    fn rare(&mut self, place: Place, task: usize) -> Step {
        match self.rng.below(10) {
            0 => Step::Fork(place),
            1..=3 if self.is_moody => Step::Forget(task),
            4 if self.is_moody => Step::ForgetKept,
            5 if self.is_moody => Step::ForgetPeek(place, self.span()),
            _ => Step::CheckKept,
        }
    }

    fn fault(&mut self, span: Span) -> Step {
        if !self.is_faulty {
            return Step::PollWoken;
        }
        match self.rng.below(8) {
            0..=1 => Step::Fault(FaultOn::Writes, span, EIO),
            2 => Step::Fault(FaultOn::Reads, span, EIO),
            3 => Step::Fault(FaultOn::Any, span, EIO),
            4 => Step::Fill(self.rng.below(300_000)),
            5 if self.rng.chance(1, 4) => Step::FailSync,
            _ => Step::Heal,
        }
    }

    fn work(&mut self) -> Work {
        let span = self.span();
        match self.rng.below(35) {
            32..=34 => Work::CopyFrom(span, self.copied_to(span)),
            31 => Work::WriteAlone(span, self.rng.next_u64()),
            27 => Work::AppendShared(span.length.max(1), self.rng.next_u64()),
            28..=29 => Work::PunchHole(span),
            30 => Work::CopyWithin(span, self.copied_to(span)),
            24 => Work::ReadInOrder(span),
            25 => Work::WriteInOrder(span, self.rng.next_u64()),
            26 => Work::AppendDurable(span.length.max(1), self.rng.next_u64()),
            0..=4 => Work::Read(span),
            5..=6 => Work::View(span),
            7 => Work::Stream(1 + self.rng.below(3) as usize),
            8..=12 => Work::Write(span, self.rng.next_u64()),
            13..=14 => Work::Append(span.length.max(1), self.rng.next_u64()),
            15..=18 => Work::SetLength(self.new_length()),
            19..=20 => Work::SyncData,
            21 => Work::SyncAll,
            _ => Work::Flush,
        }
    }

    fn mood(&mut self) -> Mood {
        if !self.is_moody {
            return Mood::Calm;
        }
        [Mood::Calm, Mood::Panics, Mood::Reads, Mood::Drops][self.rng.below(4) as usize]
    }

    fn place(&mut self) -> Place {
        Place { file: self.rng.below(FILES as u64) as usize, handle: self.rng.below(HANDLES as u64) as usize }
    }

    fn now(&mut self, place: Place) -> Step {
        // Reads and writes in order have steps of their own.
        match self.work() {
            Work::ReadInOrder(span) => Step::ReadInOrderNow(place, span),
            Work::WriteInOrder(span, fill) => Step::WriteInOrderNow(place, span, fill),
            Work::Read(span) => Step::ReadNow(place, span),
            Work::Stream(_) => Step::ReadManyNow(place, self.span()),
            work if self.rng.chance(1, 2) => Step::Now(place, work, Before::Writes(self.rng.next_u64())),
            work => Step::Now(place, work, Before::Nothing),
        }
    }

    fn squeeze(&mut self) -> Step {
        match self.rng.below(8) {
            0..=1 => Step::TakeOffered,
            2 => Step::Press,
            _ => Step::Squeeze([9, 14, 15, 17, 18, 19, 19, 60][self.rng.below(8) as usize]),
        }
    }

    fn opening(&mut self) -> Opening {
        let readahead = [
            None,
            None,
            None,
            Some(ReadaheadPolicy::Off),
            Some(ReadaheadPolicy::Linux),
            Some(ReadaheadPolicy::Fixed(1)),
        ];
        let revalidate = [None, None, None, Some(Duration::ZERO), Some(Duration::MAX)];
        let coherence = match self.rng.below(8) {
            0 => Coherence::Unwatched,
            1 => Coherence::Private,
            2..=3 if self.is_checked => Coherence::Checked,
            _ => Coherence::Revalidated,
        };
        Opening {
            caching: self.caching(),
            mode: self.mode(),
            readahead: readahead[self.rng.below(6) as usize],
            revalidate: revalidate[self.rng.below(5) as usize],
            coherence,
        }
    }

    fn advice(&mut self) -> Advice {
        [Advice::Normal, Advice::Sequential, Advice::Random, Advice::NoReuse][self.rng.below(4) as usize]
    }

    fn caching(&mut self) -> Caching {
        [Caching::On, Caching::On, Caching::Auto, Caching::Off][self.rng.below(4) as usize]
    }

    fn mode(&mut self) -> IoMode {
        [IoMode::Auto, IoMode::Auto, IoMode::Direct, IoMode::Buffered][self.rng.below(4) as usize]
    }

    fn span(&mut self) -> Span {
        let length = match self.rng.below(8) {
            0 => self.rng.below(3),
            1..=3 => 1 + self.rng.below(300),
            4 => 4096,
            5 => 1 + self.rng.below(14_000),
            6 => 1 + self.rng.below(90_000),
            _ => 1 + self.rng.below(self.length_bytes_max / 2),
        };
        let hot_bytes = self.hot_bytes[self.rng.below(3) as usize];
        let offset_bytes = match self.rng.below(6) {
            0 => hot_bytes,
            1 => hot_bytes / 4096 * 4096,
            2 => hot_bytes.saturating_sub(length),
            3 => 0,
            4 => self.rng.below(self.length_bytes_max),
            _ => (hot_bytes + self.rng.below(9000)).saturating_sub(4500),
        };
        Span { offset_bytes, length: length as usize }
    }

    /// Half of the copies lie to pages as what they copy does, so that files can share extents.
    fn copied_to(&mut self, span: Span) -> u64 {
        let at_bytes = self.new_length();
        if self.rng.chance(1, 2) { at_bytes } else { at_bytes / 4096 * 4096 + span.offset_bytes % 4096 }
    }

    fn new_length(&mut self) -> u64 {
        match self.rng.below(5) {
            0 => 0,
            1 => self.rng.below(5000),
            _ => self.span().offset_bytes,
        }
    }
}

/// One run in so many ends with its process.
const EXITS: u64 = 16;

pub(crate) const FILES: usize = 2;

/// Of each file, at most.
pub(crate) const HANDLES: usize = 3;

pub(crate) const EIO: i32 = 5;
