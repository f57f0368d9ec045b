//! Coherence: what other processes write is seen, by a lease or by looking.
//!
//! ```text
//!   Peer: another process ─► opens for writing ─► waits until we have dropped our pages ─► writes ─► "done"
//!   we: read all the time ─► after "done", no read has older bytes
//! ```
//!
//! Owns: leases as users see them, granted, asked for, refused and granted again.
//! Does not own: leases as the kernel does (`headwater-io`), stamps (`caching`).

#![forbid(unsafe_code)]

mod levels;
mod locks;
mod peer;
#[allow(dead_code, unused_imports)] // these tests need a part of it
#[path = "../reading/rig.rs"]
mod rig;
mod rounds;
