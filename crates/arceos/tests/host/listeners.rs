//! Listeners: who has pages mapped hears of them before their memory holds something else.
//!
//! Owns: events of pages that leave, are replaced, or are written.
//! Does not own: the mappings, which only a kernel has: here they are addresses in a map.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use headwater_arceos::{PageEvent, PageIndex, ReadaheadPolicy, SyncScope};
use headwater_testkit::{Rng, watched, with_seed};

use crate::node::{Kind, Moment};
use crate::rig::{File, Rig, SMALL_BYTES, pattern, read};

/// What is mapped: where, and which page of which file.
#[derive(Clone, Default)]
struct Mappings(Arc<Mutex<BTreeMap<usize, (usize, u64)>>>);

impl Mappings {
    fn listen(&self, number: usize, file: &File) {
        let mappings = self.clone();
        file.add_evict_listener(move |event| {
            if let PageEvent::Evict { page, address } = event {
                let mut mapped = mappings.0.lock().unwrap();
                if mapped.get(&address) == Some(&(number, page.get())) {
                    mapped.remove(&address);
                }
            }
        });
    }

    /// Maps a page; fails if its memory is another page's still.
    fn map(&self, number: usize, file: &File, page: u64) {
        let _ = file.with_page_or_insert(PageIndex::new(page), |found| {
            let before = self.0.lock().unwrap().insert(found.address(), (number, page));
            assert!(
                before.is_none_or(|before| before == (number, page)),
                "page {page} of file {number} has the memory of {before:?}, which nobody was told has left"
            );
        });
    }

    fn of(&self, number: usize) -> usize {
        self.0.lock().unwrap().values().filter(|(file, _)| *file == number).count()
    }
}

/// Goal: no memory is used again before whoever has its page mapped was told: evicted, cut off, overwritten or discarded.
#[test]
#[cfg_attr(miri, ignore)]
fn every_page_that_leaves_is_told() {
    with_seed("listeners::every_page_that_leaves_is_told", |seed| {
        let (rig, mut rng, mappings) = (Rig::small(1), Rng::new(seed), Mappings::default());
        let files: Vec<_> = (0..3).map(|_| rig.patterned(400)).collect();
        files.iter().enumerate().for_each(|(number, (_, file))| mappings.listen(number, file));
        for _ in 0..6000 {
            let number = rng.below(3) as usize;
            let (file, page) = (&files[number].1, rng.below(400));
            match rng.below(100) {
                0 => file.set_len(page * 4096 + rng.below(4096)).unwrap(),
                1 => file.set_len(400 * 4096).unwrap(),
                2 => file.discard(),
                3..10 => drop(file.write_at(&vec![3; rng.below(20_000) as usize], page * 4096)),
                10..13 => drop(file.sync(SyncScope::Data)),
                _ => mappings.map(number, file, page),
            }
        }
        drop(files);
        rig.cache.sync().unwrap();
        // A load that is over may have the last handle.
        rig.stop();
        assert_eq!(mappings.0.lock().unwrap().len(), 0, "pages are mapped that have left");
        rig.assert_empty();
    });
}

/// Goal: a page that is pinned as it is cut off keeps its memory until listeners have returned, even if the pin goes first.
#[test]
#[cfg_attr(miri, ignore)]
fn memory_waits_for_listeners_after_the_last_pin() {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (_, file) = rig.patterned(1);
    let (_, other) = rig.patterned(600);
    let (told, is_unpinned, is_over) = flags();
    let listener = (told.clone(), is_over.clone());
    file.add_evict_listener(move |_| {
        listener.0.store(true, Ordering::Release);
        crate::rig::until(|| listener.1.load(Ordering::Acquire));
    });
    watched("a listener that takes long", || {
        std::thread::scope(|scope| {
            let mut address = 0;
            let truncating = file
                .with_page_or_insert(PageIndex::new(0), |page| {
                    address = page.address();
                    let truncating = scope.spawn(|| file.set_len(0).unwrap());
                    crate::rig::until(|| told.load(Ordering::Acquire));
                    truncating
                })
                .unwrap();
            is_unpinned.store(true, Ordering::Release);
            let reused = (0..600).any(|page| {
                other.with_page_or_insert(PageIndex::new(page), |page| page.address() == address).unwrap()
            });
            is_over.store(true, Ordering::Release);
            truncating.join().unwrap();
            assert!(!reused, "the memory holds another page while the listener runs");
        });
    });
    drop((file, other));
    rig.assert_empty();
}

fn flags() -> (Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>) {
    (Arc::default(), Arc::default(), Arc::default())
}

/// Goal: a write of a whole page tells of the page that it replaces, which came while the write looked for memory.
#[test]
#[cfg_attr(miri, ignore)]
fn a_page_that_is_overwritten_is_told() {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (_, file) = rig.patterned(2);
    let (_, victim) = rig.patterned(512);
    let mappings = Mappings::default();
    mappings.listen(0, &file);
    // Its pages leave as the writer looks for memory: then another maps the page.
    let (reader, mapped) = (file.clone(), mappings.clone());
    let is_first = AtomicBool::new(true);
    let id = victim.add_evict_listener(move |_| {
        if is_first.swap(false, Ordering::AcqRel) {
            mapped.map(0, &reader, 1);
        }
    });
    let _ = read(&victim, 0, 512 * 4096);
    file.write_at(&[5; 4096], 4096).unwrap();
    assert_eq!(mappings.of(0), 0, "the mapping shows what was there before the write");
    assert_eq!(read(&file, 4096, 4096), [5; 4096]);
    victim.remove_evict_listener(id);
    drop((file, victim));
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: a write to a page that may be mapped, and that a reader has pinned, waits for the reader, and then is done where
/// the page lies.
#[test]
fn a_write_waits_for_who_has_the_page_pinned() {
    let rig = Rig::small(0);
    let (_, file) = rig.patterned(1);
    let mappings = Mappings::default();
    mappings.listen(0, &file);
    mappings.map(0, &file, 0);
    watched("a write to a page that is pinned", || {
        std::thread::scope(|scope| {
            let writer = file
                .with_page_or_insert(PageIndex::new(0), |page| {
                    let writer = scope.spawn(|| file.write_at(&[9; 100], 50));
                    // Twice, so that it has looked again.
                    crate::rig::until(|| {
                        rig.dials.yields.load(Ordering::Acquire) > 1 || writer.is_finished()
                    });
                    assert!(!writer.is_finished(), "a write does not wait for the pin");
                    assert_eq!(page[..], pattern(1));
                    writer
                })
                .unwrap();
            assert_eq!(writer.join().unwrap(), Ok(100));
        });
    });
    assert_eq!(mappings.of(0), 1, "the page has left");
    assert_eq!(read(&file, 50, 100), [9; 100]);
    drop(file);
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: a page that goes to its file is told before its bytes are taken; who stores to it then marks it dirty again.
#[test]
fn writeback_is_told_before_bytes_are_taken() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(8);
    let told = Arc::new(Mutex::new(Vec::new()));
    let (listener, watched_node) = (told.clone(), node.clone());
    let id = file.add_evict_listener(move |event| {
        let PageEvent::WriteBack { page, .. } = event else { panic!("{event:?}") };
        assert_eq!(watched_node.calls(Kind::Write), [], "the bytes are taken before page {page:?} is told");
        listener.lock().unwrap().push(page.get());
    });
    // By one read, so that they lie together and are written by one call.
    let _ = read(&file, 0, 8 * 4096);
    for page in [2, 3, 4] {
        file.mark_dirty(PageIndex::new(page)).unwrap();
    }
    file.sync(SyncScope::Data).unwrap();
    assert_eq!(*told.lock().unwrap(), [2, 3, 4]);
    assert_eq!(node.calls(Kind::Write).len(), 1);
    file.remove_evict_listener(id);
    drop(file);
    assert_eq!(told.lock().unwrap().len(), 3, "a listener that was taken back is told");
    rig.assert_empty();
}

/// Goal: a page that is marked dirty while it is being written is written once more.
#[test]
fn a_page_that_changes_while_it_is_written_is_written_again() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(1);
    file.add_evict_listener(|_| ());
    file.mark_dirty(PageIndex::new(0)).unwrap();
    let gate = node.gate(Kind::Write, Moment::After, 0..4096);
    watched("a page that changes while it is written", || {
        std::thread::scope(|scope| {
            let syncer = scope.spawn(|| file.sync(SyncScope::Data));
            gate.await_arrivals(1);
            let marker = scope.spawn(|| file.mark_dirty(PageIndex::new(0)));
            gate.open();
            assert_eq!((syncer.join().unwrap(), marker.join().unwrap()), (Ok(()), Ok(())));
        });
    });
    assert_eq!(rig.stats().dirty_pages, 1);
    file.sync(SyncScope::Data).unwrap();
    assert_eq!((node.calls(Kind::Write).len(), rig.stats().dirty_pages), (2, 0));
    drop(file);
    rig.assert_empty();
}
