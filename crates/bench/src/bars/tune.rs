//! Tune: the setting that `headwater tune` chooses, against the best of fio's whole grid, both measured by fio.
//!
//! Owns: the grid, what is compared, the bars.
//! Does not own: the search (the command's).

use std::io;
use std::process::{Command, Stdio};

use headwater_measure::child;
use serde::Deserialize;

use super::Cache;
use super::{Contest, Runner, rate};
use crate::tools;
use headwater_measure::verdict::{Limit, detail, report};

impl Contest<'_> {
    pub(super) fn tune(&self) -> io::Result<()> {
        let best = self.best_of_grid()?;
        let chosen = self.chosen()?;
        let arms = [chosen, best].map(|setting| Runner::Fio(setting.fio(COMPARED_SECONDS)));
        let rounds = self.options.rounds.max(ROUNDS_MIN);
        let samples = self.rounds_of(&arms, Cache::Cold, rounds)?;
        let (ours, theirs) = (rate(&samples[0]), rate(&samples[1]));
        detail(&format!("tune chose {}: {ours:.0} MiB/s in fio", chosen.words()))?;
        detail(&format!("the best of fio's grid {}: {theirs:.0} MiB/s", best.words()))?;
        report("tune, the chosen setting : the best of fio's grid", ours / theirs, Limit::AtLeast(0.97))?;
        let memory = chosen.queue_bytes() as f64 / best.queue_bytes() as f64;
        report("  its queue memory : that of the best", memory, Limit::AtMost(1.0))
    }

    /// Each setting once, in a short run; the highest rate.
    fn best_of_grid(&self) -> io::Result<Setting> {
        let mut best: Option<(f64, Setting)> = None;
        tools::make_cold(self.file)?;
        for size_kib in SIZES_KIB {
            for depth in DEPTHS {
                let setting = Setting { size_bytes: size_kib << 10, depth };
                let rate = tools::fio(self.file, &setting.fio(GRID_SECONDS))?.mib_per_s;
                if best.is_none_or(|(highest, _)| rate > highest) {
                    best = Some((rate, setting));
                }
            }
        }
        let (highest, setting) = best.expect("the grid has settings");
        detail(&format!("fio's grid of {}: {highest:.0} MiB/s at {}", GRID, setting.words()))?;
        Ok(setting)
    }

    /// What the command says, without storing it.
    fn chosen(&self) -> io::Result<Setting> {
        let mut command = Command::new(&self.options.headwater);
        command.arg("tune").arg(self.file).args(["--dry-run", "--json"]).stdin(Stdio::null());
        let tuned: Tuned = child::result(&mut command, None)?;
        Ok(tuned.sequential.chosen)
    }
}

#[derive(Deserialize)]
struct Tuned {
    sequential: Grid,
}

#[derive(Deserialize)]
struct Grid {
    chosen: Setting,
}

#[derive(Deserialize, Clone, Copy)]
struct Setting {
    size_bytes: u64,
    depth: u64,
}

impl Setting {
    fn fio(self, seconds: f64) -> Vec<String> {
        vec![
            "--rw=read".to_owned(),
            format!("--bs={}", self.size_bytes),
            format!("--iodepth={}", self.depth),
            "--mem=mmaphuge".to_owned(),
            "--time_based".to_owned(),
            format!("--runtime={}ms", (seconds * 1000.0) as u64),
        ]
    }

    fn queue_bytes(self) -> u64 {
        self.size_bytes * self.depth
    }

    fn words(self) -> String {
        format!("{} KiB x {}", self.size_bytes >> 10, self.depth)
    }
}

const SIZES_KIB: [u64; 10] = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

const DEPTHS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

const GRID: usize = SIZES_KIB.len() * DEPTHS.len();

/// Seventy settings in a minute and a half, fio's own start included.
const GRID_SECONDS: f64 = 1.0;

const COMPARED_SECONDS: f64 = 2.0;

const ROUNDS_MIN: u32 = 5;
