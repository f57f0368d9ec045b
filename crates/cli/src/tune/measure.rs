//! Measure: all measurements of a device, within a time budget.
//!
//! ```text
//!   memory ─► sequential reads ─► random reads: 4 KiB at every depth, then larger ones here and there ─► writes
//! ```
//!
//! Owns: how the time is divided, the progress bar, the settings to choose from.
//! Does not own: the search (`search`), measuring one setting (`device`).

use std::path::Path;
use std::time::{Duration, Instant};

use headwater::ring::Access;
use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_measure::rounds;
use indicatif::ProgressBar;

use super::block_size::BlockSize;
use super::device::{DEPTH_MAX, Device, Order, SIZE_BYTES_MAX};
use super::memory::{self, Sweep};
use super::report::{Grid, Latency, Rate, Report};
use super::search::{Space, search};
use super::setting::Setting;
use crate::shared::fio::FioFile;
use crate::shared::host::Host;
use crate::shared::target::Target;

/// What to measure.
pub(super) struct Plan<'a> {
    /// The path of the file, or the directory of the scratch file.
    pub(super) path: &'a Path,
    pub(super) device: headwater::testing::profiles::Device,
    pub(super) block_size: BlockSize,
    /// `None` where there is no device.
    pub(super) target: Option<&'a Target>,
    /// With --write: the file to write to.
    pub(super) scratch: Option<&'a Target>,
    /// The time for all measurements.
    pub(super) time: Duration,
    pub(super) notes: Vec<String>,
}

/// # Errors
/// One sentence for the user.
pub(super) fn measure(plan: Plan<'_>) -> Result<Report, String> {
    let started = Instant::now();
    let mut host = Host::of(plan.path);
    let clock = Clock::start(plan.time);
    clock.says("memory");
    let memory = memory::sweep(plan.time.mul_f64(MEMORY_SHARE).min(MEMORY_TIME_MAX))?;
    let mut grids = Grids::default();
    let mut notes = plan.notes;
    if let Some(target) = plan.target {
        match &target.direct_refusal {
            Some(refusal) => notes.push(format!(
                "no direct I/O ({refusal}): files here are read through the kernel's page cache, which reads ahead \
                 itself, so nothing was tuned and nothing is stored"
            )),
            None => notes.extend(grids.measure(target, plan.scratch, &clock)?),
        }
    }
    let doubts = [&grids.sequential, &grids.random, &grids.write];
    notes.extend(doubts.into_iter().flatten().filter_map(Grid::doubt));
    host.driver = grids.driver.map(str::to_owned);
    Ok(report(plan.path, plan.device, plan.block_size, plan.target, host, memory, grids, notes, started))
}

#[derive(Default)]
struct Grids {
    sequential: Option<Grid>,
    random: Option<Grid>,
    write: Option<Grid>,
    latency: Vec<Latency>,
    driver: Option<&'static str>,
}

impl Grids {
    /// Says what was left out.
    fn measure(
        &mut self,
        target: &Target,
        scratch: Option<&Target>,
        clock: &Clock,
    ) -> Result<Option<String>, String> {
        let name = FioFile::of(target, target.bytes);
        let mut device = Device::open(&target.input_path(), Access::Read, target.bytes, &target.path)?;
        self.driver = Some(device.driver_name());
        let (alignment, queue_bytes_max) = (device.alignment_bytes(), device.queue_bytes_max());
        let mut sizes = sizes(target.bytes);
        sizes.retain(|&size| size >= alignment);
        let space = Space { sizes, depths: depths(), queue_bytes_max };
        let left = clock.left();
        let (reads, randoms) = if scratch.is_some() { (0.4, 0.25) } else { (0.67, 0.33) };
        clock.says("sequential reads");
        let grid = grid_of(&mut device, Order::Sequential, &space, left.mul_f64(reads), &name, clock)?;
        self.sequential = Some(grid);
        clock.says("random reads");
        self.random(&mut device, &space, left.mul_f64(randoms), &name, clock)?;
        let lack = device.lack();
        // Its memory is for the next.
        drop(device);
        if let Some(scratch) = scratch {
            clock.says("sequential writes");
            let mut device =
                Device::open(&scratch.input_path(), Access::ReadWrite, scratch.bytes, &scratch.path)?;
            let space = Space { sizes: sizes_within(&space, scratch.bytes), ..space };
            let name = FioFile::of(scratch, scratch.bytes);
            let queue_bytes_max = space.queue_bytes_max.min(device.queue_bytes_max());
            let space = Space { queue_bytes_max, ..space };
            self.write = Some(grid_of(&mut device, Order::Write, &space, clock.left(), &name, clock)?);
        }
        Ok(lack)
    }

    /// The depth is chosen by the smallest requests: of large ones a few are enough, as sequential reads show.
    fn random(
        &mut self,
        device: &mut Device,
        space: &Space,
        time: Duration,
        name: &FioFile,
        clock: &Clock,
    ) -> Result<(), String> {
        let smallest = Space { sizes: space.sizes[..1].to_vec(), ..space.clone() };
        let mut measure = |setting, slice| {
            clock.tick();
            device.measure(Order::Random, setting, slice)
        };
        let found = search(&smallest, time.mul_f64(SMALLEST_SHARE), &mut measure)?;
        self.latency = found.cells.iter().map(Latency::of).collect();
        self.latency.sort_by_key(|latency| latency.depth);
        let sizes: Vec<u64> = space.sizes.iter().copied().step_by(RANDOM_STEP).take(RANDOM_SIZES).collect();
        let shown = Space { sizes, ..space.clone() };
        let mut grid = Grid::new(Order::Random, &shown, found, name);
        let larger = shown.sizes.iter().skip(1);
        let settings = larger.flat_map(|&size_bytes| {
            shown.depths.iter().step_by(3).map(move |&depth| Setting { size_bytes, depth })
        });
        let fit = settings.filter(|setting| setting.queue_bytes() <= space.queue_bytes_max);
        let settings: Vec<Setting> = fit.collect();
        let slice = time.mul_f64(1.0 - SMALLEST_SHARE) / settings.len().max(1) as u32;
        for setting in settings {
            let measured = vec![measure(setting, slice)?];
            grid.cells.push(Rate::of(&super::search::Cell { setting, measured }));
        }
        self.random = Some(grid);
        Ok(())
    }
}

fn grid_of(
    device: &mut Device,
    order: Order,
    space: &Space,
    time: Duration,
    name: &FioFile,
    clock: &Clock,
) -> Result<Grid, String> {
    let found = search(space, time, &mut |setting, slice| {
        clock.tick();
        device.measure(order, setting, slice)
    })?;
    Ok(Grid::new(order, space, found, name))
}

#[allow(clippy::too_many_arguments)] // Each is a field of the report.
fn report(
    path: &Path,
    device: headwater::testing::profiles::Device,
    block_size: BlockSize,
    target: Option<&Target>,
    host: Host,
    memory: Sweep,
    grids: Grids,
    notes: Vec<String>,
    started: Instant,
) -> Report {
    Report {
        suite: "tune",
        host,
        path: path.to_owned(),
        bytes: target.map_or(0, |target| target.bytes),
        made_for_this: target.is_some_and(|target| target.is_made),
        device,
        block_size,
        seconds: started.elapsed().as_secs_f64(),
        memory,
        sequential: grids.sequential,
        random: grids.random,
        write: grids.write,
        latency: grids.latency,
        notes,
        stored_in: None,
    }
}

/// From a page to the largest request, as far as the file holds some of them.
fn sizes(bytes: u64) -> Vec<u64> {
    let doubled = |size: &u64| Some(size * 2);
    let sizes =
        std::iter::successors(Some(PAGE_SIZE_BYTES), doubled).take_while(|&size| size <= SIZE_BYTES_MAX);
    sizes.filter(|&size| size == PAGE_SIZE_BYTES || size * REQUESTS_MIN <= bytes).collect()
}

fn sizes_within(space: &Space, bytes: u64) -> Vec<u64> {
    let within = sizes(bytes);
    space.sizes.iter().copied().filter(|size| within.contains(size)).collect()
}

fn depths() -> Vec<u32> {
    std::iter::successors(Some(1), |depth| Some(depth * 2)).take_while(|&depth| depth <= DEPTH_MAX).collect()
}

/// The time budget, and the bar that shows it.
struct Clock {
    started: Instant,
    time: Duration,
    bar: ProgressBar,
}

impl Clock {
    fn start(time: Duration) -> Clock {
        Clock { started: Instant::now(), time, bar: rounds::time_bar(time.as_millis() as u64) }
    }

    fn says(&self, what: &'static str) {
        self.bar.set_message(what);
        self.tick();
    }

    fn tick(&self) {
        self.bar.set_position(self.started.elapsed().min(self.time).as_millis() as u64);
    }

    fn left(&self) -> Duration {
        self.time.saturating_sub(self.started.elapsed())
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Twelve blocks, three times each: enough in a few seconds.
const MEMORY_SHARE: f64 = 0.08;

const MEMORY_TIME_MAX: Duration = Duration::from_secs(3);

/// The share of time for random reads of 4 KiB; the rest is for larger ones, which only the map shows.
const SMALLEST_SHARE: f64 = 0.8;

/// 4 KiB, 16 KiB, 64 KiB, 256 KiB.
const RANDOM_STEP: usize = 2;
const RANDOM_SIZES: usize = 4;

/// The fewest requests that a file has to hold: with fewer, a queue would read the same bytes all the time.
const REQUESTS_MIN: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_suit_the_file() {
        assert_eq!(sizes(1 << 30), (12..=21).map(|shift| 1 << shift).collect::<Vec<u64>>());
        assert_eq!(sizes(1 << 20).last(), Some(&(128 << 10)));
        assert_eq!(sizes(4096), [4096]);
        assert_eq!(depths(), [1, 2, 4, 8, 16, 32, 64]);
    }
}
