//! Linux I/O: the memory, files and request drivers below the headwater engine.
//!
//! ```text
//!   engine ──► Driver::submit(Request) ──► slot ──► uring | threads | sim ──► device
//!     ▲                                     │
//!     └───────── Completion ◄── Finished ◄──┘        Extents travel inside the Request and come back
//! ```
//!
//! Nearly all `unsafe` code of headwater is here; `headwater-kernel` and `headwater-measure` have one file each. The
//! safe interface rests on one rule: the memory of a request ([`Extent`]) is *moved* into the driver and comes back
//! only when the kernel is done with it, so no safe caller can touch, free or reuse memory that a device still writes
//! to (invariants 1 and 4).
//!
//! Rooms, each of which uses only those below it:
//!
//! ```text
//!   driver      what callers hold: Driver, Completion, Batch; which queue a request takes
//!   backend     what carries a request out: uring, threads, sim
//!   request     a request, and the slot that it is in from submission to completion
//!   file, memory   open files and what the kernel tells of them; frames, the page cache, memory pressure
//!   sync        locks, wake-ups, a background thread
//!   system      system calls, forks, signals
//! ```
//
// Owns: frame memory, the look at what the system has left of it, file descriptors, request slots, the three drivers.
// Does not own: caching, readahead, retries that change what is read; those are the engine's.

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod driver;
mod file;
mod memory;
mod request;
mod sync;
mod system;

pub use backend::sim::{DeviceEvent, FaultOn, FaultRange, SimControl, SimOptions};
#[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
pub use backend::uring::faults::KernelFaults;
pub use backend::uring::{RingOperations, SubmissionPolling, uring_refusal};
pub use driver::batch::Batch;
pub use driver::calling::Calling;
pub use driver::choice::{DriverKind, DriverOptions, Polling};
pub use driver::completion::{Completion, Interruption, Stuck};
pub use driver::local::LocalDriver;
pub use driver::plug::Plug;
pub use driver::{Driver, DriverInfo, DriverStats};
pub use file::{
    Access, Allocated, AppendFile, Appended, ChangeWatch, Creation, DirectAlignment, DirectIo, FileKey,
    FileKind, FileStamp, FileSystem, Given, Lease, LeaseOwner, LeaseState, LeaseWatch, MapAdvice, MappedFile,
    Notice, Notices, OpenFile, Opened, Opening, Residency, Route, SeenFile, SharedDescriptor, StampTrust,
    Stretch, WarmFiles, Watched, WholeFile, close_parked, coarse_clock, coarse_tick, device_number,
    device_polls, file_system_uuid, resident_pages,
};
pub use memory::arena::{Arena, ArenaStats, BudgetTooSmall, Extent, Extents, LentOut, Urgency};
pub use memory::live::{DemandMemory, LiveMemory, live_support};
pub use memory::page_cache::{
    Dropped, FilePages, Found, Keeper, LendingQuota, LentPages, Loading, Modified, NotBegun, OptimisticRead,
    Overwritten, OwnedPage, PageCache, PageCacheStats, PageCounts, PinnedPage, PinnedPages, PinnedRun,
};
pub use memory::pressure::{Headroom, MemoryLimit, Pressure, Stall, system_memory_bytes};
pub use request::attributes::Attributes;
pub use request::call::{Call, CallOutput, Returned};
pub use request::{Finished, Fsync, Rejected, Request, Transfer, WriteBack};
pub use sync::background::{Background, BackgroundWaker, Pause};
pub use sync::event::{Event, EventListener, TakenWakers, WakeScope, contain};
pub use sync::{lock, try_lock, unpoisoned};
pub use system::children::{EndedChild, children_cpu_time, wait_for_child};
pub use system::chunk_memory::OfferForm;
pub use system::processors::{stay_on_processor, usable_processors};
pub use system::reject::RejectReason;
pub use system::signals::without_signals;
pub use system::sys::{Direction, SyncScope, at_exit, close_file};
