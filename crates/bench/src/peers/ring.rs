//! Ring: small files that are opened, read and closed by calls of headwater's ring, without an engine and its cache.
//!
//! ```text
//!   a task for each file in flight: Call::open_at ─► Call::pread ─► Call::close     all tasks in one thread, on one ring
//! ```
//!
//! Owns: the ring, the directory below which it opens, buffers that go into calls and come back.
//! Does not own: tasks in flight, and what each does (runtime).

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use headwater::ring::{Call, DriverOptions, LocalDriver};
use headwater_io::DriverKind;

use super::rows::Row;
use super::runtime::{self, FILE_TASKS, Opening, RingBuffer, Runtime};
use super::work::{Job, Sample};

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    match job.row {
        Row::FilesCold | Row::FilesWarm => files(job),
        _ => job.unknown(),
    }
}

fn files(job: &Job) -> io::Result<Sample> {
    let options =
        DriverOptions { kind: DriverKind::Uring, queue_depth: FILE_TASKS as u32, ..DriverOptions::default() };
    let ring =
        Ring { driver: Rc::new(LocalDriver::new(&options)?), folder: Arc::new(File::open(&job.path)?) };
    runtime::files(&ring, job, FILE_TASKS, Opening::Buffered)
}

/// A ring of this thread. Descriptors are shared, because a call owns the one that it is given until it ends.
#[derive(Clone)]
struct Ring {
    driver: Rc<LocalDriver>,
    folder: Arc<File>,
}

impl Runtime for Ring {
    type File = Arc<OwnedFd>;
    type Buffer = RingBuffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        self.driver.block_on(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        // Polls those that were woken, and no others.
        let tasks: FuturesUnordered<_> = tasks.into_iter().collect();
        tasks.collect().await
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<Arc<OwnedFd>> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let call = Call::open_at(self.folder.clone(), name, runtime::flags(opening), 0);
        Ok(Arc::new(self.driver.driver().call(call).await.result?))
    }

    fn buffer(&self, length: usize) -> RingBuffer {
        RingBuffer::new(length)
    }

    async fn read(&self, file: &Arc<OwnedFd>, mut buffer: RingBuffer, offset: u64) -> io::Result<RingBuffer> {
        let memory = Part { memory: buffer.take(), range: buffer.range() };
        let read = self.driver.driver().call(Call::pread(file.clone(), memory, offset)).await;
        let (_, part) = read.given;
        Ok(buffer.filled(part.memory, read.result?))
    }

    async fn close(&self, file: Arc<OwnedFd>) -> io::Result<()> {
        let file = Arc::into_inner(file).expect("no read of the file is under way");
        self.driver.driver().call(Call::close(file)).await.result
    }
}

/// The part of a buffer that is read into.
struct Part {
    memory: Vec<u8>,
    range: std::ops::Range<usize>,
}

impl AsMut<[u8]> for Part {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.range.clone()]
    }
}
