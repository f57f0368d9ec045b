//! Sync: the atomics, loom's when it explores every order of their accesses.
//!
//! Owns: the choice.
//! Does not own: what is done with them.

#[cfg(not(headwater_loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(headwater_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Called while another thread does something short.
#[cfg(not(headwater_loom))]
pub(crate) use core::hint::spin_loop as spin;

#[cfg(headwater_loom)]
pub(crate) use loom::thread::yield_now as spin;
