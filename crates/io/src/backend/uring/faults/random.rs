//! Random: many injected faults at once, while short-lived threads read and write a file whose contents a model knows.
//!
//! ```text
//!   storm: ring of random size ─► threads that begin, wait, poll, give up, hand on and die ─► calm ─► gauges, counts, bytes
//! ```
//!
//! A second by itself; `HEADWATER_SOAK_SECONDS=10m` makes a soak of it.
//!
//! Owns: the threads, the model.
//! Does not own: the mixture of faults (weather), what is right after one fault (scripted).

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use headwater_core::units::PAGE_BYTES;
use headwater_testkit::{Rng, ScratchDir, block_on, mix, skip, soak_seconds, watched, with_seed};

use super::KernelFaults;
use crate::backend::uring::{
    DevicePolling, RingOperations, RingUse, Sharing, SubmissionPolling, Uring, uring_refusal,
};
use crate::driver::Driver;
use crate::driver::completion::Completion;
use crate::driver::queue::{Backend, Queue};
use crate::file::{Access, DirectIo, OpenFile, Route};
use crate::memory::arena::{Arena, Urgency};
use crate::request::slots::Slots;
use crate::request::{Request, Transfer};
use crate::sync::lock;
use crate::system::sys::Direction;

/// Goal: whatever a kernel does to a ring, short of lying about bytes, nothing is lost, doubled or torn, no wait is endless, each
/// completion of no request is counted, and in the end everything has come back.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn storms_only_delay() {
    with_seed("backend::uring::faults::random::storms_only_delay", |seed| {
        let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(1));
        let mut rng = Rng::new(seed);
        while Instant::now() < end {
            let Some(storm) = Storm::new(rng.next_u64()) else { return };
            watched("storm", || storm.rage(&mut rng));
        }
    });
}

struct Storm {
    driver: Driver,
    arena: Arena,
    file: Arc<OpenFile>,
    route: Route,
    sky: KernelFaults,
    /// Of each page how often it was written, or `None` while a request has it.
    model: Mutex<Vec<Option<u64>>>,
    directory: ScratchDir,
}

impl Storm {
    /// `None` where there is no ring.
    fn new(seed: u64) -> Option<Storm> {
        let mut rng = Rng::new(seed);
        let slots = Arc::new(Slots::new(1 + rng.below(24) as u32));
        let submission_entries = 1 << rng.below(5);
        let wanted = RingUse {
            submission_entries,
            // The kernel wants no fewer; requests in flight may be more than either.
            completion_entries: submission_entries.max(2 << rng.below(4)),
            sharing: Sharing::AnyThread,
            polling: DevicePolling::Interrupts,
            submission_polling: SubmissionPolling::Off,
            operations: RingOperations::Transfers,
        };
        if let Some(refusal) = uring_refusal() {
            skip(format!("uring: {refusal}"));
            return None;
        }
        let uring = Uring::new(&slots, wanted).unwrap();
        let mut numbers = Rng::new(rng.next_u64());
        let sky = KernelFaults::new(move || numbers.next_u64());
        uring.inject(sky.of_ring());
        let driver = Driver::of_queue(Queue::new(slots, Backend::Uring(uring)));
        let arena = Arena::new(4 << 20).unwrap();
        if rng.chance(1, 2) {
            driver.register_memory(&arena);
        }
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        let contents: Vec<u8> = (0..PAGES).flat_map(|page| contents(page, 0)).collect();
        std::fs::write(&path, contents).unwrap();
        let file = Arc::new(OpenFile::open(&path, DirectIo::Preferred, Access::ReadWrite).unwrap());
        let direct = file.direct().is_some() && rng.chance(1, 2);
        let route = if direct { Route::Direct } else { Route::Buffered };
        let model = Mutex::new(vec![Some(0); PAGES as usize]);
        Some(Storm { driver, arena, file, route, sky, model, directory })
    }

    fn rage(&self, rng: &mut Rng) {
        let handed_on: Mutex<Vec<Pending>> = Mutex::default();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let (handed_on, mut rng) = (&handed_on, Rng::new(rng.next_u64()));
                // One after the other dies, with requests in flight, staged and queued.
                scope.spawn(move || {
                    for _ in 0..LIVES {
                        let life = Rng::new(rng.next_u64());
                        thread::scope(|scope| _ = scope.spawn(|| self.live(handed_on, life)));
                    }
                });
            }
        });
        self.sky.clear_up();
        handed_on.into_inner().unwrap().into_iter().for_each(|pending| self.end(pending, rng));
        self.driver.attend();
        let in_use =
            || (self.driver.stats().slots_used, self.driver.stats().in_flight, self.arena.stats().used_bytes);
        while in_use() != (0, 0, 0) {
            thread::yield_now();
        }
        assert_eq!(self.driver.stats().unmatched_completions, self.sky.untrue());
        let stored = std::fs::read(self.directory.path().join("file")).unwrap();
        for (page, version) in lock(&self.model).iter().enumerate() {
            let expected = contents(page as u64, version.expect("nobody is at it"));
            assert!(stored[page * PAGE_BYTES..][..PAGE_BYTES] == expected, "page {page}");
        }
    }

    fn live(&self, handed_on: &Mutex<Vec<Pending>>, mut rng: Rng) {
        let mut plug = rng.chance(1, 2).then(|| self.driver.plug());
        for _ in 0..1 + rng.below(8) {
            let request = self.draw(&mut rng);
            let Some((request, asked)) = request else { continue };
            let completion = match &mut plug {
                Some(plug) => plug.submit(request, Urgency::Demand),
                None => self.driver.submit(request, Urgency::Demand),
            };
            lock(handed_on).push(Pending { completion: completion.expect("demand is accepted"), asked });
            if rng.chance(1, 2) {
                let taken = lock(handed_on).pop();
                taken.into_iter().for_each(|pending| self.end(pending, &mut rng));
            }
        }
        if rng.chance(1, 4) {
            // As if the thread had ended in the middle.
            std::mem::forget(plug);
        }
    }

    /// A request for pages that no other request has, if memory is there.
    fn draw(&self, rng: &mut Rng) -> Option<(Request, Asked)> {
        if rng.chance(1, 8) {
            return Some((Request::Nop, Asked { writes: false, pages: Vec::new() }));
        }
        let (first, count) = (rng.below(PAGES - 8), 1 + rng.below(8));
        let mut extents = self.arena.allocate_run(count as usize * PAGE_BYTES, Urgency::Demand)?;
        let mut model = lock(&self.model);
        let range = &mut model[first as usize..][..count as usize];
        if range.iter().any(Option::is_none) {
            return None;
        }
        let mut pages: Vec<_> = (first..).zip(range.iter_mut().map(|page| page.take().unwrap())).collect();
        drop(model);
        let writes = rng.chance(1, 2);
        if writes {
            pages.iter_mut().for_each(|(_, version)| *version += 1);
            let mut bytes = pages.iter().flat_map(|&(page, version)| contents(page, version));
            extents
                .iter_mut()
                .flat_map(|extent| extent.iter_mut())
                .for_each(|byte| *byte = bytes.next().unwrap_or(0));
        }
        let direction = if writes { Direction::Write } else { Direction::Read };
        let (file, route, offset_bytes) = (self.file.clone(), self.route, first * PAGE_BYTES as u64);
        let length_bytes = count as usize * PAGE_BYTES;
        let transfer = Transfer { direction, file, route, offset_bytes, length_bytes, extents };
        Some((transfer.into(), Asked { writes, pages }))
    }

    fn end(&self, pending: Pending, rng: &mut Rng) {
        let Pending { mut completion, asked } = pending;
        if !asked.writes && rng.chance(1, 4) {
            // Its pages may be written at once: nobody looks at what it reads.
            drop(completion);
        } else {
            let finished = match rng.below(2) {
                0 => completion.wait(),
                _ => block_on(std::future::poll_fn(|context| completion.poll(context))),
            };
            assert_eq!(finished.result.unwrap(), asked.pages.len() * PAGE_BYTES);
            assert!(finished.stopped_by.is_none());
            let bytes: Vec<u8> = finished.extents.iter().flat_map(|extent| extent.iter().copied()).collect();
            for (&(page, version), bytes) in asked.pages.iter().zip(bytes.chunks(PAGE_BYTES)) {
                assert!(bytes == contents(page, version), "page {page}");
            }
        }
        let mut model = lock(&self.model);
        asked.pages.iter().for_each(|&(page, version)| model[page as usize] = Some(version));
    }
}

struct Pending {
    completion: Completion,
    asked: Asked,
}

/// Pages, and their versions as they are read or will be.
struct Asked {
    writes: bool,
    pages: Vec<(u64, u64)>,
}

fn contents(page: u64, version: u64) -> Vec<u8> {
    let mut rng = Rng::new(mix(page << 32 | version));
    (0..PAGE_BYTES / 8).flat_map(|_| rng.next_u64().to_ne_bytes()).collect()
}
const PAGES: u64 = 64;
const THREADS: usize = 3;
const LIVES: usize = 12;
