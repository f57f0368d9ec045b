//! Kernel: what the cache needs of the system around it: files, two kinds of lock, sleeping, a clock.
//!
//! Owns: the traits.
//! Does not own: tasks (the kernel spawns those that run [`PageCache::serve`](crate::PageCache::serve)),
//! memory (the global allocator's).

use core::time::Duration;

use headwater_core::backing::Backing;

/// A kernel's files, locks, sleeping tasks and clock.
pub trait Kernel: Send + Sync + 'static {
    /// A file of its file systems.
    type Node: Node;
    /// Held for microseconds, never across I/O, sleeping or anything of the kernel's: a spin lock that keeps its holder
    /// from being preempted.
    type SpinLock: lock_api::RawMutex + Send + Sync;
    /// Held across I/O, so others that want it sleep.
    type SleepLock: lock_api::RawMutex + Send + Sync;
    /// Where tasks sleep.
    type WaitQueue: WaitQueue;

    /// Time since any fixed moment; never goes back.
    fn now(&self) -> Duration;

    /// Lets other tasks run, those of lower priority too: the caller waits for one of them to do something short.
    fn yield_now(&self);

    /// How much memory the kernel has to spare. Asked before each chunk of 2 MiB is taken, at each page written, and by
    /// [`PageCache::tend`](crate::PageCache::tend): it compares a counter, and neither blocks nor allocates. A kernel that says nothing has
    /// plenty.
    fn memory(&self) -> MemoryHint {
        MemoryHint::Plenty
    }
}

/// What a cache may take of the kernel's memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MemoryHint {
    /// As much as its settings say.
    #[default]
    Plenty,
    /// No more than it has: pages make room for pages.
    Low,
    /// Less: each [`PageCache::tend`](crate::PageCache::tend) gives a quarter back.
    Critical,
}

/// Where tasks sleep until something is so.
pub trait WaitQueue: Send + Sync {
    /// An empty one.
    fn new() -> Self;

    /// Returns when `condition` holds. It is looked at again after each [`WaitQueue::notify_all`], and one that comes
    /// between a look and falling asleep is not missed.
    fn wait_until(&self, condition: impl Fn() -> bool);

    /// Wakes all waiters. Called after the state they wait for was stored.
    fn notify_all(&self);
}

/// A file as its file system gives it: [`Backing`] is how it is read, and this the rest. Every call may block. Of a
/// backing whose form is `Direct`, `read_at` may return what there is now.
pub trait Node: Backing + Send + Sync + 'static {
    /// What the kernel calls a failure of the cache.
    fn error(failure: Failure) -> Self::Error;

    /// The same for two nodes exactly if they are the same file: for instance the address of the file system and the
    /// number of the inode.
    fn key(&self) -> NodeKey;

    /// Writes `buffer` at `offset`, or the first part of it, and says how much; grows the file if it ends beyond its end.
    ///
    /// # Errors
    /// What the system reports, if no byte was written.
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<usize, Self::Error>;

    /// Writes `buffer` at the end; says how much of it, and where the end is now.
    ///
    /// # Errors
    /// As [`Node::write_at`].
    fn append(&self, buffer: &[u8]) -> Result<(usize, u64), Self::Error>;

    /// Truncates the file, or lengthens it by zeros.
    ///
    /// # Errors
    /// What the system reports; the length is as before then.
    fn set_len(&self, length_bytes: u64) -> Result<(), Self::Error>;

    /// Returns when what was written is durable.
    ///
    /// # Errors
    /// What the system reports.
    fn sync(&self, scope: SyncScope) -> Result<(), Self::Error>;
}

/// Which file a node is.
pub type NodeKey = (usize, u64);

/// What goes wrong in a kernel's files.
pub type Error<K> = <<K as Kernel>::Node as Backing>::Error;

/// What goes wrong in the cache itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The call makes no sense: limits that do not fit together, a page beyond the end or of a file that is not cached.
    InvalidInput,
    /// No frame can be had, or no memory for what keeps track of it.
    NoMemory,
    /// Beyond the last byte that a file can have.
    FileTooLarge,
    /// The node takes no more bytes.
    StorageFull,
}

impl core::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::InvalidInput => "settings or page are not valid",
            Self::NoMemory => "no frame or no memory is left",
            Self::FileTooLarge => "beyond the last byte of any file",
            Self::StorageFull => "the file takes no more bytes",
        })
    }
}

impl core::error::Error for Failure {}

/// What is durable after a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncScope {
    /// The bytes, and what is needed to find them.
    Data,
    /// Everything, times included.
    All,
}
