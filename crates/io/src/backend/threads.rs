//! threads: positioned vectored reads and writes, and syncs, on a small pool of threads, where io_uring is missing or forbidden.
//!
//! Containers often forbid io_uring by seccomp; there `Driver::new` chooses this driver.
//!
//! Owns: the workers and the queue of requests that wait for one.
//! Does not own: request state and memory (slots).
//! Invariants: I4 dropping the driver waits for the workers, which finish all queued requests; I5 the queue never grows
//! beyond its first capacity.
//! Locks: `queue` for a push or pop only. Blocking: workers block in `preadv`/`pwritev`.
//! Hot path: one futex wake and one syscall a request.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use headwater_core::limits::Limits;

use crate::backend::waits::{Wait, Waits};
use crate::memory::arena::Urgency;
use crate::request::attempt::{Attempt, Verdict};
use crate::request::slot_table::SlotId;
use crate::request::slots::{Completed, Slots};
use crate::request::{Finished, Request};
use crate::sync::{lock, unpoisoned};
use crate::system::fork::ProcessMark;
use crate::system::signals::spawn;
use crate::system::sys;

pub(crate) struct Threads {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    workers_max: usize,
    mark: ProcessMark,
}

struct Shared {
    slots: Arc<Slots>,
    queue: Mutex<Queue>,
    arrived: Condvar,
    waits: Waits,
}

struct Queue {
    waiting: VecDeque<SlotId>,
    workers: usize,
    idle_workers: usize,
    stopping: bool,
}

impl Threads {
    pub(crate) fn new(slots: &Arc<Slots>) -> Threads {
        let queue = Queue {
            waiting: VecDeque::with_capacity(slots.depth() as usize),
            workers: 0,
            idle_workers: 0,
            stopping: false,
        };
        let (slots_here, waits) = (slots.clone(), Waits::default());
        let shared = Shared { slots: slots_here, queue: Mutex::new(queue), arrived: Condvar::new(), waits };
        let workers_max = (slots.depth() as usize).min(Limits::THREADS_MAX as usize);
        let mark = ProcessMark::here();
        Threads { shared: Arc::new(shared), workers: Mutex::new(Vec::new()), workers_max, mark }
    }

    pub(crate) fn start(&self, id: SlotId) {
        let mut queue = self.shared.lock();
        queue.waiting.push_back(id);
        let short = queue.waiting.len() > queue.idle_workers;
        drop(queue);
        if short && !self.add_worker() {
            // No worker and none to be had: this thread does the work.
            self.shared.work_off_queue();
        }
        self.shared.arrived.notify_one();
    }

    /// Some request that waits may have been cancelled.
    pub(crate) fn look_at_waits(&self) {
        self.shared.waits.ring();
    }

    /// The worker unparks this thread when the request is done.
    pub(crate) fn wait(&self, id: SlotId) {
        // SAFETY: who waits for a request owns it.
        while unsafe { self.shared.slots.register_thread(id) } {
            thread::park();
        }
    }

    /// Whether there is a worker after the call.
    fn add_worker(&self) -> bool {
        let mut workers = lock(&self.workers);
        if workers.len() < self.workers_max {
            let shared = self.shared.clone();
            workers.extend(spawn("headwater-io", THREAD_STACK_BYTES, move || shared.work()));
        }
        !workers.is_empty()
    }
}

/// Carries out one request in this thread.
pub(crate) fn carry_out_here(request: Request) -> Finished {
    let slots = Arc::new(Slots::new(1));
    let Threads { shared, .. } = &Threads::new(&slots);
    let begun = slots.begin(request, Urgency::Demand).expect("there is a place");
    shared.carry_out(begun.id);
    // SAFETY: this is the request's only owner.
    unsafe { slots.take(begun.id) }.expect("carried out")
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            // In a forked child there are no workers, and one that is gone may hold the lock.
            std::mem::take(unpoisoned(self.workers.get_mut())).into_iter().for_each(std::mem::forget);
            // The thread that waits has no handle here that would join it: it is forgotten with what is shared.
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.waits.stop();
        self.shared.lock().stopping = true;
        self.shared.arrived.notify_all();
        let me = thread::current().id();
        let workers = std::mem::take(unpoisoned(self.workers.get_mut()));
        // A waker that drops the last handle runs on a worker, which then ends by itself.
        for worker in workers.into_iter().filter(|worker| worker.thread().id() != me) {
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(self: &Arc<Shared>) {
        let mut queue = self.lock();
        queue.workers += 1;
        loop {
            if let Some(id) = queue.waiting.pop_front() {
                drop(queue);
                self.carry_out(id);
                queue = self.lock();
            } else if queue.stopping {
                return;
            } else {
                queue.idle_workers += 1;
                queue = unpoisoned(self.arrived.wait(queue));
                queue.idle_workers -= 1;
            }
        }
    }

    fn work_off_queue(self: &Arc<Shared>) {
        loop {
            let next = self.lock().waiting.pop_front();
            let Some(id) = next else { return };
            self.carry_out(id);
        }
    }

    fn carry_out(self: &Arc<Shared>, id: SlotId) {
        // SAFETY: a request in the queue has this driver, and one worker takes it out. The slot keeps the segments,
        // their memory and the open file until `attempt` is told the result.
        if let Some(result) = unsafe { self.carry_out_once(id) } {
            self.go_on(id, result);
        }
    }

    /// An attempt is over; makes those that follow.
    fn go_on(self: &Arc<Shared>, id: SlotId, mut result: io::Result<usize>) {
        let mut completed = Completed::new();
        // SAFETY: as in `carry_out`.
        while unsafe { self.slots.attempt(id, result, &mut completed) } == Verdict::Again {
            // SAFETY: as in `carry_out`.
            match unsafe { self.carry_out_once(id) } {
                Some(next) => result = next,
                None => return,
            }
        }
        self.release(completed);
    }

    /// A request is finished: others take its place.
    fn release(self: &Arc<Shared>, mut completed: Completed) {
        let launched = self.slots.release_places(&mut completed);
        self.lock().waiting.extend(launched);
        self.slots.wake_owners(&mut completed);
    }

    /// Hands the request to the thread that waits.
    fn await_elsewhere(self: &Arc<Shared>, wait: Wait) -> io::Result<()> {
        self.waits.add(wait, || {
            let shared = self.clone();
            spawn("headwater-waits", THREAD_STACK_BYTES, move || {
                let is_cancelled = |id| shared.slots.may_end_early(id);
                shared.waits.work(is_cancelled, |id, result| shared.end_wait(id, result));
            })
        })
    }

    /// A request has waited long enough. Workers do what follows in it, so that other waits are looked at meanwhile.
    fn end_wait(self: &Arc<Shared>, id: SlotId, result: io::Result<usize>) {
        let mut completed = Completed::new();
        // SAFETY: a request that waits has this driver, and one thread looks at it.
        match unsafe { self.slots.attempt(id, result, &mut completed) } {
            Verdict::Finished => self.release(completed),
            Verdict::Again => self.lock().waiting.push_back(id),
        }
        if self.lock().workers > 0 {
            self.arrived.notify_all();
        } else {
            // There is no thread to be had.
            self.work_off_queue();
        }
    }

    /// The result of an attempt. `None` if the request waits now, and is carried on by the thread for that.
    ///
    /// # Safety
    /// The caller is the driver of this request, and no longer is with `None`.
    unsafe fn carry_out_once(self: &Arc<Shared>, id: SlotId) -> Option<io::Result<usize>> {
        // SAFETY: as the caller promises.
        Some(unsafe {
            match self.slots.prepare(id) {
                Attempt::Nop => Ok(0),
                Attempt::Raw(_) => Err(io::ErrorKind::Unsupported.into()),
                Attempt::Call(call) if call.is_wait() => match self.await_elsewhere(Wait { id, call }) {
                    Ok(()) => return None,
                    Err(error) => Err(error),
                },
                Attempt::Call(call) => call.carry_out(),
                Attempt::Transfer(attempt) => {
                    let file = BorrowedFd::borrow_raw(attempt.descriptor);
                    sys::transfer(attempt.direction, file, attempt.segments.as_slice(), attempt.offset_bytes)
                }
                Attempt::Sync(attempt) => {
                    sys::sync(BorrowedFd::borrow_raw(attempt.descriptor), attempt.scope).map(|()| 0)
                }
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

/// Workers run a syscall and a waker; 256 KiB is what small executors give their workers.
const THREAD_STACK_BYTES: usize = 256 << 10;

/// What miri runs of the low-level interface, beside the tests of arena, page cache, slots and quota. It cannot run, and tests on a
/// kernel do instead:
///
/// | what | because miri lacks |
/// |---|---|
/// | rings: submission, completions, registered memory, polled and local drivers | `io_uring_setup(2)` |
/// | `ChangeWatch`, `Watched` | `fanotify_init(2)`, `name_to_handle_at(2)` |
/// | `Lease`, `LeaseWatch` | `F_SETLEASE`, signals |
/// | `LiveMemory`, `MappedFile` | `mmap(2)` of a file, `userfaultfd(2)` |
/// | `Pressure`, `device_number` and the like | files of `/proc` and `/sys`, `statfs(2)` |
/// | direct I/O, `OpenFile::read_direct_first`, what the kernel's page cache holds | `O_DIRECT`, `cachestat(2)`, `preadv2(2)` |
/// | `fallocate(2)` below `allocate`, `reserve` and `extend` | that call: here they find it unsupported |
/// | children, and all that refuses to work in them | `fork(2)` |
#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::task::{Context, Waker};

    use crate::driver::Driver;
    use crate::driver::choice::{DriverKind, DriverOptions};
    use headwater_core::units::ByteRange;

    use crate::backend::sim::SimOptions;
    use crate::file::{Access, Allocated, AppendFile, Creation, DirectIo, OpenFile, Route};
    use crate::memory::arena::{Arena, Extents, Urgency};
    use crate::request::call::Call;
    use crate::request::{Fsync, Request, Transfer};
    use crate::system::sys::{Direction, SyncScope};
    use std::sync::Arc;

    /// Goal: every way to ask a driver and to get the answer touches only what is the request's. Method: under miri, requests in one
    /// piece and in several, alone, plugged and in a batch; waited for, polled, cancelled and given up.
    #[test]
    fn every_way_of_asking() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let contents: Vec<u8> = (0..12_288_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &contents).unwrap();
        let file = Arc::new(OpenFile::open(&path, DirectIo::Off, Access::ReadWrite).unwrap());
        let arena = Arena::new(4 << 20).unwrap();
        let options = DriverOptions { kind: DriverKind::Threads, queue_depth: 2, ..DriverOptions::default() };
        let driver = Driver::new(&options).unwrap();
        let transfer = |direction, sizes: &[usize]| {
            let mut extents: Extents =
                sizes.iter().map(|&bytes| arena.allocate(bytes, Urgency::Demand).unwrap()).collect();
            let bytes = extents.iter_mut().flat_map(|extent| extent.iter_mut());
            bytes.zip(&contents).for_each(|(byte, &is)| *byte = is);
            let (file, route, length_bytes) = (file.clone(), Route::Buffered, sizes.iter().sum());
            Transfer { direction, file, route, offset_bytes: 0, length_bytes, extents }
        };
        let read = |sizes: &[usize]| transfer(Direction::Read, sizes);
        let write = transfer(Direction::Write, &[4096, 8192]);
        let submit = |request: Request| driver.submit(request, Urgency::Demand).unwrap();
        assert_eq!(submit(write.into()).wait().result.unwrap(), 12_288);
        let mut plug = driver.plug();
        let plugged = plug.submit(read(&[4096, 4096]), Urgency::Demand).unwrap();
        drop(plug);
        drop(submit(read(&[4096]).into()));
        let cancelled = submit(read(&[4096]).into());
        cancelled.cancel();
        drop(cancelled.wait());
        let mut polled = submit(read(&[4096]).into());
        let _ = polled.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        drop(polled);
        let finished = plugged.wait();
        assert!(finished.extents.iter().flat_map(|extent| extent.iter()).eq(&contents[..8192]));
        submit(Fsync { file: file.clone(), scope: SyncScope::Data }.into()).wait().result.unwrap();
        let mut batch = driver.batch();
        batch.push(read(&[8192])).unwrap();
        batch.push(Request::Nop).unwrap();
        batch.finish(|_, finished| assert!(finished.result.is_ok()));
        let mut buffer = [0; 100];
        assert_eq!(driver.read_blocking(&file, Route::Buffered, &mut buffer, 50).unwrap(), 100);
        assert_eq!(buffer, contents[50..150]);
        assert_eq!(driver.write_blocking(&file, Route::Buffered, &buffer, 50).unwrap(), 100);
        drop(driver);
        drop(finished);
        assert_eq!(arena.stats().used_bytes, 0);
    }

    /// Goal: I1, I4: a call's descriptor and buffers are touched by the driver alone until they come back. Method: under miri, on the drivers
    /// that it can run: every kind of transfer, waited for, polled, cancelled, dropped and leaked.
    #[test]
    fn every_way_of_calling() {
        let sim = SimOptions { repolls: false, ..SimOptions::hostile(5) };
        for kind in [DriverKind::Threads, DriverKind::Sim(sim)] {
            let directory = tempfile::tempdir().unwrap();
            let options = std::fs::File::options().read(true).write(true).create(true).truncate(true).clone();
            let file = Arc::new(options.open(directory.path().join("file")).unwrap());
            let options = DriverOptions { kind, queue_depth: 2, ..DriverOptions::default() };
            let driver = Driver::new(&options).unwrap();
            let parts = vec![vec![1; 3000], vec![2; 3000], vec![3; 100]];
            let written = driver.call(Call::pwritev(file.clone(), parts, 10)).wait();
            assert_eq!((written.result.unwrap(), written.given.1.len()), (6100, 3));
            driver.call(Call::pwrite(file.clone(), [9; 10], 0)).wait().result.unwrap();
            let mut plug = driver.plug();
            let mut calls: Vec<_> =
                (0..5).map(|_| plug.call(Call::preadv(file.clone(), vec![[0_u8; 2000]; 2], 0))).collect();
            drop(plug);
            let polled = std::pin::Pin::new(&mut calls[0]).poll(&mut Context::from_waker(Waker::noop()));
            drop((polled, calls.remove(0)));
            calls[0].cancel();
            let read = calls.pop().unwrap().wait();
            assert_eq!(read.result.unwrap(), 4000);
            assert_eq!((read.given.1[0][9], read.given.1[0][10], read.given.1[1][1010]), (9, 1, 2));
            drop(calls);
            let chain = || {
                Call::nop(vec![0; 10]).then(Call::pwrite(file.clone(), [9; 10], 0)).then(Call::nop("given"))
            };
            let ((nothing, _), last) = driver.call(chain()).wait();
            assert_eq!((nothing.given.len(), last.given), (10, "given"));
            drop(driver.call(chain().keeping(vec![1; 10])));
            let reads = (0..5).map(|part| Call::pread(file.clone(), vec![0; 100], 10 + part * 100));
            driver.call_all(reads, |_, read| assert!(read.result.is_ok() && read.given.1 == [1; 100]));
            let short = driver.call(Call::pread(file.clone(), vec![0; 200], 6000)).wait();
            assert_eq!(short.result.unwrap(), 110);
            assert!(short.given.1[10..110].iter().all(|&byte| byte == 3) && short.given.1[9] == 2);
            driver.attend();
            drop((driver, short.given, read.given));
            // `written` has the other.
            assert_eq!(Arc::strong_count(&file), 2);
        }
    }

    /// Goal: every call by which the calling thread changes a file, and asks for its room, touches only what it was given, and does what
    /// it says. Method: under miri, on the drivers that it can run.
    #[test]
    fn every_way_of_changing_a_file() {
        let sim = SimOptions { short_per_mille: 0, transient_per_mille: 0, ..SimOptions::hostile(3) };
        for kind in [DriverKind::Threads, DriverKind::Sim(sim)] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            let options = DriverOptions { kind, queue_depth: 2, ..DriverOptions::default() };
            let driver = Driver::new(&options).unwrap();
            let creation = Creation::New;
            let file = OpenFile::create(&path, DirectIo::Off, Access::ReadWrite, creation).unwrap();
            let appending = AppendFile::open(&file, &path).unwrap();
            for (bytes, offset_bytes) in [(&b"head"[..], 0), (b"", 4), (b"water", 4)] {
                let appended = driver.append_blocking(&appending, bytes).unwrap();
                assert_eq!((appended.offset_bytes, appended.length_bytes), (offset_bytes, bytes.len()));
            }
            assert_eq!(appending.append(b"!").unwrap().offset_bytes, 9);
            driver.set_len_blocking(&file, 9).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"headwater");
            assert_eq!(driver.allocate_blocking(&file, ByteRange::new(7, 7)).unwrap(), Allocated::Yes);
            let reaches = driver.allocate_blocking(&file, ByteRange::new(0, 5000)).unwrap();
            let length_bytes = if reaches == Allocated::Yes { 5000 } else { 9 };
            driver.reserve_blocking(&file, ByteRange::new(0, 9000)).unwrap();
            assert_eq!(file.length_bytes().unwrap(), length_bytes);
            driver.extend_blocking(&file, 7000).unwrap();
            driver.extend_blocking(&file, 6000).unwrap();
            assert_eq!(file.length_bytes().unwrap(), 7000);
            driver.sync_blocking(&file, SyncScope::All).unwrap();
            let contents = std::fs::read(&path).unwrap();
            assert!(contents.starts_with(b"headwater") && contents[9..].iter().all(|&byte| byte == 0));
            assert_eq!((contents.len(), file.links().unwrap()), (7000, 1));
        }
    }
}
