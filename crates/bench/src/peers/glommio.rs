//! Glommio: its direct files and their streams, its buffered files, tasks in one thread that does not spin.
//!
//! Owns: its streams, its two kinds of file.
//! Does not own: the rows that are written for all runtimes (runtime).

use std::future::Future;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use glommio::io::{BufferedFile, DmaFile, DmaStreamReaderBuilder, ImmutableFileBuilder, ReadResult};
use glommio::{LocalExecutorBuilder, Placement};

use super::cores;
use super::rows::{Arm, Row};
use super::runtime::{self, Opening, Runtime};
use super::work::{Hashing, Job, Lane, Meter, PIECE_BYTES, PageSum, Sample};
use crate::pages::PAGE;

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    let opening = if job.arm == Arm::Glommio { Opening::Direct } else { Opening::Buffered };
    match job.row {
        Row::ColdScan => scan(job),
        Row::ColdRandom1 | Row::ColdRandom20 | Row::ColdRandom50 => {
            runtime::random(&Glommio, job, job.row.depth(), opening)
        }
        Row::WarmRandom => runtime::random(&Glommio, job, runtime::WARM_TASKS, opening),
        Row::FilesCold | Row::FilesWarm => runtime::files(&Glommio, job, runtime::FILE_TASKS, opening),
        Row::Hash => hash(job),
        Row::CoreScan | Row::CoresScan => scan_on_cores(job),
        Row::CoreRandom | Row::CoresRandom => random_on_cores(job),
    }
}

fn scan_on_cores(job: &Job) -> io::Result<Sample> {
    let (meter, mut total) = (Meter::start(), PageSum::default());
    let parts = cores::parts(job, cores::count(job.row, processors()))?;
    let scan = |path: PathBuf, part: Range<u64>| async move {
        let file = DmaFile::open(&path).await?;
        let stream = DmaStreamReaderBuilder::new(file).with_start_pos(part.start).with_end_pos(part.end);
        let mut stream = stream.with_buffer_size(PIECE_BYTES).with_read_ahead(EXAMPLE_BUFFERS_AHEAD).build();
        let mut total = PageSum::default();
        loop {
            let chunk = stream.get_buffer_aligned(PIECE_BYTES as u64).await?;
            if chunk.is_empty() {
                break;
            }
            total.add(&chunk);
        }
        stream.close().await?;
        io::Result::Ok(total)
    };
    for part in on_cores(job, parts, scan)? {
        total = total.merge(part);
    }
    Ok(meter.sample(total.bytes, 0, total.sum))
}

fn random_on_cores(job: &Job) -> io::Result<Sample> {
    let meter = Meter::start();
    let lanes = cores::lanes(job, cores::count(job.row, processors()))?;
    let random = |path: PathBuf, lanes: Vec<Lane>| async move {
        let file = Rc::new(DmaFile::open(&path).await?);
        let task = |mut lane: Lane| {
            let file = file.clone();
            glommio::spawn_local(async move {
                while let Some(offset) = lane.next() {
                    lane.take(&file.read_at_aligned(offset, PAGE as usize).await?)?;
                }
                io::Result::Ok(lane)
            })
        };
        let lanes =
            futures_util::future::try_join_all(lanes.into_iter().map(task).collect::<Vec<_>>()).await?;
        file.close_rc().await?;
        io::Result::Ok(lanes)
    };
    let lanes = on_cores(job, lanes, random)?;
    meter.lanes(lanes.into_iter().flatten().map(Ok))
}

/// An executor for each share of the work, pinned as in the example.
fn on_cores<W, T, F>(
    job: &Job,
    shares: Vec<W>,
    work: impl Fn(PathBuf, W) -> F + Copy + Send + 'static,
) -> io::Result<Vec<T>>
where
    W: Send + 'static,
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + 'static,
{
    let start = |(core, share)| {
        let path = job.path.clone();
        let builder = LocalExecutorBuilder::new(Placement::Fixed(core)).io_memory(MEMORY_BYTES);
        Ok(builder.spin_before_park(SPIN).spawn(move || work(path, share))?)
    };
    let threads: Vec<_> = shares.into_iter().enumerate().map(start).collect::<io::Result<_>>()?;
    threads.into_iter().map(|thread| thread.join()?).collect()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn scan(job: &Job) -> io::Result<Sample> {
    let (meter, mut total) = (Meter::start(), PageSum::default());
    stream(job, |chunk| total.add(chunk))?;
    Ok(meter.sample(total.bytes, 0, total.sum))
}

fn hash(job: &Job) -> io::Result<Sample> {
    let (meter, mut hashing) = (Meter::start(), Hashing::default());
    stream(job, |chunk| hashing.add(chunk))?;
    Ok(hashing.finish(&meter))
}

/// Its own reading ahead, without a copy.
fn stream(job: &Job, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    Glommio.block_on(async {
        let file = ImmutableFileBuilder::new(&job.path).build_existing().await?;
        let stream = file.stream_reader().with_buffer_size(PIECE_BYTES).with_read_ahead(BUFFERS_AHEAD);
        let mut stream = stream.build();
        loop {
            let chunk = stream.get_buffer_aligned(PIECE_BYTES as u64).await?;
            if chunk.is_empty() {
                break;
            }
            take(&chunk);
        }
        stream.close().await?;
        Ok(())
    })
}

#[derive(Clone)]
struct Glommio;

enum File {
    Direct(DmaFile),
    Buffered(BufferedFile),
}

/// Glommio brings the memory.
struct Buffer {
    length: usize,
    read: Option<ReadResult>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.read.as_deref().unwrap_or_default()
    }
}

impl Runtime for Glommio {
    type File = File;
    type Buffer = Buffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let builder = LocalExecutorBuilder::new(Placement::Unbound).io_memory(MEMORY_BYTES);
        builder.make()?.run(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        let tasks: Vec<_> = tasks.into_iter().map(glommio::spawn_local).collect();
        futures_util::future::join_all(tasks).await
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<File> {
        Ok(match opening {
            Opening::Direct => File::Direct(DmaFile::open(path).await?),
            Opening::Buffered => File::Buffered(BufferedFile::open(path).await?),
        })
    }

    fn buffer(&self, length: usize) -> Buffer {
        Buffer { length, read: None }
    }

    async fn read(&self, file: &File, buffer: Buffer, offset: u64) -> io::Result<Buffer> {
        let length = buffer.length;
        drop(buffer);
        let read = match file {
            File::Direct(file) => file.read_at_aligned(offset, length).await?,
            File::Buffered(file) => file.read_at(offset, length).await?,
        };
        Ok(Buffer { length, read: Some(read) })
    }

    async fn close(&self, file: File) -> io::Result<()> {
        match file {
            File::Direct(file) => file.close().await?,
            File::Buffered(file) => file.close().await?,
        }
        Ok(())
    }
}

/// Beyond its 10 MiB by default, buffers are mapped and unmapped for each read.
const MEMORY_BYTES: usize = 64 << 20;

/// Of the example.
const EXAMPLE_BUFFERS_AHEAD: usize = 10;

/// Of the example.
const SPIN: Duration = Duration::from_millis(10);

/// Twice as fast as with 5.
const BUFFERS_AHEAD: usize = 32;
