//! Model: a file as a vector of bytes, and all that may be found of it where no sync has made it certain.
//!
//! Owns: the bytes, what the file on disk had at the last sync, what was written since.
//! Does not own: who writes.

/// What goes wrong, in words.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The file as everybody sees it who uses the engine.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) bytes: Vec<u8>,
    /// The file as it was when last synced.
    synced: Vec<u8>,
    /// What was written since then, in order: offset and bytes.
    written: Vec<(usize, Vec<u8>)>,
    length_min: usize,
    length_max: usize,
}

impl Model {
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// What a read of this range returns.
    pub(crate) fn slice(&self, offset_bytes: u64, length: usize) -> &[u8] {
        let start = offset_bytes.min(self.len()) as usize;
        &self.bytes[start..(start + length).min(self.bytes.len())]
    }

    pub(crate) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (start, end) = (offset_bytes as usize, offset_bytes as usize + bytes.len());
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[start..end].copy_from_slice(bytes);
        self.written.push((start, bytes.to_vec()));
        self.length_max = self.length_max.max(self.bytes.len());
    }

    pub(crate) fn set_len(&mut self, length_bytes: u64) {
        self.bytes.resize(length_bytes as usize, 0);
        self.length_min = self.length_min.min(self.bytes.len());
        self.length_max = self.length_max.max(self.bytes.len());
    }

    /// All is on disk now.
    pub(crate) fn sync(&mut self) {
        self.synced.truncate(self.length_min);
        self.synced.resize(self.bytes.len(), 0);
        for (start, bytes) in self.written.drain(..) {
            let start = start.min(self.bytes.len());
            let end = (start + bytes.len()).min(self.bytes.len());
            self.synced[start..end].copy_from_slice(&self.bytes[start..end]);
        }
        (self.length_min, self.length_max) = (self.bytes.len(), self.bytes.len());
    }

    /// The disk has what everybody sees.
    pub(crate) fn check_synced(&self, disk: &[u8]) -> Outcome {
        same("on disk after sync", 0, &self.bytes, disk)
    }

    /// Each byte on disk is one that the file had since the last sync; behind its end there is nothing, or zeros to the
    /// end of the page.
    pub(crate) fn check_unsynced(&self, disk: &[u8]) -> Outcome {
        let longest = self.length_max.next_multiple_of(4096);
        if disk.len() < self.length_min || disk.len() > longest {
            let (least, most) = (self.length_min, self.length_max);
            return Err(format!("{} bytes on disk, where {least} to {most} can be", disk.len()));
        }
        for (number, piece) in disk.chunks(4096).enumerate() {
            let start = number * 4096;
            if self.bytes.get(start..start + piece.len()) == Some(piece) {
                continue;
            }
            for (at, &byte) in (start..).zip(piece) {
                if !self.may_be(at, byte) {
                    return Err(format!("byte {at} is {byte:#04x} on disk, which it never was"));
                }
            }
        }
        Ok(())
    }

    fn may_be(&self, at: usize, byte: u8) -> bool {
        let written = |(start, bytes): &(usize, Vec<u8>)| {
            at.checked_sub(*start).is_some_and(|index| bytes.get(index) == Some(&byte))
        };
        // What was beyond the end at some time is a gap until its bytes arrive.
        (byte == 0 && at >= self.length_min)
            || self.synced.get(at) == Some(&byte)
            || self.written.iter().any(written)
    }
}

/// The bytes are those expected, or the first difference in words.
pub(crate) fn same(what: &str, offset_bytes: u64, expected: &[u8], found: &[u8]) -> Outcome {
    if expected == found {
        return Ok(());
    }
    let common = expected.len().min(found.len());
    let Some(first) = (0..common).find(|&index| expected[index] != found[index]) else {
        let (expected, found) = (expected.len(), found.len());
        return Err(format!("{what} from byte {offset_bytes}: {found} bytes, not {expected}"));
    };
    let wrong = (first..common).take_while(|&index| expected[index] != found[index]).count();
    let (at, end) = (offset_bytes + first as u64, (first + 8).min(common));
    Err(format!(
        "{what} from byte {offset_bytes}: {wrong} wrong bytes from byte {at} (page {}, {} in it): {:02x?}, not {:02x?}; \
         {} bytes, {} expected",
        at / 4096,
        at % 4096,
        &found[first..end],
        &expected[first..end],
        found.len(),
        expected.len()
    ))
}
