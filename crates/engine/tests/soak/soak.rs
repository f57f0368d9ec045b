//! Soak: rounds of threads that use files and engines, and a look at the gauges after each round.
//!
//! Some seconds; `HEADWATER_SOAK_SECONDS=3600` makes an hour of it (`just soak 1h`). Prints the seed, what was done, and the gauges.
//!
//! Owns: which threads a round has, the rest between rounds.
//! Does not own: the operations (world, actor, tenant), the gauges.

use std::env;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater::{Advice, Caching, DriverKind, Engine, Error, File, IoMode, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, run_forked, soak_seconds, tmpfs, with_seed};

use crate::actor::Actor;
use crate::gauges::{Sample, heads, risen};
use crate::operations::{Case, Mixture};
use crate::rig::{Rig, Scratch, block_on, drivers, watched};
use crate::tenant::Tenant;
use crate::world::{Dweller, Shelf, assert_exact};

/// Goal: in a mixture of all operations that lasts as long as one likes, every byte is right, no thread waits for ever, after each round
/// every gauge of the engines is zero but for what is cached, and nothing that the process holds grows. Method: this test again, in
/// a process whose allocator keeps little free memory, which would hide a leak.
#[test]
fn soak() {
    if env::var_os(CHILD).is_none() {
        let mut child = Command::new(env::current_exe().expect("a test binary knows its path"));
        child.args(["--exact", "soak::soak", "--nocapture"]).env(CHILD, "1").envs(ALLOCATOR);
        return assert!(child.status().expect("the test binary starts").success(), "see above");
    }
    with_seed("soak::soak", |seed| {
        let (start, time) = (Instant::now(), Duration::from_secs(soak_seconds().unwrap_or(SECONDS)));
        let mut rng = Rng::new(seed);
        let house = House::new(&mut rng);
        let round_time = (time / ROUNDS_MIN).min(ROUND_MAX);
        let (mut samples, mut shown): (Vec<Sample>, _) = (Vec::new(), Duration::ZERO);
        println!("{}", heads());
        while samples.len() < ROUNDS_MIN as usize / 2 || start.elapsed() < time {
            let seed = rng.next_u64();
            watched(&format!("a round of seed {seed:#x}"), || house.round(round_time, seed));
            let sample = house.rest(start);
            if sample.at >= shown + time / TABLE_LINES || sample.at >= time {
                println!("{sample}");
                shown = sample.at;
            }
            samples.push(sample);
        }
        let done = house.done;
        println!(
            "seed {seed:#x}: {} rounds in {:.0} s; {done:?}",
            samples.len(),
            start.elapsed().as_secs_f64()
        );
        let risen = risen(&samples);
        assert!(risen.is_empty(), "grew: {risen:#?}");
    });
}

/// The engines that stay, and the files.
struct House {
    rigs: Vec<Rig>,
    shelves: Vec<Shelf>,
    /// Others change it.
    disturbed: Scratch,
    /// Of writers and tenants.
    directory: ScratchDir,
    done: Done,
}

/// Sums.
#[derive(Default, Debug)]
struct Done {
    read_bytes: AtomicU64,
    writer_operations: AtomicU64,
    tenant_operations: AtomicU64,
    evictions_heard: AtomicU64,
    engines: AtomicU64,
    forks: AtomicU64,
}

impl House {
    fn new(rng: &mut Rng) -> House {
        // On a simulated device time passes only with requests, so it is for engines that go.
        let stay = drivers(0).into_iter().filter(|kind| !matches!(kind, DriverKind::Sim(_)));
        let rigs = stay.zip(MEMORY_BYTES).map(|(kind, bytes)| Rig::sized(kind, bytes, QUEUE_DEPTH)).collect();
        let places = [ScratchDir::on_target(), tmpfs()].into_iter().flatten();
        let shelves = places.map(|place| Shelf::new(place, rng)).collect();
        let disturbed = Scratch::new(rng.next_u64(), DISTURBED_BYTES);
        let directory = ScratchDir::on_target().unwrap();
        House { rigs, shelves, disturbed, directory, done: Done::default() }
    }

    fn round(&self, time: Duration, seed: u64) {
        let (mut rng, until) =
            (Rng::new(seed), Until { end: Instant::now() + time, panicked: AtomicBool::new(false) });
        if rng.chance(1, 4) {
            self.shelves.iter().for_each(Shelf::make_cold);
        }
        let mut seed = || rng.next_u64();
        thread::scope(|scope| {
            let until = &until;
            for (number, rig) in self.rigs.iter().enumerate() {
                let seeds = [0; READERS + WRITERS + 2].map(|_| seed());
                let (readers, others) = seeds.split_at(READERS);
                for &seed in readers {
                    scope.spawn(move || until.watch(|| self.read(rig, until, seed)));
                }
                for (writer, &seed) in others[2..].iter().enumerate() {
                    scope.spawn(move || {
                        until.watch(|| self.write(rig, &format!("{number}-{writer}"), until, seed))
                    });
                }
                let (tenant, foreign) = (others[0], others[1]);
                scope.spawn(move || {
                    until.watch(|| self.dwell(rig, &format!("{number}-tenant"), until, tenant))
                });
                scope.spawn(move || until.watch(|| read_disturbed(rig, &self.disturbed, until, foreign)));
            }
            let (disturber, passing, forking) = (seed(), seed(), seed());
            scope.spawn(move || until.watch(|| disturb(&self.disturbed, until, disturber)));
            scope.spawn(move || until.watch(|| self.come_and_go(until, passing)));
            scope.spawn(move || until.watch(|| self.fork(forking)));
        });
    }

    /// Nothing is under way, and nobody has anything.
    fn rest(&self, start: Instant) -> Sample {
        for rig in &self.rigs {
            rig.engine.flush().unwrap();
            rig.assert_idle();
        }
        let engines: Vec<&Engine> = self.rigs.iter().map(|rig| &rig.engine).collect();
        Sample::take(start.elapsed(), &engines)
    }

    fn shelf(&self, rng: &mut Rng) -> &Shelf {
        &self.shelves[rng.below(self.shelves.len() as u64) as usize]
    }

    fn read(&self, rig: &Rig, until: &Until, seed: u64) {
        let mut rng = Rng::new(seed);
        let mut dweller = Dweller::new(rig, self.shelf(&mut rng), rng.next_u64());
        while !until.is_over() {
            dweller.step();
        }
        self.done.read_bytes.fetch_add(dweller.read_bytes, Ordering::Relaxed);
    }

    /// Case after case of the oracle of writing, each on a new file.
    fn write(&self, rig: &Rig, name: &str, until: &Until, seed: u64) {
        let (mut rng, path) = (Rng::new(seed), self.directory.path().join(name));
        while !until.is_over() {
            let _ = std::fs::remove_file(&path);
            let mixture = [Mixture::Cached, Mixture::Mixed][rng.below(2) as usize];
            let case =
                Case { length_bytes_max: LENGTH_BYTES_MAX, ..Case::new(rng.next_u64(), mixture, CASE) };
            let (mut actor, mut count) = (Actor::new(rig, &path), 0);
            let mut operations = case.operations().into_iter().take_while(|_| !until.is_over());
            let done = operations.try_for_each(|operation| {
                count += 1;
                actor.perform(operation).map_err(|error| format!("{operation:?}: {error}"))
            });
            let done = done.and_then(|()| actor.finish());
            done.unwrap_or_else(|error| panic!("{}, operation {count}: {error}\n{case:#x?}", rig.name()));
            // A closed file is remembered with its pages, also when it is deleted: thousands of them, which take minutes to come.
            let file = OpenOptions::new().engine(&rig.engine).caching(Caching::On).open(&path).unwrap();
            file.advise(Advice::DontNeed, ..).unwrap();
            self.done.writer_operations.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn dwell(&self, rig: &Rig, name: &str, until: &Until, seed: u64) {
        let (mut tenant, mut count) = (Tenant::new(rig, &self.directory.path().join(name), seed), 0);
        while !until.is_over() {
            tenant.step();
            count += 1;
        }
        self.done.evictions_heard.fetch_add(tenant.leave(), Ordering::Relaxed);
        self.done.tenant_operations.fetch_add(count, Ordering::Relaxed);
    }

    /// Engines on any driver, of any size, each for a moment.
    fn come_and_go(&self, until: &Until, seed: u64) {
        let (mut rng, kinds) = (Rng::new(seed), drivers(seed));
        while !until.is_over() {
            let kind = kinds[rng.below(kinds.len() as u64) as usize].clone();
            let memory_bytes = [3 << 20, 4 << 20, 6 << 20, 16 << 20][rng.below(4) as usize];
            let rig = Rig::sized(kind, memory_bytes, 1 + rng.below(40) as u32);
            let shelf = self.shelf(&mut rng);
            let watching = if rng.chance(1, 2) { shelf.open_all(&rig) } else { Vec::new() };
            let mut dweller = Dweller::new(&rig, shelf, rng.next_u64());
            (0..rng.below(60)).for_each(|_| dweller.step());
            drop(dweller);
            if !watching.is_empty() {
                assert_exact(&rig, &watching);
            }
            self.done.engines.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A child in the midst of it all, with files of all engines, which report that they are its parent's; it reads by an engine of its own,
    /// which starts no thread: the standard library holds a lock while a thread begins, and elsewhere in this process one may just do so.
    fn fork(&self, seed: u64) {
        let (mut rng, shelf) = (Rng::new(seed), &self.shelves[0]);
        let contents = shelf.files[rng.below(shelf.files.len() as u64) as usize];
        let path = shelf.path(&contents);
        let files: Vec<File> = self.rigs.iter().map(|rig| rig.open(&path, IoMode::Auto)).collect();
        run_forked(|| {
            for file in &files {
                let refused = file.read_at(&mut [0; 100], 0);
                assert!(matches!(refused, Err(Error::Forked(_))), "{refused:?}");
            }
            let own = Engine::builder().memory(3 << 20).local().unwrap();
            let mut bytes = vec![0; contents.length_bytes as usize];
            own.open(&path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(contents.pattern.mismatch(0, &bytes), None);
        });
        for file in files {
            let bytes = block_on(file.read_at_async(0, contents.length_bytes as usize)).unwrap();
            assert_eq!(contents.pattern.mismatch(0, &bytes), None);
        }
        self.done.forks.fetch_add(1, Ordering::Relaxed);
    }
}

/// When a round is over: when its time is, or somebody has panicked.
struct Until {
    end: Instant,
    panicked: AtomicBool,
}

impl Until {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end || self.panicked.load(Ordering::Relaxed)
    }

    fn watch(&self, work: impl FnOnce()) {
        struct Flag<'a>(&'a AtomicBool);
        impl Drop for Flag<'_> {
            fn drop(&mut self) {
                self.0.fetch_or(thread::panicking(), Ordering::Relaxed);
            }
        }
        let _flag = Flag(&self.panicked);
        work();
    }
}

/// Truncates the file and writes it again, all the time.
fn disturb(scratch: &Scratch, until: &Until, seed: u64) {
    let (file, mut rng) = (scratch.file(), Rng::new(seed));
    let mut data = vec![0; scratch.length_bytes as usize];
    scratch.pattern.fill(0, &mut data);
    while !until.is_over() {
        let end = rng.below(scratch.length_bytes);
        file.set_len(end).unwrap();
        file.write_all_at(&data[end as usize..], end).unwrap();
    }
}

/// Each byte is that of its place, or zero where the file was just being truncated and written.
fn read_disturbed(rig: &Rig, scratch: &Scratch, until: &Until, seed: u64) {
    let mut rng = Rng::new(seed);
    let revalidate = [Duration::ZERO, Duration::from_millis(1)][rng.below(2) as usize];
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).revalidate(revalidate);
    // Where it was just truncated to nothing it is not cached, which is no harm.
    let file = options.open(scratch.path()).unwrap();
    while !until.is_over() {
        let (offset_bytes, length) = (rng.below(scratch.length_bytes), rng.below(60_000) as usize);
        let mut buffer = vec![0; length];
        let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
        scratch.check_or_zero(offset_bytes, &buffer[..read_bytes]);
        let bytes = block_on(file.read_at_async(offset_bytes, length)).unwrap();
        scratch.check_or_zero(offset_bytes, &bytes);
    }
}

const CHILD: &str = "HEADWATER_SOAK_CHILD";

/// `mallopt(3)`: one pool for all threads, and larger pieces go back to the system when they are freed. With the defaults the same
/// soak takes twice the memory, and no two looks are the same.
const ALLOCATOR: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "65536")];

const TABLE_LINES: u32 = 30;

const SECONDS: u64 = 6;

/// So often, at least, everything rests and is looked at; far less than the patience of [`watched`].
const ROUNDS_MIN: u32 = 24;
const ROUND_MAX: Duration = Duration::from_secs(3);

/// Of the engines that stay: under pressure always, and sometimes.
const MEMORY_BYTES: [u64; 2] = [6 << 20, 24 << 20];
const QUEUE_DEPTH: u32 = 16;

/// For each of them.
const READERS: usize = 2;
const WRITERS: usize = 2;

/// Of the oracle of writing.
const CASE: usize = 150;
const LENGTH_BYTES_MAX: u64 = 1 << 20;

const DISTURBED_BYTES: u64 = 400_000;
