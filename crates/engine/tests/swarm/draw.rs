//! Draw: the steps of a run, from its seed.
//!
//! Owns: how often each step comes.
//! Does not own: what a step is (steps), what it does (world).

use std::time::Duration;

use headwater::testing::FaultOn;
use headwater::{Advice, Caching, Coherence, IoMode, ReadaheadPolicy};
use headwater_testkit::Rng;

use crate::moods::Mood;
use crate::steps::{
    Before, EIO, Exit, FILES, HANDLES, Handles, Headroom, Opening, Place, Setup, Shape, Span, Step, Then,
    Way, Work,
};

impl Setup {
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut rng = Rng::new(self.seed);
        let hot_bytes = [0; 3].map(|_| rng.below(self.length_bytes_max));
        // Some runs have no moods and no faults, so that what they find is not forgiven.
        let (is_moody, is_faulty) = (rng.chance(1, 2), rng.chance(1, 3));
        let Setup { length_bytes_max, has_silent, has_windows, has_strangers, is_checked, headroom, .. } =
            *self;
        let mut draw = Draw {
            rng,
            hot_bytes,
            length_bytes_max,
            is_moody,
            is_faulty,
            has_silent,
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
    has_silent: bool,
    has_windows: bool,
    has_strangers: bool,
    is_checked: bool,
    is_squeezed: bool,
}

impl Draw {
    fn step(&mut self) -> Step {
        let (place, span, task) = (self.place(), self.span(), self.rng.below(64) as usize);
        if self.has_silent && self.rng.chance(1, 15) {
            return Step::Hang(span.offset_bytes / 4096);
        }
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
        let way = [Way::Exits, Way::Exits, Way::Exits, Way::Ending, Way::Killed][self.rng.below(5) as usize];
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
