//! Reclaim: where memory comes from when a page needs some, and how it goes back to the kernel.
//!
//! ```text
//!   no free frame ─► another chunk of the kernel's, if it has plenty ─► evict, tell the listeners ─► write dirty pages back ─► give up
//!   shrink, tend ─► chunks, the cheapest first ─► all of it evictable? ─► evict, tell the listeners ─► the kernel's again
//! ```
//!
//! Evicting in the policy's order leaves holes everywhere, so whole chunks are emptied: those whose pages are the fewest and the least used.
//!
//! Owns: the order of these steps; what is old enough to be written; how much all files together may have read ahead.
//! Does not own: the frames' states (frames), writing (write), when it is called (the kernel).
//! Locks: `shrinking`, only ever tried, across listeners.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use headwater_core::CHUNK_BYTES;
use headwater_core::backing::Form;
use headwater_core::readahead::Purpose;

use crate::frames::{Leaving, Spare};
use crate::kernel::{Error, Kernel, MemoryHint};
use crate::state::{PageCache, count};

/// Which pages may leave a shrinking cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShrinkScope {
    /// Those that their files have: no node is called, nor dropped. For callers that hold what a file system may want.
    Clean,
    /// Those that their files do not have as well, once they are written to them: if the others are not enough.
    All,
}

impl<K: Kernel> PageCache<K> {
    /// Gives memory back to the kernel, in chunks of 2 MiB, until the cache has at most `target_bytes`: clean pages leave, those first
    /// that were used least. Says how much it has then, bytes: more than the target where pages are pinned, on their way, or of files
    /// in memory, or dirty and kept. What it gave back it takes again when it needs it, if [`Kernel::memory`] has plenty.
    ///
    /// One chunk stays; and where two tasks shrink at once, one of them returns at once.
    ///
    /// This is a kernel's shrinker. It calls listeners, and blocks only with [`ShrinkScope::All`]. It must not be called by the global allocator for
    /// an allocation of the cache's own, which may hold the cache's locks.
    pub fn shrink(&self, target_bytes: usize, scope: ShrinkScope) -> usize {
        self.give_back(target_bytes);
        let is_too_large = self.frames.memory_bytes() > target_bytes;
        if is_too_large && scope == ShrinkScope::All && self.counters.dirty.load(Ordering::Acquire) > 0 {
            // What fails stays dirty; the next sync says so.
            let _ = self.write_back();
            self.give_back(target_bytes);
        }
        if scope == ShrinkScope::All {
            self.drop_abandoned();
        }
        self.frames.memory_bytes()
    }

    /// What a cache does by and by: to be called about once a second, by a task that may sleep. Writes back the files that have had dirty
    /// pages for [`Settings::dirty_age_max`](crate::Settings::dirty_age_max); while [`Kernel::memory`] is critical, gives a quarter of the
    /// memory back as well, dirty pages included. Blocks while nodes write. What fails to be written stays dirty, is tried again after
    /// the same time, and is reported by the next sync.
    pub fn tend(&self) {
        self.drop_abandoned();
        let now = self.kernel.now();
        let is_old = |since| now.saturating_sub(since) >= self.settings.dirty_age_max;
        for file in self.unwritten().iter().filter(|file| file.form != Form::InMemory) {
            if is_old(file.dirty_since()) {
                let _ = file.write_back();
            }
        }
        if self.kernel.memory() == MemoryHint::Critical {
            let memory_bytes = self.frames.memory_bytes();
            self.shrink(memory_bytes - memory_bytes / CRITICAL_DIVISOR, ShrinkScope::All);
        }
    }

    fn give_back(&self, target_bytes: usize) {
        // The last chunk stays: while it left, whoever needs memory would find neither a page to evict nor leave to grow.
        let target_bytes = target_bytes.max(CHUNK_BYTES);
        // Where another task is at it, this need not wait.
        let Some(_turn) = self.shrinking.try_lock() else { return };
        if self.frames.memory_bytes() <= target_bytes {
            return;
        }
        for chunk in self.frames.chunks_by_cost() {
            if self.frames.memory_bytes() <= target_bytes {
                return;
            }
            let Some(leaving) = self.frames.empty(chunk) else { continue };
            count(&self.counters.evicted, leaving.pages().len() as u64);
            self.tell_evicted(&leaving);
            drop(leaving);
            if self.frames.release(chunk) {
                count(&self.counters.released, CHUNK_BYTES as u64);
            }
        }
    }

    /// Whether another chunk may be taken; the first one always.
    fn may_grow(&self) -> bool {
        self.kernel.memory() == MemoryHint::Plenty || self.frames.memory_bytes() == 0
    }

    /// Memory that the cache can count on, bytes.
    pub(crate) fn usable_bytes(&self) -> u64 {
        let frames = &self.frames;
        (if self.may_grow() { frames.memory_bytes_max() } else { frames.memory_bytes() }) as u64
    }

    /// What a file may have read ahead, bytes: an equal part of what is for all files with pages ahead, but at least a little. So one file gets
    /// what its limits say. Files that are read by turns consume at one pace, so a page of one with a larger window than the others
    /// would be evicted before its turn comes. A window that is not read any more counts until it is evicted.
    pub(crate) fn share_bytes(&self) -> u64 {
        let files = self.counters.ahead_files.load(Ordering::Relaxed).max(1);
        (self.usable_bytes() / AHEAD_DIVISOR * AHEAD_PARTS / files).max(SHARE_BYTES_MIN)
    }

    /// Memory for `2^order` pages, or as many as are free; `None` if none is. May write dirty pages back, if a reader waits.
    pub(crate) fn allocate(&self, order: u8, purpose: Purpose) -> Option<Spare<K>> {
        let mut evictions = 0;
        loop {
            if let Some(spare) = self.frames.allocate(order) {
                return Some(spare);
            }
            if self.may_grow() && self.frames.grow() {
                continue;
            }
            if evictions == EVICTIONS_MAX || !self.make_room(order, purpose) {
                return self.frames.allocate_at_most(order);
            }
            evictions += 1;
        }
    }

    /// Evicts pages; if none is evictable and a reader waits, writes dirty ones back. Returns whether it helped.
    pub(crate) fn make_room(&self, order: u8, purpose: Purpose) -> bool {
        let leaving = self.frames.evict(order);
        if leaving.pages().is_empty() {
            let unwritten = || self.counters.dirty.load(Ordering::Acquire);
            let before = unwritten();
            // Where one file cannot be written, the pages of another may leave now.
            return purpose == Purpose::Demand
                && before > 0
                && (self.write_back().is_ok() || unwritten() < before);
        }
        count(&self.counters.evicted, leaving.pages().len() as u64);
        self.tell_evicted(&leaving);
        self.drop_abandoned();
        true
    }

    /// Writes the dirty pages of all files to them.
    pub(crate) fn write_back(&self) -> Result<(), Error<K>> {
        self.unwritten().iter().map(|file| file.write_back()).fold(Ok(()), Result::and)
    }

    /// Tells files which of their pages have made room. Calls no node.
    fn tell_evicted(&self, leaving: &Leaving<'_, K>) {
        for evicted in leaving.pages().chunk_by(|a, b| a.file == b.file) {
            let Some(file) = self.file(evicted[0].file) else { continue };
            file.tell_left(leaving, evicted);
            file.on_unused(evicted);
            // Its last handle may have been closed meanwhile.
            if let Some(file) = Arc::into_inner(file) {
                self.abandoned.lock().push(file);
            }
        }
    }

    /// Drops files that lost their last handle while pages of theirs left. Their file systems are called, so the caller holds nothing that
    /// these may want.
    pub(crate) fn drop_abandoned(&self) {
        let abandoned = core::mem::take(&mut *self.abandoned.lock());
        drop(abandoned);
    }
}

/// How often pages are evicted for one block: others may take what one has freed, and what was freed may not lie together.
const EVICTIONS_MAX: u32 = 2;

/// Of the memory, three quarters are for pages that were read ahead and not used yet: the rest is for those in use.
const AHEAD_DIVISOR: u64 = 4;
const AHEAD_PARTS: u64 = 3;

/// What a file may have ahead whatever the others have: two reads of 32 KiB, of which one is used while the other is on its way.
const SHARE_BYTES_MIN: u64 = 128 << 10;

/// Of the memory, what goes back at once when it is critical: after four seconds a third is left.
const CRITICAL_DIVISOR: usize = 4;
