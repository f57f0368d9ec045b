//! Killed: a process that writes and syncs is killed at any moment; what it said to be synced is there.
//!
//! ```text
//!   child: "intends 4711" ─► append ─► … ─► sync ─► "synced 12" ─┐
//!   parent: reads along ─► SIGKILL ─► the rest of the lines ─────┴─► records up to the last synced, nothing strange behind
//! ```
//!
//! Owns: the child, its lines, what the file may have afterwards.
//! Does not own: records (appends); a loss of power, which nothing here can make.

use std::io::{BufRead, BufReader};
use std::path::Path;

use headwater::{DriverKind, File, IoMode};
use headwater_testkit::{Rng, ScratchDir, mix, soak_seconds, spawn_self_with_env, watched, with_seed};

use crate::appends::{Parser, record};
use crate::model::same;
use crate::rig::{Rig, block_on, uring_refusal};
use crate::threads::open;

/// Goal: records that were synced survive, the file is no longer than what was written, and what is behind the synced records
/// is what was meant to be there, or zeros where it had not arrived.
#[test]
fn synced_records_survive() {
    if let Ok(task) = std::env::var(CHILD) {
        return write_records(&task);
    }
    with_seed("killed::synced_records_survive", |seed| {
        let (mut rng, directory) = (Rng::new(seed), ScratchDir::on_target().unwrap());
        let (rounds, mut synced) = (ROUNDS + soak_seconds().unwrap_or(0) as usize, 0);
        for round in 0..rounds {
            let path = directory.path().join(round.to_string());
            let driver = if round % 2 == 0 || uring_refusal().is_some() { "threads" } else { "uring" };
            let seed = rng.next_u64();
            let said =
                watched(driver, || run_and_kill(&format!("{driver} {seed} {}", path.display()), &mut rng));
            eprintln!("{driver}: {said:?}");
            check(&path, seed, &said);
            synced += said.synced;
        }
        assert!(synced > 0, "every child was killed before it synced anything, which tells nothing");
    });
}

/// What the child has said.
#[derive(Default, Debug)]
struct Said {
    /// Records.
    synced: u64,
    intended_bytes: u64,
    finished: bool,
}

fn run_and_kill(task: &str, rng: &mut Rng) -> Said {
    let mut child = spawn_self_with_env("killed::synced_records_survive", CHILD, task);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut said, patience) = (Said::default(), rng.below(LINES_MAX));
    for line in lines.by_ref().take(patience as usize) {
        said.hear(&line.unwrap());
    }
    // Some of what it does next.
    (0..rng.below(200_000)).for_each(|_| std::hint::spin_loop());
    child.kill().unwrap();
    lines.for_each(|line| said.hear(&line.unwrap()));
    let status = child.wait().unwrap();
    assert!(said.finished || !status.success() && status.code().is_none(), "{status:?} by itself: {said:?}");
    said
}

impl Said {
    fn hear(&mut self, line: &str) {
        // A line of which the end is missing is none; the harness prints others.
        let Some(line) = line.strip_suffix('.') else { return };
        match line.split_once(' ').map(|(word, number)| (word, number.parse().unwrap())) {
            Some(("synced", records)) => self.synced = records,
            Some(("intends", bytes)) => self.intended_bytes = bytes,
            Some(("finished", _)) => self.finished = true,
            _ => panic!("the child says {line:?}"),
        }
    }
}

fn check(path: &Path, seed: u64, said: &Said) {
    let found = match std::fs::read(path) {
        Err(_) if said.synced == 0 => return,
        found => found.unwrap(),
    };
    assert!(found.len() as u64 <= said.intended_bytes, "{} bytes, {said:?}", found.len());
    let mut expected = Vec::new();
    let mut synced_bytes = 0;
    for sequence in 0.. {
        if sequence == said.synced {
            synced_bytes = expected.len();
        }
        if expected.len() as u64 >= said.intended_bytes {
            break;
        }
        expected.extend(record_of(seed, sequence));
    }
    assert!(found.len() >= synced_bytes, "{} bytes of the {synced_bytes} that were synced", found.len());
    let (sure, rest) = found.split_at(synced_bytes);
    same("synced", 0, &expected[..synced_bytes], sure).unwrap();
    let mut parser = Parser::new(1);
    parser.parse(sure);
    assert_eq!(parser.next, [said.synced]);
    for (at, (found, expected)) in (synced_bytes..).zip(rest.iter().zip(&expected[synced_bytes..])) {
        assert!(found == expected || *found == 0, "garbage at byte {at}: {found:#x}, {said:?}");
    }
}

/// In the child.
fn write_records(task: &str) {
    let [driver, seed, path] = task.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let (kind, seed) =
        (if driver == "uring" { DriverKind::Uring } else { DriverKind::Threads }, seed.parse().unwrap());
    let rig = Rig::sized(kind, 3 << 20, 16);
    let file = open(&rig, Path::new(path), IoMode::Auto);
    let (mut rng, mut length_bytes) = (Rng::new(mix(seed)), 0);
    // So much between syncs that some of it is written back without.
    let records_per_sync = [3, 10, 100][rng.below(3) as usize];
    println!();
    for sequence in 0..RECORDS_MAX {
        let record = record_of(seed, sequence);
        println!("intends {}.", length_bytes + record.len() as u64);
        write_record(&file, record, &mut length_bytes, &mut rng);
        if rng.chance(1, records_per_sync) {
            if rng.chance(1, 2) {
                file.sync_data().unwrap()
            } else {
                block_on(file.sync_all_async()).unwrap()
            }
            assert_eq!(std::fs::metadata(path).unwrap().len(), length_bytes);
            println!("synced {}.", sequence + 1);
        }
    }
    println!("finished 0.");
}

fn write_record(file: &File, record: Vec<u8>, length_bytes: &mut u64, rng: &mut Rng) {
    let (at, length) = (*length_bytes, record.len() as u64);
    match rng.below(4) {
        0 => assert_eq!(file.append(&record).unwrap(), at),
        1 => file.write_all_at(&record, at).unwrap(),
        2 => block_on(file.write_all_at_async(record, at)).unwrap(),
        // Once more what is there already, which dirties it while it is on its way.
        _ => {
            let again = at.min(3000);
            let mut bytes = vec![0; again as usize];
            file.read_exact_at(&mut bytes, at - again).unwrap();
            bytes.extend(&record);
            file.write_all_at(&bytes, at - again).unwrap();
        }
    }
    *length_bytes += length;
}

fn record_of(seed: u64, sequence: u64) -> Vec<u8> {
    record(0, sequence, &mut Rng::new(mix(seed) ^ mix(sequence)))
}

const CHILD: &str = "HEADWATER_KILLED_CHILD";
const ROUNDS: usize = 8;

/// More than the memory holds, if it comes that far.
const RECORDS_MAX: u64 = 6000;

/// Lines that the parent waits for at most.
const LINES_MAX: u64 = 400;
