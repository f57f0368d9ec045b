//! Kernel: the whole engine on rings to which the kernel does all that a kernel may do.
//!
//! ```text
//!   threads, each with a file and a model of it ─► random operations ─► every result against the model
//!   below: calls interrupted, short of memory, refused for ever; completions late, in another order, doubled, invented, short; threads that
//!          look stuck
//!   in the end: a sync, or the engine ends in the middle ─► every byte on disk against the model; nothing is held any more
//! ```
//!
//! A second by itself; `HEADWATER_SOAK_SECONDS=10m` makes a soak of it.
//!
//! Owns: the operations, the model.
//! Does not own: the faults (io), faults of devices (swarm).

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::TryStreamExt;
use headwater::testing::{KernelFaults, uring_refusal};
use headwater::{Advice, ByteRange, Caching, DriverKind, Engine, File, IoMode, OpenOptions};
use headwater_testkit::{
    Pattern, Rng, ScratchDir, block_on, forbid_io_uring, make_cold, process_cpu_time, run_self_with_env,
    skip, soak_seconds, watched, with_seed,
};

/// Goal: whatever the kernel does to rings, short of lying about bytes, nothing hangs, fails, is lost or is wrong, and nothing is held in
/// the end. Method: storms of it, of which one in three ends with `io_uring_enter` refused for ever, and one in three with the engine.
#[test]
fn storms_only_delay() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    with_seed("kernel::storms_only_delay", |seed| {
        let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(1));
        let (mut rng, directory) = (Rng::new(seed), ScratchDir::on_target().unwrap());
        let (mut storms, mut untrue) = (0, 0);
        while Instant::now() < end {
            untrue += watched("a storm", || storm(&mut rng, directory.path()));
            storms += 1;
        }
        println!("{storms} storms, {untrue} completions of nothing");
        assert!(untrue > 0, "the rings were not used");
    });
}

/// Goal: an engine goes on, by threads, when the process is forbidden its rings later, as by a sandbox that closes after the start: reads and
/// writes are right, cached or not, by calls and by tasks, and nothing spins. Method: a filter, in a child.
#[test]
fn the_ring_is_forbidden_later() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("kernel::the_ring_is_forbidden_later", CHILD, "1");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let (directory, pattern) = (ScratchDir::on_target().unwrap(), Pattern::new(3));
    let path = directory.path().join("file");
    pattern.write_file(&path, LENGTH_MAX).unwrap();
    let engine = Engine::builder().memory(8 << 20).driver(DriverKind::Uring).build().unwrap();
    let open = |caching| {
        let mut options = OpenOptions::new();
        options.engine(&engine).caching(caching).write(true).open(&path).unwrap()
    };
    let files = [open(Caching::On), open(Caching::Off)];
    let check = |at: u64| {
        make_cold(&std::fs::File::open(&path).unwrap()).unwrap();
        for file in &files {
            file.advise(Advice::DontNeed, ..).unwrap();
            let mut bytes = vec![0; 70_000];
            file.read_exact_at(&mut bytes, at).unwrap();
            assert_eq!(pattern.mismatch(at, &bytes), None);
            let bytes = block_on(file.read_at_async(at + 100_000, 70_000)).unwrap();
            assert_eq!(pattern.mismatch(at + 100_000, &bytes), None);
        }
    };
    check(0);
    forbid_io_uring();
    watched("a ring that is forbidden", || {
        check(200_000);
        for (number, file) in files.iter().enumerate() {
            let (at, mut bytes) = (500_000 + number as u64 * 50_000, vec![0; 50_000]);
            pattern.fill(at, &mut bytes);
            file.write_all_at(&bytes, at).unwrap();
            file.sync_data().unwrap();
            block_on(file.write_all_at_async(bytes, at)).unwrap();
            block_on(file.sync_data_async()).unwrap();
        }
        check(400_000);
    });
    let before = process_cpu_time();
    thread::sleep(Duration::from_millis(300));
    assert!(process_cpu_time() - before < Duration::from_millis(60), "something spins");
    drop(files);
    drop(engine);
    assert_eq!(pattern.mismatch(0, &std::fs::read(&path).unwrap()), None);
}

/// Returns how many completions the driver was shown that were none.
fn storm(rng: &mut Rng, directory: &Path) -> u64 {
    let builder = Engine::builder().memory([3, 4, 8][rng.below(3) as usize] << 20);
    let engine = builder.queue_depth(1 + rng.below(24) as u32).driver(DriverKind::Uring).build().unwrap();
    let mut numbers = Rng::new(rng.next_u64());
    let faults = KernelFaults::new(move || numbers.next_u64());
    engine.inject(&faults);
    let ending = rng.below(3);
    let lives = (0..THREADS).map(|number| {
        let path = directory.join(number.to_string());
        let _ = std::fs::remove_file(&path);
        Life::new(&engine, &path, Rng::new(rng.next_u64()))
    });
    let mut lives: Vec<Life> = lives.collect();
    thread::scope(|scope| {
        lives.iter_mut().for_each(|life| _ = scope.spawn(move || life.live()));
        if ending == 0 {
            thread::sleep(Duration::from_millis(rng.below(20)));
            faults.refuse();
        }
    });
    if ending == 1 {
        let stored: Vec<_> = lives.into_iter().map(Life::leave).collect();
        // The last handle writes what is dirty, through the same rings.
        drop(engine);
        stored.iter().enumerate().for_each(|(number, bytes)| check_disk(directory, number, bytes));
        return faults.untrue();
    }
    faults.clear_up();
    for (number, life) in lives.into_iter().enumerate() {
        life.files[0].sync_data().unwrap();
        check_disk(directory, number, &life.leave());
    }
    let in_use = || {
        let stats = engine.stats();
        stats.driver.slots_used + stats.driver.in_flight + stats.arena.used_bytes + stats.lent_bytes
    };
    while in_use() > 0 {
        engine.maintain();
        thread::yield_now();
    }
    faults.untrue()
}

fn check_disk(directory: &Path, number: usize, expected: &[u8]) {
    let disk = std::fs::read(directory.join(number.to_string())).unwrap();
    assert_eq!(disk.len(), expected.len(), "file {number}");
    assert_eq!(disk.iter().zip(expected).position(|(found, right)| found != right), None, "file {number}");
}

/// A thread's file, by several handles.
struct Life {
    files: Vec<File>,
    bytes: Vec<u8>,
    rng: Rng,
    /// Reads that were begun and are polled no more.
    left: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Frames of reads, which keep others from lying together.
    kept: Vec<Bytes>,
}

impl Life {
    fn new(engine: &Engine, path: &Path, rng: Rng) -> Life {
        let open = |(mode, caching)| {
            OpenOptions::new()
                .engine(engine)
                .io(mode)
                .caching(caching)
                .write(true)
                .create(true)
                .open(path)
                .unwrap()
        };
        let modes = [
            (IoMode::Auto, Caching::On),
            (IoMode::Buffered, Caching::On),
            (IoMode::Auto, Caching::Off),
            (IoMode::Buffered, Caching::Off),
        ];
        Life { files: modes.map(open).into(), bytes: Vec::new(), rng, left: Vec::new(), kept: Vec::new() }
    }

    fn leave(self) -> Vec<u8> {
        self.bytes
    }

    fn live(&mut self) {
        for _ in 0..OPERATIONS {
            let file = self.files[self.rng.below(self.files.len() as u64) as usize].clone();
            let offset = self.rng.below(LENGTH_MAX) as usize;
            let length = [1, 100, 4096, 5000, 70_000, 300_000][self.rng.below(6) as usize];
            match self.rng.below(18) {
                0..=2 => self.read(&file, offset, length),
                3..=5 | 16..=17 => self.read_async(&file, offset, length),
                6 => self.stream(&file),
                7..=8 => self.write(&file, offset, length / 4),
                9..=10 => self.write_async(&file, offset, length / 4),
                11 => self.append(&file, length / 8),
                12 => self.set_len(&file, offset),
                13 => self.sync(&file),
                14 => self.begin(&file, offset, length),
                _ => self.advise(&file, offset, length),
            }
        }
        self.left.clear();
        self.kept.clear();
    }

    fn expected(&self, offset: usize, length: usize) -> &[u8] {
        let start = offset.min(self.bytes.len());
        &self.bytes[start..(start + length).min(self.bytes.len())]
    }

    fn read(&self, file: &File, offset: usize, length: usize) {
        let mut bytes = vec![0; length];
        let count = file.read_at(&mut bytes, offset as u64).unwrap();
        assert!(bytes[..count] == *self.expected(offset, length), "{count} of {length} at {offset}");
    }

    fn read_async(&mut self, file: &File, offset: usize, length: usize) {
        let bytes = block_on(file.read_at_async(offset as u64, length)).unwrap();
        assert!(bytes[..] == *self.expected(offset, length), "{length} at {offset}");
        if bytes.len() <= KEPT_BYTES_MAX {
            self.kept.push(bytes);
        }
        if self.kept.len() > KEPT_MAX {
            let place = self.rng.below(KEPT_MAX as u64) as usize;
            self.kept.swap_remove(place);
        }
    }

    fn stream(&self, file: &File) {
        let all = block_on(file.stream().try_collect::<Vec<_>>()).unwrap().concat();
        assert!(all == self.bytes, "{} of {}", all.len(), self.bytes.len());
    }

    fn write(&mut self, file: &File, offset: usize, length: usize) {
        let bytes = self.fresh(length);
        file.write_all_at(&bytes, offset as u64).unwrap();
        self.put(offset, &bytes);
    }

    fn write_async(&mut self, file: &File, offset: usize, length: usize) {
        let bytes = self.fresh(length);
        block_on(file.write_all_at_async(bytes.clone(), offset as u64)).unwrap();
        self.put(offset, &bytes);
    }

    fn append(&mut self, file: &File, length: usize) {
        let bytes = self.fresh(length);
        assert_eq!(file.append(&bytes).unwrap() as usize, self.bytes.len());
        self.bytes.extend_from_slice(&bytes);
    }

    fn set_len(&mut self, file: &File, length: usize) {
        match self.rng.below(2) {
            0 => file.set_len(length as u64).unwrap(),
            _ => block_on(file.set_len_async(length as u64)).unwrap(),
        }
        self.bytes.resize(length, 0);
    }

    fn sync(&mut self, file: &File) {
        match self.rng.below(2) {
            0 => file.sync_data().unwrap(),
            _ => block_on(file.sync_data_async()).unwrap(),
        }
    }

    /// Polled once, and dropped later, or never until the end.
    fn begin(&mut self, file: &File, offset: usize, length: usize) {
        let reading = file.read_at_async(offset as u64, length);
        let mut reading = Box::pin(async { drop(reading.await) });
        let _ = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.left.push(reading);
        if self.left.len() > 3 {
            drop(self.left.remove(0));
        }
    }

    fn advise(&mut self, file: &File, offset: usize, length: usize) {
        let advice = if self.rng.chance(1, 2) { Advice::DontNeed } else { Advice::WillNeed };
        // Not for a file without a cache.
        let _ = file.advise(advice, ByteRange::at(offset as u64, length as u64));
    }

    fn fresh(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length.max(1)];
        Pattern::new(self.rng.next_u64()).fill(0, &mut bytes);
        bytes
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes.resize(self.bytes.len().max(offset + bytes.len()), 0);
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

const THREADS: usize = 3;
const OPERATIONS: usize = 60;
const LENGTH_MAX: u64 = 1_000_000;
const KEPT_BYTES_MAX: usize = 8192;
const KEPT_MAX: usize = 20;
const CHILD: &str = "HEADWATER_TEST_CHILD";
