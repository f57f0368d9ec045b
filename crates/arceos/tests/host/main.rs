//! Host tests: the cache over nodes of ArceOS's VFS, with the host for a kernel.
//!
//! ```text
//!   oracle, soak: random operations against bytes in a vector     races: threads that meet where it is narrow
//!   faults, slow, memory: devices that fail, stop, are full       listeners, forms, counts, writing, elastic, direct, mapping: one rule each
//!                  └─► rig: PageCache + threads ─► kernel: Host     node: a file in memory, with faults and gates
//! ```
//!
//! Owns: what is tested.
//! Does not own: `open_at`, which needs a kernel's directory entries.

mod address_space;
mod counts;
mod direct;
mod elastic;
mod faults;
mod forms;
mod kernel;
mod listeners;
mod mapping;
mod memory;
mod model;
mod node;
mod oracle;
mod races;
mod rig;
mod slow;
mod soak;
mod writing;
