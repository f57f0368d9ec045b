//! Live: memory that threads read and write at once, byte by byte against a vector.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use arbitrary::Arbitrary;
use headwater_fuzz::bounds::Number;
use headwater_fuzz::guarded::{Guarded, Side};
use headwater_io::{Arena, LiveMemory, Urgency, live_support};

#[derive(Arbitrary, Debug)]
pub(crate) struct Case<'a> {
    length: Number,
    steps: Vec<Step<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    FillMoved { at: Number, length: Number, room: u16 },
    FillCopied { at: Number, length: u16, side: Side },
    Read { at: Number, length: u16, side: Side },
    Write { at: Number, bytes: &'a [u8], side: Side },
    Zero { start: Number, end: Number },
    Store { at: Number, value: u64 },
    Track,
    TakeWritten,
}

struct Bench {
    memory: LiveMemory,
    model: Vec<u8>,
    /// Pages that the next look must tell of; nothing is told before tracking.
    written: Option<BTreeSet<usize>>,
    fill: u8,
}

thread_local! {
    static GUARDED: RefCell<Guarded> = RefCell::new(Guarded::new(17));
    static ARENA: Arena = Arena::new(9 << 20).expect("it holds four chunks");
}

pub(crate) fn run(case: &Case<'_>) {
    if live_support().is_err() {
        return;
    }
    let length = case.length.cheap(5 << 20) as usize;
    let memory = match LiveMemory::new(length) {
        Ok(memory) => memory,
        Err(error) => return assert!(length == 0 || length > 1 << 40, "{length} bytes: {error}"),
    };
    assert_eq!((memory.length_bytes(), memory.as_cells().len()), (length, length));
    let mut bench = Bench { memory, model: vec![0; length], written: None, fill: 0 };
    for step in case.steps.iter().take(STEPS_MAX) {
        GUARDED.with_borrow_mut(|guarded| bench.perform(step, guarded));
    }
    let cells = bench.memory.as_cells().iter();
    assert!(cells.map(|cell| cell.load(Ordering::Relaxed)).eq(bench.model.iter().copied()));
    ARENA.with(|arena| assert_eq!(arena.stats().used_bytes, 0));
}

impl Bench {
    fn perform(&mut self, step: &Step<'_>, guarded: &mut Guarded) {
        self.fill = self.fill.wrapping_add(1).max(1);
        match *step {
            Step::FillMoved { at, length, room } => self.fill_moved(at, length, room),
            Step::FillCopied { at, length, side } => {
                let bytes = &*guarded.buffer(usize::from(length), side, self.fill);
                let at = at.get() as usize;
                let done = self.memory.fill_copied(at, bytes);
                self.note(done.is_ok(), at, bytes, Counts::Perhaps);
            }
            Step::Read { at, length, side } => {
                let (at, buffer) = (at.get() as usize, guarded.buffer(usize::from(length), side, 0));
                let done = self.memory.read(at, buffer);
                match self.within(at, buffer.len()) {
                    Some(range) => assert!(done.is_ok() && *buffer == self.model[range], "{step:?}"),
                    None => assert!(done.is_err(), "{step:?}"),
                }
            }
            Step::Write { at, bytes, side } => {
                let buffer = guarded.buffer(bytes.len(), side, 0);
                buffer.copy_from_slice(&bytes[..buffer.len()]);
                let at = at.get() as usize;
                let done = self.memory.write(at, buffer);
                self.note(done.is_ok(), at, buffer, Counts::Yes);
            }
            Step::Zero { start, end } => {
                let range = start.get() as usize..end.get() as usize;
                let done = self.memory.zero(range.clone());
                let length = range.end.checked_sub(range.start);
                let zeros = length.filter(|&length| length <= self.model.len()).map(|length| vec![0; length]);
                match zeros {
                    Some(zeros) => self.note(done.is_ok(), range.start, &zeros, Counts::Yes),
                    None => assert!(done.is_err(), "{step:?}"),
                }
            }
            Step::Store { at, value } => self.store(at.get() as usize, value),
            Step::Track => {
                self.memory.track().expect("there is memory for page tables");
                self.written = Some(BTreeSet::new());
            }
            Step::TakeWritten => self.take_written(),
        }
    }

    fn fill_moved(&mut self, at: Number, length: Number, room: u16) {
        let (at, length, fill) = (at.get() as usize, length.get() as usize, self.fill);
        // Up to 2 MiB, which move as a whole, and now and then more than one extent.
        let room = usize::from(room) << 6;
        let Some(mut extents) = ARENA.with(|arena| arena.allocate_run(room, Urgency::Demand)) else { return };
        extents.iter_mut().for_each(|extent| extent.fill(fill));
        let held: usize = extents.iter().map(|extent| extent.len()).sum();
        let done = self.memory.fill_moved(at, length, extents);
        match self.within(at, length) {
            Some(_) if at.is_multiple_of(4096) && length <= held => {
                self.note(done.is_ok(), at, &vec![fill; length], Counts::Perhaps);
            }
            _ => assert!(done.is_err(), "{length} bytes at {at}"),
        }
    }

    fn store(&mut self, at: usize, value: u64) {
        let stored = self.memory.atomic_u64(at).map(|place| place.store(value, Ordering::Relaxed));
        let bytes = &value.to_ne_bytes();
        if self.within(at, bytes.len()).is_some() && at.is_multiple_of(bytes.len()) {
            self.note(stored.is_some(), at, bytes, Counts::Yes);
        } else {
            assert!(stored.is_none(), "eight bytes at {at}");
        }
    }

    fn take_written(&mut self) {
        let mut told = Vec::new();
        let taken = self.memory.take_written(&mut told);
        let Some(expected) = &mut self.written else { return assert!(taken.is_err()) };
        taken.expect("it is tracked");
        assert!(told.windows(2).all(|pair| pair[0].end < pair[1].start), "merged and ascending: {told:?}");
        let is_told = |page: usize| told.iter().any(|range| range.contains(&(page * 4096)));
        assert!(std::mem::take(expected).into_iter().all(is_told), "{told:?}");
        assert!(told.iter().all(|range| range.start < range.end && range.end <= self.model.len()));
    }

    fn within(&self, at: usize, length: usize) -> Option<Range<usize>> {
        let end = at.checked_add(length)?;
        (end <= self.model.len()).then_some(at..end)
    }

    /// These bytes were written there, or refused if they do not fit.
    fn note(&mut self, is_done: bool, at: usize, bytes: &[u8], counts: Counts) {
        let range = self.within(at, bytes.len());
        assert_eq!(is_done, range.is_some(), "{} bytes at {at}", bytes.len());
        let Some(range) = range.filter(|range| !range.is_empty()) else { return };
        self.model[range.clone()].copy_from_slice(bytes);
        if let (Counts::Yes, Some(written)) = (counts, &mut self.written) {
            written.extend(range.start / 4096..=(range.end - 1) / 4096);
        }
    }
}

/// Whether a write has to be told of later.
enum Counts {
    Yes,
    /// Filling counts where something was.
    Perhaps,
}

const STEPS_MAX: usize = 64;
