//! Monoio: its files, tasks in one thread.

use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use monoio::buf::IoBufMut;
use monoio::fs::{File, OpenOptions};
use monoio::{IoUringDriver, RuntimeBuilder};

use super::runtime::{self, Opening, RingBuffer, Runtime};
use super::work::{Job, Sample};

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    runtime::all_rows(&Monoio, job)
}

#[derive(Clone)]
struct Monoio;

impl Runtime for Monoio {
    type File = File;
    type Buffer = RingBuffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        RuntimeBuilder::<IoUringDriver>::new().build()?.block_on(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        let tasks: Vec<_> = tasks.into_iter().map(monoio::spawn).collect();
        futures_util::future::join_all(tasks).await
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(runtime::flags(opening)).open(path).await
    }

    fn buffer(&self, length: usize) -> RingBuffer {
        RingBuffer::new(length)
    }

    async fn read(&self, file: &File, mut buffer: RingBuffer, offset: u64) -> io::Result<RingBuffer> {
        let (filled, part) = file.read_at(buffer.take().slice_mut(buffer.range()), offset).await;
        Ok(buffer.filled(part.into_inner(), filled?))
    }

    async fn close(&self, file: File) -> io::Result<()> {
        file.close().await
    }
}
