//! Together: accesses to a window on demand that overlap, served by one handler, whose reads are under way at the same time.
//!
//! ```text
//!   accesses ─► begin ─┬─ the device alone has the bytes ─► read, by a ring of the handler's own ─► place
//!      ▲               └─ anything else, or an error ─────► read as for one access alone
//!      └── wait for an access or a read, in one call ◄─┘
//! ```
//!
//! With a handler for each, an access takes a switch of threads more, and twice the processor time.
//!
//! Owns: the ring, the reads under way.
//! Does not own: which pages are read (`inode::on_demand`), how one access alone is served (on demand).
//! Invariants: as on demand; a read of this ring depends on no other thread, nor on memory of the engine.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::task::Poll;
use std::time::Duration;

use headwater_core::units::{Alignment, PAGE_BYTES};
use headwater_io::{
    Call, Calling, Driver, DriverKind, DriverOptions, Returned, RingOperations, Route, SharedDescriptor,
};

use super::Window;
use crate::inode::on_demand::{Begun, Placed};

/// Serves accesses that overlap.
pub(super) struct Together {
    ring: Driver,
    reads: Vec<Read>,
    /// Not in use.
    buffers: Vec<PageBuffer>,
}

/// Pages that are read from the device because one of them was touched.
struct Read {
    page: usize,
    run: Range<usize>,
    calling: Calling<Returned<usize, (SharedDescriptor, PageBuffer)>>,
}

/// Where the bytes of pages are.
enum Source {
    /// Here.
    Memory(PageBuffer),
    /// On the device alone: to be read into this.
    Device(PageBuffer),
    /// Somewhere else, in parts, or the file ends there.
    Elsewhere,
}

/// How accesses were served, until none waited.
pub(super) enum Served {
    /// One after the other, or this number at once at most.
    AtOnce(usize),
    /// And the kernel refuses the ring by now.
    Refused,
    /// And the handler is to end.
    Last,
}

impl Together {
    /// `None` where the engine does not use io_uring, or the kernel refuses another ring.
    pub(super) fn new(window: &Window) -> Option<Together> {
        let is_uring = window.source.shared().driver.info().name == "uring";
        let options = DriverOptions {
            kind: DriverKind::Uring,
            queue_depth: READS_MAX as u32,
            rings: Some(1),
            operations: RingOperations::Transfers,
            ..DriverOptions::default()
        };
        let ring = is_uring.then(|| Driver::new(&options)).and_then(Result::ok)?;
        Some(Together { ring, reads: Vec::with_capacity(READS_MAX), buffers: Vec::new() })
    }

    /// Serves an access, and those that come while it is served. Errors of reads go where they go for one access alone.
    ///
    /// # Errors
    /// As [`DemandMemory::next_missing`](headwater_io::DemandMemory::next_missing).
    pub(super) fn serve(&mut self, window: &Window, first: usize) -> io::Result<Served> {
        let (mut next, mut most, mut is_last) = (Some(first), 0, false);
        loop {
            let mut has_moved = next.is_some();
            let begun = self.begin_all(window, next.take())?;
            has_moved |= begun.is_some();
            is_last |= begun == Some(Accesses::Last);
            most = most.max(self.reads.len());
            has_moved |= self.place_arrived(window);
            match (self.reads.is_empty(), has_moved) {
                (true, _) if is_last => return Ok(Served::Last),
                (true, false) if !self.has_ring() => return Ok(Served::Refused),
                (true, false) => return Ok(Served::AtOnce(most)),
                (_, true) => {}
                (false, false) if self.reads.len() < READS_MAX && !is_last && self.has_ring() => {
                    self.wait(window);
                }
                // No further access can be taken, or worker threads do what the ring has not.
                (false, false) => {
                    let read = self.reads.swap_remove(0);
                    self.place(window, read);
                }
            }
        }
    }

    /// Begins to serve this access and all that wait, as far as there is room. `None` if none waits.
    fn begin_all(&mut self, window: &Window, first: Option<usize>) -> io::Result<Option<Accesses>> {
        let mut begun = None;
        let mut next = first;
        loop {
            if let Some(page) = next.take() {
                begun = Some(Accesses::Some);
                if let Begun::Load(run) = window.begin(page) {
                    match self.find(window, &run) {
                        Source::Memory(buffer) => self.place_bytes(window, page, run, buffer),
                        Source::Device(buffer) => {
                            let file = window.source.open.shared_descriptor(Route::Direct);
                            let call = Call::pread(file, buffer, window.pages.bytes(&run).start);
                            self.reads.push(Read { page, run, calling: self.ring.call(call) });
                        }
                        Source::Elsewhere => window.load_for_access(run, page, || {}),
                    }
                }
            }
            if self.reads.len() == READS_MAX {
                return Ok(begun);
            }
            match window.pages.memory.try_next_missing()? {
                Poll::Pending => return Ok(begun),
                Poll::Ready(None) => return Ok(Some(Accesses::Last)),
                Poll::Ready(Some(at_bytes)) => next = Some(at_bytes / PAGE_BYTES),
            }
        }
    }

    /// Looks for the bytes of whole pages.
    fn find(&mut self, window: &Window, run: &Range<usize>) -> Source {
        let Window { source, inode, pages, .. } = window;
        let bytes = pages.bytes(run);
        let is_current = source.revalidate(inode).is_ok() && bytes.end <= inode.length_bytes();
        if !is_current || inode.dirty.overlaps(bytes) {
            return Source::Elsewhere;
        }
        let mut buffer = self.buffer(run.len());
        let resident = inode.copy_resident(buffer.as_mut(), bytes.start).map(Some);
        let resident = resident.map_or_else(|| source.read_if_resident(buffer.as_mut(), bytes.start), Ok);
        let is_direct =
            || source.open.direct().is_some_and(|direct| direct.memory.max(direct.offset) <= Alignment::PAGE);
        match resident {
            Ok(Some(found_bytes)) if found_bytes == buffer.length_bytes => Source::Memory(buffer),
            Ok(None) if is_direct() => Source::Device(buffer),
            _ => Source::Elsewhere,
        }
    }

    /// Places what has been read. Returns whether anything had.
    fn place_arrived(&mut self, window: &Window) -> bool {
        let (mut at, before) = (0, self.reads.len());
        while at < self.reads.len() {
            if self.reads[at].calling.is_done() {
                let read = self.reads.swap_remove(at);
                self.place(window, read);
            } else {
                at += 1;
            }
        }
        self.reads.len() < before
    }

    /// Blocks until the pages are read, and places them. What was not read whole, or failed, is read as for one access alone.
    fn place(&mut self, window: &Window, Read { page, run, calling }: Read) {
        let Returned { result, given: (_, buffer), .. } = calling.wait();
        match result {
            Ok(read_bytes) if read_bytes == buffer.length_bytes => {
                self.place_bytes(window, page, run, buffer)
            }
            _ => window.load_for_access(run, page, || {}),
        }
    }

    fn place_bytes(&mut self, window: &Window, page: usize, run: Range<usize>, mut buffer: PageBuffer) {
        match window.pages.place(&run, buffer.as_mut()) {
            Ok(Placed::Yes) => {}
            Ok(Placed::Stale) | Err(_) => window.load_for_access(run, page, || {}),
        }
        if buffer.length_bytes == PAGE_BYTES && self.buffers.len() < READS_MAX {
            self.buffers.push(buffer);
        }
    }

    fn buffer(&mut self, pages: usize) -> PageBuffer {
        let spare = if pages == 1 { self.buffers.pop() } else { None };
        spare.unwrap_or_else(|| PageBuffer::new(pages))
    }

    fn has_ring(&self) -> bool {
        self.ring.descriptors().next().is_some()
    }

    /// Blocks until there is an access, or a read is done.
    fn wait(&self, window: &Window) {
        let rings: Vec<BorrowedFd<'_>> = self.ring.descriptors().collect();
        window.pages.memory.wait_for_missing(&rings, LOOK_AGAIN);
    }
}

/// What was found of accesses that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accesses {
    Some,
    /// The handler is to end after those that were begun.
    Last,
}

/// Memory for whole pages, at the beginning of one, for direct transfers.
struct PageBuffer {
    memory: Vec<u8>,
    start: usize,
    length_bytes: usize,
}

impl PageBuffer {
    fn new(pages: usize) -> PageBuffer {
        let memory = vec![0; (pages + 1) * PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        PageBuffer { memory, start, length_bytes: pages * PAGE_BYTES }
    }
}

impl AsMut<[u8]> for PageBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length_bytes]
    }
}

/// As many accesses as threads of most programs make at once; enough for the devices that there are.
const READS_MAX: usize = 32;

/// Where the kernel refuses the ring meanwhile, only this shows what worker threads have read.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
