//! Operations: what can be done to a file, as plain data, drawn from a seed.
//!
//! ```text
//!   seed ─► Case (driver, memory, mixture) + hot places ─► list of operations ─► performed, or made shorter
//! ```
//!
//! Every operation means something wherever it stands in a list, so that lists can be shortened at will.
//!
//! Owns: the operations and how often each is drawn, sizes, places.
//! Does not own: carrying them out (actor), shortening a list that fails (shrink).

use headwater::{Caching, IoMode};
use headwater_testkit::Rng;

/// A range of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) offset_bytes: u64,
    pub(crate) length: usize,
}

/// The way by which something is done that has two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Blocking,
    Async,
}

/// Whether what is appended is durable when the call is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    None,
    Durable,
}

/// One of the places for handles; [`HANDLES`] of them.
pub(crate) type Place = usize;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Read(Place, Way, Span),
    /// `read_exact_at` for what the file has, in small steps forwards: what wakes readahead.
    Scan(Place, Span),
    /// An asynchronous read that is begun, and ends some operations later.
    BeginRead(Place, Span),
    FinishReads,
    ReadByReader(Place, Span),
    Stream(Place, usize),
    /// The last number decides the bytes.
    Write(Place, Way, Span, u64),
    /// Polled once, and dropped; as are the next three.
    WriteAbandoned(Place, Span, u64),
    AppendAbandoned(Place, usize, u64),
    SetLengthAbandoned(Place, u64),
    SyncAbandoned(Place),
    WriteByWriter(Place, Span, u64),
    /// The span in three pieces through three handles at once, with a sync, and a read of the whole.
    WriteTogether(Span, u64),
    /// A view of the span is written where the number says; the view is held meanwhile, or becomes bytes.
    WriteView(Place, Way, Span, u64),
    Append(Place, Way, Durability, usize, u64),
    /// By a handle that appends together with other programs.
    AppendShared(Way, Durability, usize, u64),
    /// From several buffers, and into several.
    WriteVectored(Place, Span, u64),
    ReadVectored(Place, Span),
    SetLength(Place, Way, u64),
    PunchHole(Place, Way, Span),
    Allocate(Place, Span),
    /// The span is copied to where the number says, from one handle to another.
    CopyRange(Place, Way, Span, u64),
    /// The span of another file is written.
    WriteOther(Span, u64),
    SetLengthOfOther(u64),
    CloseOther,
    /// As a copy within the file, to the other one, and from that one.
    CopyOut(Place, Way, Span, u64),
    CopyIn(Place, Way, Span, u64),
    Sync(Place, Way),
    KeepView(Place, Span),
    CheckKept,
    DropKept,
    WillNeed(Place, Span),
    DontNeed(Place, Span),
    /// Opens a handle, in place of the one that is there.
    Open(Place, IoMode, Caching),
    /// The same, which truncates the file to nothing.
    OpenTruncated(Place, IoMode, Caching),
    /// Reads so many bytes of another file, which evicts.
    Press(usize),
    Close(Place),
    CloseAll,
    /// What another process sees, without a sync.
    Peek,
    /// A sync, then what another process sees.
    Compare(Place),
}

/// Which handles there are on the file at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mixture {
    /// Any mode, all of them through the cache.
    Cached,
    /// Some through the cache, some not.
    Mixed,
}

/// Everything that decides a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    /// Which of the drivers of this machine.
    pub(crate) driver: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) queue_depth: u32,
    pub(crate) mixture: Mixture,
    pub(crate) count: usize,
    /// Where the file may end, bytes.
    pub(crate) length_bytes_max: u64,
}

impl Case {
    pub(crate) fn new(seed: u64, mixture: Mixture, count: usize) -> Case {
        let mut rng = Rng::new(seed);
        let memory_bytes = [3, 3, 4, 5, 6, 64][rng.below(6) as usize] << 20;
        // Long files take long to compare, so they are the exception.
        let length_bytes_max = [150_000, 1 << 20, 6 << 20, 6 << 20, 48 << 20][rng.below(5) as usize];
        let (driver, queue_depth) = (rng.below(64) as usize, 1 + rng.below(24) as u32);
        Case { seed, driver, memory_bytes, queue_depth, mixture, count, length_bytes_max }
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        let mut draw = Draw::new(self);
        (0..self.count).map(|_| draw.operation()).collect()
    }
}

struct Draw {
    rng: Rng,
    mixture: Mixture,
    length_bytes_max: u64,
    /// Places around which most of it happens, so that operations meet.
    hot_bytes: [u64; 5],
}

impl Draw {
    fn new(case: &Case) -> Draw {
        let mut rng = Rng::new(case.seed ^ 0x5EED);
        let near_bytes_max = case.length_bytes_max.min(3 << 20);
        let hot_bytes = [0; 5].map(|_| rng.below(near_bytes_max));
        Draw { rng, mixture: case.mixture, length_bytes_max: case.length_bytes_max, hot_bytes }
    }

    fn operation(&mut self) -> Operation {
        let (place, way, span) = (self.place(), self.way(), self.span());
        match self.rng.below(77) {
            0..=5 => Operation::Read(place, way, span),
            6..=9 => Operation::Read(place, Way::Async, span),
            10..=11 => Operation::Scan(place, span),
            12..=13 => Operation::BeginRead(place, span),
            14 => Operation::FinishReads,
            15..=16 => Operation::ReadByReader(place, span),
            17 => Operation::Stream(place, 1 + self.rng.below(4) as usize),
            18..=29 => Operation::Write(place, way, span, self.rng.next_u64()),
            30 => self.abandoned(place, span),
            31 => Operation::WriteByWriter(place, span, self.rng.next_u64()),
            32 => Operation::WriteTogether(span, self.rng.next_u64()),
            33..=35 => Operation::WriteView(place, way, span, self.beside(span)),
            36..=38 => {
                let (length, fill) = (self.length().max(1), self.rng.next_u64());
                Operation::Append(place, way, Durability::None, length, fill)
            }
            39..=41 => Operation::SetLength(place, way, self.new_length()),
            42..=43 => Operation::Sync(place, way),
            44..=48 => Operation::KeepView(place, span),
            49 => Operation::CheckKept,
            50 => self.rare(),
            51..=52 => Operation::WillNeed(place, span),
            53..=54 => Operation::DontNeed(place, span),
            55..=57 => {
                let (mode, caching) = self.modes();
                Operation::Open(place, mode, caching)
            }
            58 => Operation::Close(place),
            59 => Operation::CloseAll,
            60..=61 => Operation::Peek,
            62..=63 => Operation::PunchHole(place, way, self.stretched(span)),
            64 => self.moved(place, way, span),
            65..=66 => Operation::Compare(place),
            67..=71 => self.across(place, way, span),
            72 => {
                let (length, fill) = (self.length().max(1), self.rng.next_u64());
                Operation::Append(place, way, Durability::Durable, length, fill)
            }
            73..=74 => {
                let durability = [Durability::None, Durability::Durable][self.rng.below(2) as usize];
                Operation::AppendShared(way, durability, self.length().max(1), self.rng.next_u64())
            }
            75 => Operation::WriteVectored(place, span, self.rng.next_u64()),
            _ => Operation::ReadVectored(place, span),
        }
    }

    fn abandoned(&mut self, place: Place, span: Span) -> Operation {
        match self.rng.below(6) {
            0..=2 => Operation::WriteAbandoned(place, span, self.rng.next_u64()),
            3 => Operation::AppendAbandoned(place, span.length, self.rng.next_u64()),
            4 => Operation::SetLengthAbandoned(place, self.new_length()),
            _ => Operation::SyncAbandoned(place),
        }
    }

    fn moved(&mut self, place: Place, way: Way, span: Span) -> Operation {
        match self.rng.below(3) {
            0 => Operation::Allocate(place, span),
            // In step with the pages, so that extents can be shared.
            1 => {
                let to = self.beside(span) / 4096 * 4096 + span.offset_bytes % 4096;
                Operation::CopyRange(place, way, span, to)
            }
            _ => Operation::CopyRange(place, way, span, self.beside(span)),
        }
    }

    /// Between two files. Half of the copies lie to pages as what they copy does, so that extents can be shared.
    fn across(&mut self, place: Place, way: Way, span: Span) -> Operation {
        let mut to = self.beside(span);
        if self.rng.chance(1, 2) {
            to = to / 4096 * 4096 + span.offset_bytes % 4096;
        }
        match self.rng.below(9) {
            0..=2 => Operation::CopyOut(place, way, span, to),
            3..=5 => Operation::CopyIn(place, way, span, to),
            6..=7 => Operation::WriteOther(span, self.rng.next_u64()),
            _ if self.rng.chance(1, 2) => Operation::CloseOther,
            _ => Operation::SetLengthOfOther(self.new_length()),
        }
    }

    /// Sometimes up to whatever end.
    fn stretched(&mut self, span: Span) -> Span {
        if self.rng.chance(1, 4) { Span { length: usize::MAX, ..span } } else { span }
    }

    fn rare(&mut self) -> Operation {
        match (self.rng.below(6), self.place()) {
            (0..=2, _) => Operation::DropKept,
            (3..=4, _) => Operation::Press(self.rng.below(6 << 20) as usize),
            (_, place) => {
                let (mode, caching) = self.modes();
                Operation::OpenTruncated(place, mode, caching)
            }
        }
    }

    fn modes(&mut self) -> (IoMode, Caching) {
        let mode = [IoMode::Auto, IoMode::Direct, IoMode::Buffered][self.rng.below(3) as usize];
        let caching = match self.mixture {
            Mixture::Cached => Caching::On,
            Mixture::Mixed => [Caching::Auto, Caching::On, Caching::Off][self.rng.below(3) as usize],
        };
        (mode, caching)
    }

    fn place(&mut self) -> Place {
        self.rng.below(HANDLES as u64) as usize
    }

    fn way(&mut self) -> Way {
        if self.rng.chance(1, 3) { Way::Async } else { Way::Blocking }
    }

    fn span(&mut self) -> Span {
        let length = self.length();
        Span { offset_bytes: self.offset(length), length }
    }

    fn length(&mut self) -> usize {
        let length = match self.rng.below(10) {
            0 => self.rng.below(2),
            1..=3 => 1 + self.rng.below(100),
            4 => 4096 << self.rng.below(5),
            5 => 4096 * (1 + self.rng.below(20)),
            6 | 7 => 4000 + self.rng.below(9000),
            8 => self.rng.below(70_000),
            _ => self.rng.below(300 << 10),
        };
        length.min(self.length_bytes_max / 2) as usize
    }

    fn offset(&mut self, length: usize) -> u64 {
        let offset_bytes = match self.rng.below(20) {
            0 => self.rng.below(self.length_bytes_max),
            1 => self.rng.below(self.length_bytes_max.min(3 << 20)),
            2 => 0,
            _ => {
                let hot_bytes = self.hot_bytes[self.rng.below(5) as usize];
                match self.rng.below(5) {
                    0 => hot_bytes,
                    1 => hot_bytes / 4096 * 4096,
                    2 => (hot_bytes / 4096 * 4096 + self.rng.below(200)).saturating_sub(100),
                    3 => hot_bytes.saturating_sub(length as u64),
                    _ => (hot_bytes + self.rng.below(40_000)).saturating_sub(20_000),
                }
            }
        };
        offset_bytes.min(self.length_bytes_max - length as u64)
    }

    /// The same place, one that overlaps, or any.
    fn beside(&mut self, span: Span) -> u64 {
        let delta_bytes = self.rng.below(span.length as u64 + 1);
        let offset_bytes = match self.rng.below(4) {
            0 => span.offset_bytes,
            1 => span.offset_bytes + delta_bytes,
            2 => span.offset_bytes.saturating_sub(delta_bytes),
            _ => self.offset(span.length),
        };
        offset_bytes.min(self.length_bytes_max - span.length as u64)
    }

    fn new_length(&mut self) -> u64 {
        match self.rng.below(8) {
            0 => 0,
            1 => self.rng.below(5000),
            _ => self.offset(0),
        }
    }
}

/// Handles open at once at most.
pub(crate) const HANDLES: usize = 3;
