//! Taker: another process takes nearly all memory of the cgroup that it shares with an engine, and gives it back, again and again.
//!
//! ```text
//!   cgroup of 256 MiB ─┬─ default engine ─► a file of 512 MiB at random, every byte checked
//!                      └─ taker ─► 176 MiB in steps of 4 ─► a pause ─► nothing ─► a pause ─► …
//! ```
//!
//! Owns: that the engine's share shrinks and grows with what the other leaves, without a kill.
//! Does not own: how fast; memory that the engine's own process takes (main).

use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use headwater::{Caching, Engine, IoMode, OpenOptions};
use headwater_testkit::{
    MemoryCgroup, Pattern, Rng, ScratchDir, enter_cgroup, make_cold, skip, spawn_self_with_env,
};

/// Goal: as above, 20 of 20 times. Method: the engine reads until the taker has ended; the least
/// and the most that it had mapped.
#[test]
fn another_process_takes_what_is_free() {
    if let Ok(part) = std::env::var(CHILD) {
        let (role, place) = part.split_once(' ').unwrap();
        let place = Path::new(place);
        enter_cgroup(Path::new(&std::fs::read_to_string(place.join("cgroup")).unwrap()));
        return if role == "taker" { take(place) } else { read(place) };
    }
    let cgroup = match MemoryCgroup::new(LIMIT_BYTES) {
        Ok(cgroup) => cgroup,
        Err(reason) => return skip(reason),
    };
    let scratch = match ScratchDir::with_room(FILE_BYTES) {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let file = scratch.path().join("file");
    PATTERN.write_file(&file, FILE_BYTES).unwrap();
    make_cold(&std::fs::File::open(&file).unwrap()).unwrap();
    std::fs::write(scratch.path().join("cgroup"), cgroup.path().to_str().unwrap()).unwrap();
    let spawn = |role| spawn_self_with_env(TEST, CHILD, &format!("{role} {}", scratch.path().display()));
    let [reader, taker] = [spawn("reader"), spawn("taker")];
    let taken = finish(taker);
    // Else the reader waits for ever for a taker that was killed.
    std::fs::write(scratch.path().join("done"), "").unwrap();
    let outputs = [finish(reader), taken];
    println!("{} kills, {} times at the limit: {outputs:#?}", cgroup.kills(), cgroup.limit_hits());
    assert_eq!(cgroup.kills(), 0, "the kernel killed in the cgroup");
    assert!(outputs.iter().all(|output| output.ends_with("exit status: 0")));
}

/// Takes memory and returns it, once the engine has filled its cache.
fn take(place: &Path) {
    wait_for(&place.join("full"));
    for round in 0..ROUNDS {
        let taken: Vec<Vec<u8>> =
            (0..TAKEN_BYTES / STEP_BYTES).map(|_| vec![round + 1; STEP_BYTES]).collect();
        std::thread::sleep(PAUSE);
        assert!(taken.iter().flatten().step_by(4096).all(|&byte| byte == round + 1));
        drop(taken);
        std::thread::sleep(PAUSE);
    }
    std::fs::write(place.join("done"), "").unwrap();
}

/// Reads at random until the taker is done.
fn read(place: &Path) {
    let engine = Engine::builder().build().unwrap();
    let mut options = OpenOptions::new();
    options.engine(&engine).io(IoMode::Direct).caching(Caching::On);
    let file = options.open(place.join("file")).unwrap();
    let (mut rng, mut buffer) = (Rng::new(1), vec![0; 64 << 10]);
    let (mut least_bytes, mut most_bytes, mut reads) = (u64::MAX, 0, 0);
    while !place.join("done").exists() {
        for _ in 0..16 {
            let offset_bytes = rng.below(FILE_BYTES - buffer.len() as u64);
            file.read_exact_at(&mut buffer, offset_bytes).unwrap();
            assert_eq!(PATTERN.mismatch(offset_bytes, &buffer), None);
        }
        reads += 16;
        let mapped_bytes = engine.stats().memory.mapped_bytes;
        most_bytes = mapped_bytes.max(most_bytes);
        if reads == FULL_AFTER_READS {
            std::fs::write(place.join("full"), "").unwrap();
        } else if reads > FULL_AFTER_READS {
            least_bytes = mapped_bytes.min(least_bytes);
        }
    }
    println!("{reads} reads, {} to {} MiB, {:?}", least_bytes >> 20, most_bytes >> 20, engine.stats().memory);
    assert!(least_bytes + TAKEN_BYTES as u64 <= LIMIT_BYTES, "it shrinks: {least_bytes}");
    assert!(most_bytes > LIMIT_BYTES / 2, "and grows: {most_bytes}");
}

fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < FULL_WITHIN, "the reader has ended, or hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a process has printed, after its end.
fn finish(mut child: Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    format!("{text}{status}")
}

const TEST: &str = "taker::another_process_takes_what_is_free";
const CHILD: &str = "HEADWATER_TEST_TAKER";
const PATTERN: Pattern = Pattern::new(9);
const LIMIT_BYTES: u64 = 256 << 20;
const FILE_BYTES: u64 = 512 << 20;
const ROUNDS: u8 = 20;

/// What two processes and the engine's first chunks leave.
const TAKEN_BYTES: usize = 176 << 20;
const STEP_BYTES: usize = 4 << 20;
const PAUSE: Duration = Duration::from_millis(100);

/// It takes seconds on a machine without other work.
const FULL_WITHIN: Duration = Duration::from_secs(300);

/// 512 MiB.
const FULL_AFTER_READS: u64 = 8192;
