//! Replacement: which page leaves when a frame is needed.
//!
//! ```text
//!   insert ─► [ window │ small ] ─ referenced ─► ( main, a clock ) ─ unreferenced ─► out
//!      │              └─ unreferenced ─► out, its fingerprint ─► ghost
//!      └─ fingerprint in the ghost ────────────► main
//! ```
//!
//! The picture is [`Policy::Clock2QPlus`], the policy of the cache. The others are what it is compared with. A hit
//! takes no lock and does not come here: it bumps a counter of two bits in the frame's own word, and a policy asks
//! for that counter ([`Frames::take_references`]) when it looks at the page. Only LRU has to hear of every hit.
//!
//! States of a frame: out -> in a queue `[insert]` -> out `[evict]`, `[remove]`.
//!
//! Invariants:
//!
//! - E1 A frame is in at most one queue, and once.
//! - E2 What [`Replacement::evict`] returns was evicted by [`Frames::try_evict`], and nothing else was.
//! - E3 `evict` looks at every frame a constant number of times at most, busy or not.
//! - E4 Memory is 13 bytes a frame at most, and only `grow` allocates.
//!
//! Hot path: `insert` writes three entries of the queues, and as many for a page that leaves the window; `evict`
//! the same for each page it looks at. No allocation.
//
// Owns: the order of the pages within the policies' queues, and the memory of what left.
// Does not own: the frames and their reference counts ([`Frames`]), which page is in which frame, a lock. The
// caller decides when a page has to leave; capacities follow from how many pages are inserted.

mod clock;
mod clock2q_plus;
mod ghost;
mod lru;
mod queues;
mod s3_fifo;

use alloc::collections::TryReserveError;
use core::fmt;
use core::str::FromStr;

use self::ghost::Ghost;
use self::queues::Queues;
use crate::units::FrameId;

/// Which policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Small FIFO with a correlation window, main clock, ghost: the best or nearly the best on all traces that
    /// were tried, but for loops, and the only one that is not fooled by a scan that touches each page a few
    /// times.
    #[default]
    Clock2QPlus,
    /// One queue; referenced pages get another round.
    Clock,
    /// Small FIFO, main queue with counts of two bits, ghost.
    S3Fifo,
    /// Least recently used. Needs [`Replacement::on_hit`], hence a lock for each hit: for comparison.
    Lru,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Clock2QPlus, Self::Clock, Self::S3Fifo, Self::Lru];

    /// The name, as [`Policy::from_str`] takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clock2QPlus => "clock2q+",
            Self::Clock => "clock",
            Self::S3Fifo => "s3-fifo",
            Self::Lru => "lru",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownPolicy)
    }
}

/// No policy has the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, fourth] = Policy::ALL;
        write!(f, "a policy is {first}, {second}, {third} or {fourth}")
    }
}

impl core::error::Error for UnknownPolicy {}

/// Why a page entered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// A reader demanded it. That first use is not a reference: count from the second on.
    Demand,
    /// It was read ahead and is unused. Its first use may be counted as a reference like any other: Clock2Q+ knows that
    /// it is the first.
    Readahead,
}

/// Whether a page left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evicted {
    /// It left; the frame holds nothing now.
    Yes,
    /// It is pinned, or I/O is under way in its frame; nothing has changed.
    Busy,
}

/// What a policy asks the frames. The cache answers from the atomic words of its frames, a simulation from an
/// array.
pub trait Frames {
    /// How often the page was referenced since this was last asked: 0 to 3, where 3 means more as well. Sets it
    /// to zero.
    fn take_references(&mut self, frame: FrameId) -> u8;

    /// Sets that count, for a policy that counts down (the main queue of S3-FIFO). References made meanwhile may
    /// be lost.
    fn set_references(&mut self, frame: FrameId, count: u8);

    /// What tells the page from all others, for the ghost: the same whenever the same page comes back. Any
    /// numbers will do; they are mixed before use.
    fn fingerprint(&self, frame: FrameId) -> u64;

    /// Evicts the page, unless it is pinned or has I/O under way.
    fn try_evict(&mut self, frame: FrameId) -> Evicted;
}

/// The state of one policy. Knows no frames until [`Replacement::grow`].
///
/// ```
/// # use headwater_core::replacement::{Evicted, Frames, Origin, Policy, Replacement};
/// # use headwater_core::units::FrameId;
/// /// The number of the page in each frame, and how often it was referenced.
/// struct Simulated(Vec<(u64, u8)>);
///
/// impl Frames for Simulated {
///     fn take_references(&mut self, frame: FrameId) -> u8 {
///         std::mem::take(&mut self.0[frame.get() as usize].1)
///     }
///     fn set_references(&mut self, frame: FrameId, count: u8) {
///         self.0[frame.get() as usize].1 = count;
///     }
///     fn fingerprint(&self, frame: FrameId) -> u64 {
///         self.0[frame.get() as usize].0
///     }
///     fn try_evict(&mut self, _: FrameId) -> Evicted {
///         Evicted::Yes
///     }
/// }
///
/// let mut frames = Simulated(vec![(100, 0), (101, 0), (102, 0)]);
/// let mut replacement = Replacement::new(Policy::Clock2QPlus);
/// replacement.grow(3)?;
/// for frame in [0, 1, 2].map(FrameId::new) {
///     replacement.insert(frame, Origin::Demand, &mut frames);
/// }
/// frames.0[0].1 = 1; // a hit
/// assert_eq!(replacement.evict(&mut frames), Some(FrameId::new(1)));
/// # Ok::<(), std::collections::TryReserveError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replacement {
    policy: Policy,
    queues: Queues,
    ghost: Ghost,
}

impl Replacement {
    /// Nothing is inserted, and no frame is known.
    pub fn new(policy: Policy) -> Self {
        let ghost_percent = match policy {
            Policy::Clock2QPlus => clock2q_plus::GHOST_PERCENT,
            Policy::S3Fifo => s3_fifo::GHOST_PERCENT,
            Policy::Clock | Policy::Lru => 0,
        };
        Self { policy, queues: Queues::default(), ghost: Ghost::new(ghost_percent) }
    }

    /// Which policy this is.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Frames below this number may be inserted from now on; fewer than before changes nothing. The only function
    /// here that allocates, exactly as much as is needed, so grow in few and large steps. What the ghost remembers
    /// is forgotten.
    ///
    /// # Errors
    /// When there is no memory; nothing has changed then.
    pub fn grow(&mut self, frames: u32) -> Result<(), TryReserveError> {
        if frames <= self.queues.frames() {
            return Ok(());
        }
        let ghost = self.ghost.with_frames(frames)?;
        self.queues.grow(frames)?;
        self.ghost = ghost;
        Ok(())
    }

    /// A page has entered the frame. The caller must have set the page's reference count to zero.
    ///
    /// # Panics
    /// If `frame` is not below the number given to [`Replacement::grow`], or is inserted already.
    pub fn insert(&mut self, frame: FrameId, origin: Origin, frames: &mut impl Frames) {
        let (queues, ghost) = (&mut self.queues, &mut self.ghost);
        match self.policy {
            Policy::Clock2QPlus => clock2q_plus::insert(queues, ghost, frame, origin, frames),
            Policy::Clock => clock::insert(queues, frame),
            Policy::S3Fifo => s3_fifo::insert(queues, ghost, frame, frames),
            Policy::Lru => lru::insert(queues, frame),
        }
    }

    /// A page that was taken out to be offered to the operating system's kernel was used, and is there: it enters among those that have
    /// proved themselves, the newest of them. The caller must have set its reference count to zero.
    ///
    /// # Panics
    /// As [`Replacement::insert`].
    pub fn insert_again(&mut self, frame: FrameId) {
        self.queues.push(queues::Queue::Main, frame);
    }

    /// The page in the frame was used again. Only LRU needs to hear of it, the others do nothing; nor does LRU
    /// for a frame that is not inserted.
    pub fn on_hit(&mut self, frame: FrameId) {
        if self.policy == Policy::Lru && self.contains(frame) {
            lru::on_hit(&mut self.queues, frame);
        }
    }

    /// The page left by other means (truncation, invalidation): the frame is forgotten, and the page is not
    /// remembered.
    ///
    /// # Panics
    /// Unless the frame is inserted.
    pub fn remove(&mut self, frame: FrameId) {
        self.queues.remove(frame);
    }

    /// Chooses a page, has it evicted, forgets its frame and remembers its fingerprint where the policy has a
    /// ghost. `None` when every page is busy, or referenced again while this looked.
    pub fn evict(&mut self, frames: &mut impl Frames) -> Option<FrameId> {
        let (queues, ghost) = (&mut self.queues, &mut self.ghost);
        match self.policy {
            Policy::Clock2QPlus => clock2q_plus::evict(queues, ghost, frames),
            Policy::Clock => clock::evict(queues, frames),
            Policy::S3Fifo => s3_fifo::evict(queues, ghost, frames),
            Policy::Lru => lru::evict(queues, frames),
        }
    }

    /// How many frames are inserted.
    pub fn len(&self) -> u32 {
        self.queues.total()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the frame is inserted. Not so for a frame that [`Replacement::grow`] has not heard of.
    pub fn contains(&self, frame: FrameId) -> bool {
        self.queues.contains(frame)
    }

    /// Memory in use, in bytes, beyond this value itself.
    pub fn memory_bytes(&self) -> usize {
        self.queues.memory_bytes() + self.ghost.memory_bytes()
    }

    /// Checks the invariants.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        self.queues.check();
        self.ghost.check();
        let bytes_max = BYTES_PER_FRAME_MAX * self.queues.frames() as usize + ghost::SLACK_BYTES;
        assert!(self.memory_bytes() <= bytes_max, "E4: {} bytes", self.memory_bytes());
    }
}

/// 9 for the queues, and up to 4 for a ghost: 52 MiB for the frames of 16 GiB, a third of a percent.
const BYTES_PER_FRAME_MAX: usize = 13;

/// `percent` of `pages`, rounded down, but at least one page, so that no queue of a tiny cache is of no use.
const fn share(pages: u32, percent: u32) -> u32 {
    let share = (pages as u64 * percent as u64 / 100) as u32;
    if share == 0 { 1 } else { share }
}
