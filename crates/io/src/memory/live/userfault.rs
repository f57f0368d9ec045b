//! Userfault: the system calls that move pages, place copies of pages, and report written and missing pages.
//!
//! ```text
//!   register(Written) ──► move_huge, place ──► pages arrive; where there is none, zeros as in any memory
//!                    └──► protect ──► write ──► scan_written: reports the page once, protects it again
//!   register(Missing) ──► access ─► next_missing: its address ─► place ─► the access goes on
//!                                                            └─► wake ──► the access is made again
//! ```
//!
//! Numbers and structures are those of `<linux/userfaultfd.h>` (Linux 6.8) and `<linux/fs.h>` (6.7), which neither `libc`
//! nor `rustix` has. Memory is registered for one of the two: where writes are tracked, no access is ever handed to a handler, so none
//! can block.
//!
//! Owns: the two descriptors, the structures of the calls.
//! Does not own: the memory; the choice between moving and copying.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use headwater_core::units::PAGE_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec};
use smallvec::SmallVec;

use crate::system::pages::SystemPages;

/// A userfaultfd and the page map that go with this process's memory. In a child of `fork` both still refer to the parent's
/// memory, and are not used.
#[derive(Debug)]
pub(super) struct Userfault {
    faults: OwnedFd,
    /// Where writes are tracked.
    page_map: Option<File>,
}

/// What memory is registered for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reports {
    /// Pages that were written.
    Written,
    /// Accesses to pages that are not there, which wait.
    Missing,
}

/// Whether a page placed by [`Userfault::place`] is reported by [`Userfault::scan_written`] although it was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protection {
    /// It would be.
    Open,
    /// It is protected as it arrives, and is not.
    Protected,
}

impl Userfault {
    /// Opens both and asks for what moving pages and tracking writes needs.
    ///
    /// # Errors
    /// `Unsupported`, with what is missing, where the kernel has not all of it or refuses it to this process; else what
    /// keeps the process from opening a file.
    pub(super) fn open() -> io::Result<Userfault> {
        SystemPages::here().require_small()?;
        let faults = open_faults()?;
        let page_map =
            File::open("/proc/self/pagemap").map_err(|error| refused("/proc/self/pagemap", error))?;
        let opened = Userfault { faults, page_map: Some(page_map) };
        if cfg!(miri) {
            return Ok(opened);
        }
        opened.negotiate()?;
        opened.scan(0..0, PAGE_IS_WRITTEN, 0, &mut []).map_err(|error| refused("PAGEMAP_SCAN", error))?;
        Ok(opened)
    }

    /// For [`Reports::Missing`], which Linux 5.11 and later permit to every process, for faults of its own code.
    ///
    /// # Errors
    /// As [`Userfault::open`].
    pub(super) fn open_for_missing() -> io::Result<Userfault> {
        SystemPages::here().require_small()?;
        let mut api = Api { api: API_VERSION, features: 0, ioctls: 0 };
        let opened = Userfault { faults: open_faults()?, page_map: None };
        // SAFETY: the structure of this request.
        unsafe { call(&opened.faults, UFFDIO_API, &mut api) }
            .map_err(|error| refused("userfaultfd", error))?;
        Ok(opened)
    }

    /// The features are asked for here, once. Told no, a descriptor answers to nothing any more; a second one says what
    /// there would have been.
    fn negotiate(&self) -> io::Result<()> {
        let wanted = FEATURE_MOVE | FEATURE_WRITE_PROTECT_ASYNC;
        let mut api = Api { api: API_VERSION, features: wanted, ioctls: 0 };
        // SAFETY: the structure of this request.
        let refusal = match unsafe { call(&self.faults, UFFDIO_API, &mut api) } {
            Ok(_) => return Ok(()),
            Err(refusal) => refusal,
        };
        let mut offered = Api { api: API_VERSION, features: 0, ioctls: 0 };
        // SAFETY: as above.
        unsafe { call(&open_faults()?, UFFDIO_API, &mut offered) }
            .map_err(|error| refused("userfaultfd", error))?;
        let missing = FEATURES.iter().find(|(feature, _)| offered.features & feature == 0);
        Err(missing.map_or_else(|| refused("userfaultfd", refusal), |(_, name)| unsupported(name)))
    }

    /// Has writes in the range tracked by page, once they are protected, or has accesses to missing pages wait; and lets pages be
    /// placed and moved there.
    ///
    /// # Safety
    /// The range is a private anonymous mapping of the caller's, page-aligned.
    pub(super) unsafe fn register(&self, range: Range<usize>, reports: Reports) -> io::Result<()> {
        if cfg!(miri) {
            return Ok(());
        }
        let mode = match reports {
            Reports::Written => REGISTER_MODE_WRITE_PROTECT,
            Reports::Missing => REGISTER_MODE_MISSING,
        };
        let mut register = Register { range: Span::of(&range), mode, ioctls: 0 };
        // SAFETY: the structure of this request; the memory is the caller's.
        unsafe { call(&self.faults, UFFDIO_REGISTER, &mut register) }.map(drop)
    }

    /// Protects every page of the range, also those that are not there yet: none has been written then.
    ///
    /// # Safety
    /// The range is registered.
    pub(super) unsafe fn protect(&self, range: Range<usize>) -> io::Result<()> {
        let mut protect = WriteProtect { range: Span::of(&range), mode: WRITE_PROTECT_MODE_ON };
        loop {
            // SAFETY: the structure of this request; the memory is the caller's. Protection changes no byte.
            match unsafe { call(&self.faults, UFFDIO_WRITEPROTECT, &mut protect) } {
                // Mappings of the process are being changed.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => std::thread::yield_now(),
                done => return done.map(drop),
            }
        }
    }

    /// Puts copies of whole pages where there is no page yet, and returns how many bytes; at least one page. An access meanwhile
    /// finds a page with all its bytes or none.
    ///
    /// # Errors
    /// `EEXIST` if there is a page at `destination`, `ENOMEM`, and what stands in `ioctl_userfaultfd(2)`.
    ///
    /// # Safety
    /// `destination` is page-aligned, in a registered range with room for `pages`, and other threads use the memory
    /// meanwhile with atomic accesses only.
    ///
    /// # Panics
    /// If `pages` are not whole pages, or none.
    pub(super) unsafe fn place(
        &self,
        destination: usize,
        pages: &[u8],
        protection: Protection,
    ) -> io::Result<usize> {
        assert!(!pages.is_empty() && pages.len().is_multiple_of(PAGE_BYTES), "whole pages are placed");
        let mode = if protection == Protection::Protected { COPY_MODE_WRITE_PROTECT } else { 0 };
        let (source, length) = (pages.as_ptr().expose_provenance() as u64, pages.len() as u64);
        let mut copy = Transfer { destination: destination as u64, source, length, mode, done: 0 };
        // SAFETY: the structure of this request; the source is borrowed, the rest is the caller's promise.
        let result = unsafe { call(&self.faults, UFFDIO_COPY, &mut copy) };
        copy.outcome(result)
    }

    /// Moves the pages from `source` to where there are none yet, and returns how many bytes; the source reads as zeros
    /// afterwards.
    ///
    /// # Errors
    /// `EEXIST` if there is a page at `destination`, `EBUSY` if the source is pinned for I/O, and what stands in
    /// `ioctl_userfaultfd(2)`. What was not moved is where it was.
    ///
    /// # Safety
    /// As for [`Userfault::place`]; the bytes from `source` on are private anonymous memory of the caller's alone.
    pub(super) unsafe fn move_pages(&self, destination: usize, source: &mut [u8]) -> io::Result<usize> {
        let (address, length) = (source.as_mut_ptr().expose_provenance() as u64, source.len() as u64);
        let mut moving =
            Transfer { destination: destination as u64, source: address, length, mode: 0, done: 0 };
        // SAFETY: the structure of this request; the source is borrowed for writing, the rest is the caller's promise.
        let result = unsafe { call(&self.faults, UFFDIO_MOVE, &mut moving) };
        moving.outcome(result)
    }

    /// The address of an access that waits for a page, rounded down to it. Blocks until there is one. Each access is reported to one
    /// thread, but wakes all that wait here.
    ///
    /// # Errors
    /// What `read(2)` reports.
    pub(super) fn next_missing(&self) -> io::Result<usize> {
        loop {
            match self.try_next_missing()? {
                Some(address) => return Ok(address),
                // The read does not block: an access may be woken between `poll` and the read.
                None => _ = self.poll(&[], None),
            }
        }
    }

    /// As [`Userfault::next_missing`], but `None` if no access waits.
    ///
    /// # Errors
    /// What `read(2)` reports.
    pub(super) fn try_next_missing(&self) -> io::Result<Option<usize>> {
        loop {
            // `struct uffd_msg`: the event, and the address from the 16th byte on.
            let mut message = [0; 32];
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.faults, &mut message)) {
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
                Ok(_) if message[0] == EVENT_PAGE_FAULT => {
                    let address = *message[16..].first_chunk().expect("it has 32 bytes");
                    return Ok(Some(usize::from_ne_bytes(address) / PAGE_BYTES * PAGE_BYTES));
                }
                Ok(_) => {}
            }
        }
    }

    /// Whether an access waits that was not reported yet.
    pub(super) fn has_missing(&self) -> bool {
        self.poll(&[], Some(Duration::ZERO))
    }

    /// Blocks until an access waits, one of these descriptors is readable, or so long. Says whether an access waits.
    pub(super) fn poll(&self, others: &[BorrowedFd<'_>], limit: Option<Duration>) -> bool {
        let limit = limit.map(|limit| Timespec::try_from(limit).expect("it is short"));
        let others = others.iter().map(|other| PollFd::from_borrowed_fd(*other, PollFlags::IN));
        let mut polled: SmallVec<[PollFd<'_>; 2]> =
            std::iter::once(PollFd::new(&self.faults, PollFlags::IN)).chain(others).collect();
        rustix::event::poll(&mut polled, limit.as_ref()).is_ok()
            && polled[0].revents().contains(PollFlags::IN)
    }

    /// Has the accesses that wait in the range look again.
    pub(super) fn wake(&self, range: &Range<usize>) {
        // SAFETY: the structure of this request, which touches no memory.
        let _no_registration = unsafe { call(&self.faults, UFFDIO_WAKE, &mut Span::of(range)) };
    }

    /// Whether all of this memory lies in huge pages mapped as such.
    pub(super) fn is_huge(&self, memory: &[u8]) -> bool {
        let start = memory.as_ptr().addr();
        let mut found = [Region::default()];
        let whole = start as u64..(start + memory.len()) as u64;
        let scan = self.scan(start..start + memory.len(), PAGE_IS_HUGE, 0, &mut found);
        scan.is_ok_and(|scan| scan.count == 1) && (found[0].start..found[0].end) == whole
    }

    /// Calls `on_written` with each run of pages of the range written since they were protected, ascending, and protects
    /// them again: later writes are reported by the next scan.
    ///
    /// # Errors
    /// When the kernel's tables cannot be walked. What was reported by then is protected again, the rest is left as it was.
    ///
    /// # Safety
    /// The range is registered, and page-aligned.
    pub(super) unsafe fn scan_written(
        &self,
        range: Range<usize>,
        mut on_written: impl FnMut(Range<usize>),
    ) -> io::Result<()> {
        let mut regions = [Region::default(); REGIONS_AT_ONCE];
        let mut at = range.start;
        while at < range.end {
            let flags = SCAN_PROTECTS | SCAN_CHECKS_REGISTRATION;
            let scan = self.scan(at..range.end, PAGE_IS_WRITTEN, flags, &mut regions)?;
            for region in &regions[..scan.count] {
                on_written(region.start as usize..region.end as usize);
            }
            if scan.walked_to <= at {
                return Err(io::Error::other("the scan of written pages does not get on"));
            }
            at = scan.walked_to;
        }
        Ok(())
    }

    fn scan(
        &self,
        range: Range<usize>,
        category: u64,
        flags: u64,
        regions: &mut [Region],
    ) -> io::Result<Scanned> {
        let vector = if regions.is_empty() { 0 } else { regions.as_mut_ptr().expose_provenance() as u64 };
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags,
            start: range.start as u64,
            end: range.end as u64,
            vector,
            vector_length: regions.len() as u64,
            category_mask: category,
            // Mask and answer alike: the kernel's quick way.
            return_mask: category,
            ..Scan::default()
        };
        // SAFETY: the structure of this request. The kernel writes as many regions as there is room for; protecting a
        // page, where that is asked, changes no byte of it.
        let page_map = self.page_map.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: as said.
        let count = unsafe { call(page_map, PAGEMAP_SCAN, &mut scan) }? as usize;
        assert!(count <= regions.len(), "the kernel keeps to the room it was given");
        Ok(Scanned { count, walked_to: scan.walk_end as usize })
    }
}

struct Scanned {
    count: usize,
    walked_to: usize,
}

impl Transfer {
    /// A call that did only a part fails with `EAGAIN` and reports how much.
    fn outcome(&self, result: io::Result<libc::c_int>) -> io::Result<usize> {
        match usize::try_from(self.done) {
            Ok(done) if done > 0 => Ok(done),
            _ => result.and_then(|_| Err(io::Error::from_raw_os_error(libc::EAGAIN))),
        }
    }
}

#[cfg(miri)]
fn open_faults() -> io::Result<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from)
}

#[cfg(not(miri))]
fn open_faults() -> io::Result<OwnedFd> {
    use rustix::mm::UserfaultfdFlags;
    // Without privileges only faults of user code may be handled. A system call that meets a missing page fails with `EFAULT`.
    let flags = UserfaultfdFlags::CLOEXEC
        | UserfaultfdFlags::NONBLOCK
        | UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
    // SAFETY: what can be done with the descriptor is done in this file, with memory that callers vouch for.
    unsafe { rustix::mm::userfaultfd(flags) }.map_err(|error| refused("userfaultfd", error.into()))
}

/// Lack of descriptors or memory is no word about the kernel.
fn refused(what: &str, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => error,
        _ => io::Error::new(io::ErrorKind::Unsupported, format!("live memory: {what}: {error}")),
    }
}

fn unsupported(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("live memory: the kernel has no {name}"))
}

/// # Safety
/// `argument` is the structure that `request` reads and writes, and what it asks for is allowed.
#[cfg(not(miri))]
unsafe fn call<T>(
    descriptor: &impl std::os::fd::AsFd,
    request: u32,
    argument: &mut T,
) -> io::Result<libc::c_int> {
    let descriptor: BorrowedFd<'_> = descriptor.as_fd();
    // SAFETY: as the caller promises; the structure lives across the call. (The type of a request differs between the C
    // libraries.)
    let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), request as _, &raw mut *argument) };
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
}

/// Under miri all memory is there already, and no call can be made.
///
/// # Safety
/// None.
#[cfg(miri)]
unsafe fn call<T>(
    descriptor: &impl std::os::fd::AsFd,
    _request: u32,
    _argument: &mut T,
) -> io::Result<libc::c_int> {
    let descriptor: BorrowedFd<'_> = descriptor.as_fd();
    let _ = descriptor.as_raw_fd();
    Err(io::Error::from_raw_os_error(libc::EEXIST))
}

/// `struct uffdio_range`.
#[repr(C)]
struct Span {
    start: u64,
    length: u64,
}

impl Span {
    fn of(range: &Range<usize>) -> Span {
        Span { start: range.start as u64, length: range.len() as u64 }
    }
}

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    range: Span,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
struct WriteProtect {
    range: Span,
    mode: u64,
}

/// `struct uffdio_copy` and `struct uffdio_move`, which look the same.
#[repr(C)]
struct Transfer {
    destination: u64,
    source: u64,
    length: u64,
    mode: u64,
    /// Bytes, or a negative error number.
    done: i64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vector: u64,
    vector_length: u64,
    pages_max: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of_mask: u64,
    return_mask: u64,
}

/// `_IOR` and `_IOWR` of `<asm-generic/ioctl.h>`.
const fn request<T>(directions: u32, kind: u8, number: u8) -> u32 {
    directions << 30 | (size_of::<T>() as u32) << 16 | (kind as u32) << 8 | number as u32
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;
const USERFAULT: u8 = 0xAA;
const UFFDIO_API: u32 = request::<Api>(READ_WRITE, USERFAULT, 0x3F);
const UFFDIO_WAKE: u32 = request::<Span>(READ, USERFAULT, 0x02);
const UFFDIO_REGISTER: u32 = request::<Register>(READ_WRITE, USERFAULT, 0x00);
const UFFDIO_COPY: u32 = request::<Transfer>(READ_WRITE, USERFAULT, 0x03);
const UFFDIO_MOVE: u32 = request::<Transfer>(READ_WRITE, USERFAULT, 0x05);
const UFFDIO_WRITEPROTECT: u32 = request::<WriteProtect>(READ_WRITE, USERFAULT, 0x06);
const PAGEMAP_SCAN: u32 = request::<Scan>(READ_WRITE, b'f', 16);

const API_VERSION: u64 = 0xAA;
#[cfg(not(miri))]
const UFFD_USER_MODE_ONLY: u32 = 1;
const FEATURE_WRITE_PROTECT_ASYNC: u64 = 1 << 15;
const FEATURE_MOVE: u64 = 1 << 16;
const FEATURES: [(u64, &str); 2] = [
    (FEATURE_WRITE_PROTECT_ASYNC, "UFFD_FEATURE_WP_ASYNC (Linux 6.7)"),
    (FEATURE_MOVE, "UFFD_FEATURE_MOVE (Linux 6.8)"),
];
const REGISTER_MODE_MISSING: u64 = 1 << 0;
const EVENT_PAGE_FAULT: u8 = 0x12;
const REGISTER_MODE_WRITE_PROTECT: u64 = 1 << 1;
const WRITE_PROTECT_MODE_ON: u64 = 1 << 0;
const COPY_MODE_WRITE_PROTECT: u64 = 1 << 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_HUGE: u64 = 1 << 6;
const SCAN_PROTECTS: u64 = 1 << 0;
const SCAN_CHECKS_REGISTRATION: u64 = 1 << 1;

/// Runs of written pages in one answer: 6 KiB of stack, and pages written at random, one run each, cost a system call for
/// every 256 of them, next to the fault that each of them cost before.
const REGIONS_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the requests are the kernel's. Method: the numbers as a C program prints them.
    #[test]
    fn requests_have_the_numbers_of_the_headers() {
        let requests =
            [UFFDIO_API, UFFDIO_REGISTER, UFFDIO_COPY, UFFDIO_MOVE, UFFDIO_WRITEPROTECT, PAGEMAP_SCAN];
        let printed = [0xC018_AA3F, 0xC020_AA00, 0xC028_AA03, 0xC028_AA05, 0xC018_AA06, 0xC060_6610];
        assert_eq!(requests, printed);
    }
}
