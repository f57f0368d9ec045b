//! Report: the results of tuning, as data.
//!
//! Owns: the JSON, the command lines of fio, the profile.
//! Does not own: the measurements (device, search), words (words), drawings (map, svg, section).

use std::path::PathBuf;

use headwater::testing::profiles::{Device, Profile};
use serde::Serialize;

use super::block_size::BlockSize;
use super::device::Order;
use super::memory::Sweep;
use super::search::{Cell, Found, Space};
use super::setting::Setting;
use crate::shared::fio::FioFile;
use crate::shared::host::Host;
use crate::shared::json_path;
use crate::shared::units::ByteSize;
use crate::shared::units::MIB;

#[derive(Serialize, Debug)]
pub(crate) struct Report {
    pub(super) suite: &'static str,
    pub(super) host: Host,
    #[serde(flatten, serialize_with = "json_path::as_path")]
    pub(super) path: PathBuf,
    /// The length of the file, or of the scratch file.
    pub(super) bytes: u64,
    pub(super) made_for_this: bool,
    pub(super) device: Device,
    pub(super) block_size: BlockSize,
    pub(super) seconds: f64,
    pub(super) memory: Sweep,
    pub(super) sequential: Option<Grid>,
    pub(super) random: Option<Grid>,
    pub(super) write: Option<Grid>,
    /// Latencies of random reads of 4 KiB, by queue depth.
    pub(super) latency: Vec<Latency>,
    pub(super) notes: Vec<String>,
    /// Where the profile was stored; absent if it was not.
    pub(super) stored_in: Option<String>,
}

/// The measurements of one access pattern.
#[derive(Serialize, Debug)]
pub(crate) struct Grid {
    #[serde(skip)]
    pub(super) order: Option<Order>,
    pub(super) sizes_bytes: Vec<u64>,
    pub(super) depths: Vec<u32>,
    pub(super) cells: Vec<Rate>,
    pub(super) chosen: Choice,
    /// The fastest setting among those compared with the chosen one.
    pub(super) best: Setting,
    /// Whether memory was too small for settings that might be faster.
    #[serde(skip)]
    pub(super) ends_at_memory: bool,
}

#[derive(Serialize, Clone, Debug)]
pub(super) struct Rate {
    #[serde(flatten)]
    pub(super) setting: Setting,
    pub(super) mib_per_s: f64,
    pub(super) requests_per_s: f64,
    /// How often it was measured; the median counts.
    pub(super) measurements: usize,
}

#[derive(Serialize, Clone, Debug)]
pub(super) struct Choice {
    #[serde(flatten)]
    pub(super) setting: Setting,
    pub(super) queue_bytes: u64,
    pub(super) mib_per_s: f64,
    /// Of the measurements of this setting, the lowest and the highest.
    pub(super) mib_per_s_min: f64,
    pub(super) mib_per_s_max: f64,
    pub(super) requests_per_s: f64,
    pub(super) share_of_best: f64,
    pub(super) fio: String,
}

#[derive(Serialize, Clone, Debug)]
pub(super) struct Latency {
    pub(super) depth: u32,
    pub(super) mean_us: f64,
    pub(super) p99_us: f64,
    pub(super) requests_per_s: f64,
}

impl Grid {
    pub(super) fn new(order: Order, space: &Space, found: Found, file: &FioFile) -> Grid {
        let cells: Vec<Rate> = found.cells.iter().map(Rate::of).collect();
        let chosen = found.cells.iter().find(|cell| cell.setting == found.chosen);
        let chosen = chosen.expect("what is chosen was measured");
        let (rate, setting) = (Rate::of(chosen), found.chosen);
        let rates = || chosen.measured.iter().map(|measured| measured.bytes_per_s / MIB);
        let chosen = Choice {
            setting,
            queue_bytes: setting.queue_bytes(),
            mib_per_s: rate.mib_per_s,
            mib_per_s_min: rates().fold(f64::INFINITY, f64::min),
            mib_per_s_max: rates().fold(0.0, f64::max),
            requests_per_s: rate.requests_per_s,
            share_of_best: found.share_of_best,
            fio: fio(file, order, setting),
        };
        let (sizes_bytes, depths) = (space.sizes.clone(), space.depths.clone());
        let ends_at_memory = space.ends_at(found.best);
        Grid { order: Some(order), sizes_bytes, depths, cells, chosen, best: found.best, ends_at_memory }
    }

    /// A row for each size, a column for each depth; `None` where nothing was measured.
    pub(super) fn rows(&self) -> Vec<Vec<Option<f64>>> {
        let rate = |size_bytes, depth| {
            let setting = Setting { size_bytes, depth };
            self.cells.iter().find(|rate| rate.setting == setting).map(|rate| rate.mib_per_s)
        };
        let row = |&size: &u64| self.depths.iter().map(|&depth| rate(size, depth)).collect();
        self.sizes_bytes.iter().map(row).collect()
    }

    /// The row and the column of the choice.
    pub(super) fn chosen_at(&self) -> Option<(usize, usize)> {
        let Setting { size_bytes, depth } = self.chosen.setting;
        let row = self.sizes_bytes.iter().position(|&size| size == size_bytes)?;
        Some((row, self.depths.iter().position(|&known| known == depth)?))
    }

    /// A warning, if the measurements of the choice vary too much.
    pub(super) fn doubt(&self) -> Option<String> {
        let Choice { mib_per_s_min, mib_per_s_max, .. } = self.chosen;
        (mib_per_s_max > mib_per_s_min * BUSY).then(|| {
            format!(
                "{} of {} varied from {mib_per_s_min:.0} to {mib_per_s_max:.0} MiB/s: something else was busy; what was \
                 compared was measured in turn, but a repetition when it is quiet says more",
                self.title(),
                self.chosen.setting.words(),
            )
        })
    }

    pub(super) fn title(&self) -> &'static str {
        match self.order {
            Some(Order::Random) => "random reads",
            Some(Order::Write) => "sequential writes",
            Some(Order::Sequential) | None => "sequential reads",
        }
    }
}

impl Rate {
    pub(super) fn of(cell: &Cell) -> Rate {
        let bytes_per_s = cell.bytes_per_s();
        let requests_per_s = bytes_per_s / cell.setting.size_bytes as f64;
        let (setting, measurements) = (cell.setting, cell.measured.len());
        Rate { setting, mib_per_s: bytes_per_s / MIB, requests_per_s, measurements }
    }
}

impl Latency {
    pub(super) fn of(cell: &Cell) -> Latency {
        let requests_per_s = cell.bytes_per_s() / cell.setting.size_bytes as f64;
        Latency { depth: cell.setting.depth, mean_us: cell.mean_us(), p99_us: cell.p99_us(), requests_per_s }
    }
}

impl Report {
    pub(super) fn grids(&self) -> impl Iterator<Item = &Grid> {
        [&self.sequential, &self.random, &self.write].into_iter().flatten()
    }

    /// Whether memory, rather than the device, limited the choice.
    pub(super) fn ends_at_memory(&self) -> bool {
        self.grids().any(|grid| grid.ends_at_memory)
    }

    /// The profile to store; `None` without sequential reads.
    pub(super) fn profile(&self, measured_unix_s: u64) -> Option<Profile> {
        let tuned = |grid: &Grid| grid.chosen.setting.tuned(grid.chosen.mib_per_s * MIB);
        Some(Profile {
            device: self.device.words(),
            measured_unix_s,
            headwater: env!("CARGO_PKG_VERSION").to_owned(),
            sequential: self.sequential.as_ref().map(tuned)?,
            random: self.random.as_ref().map(tuned),
            write: self.write.as_ref().map(tuned),
        })
    }
}

/// The ratio of the highest to the lowest rate of a setting above which the machine was busy; on an idle machine it is at most half of
/// this.
const BUSY: f64 = 3.0;

/// The same by fio.
fn fio(file: &FioFile, order: Order, setting: Setting) -> String {
    let direction = match order {
        Order::Sequential => "read",
        Order::Random => "randread",
        Order::Write => "write",
    };
    let (block, depth) = (ByteSize(setting.size_bytes), setting.depth);
    let options = format!("--rw={direction} --ioengine=io_uring --direct=1 --bs={block} --iodepth={depth}");
    file.job("tune", &format!("{options} --mem=mmaphuge --time_based --runtime=5"))
}
