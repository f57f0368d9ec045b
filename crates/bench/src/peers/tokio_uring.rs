//! Tokio-uring: its files, tasks in one thread.

use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tokio_uring::buf::BoundedBuf;
use tokio_uring::fs::{File, OpenOptions};

use super::rows::Row;
use super::runtime::{self, Opening, RingBuffer, Runtime};
use super::work::{Job, Sample};

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    match job.row {
        Row::ColdScan => runtime::scan(&TokioUring, job, Opening::Direct),
        Row::ColdRandom1 | Row::ColdRandom20 | Row::ColdRandom50 => {
            runtime::random(&TokioUring, job, job.row.depth(), Opening::Direct)
        }
        Row::WarmRandom => runtime::random(&TokioUring, job, WARM_TASKS, Opening::Buffered),
        Row::FilesCold | Row::FilesWarm => runtime::files(&TokioUring, job, FILE_TASKS, Opening::Buffered),
        Row::Hash => runtime::hash(&TokioUring, job, Opening::Direct),
    }
}

#[derive(Clone)]
struct TokioUring;

impl Runtime for TokioUring {
    type File = File;
    type Buffer = RingBuffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        tokio_uring::start(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        let tasks: Vec<_> = tasks.into_iter().map(tokio_uring::spawn).collect();
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await.expect("a reading task does not panic"));
        }
        results
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(runtime::flags(opening)).open(path).await
    }

    fn buffer(&self, length: usize) -> RingBuffer {
        RingBuffer::new(length)
    }

    async fn read(&self, file: &File, mut buffer: RingBuffer, offset: u64) -> io::Result<RingBuffer> {
        let (filled, part) = file.read_at(buffer.take().slice(buffer.range()), offset).await;
        Ok(buffer.filled(part.into_inner(), filled?))
    }

    async fn close(&self, file: File) -> io::Result<()> {
        file.close().await
    }
}

/// Enough for one system call to be about many.
const WARM_TASKS: u32 = 32;

const FILE_TASKS: usize = 50;
