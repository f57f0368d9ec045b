//! Mapped: a file in the kernel's address space, by its own page tables; faults of the processor are served from the cache.
//!
//! ```text
//!   load, store ─► #PF ─► on_fault ─► get_pages ─► Page::access ─► ax_mm: map, protect      under the lock of the address space
//!   eviction, truncate, write-back ─► listener ─► ax_mm: unmap, protect, flush              under the same
//! ```
//!
//! Owns: the mapping, its faults, what programs do to it: all the unsafe code of that.
//! Does not own: page tables (`ax-mm`), the trap (`ax-cpu`), the cache.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use ax_hal::mem::{MemoryAddr, VirtAddr, VirtAddrRange, virt_to_phys};
use ax_hal::paging::MappingFlags;
use ax_hal::trap::{PageFaultFlags, set_page_fault_handler};
use ax_mm::kernel_aspace;
use ax_std::println;
use ax_std::sync::Mutex;
use axfs_ng_vfs::{VfsError, VfsResult};
use headwater_arceos::{
    ArceOs, CachedFile, ListenerId, MemoryHint, Page, PageAccess, PageCache, PageEvent, PageIndex, PageRange,
    PutPages, Settings, SyncScope, VfsNode,
};

use crate::arm::node;
use crate::layout::{WORD_BYTES, WRITES_BYTES, WRITES_PATH, seed, word};

/// Maps a file, loads and stores, and compares all that is seen with what must be there.
pub fn mapped() -> Result<(), String> {
    let previous = set_page_fault_handler(on_fault);
    let result = steps().map_err(|error| format!("a mapped file: {error:?}"));
    *CURRENT.lock() = None;
    set_page_fault_handler(previous);
    result?
}

fn steps() -> VfsResult<Result<(), String>> {
    write_content()?;
    println!("{:<34}{:>8}{:>8}{:>10}", "mapped file, 1024 pages", "faults", "reads", "ms");
    for around in [1, 16] {
        let cache = cache()?;
        let file = cache.open(VfsNode::new(node(WRITES_PATH)?))?;
        for state in ["cold", "resident"] {
            let mapping = Mapping::new(&file, around)?;
            let (start, reads) = (ax_hal::time::monotonic_time(), cache.stats().loads);
            let is_right = (0..PAGES).all(|page| mapping.load(page * PAGE_BYTES) == content(page));
            let micros = (ax_hal::time::monotonic_time() - start).as_micros();
            let (faults, reads) = (mapping.faults(), cache.stats().loads - reads);
            let what = format!("{state}, {around} at a fault");
            println!("{what:<34}{faults:>8}{reads:>8}{:>10.1}", micros as f64 / 1e3);
            // In a cold file, each page from which more is read ahead faults itself.
            let faults_max = if state == "cold" { PAGES.min(2 * PAGES / around) } else { PAGES / around };
            if !is_right || faults > faults_max as u64 || state == "resident" && reads > 0 {
                return Ok(Err(format!("{what}: {faults} faults, {reads} reads, bytes right: {is_right}")));
            }
        }
    }
    let cache = cache()?;
    let file = cache.open(VfsNode::new(node(WRITES_PATH)?))?;
    let mapping = Mapping::new(&file, 16)?;
    let steps: [(&str, Step); 4] = [
        ("stores and write-back", stores),
        ("a write from its own mapping", write_from_mapping),
        ("low memory", low_memory),
        ("a truncate", truncate),
    ];
    for (what, step) in steps {
        let before = mapping.faults();
        if !step(&cache, &file, &mapping)? {
            return Ok(Err(format!("mapped file, {what}: not as it must be")));
        }
        println!("{what:<34}{:>8}", mapping.faults() - before);
    }
    Ok(Ok(()))
}

type Step = fn(&Arc<PageCache<ArceOs>>, &CachedFile<ArceOs>, &Mapping) -> VfsResult<bool>;

/// A store faults once until the page is written back, which brings it to the file system.
fn stores(cache: &Arc<PageCache<ArceOs>>, file: &CachedFile<ArceOs>, mapping: &Mapping) -> VfsResult<bool> {
    (0..STORED_PAGES).for_each(|page| _ = mapping.load(page * PAGE_BYTES));
    let mut counts = Vec::new();
    for value in [1, 2] {
        let faults = mapping.faults();
        for offset in [8, 16] {
            (0..STORED_PAGES).for_each(|page| mapping.store(page * PAGE_BYTES + offset, value));
        }
        counts.push((mapping.faults() - faults, cache.stats().dirty_pages));
        file.sync(SyncScope::Data)?;
    }
    let mut stored = vec![0; STORED_PAGES * PAGE_BYTES];
    node(WRITES_PATH)?.read_at(&mut stored, 0)?;
    let is_stored = stored.chunks(PAGE_BYTES).all(|page| page[8] == 2 && page[16] == 2);
    let pages = STORED_PAGES as u64;
    Ok(is_stored && counts == [(pages, pages); 2] && cache.stats().dirty_pages == 0)
}

/// The kernel copies from the mapping, which faults, into a buffer of its own, and writes that to the very page.
fn write_from_mapping(
    _cache: &Arc<PageCache<ArceOs>>,
    file: &CachedFile<ArceOs>,
    mapping: &Mapping,
) -> VfsResult<bool> {
    let words = PAGE_BYTES / WORD_BYTES;
    let first = |count| (0..count).map(|index| mapping.load(index * WORD_BYTES)).collect::<Vec<u64>>();
    let expected = first(words);
    file.put_pages(pages(0, PAGES), PutPages::Free)?;
    let faults = mapping.faults();
    let buffer: Vec<u8> = first(words - 1).iter().flat_map(|word| word.to_le_bytes()).collect();
    let written = file.write_at(&buffer, WORD_BYTES as u64)?;
    let is_moved = first(words)[1..] == expected[..words - 1];
    Ok(is_moved && written == buffer.len() && mapping.faults() > faults)
}

/// What the allocator has left decides what the cache keeps: mapped pages leave, and come back.
fn low_memory(
    cache: &Arc<PageCache<ArceOs>>,
    _file: &CachedFile<ArceOs>,
    mapping: &Mapping,
) -> VfsResult<bool> {
    let sum = || (1..PAGES).fold(0, |sum: u64, page| sum.wrapping_add(mapping.load(page * PAGE_BYTES)));
    let (expected, before) = (sum(), cache.stats());
    let mut ballast: Vec<Vec<u8>> = Vec::new();
    while memory() != MemoryHint::Critical {
        ballast.push(Vec::with_capacity(BALLAST_BYTES));
    }
    cache.tend();
    let after = cache.stats();
    let is_right = sum() == expected;
    drop(ballast);
    println!("    the cache had {} KiB, and then {}", before.memory_bytes >> 10, after.memory_bytes >> 10);
    Ok(is_right && after.memory_bytes < before.memory_bytes && memory() == MemoryHint::Plenty)
}

/// Pages behind the end are out of the mapping, and what was stored behind it in the last page is gone when the file grows again.
fn truncate(
    _cache: &Arc<PageCache<ArceOs>>,
    file: &CachedFile<ArceOs>,
    mapping: &Mapping,
) -> VfsResult<bool> {
    let last = PAGES / 2;
    let _ = mapping.load((last + 1) * PAGE_BYTES);
    file.set_len((last * PAGE_BYTES + 16) as u64)?;
    // What the handler says is what a program would get as a signal.
    let is_refused = mapping.fault(last + 1, PageAccess::Read) == Err(VfsError::InvalidInput)
        && mapping.fault(last + 1, PageAccess::Write) == Err(VfsError::InvalidInput);
    mapping.store(last * PAGE_BYTES + 32, 5);
    file.set_len(WRITES_BYTES as u64)?;
    let is_kept = mapping.load(last * PAGE_BYTES) == content(last);
    let is_gone =
        [last * PAGE_BYTES + 32, (last + 1) * PAGE_BYTES].map(|offset| mapping.load(offset)) == [0, 0];
    Ok(is_refused && is_kept && is_gone)
}

/// A file of the kernel's address space.
struct Mapping {
    shared: Arc<Shared>,
    listener: ListenerId,
}

struct Shared {
    file: CachedFile<ArceOs>,
    base: VirtAddr,
    /// Pages that a fault may map, aligned.
    around: usize,
    faults: AtomicU64,
}

impl Mapping {
    fn new(file: &CachedFile<ArceOs>, around: usize) -> VfsResult<Self> {
        let space = kernel_aspace().lock_irqsave();
        let range = VirtAddrRange::new(space.base(), space.end());
        let hint = (space.end() - REACH_BYTES).align_down_4k();
        let base = space.find_free_area(hint, WRITES_BYTES, range).ok_or(VfsError::NoMemory)?;
        drop(space);
        let listener = file.add_evict_listener(move |event| change(base, event));
        let shared = Arc::new(Shared { file: file.clone(), base, around, faults: AtomicU64::new(0) });
        *CURRENT.lock() = Some(shared.clone());
        Ok(Self { shared, listener })
    }

    fn load(&self, offset: usize) -> u64 {
        assert!(offset + WORD_BYTES <= WRITES_BYTES && offset.is_multiple_of(WORD_BYTES));
        // SAFETY: the address is the mapping's: where no page is mapped, the fault maps one or the kernel stops.
        unsafe { ((self.shared.base.as_usize() + offset) as *const u64).read_volatile() }
    }

    fn store(&self, offset: usize, value: u64) {
        assert!(offset + WORD_BYTES <= WRITES_BYTES && offset.is_multiple_of(WORD_BYTES));
        // SAFETY: as above.
        unsafe { ((self.shared.base.as_usize() + offset) as *mut u64).write_volatile(value) };
    }

    fn fault(&self, page: usize, access: PageAccess) -> VfsResult<()> {
        self.shared.fault(page, access)
    }

    fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::Relaxed)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        *CURRENT.lock() = None;
        kernel_aspace()
            .lock_irqsave()
            .unmap(self.shared.base, WRITES_BYTES)
            .expect("a range of the kernel's");
        self.shared.file.remove_evict_listener(self.listener);
    }
}

impl Shared {
    fn fault(&self, page: usize, access: PageAccess) -> VfsResult<()> {
        self.faults.fetch_add(1, Ordering::Relaxed);
        let first = page / self.around * self.around;
        let around = pages(first, (first + self.around).min(PAGES));
        self.file.get_pages(PageIndex::new(page as u64), access, around, |found| self.map(found))
    }

    fn map(&self, found: &Page<'_, ArceOs>) {
        let mut space = kernel_aspace().lock_irqsave();
        let flags = match found.access() {
            None => return,
            Some(PageAccess::Read) => MappingFlags::READ,
            Some(PageAccess::Write) => MappingFlags::READ | MappingFlags::WRITE,
        };
        let at = place(self.base, found.index());
        let mapped = match space.mapping_flags(at) {
            Ok(known) if known.contains(flags) => Ok(()),
            Ok(_) => space.protect(at, PAGE_BYTES, flags),
            Err(_) => space.map_linear(at, virt_to_phys(found.address().into()), PAGE_BYTES, flags),
        };
        mapped.expect("a page of the mapping's range");
    }
}

/// The listener. Flushing is `ax-mm`'s, on all processors.
fn change(base: VirtAddr, event: PageEvent) {
    let mut space = kernel_aspace().lock_irqsave();
    let (PageEvent::Evict { page, .. } | PageEvent::WriteBack { page, .. }) = event;
    let at = place(base, page);
    if page.get() >= PAGES as u64 || space.mapping_flags(at).is_err() {
        return;
    }
    let changed = match event {
        PageEvent::WriteBack { .. } => space.protect(at, PAGE_BYTES, MappingFlags::READ),
        _ => space.unmap(at, PAGE_BYTES),
    };
    changed.expect("a page that is mapped");
}

/// What the trap calls, where the task may sleep.
fn on_fault(address: VirtAddr, flags: PageFaultFlags) -> bool {
    let Some(mapping) = CURRENT.lock().clone() else { return false };
    let access = if flags.contains(PageFaultFlags::WRITE) { PageAccess::Write } else { PageAccess::Read };
    let offset = address.as_usize().wrapping_sub(mapping.base.as_usize());
    offset < WRITES_BYTES && mapping.fault(offset / PAGE_BYTES, access).is_ok()
}

/// The one mapping that there is.
static CURRENT: Mutex<Option<Arc<Shared>>> = Mutex::new(None);

fn cache() -> VfsResult<Arc<PageCache<ArceOs>>> {
    let kernel = ArceOs::new(ax_hal::time::monotonic_time).with_memory(memory);
    PageCache::new(kernel, Settings::new(MEMORY_BYTES)).map_err(|_| VfsError::InvalidInput)
}

/// By what the global allocator has left.
fn memory() -> MemoryHint {
    match ax_alloc::global_allocator().available_bytes() {
        0..CRITICAL_BYTES => MemoryHint::Critical,
        CRITICAL_BYTES..LOW_BYTES => MemoryHint::Low,
        _ => MemoryHint::Plenty,
    }
}

/// Each page begins with a word of its own.
fn write_content() -> VfsResult<()> {
    let mut bytes = vec![0; WRITES_BYTES];
    for page in 0..PAGES {
        bytes[page * PAGE_BYTES..][..WORD_BYTES].copy_from_slice(&content(page).to_le_bytes());
    }
    let file = cache()?.open(VfsNode::new(node(WRITES_PATH)?))?;
    file.set_len(0)?;
    file.write_at(&bytes, 0)?;
    file.sync(SyncScope::All)
}

fn content(page: usize) -> u64 {
    word(seed("mapped"), page)
}

fn pages(start: usize, end: usize) -> PageRange {
    PageRange::new(PageIndex::new(start as u64), PageIndex::new(end as u64))
}

fn place(base: VirtAddr, page: PageIndex) -> VirtAddr {
    base + page.start_bytes() as usize
}

const PAGE_BYTES: usize = 4096;
const PAGES: usize = WRITES_BYTES / PAGE_BYTES;
const STORED_PAGES: usize = 64;
/// The file and as much again.
const MEMORY_BYTES: usize = 2 * WRITES_BYTES;
/// Far from where the kernel maps its stacks.
const REACH_BYTES: usize = 1 << 30;
const BALLAST_BYTES: usize = 1 << 20;
const LOW_BYTES: usize = 128 << 20;
const CRITICAL_BYTES: usize = 64 << 20;
