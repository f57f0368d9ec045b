//! Gauges: what the process and its engines hold, from rest to rest, and whether it grows.
//!
//! Owns: what is looked at, how much each gauge may rise, the table.
//! Does not own: when everything is at rest.

use std::time::Duration;
use std::{fmt, fs};

use headwater::Engine;
use headwater_testkit::trim_heap;

/// Something that must not grow for ever.
struct Gauge {
    name: &'static str,
    /// How far the end may be above the warm-up.
    tolerance: u64,
    /// The same where the warm-up is shorter than [`WARM_UP_MIN`].
    tolerance_cold: u64,
}

impl Gauge {
    const fn new(name: &'static str, tolerance: u64, tolerance_cold: u64) -> Gauge {
        Gauge { name, tolerance, tolerance_cold }
    }
}

/// All of these are looked at while nothing is under way, so all but memory are the same at each look.
const GAUGES: [Gauge; COUNT] = [
    // How many files are known at a look, and how far their tables have grown, differs.
    Gauge::new("heap KiB", 512, 4 << 10),
    // Pages of the allocator's that are in use in part, and the stacks of threads, come on top.
    Gauge::new("resident KiB", 2 << 10, 16 << 10),
    // Of files that were closed, which are known for a while.
    Gauge::new("tables KiB", 64, 1 << 10),
    // The driver `threads` has one for timers from the first on: when a task waits for memory.
    Gauge::new("descriptors", 0, 2),
    // The same driver starts its sixteen when requests wait for one.
    Gauge::new("threads", 0, 16),
    Gauge::new("pinned pages", 0, 0),
    Gauge::new("unwritten pages", 0, 0),
    Gauge::new("slots", 0, 0),
    Gauge::new("queued", 0, 0),
    Gauge::new("loads", 0, 0),
    Gauge::new("lent KiB", 0, 0),
];

const COUNT: usize = 11;

/// All gauges at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Since the beginning.
    pub(crate) at: Duration,
    pub(crate) values: [u64; COUNT],
}

impl Sample {
    pub(crate) fn take(at: Duration, engines: &[&Engine]) -> Sample {
        let stats: Vec<_> = engines.iter().map(|engine| engine.stats()).collect();
        let sum = |value: fn(&headwater::Stats) -> u64| stats.iter().map(value).sum::<u64>();
        let heap_bytes = trim_heap().unwrap_or(0);
        let values = [
            heap_bytes >> 10,
            resident_bytes() >> 10,
            sum(|stats| stats.cache.metadata_bytes) >> 10,
            // Looking takes one.
            fs::read_dir("/proc/self/fd").expect("a process can read what it has").count() as u64 - 1,
            threads(),
            sum(|stats| stats.cache.pinned_pages),
            sum(|stats| stats.cache.dirty_pages),
            sum(|stats| stats.driver.slots_used as u64),
            sum(|stats| stats.driver.queued as u64),
            sum(|stats| stats.cache.loads),
            sum(|stats| stats.lent_bytes as u64) >> 10,
        ];
        Sample { at, values }
    }
}

/// What rose from the warm-up to the end, in words. The warm-up is the first sixth, of which the highest look counts, so that what
/// comes and goes is no rise; of the last sixth, and of three looks at the least, the lowest, as what leaks does not come back. The heap of an
/// hour's soak came and went by 0.7 MiB, in waves of some minutes.
pub(crate) fn risen(samples: &[Sample]) -> Vec<String> {
    let Some(last) = samples.last() else { return Vec::new() };
    let part = last.at / WARM_UP_DIVISOR;
    let warm = samples.iter().filter(|sample| sample.at <= part).count().max(1);
    let last_looks = samples.iter().filter(|sample| sample.at > last.at - part).count().max(LAST_LOOKS);
    let end = samples.len().saturating_sub(last_looks).max(warm);
    let risen = |(index, gauge): (usize, &Gauge)| {
        let before = samples[..warm].iter().map(|sample| sample.values[index]).max()?;
        let after = samples[end..].iter().map(|sample| sample.values[index]).min()?;
        let is_warm = last.at / WARM_UP_DIVISOR >= WARM_UP_MIN;
        let (name, tolerance) = (gauge.name, if is_warm { gauge.tolerance } else { gauge.tolerance_cold });
        (after > before + tolerance)
            .then(|| format!("{name}: {after} at the end, {before} in the warm-up, {tolerance} more allowed"))
    };
    GAUGES.iter().enumerate().filter_map(risen).collect()
}

/// What stands above the columns.
pub(crate) fn heads() -> String {
    let heads: String = GAUGES.iter().map(|gauge| format!("  {:>15}", gauge.name)).collect();
    format!("{:>8}{heads}", "seconds")
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:>8.0}", self.at.as_secs_f64())?;
        self.values.iter().try_for_each(|value| write!(formatter, "  {value:>15}"))
    }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a process can read its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has a VmRSS");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("VmRSS is a number of kB");
    kibibytes << 10
}

/// Those of the kernel that carry out requests of rings come and go as it likes.
fn threads() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("a process can read its threads").flatten();
    // One that has just ended has no name any more.
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| !name.starts_with("iou-")).count() as u64
}

const WARM_UP_DIVISOR: u32 = 6;
const WARM_UP_MIN: Duration = Duration::from_secs(10);
const LAST_LOOKS: usize = 3;

/// Goal: a gauge that rises is found, one that comes and goes is not, and the tolerance is kept.
#[test]
fn rises_are_found() {
    let samples = |value: fn(u64) -> u64| -> Vec<Sample> {
        let sample = |number| {
            let mut values = [7; COUNT];
            values[3] = value(number);
            values[0] = 100_000 + number * 30;
            Sample { at: Duration::from_secs(number), values }
        };
        (0..60).map(sample).collect()
    };
    assert_eq!(risen(&samples(|_| 7)), [""; 0]);
    assert_eq!(risen(&samples(|number| 7 + number % 3)), [""; 0]);
    assert_eq!(risen(&samples(|number| 7 + number % 3 + u64::from(number > 50))), [""; 0]);
    assert_eq!(risen(&samples(|number| 7 + 5 * u64::from(number > 55))), [""; 0], "a wave");
    let leak = risen(&samples(|number| 7 + number / 9));
    assert_eq!(leak, ["descriptors: 12 at the end, 8 in the warm-up, 2 more allowed"]);
    assert_eq!(samples(|_| 7)[3].to_string().len(), heads().len());
    assert_eq!(risen(&[]), [""; 0]);
}
