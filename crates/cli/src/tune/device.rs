//! Device: measures one setting on a file, that is, direct requests of one size at one queue depth, in the arena's huge pages.
//!
//! ```text
//!   fill the queue ─► a request completes ─► the next one reuses its memory ─► … ─► time is up ─► the last ones complete
//!                     counted after the first turn of the queue, until time is up
//! ```
//!
//! The driver is a local one: the thread that submits also takes the completions, so that the figures show the device and not the
//! waking of threads.
//!
//! Requests take no more than the free memory less a reserve for other processes: in a cgroup with less memory than the largest
//! queue takes, the kernel would kill this process.
//!
//! Owns: the requests in flight, the clock of each, how much memory they may take.
//! Does not own: the file, which settings are measured.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use headwater::DriverKind;
use headwater::ring::{
    Access, Arena, Completion, DirectIo, Direction, DriverOptions, Extents, LocalDriver, OpenFile, Route,
    Transfer, Urgency,
};
use headwater::testing::{Headroom, Limits, Pressure};
use headwater_measure::Latencies;
use os_display::Quotable;

use super::setting::{Measured, Setting};
use crate::shared::random::mixed;
use crate::shared::target::scramble;
use crate::shared::units::readable;

/// The access pattern and direction of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Sequential,
    Random,
    Write,
}

pub(crate) struct Device {
    local: LocalDriver,
    arena: Arena,
    file: Arc<OpenFile>,
    bytes: u64,
    memory: Memory,
    /// Where sequential requests continue, so that no measurement reads the bytes of the one before.
    position_bytes: u64,
    /// The generator of random offsets.
    seed: u64,
    shown: String,
}

impl Device {
    /// The first `bytes` of a file, called `shown` in errors.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn open(path: &Path, access: Access, bytes: u64, shown: &Path) -> Result<Device, String> {
        let shown = shown.maybe_quote().to_string();
        let failed = |what: &dyn std::fmt::Display| format!("failed to measure {shown}: {what}");
        let file = OpenFile::open(path, DirectIo::Required, access).map_err(|error| failed(&error))?;
        let kind = DriverKind::Auto.or_environment().map_err(|error| failed(&error))?;
        let options =
            DriverOptions { kind, queue_depth: DEPTH_MAX * 2, rings: Some(1), ..DriverOptions::default() };
        let local = LocalDriver::new(&options).map_err(|error| failed(&error))?;
        let pressure = Pressure::new();
        let memory = Memory::of(pressure.headroom()).map_err(|text| failed(&text))?;
        let arena = Arena::elastic(ARENA_BYTES, pressure).map_err(|error| failed(&error))?;
        local.driver().register_memory(&arena);
        Ok(Device { local, arena, file: Arc::new(file), bytes, memory, position_bytes: 0, seed: 1, shown })
    }

    /// The most bytes that a setting may have in flight.
    pub(crate) fn queue_bytes_max(&self) -> u64 {
        self.memory.queue_bytes_max
    }

    /// A note for the user, if that is less than the largest settings need.
    pub(crate) fn lack(&self) -> Option<String> {
        let Memory { left_bytes, queue_bytes_max } = self.memory;
        (queue_bytes_max < QUEUE_BYTES_MAX).then(|| {
            format!(
                "{} of memory are left here, so settings with more than {} in flight were left out: where there is more \
                 memory, others may be faster",
                readable(left_bytes),
                readable(queue_bytes_max),
            )
        })
    }

    pub(crate) fn driver_name(&self) -> &'static str {
        self.local.driver().info().name
    }

    /// The alignment of direct requests.
    pub(crate) fn alignment_bytes(&self) -> u64 {
        self.file.direct().map_or(1, |direct| direct.offset.get())
    }

    /// Keeps the device busy for about `slice`.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn measure(
        &mut self,
        order: Order,
        setting: Setting,
        slice: Duration,
    ) -> Result<Measured, String> {
        assert!(setting.size_bytes <= self.bytes, "a request fits the file");
        let memory = self.memory(order, setting)?;
        let started = Instant::now();
        let (local, shown) = (&self.local, self.shown.clone());
        let mut run = Run {
            order,
            setting,
            file: &self.file,
            local,
            bytes: self.bytes,
            position_bytes: self.position_bytes,
            seed: self.seed,
            memory,
            flights: Vec::new(),
            ends: started + slice,
            ends_at_last: started + slice * OVERTIME,
            counted: Counted { requests: 0, all_bytes: 0, bytes: 0, since: started, until: started },
            latencies: Latencies::coarse(),
        };
        let outcome = local.block_on(std::future::poll_fn(|context| run.poll(context)));
        (self.position_bytes, self.seed) = (run.position_bytes, run.seed);
        let (counted, latencies) = (run.counted, run.latencies);
        outcome.map_err(|error| format!("failed to measure {shown}: {error}"))?;
        Ok(Measured {
            bytes_per_s: counted.bytes_per_s(started),
            mean_us: latencies.mean_us(),
            p99_us: latencies.within_us(0.99),
            took: started.elapsed(),
        })
    }

    fn memory(&self, order: Order, setting: Setting) -> Result<VecDeque<Extents>, String> {
        let allocate = |_| self.arena.allocate_run(setting.size_bytes as usize, Urgency::Demand);
        let mut memory: Option<VecDeque<Extents>> = (0..setting.depth).map(allocate).collect();
        if order == Order::Write {
            let (mut offset_bytes, mut block) = (0, Vec::new());
            for extent in memory.iter_mut().flatten().flatten() {
                block.resize(extent.len(), 0);
                scramble(offset_bytes, &mut block);
                extent.store(0, &block);
                offset_bytes += extent.len() as u64;
            }
        }
        memory.ok_or_else(|| {
            let (shown, setting) = (&self.shown, setting.words());
            format!("failed to measure {shown}: others took the memory for {setting} meanwhile")
        })
    }
}

/// The memory for requests when measuring begins.
#[derive(Clone, Copy, Debug)]
struct Memory {
    left_bytes: u64,
    queue_bytes_max: u64,
}

impl Memory {
    /// The free memory, less the reserve of other processes, which is not checked again, and what the arena needs beside its extents.
    fn of(headroom: Headroom) -> Result<Memory, String> {
        let left_bytes = headroom.free_bytes;
        let kept_bytes = headroom.reserve_bytes + SPARE_BYTES;
        let queue_bytes_max = left_bytes.saturating_sub(kept_bytes).min(QUEUE_BYTES_MAX);
        if queue_bytes_max >= QUEUE_BYTES_MIN {
            return Ok(Memory { left_bytes, queue_bytes_max });
        }
        let needed = readable(kept_bytes + QUEUE_BYTES_MIN);
        Err(format!(
            "{} of memory are left here, and {needed} are needed; give its cgroup more (memory.max), or free some",
            readable(left_bytes)
        ))
    }
}

/// A measurement in progress.
struct Run<'a> {
    order: Order,
    setting: Setting,
    file: &'a Arc<OpenFile>,
    local: &'a LocalDriver,
    bytes: u64,
    position_bytes: u64,
    seed: u64,
    /// Memory of requests that are not in flight.
    memory: VecDeque<Extents>,
    flights: Vec<Flight>,
    ends: Instant,
    ends_at_last: Instant,
    counted: Counted,
    latencies: Latencies,
}

struct Flight {
    completion: Completion,
    since: Instant,
}

/// The bytes that were complete after the first turn of the queue, and when.
struct Counted {
    /// All completed bytes.
    requests: u64,
    all_bytes: u64,
    bytes: u64,
    since: Instant,
    until: Instant,
}

impl Counted {
    /// The rate after the first turn; of all requests, if there was no time for a second one.
    fn bytes_per_s(&self, started: Instant) -> f64 {
        let seconds = |since| self.until.duration_since(since).as_secs_f64().max(f64::MIN_POSITIVE);
        match self.bytes {
            0 => self.all_bytes as f64 / seconds(started),
            bytes => bytes as f64 / seconds(self.since),
        }
    }
}

impl Run<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            while !self.is_over()
                && let Some(extents) = self.memory.pop_front()
            {
                let transfer = self.next_transfer(extents);
                let since = Instant::now();
                let completion = self.local.driver().submit(transfer, Urgency::Demand)?;
                self.flights.push(Flight { completion, since });
            }
            if self.flights.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if !self.take_completed(context)? {
                return Poll::Pending;
            }
        }
    }

    /// Whether there were any.
    fn take_completed(&mut self, context: &mut Context<'_>) -> std::io::Result<bool> {
        let (mut index, before) = (0, self.counted.requests);
        while index < self.flights.len() {
            let flight = &mut self.flights[index];
            let Poll::Ready(finished) = Pin::new(&mut flight.completion).get_mut().poll(context) else {
                index += 1;
                continue;
            };
            let now = Instant::now();
            let waited = now.duration_since(flight.since);
            self.flights.swap_remove(index);
            self.memory.push_back(finished.extents);
            self.count(now, waited, finished.result? as u64);
        }
        Ok(self.counted.requests > before)
    }

    fn count(&mut self, now: Instant, waited: Duration, bytes: u64) {
        let counted = &mut self.counted;
        let is_first_turn = counted.requests < u64::from(self.setting.depth);
        counted.requests += 1;
        counted.all_bytes += bytes;
        self.latencies.record(waited);
        if is_first_turn {
            (counted.since, counted.until) = (now, now);
        } else if now < self.ends || counted.requests <= u64::from(self.setting.depth) * TURNS_MIN {
            counted.bytes += bytes;
            counted.until = now;
        }
    }

    fn is_over(&self) -> bool {
        self.is_over_at(Instant::now())
    }

    /// Whether time is up, and the queue has turned often enough for a rate; beyond all time, whether it was filled once.
    fn is_over_at(&self, now: Instant) -> bool {
        let (depth, ended) = (u64::from(self.setting.depth), self.counted.requests);
        let begun = ended + self.flights.len() as u64;
        now >= self.ends && ended >= depth * TURNS_MIN || now >= self.ends_at_last && begun >= depth
    }

    fn next_transfer(&mut self, extents: Extents) -> Transfer {
        let size_bytes = self.setting.size_bytes;
        let offset_bytes = match self.order {
            Order::Random => {
                self.seed += 1;
                mixed(self.seed) % (self.bytes / size_bytes) * size_bytes
            }
            Order::Sequential | Order::Write => {
                // Another size may have left off within one of these.
                let aligned = self.position_bytes.next_multiple_of(size_bytes);
                let start = if aligned + size_bytes > self.bytes { 0 } else { aligned };
                self.position_bytes = start + size_bytes;
                start
            }
        };
        let direction = match self.order {
            Order::Sequential | Order::Random => Direction::Read,
            Order::Write => Direction::Write,
        };
        let (file, length_bytes) = (self.file.clone(), size_bytes as usize);
        Transfer { direction, file, route: Route::Direct, offset_bytes, length_bytes, extents }
    }
}

pub(crate) const DEPTH_MAX: u32 = 64;

/// The largest request: an extent of the engine's memory.
pub(crate) const SIZE_BYTES_MAX: u64 = Limits::RUN_BYTES_MAX;

/// The memory of the largest queue.
const QUEUE_BYTES_MAX: u64 = SIZE_BYTES_MAX * DEPTH_MAX as u64;

/// Less memory leaves too few settings to choose from.
const QUEUE_BYTES_MIN: u64 = 8 << 20;

/// Two chunks of the arena: one that it keeps beside the queue, and one for the rest of this process.
const SPARE_BYTES: u64 = 4 << 20;

const ARENA_BYTES: usize = (QUEUE_BYTES_MAX + SPARE_BYTES) as usize;

/// The fewest turns of the queue, including the first, which is not counted.
const TURNS_MIN: u64 = 3;

/// By how much a measurement may exceed its time: a hard disk with a deep queue takes longer for these turns.
const OVERTIME: u32 = 4;

#[cfg(test)]
mod tests {
    use std::fs;

    use headwater_testkit::ScratchDir;

    use super::*;

    /// Goal: a machine that takes all the time of a measurement before its first request leaves a rate, if not a good one. Method: no time.
    #[test]
    fn a_measurement_without_time_has_a_rate() {
        let scratch = ScratchDir::on_target().unwrap();
        let path = scratch.path().join("file");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let mut device = Device::open(&path, Access::Read, 1 << 20, &path).unwrap();
        for depth in [1, 16] {
            let setting = Setting { size_bytes: 4096, depth };
            let measured = device.measure(Order::Random, setting, Duration::ZERO).unwrap();
            assert!(measured.bytes_per_s > 0.0 && measured.mean_us > 0.0, "{measured:?}");
        }
    }

    /// Goal: the reserve stays free, no more memory is taken than can be in flight, and the error names the memory needed.
    #[test]
    fn requests_fit_into_memory() {
        let of = |free_bytes, reserve_bytes| {
            Memory::of(Headroom { free_bytes, reserve_bytes, ..Headroom::UNKNOWN })
        };
        let most = |memory: Result<Memory, String>| memory.map(|memory| memory.queue_bytes_max);
        assert_eq!(most(of(60 << 20, 16 << 20)), Ok(40 << 20));
        assert_eq!(most(of(28 << 20, 16 << 20)), Ok(QUEUE_BYTES_MIN));
        assert_eq!(most(Memory::of(Headroom::UNKNOWN)), Ok(QUEUE_BYTES_MAX));
        let text = of(27 << 20, 16 << 20).unwrap_err();
        assert!(text.contains("27 MiB of memory are left here, and 28 MiB are needed"), "{text}");
    }
}
