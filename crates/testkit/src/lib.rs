//! Testkit: what the tests of every crate of the project share.
//!
//! ```text
//!   Pattern ──────── contents that are a function of the offset
//!   Rng, SeedGuard ─ randomness that can be replayed
//!   LoopMount ────── a real ext4, xfs or btrfs for one test
//!   FuseMount ────── a file system that stops to answer
//!   Trace ────────── accesses to pages, for what decides which of them stay in memory
//!   on_each ──────── every driver on every file system
//!   make_cold ────── the next read comes from the device
//!   CrashImages ──── what may be left of a file when the power fails
//!   LoggedMount ──── what is left of a file system when it fails
//!   block_on, watched ─ a runtime of one thread; an end to what hangs
//!   forbid_io_uring, run_self_with_env ─ what a container's seccomp does to us
//!   forbid_nameless_files ─ what file systems without O_TMPFILE do to us
//!   run_forked ───── what is left of us in a child
//!   as_owner ─────── what root may not open without its capabilities
//!   time_fork ────── what a child costs
//!   trim_heap ────── what is really in use
//!   take_lazy_memory ─ a kernel that takes what is on offer
//!   MemoryCgroup ─── a limit of memory for a child
//! ```
//!
//! A dependency of tests and benchmarks only: no shipped crate may depend on it, and it depends on none of them, so that every one
//! of them can use it in its own tests. `tests/tidy` holds the rules of the house that a machine can check.

#![deny(unsafe_code)] // not forbidden, for the sake of `fork`, `hang`, `heap` and `lazy`

mod cgroups;
mod cold;
mod crash;
mod forbid_nameless;
mod forbid_uring;
#[allow(unsafe_code)] // `fork(2)` is nowhere to be had without
mod fork;
mod fuse;
#[allow(unsafe_code)] // as is a signal to one thread
mod hang;
#[allow(unsafe_code)] // and what the allocator knows
mod heap;
#[allow(unsafe_code)] // and memory that the kernel takes
mod lazy;
mod matrix;
mod mounts;
mod pattern;
mod rights;
mod rng;
mod scratch;
mod skip;
mod traces;
mod waiting;
mod write_log;

pub use cgroups::{MemoryCgroup, enter_cgroup};
pub use cold::{again_if_dropped, kernel_readahead_bytes, let_age, make_cold, make_cold_from};
pub use crash::{CrashEvent, CrashEventKind, CrashImages};
pub use forbid_nameless::forbid_nameless_files;
pub use forbid_uring::{
    exhaust_io_uring, forbid_affinity_here, forbid_io_uring, forbid_io_uring_here, forbid_status_here,
    forbid_threads_here, forbid_userfaultfd, run_self_with_env, spawn_self_with_env,
};
pub use fork::{Ended, forked_status, run_forked, stuck_in_kernel, time_fork};
pub use fuse::FuseMount;
pub use heap::trim_heap;
pub use lazy::take_lazy_memory;
pub use matrix::{on_each, with_uring};
pub use mounts::{FileSystem, LoopMount};
pub use pattern::Pattern;
pub use rights::{as_owner, is_more_than_owner};
pub use rng::{Rng, SeedGuard, mix, seed_from_env, with_seed};
pub use scratch::{ScratchDir, scratch_dirs, small_tmpfs, target_tmp, tmpfs};
pub use skip::{MUST_NOT_SKIP, Skip, lack, skip};
pub use traces::{Trace, TraceShape};
pub use waiting::{PATIENCE, block_on, process_cpu_time, soak_seconds, thread_cpu_time, unparker, watched};
pub use write_log::{LoggedMount, WriteLog};
