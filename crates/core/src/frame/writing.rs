//! Writing: the states of a page that changes in memory, and of one that goes to its file.
//!
//! Owns: the transitions between Resident, Writing and Dirty, and how a written page enters.
//! Does not own: the word (frame), the order of calls: while Writing, the caller owns the bytes.
//! Invariants: F5 a page has one writer while Writing. F3 each write increments the version.

use super::*;

/// What trying to write in place gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteLatch {
    /// The bytes are the caller's; [`Frame::end_write`] must follow.
    Latched(FirstUse),
    /// A reader has the page pinned: its bytes must not change.
    Pinned,
    /// This load is bringing it.
    Pending(LoadId),
    /// Another writer has the page: try again.
    Busy,
    /// It is on offer to the operating system's kernel: touch it, then try again.
    Offered,
    /// The frame holds something else.
    Absent,
}

/// Whether [`Frame::hold`] pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// It did; [`Frame::unpin`] must follow.
    Yes,
    /// The frame does not hold that page, or the file has it already, or more writes than can be counted hold it.
    No,
}

impl Frame {
    /// Pins a dirty page, for writing it to its file: no use of it. Says whether it did.
    pub fn hold(&self, file: FileId, page: PageIndex) -> Held {
        let mut word = self.word.load(Ordering::Acquire);
        while word & (STATE | PINS) != DIRTY | PINS && word & STATE == DIRTY && self.holds(file, page) {
            match self.word.compare_exchange_weak(word, word + PIN, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Held::Yes,
                Err(now) => word = now,
            }
        }
        Held::No
    }

    /// Resident or Dirty, and not pinned -> Writing. The bytes from `within_bytes` to `end_bytes` will be written; what is
    /// stored must be stored by atomic operations, because of [`Frame::begin_optimistic_read`].
    pub fn begin_write(
        &self,
        file: FileId,
        page: PageIndex,
        within_bytes: u32,
        end_bytes: u32,
    ) -> WriteLatch {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let state = word & STATE;
            if matches!(state, FREE | STALE | DOOMED) || !self.holds(file, page) {
                return WriteLatch::Absent;
            }
            match state {
                LOADING => return WriteLatch::Pending(load_of(word)),
                WRITING => return WriteLatch::Busy,
                OFFERED => return WriteLatch::Offered,
                _ if word & PINS != 0 => return WriteLatch::Pinned,
                _ => {}
            }
            // A write is a use, but not what readahead wants to hear of.
            let latched = touched(word, within_bytes, end_bytes) & !STATE | WRITING | word & MARK;
            match self.word.compare_exchange_weak(word, latched, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // An optimistic reader that sees a byte stored after this also sees the state Writing.
                    fence(Ordering::Release);
                    return WriteLatch::Latched(first_use(word));
                }
                Err(now) => word = now,
            }
        }
    }

    /// Writing -> Dirty.
    ///
    /// # Panics
    /// If the frame is not being written to.
    pub fn end_write(&self) {
        const { assert!(WRITING == DIRTY + 1, "one addition changes state and version") };
        let before = self.word.fetch_add(VERSION_ONE - 1, Ordering::AcqRel);
        if before & STATE != WRITING {
            self.word.fetch_sub(VERSION_ONE - 1, Ordering::AcqRel);
            panic!("F5: only what is being written is ended");
        }
    }

    /// Free -> Dirty: the memory holds the page as it was written.
    ///
    /// # Panics
    /// If the frame is not free.
    pub fn install(&self, file: FileId, page: PageIndex) {
        let word = self.word.load(Ordering::Acquire);
        assert!(word & (STATE | PINS) == FREE, "F2: only a free frame changes its page");
        self.identity.store(identity(file, page), Ordering::Release);
        let version = (word & VERSION).wrapping_add(VERSION_ONE);
        self.word.store(version | DIRTY, Ordering::Release);
    }

    /// Dirty -> Resident: the file has the bytes. The caller pinned the page before it read them, so no write has
    /// changed the page since. Nothing happens if the page was replaced.
    ///
    /// # Panics
    /// If the frame is not pinned.
    pub fn clean(&self) {
        let mut word = self.word.load(Ordering::Acquire);
        while word & STATE == DIRTY {
            assert!(word & PINS != 0, "F6: only what is pinned, and so was not written to, becomes clean");
            let next = word & !STATE | RESIDENT;
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}
