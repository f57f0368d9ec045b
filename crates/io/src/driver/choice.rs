//! Choice: which driver carries out requests, and its queues.
//!
//! ```text
//!   DriverKind ─┬─ Auto ───► rings ─ refused by the kernel, or by a sandbox ─► threads, with the reason in `DriverInfo`
//!               ├─ Uring ──► rings, or the kernel's error
//!               ├─ Threads ► one queue with a few workers
//!               └─ Sim ────► one queue on a simulated device
//! ```
//!
//! Owns: the options of a driver, and what they must be; how many rings there are, and how deep each is.
//! Does not own: how a ring is set up (uring), which queue a request takes (driver).

use std::io;
use std::sync::Arc;

use headwater_core::limits::Limits;

use crate::backend::sim::{Sim, SimOptions};
use crate::backend::threads::Threads;
use crate::backend::uring::{DevicePolling, RingOperations, RingUse, Sharing, SubmissionPolling, Uring};
use crate::driver::queue::{Backend, Queue};
use crate::request::slots::Slots;

/// The kind of driver that a caller asks for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum DriverKind {
    /// `uring` where the kernel allows it, else `threads`.
    #[default]
    Auto,
    /// io_uring; an error where it is missing or forbidden.
    Uring,
    /// Positioned vectored reads and writes on a small pool of threads.
    Threads,
    /// Deterministic simulation on top of real files, for tests.
    Sim(SimOptions),
}

impl DriverKind {
    /// For [`DriverKind::Auto`] the value of `HEADWATER_DRIVER` (`auto`, `uring`, `threads`) in the environment; else `self`.
    ///
    /// # Errors
    /// `InvalidInput` for another value of the variable.
    pub fn or_environment(self) -> io::Result<DriverKind> {
        if !matches!(self, DriverKind::Auto) {
            return Ok(self);
        }
        match std::env::var("HEADWATER_DRIVER").as_deref() {
            Err(_) | Ok("" | "auto") => Ok(DriverKind::Auto),
            Ok("uring") => Ok(DriverKind::Uring),
            Ok("threads") => Ok(DriverKind::Threads),
            Ok(other) => {
                let text = format!("HEADWATER_DRIVER is {other:?}; it can be auto, uring or threads");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }
}

/// Whether the kernel polls devices for completions (`IORING_SETUP_IOPOLL`) instead of waiting for interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Polling {
    /// Never.
    Off,
    /// Direct requests to a device that supports polling (`io_poll` in its queue's sysfs folder, which for NVMe the administrator
    /// sets up with `nvme.poll_queues`) take rings of their own, on which waiting spins in the kernel. Requests larger than the
    /// device takes whole (`max_sectors_kb`) take ordinary rings.
    #[default]
    Auto,
}

/// How a driver is built.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Which driver.
    pub kind: DriverKind,
    /// Requests in flight at most, 1 to [`Limits::QUEUE_DEPTH_MAX`]; more wait in order.
    pub queue_depth: u32,
    /// Rings that share the queue depth, 1 to the queue depth; by default one for each processor, but each with 32
    /// requests at least. Only for `uring`.
    pub rings: Option<u32>,
    /// Only for `uring`.
    pub polling: Polling,
    /// Only for `uring`.
    pub submission_polling: SubmissionPolling,
    /// Only for `uring`.
    pub operations: RingOperations,
}

impl Default for DriverOptions {
    fn default() -> Self {
        DriverOptions {
            kind: DriverKind::Auto,
            queue_depth: Limits::QUEUE_DEPTH_DEFAULT,
            rings: None,
            polling: Polling::default(),
            submission_polling: SubmissionPolling::Off,
            operations: RingOperations::default(),
        }
    }
}

/// The driver that was chosen.
pub(super) struct Choice {
    pub(super) queues: Box<[Arc<Queue>]>,
    /// Why [`DriverKind::Auto`] has no rings.
    pub(super) refusal: Option<String>,
}

/// # Errors
/// What the kernel reports, with [`DriverKind::Uring`].
pub(super) fn choose(options: &DriverOptions, sharing: Sharing) -> io::Result<Choice> {
    let queues = match &options.kind {
        DriverKind::Auto => return Ok(ring_or_threads(options, sharing)),
        DriverKind::Uring => rings(options, sharing, DevicePolling::Interrupts)?,
        DriverKind::Threads => threads(options),
        DriverKind::Sim(sim) => single(options, |slots| Backend::Sim(Sim::new(slots, sim))),
    };
    Ok(Choice { queues, refusal: None })
}

/// The choice of [`DriverKind::Auto`].
pub(super) fn ring_or_threads(options: &DriverOptions, sharing: Sharing) -> Choice {
    match rings(options, sharing, DevicePolling::Interrupts) {
        Ok(queues) => Choice { queues, refusal: None },
        Err(error) => Choice { queues: threads(options), refusal: Some(error.to_string()) },
    }
}

/// A queue with worker threads.
pub(super) fn threads(options: &DriverOptions) -> Box<[Arc<Queue>]> {
    single(options, |slots| Backend::Threads(Threads::new(slots)))
}

fn single(options: &DriverOptions, backend: impl FnOnce(&Arc<Slots>) -> Backend) -> Box<[Arc<Queue>]> {
    let slots = Arc::new(Slots::new(options.queue_depth));
    let backend = backend(&slots);
    Box::new([Arc::new(Queue::new(slots, backend))])
}

/// # Errors
/// `InvalidInput` for what is out of range.
pub(super) fn check(options: &DriverOptions, sharing: Sharing) -> io::Result<()> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    let depth = options.queue_depth;
    if !(1..=Limits::QUEUE_DEPTH_MAX).contains(&depth) {
        return invalid(format!("queue depth {depth} is not within 1 to {}", Limits::QUEUE_DEPTH_MAX));
    }
    match options.rings {
        Some(rings) if !(1..=depth).contains(&rings) => {
            invalid(format!("{rings} rings are not within 1 to the queue depth of {depth}"))
        }
        Some(rings) if rings > 1 && sharing == Sharing::Local => {
            invalid(format!("a local driver has one ring, not {rings}: it belongs to one thread"))
        }
        _ => Ok(()),
    }
}

/// The rings of a driver, which share its queue depth.
pub(super) fn rings(
    options: &DriverOptions,
    sharing: Sharing,
    polling: DevicePolling,
) -> io::Result<Box<[Arc<Queue>]>> {
    let depth = options.queue_depth;
    let by_processor = || {
        // Without the quota of cgroups, for which std opens and reads three files: a few rings more cost less.
        let processors = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
        processors.min(depth / RING_DEPTH_MIN).max(1)
    };
    let count = match sharing {
        Sharing::Local => 1,
        Sharing::AnyThread => options.rings.unwrap_or_else(by_processor),
    };
    (0..count)
        .map(|index| {
            let depth = depth / count + u32::from(index < depth % count);
            let slots = Arc::new(Slots::new(depth));
            let wanted = RingUse {
                submission_entries: depth.min(SUBMISSION_ENTRIES_MAX),
                completion_entries: 2 * depth,
                sharing,
                polling,
                submission_polling: options.submission_polling,
                operations: options.operations,
            };
            let uring = Uring::new(&slots, wanted)?;
            Ok(Arc::new(Queue::new(slots, Backend::Uring(uring))))
        })
        .collect()
}

/// A ring with fewer places gains nothing: 32 requests of 1 MiB, or of 4 KiB, keep a flash device busy.
const RING_DEPTH_MIN: u32 = 32;

/// Larger bursts than this are submitted in parts; an entry is 64 bytes of kernel memory.
const SUBMISSION_ENTRIES_MAX: u32 = 256;
