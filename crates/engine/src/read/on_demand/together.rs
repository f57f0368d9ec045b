//! Together: one handler serves accesses to a window on demand that overlap, with their reads under way at the same time.
//!
//! ```text
//!   accesses ─► begin ─┬─ the device alone has the bytes ─► read, by a ring of the handler's own ─► place
//!      ▲               └─ anything else, or an error ─────► left over: the handler ends its reads, gives the lead away, and loads them
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
use std::task::Poll;
use std::time::Duration;

use headwater_core::units::{Alignment, PAGE_BYTES};
use headwater_io::{
    Call, Calling, Driver, DriverKind, DriverOptions, Returned, RingOperations, Route, SharedDescriptor,
};

use super::{Lead, Window};
use crate::inode::on_demand::{Begun, Placed};

/// Serves accesses that overlap.
pub(super) struct Together {
    ring: Driver,
    reads: Vec<Read>,
    /// Runs of pages that take more than one request, each with the page that is waited for.
    left_over: Vec<(Range<usize>, usize)>,
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

/// How accesses were served, until none waited. No read is under way then.
pub(super) enum Served {
    /// One after the other, or this number at once at most.
    AtOnce(usize),
    /// All but these: the caller loads them, for the pages that are waited for. That may run code of the program.
    All { but: Vec<(Range<usize>, usize)> },
    /// The kernel refuses the ring by now.
    Refused,
    /// The handler is to end.
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
        Some(Together {
            ring,
            reads: Vec::with_capacity(READS_MAX),
            left_over: Vec::new(),
            buffers: Vec::new(),
        })
    }

    /// Serves an access, and those that come while it is served.
    ///
    /// # Errors
    /// As [`DemandMemory::next_missing`](headwater_io::DemandMemory::next_missing).
    pub(super) fn serve(&mut self, window: &Window, first: usize, lead: &Lead<'_>) -> io::Result<Served> {
        self.begin(window, first);
        let (mut most, mut is_last) = (self.reads.len(), false);
        loop {
            lead.undisturbed.run_elsewhere();
            let takes_more = !is_last && self.left_over.is_empty();
            let mut has_moved = false;
            while takes_more && self.reads.len() < READS_MAX && self.left_over.is_empty() {
                match window.pages.memory.try_next_missing()? {
                    Poll::Pending => break,
                    Poll::Ready(Some(at_bytes)) => self.begin(window, at_bytes / PAGE_BYTES),
                    Poll::Ready(None) => {
                        // The ends of other handlers are not for this one.
                        is_last = true;
                        break;
                    }
                }
                has_moved = true;
            }
            most = most.max(self.reads.len());
            has_moved |= self.place_arrived(window);
            match self.reads.is_empty() {
                true if is_last => return Ok(Served::Last),
                true if !self.left_over.is_empty() => {
                    return Ok(Served::All { but: std::mem::take(&mut self.left_over) });
                }
                _ if has_moved => {}
                true if !self.has_ring() => return Ok(Served::Refused),
                true => return Ok(Served::AtOnce(most)),
                false if takes_more && self.reads.len() < READS_MAX && self.has_ring() => self.wait(window),
                // No further access is taken, or worker threads do what the ring has not.
                false => {
                    let read = self.reads.swap_remove(0);
                    self.place(window, read);
                }
            }
        }
    }

    /// Begins to serve an access.
    fn begin(&mut self, window: &Window, page: usize) {
        let Begun::Load(run) = window.begin(page) else { return };
        match self.find(window, &run) {
            Source::Memory(buffer) => self.place_bytes(window, page, run, buffer),
            Source::Device(buffer) => {
                let file = window.source.open.shared_descriptor(Route::Direct);
                let call = Call::pread(file, buffer, window.pages.bytes(&run).start);
                self.reads.push(Read { page, run, calling: self.ring.call(call) });
            }
            Source::Elsewhere => self.left_over.push((run, page)),
        }
    }

    /// Looks for the bytes of whole pages.
    fn find(&mut self, window: &Window, run: &Range<usize>) -> Source {
        let Window { source, inode, pages, .. } = window;
        if source.revalidate(inode).is_err() {
            return Source::Elsewhere;
        }
        // What is written from here on makes the pages stale, what was before is dirty or on the device.
        pages.begin_read(run);
        if !window.lies_on_device(run) {
            return Source::Elsewhere;
        }
        let bytes = pages.bytes(run);
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

    /// Blocks until the pages are read, and places them. What was not read whole, or failed, is left over.
    fn place(&mut self, window: &Window, Read { page, run, calling }: Read) {
        let Returned { result, given: (_, buffer), .. } = calling.wait();
        match result {
            Ok(read_bytes) if read_bytes == buffer.length_bytes => {
                self.place_bytes(window, page, run, buffer)
            }
            _ => self.left_over.push((run, page)),
        }
    }

    fn place_bytes(&mut self, window: &Window, page: usize, run: Range<usize>, mut buffer: PageBuffer) {
        match window.pages.place(&run, buffer.as_mut()) {
            Ok(Placed::Yes) => {}
            Ok(Placed::Stale) | Err(_) => self.left_over.push((run, page)),
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
        window.pages.memory.wait_for_missing(self.ring.descriptors().next().as_slice(), LOOK_AGAIN);
    }
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
