//! Address space: a file that is mapped, by page tables in software that follow the rules of a kernel's.
//!
//! ```text
//!   load, store ─► entry with that access? ─┬─ yes ─► the bytes, under the lock, as an instruction has them
//!                                           └─ no ──► fault ─► get_pages ─► entries, under the lock ─► again
//! ```
//!
//! Owns: the entries, the faults, the listener: all the unsafe code of mappings.
//! Does not own: what is loaded and stored.

#![expect(unsafe_code, reason = "a program accesses pages by their addresses")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axfs_ng_vfs::VfsResult;
use headwater_arceos::{ListenerId, Page, PageAccess, PageEvent, PageIndex, PageRange};

use crate::kernel::Host;
use crate::rig::File;

/// A mapping of a whole file.
pub(crate) struct Mapping {
    file: File,
    tables: Arc<Mutex<Tables>>,
    listener: ListenerId,
    /// Pages that a fault may map at once, aligned.
    around: u64,
    faults: AtomicU64,
}

#[derive(Default)]
struct Tables {
    entries: BTreeMap<u64, Entry>,
    /// Times that a page was write-protected.
    protected: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    address: usize,
    access: PageAccess,
}

impl Mapping {
    /// Without neighbours if `around` is 1.
    pub(crate) fn new(file: &File, around: u64) -> Self {
        let tables = Arc::new(Mutex::new(Tables::default()));
        let listener = file.add_evict_listener({
            let tables = tables.clone();
            move |event| tables.lock().unwrap().change(event)
        });
        Self { file: file.clone(), tables, listener, around, faults: AtomicU64::new(0) }
    }

    /// Fills `bytes` from `offset` on.
    pub(crate) fn load(&self, offset: u64, bytes: &mut [u8]) -> VfsResult<()> {
        for (offset, byte) in (offset..).zip(bytes) {
            self.at(offset, PageAccess::Read, |address| {
                // SAFETY: the page is mapped, and stays so while the lock is held: its memory is the page's.
                *byte = unsafe { (address as *const u8).read_volatile() };
            })?;
        }
        Ok(())
    }

    /// Stores `bytes` from `offset` on.
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) -> VfsResult<()> {
        for (offset, byte) in (offset..).zip(bytes) {
            self.at(offset, PageAccess::Write, |address| {
                // SAFETY: as above, and the page is mapped for storing: it is not being written to its file (V2).
                unsafe { (address as *mut u8).write_volatile(*byte) };
            })?;
        }
        Ok(())
    }

    /// One instruction, which faults until the page is mapped so that it may go on.
    fn at(&self, offset: u64, access: PageAccess, instruction: impl FnOnce(usize)) -> VfsResult<()> {
        let page = offset / 4096;
        loop {
            let tables = self.tables.lock().unwrap();
            if let Some(entry) = tables.entries.get(&page).filter(|entry| entry.access >= access) {
                instruction(entry.address + (offset % 4096) as usize);
                return Ok(());
            }
            drop(tables);
            self.fault(page, access)?;
        }
    }

    pub(crate) fn fault(&self, page: u64, access: PageAccess) -> VfsResult<()> {
        self.faults.fetch_add(1, Ordering::Relaxed);
        let first = page / self.around * self.around;
        let around = PageRange::new(PageIndex::new(first), PageIndex::new(first + self.around));
        self.file.get_pages(PageIndex::new(page), access, around, |found| self.map(found))
    }

    fn map(&self, found: &Page<'_, Host>) {
        let mut tables = self.tables.lock().unwrap();
        if let Some(access) = found.access() {
            tables.entries.insert(found.index().get(), Entry { address: found.address(), access });
        }
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Pages that are mapped, and those of them that can be stored to.
    pub(crate) fn pages(&self) -> (usize, usize) {
        let tables = self.tables.lock().unwrap();
        let writable = tables.entries.values().filter(|entry| entry.access == PageAccess::Write);
        (tables.entries.len(), writable.count())
    }

    /// Times that a page was write-protected.
    pub(crate) fn protected(&self) -> u64 {
        self.tables.lock().unwrap().protected
    }

    /// Asserts V1 and V2, while no other thread uses the file.
    pub(crate) fn check(&self) {
        let entries = self.tables.lock().unwrap().entries.clone();
        for (page, entry) in entries {
            self.file.with_page(PageIndex::new(page), |found| {
                let found = found.unwrap_or_else(|| panic!("V1: page {page} is mapped, and has left"));
                assert_eq!(found.address(), entry.address, "V1: page {page} is mapped elsewhere");
                assert!(
                    found.access() >= Some(entry.access),
                    "V2: page {page} is not dirty, and can be stored to"
                );
            });
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.file.remove_evict_listener(self.listener);
    }
}

impl Tables {
    fn change(&mut self, event: PageEvent) {
        match event {
            PageEvent::Evict { page, address } => {
                // Else the page has come back in other memory meanwhile.
                if self.entries.get(&page.get()).is_some_and(|entry| entry.address == address) {
                    self.entries.remove(&page.get());
                }
            }
            PageEvent::WriteBack { page, .. } => {
                if let Some(entry) = self.entries.get_mut(&page.get()) {
                    self.protected += u64::from(entry.access == PageAccess::Write);
                    entry.access = PageAccess::Read;
                }
            }
        }
    }
}
