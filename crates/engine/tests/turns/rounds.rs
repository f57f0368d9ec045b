//! Rounds: games by the thousand, over every combination, each from a seed that replays it.
//!
//! ```text
//!   HEADWATER_TURNS_CASE set? ─ yes ─► that game alone, made shorter if it fails
//!   HEADWATER_TURNS set? ────── yes ─► so many operations over the whole matrix, on three threads, and a table (`just turns`)
//!                        └───── no ──► combinations drawn from the seed, for some seconds
//! ```
//!
//! Owns: which games are played, what is printed of one that fails, the table.
//! Does not own: a game.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater_testkit::{Rng, ScratchDir, mix, watched, with_seed};

use crate::combination::{Combination, combinations, places};
use crate::draw::Patience;
use crate::foreign::Stranger;
use crate::game::{Case, Counts, Game, Player, STEPS_MAX};

/// Goal: whatever headwater and another program do to a file in turn, no byte of either is lost and none is read that is older
/// than the contract says. Method: games on combinations drawn from the seed; with `HEADWATER_TURNS` on all of them.
#[test]
fn turns_lose_nothing_and_read_nothing_stale() {
    const NAME: &str = "rounds::turns_lose_nothing_and_read_nothing_stale";
    with_seed(NAME, |seed| {
        let places = places();
        let combinations = combinations(&places);
        match (std::env::var("HEADWATER_TURNS_CASE"), std::env::var("HEADWATER_TURNS")) {
            (Ok(case), _) => replay(&case, &combinations, &places),
            (_, Ok(operations)) => {
                let wanted = operations.parse().expect("HEADWATER_TURNS is a number of operations");
                play_matrix(seed, wanted, &combinations, &places);
            }
            _ => play_some(seed, &combinations, &places),
        }
    });
}

/// Goal: the games themselves find nothing wrong where nothing is. Method: an ideal program plays in headwater's place.
#[test]
fn an_ideal_program_passes() {
    with_seed("rounds::an_ideal_program_passes", |seed| {
        let (places, mut rng) = ([("default", ScratchDir::on_target().unwrap())], Rng::new(seed));
        let (combinations, mut stranger) = (combinations(&places), Stranger::new());
        let games =
            if std::env::var_os("HEADWATER_TURNS").is_some() { 30 * IDEAL_GAMES } else { IDEAL_GAMES };
        for _ in 0..games {
            let combination = combinations[rng.below(combinations.len() as u64) as usize];
            let (seed, patience, player) = (rng.next_u64(), Patience::Short, Player::Ideal);
            let (_, played) = play(&Case { combination, seed, patience, player }, &mut stranger, &places, 0);
            played.unwrap_or_else(|report| panic!("{report}"));
        }
    });
}

type Places = [(&'static str, ScratchDir)];

fn play_some(seed: u64, combinations: &[Combination], places: &Places) {
    let (mut rng, mut stranger) = (Rng::new(seed), Stranger::new());
    let (end, mut total, mut games) = (Instant::now() + BUDGET, Counts::default(), 0);
    while Instant::now() < end {
        let number = rng.below(combinations.len() as u64) as usize;
        let case = Case {
            combination: combinations[number],
            seed: rng.next_u64(),
            patience: Patience::Short,
            player: Player::Headwater,
        };
        let (counts, played) = play(&case, &mut stranger, places, 0);
        total.add(counts);
        games += 1;
        if let Err(report) = played {
            panic!("HEADWATER_TURNS_CASE={number}/{:#x} plays this again: {report}", case.seed);
        }
    }
    let Counts { operations, bytes } = total;
    println!("{games} games, {operations} operations, {} MiB compared", bytes >> 20);
}

/// `combination/seed`, as it is printed when a game fails.
fn replay(text: &str, combinations: &[Combination], places: &Places) {
    let (number, seed) = text.split_once('/').expect("combination/seed");
    let combination = combinations[number.parse::<usize>().expect("the number of a combination")];
    let seed = u64::from_str_radix(seed.trim_start_matches("0x"), 16).expect("a seed in hexadecimal digits");
    let patience =
        if std::env::var_os("HEADWATER_TURNS").is_some() { Patience::Long } else { Patience::Short };
    let case = Case { combination, seed, patience, player: Player::Headwater };
    let (counts, played) = play(&case, &mut Stranger::new(), places, 0);
    println!("{}: {} operations", combination.name(places), counts.operations);
    if let Err(report) = played {
        panic!("{report}without what can be left out: {}", shorten(&case, places).unwrap_or_default());
    }
}

/// What is known of a combination.
#[derive(Clone, Debug, Default)]
struct Row {
    counts: Counts,
    games: u64,
    wrong: u64,
    /// The first game that failed.
    report: String,
}

fn play_matrix(seed: u64, wanted: u64, combinations: &[Combination], places: &Places) {
    let rows = Mutex::new(vec![Row::default(); combinations.len()]);
    let (next, done, start) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (rows, next, done) = (&rows, &next, &done);
            scope.spawn(move || {
                let mut stranger = Stranger::new();
                while done.load(Ordering::Relaxed) < wanted {
                    let game = next.fetch_add(1, Ordering::Relaxed);
                    let number = game as usize % combinations.len();
                    let case = Case {
                        combination: combinations[number],
                        seed: mix(seed ^ mix(game)),
                        patience: Patience::Long,
                        player: Player::Headwater,
                    };
                    let (counts, played) = play(&case, &mut stranger, places, worker);
                    done.fetch_add(counts.operations, Ordering::Relaxed);
                    let row = &mut rows.lock().unwrap()[number];
                    row.counts.add(counts);
                    row.games += 1;
                    if let Err(report) = played {
                        row.wrong += 1;
                        row.report = format!("HEADWATER_TURNS_CASE={number}/{:#x}: {report}", case.seed);
                        // It may be out of step.
                        stranger = Stranger::new();
                    }
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap();
    print_table(&rows, combinations, places, start.elapsed());
    let reports: Vec<&str> = rows.iter().filter(|row| row.wrong > 0).map(|row| row.report.as_str()).collect();
    assert!(
        reports.is_empty(),
        "{} of {} combinations are wrong; one game of some:\n{}",
        reports.len(),
        rows.len(),
        reports[..reports.len().min(REPORTS_MAX)].join("\n")
    );
}

fn print_table(rows: &[Row], combinations: &[Combination], places: &Places, time: Duration) {
    println!(
        "{:60} {:>10} {:>14} {:>7} {:>6}",
        "combination", "operations", "bytes compared", "games", "wrong"
    );
    let mut total = Row::default();
    for (row, combination) in rows.iter().zip(combinations) {
        print_row(&combination.name(places), row);
        total.counts.add(row.counts);
        (total.games, total.wrong) = (total.games + row.games, total.wrong + row.wrong);
    }
    print_row(&format!("all, in {:.0} s", time.as_secs_f64()), &total);
}

fn print_row(name: &str, row: &Row) {
    let Counts { operations, bytes } = row.counts;
    println!("{name:60} {operations:>10} {bytes:>14} {:>7} {:>6}", row.games, row.wrong);
}

fn play(
    case: &Case,
    stranger: &mut Stranger,
    places: &Places,
    worker: usize,
) -> (Counts, Result<(), String>) {
    play_without(&BTreeSet::new(), case, stranger, places, worker)
}

/// Plays without some of the steps.
fn play_without(
    left_out: &BTreeSet<u64>,
    case: &Case,
    stranger: &mut Stranger,
    places: &Places,
    worker: usize,
) -> (Counts, Result<(), String>) {
    let name = format!("{} {:#x}", case.combination.name(places), case.seed);
    let directory = places[case.combination.place].1.path().join(worker.to_string());
    std::fs::create_dir_all(&directory).unwrap();
    watched(&name, || {
        let mut game = Game::new(case, left_out, stranger, &directory);
        let played = catch_unwind(AssertUnwindSafe(|| game.play(turns(case))));
        let played = played.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(format!("panicked: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("")))
        });
        let report = |error| format!("{name}: {error}\n{}", last_steps(&game.log, &directory));
        (game.counts, played.map_err(report))
    })
}

fn turns(case: &Case) -> u64 {
    8 + case.seed % TURNS
}

/// Leaves out turns and steps for as long as the game fails without them, and says how it fails then.
fn shorten(case: &Case, places: &Places) -> Option<String> {
    let (mut left_out, mut report, start) = (BTreeSet::new(), None, Instant::now());
    let steps = (0..turns(case) * STEPS_MAX).filter(|step| step % STEPS_MAX != 0);
    let candidates: Vec<u64> = (0..turns(case)).map(|turn| turn * STEPS_MAX).chain(steps).collect();
    let mut is_shorter = true;
    while is_shorter {
        is_shorter = false;
        for &step in &candidates {
            if start.elapsed() > SHORTENING || !left_out.insert(step) {
                continue;
            }
            // What depends on the order of threads does not fail each time.
            let mut fails =
                (0..2).filter_map(|_| play_without(&left_out, case, &mut Stranger::new(), places, 0).1.err());
            match fails.next() {
                Some(shorter) => (report, is_shorter) = (Some(shorter), true),
                None => drop(left_out.remove(&step)),
            }
        }
    }
    report
}

fn last_steps(log: &[String], directory: &Path) -> String {
    let last: String =
        log[log.len().saturating_sub(LOGGED)..].iter().map(|step| format!("    {step}\n")).collect();
    format!("in {}, the last of {} steps:\n{last}", directory.display(), log.len())
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.operations += other.operations;
        self.bytes += other.bytes;
    }
}

/// A game has up to so many, and eight.
const TURNS: u64 = 40;

/// What the test takes in the ordinary run, beside making the file systems.
const BUDGET: Duration = Duration::from_secs(12);

/// With the ideal program.
const IDEAL_GAMES: usize = 60;

/// How long a shorter game is looked for.
const SHORTENING: Duration = Duration::from_secs(60);
const WORKERS: usize = 3;
const LOGGED: usize = 25;
const REPORTS_MAX: usize = 40;
