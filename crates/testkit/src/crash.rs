//! Crash: what a file may hold after the power failed, worked out from what was done to it before.
//!
//! ```text
//!   moments    0 ─ write A ─ 1   2 ─ write B ───────── 5   6 ─ write C ─ 7  ✗ crash at 7
//!                                    3 ─ sync ─ 4
//!   there      A: ended before the sync that succeeded began
//!   perhaps    B, C: each sector of 512 bytes by itself old or new; file lengths in their order, up to any
//! ```
//!
//! The model is a disk below a journalling file system with ordered metadata. A sector is written whole or not, and holds
//! the state after one of the writes to it. Changes of length (a truncate, an extension, an allocation or a write beyond the
//! end) are kept in the order in which they were done, up to any one of them; a write behind a truncate that is not kept is not
//! there either. What was never written, or was cut off, reads as zeroes. What overlaps in flight counts in the order of
//! its ends; a write extends the file at once.
//!
//! Owns: which contents are legal at a moment, and the drawing of some.
//! Does not own: how the operations were recorded, and what a program makes of what it finds.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::rng::Rng;

/// Something that was done to a file. `began` and `ended` are moments in one order; what had not ended has no end. What
/// failed and changed nothing is left out, syncs that failed too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CrashEvent {
    /// What.
    pub kind: CrashEventKind,
    /// From when on the device may have done part of it.
    pub began: u64,
    /// When it had done all of it.
    pub ended: Option<u64>,
}

/// What can be done to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CrashEventKind {
    /// Bytes were written.
    Write {
        /// Where the first byte lies.
        offset_bytes: u64,
        /// Which.
        bytes: Vec<u8>,
    },
    /// The file was truncated or extended.
    SetLen {
        /// Its new length.
        length_bytes: u64,
    },
    /// The file was made at least so long.
    Allocate {
        /// The length.
        end_bytes: u64,
    },
    /// What had ended before this began is kept from its end on.
    Sync,
}

/// The contents that a file may have after a crash.
#[derive(Clone, Debug)]
pub struct CrashImages {
    base: Vec<u8>,
    events: Vec<CrashEvent>,
}

/// What was done by a moment.
struct Moment<'a> {
    /// Without syncs, in the order of their ends, then of their beginnings.
    done: Vec<&'a CrashEventKind>,
    /// The number of them that is certainly there.
    covered: usize,
}

impl CrashImages {
    /// From what the file held before, which is on the device for sure, and all that was done to it since, in any order.
    #[must_use]
    pub fn new(base: Vec<u8>, events: Vec<CrashEvent>) -> CrashImages {
        CrashImages { base, events }
    }

    /// The moments at which a crash leaves something else than before: each at which something begins or ends, in order.
    #[must_use]
    pub fn crash_points(&self) -> Vec<u64> {
        let mut points: Vec<u64> =
            self.events.iter().flat_map(|event| [event.began].into_iter().chain(event.ended)).collect();
        points.sort_unstable();
        points.dedup();
        points
    }

    /// The contents if nothing was kept that need not be.
    #[must_use]
    pub fn least(&self, crash_point: u64) -> Vec<u8> {
        let moment = self.moment(crash_point);
        self.image(&moment, moment.covered, |_| 0)
    }

    /// The contents if everything was kept, what was under way included.
    #[must_use]
    pub fn most(&self, crash_point: u64) -> Vec<u8> {
        let moment = self.moment(crash_point);
        self.image(&moment, moment.done.len(), |choices| choices - 1)
    }

    /// Some legal contents, drawn. A few files lose each sector by itself, others mostly this or that; so that rare
    /// combinations come up as well as extremes.
    pub fn sample(&self, rng: &mut Rng, crash_point: u64) -> Vec<u8> {
        let moment = self.moment(crash_point);
        let lengths = (moment.done.len() - moment.covered) as u64;
        let kept = moment.covered + rng.below(lengths + 1) as usize;
        // Of eight sectors so many are as new as can be, and so many as old.
        let newest = rng.below(9);
        let oldest = rng.below(9 - newest);
        self.image(&moment, kept, |choices| match rng.below(8) {
            draw if draw < newest => choices - 1,
            draw if draw < newest + oldest => 0,
            _ => rng.below(choices as u64) as usize,
        })
    }

    fn moment(&self, crash_point: u64) -> Moment<'_> {
        let ended_by = |event: &CrashEvent| event.ended.filter(|&ended| ended <= crash_point);
        let is_sync = |event: &&CrashEvent| event.kind == CrashEventKind::Sync;
        let syncs = self.events.iter().filter(is_sync).filter(|event| ended_by(event).is_some());
        // Nothing ended before moment 0.
        let covered_before = syncs.map(|event| event.began).max().unwrap_or(0);
        let mut done: Vec<&CrashEvent> =
            self.events.iter().filter(|e| !is_sync(e) && e.began <= crash_point).collect();
        done.sort_by_key(|event| (ended_by(event).unwrap_or(u64::MAX), event.began));
        let covered = done.partition_point(|e| ended_by(e).is_some_and(|ended| ended < covered_before));
        Moment { done: done.into_iter().map(|event| &event.kind).collect(), covered }
    }

    /// The contents when the first `kept` changes of length are kept. `choose` is asked for each sector that was written
    /// to since: the number of a state, below that of the states, from the oldest to the newest.
    fn image(&self, moment: &Moment<'_>, kept: usize, mut choose: impl FnMut(usize) -> usize) -> Vec<u8> {
        let mut floor = self.base.clone();
        moment.done[..moment.covered].iter().for_each(|event| event.apply(&mut floor));
        let mut image = floor.clone();
        moment.done[moment.covered..kept].iter().for_each(|event| event.apply_length(&mut image));
        for (sector, writes) in moment.sectors() {
            let start = sector * SECTOR_BYTES;
            if start >= image.len() {
                continue;
            }
            let not_beyond = moment.first_truncate(kept, start);
            let mut states = vec![moment.covered];
            states.extend(writes.iter().filter(|&&write| write < not_beyond).map(|write| write + 1));
            let state = states[choose(states.len())];
            let contents = moment.sector(&floor, sector, state, kept);
            let end = image.len().min(start + SECTOR_BYTES);
            image[start..end].copy_from_slice(&contents[..end - start]);
        }
        image
    }
}

impl Moment<'_> {
    /// Each sector that was written to and is not there for sure, with the writes to it.
    fn sectors(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut sectors = BTreeMap::<usize, Vec<usize>>::new();
        for (number, event) in self.done.iter().enumerate().skip(self.covered) {
            if let CrashEventKind::Write { offset_bytes, bytes } = event {
                for sector in sectors_of(*offset_bytes as usize, bytes.len()) {
                    sectors.entry(sector).or_default().push(number);
                }
            }
        }
        sectors
    }

    /// The first truncate that is not kept and takes all of what begins here. What was written behind it went elsewhere.
    fn first_truncate(&self, kept: usize, start: usize) -> usize {
        let truncates = |event: &&CrashEventKind| event.truncates_at().is_some_and(|length| length <= start);
        self.done[kept..].iter().position(truncates).map_or(self.done.len(), |place| kept + place)
    }

    /// A sector after the first `state` events; of later ones only the zeroes are there that kept truncates leave behind.
    fn sector(&self, floor: &[u8], sector: usize, state: usize, kept: usize) -> [u8; SECTOR_BYTES] {
        let start = sector * SECTOR_BYTES;
        let mut contents = [0; SECTOR_BYTES];
        let known = &floor[start.min(floor.len())..floor.len().min(start + SECTOR_BYTES)];
        contents[..known.len()].copy_from_slice(known);
        for (number, event) in self.done.iter().enumerate().take(state.max(kept)).skip(self.covered) {
            match event {
                CrashEventKind::Write { offset_bytes, bytes } if number < state => {
                    overlay(&mut contents, start, *offset_bytes as usize, bytes);
                }
                CrashEventKind::SetLen { length_bytes } => {
                    let from = (*length_bytes as usize).saturating_sub(start).min(SECTOR_BYTES);
                    contents[from..].fill(0);
                }
                _ => {}
            }
        }
        contents
    }
}

impl CrashEventKind {
    fn apply(&self, contents: &mut Vec<u8>) {
        self.apply_length(contents);
        if let CrashEventKind::Write { offset_bytes, bytes } = self {
            contents[*offset_bytes as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn apply_length(&self, contents: &mut Vec<u8>) {
        let length = match self {
            CrashEventKind::Write { offset_bytes, bytes } => {
                contents.len().max(*offset_bytes as usize + bytes.len())
            }
            CrashEventKind::Allocate { end_bytes } => contents.len().max(*end_bytes as usize),
            CrashEventKind::SetLen { length_bytes } => *length_bytes as usize,
            CrashEventKind::Sync => contents.len(),
        };
        contents.resize(length, 0);
    }

    /// From where on nothing is left, if this may truncate.
    fn truncates_at(&self) -> Option<usize> {
        match self {
            CrashEventKind::SetLen { length_bytes } => Some(*length_bytes as usize),
            _ => None,
        }
    }
}

fn sectors_of(offset: usize, length: usize) -> Range<usize> {
    offset / SECTOR_BYTES..(offset + length).div_ceil(SECTOR_BYTES)
}

/// The part of `bytes`, which lie at `offset`, that falls into the sector that begins at `start`.
fn overlay(sector: &mut [u8; SECTOR_BYTES], start: usize, offset: usize, bytes: &[u8]) {
    let (from, to) = (offset.max(start), (offset + bytes.len()).min(start + SECTOR_BYTES));
    if from < to {
        sector[from - start..to - start].copy_from_slice(&bytes[from - offset..to - offset]);
    }
}

/// What every disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Sectors, named by what fills them; 0 is a sector of zeroes.
    fn sectors(names: &str) -> Vec<u8> {
        names.bytes().flat_map(|name| [if name == b'0' { 0 } else { name }; SECTOR_BYTES]).collect()
    }

    fn event(kind: CrashEventKind, began: u64, ended: impl Into<Option<u64>>) -> CrashEvent {
        CrashEvent { kind, began, ended: ended.into() }
    }

    fn write(sector: u64, names: &str, began: u64, ended: impl Into<Option<u64>>) -> CrashEvent {
        let offset_bytes = sector * SECTOR_BYTES as u64;
        event(CrashEventKind::Write { offset_bytes, bytes: sectors(names) }, began, ended)
    }

    fn sync(began: u64, ended: impl Into<Option<u64>>) -> CrashEvent {
        event(CrashEventKind::Sync, began, ended)
    }

    fn set_len(sectors: u64, began: u64, ended: impl Into<Option<u64>>) -> CrashEvent {
        event(CrashEventKind::SetLen { length_bytes: sectors * SECTOR_BYTES as u64 }, began, ended)
    }

    fn allocate(sectors: u64, began: u64, ended: impl Into<Option<u64>>) -> CrashEvent {
        event(CrashEventKind::Allocate { end_bytes: sectors * SECTOR_BYTES as u64 }, began, ended)
    }

    /// All legal contents, by every choice there is: the choices are the digits of a number that counts up.
    fn all(images: &CrashImages, crash_point: u64) -> BTreeSet<Vec<u8>> {
        let moment = images.moment(crash_point);
        let mut found = BTreeSet::new();
        for kept in moment.covered..=moment.done.len() {
            let mut digits: Vec<usize> = Vec::new();
            loop {
                let (mut place, mut bounds) = (0, Vec::new());
                found.insert(images.image(&moment, kept, |choices| {
                    bounds.push(choices);
                    place += 1;
                    digits.get(place - 1).copied().unwrap_or(0)
                }));
                digits.resize(bounds.len(), 0);
                let Some(last) = (0..bounds.len()).rfind(|&at| digits[at] + 1 < bounds[at]) else { break };
                digits[last] += 1;
                digits[last + 1..].fill(0);
            }
        }
        found
    }

    /// Compares with the names of what is legal, and that samples and extremes are among it, and find all of it.
    fn check(base: &str, events: &[CrashEvent], crash_point: u64, legal: &[&str]) {
        let images = CrashImages::new(sectors(base), events.to_vec());
        let found = all(&images, crash_point);
        let legal: BTreeSet<Vec<u8>> = legal.iter().map(|names| sectors(names)).collect();
        let named = |contents: &BTreeSet<Vec<u8>>| -> Vec<String> {
            let name = |image: &Vec<u8>| image.iter().step_by(512).map(|&byte| char::from(byte)).collect();
            contents.iter().map(name).collect()
        };
        assert!(found == legal, "{:?} instead of {:?}", named(&found), named(&legal));
        let mut rng = Rng::new(crash_point);
        let drawn: BTreeSet<_> = (0..4000).map(|_| images.sample(&mut rng, crash_point)).collect();
        assert!(drawn == legal, "{:?} drawn of {:?}", named(&drawn), named(&legal));
        assert!(legal.contains(&images.least(crash_point)) && legal.contains(&images.most(crash_point)));
    }

    /// Goal: before a write begins there is none of it; from then on, ended or not, each sector is old or new.
    #[test]
    fn a_write_tears_at_sectors() {
        let events = [write(1, "AB", 3, 5)];
        check("abc", &events, 2, &["abc"]);
        for crash_point in 3..7 {
            check("abc", &events, crash_point, &["abc", "aAc", "abB", "aAB"]);
        }
        check("abc", &[write(1, "AB", 3, None)], 9, &["abc", "aAc", "abB", "aAB"]);
    }

    /// Goal: a sync covers what ended before it began, once it has ended: not what was under way then, nor what came later.
    #[test]
    fn a_sync_covers_what_had_ended() {
        let events =
            [write(0, "A", 0, 1), write(1, "B", 2, 5), sync(3, 4), write(2, "C", 6, 7), sync(8, None)];
        check("abc", &events, 3, &["abc", "Abc", "aBc", "ABc"]);
        check("abc", &events, 5, &["Abc", "ABc"]);
        check("abc", &events, 8, &["Abc", "ABc", "AbC", "ABC"]);
        let events = [&events[..4], &[sync(8, 9)]].concat();
        check("abc", &events, 9, &["ABC"]);
    }

    /// Goal: a sector written twice holds the old bytes, the first or the second; once covered, never again the old.
    #[test]
    fn the_last_that_is_covered_counts() {
        let events = [write(0, "A", 0, 1), write(0, "B", 2, 3), sync(4, 5), write(0, "C", 6, 7)];
        check("a", &events, 3, &["a", "A", "B"]);
        check("a", &events, 7, &["B", "C"]);
    }

    /// Goal: a write beyond the end extends first or not at all, and leaves zeroes where it has not arrived.
    #[test]
    fn appending() {
        check("a", &[write(1, "AB", 0, 1)], 1, &["a", "a00", "aA0", "a0B", "aAB"]);
        check("a", &[write(2, "A", 0, 1)], 1, &["a", "a00", "a0A"]);
        check("", &[write(0, "A", 0, 1), sync(2, 3), write(1, "B", 4, None)], 4, &["A", "A0", "AB"]);
    }

    /// Goal: lengths are kept in order, up to any of them.
    #[test]
    fn lengths_are_kept_in_order() {
        let events = [set_len(1, 0, 1), allocate(2, 2, 3), set_len(4, 4, 5), allocate(1, 6, 7)];
        check("abc", &events, 7, &["abc", "a", "a0", "a000"]);
        let events = [&events[..], &[sync(8, 9)]].concat();
        check("abc", &events, 9, &["a000"]);
        check("abc", &[set_len(1, 0, 1), sync(2, 3), set_len(3, 4, 5)], 5, &["a", "a00"]);
    }

    /// Goal: what is written behind a truncate is there only if the truncate is, and what was cut off comes back only without it.
    #[test]
    fn a_truncate_separates_what_was_before_and_after() {
        let events = [write(1, "A", 0, 1), set_len(0, 2, 3), write(1, "B", 4, 5)];
        check("ab", &events, 1, &["ab", "aA"]);
        check("ab", &events, 5, &["ab", "aA", "", "00", "0B"]);
    }

    /// Goal: a piece of a sector is as whole as a sector; a truncate within one leaves zeroes behind it when the file grows.
    #[test]
    fn pieces_of_sectors() {
        let piece = |offset_bytes, byte, length, began, ended| {
            event(CrashEventKind::Write { offset_bytes, bytes: vec![byte; length] }, began, ended)
        };
        let images = CrashImages::new(sectors("a"), vec![piece(100, b'A', 200, 0, Some(1))]);
        let mut new = sectors("a");
        new[100..300].fill(b'A');
        assert_eq!(all(&images, 1), BTreeSet::from([sectors("a"), new]));
        let truncate = |length_bytes, at| event(CrashEventKind::SetLen { length_bytes }, at, Some(at + 1));
        let events = vec![piece(0, b'A', 512, 0, Some(1)), truncate(100, 2), truncate(512, 4)];
        let filled = |byte: u8, length: usize, total: usize| {
            let mut contents = vec![byte; length];
            contents.resize(total, 0);
            contents
        };
        let expected = BTreeSet::from_iter(
            b"aA".map(|b| [filled(b, 512, 512), filled(b, 100, 100), filled(b, 100, 512)]).concat(),
        );
        assert_eq!(all(&CrashImages::new(sectors("a"), events), 5), expected);
    }

    /// Goal: each moment at which something begins or ends is one to crash at.
    #[test]
    fn crash_points() {
        let images = CrashImages::new(Vec::new(), vec![write(0, "A", 4, 9), sync(2, None), sync(4, 5)]);
        assert_eq!(images.crash_points(), [2, 4, 5, 9]);
    }
}
