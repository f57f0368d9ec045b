//! Registered: memory that the kernel knows beforehand, so that it need not look up and pin pages for each request.
//!
//! ```text
//!   chunk: Unknown ─ first request ─► Wanted ─ after it was submitted ─► Registered: READ_FIXED from then on
//!             ▲                          └─ refused: nothing more is tried       │
//!             └──────────────────────────┴───────── forget ──────────────────────┘
//! ```
//!
//! That is `IORING_REGISTER_BUFFERS2`. fio with it took 7.0 to 7.7 instead of 7.4 to 8.3 µs of processor time for a random read of 4 KiB. What
//! is registered counts against `ulimit -l` (8 MiB for ordinary users), so a refusal is a normal case.
//!
//! Owns: which chunks of the arena this ring knows.
//! Does not own: the memory. A chunk of an arena that is gone stays pinned until the ring closes, and is not used: no
//! extent names it.
//! Locks: none; the registration itself is a system call with no lock held.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use io_uring::IoUring;

use crate::arena::{ArenaKey, Chunk};

pub(crate) struct RegisteredMemory {
    arena: ArenaKey,
    chunks: Box<[AtomicU8]>,
    refusal: OnceLock<String>,
}

impl RegisteredMemory {
    /// A table with room for the chunks of an arena, none of them registered yet.
    pub(crate) fn new(ring: &IoUring, arena: ArenaKey) -> RegisteredMemory {
        let count = arena.chunks_max.min(CHUNKS_MAX);
        let memory = RegisteredMemory {
            arena,
            chunks: (0..count).map(|_| AtomicU8::new(UNKNOWN)).collect(),
            refusal: OnceLock::new(),
        };
        memory.note(ring.submitter().register_buffers_sparse(count as u32));
        memory
    }

    /// Where the kernel knows the chunk. With [`Lookup::Wanted`] the caller registers it when it holds no lock.
    pub(crate) fn look_up(&self, chunk: &Chunk) -> Lookup {
        let Some(state) = self.chunks.get(chunk.index).filter(|_| chunk.arena == self.arena.id) else {
            return Lookup::Unregistered;
        };
        match state.load(Ordering::Acquire) {
            REGISTERED => Lookup::Registered(chunk.index as u16),
            UNKNOWN if self.refusal.get().is_none() => {
                let first = state.compare_exchange(UNKNOWN, WANTED, Ordering::AcqRel, Ordering::Relaxed);
                if first.is_ok() { Lookup::Wanted } else { Lookup::Unregistered }
            }
            _ => Lookup::Unregistered,
        }
    }

    /// Takes [`Lookup::Wanted`] back: a later request will want the chunk again.
    pub(crate) fn want_later(&self, chunk: &Chunk) {
        self.chunks[chunk.index].store(UNKNOWN, Ordering::Release);
    }

    /// Tells the kernel about a chunk that was [`Lookup::Wanted`].
    pub(crate) fn register(&self, ring: &IoUring, chunk: &Chunk) {
        let segment = [chunk.segment().into_iovec()];
        // SAFETY: the kernel pins whatever pages lie there and writes to them only for requests that name the chunk; those
        // hold an extent of it, so it is still the same memory.
        let outcome = unsafe { ring.submitter().register_buffers_update(chunk.index as u32, &segment, None) };
        let state = if self.note(outcome) { REGISTERED } else { UNKNOWN };
        self.chunks[chunk.index].store(state, Ordering::Release);
    }

    /// Makes sure that the kernel does not know the chunk, whose memory is about to be given back: requests would go on
    /// with the old memory, which is pinned. Nobody may have an extent of it, so no request can name it meanwhile; but
    /// one that has ended may still be making it known, and then it cannot be forgotten yet.
    pub(crate) fn forget(&self, ring: &IoUring, chunk: &Chunk) -> Forgotten {
        let Some(state) = self.chunks.get(chunk.index).filter(|_| chunk.arena == self.arena.id) else {
            return Forgotten::Yes;
        };
        match state.load(Ordering::Acquire) {
            UNKNOWN => Forgotten::Yes,
            REGISTERED => {
                // SAFETY: no memory is named, which takes the entry out of the table.
                let outcome = unsafe {
                    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
                    ring.submitter().register_buffers_update(chunk.index as u32, &[none], None)
                };
                if outcome.is_err() {
                    return Forgotten::No;
                }
                state.store(UNKNOWN, Ordering::Release);
                Forgotten::Yes
            }
            _ => Forgotten::No,
        }
    }

    /// Bytes that the kernel knows.
    pub(crate) fn bytes(&self) -> u64 {
        let registered = self.chunks.iter().filter(|state| state.load(Ordering::Relaxed) == REGISTERED);
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

/// What is known of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    Registered(u16),
    Wanted,
    Unregistered,
}

/// Whether a chunk is unknown to the kernel now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forgotten {
    Yes,
    No,
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
