//! Cores: the rows for a thread on each core, as Glommio's example of files has them, and how headwater does them.
//!
//! Owns: on which cores, each core's part of a file, its tasks.
//! Does not own: how Glommio does them (glommio).

use std::io;
use std::ops::Range;
use std::rc::Rc;

use futures_util::{AsyncBufReadExt, AsyncSeekExt};
use headwater::{Caching, File, IoMode, Local, LocalEngine, LocalEngines, OpenOptions, Task};

use super::rows::Row;
use super::work::{Job, Lane, Meter, PIECE_BYTES, PageSum, Sample};
use crate::pages::PAGE;

/// Reads in flight on each core.
pub(super) const TASKS: usize = 50;

/// How many cores the row is about: the example has one, the first.
pub(super) fn count(row: Row, available: usize) -> usize {
    match row {
        Row::CoreScan | Row::CoreRandom => 1,
        _ => available,
    }
}

/// The part of the file that each core scans, cut between pieces.
pub(super) fn parts(job: &Job, cores: usize) -> io::Result<Vec<Range<u64>>> {
    let length_bytes = job.length_bytes()?;
    let part = length_bytes.div_ceil(cores as u64).next_multiple_of(PIECE_BYTES as u64);
    Ok((0..cores as u64)
        .map(|core| (core * part).min(length_bytes)..((core + 1) * part).min(length_bytes))
        .collect())
}

/// The sequences of random reads of each core.
pub(super) fn lanes(job: &Job, cores: usize) -> io::Result<Vec<Vec<Lane>>> {
    let mut lanes = Lane::all(job, (cores * TASKS) as u32)?.into_iter();
    Ok((0..cores).map(|_| lanes.by_ref().take(TASKS).collect()).collect())
}

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    let meter = Meter::start();
    let engines = LocalEngines::per_processor()?;
    let cores = count(job.row, engines.count());
    match job.row {
        Row::CoreScan | Row::CoresScan => {
            let spawn = |(core, part)| {
                let path = job.path.clone();
                engines.spawn(core, |engine| async move { scan(&engine.open(path)?, part).await })
            };
            let tasks: Vec<_> = parts(job, cores)?.into_iter().enumerate().map(spawn).collect();
            let mut total = PageSum::default();
            for task in tasks {
                total = total.merge(task.wait()?);
            }
            Ok(meter.sample(total.bytes, 0, total.sum))
        }
        Row::CoreRandom | Row::CoresRandom => {
            let spawn = |(core, lanes)| {
                let path = job.path.clone();
                engines.spawn(core, |engine| async move {
                    let mut options = OpenOptions::new();
                    let file = engine.open_with(options.io(IoMode::Direct).caching(Caching::Off), path)?;
                    random(&engine, &file, lanes).await
                })
            };
            let tasks: Vec<_> = lanes(job, cores)?.into_iter().enumerate().map(spawn).collect();
            let lanes = tasks.into_iter().map(Task::wait).collect::<io::Result<Vec<_>>>()?;
            meter.lanes(lanes.into_iter().flatten().map(Ok))
        }
        _ => job.unknown(),
    }
}

async fn scan(file: &Local<File>, part: Range<u64>) -> io::Result<PageSum> {
    let (mut reader, mut total) = (file.async_reader(), PageSum::default());
    reader.seek(io::SeekFrom::Start(part.start)).await?;
    let mut left = (part.end - part.start) as usize;
    while left > 0 {
        let chunk = reader.fill_buf().await?;
        let length = chunk.len().min(left);
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        total.add(&chunk[..length]);
        reader.consume_unpin(length);
        left -= length;
    }
    Ok(total)
}

async fn random(engine: &Rc<LocalEngine>, file: &Local<File>, lanes: Vec<Lane>) -> io::Result<Vec<Lane>> {
    let task = |mut lane: Lane| {
        let file = file.clone();
        engine.spawn(async move {
            while let Some(offset) = lane.next() {
                lane.take(&file.read_at_async(offset, PAGE as usize).await?)?;
            }
            io::Result::Ok(lane)
        })
    };
    let tasks: Vec<_> = lanes.into_iter().map(task).collect();
    futures_util::future::try_join_all(tasks).await
}
