//! headwater-core: what a file cache decides, apart from doing it.
//!
//! ```text
//!   bytes ─► [units] ─► pages ─► [readahead] ─► extents ─► [plan] ─► runs for the device
//!                                                   └─► [buddy] ─► blocks of memory
//!   [replacement] ─► which page leaves when memory is full
//!   [limits] bounds every one of them
//! ```
//!
//! Every type here is plain state, and every function is a pure function of that state and its arguments, so the
//! crate runs in an operating-system kernel and every test of it is exact and repeatable.
//!
//! What has one meaning in the whole crate is also exported at its root; the types of cache, frames, readahead and
//! replacement are found in their modules.
//
// Owns: the arithmetic between bytes and pages, the readahead policy, the planning of I/O, the division of
// memory, the replacement of pages, and the limits of all of these.
// Does not own: memory, files, devices, clocks, locks and threads.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod apart;
pub mod backing;
pub mod buddy;
pub mod cache;
pub mod dirty;
pub mod frame;
pub mod limits;
pub mod plan;
pub mod pool;
pub mod readahead;
pub mod replacement;
mod slots;
mod sync;
pub mod table;
pub mod units;

pub use buddy::{Block, Buddy, CHUNK_BYTES, ORDER_MAX, order_for_bytes};
pub use limits::Limits;
pub use plan::Run;
pub use readahead::{
    Access, Advice, LimitsError, Lookup, MissingRun, Outcome, Plan, PlannedRead, Presence, Purpose, ReadId,
    ReadResult, Readahead, ReadaheadLimits, ReadaheadPolicy, ReadaheadStats, SequentialStream,
};
pub use units::{
    Alignment, ByteRange, FrameId, PAGE_BYTES, PAGE_SHIFT, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange,
};
