//! Search: the cheapest setting that reaches a device's rate, found with few measurements.
//!
//! ```text
//!   coarse points ─► climb: neighbours of the best ─► descend: cheaper neighbours of all that are nearly as good
//!       ┌──────────────────────────────────────────────────────────────────────┘
//!       └─► finalists in turn, round after round ─► knee ─► its cheaper neighbours against it, in the same way ─► knee
//! ```
//!
//! On a busy machine one short measurement is unreliable: it only decides what is measured next. The choice is made among a few
//! finalists, each measured several times, one directly after the other, by the median of the ratios within a round: a disturbance
//! that slows all of them for a while cancels out.
//!
//! Owns: which settings are measured for how long, and which one is chosen.
//! Does not own: measuring a setting, clocks: measurements report the time they took.
//! Invariants: the measurements stay within the budget, except for the coarse points and the first rounds, which a choice needs.

use std::time::Duration;

use super::setting::{Measured, Setting};
use headwater_measure::rounds::order;
use headwater_measure::{median, standard};

/// The sizes and depths to choose from, rising.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) sizes: Vec<u64>,
    pub(crate) depths: Vec<u32>,
    /// The most bytes in flight, at least the largest size: settings beyond it are left out.
    pub(crate) queue_bytes_max: u64,
}

/// A measured setting, and its measurements.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) setting: Setting,
    pub(crate) measured: Vec<Measured>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) cells: Vec<Cell>,
    /// The knee: the cheapest setting within [`TOLERANCE`] of the best.
    pub(crate) chosen: Setting,
    /// The setting of the highest rate.
    pub(crate) best: Setting,
    /// The rate of the chosen setting, as a share of the best.
    pub(crate) share_of_best: f64,
}

pub(crate) type Measure<'a> = &'a mut dyn FnMut(Setting, Duration) -> Result<Measured, String>;

/// Measures for as long as `budget`, and chooses.
///
/// # Errors
/// What `measure` reports.
pub(crate) fn search(space: &Space, budget: Duration, measure: Measure<'_>) -> Result<Found, String> {
    let mut search = Search { space, measure, grid: vec![None; space.cells()], took: Duration::ZERO };
    search.explore(budget.mul_f64(EXPLORE_SHARE))?;
    let (chosen, best, share_of_best) = search.decide(budget)?;
    let cells = search.grid.into_iter().flatten().collect();
    Ok(Found { cells, chosen, best, share_of_best })
}

impl Space {
    fn cells(&self) -> usize {
        self.sizes.len() * self.depths.len()
    }

    /// Whether there are so few settings that all of them can be finalists.
    fn is_small(&self) -> bool {
        self.cells() <= FINALISTS_LAST
    }

    fn at(&self, cell: usize) -> Setting {
        let (row, column) = (cell / self.depths.len(), cell % self.depths.len());
        Setting { size_bytes: self.sizes[row], depth: self.depths[column] }
    }

    fn fits(&self, cell: usize) -> bool {
        self.at(cell).queue_bytes() <= self.queue_bytes_max
    }

    /// Whether the search ended at the limit of memory, although settings beyond it are worth measuring.
    pub(crate) fn ends_at(&self, best: Setting) -> bool {
        let twice = best.queue_bytes() * 2;
        let most = Setting {
            size_bytes: *self.sizes.last().unwrap_or(&0),
            depth: *self.depths.last().unwrap_or(&0),
        };
        twice > self.queue_bytes_max && twice <= most.queue_bytes()
    }

    /// The setting this many rows and columns away, if there is one.
    fn beside(&self, cell: usize, (down, across): (isize, isize)) -> Option<usize> {
        let row = (cell / self.depths.len()).checked_add_signed(down)?;
        let column = (cell % self.depths.len()).checked_add_signed(across)?;
        let is_inside = row < self.sizes.len() && column < self.depths.len();
        is_inside.then(|| row * self.depths.len() + column).filter(|&cell| self.fits(cell))
    }

    /// A coarse grid of settings; all of them, if there is only one size, or few settings.
    fn coarse(&self) -> Vec<usize> {
        let rows = if self.sizes.len() <= COARSE_STEP { 1 } else { COARSE_STEP };
        let columns = if self.sizes.len() == 1 { 1 } else { COARSE_STEP };
        let from_top = (0..self.sizes.len()).rev().step_by(rows);
        let across = |row: usize| {
            (0..self.depths.len()).step_by(columns).map(move |column| row * self.depths.len() + column)
        };
        from_top.flat_map(across).filter(|&cell| self.fits(cell)).collect()
    }
}

struct Search<'a> {
    space: &'a Space,
    measure: Measure<'a>,
    grid: Vec<Option<Cell>>,
    took: Duration,
}

impl Search<'_> {
    /// Measures single cells where they promise most, until time is up.
    fn explore(&mut self, budget: Duration) -> Result<(), String> {
        let coarse = self.space.coarse();
        let expected = (coarse.len() + EXPECTED_STEPS).min(self.space.cells()) as u32;
        let slice = (budget / expected).max(SLICE_MIN);
        // Twice, some time apart: what disturbs one half hardly disturbs the other.
        for &cell in coarse.iter().chain(coarse.iter().rev()) {
            self.measure(cell, slice / 2)?;
        }
        while self.took < budget
            && let Some(cell) = self.next_cell()
        {
            self.measure(cell, slice)?;
        }
        Ok(())
    }

    fn measure(&mut self, cell: usize, slice: Duration) -> Result<f64, String> {
        standard::check_reader()?;
        let setting = self.space.at(cell);
        let measured = (self.measure)(setting, slice)?;
        self.took += measured.took;
        let known = self.grid[cell].get_or_insert_with(|| Cell { setting, measured: Vec::new() });
        known.measured.push(measured);
        Ok(measured.bytes_per_s)
    }

    /// The highest of the rates: a disturbance can only lower a rate.
    fn promise(&self, cell: usize) -> Option<f64> {
        let cell = self.grid[cell].as_ref()?;
        Some(cell.measured.iter().map(|measured| measured.bytes_per_s).fold(0.0, f64::max))
    }

    fn best(&self) -> usize {
        let promise = |cell: &usize| self.promise(*cell).unwrap_or(0.0);
        let best = (0..self.grid.len()).max_by(|left, right| promise(left).total_cmp(&promise(right)));
        best.expect("there are cells")
    }

    /// The settings within a share of the best rate, the cheapest first.
    fn within(&self, share: f64) -> Vec<usize> {
        let least = self.promise(self.best()).unwrap_or(0.0) * (1.0 - share);
        let reaches = |&cell: &usize| self.promise(cell).is_some_and(|rate| rate >= least);
        let mut within: Vec<usize> = (0..self.grid.len()).filter(reaches).collect();
        within.sort_by_key(|&cell| self.space.at(cell).cost());
        within
    }

    /// First beside the best; then beside all that could be as good, where it is no dearer than what is known to be; then
    /// once more what was measured there and seemed to be too slow.
    fn next_cell(&self) -> Option<usize> {
        let measured = |cell: usize| self.grid[cell].as_ref().map_or(0, |cell| cell.measured.len());
        let beside = |cell, steps: &'static [(isize, isize)]| {
            steps.iter().filter_map(move |&step| self.space.beside(cell, step))
        };
        if let Some(climb) = beside(self.best(), &AROUND).find(|&cell| measured(cell) == 0) {
            return Some(climb);
        }
        let good = self.within(DOUBT);
        let bound = self.space.at(*self.within(TOLERANCE).first()?).queue_bytes();
        let mut border: Vec<usize> = good.iter().flat_map(|&cell| beside(cell, &CHEAPER)).collect();
        border.retain(|&cell| self.space.at(cell).queue_bytes() <= bound);
        let new = border.iter().copied().filter(|&cell| measured(cell) == 0);
        let again = border.iter().copied().filter(|&cell| measured(cell) == 1 && !good.contains(&cell));
        // Each step halves the memory, so the cheap end of the good ones is near, however many there are.
        let cost = |&cell: &usize| self.space.at(cell).cost();
        new.min_by_key(cost).or_else(|| again.max_by_key(cost))
    }

    /// The cheapest of those that could be as good as the best, and the fastest.
    fn finalists(&self) -> Vec<usize> {
        if self.space.is_small() {
            return (0..self.grid.len()).filter(|&cell| self.space.fits(cell)).collect();
        }
        let mut good = self.within(DOUBT);
        let mut chosen: Vec<usize> = good.iter().copied().take(FINALISTS_CHEAP).collect();
        let promise = |cell: &usize| self.promise(*cell).unwrap_or(0.0);
        good.sort_by(|left, right| promise(right).total_cmp(&promise(left)));
        chosen.extend(good.into_iter().take(FINALISTS_FAST));
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    /// Finalists against each other; then what is chosen against all that is beside it and cheaper, until time
    /// is up: a good setting that was disturbed when it was looked at gets another chance.
    fn decide(&mut self, budget: Duration) -> Result<(Setting, Setting, f64), String> {
        let mut finalists = self.finalists();
        let contests = if self.space.is_small() { 1 } else { CONTESTS_MAX };
        for contest in 1.. {
            let left = budget.saturating_sub(self.took);
            let time = if contest < contests { left.mul_f64(CONTEST_SHARE) } else { left };
            let rounds = self.run_off(&mut finalists, self.took + time)?;
            let settings: Vec<Setting> = finalists.iter().map(|&cell| self.space.at(cell)).collect();
            let (chosen, best, ratio) = knee(&settings, &rounds);
            let decided = (settings[chosen], settings[best], ratio);
            if contest >= contests || self.took >= budget {
                return Ok(decided);
            }
            let (chosen, best) = (finalists[chosen], finalists[best]);
            // The dearer ones too, in case it fails: it may have been chosen by luck.
            let challengers = CHEAPER.iter().chain(&MUCH_CHEAPER).chain(&AROUND);
            finalists = challengers.filter_map(|&step| self.space.beside(chosen, step)).collect();
            finalists.extend([chosen, best]);
            finalists.sort_unstable();
            finalists.dedup();
        }
        unreachable!("the last contest returns")
    }

    /// Measures the finalists in turn until time is up, after some rounds only those that may still be chosen. Returns these, and
    /// their rates in each round.
    fn run_off(&mut self, finalists: &mut Vec<usize>, budget: Duration) -> Result<Vec<Vec<f64>>, String> {
        let left = budget.saturating_sub(self.took);
        let turns = finalists.len() * ROUNDS_FIRST + finalists.len().min(FINALISTS_LAST) * ROUNDS_LAST;
        let slice = (left / turns as u32).clamp(SLICE_MIN, SLICE_MAX);
        let mut rounds: Vec<Vec<f64>> = Vec::new();
        while rounds.len() < ROUNDS_FIRST || self.took + slice * finalists.len() as u32 <= budget {
            let mut rates = vec![0.0; finalists.len()];
            for index in order(finalists.len(), rounds.len() as u32) {
                rates[index] = self.measure(finalists[index], slice)?;
            }
            rounds.push(rates);
            if rounds.len() == ROUNDS_FIRST {
                self.thin_out(finalists, &mut rounds);
            }
            if rounds.len() >= ROUNDS_MAX {
                break;
            }
        }
        Ok(rounds)
    }

    /// Keeps the fastest finalist, and the cheapest ones that may still be near it.
    fn thin_out(&self, finalists: &mut Vec<usize>, rounds: &mut [Vec<f64>]) {
        let best = fastest(finalists.len(), rounds);
        let mut cheapest: Vec<usize> = (0..finalists.len()).collect();
        cheapest.sort_by_key(|&index| self.space.at(finalists[index]).cost());
        // Some of those that seem near enough, and some that seem nearly so: a few rounds cannot tell.
        let rates: &[Vec<f64>] = rounds;
        let reaching = |share: f64| {
            let reaches = move |index: &usize| ratio(rates, *index, best) >= 1.0 - share;
            cheapest.iter().copied().filter(reaches).take(FINALISTS_NEAR)
        };
        let mut kept: Vec<usize> =
            reaching(TOLERANCE * 2.0).chain(reaching(TOLERANCE)).chain([best]).collect();
        kept.sort_unstable();
        kept.dedup();
        *finalists = kept.iter().map(|&index| finalists[index]).collect();
        for rates in rounds {
            *rates = kept.iter().map(|&index| rates[index]).collect();
        }
    }
}

impl Cell {
    pub(crate) fn bytes_per_s(&self) -> f64 {
        median(self.measured.iter().map(|measured| measured.bytes_per_s))
    }

    pub(crate) fn mean_us(&self) -> f64 {
        median(self.measured.iter().map(|measured| measured.mean_us))
    }

    pub(crate) fn p99_us(&self) -> f64 {
        median(self.measured.iter().map(|measured| measured.p99_us))
    }
}

/// The cheapest within [`TOLERANCE`] of the best, the best, and the ratio between them. `rounds` have a rate for each of
/// the settings.
fn knee(settings: &[Setting], rounds: &[Vec<f64>]) -> (usize, usize, f64) {
    let best = fastest(settings.len(), rounds);
    let ratio = |index: usize| if index == best { 1.0 } else { ratio(rounds, index, best) };
    let near = (0..settings.len()).filter(|&index| ratio(index) >= 1.0 - TOLERANCE);
    let chosen = near.min_by_key(|&index| settings[index].cost()).expect("the best one is near itself");
    (chosen, best, ratio(chosen))
}

fn fastest(settings: usize, rounds: &[Vec<f64>]) -> usize {
    let rate = |index: &usize| median(rounds.iter().map(|rates| rates[*index]));
    let fastest = (0..settings).max_by(|left, right| rate(left).total_cmp(&rate(right)));
    fastest.expect("the best one is a finalist")
}

/// Of two rates, in the middle of the rounds. One in which the other moved nothing says nothing.
fn ratio(rounds: &[Vec<f64>], index: usize, other: usize) -> f64 {
    let valid = rounds.iter().filter(|rates| rates[other] > 0.0);
    median(valid.map(|rates| rates[index] / rates[other]))
}

/// The share of the best rate that the knee may lose.
pub(crate) const TOLERANCE: f64 = 0.03;

/// The error of a single measurement, in addition: rates of busy virtual machines differ by a tenth.
const DOUBT: f64 = 0.1;

/// The share of the budget for finding finalists; the rest is for measuring them.
const EXPLORE_SHARE: f64 = 0.45;

/// The coarse grid has every third size and depth, a factor of eight apart.
const COARSE_STEP: usize = 3;

/// Measurements that climbing and descending took in simulations.
const EXPECTED_STEPS: usize = 22;

const AROUND: [(isize, isize); 4] = [(0, 1), (1, 0), (0, -1), (-1, 0)];

/// Neighbours with half of the memory, or as much with other sizes.
const CHEAPER: [(isize, isize); 6] = [(-1, 0), (0, -1), (-1, 1), (1, -1), (-2, 1), (1, -2)];

/// Settings with a quarter of the memory, and with a sixteenth.
const MUCH_CHEAPER: [(isize, isize); 4] = [(-1, -1), (-2, 0), (-2, -2), (-3, -1)];

const FINALISTS_CHEAP: usize = 9;
const FINALISTS_FAST: usize = 3;

/// Finalists after the first rounds: this many within the tolerance, as many just outside, and the best.
const FINALISTS_NEAR: usize = 3;
const FINALISTS_LAST: usize = 2 * FINALISTS_NEAR + 1;

/// The most contests: enough to reach the cheapest setting from a disturbed start at eight times its memory.
const CONTESTS_MAX: u32 = 4;

/// The share of the time left that one contest takes, except for the last.
const CONTEST_SHARE: f64 = 0.45;

/// Rounds before finalists drop out: odd, so that there is a median.
const ROUNDS_FIRST: usize = 5;
const ROUNDS_LAST: usize = 12;
const ROUNDS_MAX: usize = 61;

/// The shortest measurement: some turns of the queue of any flash device.
const SLICE_MIN: Duration = Duration::from_millis(15);

/// The longest measurement. A round has to be shorter than a disturbance, or its ratios are wrong: a second for eight finalists.
const SLICE_MAX: Duration = Duration::from_millis(120);

#[cfg(test)]
mod tests;
