//! Row, the child's side of the random suite: warms what is to be warm, and reads standard input at random until time is up.
//!
//! Owns: warming, the measured loops, the clocks, the check that the right bytes arrived.
//! Does not own: making the file cold, the cgroup.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use headwater::testing::{MapAdvice, MappedFile};
use headwater::{Caching, Engine, IoMode};
use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES};
use headwater_measure::affinity::Affinity;
use headwater_measure::process::{device_read_bytes, peak_rss_kib};
use headwater_measure::{Latencies, Meter, cgroup, crew, sum_of_words};
use serde::{Deserialize, Serialize};

use super::tasks::{Task, give_way, run_all};
use super::{IN_FLIGHT, Way};
use crate::bench::arguments::RowArguments;
use crate::bench::input::{self, CHECKS, INPUT, no_such_row, pass, resident_pages, wrong_bytes};
use crate::shared::random::mixed;

/// What a way did in one round.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(in crate::bench) struct Measured {
    pub(super) reads: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) peak_rss_kib: u64,
    /// Share of the reads, and how many microseconds those took at most.
    pub(super) within_us: Vec<(f64, f64)>,
    /// Of the span, in the kernel's page cache when the clock started; `None` where the kernel does not tell.
    pub(super) kernel_pages: Option<u64>,
    /// The same in headwater's memory.
    pub(super) own_pages: Option<u64>,
    /// What the device read meanwhile; `None` where the kernel does not count.
    pub(super) device_bytes: Option<u64>,
    /// Reads that headwater had in memory.
    pub(super) hit_share: Option<f64>,
    pub(super) driver: Option<String>,
}

/// # Errors
/// What reading reports; an unknown row; wrong bytes.
pub(in crate::bench) fn measure(arguments: &RowArguments) -> io::Result<Measured> {
    if let Some(cgroup) = &arguments.cgroup {
        cgroup::enter(cgroup)?;
    }
    let (way, contents) = arguments.row.split_once(':').ok_or_else(no_such_row)?;
    let way = Way::ALL.into_iter().find(|known| known.id() == way).ok_or_else(no_such_row)?;
    let run = Run {
        span_bytes: arguments.bytes,
        limit: Duration::from_millis(arguments.limit_ms),
        seed: arguments.seed,
        is_scrambled: contents == MADE,
    };
    match way {
        Way::Buffered => buffered(run),
        Way::Mapped => mapped(run, MapAdvice::Normal),
        Way::MappedRandom => mapped(run, MapAdvice::Random),
        Way::Direct => direct(run),
        Way::HeadwaterThreads
        | Way::HeadwaterTasks
        | Way::HeadwaterViews
        | Way::HeadwaterWindow
        | Way::HeadwaterDirect
        | Way::HeadwaterSqpoll => headwater(run, way, arguments),
    }
}

#[derive(Clone, Copy)]
struct Run {
    span_bytes: u64,
    limit: Duration,
    seed: u64,
    /// The file was made for this, so it is known what is in it.
    is_scrambled: bool,
}

fn buffered(run: Run) -> io::Result<Measured> {
    let file = File::open(INPUT)?;
    pass(run.span_bytes, |buffer, offset_bytes| file.read_exact_at(buffer, offset_bytes))?;
    run.threads(|| {
        let mut buffer = vec![0; PAGE_BYTES];
        let file = &file;
        move |offset_bytes| {
            file.read_exact_at(&mut buffer, offset_bytes)?;
            Ok(used(&buffer))
        }
    })
}

fn mapped(run: Run, advice: MapAdvice) -> io::Result<Measured> {
    let file = File::open(INPUT)?;
    pass(run.span_bytes, |buffer, offset_bytes| file.read_exact_at(buffer, offset_bytes))?;
    let mapped = MappedFile::map(file.as_fd(), run.span_bytes, advice)?;
    if resident_pages(run.span_bytes)?.is_none_or(|pages| pages * PAGE_SIZE_BYTES >= run.span_bytes) {
        // The page cache has it; after this the page tables have.
        std::hint::black_box(mapped.sum_of_pages());
    }
    run.threads(|| {
        let (mut first, mapped) = ([0; 8], &mapped);
        move |offset_bytes| {
            std::hint::black_box(mapped.sum_of_words(offset_bytes, PAGE_BYTES));
            mapped.copy_at(&mut first, offset_bytes);
            Ok(u64::from_le_bytes(first))
        }
    })
}

fn direct(run: Run) -> io::Result<Measured> {
    let file = input::direct(OpenOptions::new().read(true))?;
    run.threads(|| {
        let mut room = vec![0; 2 * PAGE_BYTES];
        let lead = room.as_ptr().align_offset(PAGE_BYTES);
        let file = &file;
        move |offset_bytes| {
            let buffer = &mut room[lead..lead + PAGE_BYTES];
            file.read_exact_at(buffer, offset_bytes)?;
            Ok(used(buffer))
        }
    })
}

fn headwater(run: Run, way: Way, arguments: &RowArguments) -> io::Result<Measured> {
    let mut builder = arguments.engine.builder();
    if way == Way::HeadwaterSqpoll {
        builder = builder.submission_polling(arguments.kernel_thread.polling());
    }
    let engine = builder.build()?;
    let mut options = headwater::OpenOptions::new();
    options.engine(&engine);
    if way.is_direct() {
        options.caching(Caching::Off).io(IoMode::Direct);
    }
    let file = options.open(INPUT)?;
    if way == Way::HeadwaterWindow {
        return run.window(&file, engine.info().memory_bytes).map(|measured| with_driver(measured, &engine));
    }
    if !way.is_direct() {
        pass(run.span_bytes, |buffer, offset_bytes| Ok(file.read_exact_at(buffer, offset_bytes)?))?;
    }
    let before = engine.stats().cache;
    let measured = match way {
        Way::HeadwaterThreads => run.threads(|| {
            let mut buffer = vec![0; PAGE_BYTES];
            let file = &file;
            move |offset_bytes| {
                file.read_exact_at(&mut buffer, offset_bytes)?;
                Ok(used(&buffer))
            }
        }),
        Way::HeadwaterViews => run.threads(|| {
            let file = &file;
            move |offset_bytes| {
                let view = file.view(offset_bytes, PAGE_BYTES)?;
                Ok(view.chunks().next().map_or(0, used))
            }
        }),
        _ => run.tasks(&file),
    }?;
    Ok(with_driver(measured, &engine).with_cache(&engine, &before))
}

fn with_driver(measured: Measured, engine: &Engine) -> Measured {
    Measured { driver: Some(engine.info().driver.to_owned()), ..measured }
}

impl Measured {
    fn with_cache(self, engine: &Engine, before: &headwater::CacheStats) -> Measured {
        let after = engine.stats().cache.counts;
        let (hits, misses) = (after.hits - before.counts.hits, after.misses - before.counts.misses);
        // A page that is waited for is a hit when it has arrived.
        let is_cached = hits + misses > 0;
        let hit_share = is_cached.then(|| 1.0 - (misses as f64 / self.reads as f64).min(1.0));
        Measured { hit_share, own_pages: Some(before.resident_pages), ..self }
    }
}

impl Run {
    /// Reads with threads, each with what `reader` makes for it: reads a page, uses all of it, and returns its first word.
    fn threads<R: FnMut(u64) -> io::Result<u64> + Send>(
        self,
        mut reader: impl FnMut() -> R,
    ) -> io::Result<Measured> {
        let mut check = reader();
        let readers: Vec<R> = (0..IN_FLIGHT).map(|_| reader()).collect();
        let readers = Mutex::new(readers);
        let prepare = |number| {
            let reader = readers.lock().expect("no thread panics with the readers").pop();
            Ok((Worker::new(self, number), reader.expect("there is one for each thread")))
        };
        let measured = self.measured(|| {
            crew::run(IN_FLIGHT, &Affinity::None, prepare, |(mut worker, mut read)| {
                worker.start();
                while worker.goes_on() {
                    let word = read(worker.offset_bytes)?;
                    worker.took(word)?;
                }
                Ok(worker.latencies)
            })
        })?;
        self.check(&mut check)?;
        Ok(measured)
    }

    /// Reads a window on demand, with three quarters of the memory of the engine, which keeps an eighth.
    fn window(self, file: &headwater::File, memory_bytes: u64) -> io::Result<Measured> {
        let view = file.map_on_demand(..self.span_bytes, memory_bytes / 4 * 3)?;
        pass(self.span_bytes, |buffer, offset_bytes| Ok(view.read(offset_bytes, buffer)?))?;
        self.threads(|| {
            let mut buffer = vec![0; PAGE_BYTES];
            let view = &view;
            move |offset_bytes| {
                view.read(offset_bytes, &mut buffer)?;
                Ok(used(&buffer))
            }
        })
    }

    /// Reads with tasks on this thread.
    fn tasks(self, file: &headwater::File) -> io::Result<Measured> {
        let task = |number| -> Task<io::Result<Latencies>> {
            let (file, mut worker) = (file.clone(), Worker::new(self, number));
            Box::pin(async move {
                worker.start();
                while worker.goes_on() {
                    let bytes = file.read_exact_at_async(worker.offset_bytes, PAGE_BYTES).await?;
                    worker.took(used(&bytes))?;
                    if worker.latencies.count().is_multiple_of(READS_BEFORE_GIVING_WAY) {
                        give_way().await;
                        worker.last = Instant::now();
                    }
                }
                Ok(worker.latencies)
            })
        };
        let measured = self.measured(|| run_all((0..IN_FLIGHT).map(task).collect()).into_iter().collect())?;
        let mut buffer = vec![0; PAGE_BYTES];
        self.check(|offset_bytes| {
            file.read_exact_at(&mut buffer, offset_bytes)?;
            Ok(used(&buffer))
        })?;
        Ok(measured)
    }

    fn measured(self, work: impl FnOnce() -> io::Result<Vec<Latencies>>) -> io::Result<Measured> {
        let kernel_pages = resident_pages(self.span_bytes)?;
        let (before, meter) = (device_read_bytes(), Meter::start());
        let parts = work()?;
        let (seconds, cpu_seconds) = (meter.seconds(), meter.cpu_seconds());
        let device_bytes = before.zip(device_read_bytes()).map(|(before, after)| after - before);
        let latencies = Latencies::sum(parts);
        let within = |&share: &f64| (share, latencies.within_us(share));
        Ok(Measured {
            reads: latencies.count(),
            seconds,
            cpu_seconds,
            peak_rss_kib: peak_rss_kib()?,
            within_us: SHARES.iter().map(within).collect(),
            kernel_pages,
            own_pages: None,
            device_bytes,
            hit_share: None,
            driver: None,
        })
    }

    /// A way that gives wrong bytes may be as fast as it likes: reads again at some places, and compares with the file.
    fn check(self, mut read: impl FnMut(u64) -> io::Result<u64>) -> io::Result<()> {
        let file = File::open(INPUT)?;
        for number in 0..CHECKS {
            let offset_bytes = self.offset_bytes(!self.seed, number);
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, offset_bytes)?;
            if read(offset_bytes)? != u64::from_le_bytes(bytes) {
                return Err(wrong_bytes(offset_bytes));
            }
        }
        Ok(())
    }

    fn offset_bytes(self, seed: u64, number: u64) -> u64 {
        // The upper half of a product spreads evenly, and is cheaper than a remainder.
        let pages = u128::from(self.span_bytes / PAGE_SIZE_BYTES);
        ((u128::from(mixed(seed ^ mixed(number))) * pages) >> 64) as u64 * PAGE_SIZE_BYTES
    }
}

/// One of the readers that run at the same time: its places, its clock.
struct Worker {
    run: Run,
    seed: u64,
    number: u64,
    offset_bytes: u64,
    last: Instant,
    deadline: Instant,
    latencies: Latencies,
}

impl Worker {
    fn new(run: Run, number: u32) -> Worker {
        let (seed, now) = (mixed(run.seed << 8 | u64::from(number)), Instant::now());
        Worker {
            run,
            seed,
            number: 0,
            offset_bytes: 0,
            last: now,
            deadline: now,
            latencies: Latencies::coarse(),
        }
    }

    fn start(&mut self) {
        self.last = Instant::now();
        self.deadline = self.last + self.run.limit;
    }

    /// Whether there is time for another read; then its place is the next.
    fn goes_on(&mut self) -> bool {
        self.offset_bytes = self.run.offset_bytes(self.seed, self.number);
        self.number += 1;
        // So that a slow device has a figure too.
        self.last < self.deadline || self.number == 1
    }

    fn took(&mut self, word: u64) -> io::Result<()> {
        let now = Instant::now();
        self.latencies.record(now - self.last);
        self.last = now;
        if self.run.is_scrambled && word != mixed(self.offset_bytes / 8) {
            return Err(wrong_bytes(self.offset_bytes));
        }
        Ok(())
    }
}

/// Uses a page as a program does that wants all of it, wherever it lies, and returns its first word.
fn used(page: &[u8]) -> u64 {
    std::hint::black_box(sum_of_words(page));
    u64::from_le_bytes(*page.first_chunk().expect("a read has a page"))
}

/// What is in the file: what it was filled with when it was made here, or the user's own.
pub(super) const MADE: &str = "made";
pub(super) const GIVEN: &str = "given";

/// Where the curve of latencies has points.
pub(super) const SHARES: [f64; 12] =
    [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0];

/// Runtimes let a task that is always ready go on for so long, or longer.
const READS_BEFORE_GIVING_WAY: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: places are pages of the span, all parts of it are met, and a seed gives the same ones again.
    #[test]
    fn places_lie_within_the_span() {
        let run = Run { span_bytes: 1 << 20, limit: Duration::ZERO, seed: 3, is_scrambled: false };
        let places = |seed| (0..4000).map(move |number| run.offset_bytes(seed, number));
        let mut met = [false; 256];
        for offset in places(5) {
            assert!(offset.is_multiple_of(PAGE_SIZE_BYTES) && offset < 1 << 20);
            met[(offset / PAGE_SIZE_BYTES) as usize] = true;
        }
        assert_eq!(met, [true; 256]);
        assert!(places(5).eq(places(5)) && !places(5).eq(places(6)));
    }
}
