//! History: what a user did to a file, what was acknowledged, and what may be left of it.
//!
//! Owns: the bytes as the user knows them, and what is legal after a crash.
//! Does not own: what the engine made of it.

use std::fmt;
use std::ops::Range;

/// What was done, in order. Moments are those of the device's log: what came before a moment had been done by then.
#[derive(Clone, Default)]
pub(crate) struct History {
    /// What the file held before all, durable.
    base: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
    steps: Vec<Step>,
    acknowledged: Vec<Acknowledged>,
}

#[derive(Clone)]
struct Step {
    /// From when on the device may have something of it.
    began: u64,
    change: Change,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

/// A sync that succeeded.
#[derive(Clone)]
struct Acknowledged {
    /// The first moment after it.
    after: u64,
    /// What had been done when it was called.
    steps: usize,
    bytes: Vec<u8>,
}

/// A sync that was called.
pub(crate) struct Called {
    steps: usize,
    bytes: Vec<u8>,
}

impl History {
    pub(crate) fn new(base: Vec<u8>) -> History {
        History { bytes: base.clone(), base, ..History::default() }
    }

    pub(crate) fn write(&mut self, began: u64, offset_bytes: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (start, end) = (offset_bytes as usize, offset_bytes as usize + bytes.len());
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[start..end].copy_from_slice(bytes);
        self.steps.push(Step { began, change: Change::Write(start, bytes.to_vec()) });
    }

    pub(crate) fn set_len(&mut self, began: u64, length_bytes: u64) {
        self.bytes.resize(length_bytes as usize, 0);
        self.steps.push(Step { began, change: Change::SetLen(length_bytes as usize) });
    }

    pub(crate) fn call_sync(&self) -> Called {
        Called { steps: self.steps.len(), bytes: self.bytes.clone() }
    }

    pub(crate) fn acknowledge(&mut self, Called { steps, bytes }: Called, after: u64) {
        self.acknowledged.push(Acknowledged { after, steps, bytes });
    }

    /// What may be left after a crash at this moment, which had come itself.
    pub(crate) fn legal(&self, crash_point: u64) -> Legal<'_> {
        let last = self.acknowledged.iter().rfind(|sync| sync.after <= crash_point + 1);
        let (kept, from) = last.map_or((&self.base, 0), |sync| (&sync.bytes, sync.steps));
        let since: Vec<&Change> = self.steps[from..]
            .iter()
            .filter(|step| step.began <= crash_point)
            .map(|step| &step.change)
            .collect();
        Legal::new(kept, since)
    }
}

/// What may be left: bytes that were kept, and what was done since.
pub(crate) struct Legal<'a> {
    kept: &'a [u8],
    writes: Vec<(usize, &'a [u8])>,
    length_min: usize,
    length_max: usize,
    /// Whether each of the kept bytes was written to, or cut off.
    touched: Vec<bool>,
}

impl<'a> Legal<'a> {
    fn new(kept: &'a [u8], since: Vec<&'a Change>) -> Legal<'a> {
        let mut legal = Legal {
            kept,
            writes: Vec::new(),
            length_min: kept.len(),
            length_max: kept.len(),
            touched: vec![false; kept.len()],
        };
        let mut length = kept.len();
        for change in since {
            length = match change {
                Change::Write(start, bytes) => {
                    legal.touch(*start, start + bytes.len());
                    legal.writes.push((*start, bytes));
                    length.max(start + bytes.len())
                }
                Change::SetLen(length) => {
                    legal.touch(*length, kept.len());
                    *length
                }
            };
            legal.length_min = legal.length_min.min(length);
            legal.length_max = legal.length_max.max(length);
        }
        legal
    }

    fn touch(&mut self, start: usize, end: usize) {
        let end = end.min(self.touched.len());
        self.touched[start.min(end)..end].fill(true);
    }

    pub(crate) fn check(&self, image: &[u8]) -> Result<(), String> {
        if !(self.length_min..=self.length_max).contains(&image.len()) {
            let (length, least, most) = (image.len(), self.length_min, self.length_max);
            return Err(format!("{length} bytes are left, where {least} to {most} may be"));
        }
        self.check_part(image, 0..image.len())
    }

    /// The same for some bytes of the image.
    pub(crate) fn check_part(&self, image: &[u8], part: Range<usize>) -> Result<(), String> {
        for (at, &byte) in part.clone().zip(&image[part]) {
            if self.kept.get(at) != Some(&byte) && !self.may_be(at, byte) {
                let kept = self.kept.get(at).map_or("nothing".to_owned(), |kept| format!("{kept:#04x}"));
                let touched = if self.touched.get(at) == Some(&false) { "not touched" } else { "touched" };
                return Err(format!("byte {at} is {byte:#04x}, where {kept} was kept, {touched} since"));
            }
        }
        Ok(())
    }

    /// Whether the byte can be there though it is not the one that was kept.
    fn may_be(&self, at: usize, byte: u8) -> bool {
        if self.touched.get(at) == Some(&false) {
            return false;
        }
        // Beyond the end, at some time, there is a gap until its bytes arrive.
        let is_gap = byte == 0 && at >= self.length_min.min(self.kept.len());
        let is_of = |(start, bytes): &(usize, &[u8])| {
            at.checked_sub(*start).is_some_and(|index| bytes.get(index) == Some(&byte))
        };
        is_gap || self.writes.iter().any(is_of)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} bytes at first", self.base.len())?;
        for (number, step) in self.steps.iter().enumerate() {
            self.acknowledged.iter().filter(|sync| sync.steps == number).try_for_each(|sync| sync.fmt(f))?;
            match &step.change {
                Change::Write(start, bytes) => {
                    let (end, first) = (start + bytes.len(), bytes[0]);
                    writeln!(f, "  from {}: write {start}..{end}, {first:#04x} …", step.began)?;
                }
                Change::SetLen(length) => writeln!(f, "  from {}: set_len {length}", step.began)?,
            }
        }
        self.acknowledged
            .iter()
            .filter(|sync| sync.steps == self.steps.len())
            .try_for_each(|sync| sync.fmt(f))
    }
}

impl fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  synced so far, before {}: {} bytes", self.after, self.bytes.len())
    }
}
