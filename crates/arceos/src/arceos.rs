//! ArceOS: the locks and wait queues of its `ax-task`.
//!
//! Owns: how these meet what the cache needs.
//! Does not own: the tasks that read ahead, which the kernel spawns.

use core::time::Duration;

use headwater_kernel::{Kernel, MemoryHint, WaitQueue};

use crate::VfsNode;

/// The kernel, by its clock and by what it says of its memory.
pub struct ArceOs {
    clock: fn() -> Duration,
    memory: fn() -> MemoryHint,
}

impl ArceOs {
    /// With the kernel's monotonic clock, `ax_hal::time::monotonic_time`.
    pub const fn new(clock: fn() -> Duration) -> Self {
        Self { clock, memory: || MemoryHint::Plenty }
    }

    /// The same, which asks `memory` how much there is to spare: for instance by what the global allocator has left.
    pub const fn with_memory(self, memory: fn() -> MemoryHint) -> Self {
        Self { memory, ..self }
    }
}

impl Kernel for ArceOs {
    type Node = VfsNode;
    type SpinLock = ax_task::sync::RawIrqSaveMutex;
    type SleepLock = ax_task::sync::RawMutex;
    type WaitQueue = Queue;

    fn now(&self) -> Duration {
        (self.clock)()
    }

    fn memory(&self) -> MemoryHint {
        (self.memory)()
    }

    fn yield_now(&self) {
        // A yield of the scheduler's lets tasks of the same priority run only.
        ax_task::sync::WaitQueue::new().wait_timeout(MOMENT);
    }
}

/// A wait queue of the scheduler's.
pub struct Queue(ax_task::sync::WaitQueue);

impl WaitQueue for Queue {
    fn new() -> Self {
        Self(ax_task::sync::WaitQueue::new())
    }

    fn wait_until(&self, condition: impl Fn() -> bool) {
        self.0.wait_until(condition);
    }

    fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As long as a reader copies some pages.
const MOMENT: Duration = Duration::from_micros(20);
