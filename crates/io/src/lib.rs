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
//! Owns: frame memory, the look at what the system has left of it, file descriptors, request slots, the three drivers.
//! Does not own: caching, readahead, retries that change what is read; those are the engine's.

#![warn(missing_docs)]

mod arena;
mod background;
mod completion;
mod driver;
mod event;
mod file;
mod fork;
mod gate;
mod identity;
mod kernel_cache;
mod lane;
mod lease;
mod live;
mod local;
mod mapped;
mod page_cache;
mod pool;
mod pressure;
mod request;
mod signals;
mod sim;
mod slot;
mod slots;
mod sync;
mod sys;
mod threads;
mod uring;
mod watch;

pub use arena::{Arena, ArenaStats, BudgetTooSmall, Extent, Extents, LentOut, Urgency};
pub use background::{Background, Bell, Pause};
pub use completion::{Batch, Completion, Plug};
pub use driver::{Driver, DriverInfo, DriverKind, DriverOptions, DriverStats, PolledRings, Polling};
pub use event::{Event, EventListener, WakeScope, contain};
pub use file::{
    Access, Allocated, AppendFile, Appended, Creation, DirectAlignment, DirectIo, FileKey, FileKind,
    FileStamp, FileSystem, OpenFile, Opened, Route, SeenFile, StampTrust, WholeFile, close_parked,
    coarse_clock, coarse_tick, device_polls,
};
pub use identity::{device_number, file_system_uuid};
pub use kernel_cache::{Residency, resident_pages};
pub use lease::{Lease, LeaseOwner, LeaseState, LeaseWatch};
pub use live::{LiveMemory, live_support};
pub use local::LocalDriver;
pub use mapped::{MapAdvice, MappedFile};
pub use page_cache::{
    Dropped, FilePages, Found, Glanced, Loading, Modified, NotBegun, Overwritten, OwnedPage, PageCache,
    PageCacheStats, PageCounts, PinnedPage, PinnedRun,
};
pub use pressure::{Headroom, Pressure, Stall};
pub use request::{Finished, RejectReason, Rejected, Request, Sync, Transfer, WriteBack};
pub use signals::without_signals;
pub use sim::{DeviceEvent, FaultOn, FaultRange, SimControl, SimOptions};
pub use sys::{Operation, SyncScope, at_exit, children_cpu_time};
pub use uring::{Sharing, SubmissionPolling, uring_refusal};
pub use watch::{ChangeWatch, Watched};
