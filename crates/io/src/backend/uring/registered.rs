//! Registered: memory registered with the kernel beforehand, so that it need not look up and pin pages for each request.
//!
//! ```text
//!   chunk: Unknown ─ first request ─► Wanted ─ after it was submitted ─► Registered: READ_FIXED from then on
//!             ▲                          └─ refused: nothing more is tried       │
//!             └──────────────────────────┴───────── forget ──────────────────────┘
//! ```
//!
//! That is `IORING_REGISTER_BUFFERS2`. With it, fio took 7.0 to 7.7 instead of 7.4 to 8.3 µs of processor time for a random read of
//! 4 KiB. Registered memory counts against `ulimit -l` (8 MiB for ordinary users), so a refusal is a normal case.
//!
//! Owns: which chunks of the arena this ring has registered.
//! Does not own: the memory. A chunk of a dropped arena stays pinned until the ring closes; no extent names it, so it is not used.
//! Locks: none; the registration itself is a system call with no lock held.

use std::io;
use std::sync::OnceLock;

use io_uring::IoUring;

use crate::memory::arena::{ArenaKey, Chunk, Forgotten};
use crate::sync::{AtomicU8, Ordering};

pub(crate) struct RegisteredMemory {
    arena: ArenaKey,
    chunks: Box<[Registration]>,
    /// Whether the kernel has a table for them. It is made for the first chunk: room for 24 GiB takes over 100 µs.
    table: OnceLock<bool>,
    refusal: OnceLock<String>,
}

impl RegisteredMemory {
    /// Room for the chunks of an arena, none of them registered yet.
    pub(crate) fn new(arena: ArenaKey) -> RegisteredMemory {
        let chunks = (0..arena.chunks_max.min(CHUNKS_MAX)).map(|_| Registration::new()).collect();
        RegisteredMemory { arena, chunks, table: OnceLock::new(), refusal: OnceLock::new() }
    }

    /// Where the kernel knows the chunk. With [`Lookup::Wanted`] the caller registers it when it holds no lock.
    pub(crate) fn look_up(&self, chunk: &Chunk) -> Lookup {
        let Some(state) = self.chunks.get(chunk.index).filter(|_| chunk.arena == self.arena.id) else {
            return Lookup::Unregistered;
        };
        state.look_up(chunk.index as u16, || self.refusal.get().is_none())
    }

    /// Takes [`Lookup::Wanted`] back: a later request will want the chunk again.
    pub(crate) fn want_later(&self, chunk: &Chunk) {
        self.chunks[chunk.index].end_registering(false);
    }

    /// Tells the kernel about a chunk that was [`Lookup::Wanted`].
    pub(crate) fn register(&self, ring: &IoUring, chunk: &Chunk) {
        if !self.has_table(ring) {
            return self.chunks[chunk.index].end_registering(false);
        }
        let segment = [chunk.segment().into_iovec()];
        // SAFETY: the kernel pins whatever pages lie there and writes to them only for requests that name the chunk; those
        // hold an extent of it, so it is still the same memory.
        let outcome = unsafe { ring.submitter().register_buffers_update(chunk.index as u32, &segment, None) };
        self.chunks[chunk.index].end_registering(self.note(outcome));
    }

    fn has_table(&self, ring: &IoUring) -> bool {
        let count = self.chunks.len() as u32;
        *self.table.get_or_init(|| self.note(ring.submitter().register_buffers_sparse(count)))
    }

    /// Unregisters a chunk whose memory is about to be given back: later requests would go to the old memory, which is pinned. No
    /// extent of it may exist, so no request names it meanwhile; but the thread of a request that has ended may still be
    /// registering it, and then it cannot be unregistered yet.
    pub(crate) fn forget(&self, ring: &IoUring, chunk: &Chunk) -> Forgotten {
        let Some(state) = self.chunks.get(chunk.index).filter(|_| chunk.arena == self.arena.id) else {
            return Forgotten::Yes;
        };
        state.forget(|| {
            // SAFETY: no memory is named, which takes the entry out of the table.
            let outcome = unsafe {
                let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
                ring.submitter().register_buffers_update(chunk.index as u32, &[none], None)
            };
            outcome.is_ok()
        })
    }

    /// Bytes that the kernel knows.
    pub(crate) fn bytes(&self) -> u64 {
        let registered = self.chunks.iter().filter(|state| state.now() == REGISTERED);
        registered.count() as u64 * Chunk::BYTES as u64
    }

    /// Why there is not more of it.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    fn note(&self, outcome: io::Result<()>) -> bool {
        outcome.map_err(|error| self.refusal.get_or_init(|| explain(&error)).len()).is_ok()
    }
}

/// Whether the kernel knows one chunk, and which thread sees to that.
struct Registration(AtomicU8);

impl Registration {
    fn new() -> Registration {
        Registration(AtomicU8::new(UNKNOWN))
    }

    fn now(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// The caller has an extent of the chunk.
    fn look_up(&self, index: u16, may_want: impl FnOnce() -> bool) -> Lookup {
        match self.0.load(Ordering::Acquire) {
            REGISTERED => Lookup::Registered(index),
            UNKNOWN if may_want() => {
                let first = self.0.compare_exchange(UNKNOWN, WANTED, Ordering::AcqRel, Ordering::Relaxed);
                if first.is_ok() { Lookup::Wanted } else { Lookup::Unregistered }
            }
            _ => Lookup::Unregistered,
        }
    }

    /// Called by the thread that got [`Lookup::Wanted`], after its attempt to register the chunk.
    fn end_registering(&self, is_registered: bool) {
        self.0.store(if is_registered { REGISTERED } else { UNKNOWN }, Ordering::Release);
    }

    /// No extent of the chunk exists, nor is one allocated meanwhile. `unregister` makes the system call.
    fn forget(&self, unregister: impl FnOnce() -> bool) -> Forgotten {
        match self.0.load(Ordering::Acquire) {
            UNKNOWN => Forgotten::Yes,
            REGISTERED if unregister() => {
                self.0.store(UNKNOWN, Ordering::Release);
                Forgotten::Yes
            }
            _ => Forgotten::No,
        }
    }
}

/// What is known of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    Registered(u16),
    Wanted,
    Unregistered,
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => "the limit of locked memory is reached (`ulimit -l`)".into(),
        _ => error.to_string(),
    }
}

const UNKNOWN: u8 = 0;
const WANTED: u8 = 1;
const REGISTERED: u8 = 2;

/// `IORING_MAX_REG_BUFFERS` of the kernel: 32 GiB in chunks of 2 MiB.
const CHUNKS_MAX: usize = 1 << 14;

#[cfg(all(test, headwater_loom))]
mod loom_tests {
    use loom::sync::atomic::AtomicU32;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    /// A chunk, as far as registering it goes.
    struct Model {
        registration: Registration,
        /// The memory that the kernel knows, 0 for none.
        known: AtomicU32,
        memory: Mutex<Memory>,
    }

    /// As the arena has it, under its lock.
    struct Memory {
        /// Another one each time that it was given back.
        number: u32,
        extents: u32,
        is_retired: bool,
    }

    impl Model {
        /// A request for an extent of the chunk; what it wants is registered when it is over.
        fn request(&self) {
            let mut memory = self.memory.lock().unwrap();
            if memory.is_retired {
                return;
            }
            memory.extents += 1;
            let number = memory.number;
            drop(memory);
            let looked = self.registration.look_up(0, || true);
            if looked == Lookup::Registered(0) {
                assert_eq!(self.known.load(Ordering::Relaxed), number, "the kernel has other memory");
            }
            self.memory.lock().unwrap().extents -= 1;
            if looked == Lookup::Wanted {
                // What lies there when the kernel pins it.
                let number = self.memory.lock().unwrap().number;
                self.known.store(number, Ordering::Relaxed);
                self.registration.end_registering(true);
            }
        }

        /// As the arena releases chunks of which no extent exists.
        fn release(&self) {
            let mut memory = self.memory.lock().unwrap();
            if memory.extents > 0 {
                return;
            }
            memory.is_retired = true;
            drop(memory);
            let tell = || {
                self.known.store(0, Ordering::Relaxed);
                true
            };
            let is_forgotten = self.registration.forget(tell) == Forgotten::Yes;
            let mut memory = self.memory.lock().unwrap();
            if is_forgotten {
                assert_eq!(self.known.load(Ordering::Relaxed), 0, "the kernel keeps what is given back");
                memory.number += 1;
            }
            memory.is_retired = false;
        }
    }

    /// Goal: a chunk is given back only while the kernel does not know it, and requests that name it have the memory that the kernel
    /// has. Method: requests beside others and beside a release; one after all.
    #[test]
    fn loom_registering_against_release() {
        let mut builder = loom::model::Builder::new();
        // All orders take a minute.
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let memory = Mutex::new(Memory { number: 1, extents: 0, is_retired: false });
            let model =
                Arc::new(Model { registration: Registration::new(), known: AtomicU32::new(0), memory });
            let other = {
                let model = model.clone();
                thread::spawn(move || (0..2).for_each(|_| model.request()))
            };
            let releasing = {
                let model = model.clone();
                thread::spawn(move || model.release())
            };
            model.request();
            other.join().unwrap();
            releasing.join().unwrap();
            model.request();
        });
    }
}
