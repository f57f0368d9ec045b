//! Starts: where unrelated reads began, and whether they are equally far apart.
//!
//! ```text
//!   first ── delta ──► second ── delta ──► new start         three in a row, nothing between them in time
//!   zeroth ─ delta ─► first ─ delta ─► second ─ delta ─► new start     others between them: four are needed
//! ```
//!
//! A majority of the last deltas (as Leap takes, for prefetching remote memory) asks that most of the last
//! reads belong to one stride. Looking for the earlier members of a progression finds strides that are
//! interleaved with one another, up to four. With others between them three members are too little evidence:
//! random reads of a small file have such a progression every few hundred reads.
//!
//! Owns: the last starts.
//!
//! Does not own: what a progression is taken for.

/// The last starts, newest first. Starts are first pages of requests.
#[derive(Clone, Default, Debug)]
pub(super) struct Starts {
    newest_first: [Option<u64>; STARTS],
}

/// Starts that are equally far apart, in their order in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progression {
    /// By this many pages towards the end of the file.
    Up(u64),
    /// By this many pages towards its beginning.
    Down(u64),
}

impl Starts {
    /// Whether `start` is the next member of a progression.
    pub(super) fn progression(&self, start: u64) -> Option<Progression> {
        let second = (0..INTERLEAVED).find_map(|index| self.is_second(index, start))?;
        let up = start.checked_sub(second).map(Progression::Up);
        up.or_else(|| second.checked_sub(start).map(Progression::Down))
    }

    pub(super) fn push(&mut self, start: u64) {
        self.newest_first.rotate_right(1);
        self.newest_first[0] = Some(start);
    }

    /// The start at `index`, if the members before it are there.
    fn is_second(&self, index: usize, start: u64) -> Option<u64> {
        let second = self.newest_first[index].filter(|second| *second != start)?;
        let first = before(second, start)?;
        let first_index = self.find(index + 1, first)?;
        if first_index == 1 {
            return Some(second);
        }
        let zeroth = before(first, second)?;
        self.find(first_index + 1, zeroth).map(|_| second)
    }

    fn find(&self, from: usize, start: u64) -> Option<usize> {
        (from..STARTS).find(|index| self.newest_first[*index] == Some(start))
    }
}

/// The place as far before `middle` as `end` is behind it.
fn before(middle: u64, end: u64) -> Option<u64> {
    middle.checked_mul(2)?.checked_sub(end)
}

/// How many strides may take turns.
const INTERLEAVED: usize = 4;

/// The earlier members of each of them.
const STARTS: usize = 3 * INTERLEAVED;
