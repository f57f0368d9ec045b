//! Threads: several of them write to parts of a file that share pages, and sync at once.
//!
//! Owns: who writes where, and what each was promised.
//! Does not own: what is legal (history).

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::thread;

use headwater::testing::{SimControl, SimOptions};
use headwater::{Caching, DriverKind, Engine, File, OpenOptions};
use headwater_testkit::{CrashImages, Pattern, Rng, ScratchDir, tmpfs, watched, with_seed};

use crate::history::History;
use crate::sequence::crash_events;

/// Goal: invariant 7 for those who share a sync: what each had written before it wanted one is there after a crash, also
/// where another writes to the same page and syncs at the same time. Method: parts of odd lengths that take turns.
#[test]
fn each_keeps_what_it_synced() {
    with_seed("threads::each_keeps_what_it_synced", |seed| {
        let directories: Vec<ScratchDir> = [ScratchDir::on_target(), tmpfs()].into_iter().flatten().collect();
        let mut rng = Rng::new(seed);
        for round in 0..ROUNDS {
            let seed = rng.next_u64();
            let path = directories[round % directories.len()].path().join("file");
            let (histories, images) = watched(&format!("seed {seed:#x}"), || run(seed, &path));
            check(seed, &histories, &images);
        }
    });
}

fn run(seed: u64, path: &Path) -> (Vec<History>, CrashImages) {
    let mut base = vec![0; FILE_BYTES];
    Pattern::new(seed).fill(0, &mut base);
    fs::write(path, &base).unwrap();
    let options = SimOptions::hostile(seed);
    let control = options.control.clone();
    let engine =
        Engine::builder().memory(3 << 20).queue_depth(8).driver(DriverKind::Sim(options)).build().unwrap();
    control.record();
    let open = || OpenOptions::new().engine(&engine).caching(Caching::On).write(true).open(path).unwrap();
    let histories: Vec<History> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (file, control, history) = (open(), &control, History::new(base.clone()));
                scope.spawn(move || work(&file, control, number, history, Rng::new(seed + number as u64)))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    drop(engine);
    (histories, CrashImages::new(base, crash_events(control.take_log())))
}

fn work(file: &File, control: &SimControl, number: usize, mut history: History, mut rng: Rng) -> History {
    for step in 0..STEPS {
        for _ in 0..1 + rng.below(3) {
            let part = parts(number).nth(rng.below(PARTS as u64) as usize).unwrap();
            let mut bytes = vec![0; part.len()];
            Pattern::new((number * STEPS + step) as u64).fill(rng.below(9999), &mut bytes);
            let began = control.next_moment();
            file.write_all_at(&bytes, part.start as u64).unwrap();
            history.write(began, part.start as u64, &bytes);
        }
        let called = history.call_sync();
        file.sync_data().unwrap();
        history.acknowledge(called, control.next_moment());
    }
    history
}

/// Which bytes are a thread's.
fn parts(number: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..PARTS).map(move |round| (round * THREADS + number) * PART_BYTES);
    starts.map(|start| start..start + PART_BYTES)
}

fn check(seed: u64, histories: &[History], images: &CrashImages) {
    let (points, mut rng) = (images.crash_points(), Rng::new(seed));
    for _ in 0..POINTS {
        let point = points[rng.below(points.len() as u64) as usize];
        let found = [images.least(point), images.most(point), images.sample(&mut rng, point)];
        for (number, history) in histories.iter().enumerate() {
            let legal = history.legal(point);
            for image in &found {
                let checked = parts(number).try_for_each(|part| legal.check_part(image, part));
                if let Err(error) = checked {
                    panic!("thread {number}, a crash at {point}: {error}\nseed {seed:#x}\n{history}");
                }
            }
        }
    }
}

const THREADS: usize = 4;
const STEPS: usize = 12;
const ROUNDS: usize = 30;
const POINTS: usize = 30;

/// Of each thread.
const PARTS: usize = 10;
const PART_BYTES: usize = 1300;
const FILE_BYTES: usize = THREADS * PARTS * PART_BYTES;
