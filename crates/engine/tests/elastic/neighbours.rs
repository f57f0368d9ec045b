//! Neighbours: many processes, each with an engine of its own, and programs that know nothing of headwater, share a small machine.
//!
//! ```text
//!   cgroup of 384 MiB ─┬─ 8 processes: default engine ─┐
//!                      └─ 2 processes: std::fs ────────┴─► a file of 192 MiB each: in order, at random, until time is up
//! ```
//!
//! Each engine would take all of it. `HEADWATER_SOAK_SECONDS` has them read for longer.
//!
//! Owns: that none is killed, and that equals get on about equally.
//! Does not own: what one engine does at the limit (main).

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::str::FromStr;
use std::time::{Duration, Instant};

use headwater::{Caching, Engine, OpenOptions};
use headwater_testkit::{
    MemoryCgroup, Pattern, Rng, ScratchDir, enter_cgroup, make_cold, skip, soak_seconds, spawn_self_with_env,
};

/// Goal: eight default engines and two readers that use std, which all read more than the memory of their cgroup, are not killed, get
/// the right bytes, and none starves. Method: bytes that each has read when time is up; the least of its kind against the mean, half
/// of it in a long run, a quarter in a short one, whose first second is that of empty caches.
#[test]
fn neighbours_share_a_small_machine() {
    if let Ok(part) = std::env::var(CHILD) {
        return part.parse::<Part>().unwrap().play();
    }
    let cgroup = match MemoryCgroup::new(LIMIT_BYTES) {
        Ok(cgroup) => cgroup,
        Err(reason) => return skip(reason),
    };
    let scratch = match ScratchDir::with_room((ENGINES + STD_READERS) as u64 * FILE_BYTES) {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let seconds = soak_seconds().unwrap_or(SECONDS);
    let part = |number| Part {
        number,
        seconds,
        cgroup: cgroup.path().to_owned(),
        scratch: scratch.path().to_owned(),
    };
    let parts: Vec<Part> = (0..ENGINES + STD_READERS).map(part).collect();
    parts.iter().for_each(Part::write_file);
    let children: Vec<Child> =
        parts.iter().map(|part| spawn_self_with_env(TEST, CHILD, &part.to_string())).collect();
    let outputs: Vec<String> = children.into_iter().map(finish).collect();
    println!("{} kills, {} times at the limit", cgroup.kills(), cgroup.limit_hits());
    assert_eq!(cgroup.kills(), 0, "the kernel killed in the cgroup: {outputs:#?}");
    let read: Vec<u64> = outputs.iter().map(|output| bytes_read(output)).collect();
    let least_divisor = if soak_seconds().is_some() { 2 } else { 4 };
    let (engines, std_readers) = read.split_at(ENGINES);
    for (kind, read) in [("engines", engines), ("std", std_readers)] {
        let (least, mean) = (*read.iter().min().unwrap(), read.iter().sum::<u64>() / read.len() as u64);
        println!("{kind}: MiB read by each {:?}", read.iter().map(|bytes| bytes >> 20).collect::<Vec<_>>());
        assert!(least >= mean / least_divisor, "{kind}: the slowest starves: {read:?}");
    }
}

/// What one of the processes is to do; passed to it as a text.
struct Part {
    number: usize,
    seconds: u64,
    cgroup: PathBuf,
    scratch: PathBuf,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}\n{}\n{}", self.number, self.seconds, self.cgroup.display(), self.scratch.display())
    }
}

impl FromStr for Part {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Part, &'static str> {
        let mut words = text.splitn(3, '\n');
        let mut next = || words.next().ok_or("a part has three lines");
        let (number, seconds) = next()?.split_once(' ').ok_or("two numbers come first")?;
        let number = number.parse().map_err(|_| "a number")?;
        let seconds = seconds.parse().map_err(|_| "seconds")?;
        Ok(Part { number, seconds, cgroup: next()?.into(), scratch: next()?.into() })
    }
}

impl Part {
    /// Reads until time is up and prints how much that was.
    fn play(&self) {
        enter_cgroup(&self.cgroup);
        let read_bytes = if self.number < ENGINES {
            let engine = Engine::builder().build().unwrap();
            let mut options = OpenOptions::new();
            let file = options.engine(&engine).caching(Caching::On).open(self.path()).unwrap();
            let read_bytes =
                self.read(|buffer, offset_bytes| file.read_exact_at(buffer, offset_bytes).unwrap());
            println!("{:?}", engine.stats().arena);
            read_bytes
        } else {
            let file = File::open(self.path()).unwrap();
            self.read(|buffer, offset_bytes| FileExt::read_exact_at(&file, buffer, offset_bytes).unwrap())
        };
        println!("{READ}{read_bytes}");
    }

    /// Half of it in order, half at random.
    fn read(&self, mut read_at: impl FnMut(&mut [u8], u64)) -> u64 {
        let (mut rng, mut buffer) = (Rng::new(self.number as u64), vec![0; BUFFER_BYTES]);
        let (began, mut read_bytes) = (Instant::now(), 0);
        for next in (0..FILE_BYTES / BUFFER_BYTES as u64).cycle() {
            if began.elapsed() >= Duration::from_secs(self.seconds) {
                break;
            }
            let at_random = rng.below(FILE_BYTES - BUFFER_BYTES as u64);
            for offset_bytes in [next * BUFFER_BYTES as u64, at_random] {
                read_at(&mut buffer, offset_bytes);
                let page = &buffer[..4096];
                assert_eq!(self.pattern().mismatch(offset_bytes, page), None);
                read_bytes += BUFFER_BYTES as u64;
            }
        }
        read_bytes
    }

    fn write_file(&self) {
        self.pattern().write_file(self.path(), FILE_BYTES).unwrap();
        make_cold(&File::open(self.path()).unwrap()).unwrap();
    }

    fn pattern(&self) -> Pattern {
        Pattern::new(self.number as u64)
    }

    fn path(&self) -> PathBuf {
        Path::new(&self.scratch).join(format!("file-{}", self.number))
    }
}

/// What a process has printed, after its end.
fn finish(mut child: Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    format!("{text}{status}")
}

fn bytes_read(output: &str) -> u64 {
    let number = output.lines().find_map(|line| line.split_once(READ)?.1.parse().ok());
    number.unwrap_or_else(|| panic!("a process died: {output}"))
}

const TEST: &str = "neighbours::neighbours_share_a_small_machine";
const CHILD: &str = "HEADWATER_TEST_NEIGHBOURS";
const READ: &str = "bytes read: ";
const ENGINES: usize = 8;
const STD_READERS: usize = 2;
const LIMIT_BYTES: u64 = 384 << 20;
const FILE_BYTES: u64 = 192 << 20;
const BUFFER_BYTES: usize = 64 << 10;

/// Of the short run.
const SECONDS: u64 = 3;
