//! Leaving: pages that are in no table any more, while their listeners hear of it.
//!
//! Until a listener has unmapped such a page, a program still sees its bytes. They are those of the file as long as these do not change: a
//! clean page leaves by itself. So what changes a page waits until all that left before is reported ([`Frames::await_reports`]).
//!
//! Owns: their memory until all listeners were called, and which of them are not yet reported.
//! Does not own: calling the listeners (reclaim, file).

use alloc::collections::BTreeSet;

use headwater_core::cache::Evicted;
use headwater_core::pool::{Left, Pool};
use headwater_core::units::FrameId;

use super::Frames;
use crate::kernel::Kernel;

/// Pages that have left; their memory is free, and they are reported, once this is dropped.
pub(crate) struct Leaving<'a, K: Kernel> {
    frames: &'a Frames<K>,
    left: Left,
    number: u64,
}

/// Numbers of what has left.
pub(super) struct Unreported {
    next: u64,
    numbers: BTreeSet<u64>,
}

impl Unreported {
    pub(super) const fn new() -> Self {
        Self { next: 0, numbers: BTreeSet::new() }
    }
}

impl<'a, K: Kernel> Leaving<'a, K> {
    /// Of the pool that they left: before its lock is released, so that what finds a page missing finds this.
    pub(super) fn new(frames: &'a Frames<K>, _pool: &Pool, left: Left) -> Self {
        let mut unreported = frames.unreported.lock();
        let number = unreported.next;
        unreported.next += 1;
        if !left.pages.is_empty() {
            unreported.numbers.insert(number);
        }
        drop(unreported);
        Self { frames, left, number }
    }

    pub(crate) fn pages(&self) -> &[Evicted] {
        &self.left.pages
    }

    /// Where the memory of one of them begins.
    pub(crate) fn address(&self, frame: FrameId) -> usize {
        self.frames.address(frame) as usize
    }
}

impl<K: Kernel> Drop for Leaving<'_, K> {
    fn drop(&mut self) {
        self.frames.pool.lock().free_left(core::mem::take(&mut self.left));
        self.frames.unreported.lock().numbers.remove(&self.number);
    }
}

impl<K: Kernel> Frames<K> {
    /// Returns once the listeners of all pages that have left by now were called. To be called by none of these, and with no
    /// [`Leaving`] of the caller's.
    pub(crate) fn await_reports(&self, kernel: &K) {
        let next = self.unreported.lock().next;
        while self.unreported.lock().numbers.first().is_some_and(|number| *number < next) {
            kernel.yield_now();
        }
    }
}
