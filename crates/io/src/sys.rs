//! Raw system calls: what neither `rustix` nor `io-uring` offers, each behind the smallest interface.
//!
//! Owns: how chunks are mapped, vectored I/O on raw memory, `cachestat`, `mincore`, the direct-I/O half of `statx`.
//! Does not own: any state.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_core::units::ByteRange;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// File to memory.
    Read,
    /// Memory to file.
    Write,
}

/// One segment of a vectored request. A transparent wrapper, because `libc::iovec` holds a raw pointer and would
/// make everything around it `!Send`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct IoSegment(libc::iovec);

// SAFETY: a segment is an address and a length; who may use the memory is decided by the owner of the extent that it
// was made from.
unsafe impl Send for IoSegment {}

impl IoSegment {
    pub(crate) fn new(base: NonNull<u8>, length_bytes: usize) -> IoSegment {
        IoSegment(libc::iovec { iov_base: base.as_ptr().cast(), iov_len: length_bytes })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.0.iov_base.cast()
    }

    pub(crate) fn length_bytes(&self) -> usize {
        self.0.iov_len
    }

    pub(crate) fn shortened(&self, length_bytes: usize) -> IoSegment {
        assert!(length_bytes <= self.0.iov_len);
        IoSegment(libc::iovec { iov_base: self.0.iov_base, iov_len: length_bytes })
    }

    pub(crate) fn into_iovec(self) -> libc::iovec {
        self.0
    }

    pub(crate) fn as_iovec(segments: &[IoSegment]) -> *const libc::iovec {
        segments.as_ptr().cast()
    }
}

/// `preadv(2)` or `pwritev(2)` on raw memory; a single attempt, which may be short.
///
/// # Safety
/// Every segment must be valid for writes (reads, when writing to the file) and touched by nobody else meanwhile.
pub(crate) unsafe fn transfer(
    operation: Operation,
    file: BorrowedFd<'_>,
    segments: &[IoSegment],
    offset_bytes: u64,
) -> io::Result<usize> {
    let count = i32::try_from(segments.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let offset = i64::try_from(offset_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    let iovecs = IoSegment::as_iovec(segments);
    // SAFETY: the caller vouches for the memory; the descriptor is borrowed and so open.
    let moved = unsafe {
        match operation {
            Operation::Read => libc::preadv64(file.as_raw_fd(), iovecs, count, offset),
            Operation::Write => libc::pwritev64(file.as_raw_fd(), iovecs, count, offset),
        }
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Interrupted, momentarily short of something, or cancelled because the thread that submitted it ended: none of them
/// is the device's answer.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED))
}

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
        // Both are only advice for speed; kernels without them (or with THP off) still give working memory.
        let _ = rustix::mm::madvise(base.cast(), bytes, Advice::LinuxHugepage);
        let _ = rustix::mm::madvise(base.cast(), bytes, Advice::LinuxDontFork);
        for page in (0..bytes).step_by(4096) {
            base.add(page).write_volatile(0);
        }
    }
    NonNull::new(base)
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

/// Pages of a file range that are in the kernel's page cache, by `cachestat(2)` (Linux 6.5). The kernel answers only
/// those who own the file or may write to it.
pub(crate) fn cachestat_pages(file: BorrowedFd<'_>, range: ByteRange) -> io::Result<u64> {
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Stat {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let asked = Range { offset: range.start, length: range.len() };
    let mut answer = Stat::default();
    // SAFETY: both structures live across the call and have the layout of <linux/mman.h>.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const asked, &raw mut answer, 0 as libc::c_uint)
    };
    if result == 0 { Ok(answer.cached) } else { Err(io::Error::last_os_error()) }
}

/// Residency of each page of a mapping, one byte a page, by `mincore(2)`.
///
/// # Safety
/// `base` and `bytes` must describe a mapping of this process, `base` page-aligned.
pub(crate) unsafe fn mincore(base: NonNull<u8>, bytes: usize, pages: &mut [u8]) -> io::Result<()> {
    assert_eq!(pages.len(), bytes.div_ceil(4096));
    // SAFETY: the caller vouches for the mapping; `pages` has a byte for each page of it.
    let result = unsafe { libc::mincore(base.as_ptr().cast(), bytes, pages.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Alignment of memory and of file offsets that `O_DIRECT` asks for on this file, by `statx(2)` with `STATX_DIOALIGN`
/// (Linux 6.1). `None` when kernel or file system does not say; zeros mean that direct I/O is not supported.
pub(crate) fn statx_direct_alignment(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    // `struct statx` of <linux/stat.h> as 32-bit words: not every libc has the fields of Linux 6.1 yet.
    const STATX_DIOALIGN: u32 = 0x2000;
    const MASK_WORD: usize = 0;
    const MEMORY_WORD: usize = 38;
    const OFFSET_WORD: usize = 39;
    let mut words = [0_u32; 64];
    // SAFETY: the path is an empty C string, which with AT_EMPTY_PATH means the descriptor itself; the kernel writes
    // the 256 bytes of the structure and no more.
    let result = unsafe {
        let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
        libc::syscall(libc::SYS_statx, file.as_raw_fd(), path, flags, STATX_DIOALIGN, words.as_mut_ptr())
    };
    let told = result == 0 && words[MASK_WORD] & STATX_DIOALIGN != 0;
    told.then(|| (u64::from(words[MEMORY_WORD]), u64::from(words[OFFSET_WORD])))
}

/// The same number on every architecture: added after the tables were unified.
const SYS_CACHESTAT: libc::c_long = 451;

/// Has the processor fetch what lies there, if it can, and goes on.
#[inline]
pub(crate) fn prefetch(base: NonNull<u8>, offset_bytes: usize) {
    let address = base.as_ptr().wrapping_add(offset_bytes);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that the program could see, and does not fault, wherever the address points.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Copies bytes that others may be writing to; the copy is of no use then, and no harm is done. Word by word, from the
/// words around.
///
/// # Safety
/// The words that `range` touches, counted from `base`, are mapped, and `base` is aligned to them. Whoever else writes
/// to them does it atomically, or is not this program.
#[inline]
pub(crate) unsafe fn copy_racing(base: NonNull<u8>, range: std::ops::Range<usize>, buffer: &mut [u8]) {
    const WORD_BYTES: usize = size_of::<u64>();
    let mut at = range.start;
    let mut rest = &mut buffer[..range.len()];
    while at < range.end {
        let (start, skip) = (at / WORD_BYTES * WORD_BYTES, at % WORD_BYTES);
        // SAFETY: as the caller promises.
        let word = unsafe { AtomicU64::from_ptr(base.as_ptr().add(start).cast()) }.load(Ordering::Relaxed);
        let length = (WORD_BYTES - skip).min(range.end - at);
        let (part, behind) = rest.split_at_mut(length);
        part.copy_from_slice(&word.to_ne_bytes()[skip..skip + length]);
        (rest, at) = (behind, at + length);
    }
}
