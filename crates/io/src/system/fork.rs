//! Fork: detects that this process is a forked child of the one that built a structure.
//!
//! A child of `fork` has the parent's structures but neither its rings' mappings, its frames nor its threads, and locks
//! may be held by threads that do not exist. So every owner of a ring, frames or threads keeps the [`ProcessMark`] of the
//! process that made it, and does nothing in another.
//!
//! The mark is a word in a page with `MADV_WIPEONFORK` (Linux 4.14): the kernel zeroes it in the child, whatever system
//! call made that child. Comparing it costs a load.
//!
//! Owns: the page.
//! Does not own: the reaction.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The process that something was made in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessMark(u64);

impl ProcessMark {
    /// The mark of this process.
    pub(crate) fn here() -> ProcessMark {
        // Counts in ordinary memory, which the child inherits: its next number is not the parent's.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let word = word();
        let known = word.load(Ordering::Acquire);
        if known != 0 {
            return ProcessMark(known);
        }
        let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
        match word.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => ProcessMark(fresh),
            Err(known) => ProcessMark(known),
        }
    }

    /// Whether this is still the process that the mark was made in.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        word().load(Ordering::Relaxed) == self.0
    }
}

#[inline]
fn word() -> &'static AtomicU64 {
    // Not a `OnceLock`: a child forked while a thread of its parent maps the page would wait for it.
    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    // SAFETY: null, or a word that is never freed.
    let known = unsafe { WORD.load(Ordering::Acquire).as_ref() };
    known.unwrap_or_else(|| {
        let mapped = ptr::from_ref(map_word()).cast_mut();
        // Of several threads the first has its page used; the others' stay mapped.
        match WORD.compare_exchange(ptr::null_mut(), mapped, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as above.
            Ok(_) => unsafe { &*mapped },
            // SAFETY: as above.
            Err(known) => unsafe { &*known },
        }
    })
}

/// A page that the kernel wipes in children. Where it cannot, forks go unnoticed, as they would without all this.
#[cfg(not(miri))]
fn map_word() -> &'static AtomicU64 {
    use headwater_core::units::PAGE_BYTES;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    // SAFETY: a new private anonymous mapping disturbs nothing. It is zeroed, aligned, large enough for an
    // `AtomicU64`, which has no invalid values, and never unmapped.
    unsafe {
        let page = mmap_anonymous(
            std::ptr::null_mut(),
            PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        );
        match page {
            Ok(page) => {
                let _ = madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork);
                &*page.cast::<AtomicU64>()
            }
            Err(_) => Box::leak(Box::default()),
        }
    }
}

/// Miri has no `madvise`, and no `fork`.
#[cfg(miri)]
fn map_word() -> &'static AtomicU64 {
    Box::leak(Box::default())
}
