//! Elastic: an engine without a number, whose cgroup has less memory than it would take.
//!
//! ```text
//!   test ─► cgroup of 256 MiB ─► the same test in a child in it ─► default engine over a file of 800 MiB
//! ```
//!
//! Owns: what happens at the limit: every byte right, nobody killed, nothing swapped.
//! Does not own: arithmetic of headroom, chunks that are released (beside their code).

#![forbid(unsafe_code)]

mod first;
mod neighbours;
mod sudden;
mod taker;
mod windows;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater::{Caching, Coherence, Engine, File, IoMode, MemoryBound, OpenOptions};
use headwater_testkit::{
    MemoryCgroup, Pattern, Rng, ScratchDir, Skip, enter_cgroup, make_cold, run_self_with_env, skip,
};

/// Goal: a file three times as large as the cgroup is read again and again by an engine that would hold all of it if it could.
#[test]
fn a_working_set_beyond_the_cgroup() {
    run_limited("a_working_set_beyond_the_cgroup", |world| {
        let reread = |world: &World| {
            world.read_all();
            world.read_all();
            world.read_at_random(30_000, 1);
        };
        world.with_keeper(reread);
        world.read_at_random(10_000, 2);
    });
}

/// Goal: the same without anybody who keeps watch: whoever is refused memory sees to it.
#[test]
fn without_a_keeper() {
    run_limited("without_a_keeper", |world| {
        world.read_all();
        world.read_at_random(30_000, 1);
    });
}

/// Goal: others in the cgroup take half of it, and get it, and the cache has it again when they are done. Method: steps that
/// the reserve has room for, so that it does not matter how fast anybody is; pages are read meanwhile.
#[test]
fn others_take_memory_in_steps() {
    run_limited("others_take_memory_in_steps", |world| {
        world.read_all();
        let mut taken = Vec::new();
        for step in 1..5_u8 {
            taken.push(vec![step; STEP_BYTES]);
            world.read_at_random(3000, u64::from(step));
            world.engine.relieve();
        }
        let mapped_bytes = world.engine.stats().arena.mapped_bytes as u64;
        assert!(mapped_bytes + 4 * STEP_BYTES as u64 <= LIMIT_BYTES, "{mapped_bytes} bytes are mapped");
        assert!(
            taken.iter().zip(1..).all(|(memory, step)| memory.iter().step_by(4096).all(|&byte| byte == step))
        );
        drop(taken);
        world.read_all();
        assert!(world.engine.stats().arena.mapped_bytes as u64 > mapped_bytes, "it grows again");
    });
}

/// What a test in a cgroup works with.
struct World {
    engine: Engine,
    file: File,
    cgroup: PathBuf,
}

impl World {
    fn new(path: &Path, cgroup: PathBuf) -> World {
        let engine = Engine::builder().build().unwrap();
        let mut options = OpenOptions::new();
        // Of a file that others may change, pages that were read within 30 s of its last change leave once.
        options.engine(&engine).io(IoMode::Direct).caching(Caching::On).coherence(Coherence::Private);
        let file = options.write(true).open(path).unwrap();
        World { engine, file, cgroup }
    }

    /// Of the limit, what the kernel has given to no process.
    fn unused_bytes(&self) -> u64 {
        let files = ["memory.current", "memory.usage_in_bytes"].map(|name| self.cgroup.join(name));
        let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
        let used_bytes: u64 =
            text.and_then(|text| text.trim().parse().ok()).expect("the cgroup says what it uses");
        LIMIT_BYTES.saturating_sub(used_bytes)
    }

    fn read_all(&self) {
        let mut buffer = vec![0; 256 << 10];
        for offset_bytes in (0..FILE_BYTES).step_by(buffer.len()) {
            self.file.read_exact_at(&mut buffer, offset_bytes).unwrap();
            assert_eq!(PATTERN.mismatch(offset_bytes, &buffer), None);
        }
    }

    fn read_at_random(&self, reads: usize, seed: u64) {
        let (mut rng, mut buffer) = (Rng::new(seed), [0; 4096]);
        for _ in 0..reads {
            let offset_bytes = rng.below(FILE_BYTES - buffer.len() as u64);
            self.file.read_exact_at(&mut buffer, offset_bytes).unwrap();
            assert_eq!(PATTERN.mismatch(offset_bytes, &buffer), None);
        }
    }

    /// Works beside a thread that relieves as often as it is told to.
    fn with_keeper(&self, work: impl FnOnce(&World)) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let keeper = scope.spawn(|| {
                let (mut looks, mut longest) = (0, Duration::ZERO);
                while !done.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let relief = self.engine.relieve();
                    (looks, longest) = (looks + 1, longest.max(began.elapsed()));
                    std::thread::park_timeout(relief.look_again);
                }
                println!("the keeper looked {looks} times, for {longest:?} at most");
            });
            let ended = Ended(&done, keeper.thread().clone());
            work(self);
            drop(ended);
        });
    }

    /// The cache was of use, stayed below the limit, and can be emptied.
    fn check(&self) {
        let stats = self.engine.stats();
        println!("{stats:#?}");
        let arena = stats.arena;
        assert!(arena.mapped_bytes as u64 <= LIMIT_BYTES, "{arena:?}");
        assert!(arena.cached_bytes as u64 > LIMIT_BYTES / 4, "{arena:?}");
        let memory = stats.memory;
        assert_eq!((memory.bound, memory.mapped_bytes), (MemoryBound::Cgroup, arena.mapped_bytes as u64));
        assert!(memory.possible_bytes < LIMIT_BYTES && LIMIT_BYTES < memory.ceiling_bytes, "{memory:?}");
        if memory.released_bytes > 0 {
            assert!(memory.released_for.is_some(), "{memory:?}");
        }
        assert_eq!(arena.used_bytes, 0);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(status.lines().any(|line| line.split_whitespace().eq(["VmSwap:", "0", "kB"])), "{status}");
    }
}

/// Lets the keeper go, also when the work has failed.
struct Ended<'a>(&'a AtomicBool, std::thread::Thread);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// Does the work in a child that is limited by a cgroup, on a cold file, and checks that it survives.
fn run_limited(test_name: &str, work: impl FnOnce(&World)) {
    if let Some(place) = std::env::var_os(CHILD) {
        let place = PathBuf::from(place);
        let cgroup = PathBuf::from(std::fs::read_to_string(place.join("cgroup")).unwrap());
        enter_cgroup(&cgroup);
        let world = World::new(&place.join("file"), cgroup);
        work(&world);
        return world.check();
    }
    // One at a time: a thread that spins keeps the processors from the engines of others.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // The kernel kills if the engine's thread gets no processor in time. Where relief does not work it does so each time.
    for attempt in 1.. {
        let kills = match run_limited_once(test_name) {
            Ok(kills) => kills,
            Err(reason) => return skip(reason),
        };
        if kills == 0 {
            return;
        }
        assert!(attempt < 3, "the kernel killed in the cgroup");
    }
}

/// Runs a test in a process of its own that is limited in memory; says how many processes the kernel has killed there.
fn run_limited_once(test_name: &str) -> Result<u64, Skip> {
    let (cgroup, scratch) = (MemoryCgroup::new(LIMIT_BYTES)?, ScratchDir::with_room(FILE_BYTES)?);
    let file = scratch.path().join("file");
    PATTERN.write_file(&file, FILE_BYTES).unwrap();
    make_cold(&std::fs::File::open(&file).unwrap()).unwrap();
    std::fs::write(scratch.path().join("cgroup"), cgroup.path().to_str().unwrap()).unwrap();
    let output = run_self_with_env(test_name, CHILD, scratch.path().to_str().unwrap());
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    println!("{} kills, {} times at the limit", cgroup.kills(), cgroup.limit_hits());
    let kills = cgroup.kills();
    assert!(kills > 0 || output.status.success(), "{:?}", output.status);
    Ok(kills)
}

const CHILD: &str = "HEADWATER_TEST_ELASTIC";
const PATTERN: Pattern = Pattern::new(25);
const LIMIT_BYTES: u64 = 256 << 20;
const FILE_BYTES: u64 = 800 << 20;

/// Half of the reserve of such a cgroup.
const STEP_BYTES: usize = 32 << 20;
