//! Compio: its files, tasks in one thread.

use std::future::Future;
use std::io;
use std::path::Path;

use compio::BufResult;
use compio::buf::{IntoInner, IoBuf};
use compio::fs::{File, OpenOptions};
use compio::io::AsyncReadAt;

use super::runtime::{self, Opening, RingBuffer, Runtime};
use super::work::{Job, Sample};

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    runtime::all_rows(&Compio, job)
}

#[derive(Clone)]
struct Compio;

impl Runtime for Compio {
    type File = File;
    type Buffer = RingBuffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        compio::runtime::Runtime::new()?.block_on(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        let tasks: Vec<_> = tasks.into_iter().map(compio::runtime::spawn).collect();
        let results = futures_util::future::join_all(tasks).await;
        results.into_iter().map(|result| result.expect("a reading task does not panic")).collect()
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(runtime::flags(opening)).open(path).await
    }

    fn buffer(&self, length: usize) -> RingBuffer {
        RingBuffer::new(length)
    }

    async fn read(&self, file: &File, mut buffer: RingBuffer, offset: u64) -> io::Result<RingBuffer> {
        let BufResult(filled, part) = file.read_at(buffer.take().slice(buffer.range()), offset).await;
        Ok(buffer.filled(part.into_inner(), filled?))
    }

    async fn close(&self, file: File) -> io::Result<()> {
        file.close().await
    }
}
