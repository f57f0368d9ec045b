//! Cat: seven steps to a fast cat, and all other ways, with a warm and with a cold file.
//!
//! Question: How fast does a file get to standard output, step by step and beside other programs?
//!
//! ```text
//!   once: each way's bytes ─► pipe ─► the same sum?        zero ─► null in blocks of all sizes ─► the best
//!   rounds × states × ways: warm or cold, looked at ─► a process: file ─► way ─► /dev/null ─► time, processor time
//!                                                 ─► medians, mean ± σ, range, outliers ─► report, hyperfine's JSON
//! ```
//!
//! Owns: the order, the state of the page cache before each row, the clocks.
//! Does not own: what the ways are (`ways`), the steps' loops (`steps`), the words (`report`).

mod also;
mod arguments;
mod hyperfine;
mod report;
mod steps;
mod ways;

use std::fs::File;
use std::io::{self, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use headwater::testing::wait_for_child;
use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_measure::process::{available_memory_bytes, forget_peak_rss, page_cache_drops};
use headwater_measure::{Findings, rounds, standard};
use indicatif::ProgressBar;
use os_display::Quotable;
use xxhash_rust::xxh3::Xxh3;

pub(crate) use arguments::{CatSuiteArguments, EXAMPLES};
pub(super) use report::TITLE;
pub(super) use steps::run as run_row;

use super::results::Results;
use crate::shared::output;
use crate::shared::target::{Fitting, Target, Wanted};
use crate::shared::units::{ByteSize, readable};
use also::Also;
use hyperfine::Export;
use steps::{Sweep, sweep};
use ways::{Way, Ways};

pub(super) struct Plan {
    /// Of a file that was made for this: more of it is not read.
    pub(super) cold_bytes: u64,
    pub(super) warm_bytes: u64,
    pub(super) rounds: u32,
    /// Rounds before those, which do not count.
    warmup: u32,
    /// No round begins later than this.
    pub(super) limit: Duration,
    also: Vec<Also>,
}

impl Plan {
    /// Two states of eleven ways: 6 s on a fast device, at least one round on a slow one.
    pub(super) fn quick() -> Plan {
        Plan {
            cold_bytes: QUICK_BYTES,
            warm_bytes: QUICK_BYTES,
            rounds: QUICK_ROUNDS,
            warmup: 0,
            limit: QUICK_LIMIT,
            also: Vec::new(),
        }
    }
}

/// What the page cache holds of the file when a way begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Warm,
    Cold,
}

impl State {
    const ALL: [State; 2] = [State::Warm, State::Cold];

    /// For the JSON.
    fn id(self) -> &'static str {
        match self {
            State::Warm => "warm",
            State::Cold => "cold",
        }
    }
}

/// A way in a state, and what it took in each round.
struct Outcome {
    state: State,
    /// Of [`Ways`].
    way: usize,
    rounds: Vec<Measured>,
}

impl Outcome {
    fn seconds(&self) -> Vec<f64> {
        self.rounds.iter().map(|measured| measured.seconds).collect()
    }
}

/// One process.
struct Measured {
    bytes: u64,
    seconds: f64,
    user_seconds: f64,
    system_seconds: f64,
    peak_resident_bytes: u64,
    /// Of the file, in the page cache before; `None` where the kernel does not tell.
    resident_share: Option<f64>,
    /// Whether the state was as it should be, as far as can be told.
    was_so: bool,
}

pub(super) fn run(arguments: &CatSuiteArguments) -> Result<(), String> {
    let place = &arguments.place;
    arguments.also.iter().try_for_each(Also::check)?;
    let export_to = arguments.export_json.as_deref();
    let mut results = Results::begin(&place.results, export_to, arguments.file.as_deref())?;
    let wanted = match &arguments.file {
        Some(path) => Wanted::Existing { path: path.clone(), limit: None },
        None => {
            Wanted::New { dir: place.dir.clone(), size: arguments.size, fitting: Fitting::Exact("--size") }
        }
    };
    let (cold_bytes, warm_bytes) = (arguments.size.0, arguments.warm.0);
    let plan = Plan {
        cold_bytes,
        warm_bytes,
        rounds: arguments.rounds,
        warmup: arguments.warmup,
        limit: Duration::MAX,
        also: arguments.also.clone(),
    };
    let (findings, export) = run_contest(&plan, &Target::prepare(&wanted)?)?;
    results.add(findings)?;
    results.end(|| export_to.map_or(Ok(()), |path| output::write_file(path, &output::json(&export))))
}

/// Measures all ways in both states.
///
/// # Errors
/// One sentence for the user.
pub(super) fn run_plan(plan: &Plan, target: &Target) -> Result<Findings, String> {
    run_contest(plan, target).map(|(findings, _)| findings)
}

fn run_contest(plan: &Plan, target: &Target) -> Result<(Findings, Export), String> {
    let own_cold = smaller(target, plan.cold_bytes);
    let cold = own_cold.as_ref().unwrap_or(target);
    let own_warm = smaller(cold, plan.warm_bytes);
    let warm = own_warm.as_ref().unwrap_or(cold);
    let dropped_before = page_cache_drops();
    let mut contest = Contest::new(cold, warm, &plan.also)?;
    let progress = rounds::bar(contest.ways.all.len() as u64 + contest.steps_of(plan.warmup + plan.rounds));
    for way in 0..contest.ways.all.len() {
        progress.set_message(format!("checking {}", contest.ways.all[way].name));
        progress.tick();
        contest.verify(way)?;
        progress.inc(1);
    }
    for round in 0..plan.warmup {
        contest.round(round, &progress)?;
    }
    contest.outcomes.iter_mut().for_each(|outcome| outcome.rounds.clear());
    let started = Instant::now();
    let mut done = 0;
    while done < plan.rounds && (done == 0 || started.elapsed() < plan.limit) {
        contest.round(done, &progress)?;
        done += 1;
    }
    progress.finish_and_clear();
    contest.drop_failed();
    let drops = page_cache_drops().zip(dropped_before).map_or(0, |(after, before)| after - before);
    let counts = Counts { rounds: done, warmup: plan.warmup, page_cache_drops: drops };
    Ok((report::report(&contest, target, counts).findings(), Export::of(&contest)))
}

/// What has happened.
#[derive(Clone, Copy)]
struct Counts {
    rounds: u32,
    warmup: u32,
    page_cache_drops: u64,
}

/// A file beside one that was made here and is larger than wanted. Where there is no room the larger one has to do.
fn smaller(target: &Target, bytes: u64) -> Option<Target> {
    if !target.is_made || target.bytes <= bytes {
        return None;
    }
    let (dir, size) = (Some(target.path.clone()), ByteSize(bytes));
    Target::prepare(&Wanted::New { dir, size, fitting: Fitting::Exact("--warm") }).ok()
}

struct Contest<'a> {
    cold: &'a Target,
    warm: &'a Target,
    ways: Ways,
    sweep: Sweep,
    outcomes: Vec<Outcome>,
    /// Which ways are of the user's and write something else than the file.
    others: Vec<usize>,
    /// Why there are no warm rows.
    warm_refusal: Option<String>,
    /// Of all bytes that are read of the warm file, and of those that a byte at a time is measured with.
    sums: [u64; 2],
}

impl<'a> Contest<'a> {
    fn new(cold: &'a Target, warm: &'a Target, also: &[Also]) -> Result<Contest<'a>, String> {
        let failed = |error: io::Error| format!("failed to measure cat: {error}");
        let sweep = sweep().map_err(failed)?;
        let (ways, others) = (Ways::here(cold, sweep.best_bytes, also).map_err(failed)?, Vec::new());
        let warm_refusal = reason_not_to_warm(warm);
        let states = State::ALL.into_iter().filter(|&state| state == State::Cold || warm_refusal.is_none());
        let outcomes = states
            .flat_map(|state| (0..ways.all.len()).map(move |way| Outcome { state, way, rounds: Vec::new() }));
        let outcomes = outcomes.collect();
        let sums = [sum_of_file(warm, u64::MAX), sum_of_file(warm, steps::SLICE_BYTES)];
        let [Ok(whole), Ok(slice)] = sums else {
            return Err(format!("failed to read {}", warm.path.maybe_quote()));
        };
        Ok(Contest { cold, warm, ways, sweep, outcomes, others, warm_refusal, sums: [whole, slice] })
    }

    fn steps_of(&self, rounds: u32) -> u64 {
        u64::from(rounds) * self.outcomes.len() as u64
    }

    fn target(&self, state: State) -> &Target {
        match state {
            State::Warm => self.warm,
            State::Cold => self.cold,
        }
    }

    /// All ways deliver the same bytes, or the table is worthless. Commands of the user's may deliver others: then they are no cats,
    /// and no rivals; the user hears at once of one that fails. Other programs that fail have no rows.
    fn verify(&mut self, index: usize) -> Result<(), String> {
        let way = &self.ways.all[index];
        match self.delivers_file(way) {
            Ok(true) => Ok(()),
            Ok(false) if way.also.is_some() => {
                self.others.push(index);
                Ok(())
            }
            Ok(false) => self.give_up(index, |name| {
                format!("{name} delivers other bytes than the file has: has it changed?")
            }),
            Err(error) if way.also.is_some() => Err(format!("failed to run {}: {error}", way.name)),
            Err(error) => self.give_up(index, |name| format!("failed to run {name}: {error}")),
        }
    }

    fn delivers_file(&self, way: &Way) -> io::Result<bool> {
        let mut ready = way.ready(self.warm)?;
        let mut child = ready.command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().expect("it was asked for");
        let sum = sum_of(output);
        ready.check(child.wait()?)?;
        Ok(sum? == self.sums[usize::from(way.is_slice())])
    }

    /// Takes a way out of the contest, as one that failed.
    ///
    /// # Errors
    /// The failure of one of the seven: without them there is no contest, and a loop of reads and writes fails for a reason of the file.
    fn give_up(&mut self, index: usize, failure: impl Fn(&str) -> String) -> Result<(), String> {
        let way = &mut self.ways.all[index];
        if way.is_step() {
            return Err(failure(&way.name));
        }
        way.failure = Some(failure("it"));
        Ok(())
    }

    /// Measures all ways in all states once, but for those that have failed.
    fn round(&mut self, round: u32, progress: &ProgressBar) -> Result<(), String> {
        for index in rounds::order(self.outcomes.len(), round) {
            standard::check_reader()?;
            let Outcome { state, way, .. } = self.outcomes[index];
            progress.set_message(format!("{}, {}", state.id(), self.ways.all[way].name));
            progress.tick();
            if self.ways.all[way].failure.is_none() {
                match self.measure(state, way) {
                    Ok(measured) => self.outcomes[index].rounds.push(measured),
                    Err(error) => self.give_up(way, |name| format!("failed to measure {name}: {error}"))?,
                }
            }
            progress.inc(1);
        }
        Ok(())
    }

    fn measure(&self, state: State, way: usize) -> io::Result<Measured> {
        let (target, way) = (self.target(state), &self.ways.all[way]);
        let (resident_share, was_so) = match state {
            State::Warm => warm_up(target)?,
            State::Cold => {
                let was_cold = target.make_cold();
                (resident_share(target), was_cold)
            }
        };
        let mut ready = way.ready(target)?;
        ready.command.stdout(Stdio::null());
        forget_peak_rss();
        let started = Instant::now();
        let ended = ready.command.spawn().and_then(wait_for_child)?;
        let seconds = started.elapsed().as_secs_f64();
        ready.check(ended.status)?;
        Ok(Measured {
            bytes: way.bytes_of(target),
            seconds,
            user_seconds: ended.user_time.as_secs_f64(),
            system_seconds: ended.system_time.as_secs_f64(),
            peak_resident_bytes: ended.peak_resident_bytes,
            resident_share,
            was_so,
        })
    }

    /// Leaves out the rows of ways that have failed.
    fn drop_failed(&mut self) {
        let ways = &self.ways.all;
        self.outcomes.retain(|outcome| ways[outcome.way].failure.is_none());
    }
}

/// Reads the file until the page cache has all of it. Returns how much it has, and whether that is all.
fn warm_up(target: &Target) -> io::Result<(Option<f64>, bool)> {
    for _ in 0..WARM_ATTEMPTS_MAX {
        if resident_share(target).is_some_and(|share| share >= 1.0) {
            break;
        }
        sum_of_file(target, u64::MAX)?;
    }
    let share = resident_share(target);
    Ok((share, share.is_none_or(|share| share >= 1.0)))
}

fn resident_share(target: &Target) -> Option<f64> {
    let pages = target.bytes.div_ceil(PAGE_SIZE_BYTES);
    target.resident_pages().map(|resident| resident as f64 / pages as f64)
}

/// XXH3 of what a file begins with.
fn sum_of_file(target: &Target, bytes: u64) -> io::Result<u64> {
    sum_of(File::open(target.input_path())?.take(bytes))
}

fn sum_of(mut bytes: impl Read) -> io::Result<u64> {
    let (mut hasher, mut buffer) = (Xxh3::new(), vec![0; SUM_BUFFER_BYTES]);
    loop {
        match bytes.read(&mut buffer) {
            Ok(0) => return Ok(hasher.digest()),
            Ok(read_bytes) => hasher.update(&buffer[..read_bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn reason_not_to_warm(target: &Target) -> Option<String> {
    let available_bytes = available_memory_bytes()?;
    (target.bytes > available_bytes / 4 * 3).then(|| {
        let (bytes, available) = (readable(target.bytes), readable(available_bytes));
        format!("the file has {bytes}, of memory {available} are available")
    })
}

const WARM_ATTEMPTS_MAX: u32 = 3;

const SUM_BUFFER_BYTES: usize = 256 << 10;

/// A hundred times of what a process takes to start.
const QUICK_BYTES: u64 = 256 << 20;

const QUICK_ROUNDS: u32 = 3;

const QUICK_LIMIT: Duration = Duration::from_secs(5);
