//! Model: a file that two programs change in turn, and all that it may hold while one of them has bytes unwritten.
//!
//! ```text
//!   ours unwritten ─► the stranger changes the file ─► ours arrives
//!   before:  disk, then ours, then the stranger's  ("ours first": it was written back early)
//!   after:   disk, then the stranger's, then ours  ("ours last": the sync wrote it)
//! ```
//!
//! Each byte is that of one of the two orders, because each of our ranges arrives at some moment between them. They differ
//! only where both programs wrote the same byte, or where the stranger truncated what we have unwritten.
//!
//! Owns: the bytes in both orders, and what is allowed.
//! Does not own: when the bytes arrive.

/// What goes wrong, in words.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// One file, whatever its name is by now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// The file if ours arrives before the stranger's.
    ours_first: Vec<u8>,
    /// The file as long as nothing of ours that is unwritten arrives.
    without_ours: Vec<u8>,
    /// What is unwritten, in order.
    unwritten: Vec<(usize, Vec<u8>)>,
}

impl Model {
    pub(crate) fn new(bytes: Vec<u8>) -> Model {
        Model { ours_first: bytes.clone(), without_ours: bytes, unwritten: Vec::new() }
    }

    /// Whether something of ours may be unwritten.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.unwritten.is_empty()
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        put(&mut self.ours_first, offset, bytes);
        self.unwritten.push((offset, bytes.to_vec()));
    }

    /// Arrives at once, also while bytes are unwritten.
    pub(crate) fn set_len(&mut self, length: usize) {
        self.ours_first.resize(length, 0);
        self.without_ours.resize(length, 0);
        for (offset, bytes) in &mut self.unwritten {
            bytes.truncate(length.saturating_sub(*offset));
        }
        self.unwritten.retain(|(_, bytes)| !bytes.is_empty());
    }

    pub(crate) fn stranger_writes(&mut self, offset: usize, bytes: &[u8]) {
        put(&mut self.ours_first, offset, bytes);
        put(&mut self.without_ours, offset, bytes);
    }

    pub(crate) fn stranger_sets_len(&mut self, length: usize) {
        self.ours_first.resize(length, 0);
        self.without_ours.resize(length, 0);
    }

    /// The file if ours arrives last. While the stranger has changed nothing since, this is what the file is.
    pub(crate) fn ours_last(&self) -> Vec<u8> {
        let mut bytes = self.without_ours.clone();
        for (offset, written) in &self.unwritten {
            put(&mut bytes, *offset, written);
        }
        bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.ours_last().len()
    }

    /// The whole file is one that may be.
    pub(crate) fn check(&self, what: &str, found: &[u8]) -> Outcome {
        let ours_last = self.ours_last();
        if found == ours_last {
            return Ok(());
        }
        let (least, most) = ordered(ours_last.len(), self.ours_first.len());
        if found.len() < least || found.len() > most {
            return Err(format!("{what}: {} bytes, not {least} to {most}", found.len()));
        }
        self.check_range(what, 0, found)
    }

    /// These bytes may be in the file from there on. How many they have to be is not asked.
    pub(crate) fn check_range(&self, what: &str, offset: usize, found: &[u8]) -> Outcome {
        let ours_last = self.ours_last();
        let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
        let is_wrong = |index: usize| {
            let at = offset + index;
            found[index] != byte(&ours_last, at) && found[index] != byte(&self.ours_first, at)
        };
        let Some(first) = (0..found.len()).find(|&index| is_wrong(index)) else { return Ok(()) };
        let wrong = (first..found.len()).filter(|&index| is_wrong(index)).count();
        let (at, end) = (offset + first, (first + 8).min(found.len()));
        let expected: Vec<u8> = (at..offset + end).map(|at| byte(&ours_last, at)).collect();
        Err(format!(
            "{what}: {wrong} wrong bytes from byte {at} (page {}, {} in it): {:02x?}, not {expected:02x?}; {} bytes, {} expected",
            at / 4096,
            at % 4096,
            &found[first..end],
            found.len(),
            ours_last.len()
        ))
    }

    /// Everything has arrived: these bytes, which may be.
    pub(crate) fn settle(&mut self, found: Vec<u8>) -> Outcome {
        self.check("on disk, as the standard library reads it", &found)?;
        *self = Model::new(found);
        Ok(())
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    file.resize(file.len().max(offset + bytes.len()), 0);
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn ordered(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}
