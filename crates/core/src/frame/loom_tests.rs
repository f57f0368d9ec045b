//! Loom tests: a frame and the bytes it guards, in every order in which threads can meet.
//!
//! The bytes are a cell in which loom finds any access that no order separates from another: an I/O that writes what a
//! reader still reads is found even where the value would come out right.
//!
//! `RUSTFLAGS="--cfg headwater_loom" cargo test -p headwater-core --release --lib loom` runs them.
//!
//! loom moves a thread only to where the last access to the same atomic was another thread's, so a load before one's own
//! compare-and-swap hides that another thread loaded earlier, and with it whole orders. Therefore every step of a model
//! begins with an access that collides with all others and orders nothing ([`Page::step`]).
//!
//! Owns: the page that all models are about, those of loading and leaving.
//! Does not own: those of writing (`writing`) and of offering (`offering`); calls one after another, which `tests/models/frame.rs` tries exhaustively.

mod offering;
mod writing;

use alloc::rc::Rc;

use loom::cell::Cell;
use loom::sync::Mutex;
use loom::sync::atomic::AtomicU32;
use loom::thread;

use super::*;

/// File and page, and what the bytes are then.
type Identity = (FileId, PageIndex, u32);

const A: Identity = (FileId::new(1), PageIndex::new(7), 17);
const OTHER_PAGE: Identity = (FileId::new(1), PageIndex::new(8), 18);
const OTHER_FILE: Identity = (FileId::new(2), PageIndex::new(7), 27);

/// What the allocator leaves in memory that it has back.
const GARBAGE: u32 = 0;

/// What only a writer may see.
const TORN: u32 = u32::MAX;

/// A frame with its memory; shared by count, as loom's threads take turns on one.
struct Page {
    frame: Frame,
    bytes: Cell<u32>,
    /// How often the memory went back to the allocator.
    given_back: Cell<u32>,
    steps: AtomicU32,
}

impl Page {
    fn free() -> Rc<Page> {
        Rc::new(Page {
            frame: Frame::new(),
            bytes: Cell::new(GARBAGE),
            given_back: Cell::new(0),
            steps: AtomicU32::new(0),
        })
    }

    fn loading(kind: LoadKind) -> Rc<Page> {
        let page = Page::free();
        page.begin(A, kind);
        page
    }

    fn resident() -> Rc<Page> {
        let page = Page::free();
        page.load(A);
        page
    }

    /// Another thread may do something first.
    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Written before, and not in its file.
    fn dirty() -> Rc<Page> {
        let page = Page::free();
        page.install(A.2);
        page
    }

    fn install(&self, contents: u32) {
        self.bytes.set(contents);
        self.step();
        self.frame.install(A.0, A.1);
    }

    fn begin(&self, (file, index, _): Identity, kind: LoadKind) {
        self.step();
        self.frame.begin_load(file, index, LoadId::new(0), kind);
    }

    fn load(&self, identity: Identity) {
        self.begin(identity, LoadKind::Demand);
        self.complete(identity);
    }

    fn complete(&self, identity: Identity) {
        self.bytes.set(identity.2);
        self.step();
        assert_eq!(self.frame.complete_load(), Ended::Current);
    }

    fn pin(&self, (file, index, _): Identity) -> Pin {
        self.step();
        self.frame.pin(file, index, 0, 0)
    }

    /// Pins, reads what must be there, unpins, and gives the memory back if that is left to do.
    fn read(&self, identity: Identity) -> Pin {
        let pin = self.pin(identity);
        if let Pin::Pinned(_) = pin {
            assert_eq!(self.bytes.get(), identity.2, "another page's bytes");
            self.step();
            if self.frame.unpin() == Unpinned::Freed {
                self.give_back();
            }
        }
        pin
    }

    /// Adds one to the bytes, if that can be done in place, with a moment in between at which they are neither.
    fn write(&self) -> WriteLatch {
        self.step();
        let latch = self.frame.begin_write(A.0, A.1, 0, 4096);
        if let WriteLatch::Latched(_) = latch {
            let written = self.bytes.get() + 1;
            self.bytes.set(TORN);
            self.step();
            self.bytes.set(written);
            self.frame.end_write();
        }
        latch
    }

    /// Pins, looks twice, unpins; what it saw.
    fn look(&self) -> Option<u32> {
        let pin = self.pin(A);
        assert!(!matches!(pin, Pin::Pending(_)));
        is_pinned(pin).then(|| {
            let seen = self.bytes.get();
            self.step();
            assert_eq!(self.bytes.get(), seen, "I1: it changed while it was pinned");
            if self.frame.unpin() == Unpinned::Freed {
                self.give_back();
            }
            seen
        })
    }

    /// Writes the page to a device, if it is dirty: what the device has then.
    fn write_back(&self) -> Option<u32> {
        self.step();
        (self.frame.hold(A.0, A.1) == Held::Yes).then(|| {
            let written = self.bytes.get();
            self.step();
            self.frame.clean();
            self.step();
            if self.frame.unpin() == Unpinned::Freed {
                self.give_back();
            }
            written
        })
    }

    fn give_back(&self) {
        self.bytes.set(GARBAGE);
        self.given_back.set(self.given_back.get() + 1);
    }

    fn evict(&self) -> bool {
        self.step();
        let evicted = self.frame.evict().is_some();
        if evicted {
            self.give_back();
        }
        evicted
    }

    fn invalidate(&self) -> Invalidated {
        self.step();
        let (became, _) = self.frame.invalidate();
        if became == Invalidated::Freed {
            self.give_back();
        }
        became
    }

    fn check(&self, state: FrameState, given_back: u32) {
        self.frame.check();
        assert_eq!((self.frame.state(), self.frame.pins()), (state, 0));
        assert_eq!(self.given_back.get(), given_back);
    }
}

/// Does something with the page in another thread.
fn spawn<T: 'static>(page: &Rc<Page>, work: impl FnOnce(&Page) -> T + 'static) -> thread::JoinHandle<T> {
    let page = page.clone();
    thread::spawn(move || work(&page))
}

fn is_latched(latch: WriteLatch) -> bool {
    matches!(latch, WriteLatch::Latched(_))
}

fn is_pinned(pin: Pin) -> bool {
    matches!(pin, Pin::Pinned(_))
}

/// For models with many steps: all orders in which threads are interrupted at most three times, within seconds.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Goal: a reader with a pin reads that page's bytes, though the frame gets another page meanwhile, of the same
/// file or at the same place of another.
#[test]
fn loom_pin_against_evict_and_reload() {
    for next in [OTHER_PAGE, OTHER_FILE] {
        for asked in [A, next] {
            loom::model(move || {
                let page = Page::resident();
                let control = spawn(&page, move |page| {
                    let evicted = page.evict();
                    if evicted {
                        page.load(next);
                    }
                    evicted
                });
                let pin = page.read(asked);
                assert!(asked != A || !matches!(pin, Pin::Pending(_)), "F2: a load that is another page's");
                let evicted = control.join().unwrap();
                page.check(FrameState::Resident, u32::from(evicted));
                assert!(is_pinned(page.read(if evicted { next } else { A })));
            });
        }
    }
}

/// Goal: F3. A reader is not fooled by a frame that looks as it did when it looked first, but has been through another
/// page.
#[test]
fn loom_pin_against_two_reloads() {
    for asked in [A, OTHER_PAGE] {
        explore(move || {
            let page = Page::resident();
            let control = spawn(&page, |page| {
                for next in [OTHER_PAGE, A] {
                    if page.evict() {
                        page.load(next);
                    }
                }
            });
            page.read(asked);
            control.join().unwrap();
            page.frame.check();
            assert_eq!((page.frame.state(), page.frame.pins()), (FrameState::Resident, 0));
        });
    }
}

/// Goal: the memory of an invalidated page goes back once, after its last reader. Method: two readers, of which either
/// may be the last, or none.
#[test]
fn loom_unpin_against_invalidate() {
    explore(|| {
        let page = Page::resident();
        let readers = [(); 2].map(|()| spawn(&page, |page| page.read(A)));
        let became = page.invalidate();
        assert_eq!(page.pin(A), Pin::Absent);
        let pins = readers.map(|reader| reader.join().unwrap());
        assert!(became == Invalidated::Freed || pins.into_iter().any(is_pinned), "doomed without a reader");
        page.check(FrameState::Free, 1);
    });
}

/// Goal: a page is evicted only between its readers, and stays if not. Method: two readers and an evictor.
#[test]
fn loom_two_readers_against_evict() {
    explore(|| {
        let page = Page::resident();
        let readers = [(); 2].map(|()| spawn(&page, |page| page.read(A)));
        let evicted = page.evict();
        let pins = readers.map(|reader| reader.join().unwrap());
        match evicted {
            true => page.check(FrameState::Free, 1),
            false => {
                assert!(pins.into_iter().all(is_pinned), "a page that stays is there for all");
                page.check(FrameState::Resident, 0);
            }
        }
    });
}

/// Goal: a reader that looks on while a load completes sees all of the bytes, or that it is to wait.
#[test]
fn loom_pin_against_complete_load() {
    loom::model(|| {
        let page = Page::loading(LoadKind::Demand);
        let io = spawn(&page, |page| page.complete(A));
        assert_eq!(page.pin(OTHER_PAGE), Pin::Absent);
        assert_ne!(page.read(A), Pin::Absent);
        io.join().unwrap();
        assert!(is_pinned(page.read(A)));
        page.check(FrameState::Resident, 0);
    });
}

/// Goal: a page that is invalidated while it is loaded or just after gives its memory back once, and no reader gets it
/// afterwards. Method: the I/O and the invalidation take the control lock, a reader does not.
#[test]
fn loom_invalidate_against_complete_load_and_pin() {
    loom::model(|| {
        let page = Page::loading(LoadKind::Demand);
        let control = Rc::new(Mutex::new(()));
        let io_control = control.clone();
        let io = spawn(&page, move |page| {
            page.bytes.set(A.2);
            let _control = io_control.lock().unwrap();
            if page.frame.complete_load() == Ended::Stale {
                page.give_back();
            }
        });
        let reader = spawn(&page, |page| page.read(A));
        {
            let _control = control.lock().unwrap();
            page.invalidate();
        }
        assert_eq!(page.pin(A), Pin::Absent);
        io.join().unwrap();
        reader.join().unwrap();
        page.check(FrameState::Free, 1);
    });
}

/// Goal: no reference is lost or counted twice, and no pin, when references are taken meanwhile.
#[test]
fn loom_take_references_against_pin() {
    explore(|| {
        let page = Page::resident();
        let readers = [(); 2].map(|()| spawn(&page, |page| page.read(A)));
        page.step();
        let taken = page.frame.take_references();
        assert!(readers.map(|reader| reader.join().unwrap()).into_iter().all(is_pinned));
        // The first use is what the page was loaded for.
        assert_eq!(taken + page.frame.take_references(), 1);
        page.check(FrameState::Resident, 0);
    });
}

/// Goal: setting the count neither loses a pin nor takes references away that came later.
#[test]
fn loom_set_references_against_pin() {
    loom::model(|| {
        let page = Page::resident();
        let reader = spawn(&page, |page| {
            assert!(is_pinned(page.pin(A)));
            page.frame.pins()
        });
        page.step();
        page.frame.set_references(1);
        assert_eq!(reader.join().unwrap(), 1);
        assert!((1..=2).contains(&page.frame.take_references()));
        assert_eq!(page.frame.unpin(), Unpinned::Kept);
        page.check(FrameState::Resident, 0);
    });
}

/// Goal: that a page was read ahead, and that its use is to be reported, is reported once: to a reader that waits for it or to
/// its first user.
#[test]
fn loom_demand_against_complete_load() {
    loom::model(|| {
        let page = Page::loading(LoadKind::Ahead);
        page.frame.mark();
        let io = spawn(&page, |page| {
            page.complete(A);
            page.read(A)
        });
        page.step();
        let demanded = page.frame.demand();
        let Pin::Pinned(used) = io.join().unwrap() else { panic!("resident, and nobody evicts") };
        let once = [(FirstUse::AheadMarked, FirstUse::No), (FirstUse::No, FirstUse::AheadMarked)];
        assert!(once.contains(&(demanded, used)), "{demanded:?} {used:?}");
        assert_eq!(page.frame.usage(), Usage::Used);
        page.check(FrameState::Resident, 0);
    });
}

/// Goal: a mark is reported once, whatever the load and the first reader do meanwhile.
#[test]
fn loom_mark_against_complete_load() {
    loom::model(|| {
        let page = Page::loading(LoadKind::Demand);
        let io = spawn(&page, |page| {
            page.complete(A);
            page.read(A)
        });
        page.step();
        page.frame.mark();
        let Pin::Pinned(used) = io.join().unwrap() else { panic!("resident, and nobody evicts") };
        let Pin::Pinned(later) = page.read(A) else { panic!("resident, and nobody evicts") };
        assert!(used.is_marked() != later.is_marked(), "{used:?} {later:?}");
        page.check(FrameState::Resident, 0);
    });
}
