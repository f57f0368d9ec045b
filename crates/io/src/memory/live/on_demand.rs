//! On demand: memory whose pages handlers place when they are touched, and discard again.
//!
//! ```text
//!   access ─► page missing: the thread waits ─► next_missing, in a handler ─► place ─► the access goes on
//!                                                                      └────► wake ──► the access is made again
//!   discard ─► the page is missing again
//! ```
//!
//! A handler ends when it is handed an access to one of the pages behind the end, which only [`DemandMemory::end_handlers`] makes:
//! so a handler sleeps in one system call, and nothing else has to wake it.
//!
//! Owns: the pages' arrival and departure.
//! Does not own: what is in them, and which stay; the handlers' threads.
//! Invariants: those of live memory; a page arrives whole.
//! Locks: none.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::task::Poll;
use std::time::Duration;

use headwater_core::units::PAGE_BYTES;

use super::LiveMemory;
use super::userfault::{Protection, Reports, Userfault};

/// Memory that threads read at once, and whose pages come when they are touched. An access to a missing page waits until a handler, a
/// thread that calls [`DemandMemory::next_missing`] in a loop, places that page; a system call that meets one fails with `EFAULT`.
///
/// Otherwise as [`LiveMemory`]. What is stored through the atomics is gone when the page is discarded.
pub struct DemandMemory {
    /// With a page for each handler behind the end.
    memory: LiveMemory,
    length_bytes: usize,
    /// This process, to discard many pages by one call.
    process: OwnedFd,
}

impl DemandMemory {
    /// Handlers at most.
    pub const HANDLERS_MAX: usize = 16;

    /// Reserves memory of `bytes`, of which no page is there. Takes two descriptors and address space.
    ///
    /// # Errors
    /// `Unsupported`, with what is missing in the text, where userfaultfd is forbidden or the kernel has none for unprivileged
    /// processes (Linux 5.11 and later do); `InvalidInput` for 0 bytes; `OutOfMemory` when there is no room in the address space.
    pub fn new(bytes: usize) -> io::Result<DemandMemory> {
        let bells_bytes = DemandMemory::HANDLERS_MAX * PAGE_BYTES;
        let all_bytes = bytes
            .checked_next_multiple_of(PAGE_BYTES)
            .filter(|&rounded_bytes| rounded_bytes > 0)
            .and_then(|rounded_bytes| rounded_bytes.checked_add(bells_bytes))
            .ok_or(io::ErrorKind::InvalidInput)?;
        let this = rustix::process::getpid();
        let process = rustix::process::pidfd_open(this, rustix::process::PidfdFlags::empty())?;
        let memory = LiveMemory::reserve(all_bytes, Userfault::open_for_missing()?, Reports::Missing)?;
        Ok(DemandMemory { memory, length_bytes: bytes, process })
    }

    /// How many bytes there are, as asked for.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// As [`LiveMemory::read`]. Waits for missing pages.
    ///
    /// # Errors
    /// As [`LiveMemory::read`].
    #[inline]
    pub fn read(&self, at_bytes: usize, buffer: &mut [u8]) -> io::Result<()> {
        match at_bytes.checked_add(buffer.len()) {
            Some(end_bytes) if end_bytes <= self.length_bytes => self.memory.read(at_bytes, buffer),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// As [`LiveMemory::atomic_u64`].
    #[inline]
    pub fn atomic_u64(&self, at_bytes: usize) -> Option<&AtomicU64> {
        let is_inside = at_bytes.checked_add(size_of::<u64>()).is_some_and(|end| end <= self.length_bytes);
        self.memory.atomic_u64(at_bytes).filter(|_| is_inside)
    }

    /// As [`LiveMemory::as_cells`].
    #[must_use]
    pub fn as_cells(&self) -> &[AtomicU8] {
        let cells = self.memory.as_cells();
        &cells[..self.length_bytes.min(cells.len())]
    }

    /// Blocks until a thread waits for a page, and returns where that begins; `None` when the handler is to end. The access of
    /// that thread waits until the page is placed, or woken. One handler at a time should wait here: an access wakes all that do.
    ///
    /// # Errors
    /// `Unsupported` in a forked child, else what `read(2)` reports.
    pub fn next_missing(&self) -> io::Result<Option<usize>> {
        self.memory.reach(0, 0)?;
        self.handed(self.memory.faults.next_missing()?)
    }

    /// As [`DemandMemory::next_missing`], but does not block: [`Poll::Pending`] if no thread waits.
    ///
    /// # Errors
    /// As [`DemandMemory::next_missing`].
    pub fn try_next_missing(&self) -> io::Result<Poll<Option<usize>>> {
        self.memory.reach(0, 0)?;
        match self.memory.faults.try_next_missing()? {
            Some(address) => self.handed(address).map(Poll::Ready),
            None => Ok(Poll::Pending),
        }
    }

    /// What a handler is handed for an address.
    fn handed(&self, address: usize) -> io::Result<Option<usize>> {
        let at_bytes = address - self.memory.addresses().start;
        if at_bytes < self.length_bytes {
            return Ok(Some(at_bytes));
        }
        self.place_each(at_bytes, &[0; PAGE_BYTES])?;
        Ok(None)
    }

    /// Whether a thread waits for a page that no handler was handed yet.
    #[must_use]
    pub fn has_missing(&self) -> bool {
        self.memory.reach(0, 0).is_ok() && self.memory.faults.has_missing()
    }

    /// Blocks until [`DemandMemory::has_missing`], one of these descriptors is readable, or so long.
    pub fn wait_for_missing(&self, others: &[BorrowedFd<'_>], limit: Duration) {
        if self.memory.reach(0, 0).is_ok() {
            self.memory.faults.poll(others, Some(limit));
        }
    }

    /// Places copies of whole pages where none are yet, one after the other, each of which wakes the threads that wait for it. Pages
    /// that are there stay as they are.
    ///
    /// # Errors
    /// `InvalidInput` when the pages reach beyond the last one; `Unsupported` in a forked child; `OutOfMemory`. A part may be placed.
    ///
    /// # Panics
    /// If `at_bytes` or `pages` are not whole pages.
    pub fn place(&self, at_bytes: usize, pages: &[u8]) -> io::Result<()> {
        let end_bytes = at_bytes.checked_add(pages.len()).ok_or(io::ErrorKind::InvalidInput)?;
        if end_bytes > self.length_bytes.next_multiple_of(PAGE_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.place_each(at_bytes, pages)
    }

    fn place_each(&self, at_bytes: usize, pages: &[u8]) -> io::Result<()> {
        self.memory.reach(0, 0)?;
        assert!(at_bytes.is_multiple_of(PAGE_BYTES), "a page is placed at its beginning");
        let (start, mut done) = (self.memory.addresses().start + at_bytes, 0);
        while done < pages.len() {
            let (destination, rest) = (start + done, &pages[done..]);
            // SAFETY: page-aligned, inside the registered mapping. Every access to its bytes is atomic.
            let placed = unsafe { self.memory.faults.place(destination, rest, Protection::Open) };
            done += match placed {
                Ok(placed_bytes) => placed_bytes,
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    self.wake(at_bytes + done);
                    PAGE_BYTES
                }
                // Mappings of the process are being changed.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    std::thread::yield_now();
                    0
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has threads that wait for a page look again: they go on if it is there by now, and are handed to a handler once more if not.
    pub fn wake(&self, at_bytes: usize) {
        if self.memory.reach(at_bytes, 0).is_ok() {
            let start = self.memory.addresses().start + at_bytes;
            self.memory.faults.wake(&(start..start + PAGE_BYTES));
        }
    }

    /// Discards pages, which begin at these multiples of a page; those that are missing already stay so. Ascending neighbours are
    /// discarded together.
    ///
    /// # Errors
    /// `InvalidInput` for what is no page of the memory, `Unsupported` in a forked child. Nothing is discarded then.
    pub fn discard(&self, pages: &[usize]) -> io::Result<()> {
        let mut ranges: Vec<libc::iovec> = Vec::with_capacity(pages.len());
        let start = self.memory.addresses().start;
        for &at_bytes in pages {
            if !at_bytes.is_multiple_of(PAGE_BYTES) || at_bytes >= self.length_bytes {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            match ranges.last_mut() {
                Some(last) if last.iov_base.addr() + last.iov_len == start + at_bytes => {
                    last.iov_len += PAGE_BYTES
                }
                _ => {
                    let iov_base = self.memory.base.as_ptr().wrapping_add(at_bytes).cast();
                    ranges.push(libc::iovec { iov_base, iov_len: PAGE_BYTES });
                }
            }
        }
        self.memory.reach(0, 0)?;
        ranges.chunks(RANGES_AT_ONCE).for_each(|ranges| self.discard_ranges(ranges));
        Ok(())
    }

    /// By one call, which interrupts the other processors once (Linux 6.16; before 6.13 the kernel refuses), or one for each range.
    fn discard_ranges(&self, ranges: &[libc::iovec]) {
        let bytes: usize = ranges.iter().map(|range| range.iov_len).sum();
        // SAFETY: the ranges lie in the memory of `self`, in this process. Missing pages are waited for, and every access to
        // them is atomic: to other threads they change as if another thread stored.
        let done = unsafe {
            let process = self.process.as_raw_fd();
            libc::syscall(
                libc::SYS_process_madvise,
                process,
                ranges.as_ptr(),
                ranges.len(),
                libc::MADV_DONTNEED,
                0,
            )
        };
        if done as usize == bytes {
            return;
        }
        for range in ranges {
            // SAFETY: as above.
            unsafe { libc::madvise(range.iov_base, range.iov_len, libc::MADV_DONTNEED) };
        }
    }

    /// Ends as many handlers, and returns when each has been handed its end. No other access may wait: the handlers could be gone.
    ///
    /// # Errors
    /// `InvalidInput` for more than [`DemandMemory::HANDLERS_MAX`], or if that many have ended already; `Unsupported` in a forked child.
    pub fn end_handlers(&self, handlers: usize) -> io::Result<()> {
        if handlers > DemandMemory::HANDLERS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bells = self.length_bytes.next_multiple_of(PAGE_BYTES);
        (0..handlers).try_for_each(|handler| self.memory.read(bells + handler * PAGE_BYTES, &mut [0]))
    }
}

impl fmt::Debug for DemandMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DemandMemory({} bytes)", self.length_bytes)
    }
}

/// `UIO_MAXIOV`.
const RANGES_AT_ONCE: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use headwater_testkit::skip;

    use super::*;

    const PAGES: usize = 300;

    fn memory() -> Option<DemandMemory> {
        match DemandMemory::new(PAGES * PAGE_BYTES - 5) {
            Ok(memory) => Some(memory),
            Err(error) => {
                skip(error);
                None
            }
        }
    }

    /// Bytes of a page that show which it is.
    fn contents(page: usize) -> [u8; PAGE_BYTES] {
        [page as u8 ^ 0x5A; PAGE_BYTES]
    }

    /// As [`handle`], without blocking for accesses alone.
    fn handle_beside(memory: &DemandMemory, placed: &AtomicUsize) {
        loop {
            match memory.try_next_missing().unwrap() {
                Poll::Pending => memory.wait_for_missing(&[], Duration::from_millis(1)),
                Poll::Ready(None) => return,
                Poll::Ready(Some(at_bytes)) => {
                    placed.fetch_add(1, Ordering::Relaxed);
                    memory.place(at_bytes, &contents(at_bytes / PAGE_BYTES)).unwrap();
                }
            }
        }
    }

    fn handle(memory: &DemandMemory, placed: &AtomicUsize) {
        while let Some(at_bytes) = memory.next_missing().unwrap() {
            placed.fetch_add(1, Ordering::Relaxed);
            memory.place(at_bytes, &contents(at_bytes / PAGE_BYTES)).unwrap();
        }
    }

    /// Goal: pages come when they are touched, once, and again after they were discarded, whatever threads do meanwhile; all handlers
    /// end. Method: two handlers, one of which could wait for something else as well, four readers, one that
    /// discards.
    #[test]
    #[cfg_attr(miri, ignore)] // miri has no faults
    fn pages_come_and_go() {
        let Some(memory) = memory() else { return };
        let placed = AtomicUsize::new(0);
        thread::scope(|scope| {
            let handlers =
                [scope.spawn(|| handle(&memory, &placed)), scope.spawn(|| handle_beside(&memory, &placed))];
            let cell = |at: usize| memory.as_cells()[at].load(Ordering::Relaxed);
            (0..PAGES).for_each(|page| assert_eq!(cell(page * PAGE_BYTES + 7), contents(page)[7]));
            assert_eq!(cell(memory.length_bytes() - 1), contents(PAGES - 1)[0]);
            assert_eq!(placed.load(Ordering::Relaxed), PAGES);
            memory.discard(&[0, PAGE_BYTES, 5 * PAGE_BYTES]).unwrap();
            let mut three = [0; 3 * PAGE_BYTES];
            memory.read(0, &mut three).unwrap();
            assert!(three.chunks(PAGE_BYTES).enumerate().all(|(page, bytes)| bytes == contents(page)));
            assert_eq!(placed.load(Ordering::Relaxed), PAGES + 2);
            thread::scope(|scope| {
                for start in 0..4 {
                    scope.spawn(move || {
                        for round in 0..4000 {
                            let page = (start * 77 + round * 31) % PAGES;
                            assert_eq!(cell(page * PAGE_BYTES + round % 4000), contents(page)[0]);
                        }
                    });
                }
                for round in 0..400 {
                    let page = round * 13 % (PAGES - 2);
                    memory.discard(&[page * PAGE_BYTES, (page + 2) * PAGE_BYTES]).unwrap();
                }
            });
            memory.end_handlers(handlers.len()).unwrap();
        });
    }

    /// Goal: a page that is there stays as it is, an access that is woken without a page is handed on again, and what is no page is
    /// refused.
    #[test]
    #[cfg_attr(miri, ignore)] // miri has no faults
    fn the_ends_hold() {
        let Some(memory) = memory() else { return };
        let pages = [contents(0), contents(1)].concat();
        memory.place(PAGE_BYTES, &contents(1)).unwrap();
        memory.place(0, &[contents(0), contents(9)].concat()).unwrap();
        let mut bytes = [0; 2 * PAGE_BYTES];
        memory.read(0, &mut bytes).unwrap();
        assert!(bytes[..] == pages[..]);
        let refused =
            |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        refused(memory.place((PAGES - 1) * PAGE_BYTES, &pages));
        refused(memory.discard(&[7]));
        refused(memory.discard(&[PAGES * PAGE_BYTES]));
        refused(memory.read(memory.length_bytes(), &mut [0]));
        refused(memory.end_handlers(DemandMemory::HANDLERS_MAX + 1));
        refused(DemandMemory::new(0).map(drop));
        assert!(memory.atomic_u64(memory.length_bytes() - 3).is_none());
        assert_eq!(
            memory.atomic_u64(8).unwrap().load(Ordering::Relaxed),
            u64::from_ne_bytes([contents(0)[0]; 8])
        );
        thread::scope(|scope| {
            scope.spawn(|| {
                let missing = || memory.next_missing().unwrap();
                let first = (missing(), memory.has_missing());
                memory.wake(4 * PAGE_BYTES);
                while !memory.has_missing() {
                    thread::yield_now();
                }
                let second = missing();
                memory.place(4 * PAGE_BYTES, &contents(4)).unwrap();
                // Checked when nothing waits any more.
                let last = missing();
                assert_eq!(
                    (first, second, last),
                    ((Some(4 * PAGE_BYTES), false), Some(4 * PAGE_BYTES), None)
                );
            });
            assert_eq!(memory.as_cells()[4 * PAGE_BYTES + 9].load(Ordering::Relaxed), contents(4)[9]);
            memory.end_handlers(1).unwrap();
        });
    }
}
