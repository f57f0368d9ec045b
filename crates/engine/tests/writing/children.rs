//! Children: processes that leave at a random moment while the engine works, and what their files have afterwards.
//!
//! ```text
//!   child: write ─► "wrote 17." ─► … ─► sync ─► "synced 17." ─► … ─► "leaves." ─┬─ returns, unwinds, exits
//!            └─ beside it: a thread that writes, futures that were polled once  └─ or is killed before it gets here
//!   parent: reads along ─► the process ends ─► every synced write is there; after an orderly end every write is
//! ```
//!
//! Owns: the ways of leaving, the work under way, what has to be there.
//! Does not own: records that grow (killed), the global engine by itself (exits).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headwater::{Caching, DriverKind, Engine, File, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, mix, spawn_self_with_env, watched, with_seed};

use crate::rig::{block_on, uring_refusal};

/// Goal: nothing that a sync has acknowledged is lost however a process ends, nothing that a write has acknowledged is lost
/// when it ends in an orderly way, and no process lingers. Method: children from a seed; `HEADWATER_CHILDREN` says how many.
#[test]
fn nothing_acknowledged_is_lost() {
    if let Ok(task) = std::env::var(CHILD) {
        return work_and_leave(&task);
    }
    let wanted = std::env::var("HEADWATER_CHILDREN").ok().map(|count| count.parse::<u64>().unwrap());
    with_seed("children::nothing_acknowledged_is_lost", |seed| {
        let directory = ScratchDir::on_target().unwrap();
        let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
        thread::scope(|scope| {
            for _ in 0..PARENTS {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= wanted.unwrap_or(CHILDREN) {
                            return;
                        }
                        let (way, said, took) = raise(mix(seed ^ mix(number)), directory.path());
                        tally.lock().unwrap().add(way, &said, took);
                    }
                });
            }
        });
        let tally = tally.into_inner().unwrap();
        eprintln!("{tally:?}");
        assert!(tally.synced > 0 && tally.written > tally.synced, "too little happened to tell anything");
        // Beside other tests a device may be slow.
        let most = if wanted.is_some() { Duration::from_secs(1) } else { Duration::from_secs(30) };
        assert!(tally.slowest < most, "a process lingers");
    });
}

/// How a child ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Returns,
    Exits,
    Unwinds,
    Killed,
    Terminated,
}

impl Way {
    const ALL: [Way; 5] = [Way::Returns, Way::Exits, Way::Unwinds, Way::Killed, Way::Terminated];

    fn is_orderly(self) -> bool {
        matches!(self, Way::Returns | Way::Exits | Way::Unwinds)
    }
}

/// What became of all children.
#[derive(Default, Debug)]
struct Tally {
    ways: [u64; Way::ALL.len()],
    written: u64,
    synced: u64,
    /// From the moment a child began to leave.
    slowest: Duration,
}

impl Tally {
    fn add(&mut self, way: Way, said: &Said, took: Duration) {
        self.ways[way as usize] += 1;
        self.written += said.written;
        self.synced += said.synced;
        self.slowest = self.slowest.max(took);
    }
}

/// What a child has said: how many of its writes have returned, and were synced.
#[derive(Default, Debug)]
struct Said {
    written: u64,
    synced: u64,
    leaves: Option<Instant>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        // A line of which the end is missing is none; the harness prints others.
        let Some(line) = line.strip_suffix('.') else { return };
        match line.split_once(' ') {
            Some(("wrote", count)) => self.written = count.parse().unwrap(),
            Some(("synced", count)) => self.synced = count.parse().unwrap(),
            None if line == "leaves" => self.leaves = Some(Instant::now()),
            _ => {}
        }
    }
}

/// One child, from its start to the check of its file.
fn raise(seed: u64, directory: &Path) -> (Way, Said, Duration) {
    let mut rng = Rng::new(seed);
    let way = Way::ALL[rng.below(Way::ALL.len() as u64) as usize];
    let path = directory.join(format!("{seed:x}"));
    let task = format!("{} {seed} {}", way as usize, path.display());
    let what = format!("{way:?} seed {seed}");
    let (said, took) = watched(&what, || {
        let child = spawn_self_with_env("children::nothing_acknowledged_is_lost", CHILD, &task);
        attend(child, way, &mut rng)
    });
    check(&what, &path, seed, way, &said);
    for suffix in ["", ".beside"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    (way, said, took)
}

/// Hears what the child says, and ends it if that is its way. Says how long it took to leave.
fn attend(mut child: Child, way: Way, rng: &mut Rng) -> (Said, Duration) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = Said::default();
    let mut left = None;
    if !way.is_orderly() {
        let patience = rng.below(WRITES_MAX) as usize;
        lines.by_ref().take(patience).for_each(|line| said.hear(&line.unwrap()));
        (0..rng.below(200_000)).for_each(|_| std::hint::spin_loop());
        left = Some(Instant::now());
        end(&mut child, way);
    }
    lines.for_each(|line| said.hear(&line.unwrap()));
    let status = child.wait().unwrap();
    let left = left.or(said.leaves);
    let expected = match way {
        Way::Returns => Some(0),
        Way::Exits => Some(3),
        Way::Unwinds => Some(101),
        Way::Killed | Way::Terminated => None,
    };
    // One that was to be ended may have been done before.
    assert!(
        status.code() == expected || !way.is_orderly() && said.leaves.is_some(),
        "{way:?}: {status:?}, {said:?}"
    );
    (said, left.map_or(Duration::ZERO, |left| left.elapsed()))
}

fn end(child: &mut Child, way: Way) {
    if way == Way::Killed {
        child.kill().unwrap();
    } else {
        let ended = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(ended.is_ok(), "there is a kill");
    }
}

fn check(what: &str, path: &Path, seed: u64, way: Way, said: &Said) {
    let found = match std::fs::read(path) {
        Err(_) if said.written == 0 => return,
        found => found.unwrap(),
    };
    let sure = if way.is_orderly() { said.written } else { said.synced };
    for number in 0..WRITES_MAX {
        let (offset, bytes) = write_of(seed, number);
        let there = found.get(offset.min(found.len())..(offset + bytes.len()).min(found.len())).unwrap();
        if number < sure {
            assert!(
                there == bytes,
                "{what}: write {number} of {sure} is lost: {said:?}, {} bytes",
                found.len()
            );
        }
        let is_sound = there.iter().zip(&bytes).all(|(found, written)| found == written || *found == 0);
        assert!(is_sound, "{what}: garbage in the place of write {number}");
    }
}

/// Writes do not overlap, and leave holes.
fn write_of(seed: u64, number: u64) -> (usize, Vec<u8>) {
    let mut rng = Rng::new(mix(seed) ^ mix(number + 1));
    let (slot, length) = (number * 37 % WRITES_MAX, rng.range(1, SLOT_BYTES));
    let bytes = (0..length).map(|_| rng.range(1, 256) as u8).collect();
    ((slot * SLOT_BYTES) as usize, bytes)
}

type Suspended = Pin<Box<dyn Future<Output = ()>>>;

/// In the child.
fn work_and_leave(task: &str) {
    let [way, seed, path] = task.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let (way, seed) = (Way::ALL[way.parse::<usize>().unwrap()], seed.parse().unwrap());
    let mut rng = Rng::new(mix(seed));
    let is_global = way == Way::Exits || rng.chance(1, 3);
    let engine = if is_global { Engine::global().unwrap() } else { own_engine(&mut rng) };
    let open = |path: &str| {
        OpenOptions::new().engine(&engine).caching(Caching::On).write(true).create(true).open(path).unwrap()
    };
    let (file, beside) = (open(path), open(&format!("{path}.beside")));
    let (stop, stopped) = channel();
    let writer = rng.chance(1, 2).then(|| {
        let beside = beside.clone();
        thread::spawn(move || write_beside(&beside, &stopped))
    });
    let mut suspended = Vec::new();
    println!();
    for number in 0..rng.range(1, WRITES_MAX + 1) {
        write(&file, seed, number, &mut rng);
        if rng.chance(1, 16) {
            suspended.extend(suspend(&beside, &mut rng));
        }
    }
    if rng.chance(1, 8) {
        // Until the background thread is about to look, or does.
        thread::sleep(Duration::from_micros(rng.range(80_000, 120_000)));
    }
    println!("leaves.");
    match way {
        Way::Exits => std::process::exit(3),
        // Futures are users of the engine, and the global engine has others.
        _ if is_global => suspended.into_iter().for_each(std::mem::forget),
        _ => drop(suspended),
    }
    drop((stop, engine, beside));
    // On the global engine it may wait for a future that was left.
    let writer = writer.filter(|_| !is_global);
    let join = || writer.into_iter().for_each(|writer| writer.join().unwrap());
    if way == Way::Unwinds {
        // What another thread still uses, unwinding this one does not drop.
        join();
        // Without the message of a panic.
        std::panic::resume_unwind(Box::new(()));
    }
    // Either may be the last user.
    drop(file);
    join();
}

fn own_engine(rng: &mut Rng) -> Engine {
    let is_threads = rng.chance(1, 2) || uring_refusal().is_some();
    let driver = if is_threads { DriverKind::Threads } else { DriverKind::Uring };
    Engine::builder().memory(rng.range(3, 17) << 20).driver(driver).build().unwrap()
}

fn write(file: &File, seed: u64, number: u64, rng: &mut Rng) {
    let (offset, bytes) = write_of(seed, number);
    if rng.chance(1, 4) {
        block_on(file.write_all_at_async(bytes, offset as u64)).unwrap();
    } else {
        file.write_all_at(&bytes, offset as u64).unwrap();
    }
    println!("wrote {}.", number + 1);
    if rng.chance(1, 40) {
        if rng.chance(1, 2) {
            file.sync_data().unwrap()
        } else {
            block_on(file.sync_all_async()).unwrap()
        }
        println!("synced {}.", number + 1);
    }
}

/// Writes until it is stopped; nothing waits for its end when the process goes.
fn write_beside(file: &File, stopped: &Receiver<()>) {
    let mut at = 0;
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        file.write_all_at(&[7; 5000], at % (1 << 20)).unwrap();
        at += 5000;
    }
}

/// Something that was begun and is polled no more.
fn suspend(file: &File, rng: &mut Rng) -> Option<Suspended> {
    let file = file.clone();
    let bytes = Bytes::from(vec![9; 70_000]);
    let mut future: Suspended = match rng.below(4) {
        0 => Box::pin(async move { drop(file.set_len_async(10_000).await) }),
        1 => Box::pin(async move { drop(file.append_async(bytes).await) }),
        2 => Box::pin(async move { drop(file.sync_data_async().await) }),
        _ => Box::pin(async move { drop(file.view_async(0, 4096).await) }),
    };
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending().then_some(future)
}

const CHILD: &str = "HEADWATER_CHILDREN_CHILD";

/// A few seconds.
const CHILDREN: u64 = 100;

/// Children at the same time.
const PARENTS: usize = 2;

const WRITES_MAX: u64 = 128;

const SLOT_BYTES: u64 = 9000;
