//! Linux I/O: the memory, files and request drivers below the headwater engine.
//!
//! ```text
//!   engine ──► Driver::submit(Request) ──► slot ──► uring | threads | sim ──► device
//!     ▲                                     │
//!     └───────── Completion ◄── Finished ◄──┘        Extents travel inside the Request and come back
//! ```
//!
//! This is the only crate of headwater with `unsafe` code. Its safe interface rests on one rule: the memory of a
//! request ([`Extent`]) is *moved* into the driver and comes back only when the kernel is done with it, so no
//! safe caller can touch, free or reuse memory that a device still writes to (invariants 1 and 4).
//!
//! Owns: frame memory, file descriptors, request slots, the three drivers.
//! Does not own: caching, readahead, retries that change what is read; those are the engine's.

#![warn(missing_docs)]

mod arena;
mod completion;
mod driver;
mod file;
mod fork;
mod kernel_cache;
mod lane;
mod local;
mod mapped;
mod page_cache;
mod pool;
mod request;
mod sim;
mod slot;
mod slots;
mod sync;
mod sys;
mod threads;
mod uring;

pub use arena::{Arena, ArenaStats, BudgetTooSmall, Extent, Extents, Urgency};
pub use completion::{Batch, Completion, Plug};
pub use driver::{Driver, DriverInfo, DriverKind, DriverOptions, DriverStats, PolledRings, Polling};
pub use event_listener::{Event, EventListener, Listener};
pub use file::{
    Access, DirectAlignment, DirectIo, FileKey, FileKind, FileStamp, OpenFile, Route, StampTrust,
    coarse_clock, device_polls,
};
pub use kernel_cache::Residency;
pub use local::LocalDriver;
pub use mapped::{MapAdvice, MappedFile};
pub use page_cache::{
    Dropped, FilePages, Found, Glanced, Loading, NotBegun, OwnedPage, PageCache, PageCacheStats, PageCounts,
    PinnedPage,
};
pub use request::{Finished, RejectReason, Rejected, Request, Transfer};
pub use sim::{FaultRange, SimControl, SimOptions};
pub use sys::Operation;
pub use uring::{Sharing, SubmissionPolling, uring_refusal};
