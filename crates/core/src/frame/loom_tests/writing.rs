//! Writing under loom: writers of a page against readers, optimistic readers, other writers, writes to its file, and what takes it out.
//!
//! Owns: the models of what is written.
//! Does not own: the page they share, and how a model is explored.

use super::*;

/// Goal: I1: whoever has pinned a page sees all of a write or nothing, and no change; a write is refused only where a pin
/// is. Method: a page that is clean, and one that is dirty.
#[test]
fn loom_pin_against_write() {
    for make in [Page::resident, Page::dirty] {
        loom::model(move || {
            let page = make();
            let writer = spawn(&page, Page::write);
            let seen = page.look();
            let latch = writer.join().unwrap();
            assert!(seen.is_none_or(|seen| seen == A.2 || seen == A.2 + 1 && is_latched(latch)));
            assert!(is_latched(latch) || latch == WriteLatch::Pinned && seen.is_some(), "{latch:?} {seen:?}");
            page.frame.check();
            assert_eq!(page.look(), Some(A.2 + u32::from(is_latched(latch))));
        });
    }
}

/// Goal: F5: of two writers one is at it; no change is lost.
#[test]
fn loom_two_writers() {
    explore(|| {
        let page = Page::resident();
        let writer = spawn(&page, Page::write);
        let latches = [page.write(), writer.join().unwrap()];
        let written = latches.iter().filter(|latch| is_latched(**latch)).count() as u32;
        assert!(latches.iter().all(|latch| is_latched(*latch) || *latch == WriteLatch::Busy) && written > 0);
        assert_eq!(page.look(), Some(A.2 + written));
        page.check(FrameState::Dirty, 0);
    });
}

/// Goal: what fails, and what is called for at any moment by readahead and replacement, neither loses a write nor a pin.
/// Method: references, mark and demand against a write.
#[test]
fn loom_notes_against_write() {
    explore(|| {
        let page = Page::resident();
        let writer = spawn(&page, Page::write);
        page.step();
        page.frame.mark();
        page.step();
        page.frame.set_references(2);
        page.step();
        page.frame.take_references();
        assert!(is_latched(writer.join().unwrap()));
        let Pin::Pinned(used) = page.pin(A) else { panic!("dirty, and nobody writes") };
        assert!(used.is_marked(), "a write does not take the mark away");
        page.frame.unpin();
        page.check(FrameState::Dirty, 0);
    });
}

/// A page that can be read optimistically, and two words of it that are read and written as memory is that others may look at.
struct ReadPage {
    frame: Frame,
    words: [AtomicU32; 2],
}

impl ReadPage {
    fn new() -> Rc<ReadPage> {
        let page = ReadPage { frame: Frame::new(), words: [AtomicU32::new(A.2), AtomicU32::new(A.2)] };
        page.frame.install(A.0, A.1);
        page.frame.set_references(REFERENCES_MAX);
        Rc::new(page)
    }

    fn store(&self, contents: u32) {
        self.words.iter().for_each(|word| word.store(contents, Ordering::Relaxed));
    }

    /// What was seen, if nothing has changed.
    fn read(&self) -> Option<u32> {
        let version = self.frame.begin_optimistic_read(A.0, A.1)?;
        let [first, second] = [0, 1].map(|place: usize| self.words[place].load(Ordering::Relaxed));
        self.frame.is_unchanged(version).then(|| {
            assert_eq!(first, second, "an optimistic read of half of a write");
            first
        })
    }
}

/// Goal: an optimistic read that finds the page unchanged has seen no byte of a write that overlapped. Method: two writes in place,
/// which leave the state as it was.
#[test]
fn loom_optimistic_read_against_write() {
    explore(|| {
        let page = ReadPage::new();
        let written = page.clone();
        let writer = thread::spawn(move || {
            for contents in [A.2 + 1, A.2 + 2] {
                assert!(is_latched(written.frame.begin_write(A.0, A.1, 0, 4096)));
                written.store(contents);
                written.frame.end_write();
            }
        });
        let seen = page.read();
        assert!(seen.is_none_or(|seen| (A.2..=A.2 + 2).contains(&seen)), "{seen:?}");
        writer.join().unwrap();
        assert_eq!(page.read(), Some(A.2 + 2));
    });
}

/// Goal: the same where the page leaves, and its memory gets another that is written before it is there. Method: as the
/// owner of memory stores into it: after a fence.
#[test]
fn loom_optimistic_read_against_reuse() {
    explore(|| {
        let page = ReadPage::new();
        let reused = page.clone();
        let writer = thread::spawn(move || {
            reused.frame.invalidate();
            fence(Ordering::Release);
            reused.store(OTHER_PAGE.2);
            reused.frame.install(OTHER_PAGE.0, OTHER_PAGE.1);
            reused.frame.set_references(REFERENCES_MAX);
        });
        assert!(page.read().is_none_or(|seen| seen == A.2));
        writer.join().unwrap();
        assert_eq!(page.read(), None);
    });
}

/// Goal: F6: a page that is clean is on the device as it is. Method: one writes back, one writes in place.
#[test]
fn loom_clean_against_write() {
    loom::model(|| {
        let page = Page::dirty();
        let writer = spawn(&page, Page::write);
        let device = page.write_back();
        let latch = writer.join().unwrap();
        assert!(is_latched(latch) || latch == WriteLatch::Pinned && device.is_some());
        let is_clean = page.frame.state() == FrameState::Resident;
        let contents = page.look().unwrap();
        assert_eq!(contents, A.2 + u32::from(is_latched(latch)));
        assert_eq!(is_clean, device == Some(contents), "{device:?} of {contents}");
        page.frame.check();
    });
}

/// Goal: the same with a reader in between, so that the writer may find a pin that is not the write's.
#[test]
fn loom_clean_against_write_and_pin() {
    explore(|| {
        let page = Page::dirty();
        let (writer, reader) = (spawn(&page, Page::write), spawn(&page, Page::look));
        let device = page.write_back();
        let (latch, seen) = (writer.join().unwrap(), reader.join().unwrap());
        assert!(is_latched(latch) || latch == WriteLatch::Pinned);
        let is_clean = page.frame.state() == FrameState::Resident;
        let contents = page.look().unwrap();
        assert!(seen.is_none_or(|seen| (A.2..=contents).contains(&seen)));
        assert_eq!(is_clean, device == Some(contents), "{device:?} of {contents}");
    });
}

/// Goal: what is invalidated while it is written goes back once, after the writer; who comes later finds nothing.
#[test]
fn loom_invalidate_against_write() {
    for make in [Page::resident, Page::dirty] {
        explore(move || {
            let page = make();
            let writer = spawn(&page, Page::write);
            assert_eq!(page.invalidate(), Invalidated::Freed);
            let latch = writer.join().unwrap();
            assert!(is_latched(latch) || latch == WriteLatch::Absent, "{latch:?}");
            assert_eq!(page.write(), WriteLatch::Absent);
            page.check(FrameState::Free, 1);
        });
    }
}

/// Goal: what spares dirty pages takes a clean one away, or leaves it with all that was written; nothing in between.
#[test]
fn loom_invalidate_clean_against_write() {
    loom::model(|| {
        let page = Page::resident();
        let writer = spawn(&page, Page::write);
        page.step();
        let left = page.frame.invalidate_clean();
        if left.is_some() {
            page.give_back();
        }
        let latch = writer.join().unwrap();
        match left {
            Some((became, _)) => {
                assert_eq!((became, latch), (Invalidated::Freed, WriteLatch::Absent));
                page.check(FrameState::Free, 1);
            }
            None => {
                assert!(is_latched(latch), "{latch:?}");
                assert_eq!(page.look(), Some(A.2 + 1));
                page.check(FrameState::Dirty, 0);
            }
        }
    });
}

/// Goal: the same against a write to the device: a page that is spared is dirty, one that goes is on the device.
#[test]
fn loom_invalidate_clean_against_clean() {
    explore(|| {
        let page = Page::dirty();
        let device = spawn(&page, Page::write_back);
        page.step();
        let left = page.frame.invalidate_clean().map(|(became, _)| became);
        if left == Some(Invalidated::Freed) {
            page.give_back();
        }
        assert_eq!(device.join().unwrap(), Some(A.2));
        match left {
            Some(_) => page.check(FrameState::Free, 1),
            None => page.check(FrameState::Resident, 0),
        }
    });
}

/// Goal: a page is evicted or written to, and stays in the latter case. Method: a writer and an evictor.
#[test]
fn loom_evict_against_write() {
    loom::model(|| {
        let page = Page::resident();
        let writer = spawn(&page, Page::write);
        let evicted = page.evict();
        let latch = writer.join().unwrap();
        assert_eq!(latch == WriteLatch::Absent, evicted, "{latch:?}");
        match evicted {
            true => page.check(FrameState::Free, 1),
            false => page.check(FrameState::Dirty, 0),
        }
    });
}

/// Goal: a page that is replaced while it is pinned keeps its old bytes until its last reader is gone, who gives its memory
/// back, once; the new one has the change. Method: two readers, and a writer as the file's.
#[test]
fn loom_unpin_against_install() {
    explore(|| {
        let (old, new) = (Page::resident(), Page::free());
        let readers = [(); 2].map(|()| spawn(&old, Page::look));
        let is_pinned = old.pin(A);
        assert!(matches!(is_pinned, Pin::Pinned(_)));
        assert_eq!(old.write(), WriteLatch::Pinned);
        new.install(old.bytes.get() + 1);
        old.invalidate();
        old.step();
        if old.frame.unpin() == Unpinned::Freed {
            old.give_back();
        }
        for reader in readers {
            assert!(reader.join().unwrap().is_none_or(|seen| seen == A.2));
        }
        assert_eq!((old.look(), new.look()), (None, Some(A.2 + 1)));
        old.check(FrameState::Free, 1);
        new.check(FrameState::Dirty, 0);
    });
}
