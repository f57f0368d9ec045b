//! In flight: random direct reads of 4 KiB, 32 at a time, from the runtimes that people use and from plain threads.
//!
//! Owns: runtimes, tasks and threads, and how they share the work.
//! Does not own: offsets and buffers (arms).

use std::io;
use std::time::Instant;

use crate::pages::{AlignedBuffer, Offsets, PAGE, random_loop};

pub(super) fn tokio_current(file: &headwater::File, seconds: f64) -> io::Result<u64> {
    tokio_tasks(&mut tokio::runtime::Builder::new_current_thread(), file, seconds)
}

pub(super) fn tokio_multi(file: &headwater::File, seconds: f64) -> io::Result<u64> {
    tokio_tasks(tokio::runtime::Builder::new_multi_thread().worker_threads(2), file, seconds)
}

/// Everything enabled, as `#[tokio::main]` does.
fn tokio_tasks(
    builder: &mut tokio::runtime::Builder,
    file: &headwater::File,
    seconds: f64,
) -> io::Result<u64> {
    let jobs = Job::all(file, seconds)?;
    builder.enable_all().build()?.block_on(async {
        let tasks: Vec<_> = jobs.into_iter().map(|job| tokio::spawn(job.run())).collect();
        let mut bytes = 0;
        for task in tasks {
            bytes += task.await.map_err(io::Error::other)??;
        }
        Ok(bytes)
    })
}

pub(super) fn smol(file: &headwater::File, seconds: f64) -> io::Result<u64> {
    let jobs = Job::all(file, seconds)?;
    smol::block_on(async {
        let tasks: Vec<_> = jobs.into_iter().map(|job| smol::spawn(job.run())).collect();
        let mut bytes = 0;
        for task in tasks {
            bytes += task.await?;
        }
        Ok(bytes)
    })
}

pub(super) fn threads(file: &headwater::File, seconds: f64) -> io::Result<u64> {
    let length_bytes = file.len()?;
    let read = |seed| {
        let mut memory = AlignedBuffer::of_a_page();
        let offsets = Offsets::new(seed, length_bytes);
        random_loop(offsets, seconds, |offset| Ok(file.read_exact_at(memory.bytes(), offset)?))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..DEPTH).map(|seed| scope.spawn(move || read(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a reading thread does not panic")).sum()
    })
}

/// One of the tasks: reads one page after the other.
struct Job {
    file: headwater::File,
    offsets: Offsets,
    start: Instant,
    seconds: f64,
}

impl Job {
    fn all(file: &headwater::File, seconds: f64) -> io::Result<Vec<Job>> {
        let (length_bytes, start) = (file.len()?, Instant::now());
        let job =
            |seed| Job { file: file.clone(), offsets: Offsets::new(seed, length_bytes), start, seconds };
        Ok((0..DEPTH).map(job).collect())
    }

    async fn run(mut self) -> io::Result<u64> {
        let mut bytes = 0;
        while self.start.elapsed().as_secs_f64() < self.seconds {
            bytes += self.file.read_exact_at_async(self.offsets.next(), PAGE as usize).await?.len() as u64;
        }
        Ok(bytes)
    }
}

/// As fio's `--iodepth=32`.
const DEPTH: u64 = 32;
