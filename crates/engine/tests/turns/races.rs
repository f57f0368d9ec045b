//! Races: a stranger that changes a file all the time while headwater writes to it and syncs.
//!
//! ```text
//!   stranger: page 3 ─ page 3 ─ page 3 ─ … ─ stop ─► its last number
//!   ours:     page 0 ─ sync ─ page 0 ─ sync ─────────────────────────► a look ─► both numbers, here and on disk
//! ```
//!
//! So some foreign write falls between a write of ours and the look that follows it, sooner or later.
//!
//! Owns: what each of both wrote last is there when they have stopped.
//! Does not own: what is read while they write.

use std::time::{Duration, Instant};

use headwater::{Coherence, File};
use headwater_testkit::{Rng, ScratchDir, watched, with_seed};

use crate::api::{is_checked, refresh};
use crate::combination::{Combination, Driver, For, drivers, engine_on, ways};
use crate::contents::{bytes, line, numbered_page};
use crate::foreign::Stranger;

/// Goal: a write of others that falls between our own write and our look at the file is not taken for ours: what they wrote
/// last is seen, and stays on disk. Method: as above, in every way to open a file, with many tries.
#[test]
fn foreign_writes_among_ours_are_seen() {
    with_seed("races::foreign_writes_among_ours_are_seen", |seed| {
        race(seed, |race, rng| {
            let file = race.open();
            race.stranger.tell("pages 3");
            let count = 1 + rng.below(5);
            for number in 1..=count {
                file.write_all_at(&numbered_page(number), 0).unwrap();
                if rng.chance(1, 2) {
                    // Which makes it a page that is cached.
                    let _ = page(&file, 3);
                }
                file.sync_data().unwrap();
            }
            let last = race.stranger.tell("stop");
            race.look(&file, rng);
            race.expect("their page", page(&file, 3) == numbered_page(last));
            race.expect("our page", page(&file, 0) == numbered_page(count));
            file.write_all_at(&[1], 2 * 4096).unwrap();
            file.sync_data().unwrap();
            let disk = std::fs::read(&race.path).unwrap();
            race.expect("their page on disk", disk[3 * 4096..4 * 4096] == numbered_page(last));
            race.expect("our page on disk", disk[..4096] == numbered_page(count));
        });
    });
}

/// Goal: a program that writes to a file which headwater has just closed without a sync does not meet a direct write: no sync fails,
/// and only the bytes that both wrote are in doubt. Method: whole pages of headwater's, and a few foreign bytes in one of them,
/// some moment after the close.
#[test]
fn foreign_writes_after_a_close_meet_no_direct_write() {
    with_seed("races::foreign_writes_after_a_close_meet_no_direct_write", |seed| {
        race(seed, |race, rng| {
            for round in 0..5 {
                let (ours, at) = (bytes(round, 6 * 4096), rng.below(5 * 4096) as usize);
                let file = race.open();
                file.write_all_at(&ours, 0).unwrap();
                drop(file);
                let (began, pause) = (Instant::now(), Duration::from_micros(rng.below(300)));
                while began.elapsed() < pause {
                    std::hint::spin_loop();
                }
                race.stranger.tell(&format!("write {at} 1000 {}", round + 100));
                let (file, bystander) = (race.open(), std::fs::File::open(&race.path).unwrap());
                race.expect("our sync", file.sync_data().is_ok());
                race.expect("the sync of a bystander", bystander.sync_all().is_ok());
                let (found, theirs) = (std::fs::read(&race.path).unwrap(), bytes(round + 100, 1000));
                let is_theirs = |place| place >= at && theirs.get(place - at) == Some(&found[place]);
                let is_right = (0..ours.len()).all(|place| found[place] == ours[place] || is_theirs(place));
                race.expect("what is on disk", is_right && found.len() == ours.len());
            }
        });
    });
}

/// Goal: lines that others append while we write to the pages before them, and to the beginning of the page that they append
/// to, are all there, whole, and are seen.
#[test]
fn foreign_appends_among_our_writes_are_kept() {
    with_seed("races::foreign_appends_among_our_writes_are_kept", |seed| {
        race(seed, |race, rng| {
            let (file, start) = (race.open(), 4 * 4096 + 100);
            file.set_len(start).unwrap();
            race.stranger.tell("appends");
            let count = 1 + rng.below(5);
            for number in 1..=count {
                // To the end of what the file had at first: behind that all is theirs.
                file.write_all_at(&bytes(number, 300), start - 300).unwrap();
                file.sync_data().unwrap();
            }
            let lines: String = (0..race.stranger.tell("stop")).map(|number| line('s', number)).collect();
            race.look(&file, rng);
            let mut expected = vec![0; start as usize - 300];
            expected.extend(bytes(count, 300));
            expected.extend(lines.as_bytes());
            let mut found = vec![0; expected.len() + 1000];
            let length = file.read_at(&mut found, 0).unwrap();
            race.expect("what headwater reads", found[..length] == expected);
            race.expect("what is on disk", std::fs::read(&race.path).unwrap() == expected);
        });
    });
}

/// Goal: neither headwater nor a bystander gets an error from a sync while another program writes to the pages that headwater
/// writes to. Method: the stranger fills one page all the time, which stays dirty in the kernel; headwater writes that page and
/// those around it, in one piece, and syncs.
#[test]
fn no_sync_fails_beside_foreign_writes() {
    with_seed("races::no_sync_fails_beside_foreign_writes", |seed| {
        race(seed, |race, rng| {
            let (file, bystander) = (race.open(), std::fs::File::open(&race.path).unwrap());
            race.stranger.tell("pages 3");
            let mut synced = true;
            for number in 0..10 {
                file.write_all_at(&bytes(number, 40_000), rng.below(3) * 1000).unwrap();
                synced &= file.sync_data().is_ok();
            }
            race.stranger.tell("stop");
            race.expect("our sync", synced);
            race.expect("the sync of a bystander", bystander.sync_all().is_ok());
        });
    });
}

/// One file, opened in one way.
struct Race<'a> {
    combination: Combination,
    engine: &'a headwater::Engine,
    stranger: &'a mut Stranger,
    path: std::path::PathBuf,
    wrong: Vec<String>,
}

impl Race<'_> {
    fn open(&self) -> File {
        self.combination.open(self.engine, &self.path, For::Writing).unwrap()
    }

    /// Asked for, or after the time that it may take without.
    fn look(&self, file: &File, rng: &mut Rng) {
        match rng.below(2) {
            0 => refresh(file).unwrap(),
            _ => std::thread::sleep(Duration::from_millis(11)),
        }
    }

    fn expect(&mut self, what: &str, is_right: bool) {
        if !is_right {
            let Combination { driver, level, caching, mode, .. } = self.combination;
            self.wrong.push(format!("{what}: {driver:?} {level:?} caching {caching:?} I/O {mode:?}"));
        }
    }
}

fn race(seed: u64, run: impl Fn(&mut Race<'_>, &mut Rng)) {
    let (directory, mut stranger, mut rng) =
        (ScratchDir::on_target().unwrap(), Stranger::new(), Rng::new(seed));
    let engines: Vec<(Driver, headwater::Engine)> =
        drivers().into_iter().map(|driver| (driver, engine_on(driver, 8 << 20))).collect();
    let mut wrong = Vec::new();
    for round in 0..ROUNDS {
        for (number, (level, caching, mode)) in ways().into_iter().enumerate() {
            let (driver, engine) = &engines[(number + round) % engines.len()];
            let path = directory.path().join(format!("{round}-{number}"));
            std::fs::write(&path, vec![0; 6 * 4096]).unwrap();
            let combination = Combination { place: 0, driver: *driver, level, caching, mode };
            let is_possible = combination.open(engine, &path, For::Writing).is_ok();
            // `Private` promises that no other program writes meanwhile, and `Checked` reports it.
            if !is_possible || level == Coherence::Private || is_checked(level) {
                continue;
            }
            stranger.turn_to(&path);
            let mut race = Race { combination, engine, stranger: &mut stranger, path, wrong: Vec::new() };
            watched("a race", || run(&mut race, &mut rng));
            wrong.append(&mut race.wrong);
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn page(file: &File, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, number * 4096).unwrap();
    bytes
}

/// With each way.
const ROUNDS: usize = 4;
