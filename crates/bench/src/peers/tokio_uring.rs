//! Tokio-uring: its files, tasks in one thread.

use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tokio_uring::buf::BoundedBuf;
use tokio_uring::fs::{File, OpenOptions};

use super::runtime::{self, Opening, RingBuffer, Runtime};
use super::work::{Job, Sample};

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    runtime::all_rows(&TokioUring, job)
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
