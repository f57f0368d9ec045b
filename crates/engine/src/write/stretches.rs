//! Stretches: by which way the bytes of each 2 MiB of a file go to its device, so that the two ways do not meet.
//!
//! ```text
//!   a run ─► its stretch is claimed, or a buffered write is in flight there? ─► buffered : as it would
//!                 └─ buffered, and a direct write is in flight there? ─► left dirty; what waits for it claims the stretch, waits, begins again
//!   bytes that pass by the pages ─► claim ─► wait for direct writes there ─► the kernel's page cache ─► claim dropped
//! ```
//!
//! A direct write ends with an invalidation of the kernel's pages in its range, and the kernel fails the next sync of the file with
//! `EIO` if one of them is dirty (`kiocb_invalidate_post_direct_write`). It looks at folios, which may have pages beside the range: a
//! buffered write to one of these is enough.
//!
//! Direct writes wait for nothing here, and buffered ones only for direct ones that began before. A claim keeps new direct writes
//! away, so such a wait ends. Buffered writes pass each other.
//!
//! Owns: which way a write may take, what a buffered one waits for.
//! Does not own: the writes in flight and the claims (inode), which way a write would take (writeback).
//! Invariants: I11.
//! Locks: `dirty.state`, for each look; not held while waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_core::units::{PAGE_SIZE_BYTES, PageIndex, PageRange};
use headwater_io::Route;

use crate::engine::Shared;
use crate::inode::dirty::State;
use crate::inode::page_write::PageWrite;
use crate::inode::{ALL_PAGES, Inode};

/// The ways of a file's stretches, while its state is locked.
pub(crate) struct Stretches {
    in_flight: BTreeMap<PageIndex, Route>,
    claims: Vec<PageRange>,
}

/// Stretches in which no direct write begins, until this is dropped.
pub(crate) struct Claims<'a> {
    shared: &'a Shared,
    inode: &'a Inode,
    pages: Vec<PageRange>,
}

impl Stretches {
    pub(crate) fn of(inode: &Inode, state: &State) -> Stretches {
        let mut stretches = Stretches { in_flight: BTreeMap::new(), claims: state.claims.clone() };
        for write in state.in_flight.values() {
            let other = stretches.in_flight.insert(stretch_of(write.pages()).start, write.route());
            debug_assert!(other.is_none_or(|other| other == write.route()), "I11: two ways in one stretch");
        }
        if inode.dirty.windows.stray().is_some() {
            // The flush that claimed a part of the file for it was dropped.
            stretches.claims.push(ALL_PAGES);
        }
        stretches
    }

    /// The way that a write of pages of one stretch takes, which would take `wanted`. `None` if it has to wait.
    pub(crate) fn way(&self, pages: PageRange, wanted: Route) -> Option<Route> {
        let stretch = stretch_of(pages);
        let in_flight = self.in_flight.get(&stretch.start).copied();
        let is_claimed = self.claims.iter().any(|claimed| claimed.meets(stretch));
        let route = if is_claimed || in_flight == Some(Route::Buffered) { Route::Buffered } else { wanted };
        (route == Route::Direct || in_flight != Some(Route::Direct)).then_some(route)
    }

    /// Writes of these pages begin.
    pub(crate) fn note(&mut self, pages: PageRange, route: Route) {
        self.in_flight.insert(stretch_of(pages).start, route);
    }
}

impl<'a> Claims<'a> {
    pub(crate) fn new(shared: &'a Shared, inode: &'a Inode) -> Claims<'a> {
        Claims { shared, inode, pages: Vec::new() }
    }

    /// Claims the stretches of pages.
    pub(crate) fn add(&mut self, pages: &[PageRange]) {
        if pages.is_empty() {
            return;
        }
        let mut state = self.inode.dirty.lock();
        for &pages in pages {
            let stretch = stretch_of(pages);
            let claimed = PageRange::new(stretch.start, stretch.end.max(pages.end));
            if !self.pages.contains(&claimed) {
                self.pages.push(claimed);
                state.claims.push(claimed);
            }
        }
    }

    /// A direct write in flight in what is claimed.
    pub(crate) fn in_the_way(&self) -> Option<Arc<PageWrite>> {
        let state = self.inode.dirty.lock();
        let is_claimed = |write: &PageWrite| {
            let stretch = stretch_of(write.pages());
            self.pages.iter().any(|claimed| claimed.meets(stretch))
        };
        let mut direct = state.in_flight.values().filter(|write| write.route() == Route::Direct);
        direct.find(|write| is_claimed(write)).cloned()
    }

    /// Blocks until no direct write is in flight in what is claimed.
    pub(crate) fn wait(&self) {
        while let Some(write) = self.in_the_way() {
            self.shared.cache.writes.wait(&write);
        }
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever.
        if self.pages.is_empty() || self.shared.driver.is_forked() {
            return;
        }
        let mut state = self.inode.dirty.lock();
        for pages in &self.pages {
            let place = state.claims.iter().position(|claimed| claimed == pages);
            state.claims.swap_remove(place.expect("it was added, and is removed once"));
        }
    }
}

/// The stretch of the first of these pages.
pub(crate) fn stretch_of(pages: PageRange) -> PageRange {
    let start = pages.start.get() / STRETCH_PAGES * STRETCH_PAGES;
    PageRange::new(PageIndex::new(start), PageIndex::new(start + STRETCH_PAGES))
}

/// 2 MiB: the largest folio of the page cache of Linux on x86 and on arm64 with pages of 4 KiB (`MAX_PAGECACHE_ORDER`), which lies at a
/// multiple of its size.
const STRETCH_PAGES: u64 = (2 << 20) / PAGE_SIZE_BYTES;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use headwater_io::DriverKind;
    use headwater_testkit::{PATIENCE, make_cold, skip};

    use super::*;
    use crate::api::contents::Contents;
    use crate::write::writeback::{Awaited, Begun, begin, begin_all};
    use crate::{Caching, Engine, File, OpenOptions};

    const RUN: PageRange = PageRange { start: PageIndex::new(1), end: PageIndex::new(41) };
    const FIRST: PageRange = PageRange { start: PageIndex::new(0), end: PageIndex::new(1) };

    /// Goal: I11: beside a direct write in flight a part of a page stays dirty, and is written when that is over; in another stretch it
    /// does not wait; beside a claim whole pages go through the kernel's page cache. Method: writes of which nothing takes the
    /// results before the test does.
    #[test]
    fn two_ways_do_not_meet() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; 4 << 20]).unwrap();
        make_cold(&std::fs::File::open(&path).unwrap()).unwrap();
        let engine = Engine::builder().memory(16 << 20).driver(DriverKind::Threads).build().unwrap();
        let options = OpenOptions::new().engine(&engine).caching(Caching::On).write(true).clone();
        let file = options.open(&path).unwrap();
        assert!(file.view(0, 1).unwrap() == [1]);
        let Contents::Stored(source) = &file.contents else { panic!("it is a file") };
        let (shared, inode) = (&engine.shared, source.known().unwrap());
        let begin = |awaited| begin(shared, inode, ALL_PAGES, usize::MAX, awaited);
        let routes =
            || -> Vec<Route> { inode.dirty.lock().in_flight.values().map(|write| write.route()).collect() };
        if !write_directly(&file, || begin(Awaited::Yes), routes) {
            return skip("no direct write begins in this file");
        }
        file.write_all_at(b"part", 5).unwrap();
        file.write_all_at(b"part", 3 << 20).unwrap();
        let begun = begin(Awaited::Yes);
        assert_eq!((&begun.left[..], begun.pages), (&[FIRST][..], 1));
        assert_eq!(begin(Awaited::No).left, [FIRST]);
        assert!(routes().contains(&Route::Direct));
        begin_all(shared, inode, ALL_PAGES);
        assert!(inode.dirty.lock().dirty.first_in_part(ALL_PAGES).is_none());
        assert!(!routes().contains(&Route::Direct));
        file.sync_data().unwrap();
        let mut claims = Claims::new(shared, inode);
        claims.add(&[FIRST]);
        file.write_all_at(&[3; 40 << 12], RUN.start.start_bytes()).unwrap();
        assert!(begin(Awaited::Yes).left.is_empty());
        assert_eq!(routes(), [Route::Buffered]);
        drop(claims);
        file.sync_data().unwrap();
        assert!(inode.dirty.lock().claims.is_empty());
        let disk = std::fs::read(&path).unwrap();
        assert!(disk[4096..41 << 12].iter().all(|&byte| byte == 3));
        assert_eq!((&disk[5..9], &disk[3 << 20..][..4]), (&b"part"[..], &b"part"[..]));
    }

    /// Writes whole pages until they are in flight directly: others may be writing to a file that is watched since just now.
    fn write_directly(file: &File, begin: impl Fn() -> Begun, routes: impl Fn() -> Vec<Route>) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while file.is_direct() && Instant::now() < deadline {
            file.write_all_at(&[2; 40 << 12], RUN.start.start_bytes()).unwrap();
            let begun = begin();
            assert_eq!((begun.pages, begun.left.len()), (40, 0));
            if routes() == [Route::Direct] {
                return true;
            }
            file.sync_data().unwrap();
        }
        false
    }
}
