//! Raw system calls: those that neither `rustix` nor `io-uring` offers, each behind a minimal interface.
//!
//! Owns: how memory is mapped, vectored I/O on raw memory, syncs, `cachestat`, `mincore`, copies of bytes that others
//! change meanwhile.
//! Does not own: any state.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_core::units::ByteRange;

use super::pages::SystemPages;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// File to memory.
    Read,
    /// Memory to file.
    Write,
}

/// What a sync makes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncScope {
    /// The contents, and of the rest what reading them back takes, such as the length: `fdatasync(2)`.
    Data,
    /// Times and owners too: `fsync(2)`.
    All,
}

/// `fdatasync(2)` or `fsync(2)`; a single attempt.
pub(crate) fn sync(file: BorrowedFd<'_>, scope: SyncScope) -> io::Result<()> {
    Ok(match scope {
        SyncScope::Data => rustix::fs::fdatasync(file),
        SyncScope::All => rustix::fs::fsync(file),
    }?)
}

/// Closes a file (`close(2)`), which dropping it does without a word.
///
/// # Errors
/// What a file system reports only now of earlier writes: NFS, SMB and FUSE send them with this call. The descriptor is gone all the same.
pub fn close_file(file: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is this function's own.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Segments in a vectored request at most: UIO_MAXIOV of <linux/uio.h>.
pub(crate) const IO_SEGMENTS_MAX: usize = 1024;

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

    /// Where it begins.
    pub(crate) fn start(&self) -> NonNull<u8> {
        NonNull::new(self.0.iov_base.cast()).expect("made from a pointer that is not null")
    }

    /// What follows the first `length_bytes`.
    pub(crate) fn behind(&self, length_bytes: usize) -> IoSegment {
        assert!(length_bytes <= self.0.iov_len);
        let base = self.base().wrapping_add(length_bytes);
        IoSegment(libc::iovec { iov_base: base.cast(), iov_len: self.0.iov_len - length_bytes })
    }

    /// Its beginning, at most `length_bytes_max`.
    pub(crate) fn shortened_to(&self, length_bytes_max: usize) -> IoSegment {
        self.shortened(self.0.iov_len.min(length_bytes_max))
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
/// Every segment must be valid for writes (reads, when writing to the file) and not accessed by other code meanwhile.
#[cfg(not(miri))]
pub(crate) unsafe fn transfer(
    direction: Direction,
    file: BorrowedFd<'_>,
    segments: &[IoSegment],
    offset_bytes: u64,
) -> io::Result<usize> {
    let count = i32::try_from(segments.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let offset = i64::try_from(offset_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    let iovecs = IoSegment::as_iovec(segments);
    // SAFETY: the caller vouches for the memory; the descriptor is borrowed and so open.
    let moved = unsafe {
        match direction {
            Direction::Read => libc::preadv64(file.as_raw_fd(), iovecs, count, offset),
            Direction::Write => libc::pwritev64(file.as_raw_fd(), iovecs, count, offset),
        }
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// The same under miri, which lacks those calls: a transfer of the first segment is a short one.
///
/// # Safety
/// As for the other `transfer`.
#[cfg(miri)]
pub(crate) unsafe fn transfer(
    direction: Direction,
    file: BorrowedFd<'_>,
    segments: &[IoSegment],
    offset_bytes: u64,
) -> io::Result<usize> {
    let offset = i64::try_from(offset_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    let Some(first) = segments.first() else { return Ok(0) };
    let (base, length_bytes) = (first.base().cast(), first.length_bytes());
    // SAFETY: as the caller promises.
    let moved = unsafe {
        match direction {
            Direction::Read => libc::pread64(file.as_raw_fd(), base, length_bytes, offset),
            Direction::Write => libc::pwrite64(file.as_raw_fd(), base, length_bytes, offset),
        }
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Registers a function that the process calls at an orderly exit: when `main` returns, or in `exit`.
///
/// # Errors
/// When there is no memory to note it.
pub fn at_exit(call: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the function is there as long as the program, and takes no argument.
    match unsafe { libc::atexit(call) } {
        0 => Ok(()),
        _ => Err(io::ErrorKind::OutOfMemory.into()),
    }
}

/// Interrupted, momentarily short of something, or cancelled, or without memory to copy to (`EFAULT`), because the thread that
/// submitted it ended: none of them is the device's answer. The memory of requests is always mapped.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED | libc::EFAULT))
}

/// Reserves zeroed memory at a multiple of `alignment_bytes`, not inherited by forked children. Pages are made when they are
/// first touched, small ones, so that touching one byte takes no more than that.
#[cfg(not(miri))]
pub(crate) fn reserve(bytes: usize, alignment_bytes: usize) -> io::Result<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags};
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    let all_bytes = bytes.checked_add(alignment_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new private anonymous mapping, placed by the kernel, disturbs nothing that exists.
    let raw = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), all_bytes, protection, flags) }?;
    let lead = raw.cast::<u8>().align_offset(alignment_bytes);
    let base = raw.cast::<u8>().wrapping_add(lead);
    // SAFETY: the three parts lie within the mapping just made, which nobody else knows yet; head and tail are cut off.
    unsafe {
        if lead > 0 {
            let _ = rustix::mm::munmap(raw, lead);
        }
        let _ = rustix::mm::munmap(base.wrapping_add(bytes).cast(), alignment_bytes - lead);
        // Kernels without huge pages refuse the first, which then changes nothing.
        let _ = rustix::mm::madvise(base.cast(), bytes, Advice::LinuxNoHugepage);
        if let Err(error) = rustix::mm::madvise(base.cast(), bytes, Advice::LinuxDontFork) {
            let _ = rustix::mm::munmap(base.cast(), bytes);
            return Err(error.into());
        }
    }
    NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// Unmaps what [`reserve`] mapped.
///
/// # Safety
/// `base` must come from `reserve(bytes, _)`, and nothing may refer to the memory any more.
#[cfg(not(miri))]
pub(crate) unsafe fn release(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller vouches for it. Failure would leak the memory, nothing worse.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
}

/// Miri knows no `madvise`. Aligned to pages alone, so that the size says all about what is released.
#[cfg(miri)]
pub(crate) fn reserve(bytes: usize, _alignment_bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the layout has a size above zero.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// # Safety
/// As above.
#[cfg(miri)]
pub(crate) unsafe fn release(base: NonNull<u8>, bytes: usize) {
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).expect("was valid when reserved");
    // SAFETY: the caller vouches that `base` came from `reserve(bytes, _)`.
    unsafe { std::alloc::dealloc(base.as_ptr(), layout) }
}

/// What the kernel's page cache holds of a file range, in the kernel's pages; the memory that the kernel fills in.
#[repr(C)]
#[derive(Default)]
pub(crate) struct CacheStat {
    pub(crate) cached: u64,
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// `cachestat(2)` (Linux 6.5). The kernel answers only a process that owns the file or may write to it.
pub(crate) fn cachestat(file: BorrowedFd<'_>, range: ByteRange) -> io::Result<CacheStat> {
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    let asked = Range { offset: range.start, length: range.len() };
    let mut answer = CacheStat::default();
    // SAFETY: both structures live across the call and have the layout of <linux/mman.h>.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const asked, &raw mut answer, 0 as libc::c_uint)
    };
    if result == 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}

/// Residency of each of the kernel's pages of a mapping, one byte a page, by `mincore(2)`.
///
/// # Safety
/// `base` and `bytes` must describe a mapping of this process, `base` page-aligned.
pub(crate) unsafe fn mincore(base: NonNull<u8>, bytes: usize, pages: &mut [u8]) -> io::Result<()> {
    assert_eq!(pages.len(), SystemPages::here().covering(bytes));
    // SAFETY: the caller vouches for the mapping; `pages` has a byte for each page of it.
    let result = unsafe { libc::mincore(base.as_ptr().cast(), bytes, pages.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The same number on every architecture: added after the tables were unified.
const SYS_CACHESTAT: libc::c_long = 451;

/// Prefetches the cache lines of a range, counted from `base`, each `LINE_BYTES` after the one before. Does not wait for them.
#[inline]
pub(crate) fn prefetch(base: NonNull<u8>, range: std::ops::Range<usize>) {
    for offset_bytes in range.step_by(LINE_BYTES) {
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
}

/// Copies bytes that others may be writing to; the copy is of no use then, and no harm is done. Word by word, from the
/// words around.
///
/// # Safety
/// The words that `range` touches, counted from `base`, are mapped, and `base` is aligned to them. Other writers store
/// to them atomically, or belong to another program.
#[inline]
unsafe fn copy_racing(base: NonNull<u8>, range: std::ops::Range<usize>, buffer: &mut [u8]) {
    const WORD_BYTES: usize = size_of::<u64>();
    let mut at = range.start;
    let mut rest = &mut buffer[..range.len()];
    while at < range.end {
        let (start, skip) = (at / WORD_BYTES * WORD_BYTES, at % WORD_BYTES);
        // SAFETY: as the caller promises.
        let word = unsafe { AtomicU64::from_ptr(base.as_ptr().add(start).cast()) }.load(Ordering::Relaxed);
        let length = (WORD_BYTES - skip).min(range.end - at);
        let (part, behind) = rest.split_at_mut(length);
        match <&mut [u8; WORD_BYTES]>::try_from(&mut *part) {
            Ok(whole) => *whole = word.to_ne_bytes(),
            Err(_) => part.copy_from_slice(&word.to_ne_bytes()[skip..skip + length]),
        }
        (rest, at) = (behind, at + length);
    }
}

/// Copies bytes out of memory that others write to meanwhile, a word at a time: a value in one word is seen whole, values
/// in two words need not fit together. Like [`copy_racing`], and fast for many bytes.
///
/// # Safety
/// As for [`copy_racing`].
///
/// # Panics
/// If `buffer` is shorter than the range.
#[inline]
pub(crate) unsafe fn load_racing(base: NonNull<u8>, range: std::ops::Range<usize>, buffer: &mut [u8]) {
    // SAFETY: as the caller promises.
    unsafe {
        if !STRING_COPIES || range.len() <= STRING_BYTES_MIN {
            copy_racing(base, range, buffer);
        } else {
            load_string(base, range, buffer);
        }
    }
}

/// As [`load_racing`], for ranges that are worth a string instruction.
///
/// # Safety
/// As for [`copy_racing`].
unsafe fn load_string(base: NonNull<u8>, range: std::ops::Range<usize>, buffer: &mut [u8]) {
    let buffer = &mut buffer[..range.len()];
    let middle = whole_words(&range);
    let (head, rest) = buffer.split_at_mut(middle.start - range.start);
    let (body, tail) = rest.split_at_mut(middle.len());
    // SAFETY: the three parts lie in the range that the caller vouches for; `body` is as long as the middle, whole words,
    // and nobody else's.
    unsafe {
        copy_racing(base, range.start..middle.start, head);
        copy_words(base.as_ptr().add(middle.start), body.as_mut_ptr(), middle.len() / WORD_BYTES);
        copy_racing(base, middle.end..range.end, tail);
    }
}

/// Copies bytes into memory that others read and write meanwhile, a word at a time. What they write beside the range is
/// not lost, though it may be in the same word.
///
/// # Safety
/// As for [`copy_racing`], and the words may be written to; other threads read them atomically meanwhile.
///
/// # Panics
/// If there are not as many bytes as the range is long.
pub(crate) unsafe fn store_racing(base: NonNull<u8>, range: std::ops::Range<usize>, bytes: &[u8]) {
    assert_eq!(range.len(), bytes.len(), "as many bytes as there is room for");
    let middle = whole_words(&range);
    if !STRING_COPIES || middle.len() < STRING_BYTES_MIN {
        // SAFETY: as the caller promises.
        return unsafe { store_words(base, range, bytes) };
    }
    let (head, rest) = bytes.split_at(middle.start - range.start);
    let (body, tail) = rest.split_at(middle.len());
    // SAFETY: the three parts lie in the range that the caller vouches for; `body` is as long as the middle, whole words.
    unsafe {
        store_words(base, range.start..middle.start, head);
        copy_words(body.as_ptr(), base.as_ptr().add(middle.start), middle.len() / WORD_BYTES);
        store_words(base, middle.end..range.end, tail);
    }
}

/// As [`store_racing`] for many bytes that this processor does not read soon: past its caches, which saves reading what is
/// overwritten. The rest of `range.len()` modulo 64, and where the target is not aligned to that, goes the ordinary way.
///
/// # Safety
/// As for [`store_racing`].
pub(crate) unsafe fn store_streaming(base: NonNull<u8>, range: std::ops::Range<usize>, bytes: &[u8]) {
    assert_eq!(range.len(), bytes.len(), "as many bytes as there is room for");
    let lines_bytes = range.len() / LINE_BYTES * LINE_BYTES;
    let is_aligned = (base.as_ptr() as usize + range.start).is_multiple_of(LINE_BYTES);
    if !STRING_COPIES || !is_aligned || lines_bytes < STREAMED_BYTES_MIN {
        // SAFETY: as the caller promises.
        return unsafe { store_racing(base, range, bytes) };
    }
    let (lines, tail) = bytes.split_at(lines_bytes);
    // SAFETY: both parts lie in the range that the caller vouches for; the first is whole lines, aligned in the target.
    unsafe {
        stream_lines(lines.as_ptr(), base.as_ptr().add(range.start), lines_bytes / LINE_BYTES);
        store_racing(base, range.start + lines_bytes..range.end, tail);
    }
}

/// Copies whole cache lines past the caches.
///
/// # Safety
/// `from` is valid for reads and `to`, aligned to lines, for writes of `lines`; other threads at most read there, atomically.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream_lines(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: the loop touches what the caller vouches for. The compiler does not see the stores, each of which is a whole
    // aligned vector; the fence at the end orders them before all that follow, as it does not order itself.
    unsafe {
        std::arch::asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movntps [{to}], {a}",
            "movntps [{to} + 16], {b}",
            "movntps [{to} + 32], {c}",
            "movntps [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            "sfence",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Elsewhere the ordinary stores are used.
///
/// # Safety
/// None is needed.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn stream_lines(_: *const u8, _: *mut u8, _: usize) {
    unreachable!("no other processor streams");
}

/// One atomic store for a word that is written whole, a loop of exchanges for one that is not.
///
/// # Safety
/// As for [`store_racing`].
unsafe fn store_words(base: NonNull<u8>, range: std::ops::Range<usize>, bytes: &[u8]) {
    let (mut at, mut rest) = (range.start, bytes);
    while at < range.end {
        let (start, skip) = (at / WORD_BYTES * WORD_BYTES, at % WORD_BYTES);
        let (part, behind) = rest.split_at((WORD_BYTES - skip).min(range.end - at));
        // SAFETY: as the caller promises.
        let word = unsafe { AtomicU64::from_ptr(base.as_ptr().add(start).cast()) };
        match <[u8; WORD_BYTES]>::try_from(part) {
            Ok(whole) => word.store(u64::from_ne_bytes(whole), Ordering::Relaxed),
            Err(_) => merge(word, skip, part),
        }
        (rest, at) = (behind, at + part.len());
    }
}

/// Writes some bytes of a word and leaves the others to concurrent writers.
fn merge(word: &AtomicU64, skip: usize, part: &[u8]) {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let mut merged = seen.to_ne_bytes();
        merged[skip..skip + part.len()].copy_from_slice(part);
        let merged = u64::from_ne_bytes(merged);
        match word.compare_exchange_weak(seen, merged, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// The part of a range that consists of whole words.
fn whole_words(range: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    let start = range.start.next_multiple_of(WORD_BYTES).min(range.end);
    start..start.max(range.end / WORD_BYTES * WORD_BYTES)
}

/// Copies words by the processor's own string instruction, which the compiler cannot see into, so that it assumes nothing about
/// concurrent accesses. By words rather than bytes (`rep movsb`), for which no processor promises that a word is
/// copied whole.
///
/// # Safety
/// `words` at `from` may be read, and at `to` written, and the two do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_words(from: *const u8, to: *mut u8, words: usize) {
    // SAFETY: as the caller promises. The direction flag is clear, as the ABI has it.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") words => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// None: never called.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy_words(_from: *const u8, _to: *mut u8, _words: usize) {
    unreachable!("STRING_COPIES is false")
}

/// A cache line.
const LINE_BYTES: usize = 64;

/// Shorter copies stay in the processor's caches: a program that wrote a few pages may read them soon.
const STREAMED_BYTES_MIN: usize = 256 << 10;

/// Whether [`copy_words`] is there.
pub(crate) const STRING_COPIES: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Starting a string instruction costs some ten cycles, as long as a loop over these takes.
const STRING_BYTES_MIN: usize = 64;

const WORD_BYTES: usize = size_of::<u64>();
