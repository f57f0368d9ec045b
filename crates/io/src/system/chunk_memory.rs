//! Chunk memory: mapping, touching and returning the arena's chunks.
//!
//! Owns: the system calls, and what takes their place under miri; touching what the kernel may take.
//! Does not own: which chunk is mapped when (the arena).

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use headwater_core::frame::{Sentinel, Touch};
#[cfg(not(miri))]
use headwater_core::units::PAGE_BYTES;

#[cfg(not(miri))]
use super::pages::SystemPages;
#[cfg(not(miri))]
use super::sys::reserve;

/// Maps `bytes` of zeroed memory aligned to `bytes`, in huge pages where the kernel has them, not inherited by
/// forked children, and touched, so that no later access faults. `None` when the system has no memory.
#[cfg(not(miri))]
pub(crate) fn map_chunk(bytes: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags};
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new private anonymous mapping, placed by the kernel, disturbs nothing that exists.
    let raw =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * bytes, protection, flags) }.ok()?;
    let lead = raw.cast::<u8>().align_offset(bytes);
    let base = raw.cast::<u8>().wrapping_add(lead);
    // SAFETY: the three parts lie within the mapping just made, which nobody else knows yet; head and tail are cut
    // off so that exactly the aligned middle remains.
    unsafe {
        if lead > 0 {
            let _ = rustix::mm::munmap(raw, lead);
        }
        let _ = rustix::mm::munmap(base.wrapping_add(bytes).cast(), bytes - lead);
        // Kernels without huge pages still give working memory. A child must not have a copy while a device reads into the memory: the
        // kernel might give the device's bytes to the child.
        let _ = rustix::mm::madvise(base.cast(), bytes, Advice::LinuxHugepage);
        if rustix::mm::madvise(base.cast(), bytes, Advice::LinuxDontFork).is_err() {
            let _ = rustix::mm::munmap(base.cast(), bytes);
            return None;
        }
    }
    let base = NonNull::new(base)?;
    // SAFETY: the memory was mapped above.
    unsafe { touch_chunk(base, bytes) };
    Some(base)
}

/// As [`map_chunk`], in small pages that are not touched: a program that reads one page takes no more than that.
#[cfg(not(miri))]
pub(crate) fn map_sparse_chunk(bytes: usize) -> Option<NonNull<u8>> {
    reserve(bytes, bytes).ok()
}

/// Miri's memory has no pages.
#[cfg(miri)]
pub(crate) fn map_sparse_chunk(bytes: usize) -> Option<NonNull<u8>> {
    map_chunk(bytes)
}

/// Populates what is missing of a chunk that [`map_sparse_chunk`] mapped and, from Linux 6.1 on, makes it a huge page. Its contents
/// stay, and may be used meanwhile: pages that a device is reading to or from stay where they are.
///
/// # Safety
/// `base` comes from `map_sparse_chunk(bytes)`, and the chunk is mapped still.
#[cfg(not(miri))]
pub(crate) unsafe fn fill_chunk(base: NonNull<u8>, bytes: usize) {
    use rustix::mm::Advice;
    let base = base.as_ptr().cast();
    // SAFETY: the memory is mapped, and neither contents nor addresses change. What a kernel refuses is only slower.
    unsafe {
        let _ = rustix::mm::madvise(base, bytes, Advice::LinuxHugepage);
        if libc::madvise(base, bytes, MADV_COLLAPSE) != 0 {
            let _ = rustix::mm::madvise(base, bytes, Advice::LinuxPopulateWrite);
        }
    }
}

/// `MADV_COLLAPSE` of <linux/mman.h>.
#[cfg(not(miri))]
const MADV_COLLAPSE: libc::c_int = 25;

/// # Safety
/// As above.
#[cfg(miri)]
pub(crate) unsafe fn fill_chunk(_base: NonNull<u8>, _bytes: usize) {}

/// Populates every page of a chunk, so that no later access faults. Its contents are lost.
///
/// # Safety
/// The memory is mapped and has no owner; readers without ownership access it atomically meanwhile.
pub(crate) unsafe fn touch_chunk(base: NonNull<u8>, bytes: usize) {
    for page in (0..bytes).step_by(4096) {
        // SAFETY: as the caller promises; a page begins at a multiple of a word.
        unsafe { AtomicU64::from_ptr(base.as_ptr().add(page).cast()) }.store(0, Ordering::Relaxed);
    }
}

/// Returns the memory of a chunk to the kernel and keeps its addresses, which read as zeros until they are written.
///
/// # Safety
/// As for [`touch_chunk`], and `base` comes from `map_chunk(bytes)`. No ring knows the chunk: it would go on with the old
/// memory.
#[cfg(not(miri))]
pub(crate) unsafe fn discard_chunk(base: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller vouches for it.
    Ok(unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxDontNeed) }?)
}

/// # Safety
/// As above.
#[cfg(miri)]
pub(crate) unsafe fn discard_chunk(base: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: as the caller promises; and no test under miri reads optimistically what is discarded.
    unsafe { base.as_ptr().write_bytes(0, bytes) };
    Ok(())
}

/// What the kernel may take of a chunk on offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferForm {
    /// All of it while it is a huge page, and nothing once a byte was written to. The chunk stays a huge page for those that read it.
    AsAWhole,
    /// Each page that was not written to.
    InPages,
}

/// Tells the kernel that it may take the memory of a chunk, a page at a time or as a whole, from whatever of it is not written to
/// afterwards: that reads as zeros then (`MADV_FREE` of madvise(2)). `InPages` breaks up the huge page, if it is one.
///
/// # Safety
/// The chunk is mapped, and no ring knows it; from now on its bytes are used only after [`touch_page`].
#[cfg(not(miri))]
pub(crate) unsafe fn offer_chunk(base: NonNull<u8>, bytes: usize, form: OfferForm) -> io::Result<()> {
    // SAFETY: the caller vouches for it.
    let offer =
        |bytes| unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxFree) };
    if form == OfferForm::InPages {
        // The kernel splits a huge page of which it is told a part.
        offer(PAGE_BYTES)?;
    }
    Ok(offer(bytes)?)
}

/// # Safety
/// As above.
#[cfg(miri)]
pub(crate) unsafe fn offer_chunk(_base: NonNull<u8>, _bytes: usize, _form: OfferForm) -> io::Result<()> {
    Ok(())
}

/// Takes a page on offer back, by writing a word for itself, unless the kernel has taken it: then it is left as it is, without memory.
///
/// A compare-and-exchange, because compilers make an atomic `or` with zero a mere load, which leaves the page to the kernel.
///
/// # Safety
/// The page is mapped and begins at `base`, which is page-aligned; others access it atomically meanwhile.
pub(crate) unsafe fn touch_page(base: NonNull<u8>, sentinel: Sentinel) -> Touch {
    let (place, value) = sentinel.word().unwrap_or((0, 0));
    // SAFETY: the word lies in the page that the caller vouches for.
    let word = unsafe { AtomicU32::from_ptr(base.as_ptr().cast::<u32>().add(place as usize)) };
    // Even an exchange that fails would give the page memory again.
    if word.load(Ordering::Relaxed) != value {
        return Touch::Taken;
    }
    match word.compare_exchange(value, value, Ordering::SeqCst, Ordering::Relaxed) {
        Ok(_) => Touch::Intact,
        Err(_) => Touch::Taken,
    }
}

/// Whether the kernel has taken a page on offer, which is left as it is.
///
/// # Safety
/// As for [`touch_page`].
pub(crate) unsafe fn is_taken(base: NonNull<u8>, sentinel: Sentinel) -> bool {
    let Some((place, value)) = sentinel.word() else { return false };
    // SAFETY: as the caller promises.
    unsafe { AtomicU32::from_ptr(base.as_ptr().cast::<u32>().add(place as usize)) }.load(Ordering::Relaxed)
        != value
}

/// The sentinel of a page.
///
/// # Safety
/// As for [`touch_page`], and no access changes the page meanwhile.
pub(crate) unsafe fn sentinel_of(base: NonNull<u8>) -> Sentinel {
    Sentinel::find(|place| {
        // SAFETY: as the caller promises; a sentinel asks for the words of a page.
        unsafe { AtomicU32::from_ptr(base.as_ptr().cast::<u32>().add(place as usize)) }
            .load(Ordering::Relaxed)
    })
}

/// Whether some page of a chunk has no memory. A guess: no after a read of that page.
#[cfg(not(miri))]
pub(crate) fn is_missing(base: NonNull<u8>, bytes: usize) -> bool {
    let mut pages = [0; 512];
    let pages = &mut pages[..SystemPages::here().covering(bytes)];
    // SAFETY: chunks are mapped as long as their arena; and the call only looks.
    let looked = unsafe { super::sys::mincore(base, bytes, pages) };
    looked.is_ok() && pages.iter().any(|page| page & 1 == 0)
}

/// Miri cannot tell.
#[cfg(miri)]
pub(crate) fn is_missing(_base: NonNull<u8>, _bytes: usize) -> bool {
    true
}

/// Unmaps what [`map_chunk`] mapped.
///
/// # Safety
/// `base` must come from `map_chunk(bytes)`, and nothing may refer to the memory any more.
#[cfg(not(miri))]
pub(crate) unsafe fn unmap_chunk(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller vouches for it. Failure would leak the memory, nothing worse.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
}

/// Miri knows no `madvise`; the allocator gives the same shape of memory.
#[cfg(miri)]
pub(crate) fn map_chunk(bytes: usize) -> Option<NonNull<u8>> {
    let layout = std::alloc::Layout::from_size_align(bytes, bytes).ok()?;
    // SAFETY: the layout has a size above zero.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

/// # Safety
/// As above.
#[cfg(miri)]
pub(crate) unsafe fn unmap_chunk(base: NonNull<u8>, bytes: usize) {
    let layout = std::alloc::Layout::from_size_align(bytes, bytes).expect("was valid when mapped");
    // SAFETY: the caller vouches that `base` came from `map_chunk(bytes)`.
    unsafe { std::alloc::dealloc(base.as_ptr(), layout) }
}
