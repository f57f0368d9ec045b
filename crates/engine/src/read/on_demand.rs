//! On demand: windows whose pages are read when they are touched.
//!
//! ```text
//!   SharedView::read ─► present? ─┬─ yes ─────────────────────────────────────────────► copy ─► failed meanwhile? again
//!                                 └─ no ─► this thread: begin ─► bytes of the file ─► place ──┘
//!   a cell, no call ─► page missing ─► the kernel hands it to a handler: the same, and zeros for what cannot be read
//! ```
//!
//! Handlers are threads of the window. One leads: it waits for accesses in the kernel. Where there is io_uring it keeps the lead, and has
//! the reads of accesses that overlap under way at the same time (`together`). Elsewhere it gives the lead away while it reads if accesses
//! overlap, because that costs a switch of threads, to another of up to 16 handlers. Handlers wait for the device without the queues of the
//! engine's driver: nothing that a thread holds while it touches a cell can keep them from going on, but locks of the engine, under which no
//! program's code runs. For the same reason a handler runs none while it has the lead, but has another thread run it.
//!
//! Bytes come from the cache where it has them, and around it else: a page is not in memory twice because it was touched.
//!
//! Owns: where the bytes of a window on demand come from, its handlers.
//! Does not own: which pages it holds (`inode::on_demand`).
//! Invariants: D2; no handler is left when the last user of a window is gone.
//! Locks: `lead`, while the next access is waited for, and while it is served unless it was given away; `handlers` inside, not while a
//! handler is waited for.

mod together;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES, PageRange};
use headwater_io::{DemandMemory, lock, without_signals};

use crate::base::error::{Error, Operation, Result};
use crate::base::listeners::Undisturbed;
use crate::engine::handle::Source;
use crate::inode::Inode;
use crate::inode::on_demand::{Begun, DemandPages, Placed};
use together::{Served, Together};

/// The right to use a window on demand. When dropped, its handlers end and its memory is given back.
pub(crate) struct OnDemand {
    window: Arc<Window>,
}

/// What users and handlers share.
struct Window {
    source: Arc<Source>,
    inode: Arc<Inode>,
    pages: Arc<DemandPages>,
    handlers: Mutex<Handlers>,
    /// Held by the handler that waits for an access.
    lead: Mutex<()>,
    /// Handlers that serve an access.
    serving: AtomicUsize,
    /// While above zero, accesses are expected to overlap.
    overlaps: AtomicU32,
}

/// The right to wait for accesses, which the code of the program makes.
struct Lead<'a> {
    waits: MutexGuard<'a, ()>,
    undisturbed: Undisturbed,
}

impl<'a> Lead<'a> {
    fn take(window: &'a Window) -> Lead<'a> {
        Lead { waits: lock(&window.lead), undisturbed: Undisturbed::enter() }
    }
}

#[derive(Default)]
struct Handlers {
    threads: Vec<JoinHandle<()>>,
    are_ending: bool,
}

impl OnDemand {
    /// Makes a window of the pages that a range touches, with at most `memory_bytes` of memory.
    pub(crate) fn new(source: &Arc<Source>, range: ByteRange, memory_bytes: u64) -> Result<OnDemand> {
        let refused = |error| source.error(Operation::View, range.start, error);
        let Some(inode) = source.known() else {
            let error = io::Error::new(io::ErrorKind::Unsupported, "a file without pages has no windows");
            return Err(refused(error));
        };
        let pages = Arc::new(pages(source, range, memory_bytes).map_err(refused)?);
        let window = Arc::new(Window {
            source: source.clone(),
            inode: inode.clone(),
            pages: pages.clone(),
            handlers: Mutex::default(),
            lead: Mutex::default(),
            serving: AtomicUsize::new(0),
            overlaps: AtomicU32::new(0),
        });
        window.start_handler().map_err(refused)?;
        let changes = inode.dirty.lock();
        inode.dirty.on_demand.add(&pages);
        drop(changes);
        let shared = source.shared();
        lock(&shared.on_demand).push(pages);
        shared.background.note();
        Ok(OnDemand { window })
    }

    pub(crate) fn memory(&self) -> &DemandMemory {
        &self.window.pages.memory
    }

    /// Where a byte of the file lies in the memory.
    pub(crate) fn at(&self, offset_bytes: u64) -> usize {
        self.window.pages.at(offset_bytes)
    }

    /// Copies bytes of the file that lie in the window.
    #[inline]
    pub(crate) fn read(&self, range: ByteRange, buffer: &mut [u8]) -> Result<()> {
        let Window { source, inode, pages, .. } = &*self.window;
        source.check_read(range.start)?;
        if !inode.is_current(source.revalidate_after) {
            source.revalidate(inode).map_err(|error| source.length_error(error))?;
        }
        let numbers = pages.at(range.start) / PAGE_BYTES..pages.at(range.end).div_ceil(PAGE_BYTES);
        loop {
            self.window.check_end(range)?;
            let failures = pages.failures();
            for page in numbers.clone() {
                if !pages.is_present(page) {
                    self.window.fetch(page)?;
                }
            }
            let copied = pages.memory.read(pages.at(range.start), buffer);
            copied.map_err(|error| source.read_error(range.start, error))?;
            if pages.failures() == failures {
                // A truncate may have moved the end meanwhile.
                return self.window.check_end(range);
            }
        }
    }

    /// Fails if an access without a call went beyond the end, or to a page that could not be read, since the last check.
    pub(crate) fn check(&self) -> Result<()> {
        self.window.source.check_process_for(Operation::Read)?;
        self.window.pages.take_failure().map_or(Ok(()), Err)
    }
}

impl Window {
    /// Has a page be present, at least for a moment.
    fn fetch(&self, page: usize) -> Result<()> {
        loop {
            match self.pages.begin(page) {
                Begun::Present => return Ok(()),
                Begun::Elsewhere => self.pages.settle(page),
                Begun::Load(run) => {
                    let loaded = self.load(run, page, || {});
                    return loaded.inspect_err(|_| self.pages.give_up(&(page..page + 1)));
                }
            }
        }
    }

    /// Begins to serve an access: if the caller is to load nothing, the access goes on, or will by another thread.
    fn begin(&self, page: usize) -> Begun {
        let begun = self.pages.begin(page);
        if begun == Begun::Present {
            self.pages.memory.wake(page * PAGE_BYTES);
        }
        begun
    }

    /// Loads pages, of which one is waited for, and has the access go on.
    fn load_for_access(&self, run: Range<usize>, page: usize, before_placing: impl FnMut()) {
        if let Err(error) = self.load(run, page, before_placing) {
            self.pages.place_failed(page, error);
        }
    }

    /// Reads and places pages. If that fails, `page` alone is still loading.
    fn load(&self, mut run: Range<usize>, page: usize, mut before_placing: impl FnMut()) -> Result<()> {
        let mut memory = vec![0; (run.len() + 1) * PAGE_BYTES];
        let aligned = memory.as_ptr().align_offset(PAGE_BYTES);
        loop {
            let buffer = &mut memory[aligned..][..run.len() * PAGE_BYTES];
            let placed = self.read_pages(&run, buffer).and_then(|()| {
                before_placing();
                let placed = self.pages.place(&run, buffer);
                placed.map_err(|error| self.source.read_error(self.pages.bytes(&run).start, error))
            });
            match placed {
                Ok(Placed::Yes) => return Ok(()),
                Ok(Placed::Stale) => {}
                // What was not asked for fails nothing.
                Err(_) if run.len() > 1 => {
                    self.pages.give_up(&(page + 1..run.end));
                    run = page..page + 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills the buffer with bytes of the file, at least one, and zeros beyond its end.
    fn read_pages(&self, run: &Range<usize>, buffer: &mut [u8]) -> Result<()> {
        let source = &self.source;
        source.revalidate(&self.inode).map_err(|error| source.length_error(error))?;
        self.pages.begin_read(run);
        let bytes = self.pages.bytes(run).clip(self.inode.length_bytes());
        let mut done = 0;
        while (done as u64) < bytes.len() {
            let rest = ByteRange::new(bytes.start + done as u64, bytes.end);
            match self.read_part(rest, &mut buffer[done..bytes.len() as usize])? {
                // Other programs have truncated the file.
                0 => break,
                read_bytes => done += read_bytes,
            }
        }
        if done == 0 {
            return Err(self.ended(self.pages.bytes(run).start));
        }
        buffer[done..].fill(0);
        Ok(())
    }

    fn read_part(&self, range: ByteRange, buffer: &mut [u8]) -> Result<usize> {
        if let Some(read_bytes) = self.inode.copy_resident(buffer, range.start) {
            Ok(read_bytes)
        } else if self.inode.dirty.overlaps(range) {
            self.source.read_cached(&self.inode, buffer, range)
        } else {
            self.source.read_uncached(buffer, range)
        }
    }

    fn check_end(&self, range: ByteRange) -> Result<()> {
        let length_bytes = self.inode.length_bytes();
        if range.end <= length_bytes { Ok(()) } else { Err(self.ended(range.start.max(length_bytes))) }
    }

    #[cold]
    fn ended(&self, offset_bytes: u64) -> Error {
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends here");
        self.source.error(Operation::Read, offset_bytes, error)
    }

    fn start_handler(self: &Arc<Self>) -> io::Result<()> {
        let mut handlers = lock(&self.handlers);
        let is_waiting = handlers.threads.len() > self.serving.load(Ordering::Acquire);
        if is_waiting || handlers.are_ending || handlers.threads.len() == DemandMemory::HANDLERS_MAX {
            return Ok(());
        }
        let window = self.clone();
        let builder = thread::Builder::new().name("headwater-window".into()).stack_size(STACK_BYTES);
        handlers.threads.push(without_signals(|| builder.spawn(move || window.handle()))?);
        Ok(())
    }

    fn handle(self: Arc<Self>) {
        let (mut kept, mut together) = (None, None);
        loop {
            let lead = kept.take().unwrap_or_else(|| Lead::take(&self));
            let Ok(Some(at_bytes)) = self.pages.memory.next_missing() else { return };
            let (page, overlaps) = (at_bytes / PAGE_BYTES, self.overlaps.load(Ordering::Relaxed));
            if overlaps > 0
                && let Some(ring) = together.get_or_insert_with(|| Together::new(&self))
            {
                let served = ring.serve(&self, page, &lead);
                kept = Some(lead);
                match served {
                    Ok(Served::AtOnce(0..=1)) => self.overlaps.store(overlaps - 1, Ordering::Relaxed),
                    Ok(Served::AtOnce(_)) => self.overlaps.store(OVERLAPS, Ordering::Relaxed),
                    Ok(Served::Refused) => together = Some(None),
                    Ok(Served::All { but }) => {
                        self.serving.fetch_add(1, Ordering::AcqRel);
                        self.give_away(&mut kept);
                        but.into_iter().for_each(|(run, page)| self.load_for_access(run, page, || {}));
                        self.serving.fetch_sub(1, Ordering::AcqRel);
                    }
                    Ok(Served::Last) | Err(_) => return,
                }
            } else {
                // A handler with a ring, or that may still get one, serves the next ones itself.
                kept = self.serve(page, lead, matches!(together, Some(None)));
            }
            kept.iter().for_each(|lead| lead.undisturbed.run_elsewhere());
        }
    }

    /// Serves one access. Returns the lead, unless it was given away: because loading may run code of the program, which may touch the
    /// window; or, if `others_help`, because other accesses come meanwhile.
    fn serve<'a>(self: &'a Arc<Self>, page: usize, lead: Lead<'a>, others_help: bool) -> Option<Lead<'a>> {
        let mut lead = Some(lead);
        if self.serving.fetch_add(1, Ordering::AcqRel) > 0 {
            self.overlaps.store(OVERLAPS, Ordering::Relaxed);
        }
        let overlaps = self.overlaps.load(Ordering::Relaxed);
        if overlaps > 0 {
            self.overlaps.store(overlaps - 1, Ordering::Relaxed);
        }
        if others_help && overlaps > 0 {
            self.give_away(&mut lead);
        }
        if let Begun::Load(run) = self.begin(page) {
            if !self.lies_on_device(&run) {
                self.give_away(&mut lead);
            }
            self.load_for_access(run, page, || {
                // The thread that waits for this page is not among them.
                if self.pages.memory.has_missing() {
                    self.overlaps.store(OVERLAPS, Ordering::Relaxed);
                    if others_help {
                        self.give_away(&mut lead);
                    }
                }
            });
        }
        self.serving.fetch_sub(1, Ordering::AcqRel);
        lead
    }

    /// Gives the lead to another handler. The caller counts as one that serves.
    fn give_away(self: &Arc<Self>, lead: &mut Option<Lead<'_>>) {
        if let Some(Lead { waits, undisturbed }) = lead.take() {
            drop(waits);
            // Without another one, further accesses wait for this.
            let _no_thread = self.start_handler();
            drop(undisturbed);
        }
    }

    /// Whether whole pages are to be read from the device, where nothing else can be waited for.
    fn lies_on_device(&self, run: &Range<usize>) -> bool {
        let bytes = self.pages.bytes(run);
        bytes.end <= self.inode.length_bytes() && !self.inode.dirty.overlaps(bytes)
    }
}

impl Drop for OnDemand {
    /// Nothing can touch the memory any more; so no handler runs code of the program, and none drops this.
    fn drop(&mut self) {
        let Window { source, inode, pages, handlers, .. } = &*self.window;
        if source.shared().driver.is_forked() {
            return;
        }
        inode.dirty.on_demand.remove(pages);
        lock(&source.shared().on_demand).retain(|other| !Arc::ptr_eq(other, pages));
        let mut handlers = lock(handlers);
        handlers.are_ending = true;
        let threads = std::mem::take(&mut handlers.threads);
        drop(handlers);
        if pages.memory.end_handlers(threads.len()).is_ok() {
            threads.into_iter().for_each(|thread| _ = thread.join());
        }
    }
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.window.pages.fmt(f)
    }
}

/// Memory for a window, charged to the budget.
fn pages(source: &Source, range: ByteRange, memory_bytes: u64) -> io::Result<DemandPages> {
    let pages = PageRange::covering(range);
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if range.is_empty() {
        return invalid("a window has one byte at the least".to_owned());
    }
    if memory_bytes < MEMORY_BYTES_MIN {
        return invalid(format!("a window on demand takes {MEMORY_BYTES_MIN} bytes of memory at the least"));
    }
    let memory = DemandMemory::new(pages.bytes().len() as usize)?;
    let slots = pages.len().get().min(memory_bytes / PAGE_SIZE_BYTES) as usize;
    let charge = source.shared().arena.lend_out(slots * PAGE_BYTES).map_err(|left_bytes| {
        let text = format!(
            "a window on demand needs memory that the engine does not use yet, of which {left_bytes} bytes are left"
        );
        io::Error::new(io::ErrorKind::OutOfMemory, text)
    })?;
    Ok(DemandPages::new(memory, pages, slots, charge))
}

/// Several times what leaves at once.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// After this number of accesses that do not overlap, the next one is expected not to.
const OVERLAPS: u32 = 64;

/// Reads of up to 256 KiB have their memory on the heap.
const STACK_BYTES: usize = 256 << 10;
