//! Story: page caches as they are first written, one step after the other; what each step costs is what it is compared for.
//!
//! ```text
//!   page by page ─► a bounce buffer ─► kept ─► none: one request into the pages ─► and published one by one
//!                                               └─► the next window early: by a task for each ─► that is yielded to ─► by one that stays
//! ```
//!
//! All have the windows of Linux: 4 pages, doubled up to 32 as the reader goes on, and the next one begun at a mark where a task reads
//! ahead. Nothing leaves them.
//!
//! Owns: these caches.
//! Does not own: headwater's own, which has the last word (`headwater_arms`).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ax_std::sync::Mutex;
use ax_std::thread::{self, JoinHandle};
use axfs_ng_vfs::{FileNodeOps, VfsError, VfsResult};
use headwater_arceos::{Queue, WaitQueue};

use crate::arm::{Arm, Counts, Reader, node};
use crate::processors::{DISK_PROCESSOR, bind};

/// How a window comes into the pages, and which task reads the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Way {
    memory: Memory,
    publishing: Publishing,
    pending: Pending,
    ahead: Ahead,
}

/// Where the device writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// Into each page by a request of its own.
    EachPage,
    /// Into a buffer, from which the pages are copied.
    Bounce,
    /// The same, kept from window to window.
    KeptBounce,
    /// Into the pages of a window, which lie together, by one request.
    Window,
}

/// When readers find the pages of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Publishing {
    OneByOne,
    AllAtOnce,
}

/// Whether readers find pages that are on their way, and wait for them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pending {
    Off,
    On,
}

/// Which task reads the next window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// The reader, when it comes to it.
    Nobody,
    /// A task for each window.
    Spawned,
    /// The same, and the reader yields after it has spawned it.
    SpawnedAndYielded,
    /// One task, which waits for windows.
    Persistent,
}

/// The way of that name.
pub fn way(name: &str) -> Option<Way> {
    let window = Way {
        memory: Memory::Window,
        publishing: Publishing::AllAtOnce,
        pending: Pending::On,
        ahead: Ahead::Nobody,
    };
    Some(match name {
        "pages" => Way { memory: Memory::EachPage, ..window },
        "bounce" => Way { memory: Memory::Bounce, ..window },
        "bounce-kept" => Way { memory: Memory::KeptBounce, ..window },
        "window" => window,
        "one-by-one" => Way { publishing: Publishing::OneByOne, ..window },
        "no-pending" => Way { pending: Pending::Off, ahead: Ahead::SpawnedAndYielded, ..window },
        "spawn" => Way { ahead: Ahead::Spawned, ..window },
        "spawn-yield" => Way { ahead: Ahead::SpawnedAndYielded, ..window },
        "persistent" => Way { ahead: Ahead::Persistent, ..window },
        _ => return None,
    })
}

/// Caches of one way, one for each file.
pub struct Story {
    way: Way,
    shared: Arc<Shared>,
    server: Option<JoinHandle<()>>,
}

/// What files and tasks share.
struct Shared {
    queue: Mutex<VecDeque<(Arc<File>, Range<usize>)>>,
    work: Queue,
    is_queued: AtomicBool,
    is_over: AtomicBool,
    misses: AtomicU64,
    waits: AtomicU64,
    copied_bytes: AtomicU64,
}

impl Story {
    pub fn new(way: Way) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::new(VecDeque::new()),
            work: Queue::new(),
            is_queued: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            misses: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
        });
        let server = (way.ahead == Ahead::Persistent).then(|| {
            let shared = shared.clone();
            thread::spawn(move || {
                bind(DISK_PROCESSOR);
                shared.serve();
            })
        });
        Self { way, shared, server }
    }
}

impl Shared {
    fn serve(&self) {
        let has_work = || self.is_queued.load(Ordering::Acquire) || self.is_over.load(Ordering::Acquire);
        loop {
            self.work.wait_until(has_work);
            let mut queue = self.queue.lock();
            let next = queue.pop_front();
            self.is_queued.store(!queue.is_empty(), Ordering::Release);
            drop(queue);
            match next {
                // What fails is read again by the reader, which hears of it.
                Some((file, window)) => file.load(window).unwrap_or(()),
                None if self.is_over.load(Ordering::Acquire) => return,
                None => {}
            }
        }
    }
}

impl Arm for Story {
    fn open(&self, path: &str) -> VfsResult<Box<dyn Reader>> {
        let node = node(path)?;
        let pages_end = (node.len()? as usize).div_ceil(PAGE_BYTES);
        let state = Mutex::new(State {
            slots: BTreeMap::new(),
            frontier: 0,
            size: 0,
            mark: None,
            bounce: Vec::new(),
        });
        let file = File {
            way: self.way,
            shared: self.shared.clone(),
            node,
            pages_end,
            state,
            arrivals: AtomicU64::new(0),
            arrived: Queue::new(),
        };
        Ok(Box::new(StoryReader(Arc::new(file))))
    }

    fn counts(&self) -> Option<Counts> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(Counts {
            misses: read(&self.shared.misses),
            waits: read(&self.shared.waits),
            copied_bytes: read(&self.shared.copied_bytes),
        })
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.work.notify_all();
        if let Some(server) = self.server.take() {
            server.join().expect("the task that serves does not panic");
        }
    }
}

struct StoryReader(Arc<File>);

/// A file's cache.
struct File {
    way: Way,
    shared: Arc<Shared>,
    node: Arc<dyn FileNodeOps>,
    pages_end: usize,
    state: Mutex<State>,
    /// Times that something arrived, or will not, and where readers wait for the next.
    arrivals: AtomicU64,
    arrived: Queue,
}

struct State {
    slots: BTreeMap<usize, Slot>,
    /// Where the last window ended, and how large it was.
    frontier: usize,
    size: usize,
    /// At this page the next window is begun.
    mark: Option<usize>,
    bounce: Vec<u8>,
}

#[derive(Clone)]
enum Slot {
    Pending,
    /// A part of a window, from this byte on.
    Ready(Arc<Vec<u8>>, usize),
}

/// What a reader does about a page.
enum Found {
    Page(Arc<Vec<u8>>, usize),
    /// Until more than this has arrived.
    Pending(u64),
    Load(Range<usize>),
}

impl Reader for StoryReader {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> VfsResult<usize> {
        let (mut done, offset) = (0, offset as usize);
        while done < bytes.len() {
            let (page, within) = ((offset + done) / PAGE_BYTES, (offset + done) % PAGE_BYTES);
            if page >= self.0.pages_end {
                break;
            }
            let length = (PAGE_BYTES - within).min(bytes.len() - done);
            let (memory, start) = self.0.page(page)?;
            bytes[done..done + length].copy_from_slice(&memory[start + within..][..length]);
            self.0.count_copy(length);
            done += length;
        }
        Ok(done)
    }
}

impl File {
    /// Where the page is, once it is there.
    fn page(self: &Arc<Self>, page: usize) -> VfsResult<(Arc<Vec<u8>>, usize)> {
        loop {
            match self.find(page) {
                Found::Page(memory, start) => return Ok((memory, start)),
                Found::Pending(arrivals) => {
                    self.shared.waits.fetch_add(1, Ordering::Relaxed);
                    self.arrived.wait_until(|| self.arrivals.load(Ordering::Acquire) != arrivals);
                }
                Found::Load(window) => {
                    self.shared.misses.fetch_add(1, Ordering::Relaxed);
                    self.load(window)?;
                }
            }
        }
    }

    fn find(self: &Arc<Self>, page: usize) -> Found {
        let mut state = self.state.lock();
        let next = (state.mark == Some(page)).then(|| state.next_window(self));
        let found = match state.slots.get(&page) {
            Some(Slot::Ready(memory, start)) => Found::Page(memory.clone(), *start),
            // Read with the lock held: what arrives later is counted later.
            Some(Slot::Pending) => Found::Pending(self.arrivals.load(Ordering::Acquire)),
            None => Found::Load(state.window_at(page, self)),
        };
        drop(state);
        if let Some(window) = next.filter(|window| !window.is_empty()) {
            self.read_ahead(window);
        }
        found
    }

    fn read_ahead(self: &Arc<Self>, window: Range<usize>) {
        let file = self.clone();
        if self.way.ahead == Ahead::Persistent {
            self.shared.queue.lock().push_back((file, window));
            self.shared.is_queued.store(true, Ordering::Release);
            return self.shared.work.notify_all();
        }
        thread::spawn(move || {
            bind(DISK_PROCESSOR);
            // What fails is read again by the reader, which hears of it.
            let _ = file.load(window);
        });
        if self.way.ahead == Ahead::SpawnedAndYielded {
            thread::yield_now();
        }
    }

    /// Reads a window, and publishes it; what is pending of it is not, however it ends.
    fn load(&self, window: Range<usize>) -> VfsResult<()> {
        let result = self.fetch(window.clone());
        if result.is_err() {
            self.state
                .lock()
                .slots
                .retain(|page, slot| !window.contains(page) || matches!(slot, Slot::Ready(..)));
        }
        self.announce();
        result
    }

    fn announce(&self) {
        self.arrivals.fetch_add(1, Ordering::AcqRel);
        self.arrived.notify_all();
    }

    fn fetch(&self, window: Range<usize>) -> VfsResult<()> {
        let mut memory = vec![0; window.len() * PAGE_BYTES];
        let offset = window.start * PAGE_BYTES;
        match self.way.memory {
            Memory::Window => self.read(&mut memory, offset)?,
            Memory::EachPage => {
                for (page, target) in window.clone().zip(memory.chunks_mut(PAGE_BYTES)) {
                    self.read(target, page * PAGE_BYTES)?;
                }
            }
            Memory::Bounce => self.bounce(&mut memory, offset, vec![0; window.len() * PAGE_BYTES])?,
            Memory::KeptBounce => {
                let mut kept = core::mem::take(&mut self.state.lock().bounce);
                kept.resize(WINDOW_PAGES_MAX * PAGE_BYTES, 0);
                self.bounce(&mut memory, offset, kept)?;
            }
        }
        let memory = Arc::new(memory);
        let slot = |page: usize| (page, Slot::Ready(memory.clone(), (page - window.start) * PAGE_BYTES));
        match self.way.publishing {
            Publishing::AllAtOnce => self.state.lock().slots.extend(window.clone().map(slot)),
            Publishing::OneByOne => window.clone().map(slot).for_each(|(page, slot)| {
                self.state.lock().slots.insert(page, slot);
                self.announce();
            }),
        }
        Ok(())
    }

    fn bounce(&self, memory: &mut [u8], offset: usize, mut buffer: Vec<u8>) -> VfsResult<()> {
        let buffer_part = &mut buffer[..memory.len()];
        self.read(buffer_part, offset)?;
        memory.copy_from_slice(buffer_part);
        self.count_copy(memory.len());
        if self.way.memory == Memory::KeptBounce {
            self.state.lock().bounce = buffer;
        }
        Ok(())
    }

    fn read(&self, target: &mut [u8], offset: usize) -> VfsResult<()> {
        match self.node.read_at(target, offset as u64)? {
            0 => Err(VfsError::InvalidInput),
            _ => Ok(()),
        }
    }

    fn count_copy(&self, bytes: usize) {
        self.shared.copied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl State {
    /// The window of a miss: larger than the last one where the reader goes on from that.
    fn window_at(&mut self, page: usize, file: &File) -> Range<usize> {
        let is_next = page == self.frontier && self.size > 0;
        self.size = if is_next { (self.size * 2).min(WINDOW_PAGES_MAX) } else { WINDOW_PAGES_MIN };
        let window = self.window(page, file);
        if file.way.ahead != Ahead::Nobody {
            self.mark = Some(page + 1);
        }
        window
    }

    /// The one behind the last, at the mark of that.
    fn next_window(&mut self, file: &File) -> Range<usize> {
        self.size = (self.size * 2).min(WINDOW_PAGES_MAX);
        let start = self.frontier;
        self.mark = Some(start);
        self.window(start, file)
    }

    /// Up to the first page that is there, or on its way.
    fn window(&mut self, start: usize, file: &File) -> Range<usize> {
        let end = (start + self.size).min(file.pages_end);
        let end = self.slots.range(start..end.max(start)).next().map_or(end, |(page, _)| *page);
        let window = start..end.max(start);
        self.frontier = window.end;
        if file.way.pending == Pending::On {
            self.slots.extend(window.clone().map(|page| (page, Slot::Pending)));
        }
        window
    }
}

const PAGE_BYTES: usize = 4096;
/// As Linux: 16 KiB for a read of 4 KiB, and at most 128 KiB.
const WINDOW_PAGES_MIN: usize = 4;
const WINDOW_PAGES_MAX: usize = 32;
