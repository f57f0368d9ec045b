//! headwater-kernel: a page cache with adaptive readahead for operating-system kernels.
//!
//! ```text
//!   kernel ─► CachedFile: read_at, write_at, append, set_len, sync, with_page …     [file] [write]
//!                │                      │
//!                │            [load] windows on their way ◄── PageCache::serve: prefetch tasks   [page_cache]
//!                │                      │
//!   [reclaim] [frames] memory           └─► Node::read_at, one call for each window, into its frames   [kernel]
//!                │
//!          headwater-core: frames' states, page tables, replacement, readahead, dirty pages
//! ```
//!
//! A file's pages are found without a lock, and read without a copy but the one to the user. What is read ahead is begun
//! when a reader touches a mark, long before its end: by a task that waits for such work, or by the reader itself where
//! that is quicker.
//
// Owns: what any kernel needs around `headwater-core`: the order of steps, waiting, memory.
// Does not own: every decision about what to read and what to keep, which are the core's; files, locks, tasks and the
// clock, which come by [`Kernel`].

#![no_std]
#![deny(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod backend;
mod file;
#[allow(unsafe_code, reason = "memory and who may touch it: the one place")]
mod frames;
mod kernel;
mod load;
mod mapping;
mod page_cache;
mod reclaim;
mod settings;
mod state;
mod write;

pub use backend::FileBackend;
pub use file::{CachedFile, Page};
pub use kernel::{Error, Failure, Kernel, MemoryHint, Node, NodeKey, SyncScope, WaitQueue};
pub use mapping::{PageAccess, PutPages};
pub use page_cache::Stats;
pub use reclaim::ShrinkScope;
pub use settings::Settings;
pub use state::{ListenerId, PageCache, PageEvent};

pub use headwater_core::backing::{Backing, Form};
pub use headwater_core::readahead::{Advice, ReadaheadLimits, ReadaheadPolicy, ReadaheadStats};
pub use headwater_core::replacement::Policy;
pub use headwater_core::units::{PageIndex, PageRange};

/// The example of the page for kernel authors, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/kernels.md")]
pub struct KernelPage;
