//! Versions: all that a file was or may have become, so that what is read while it changes can be judged.
//!
//! ```text
//!   begin ─► the result is possible, besides what was ─┬─ done ──► only the result
//!                                                      └─ failed, dropped ─► a byte is the old or the new one, until
//!                                                         all is read again (`settle`)
//! ```
//!
//! Owns: what is possible from a moment on.
//! Does not own: who changes the file: one at a time.

use std::path::Path;
use std::{fs, io};

/// A file's contents, from the first to those that may be.
pub(crate) struct Versions {
    all: Vec<Vec<u8>>,
    /// The first that may still be.
    first_possible: usize,
    is_changing: bool,
    /// What a sync has acknowledged.
    synced: Moment,
}

/// From when on versions count: what a read that begins now may see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(usize);

/// What a range that was read turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// A version that was possible.
    Whole,
    /// Bytes of several.
    Mixed,
}

impl Versions {
    pub(crate) fn new() -> Versions {
        Versions { all: vec![Vec::new()], first_possible: 0, is_changing: false, synced: Moment(0) }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(self.first_possible)
    }

    /// A sync that began then is done.
    pub(crate) fn note_synced(&mut self, since: Moment) {
        self.synced = self.synced.max(since);
    }

    /// What a sync has acknowledged, and all since.
    pub(crate) fn synced(&self) -> Moment {
        self.synced
    }

    /// Stores all from a moment on, for [`Versions::load`].
    pub(crate) fn save(&self, since: Moment, directory: &Path) -> io::Result<()> {
        fs::create_dir(directory)?;
        let mut possible = self.all[since.0..].iter().enumerate();
        possible.try_for_each(|(number, bytes)| fs::write(directory.join(number.to_string()), bytes))
    }

    /// What was stored, with all of it possible.
    pub(crate) fn load(directory: &Path) -> io::Result<Versions> {
        let count = fs::read_dir(directory)?.count();
        let read = |number: usize| fs::read(directory.join(number.to_string()));
        let all = (0..count).map(read).collect::<io::Result<_>>()?;
        Ok(Versions { all, ..Versions::new() })
    }

    /// Whether the last version is another one.
    pub(crate) fn is_newer_than(&self, found: &[u8]) -> bool {
        self.last() != found
    }

    /// Whether nothing has changed, nor began to, since.
    pub(crate) fn is_unchanged(&self, since: Moment) -> bool {
        self.is_certain() && since.0 == self.first_possible
    }

    /// Whether it is known what the file is.
    pub(crate) fn is_certain(&self) -> bool {
        self.first_possible + 1 == self.all.len()
    }

    pub(crate) fn is_changing(&self) -> bool {
        self.is_changing
    }

    /// The contents; only while they are certain.
    pub(crate) fn bytes(&self) -> &[u8] {
        assert!(self.is_certain(), "the contents are not known");
        self.last()
    }

    /// How long it may be at most.
    pub(crate) fn now_bytes(&self) -> usize {
        self.all[self.first_possible..].iter().map(Vec::len).max().unwrap_or(0)
    }

    /// How long it is at least.
    pub(crate) fn least_bytes(&self) -> usize {
        self.all[self.first_possible..].iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Where the file ended before the change that is under way.
    pub(crate) fn end_before(&self) -> u64 {
        self.all[self.first_possible].len() as u64
    }

    /// A change begins, of contents that are certain.
    pub(crate) fn begin(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.bytes().to_vec();
        change(&mut bytes);
        self.all.push(bytes);
        self.is_changing = true;
    }

    /// The change under way may make this of the file as well.
    pub(crate) fn begin_also(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        assert!(self.is_changing, "there is no change under way");
        let mut bytes = self.all[self.first_possible].clone();
        change(&mut bytes);
        self.all.push(bytes);
    }

    /// What the last change makes of the file.
    pub(crate) fn last(&self) -> &[u8] {
        self.all.last().expect("there is a first one")
    }

    /// The change is done.
    pub(crate) fn finish(&mut self) {
        self.first_possible = self.all.len() - 1;
        self.is_changing = false;
    }

    /// The change failed, or was given up.
    pub(crate) fn give_up(&mut self) {
        self.is_changing = false;
    }

    /// What was found of the whole file when nothing changed it any more.
    pub(crate) fn settle(&mut self, found: Vec<u8>) -> Result<Settled, String> {
        let since = self.now();
        self.check(since, 0, usize::MAX, &found)?;
        let is_undone = found == self.all[self.first_possible];
        self.all.push(found);
        self.first_possible = self.all.len() - 1;
        Ok(if is_undone { Settled::Undone } else { Settled::InPart })
    }

    /// Whether what was found in a range can have been there since the moment.
    pub(crate) fn check(
        &self,
        since: Moment,
        offset_bytes: u64,
        length: usize,
        found: &[u8],
    ) -> Result<Seen, String> {
        let possible = &self.all[since.0..];
        let ranges: Vec<&[u8]> =
            possible.iter().map(|version| slice(version, offset_bytes, length)).collect();
        if ranges.contains(&found) {
            return Ok(Seen::Whole);
        }
        let (least, most) =
            (ranges.iter().map(|range| range.len()).min(), ranges.iter().map(|range| range.len()).max());
        if Some(found.len()) < least || Some(found.len()) > most {
            return Err(format!(
                "{} bytes from byte {offset_bytes}, where {least:?} to {most:?} can be",
                found.len()
            ));
        }
        for (index, byte) in found.iter().enumerate() {
            if !ranges.iter().any(|range| *byte == range.get(index).copied().unwrap_or(0)) {
                let at = offset_bytes + index as u64;
                let were: Vec<_> = ranges.iter().map(|range| range.get(index)).collect();
                return Err(format!(
                    "byte {at} of {length} from {offset_bytes} is {byte:#04x}; it may be {were:02x?}"
                ));
            }
        }
        Ok(Seen::Mixed)
    }
}

/// What became of a change that was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    Undone,
    InPart,
}

fn slice(bytes: &[u8], offset_bytes: u64, length: usize) -> &[u8] {
    let start = offset_bytes.min(bytes.len() as u64) as usize;
    &bytes[start..start.saturating_add(length).min(bytes.len())]
}
