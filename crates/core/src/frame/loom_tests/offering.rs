//! Offering under loom: readers of a page on offer against the offerer, the evictor, another reader, and the kernel that takes it.
//!
//! The kernel is a thread that takes the page's memory if it may: what is on offer and was not written to since. Its own lock stands for
//! that of the page tables, by which a write and the kernel's taking exclude one another.
//!
//! Owns: the models of what is on offer.
//! Does not own: how a model is explored.

use super::super::offering::{Offer, OfferGate};
use super::*;

/// What the kernel knows of the page's memory.
#[derive(Clone, Copy)]
struct Memory {
    contents: u32,
    /// It may be taken.
    is_lazy: bool,
}

/// A page that can be offered, its sentinel, and the lock that changes of the cache are made under.
struct OfferedPage {
    frame: Frame,
    memory: Mutex<Memory>,
    gate: OfferGate,
    sentinel: AtomicU32,
    /// Whether the page is in its table.
    control: Mutex<bool>,
    given_back: AtomicU32,
    steps: AtomicU32,
}

impl OfferedPage {
    fn resident() -> Rc<OfferedPage> {
        let page = OfferedPage {
            frame: Frame::new(),
            memory: Mutex::new(Memory { contents: A.2, is_lazy: false }),
            gate: OfferGate::new(),
            sentinel: AtomicU32::new(0),
            control: Mutex::new(true),
            given_back: AtomicU32::new(0),
            steps: AtomicU32::new(0),
        };
        page.frame.begin_load(A.0, A.1, LoadId::new(0), LoadKind::Demand);
        page.frame.complete_load();
        Rc::new(page)
    }

    fn offered() -> Rc<OfferedPage> {
        let page = OfferedPage::resident();
        assert!(page.offer());
        page
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    fn unpin(&self) {
        if self.frame.unpin() == Unpinned::Freed {
            self.given_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// As the cache does; says whether the kernel was told.
    fn offer(&self) -> bool {
        let control = self.control.lock().unwrap();
        self.gate.close();
        self.step();
        let offer = self.frame.offer();
        if matches!(offer, Offer::Refused | Offer::Free) {
            self.gate.open();
            return false;
        }
        drop(control);
        if offer == Offer::New {
            self.sentinel.store(self.memory.lock().unwrap().contents, Ordering::Relaxed);
        }
        self.step();
        self.memory.lock().unwrap().is_lazy = true;
        let _control = self.control.lock().unwrap();
        self.gate.open();
        true
    }

    /// The kernel needs memory.
    fn take(&self) {
        let mut memory = self.memory.lock().unwrap();
        if memory.is_lazy {
            *memory = Memory { contents: GARBAGE, is_lazy: false };
        }
    }

    /// Writes the sentinel's word for itself.
    fn exchange(&self) -> Touch {
        let mut memory = self.memory.lock().unwrap();
        if memory.contents != self.sentinel.load(Ordering::Relaxed) {
            return Touch::Taken;
        }
        memory.is_lazy = false;
        Touch::Intact
    }

    /// A reader's way; what it read, or `None` for a miss.
    fn read(&self) -> Option<u32> {
        loop {
            self.step();
            match self.frame.pin(A.0, A.1, 0, 4096) {
                Pin::Pinned(_) => {
                    let seen = self.memory.lock().unwrap().contents;
                    self.step();
                    self.unpin();
                    return Some(seen);
                }
                Pin::Offered => self.touch(),
                Pin::Absent => return None,
                pin => panic!("{pin:?}"),
            }
        }
    }

    fn touch(&self) {
        self.step();
        if !self.frame.begin_touch() {
            return;
        }
        if !self.gate.is_open() {
            self.unpin();
            return thread::yield_now();
        }
        self.step();
        let touch = self.exchange();
        self.step();
        let mut is_in_table = self.control.lock().unwrap();
        match touch {
            Touch::Intact => {
                self.frame.withdraw();
            }
            Touch::Taken if self.frame.state() == FrameState::Offered => {
                assert!(self.frame.invalidate_clean().is_some() && *is_in_table);
                *is_in_table = false;
            }
            Touch::Taken => {}
        }
        drop(is_in_table);
        self.unpin();
    }

    fn evict(&self) -> bool {
        let mut is_in_table = self.control.lock().unwrap();
        self.step();
        let is_evicted = *is_in_table && self.frame.evict().is_some();
        if is_evicted {
            *is_in_table = false;
            self.given_back.fetch_add(1, Ordering::Relaxed);
        }
        is_evicted
    }

    /// Nothing is pinned, and memory went back exactly if the page is gone.
    fn check(&self) {
        self.frame.check();
        let (is_gone, given_back) =
            (self.frame.state() == FrameState::Free, self.given_back.load(Ordering::Relaxed));
        assert_eq!((self.frame.pins(), given_back), (0, u32::from(is_gone)));
        assert_eq!(*self.control.lock().unwrap(), !is_gone);
    }
}

fn spawn_with<T: 'static>(
    page: &Rc<OfferedPage>,
    work: impl FnOnce(&OfferedPage) -> T + 'static,
) -> thread::JoinHandle<T> {
    let page = page.clone();
    thread::spawn(move || work(&page))
}

/// What a reader may see: the page, or nothing.
fn is_right(seen: Option<u32>) -> bool {
    seen.is_none_or(|seen| seen == A.2)
}

/// Goal: a reader of a page on offer gets its bytes, or a miss if the kernel took it; never zeros. Once it was read the kernel does not
/// take it.
#[test]
fn loom_read_of_an_offer_against_the_kernel() {
    explore(|| {
        let page = OfferedPage::offered();
        let kernel = spawn_with(&page, OfferedPage::take);
        let seen = page.read();
        assert!(is_right(seen), "{seen:?}");
        kernel.join().unwrap();
        page.take();
        assert_eq!(page.read(), seen, "what was there stays, what was taken is gone");
        page.check();
    });
}

/// Goal: F8: a page that is being offered, for the first time or again, is not read as zeros, though the kernel takes it as soon as it may.
#[test]
fn loom_read_against_offer() {
    for make in [OfferedPage::resident, OfferedPage::offered] {
        explore(move || {
            let page = make();
            let offerer = spawn_with(&page, |page| {
                let is_offered = page.offer();
                page.take();
                is_offered
            });
            let seen = page.read();
            assert!(is_right(seen), "{seen:?}");
            offerer.join().unwrap();
            let seen = page.read();
            assert!(is_right(seen), "{seen:?}");
            page.check();
        });
    }
}

/// Goal: of two readers both get the bytes, or both a miss, and the page leaves once.
#[test]
fn loom_two_readers_of_an_offer_against_the_kernel() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let page = OfferedPage::offered();
        let reader = spawn_with(&page, OfferedPage::read);
        let kernel = spawn_with(&page, OfferedPage::take);
        let seen = [page.read(), reader.join().unwrap()];
        kernel.join().unwrap();
        assert!(seen[0] == seen[1] && is_right(seen[0]), "{seen:?}");
        page.check();
    });
}

/// Goal: a page on offer that is evicted gives its memory back once; a reader finds it before, or nothing.
#[test]
fn loom_read_of_an_offer_against_evict() {
    explore(|| {
        let page = OfferedPage::offered();
        let reader = spawn_with(&page, OfferedPage::read);
        let is_evicted = page.evict();
        let seen = reader.join().unwrap();
        assert!(is_right(seen), "{seen:?}");
        assert!(is_evicted || seen.is_some(), "a page that stays is found");
        page.check();
    });
}

/// Goal: a page that is taken out of use while a reader touches it gives its memory back once, with the last of them.
#[test]
fn loom_read_of_an_offer_against_invalidate() {
    explore(|| {
        let page = OfferedPage::offered();
        let reader = spawn_with(&page, OfferedPage::read);
        {
            let mut is_in_table = page.control.lock().unwrap();
            page.step();
            let (became, _) = page.frame.invalidate();
            *is_in_table = false;
            if became == Invalidated::Freed {
                page.given_back.fetch_add(1, Ordering::Relaxed);
            }
        }
        let seen = reader.join().unwrap();
        assert!(is_right(seen), "{seen:?}");
        page.check();
        assert_eq!(page.frame.state(), FrameState::Free);
    });
}

/// Goal: a write in place finds a page on offer only after it was touched, and is not lost to the kernel.
#[test]
fn loom_write_to_an_offer_against_the_kernel() {
    explore(|| {
        let page = OfferedPage::offered();
        let kernel = spawn_with(&page, OfferedPage::take);
        let is_written = loop {
            page.step();
            match page.frame.begin_write(A.0, A.1, 0, 4096) {
                WriteLatch::Latched(_) => {
                    let mut memory = page.memory.lock().unwrap();
                    *memory = Memory { contents: memory.contents + 1, is_lazy: false };
                    drop(memory);
                    page.frame.end_write();
                    break true;
                }
                WriteLatch::Offered => page.touch(),
                WriteLatch::Absent => break false,
                latch => panic!("{latch:?}"),
            }
        };
        kernel.join().unwrap();
        page.take();
        assert_eq!(page.read(), is_written.then_some(A.2 + 1));
        page.check();
    });
}
