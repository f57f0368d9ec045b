//! Engine: what all files opened through one engine share.
//!
//! ```text
//!   api (builder) ─► Shared: arena, driver, cache, threads, profiles ◄─ load, write, read: through each open file
//!        └─ Upcalls ─► functions of the rooms above: reconcile a file, close one, a round in the background, the end
//! ```
//!
//! Owns: the parts of an engine, and their lifetime.
//! Does not own: how they work together (the rooms above), files (inode).
//! Invariants: I6 frames stay within the budget; at most half of it is lent out as [`bytes::Bytes`], so that a caller that keeps
//! them all cannot stop the others.

pub(crate) mod background;
pub(crate) mod cache;
pub(crate) mod frames;
pub(crate) mod handle;
pub(crate) mod lease_thread;
pub(crate) mod lending;
pub(crate) mod loads;
// Only the feature `testing` shows profiles to other crates.
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, unused_imports, dead_code))]
pub mod profiles;
pub(crate) mod reclaim;
pub(crate) mod shortage;
pub(crate) mod stats;
pub(crate) mod writes;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex};

use headwater_core::readahead::{ReadaheadLimits, ReadaheadPolicy};
use headwater_io::{Arena, Driver, Notices, OpenFile, Pause};

use crate::engine::background::BackgroundThread;
use crate::engine::cache::CacheParts;
use crate::engine::handle::{Entry, Source};
use crate::engine::lease_thread::Leases;
use crate::engine::lending::Lending;
use crate::engine::profiles::Tuned;
use crate::engine::reclaim::MemoryBound;
use crate::engine::shortage::LookAgain;
use crate::inode::on_demand::DemandPages;
use crate::inode::{EngineWatch, Inode};

/// Memory and driver for any number of files. Clones share them. [`Engine::global`] is enough for most programs.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    #[expect(dead_code, reason = "the last one dropped ends the engine")]
    user: Arc<UserHandle>,
}

pub(crate) struct Shared {
    pub(crate) arena: Arena,
    pub(crate) driver: Driver,
    /// The limits for devices without a profile.
    pub(crate) readahead: ReadaheadLimits,
    /// `None` without profiles, or when limits were set explicitly.
    pub(crate) tuned: Option<Tuned>,
    pub(crate) readahead_policy: ReadaheadPolicy,
    pub(crate) cache: CacheParts,
    pub(crate) background: BackgroundThread,
    pub(crate) leases: Leases,
    pub(crate) notices: Notices,
    pub(crate) watch: Arc<EngineWatch>,
    pub(crate) lending: Lending,
    /// Windows on demand, whose pages leave when the system is short of memory.
    pub(crate) on_demand: Mutex<Vec<Arc<DemandPages>>>,
    /// The ceiling.
    pub(crate) memory_bytes: u64,
    /// Lets one thread at a time relieve memory pressure; others skip it. Why memory was last released.
    pub(crate) relieving: Mutex<Option<MemoryBound>>,
    /// Ends the waits of tasks for memory.
    pub(crate) look_again: LookAgain,
    pub(crate) upcalls: Upcalls,
}

/// Functions of the rooms above that this room calls. The builder sets them.
#[derive(Clone, Copy)]
pub(crate) struct Upcalls {
    /// Reconciles a file that others have changed while it had dirty bytes.
    pub(crate) reconcile: fn(&Shared, &Arc<Inode>),
    /// Enters a file that was not used yet.
    pub(crate) enter: fn(&Source) -> Entry,
    /// Closes a handle of a file.
    pub(crate) close: fn(&Shared, &Arc<Inode>, &OpenFile),
    /// Writes back a file, and waits.
    pub(crate) flush: fn(&Shared, &Arc<Inode>),
    /// Runs a round of the background thread. Returns when the next is due.
    pub(crate) maintain: fn(&Arc<Shared>) -> Pause,
    /// Ends the engine after its last user handle is dropped.
    pub(crate) end: fn(&Arc<Shared>),
}

/// Shared by the users of an engine: files, readers and futures hold it through their [`Engine`], the engine's own threads do
/// not.
struct UserHandle {
    shared: Arc<Shared>,
}

impl Engine {
    /// The first handle of an engine.
    pub(crate) fn new(shared: Shared) -> Engine {
        let shared = Arc::new(shared);
        let weak = Arc::downgrade(&shared);
        shared.background.set_round(move || {
            weak.upgrade().map_or(Pause::ForEver, |shared: Arc<Shared>| (shared.upcalls.maintain)(&shared))
        });
        let user = Arc::new(UserHandle { shared: shared.clone() });
        Engine { shared, user }
    }
}

impl Drop for UserHandle {
    fn drop(&mut self) {
        (self.shared.upcalls.end)(&self.shared);
    }
}

impl Shared {
    /// The readahead limits of a file that is being opened.
    pub(crate) fn readahead_of(&self, file: &OpenFile) -> ReadaheadLimits {
        self.tuned.as_ref().and_then(|tuned| tuned.limits(file)).unwrap_or(self.readahead)
    }
}

// What panics of wakers and listeners could interrupt is contained, and no other code of the program runs within.
impl UnwindSafe for Engine {}

impl RefUnwindSafe for Engine {}
