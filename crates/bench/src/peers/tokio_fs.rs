//! Tokio: `tokio::fs`, and `spawn_blocking` for positional reads, which it does not have. All calls block in its pool.
//!
//! Owns: which of its two ways each row takes.
//! Does not own: the rows that are written for all runtimes (runtime).

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use tokio::io::AsyncReadExt;

use super::rows::Row;
use super::runtime::{self, Opening, RingBuffer, Runtime};
use super::work::{FileSum, Job, Meter, PageSum, Sample};

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    match job.row {
        Row::ColdScan => scan(job),
        Row::ColdRandom1 | Row::ColdRandom20 | Row::ColdRandom50 => {
            runtime::random(&Tokio, job, job.row.depth(), Opening::Direct)
        }
        Row::WarmRandom => runtime::random(&Tokio, job, runtime::WARM_TASKS, Opening::Buffered),
        Row::FilesCold | Row::FilesWarm => files(job),
        Row::Hash => runtime::hash(&Tokio, job, Opening::Buffered),
        Row::CoreScan | Row::CoreRandom | Row::CoresScan | Row::CoresRandom => job.unknown(),
    }
}

/// By `tokio::fs::File`, with the buffer that it is fastest with.
fn scan(job: &Job) -> io::Result<Sample> {
    let (meter, mut total) = (Meter::start(), PageSum::default());
    Tokio.block_on(async {
        let mut file = tokio::fs::File::open(&job.path).await?;
        file.set_max_buf_size(BUFFER_BYTES);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = file.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            total.add(&buffer[..length]);
        }
    })?;
    Ok(meter.sample(total.bytes, 0, total.sum))
}

/// By `tokio::fs::read`, which opens, reads and closes in one visit to the pool.
fn files(job: &Job) -> io::Result<Sample> {
    let meter = Meter::start();
    let next = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let task = |_| {
        let (job, next) = (job.clone(), next.clone());
        async move {
            let mut total = FileSum::default();
            loop {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if index >= job.files {
                    return Ok(total);
                }
                total.add(&tokio::fs::read(job.file(index)).await?);
            }
        }
    };
    Tokio.block_on(async {
        let mut total = FileSum::default();
        for part in Tokio.all((0..FILE_TASKS).map(task).collect()).await {
            total = total.merge(part.map_err(|error: io::Error| error)?);
        }
        Ok(meter.sample(total.bytes, total.files, total.sum))
    })
}

#[derive(Clone)]
struct Tokio;

impl Runtime for Tokio {
    type File = Arc<File>;
    type Buffer = RingBuffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        runtime::on_tokio(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        runtime::all_on_tokio(tasks).await
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<Arc<File>> {
        let path = path.to_owned();
        in_pool(move || {
            let file = File::options().read(true).custom_flags(runtime::flags(opening)).open(path)?;
            Ok(Arc::new(file))
        })
        .await
    }

    fn buffer(&self, length: usize) -> RingBuffer {
        RingBuffer::new(length)
    }

    async fn read(&self, file: &Arc<File>, mut buffer: RingBuffer, offset: u64) -> io::Result<RingBuffer> {
        let file = file.clone();
        in_pool(move || {
            let (mut memory, range) = (buffer.take(), buffer.range());
            let filled = file.read_at(&mut memory[range], offset)?;
            Ok(buffer.filled(memory, filled))
        })
        .await
    }
}

async fn in_pool<T: Send + 'static>(call: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(call).await.map_err(io::Error::other)?
}

const BUFFER_BYTES: usize = 1 << 20;

const FILE_TASKS: usize = 64;
