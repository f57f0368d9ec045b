//! Runtime: the rows for runtimes whose reads are futures, written once.
//!
//! Each runtime runs everything in one thread, as most of them want it; what reads a file to hash it has a second one for
//! the hashing, because none of them reads while its thread does something else.
//!
//! Owns: tasks in flight, and what each does.
//! Does not own: how a runtime opens and reads (a file for each).

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::LocalSet;

use super::rows::Row;
use super::work::{
    FileSum, Hashing, Job, Lane, Meter, PIECE_BYTES, PIECES_AHEAD, PageSum, SMALL_BUFFER_BYTES, Sample,
};
use crate::pages::PAGE;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// With O_DIRECT.
    Direct,
    Buffered,
}

/// What the rows need of a runtime.
pub(super) trait Runtime: Clone + 'static {
    type File: 'static;
    /// Memory that is read into, and then what was read.
    type Buffer: AsRef<[u8]> + 'static;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T>;

    /// Runs tasks at the same time, to their end.
    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T>;

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<Self::File>;

    /// Memory for reads of this length.
    fn buffer(&self, length: usize) -> Self::Buffer;

    /// Fills the buffer, as far as the file reaches.
    async fn read(&self, file: &Self::File, buffer: Self::Buffer, offset: u64) -> io::Result<Self::Buffer>;

    async fn close(&self, file: Self::File) -> io::Result<()> {
        drop(file);
        Ok(())
    }
}

/// [`Runtime::block_on`] of a tokio current-thread runtime.
pub(super) fn on_tokio<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(future))
}

/// [`Runtime::all`] there.
pub(super) async fn all_on_tokio<T: 'static>(tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().map(tokio::task::spawn_local).collect();
    let results = futures_util::future::join_all(tasks).await;
    results.into_iter().map(|result| result.expect("a reading task does not panic")).collect()
}

/// Each row in the way that is written for all runtimes, direct where contents are cold and large.
pub(super) fn all_rows<R: Runtime>(runtime: &R, job: &Job) -> io::Result<Sample>
where
    R::Buffer: Send,
{
    match job.row {
        Row::ColdScan => scan(runtime, job, Opening::Direct),
        Row::ColdRandom1 | Row::ColdRandom20 | Row::ColdRandom50 => {
            random(runtime, job, job.row.depth(), Opening::Direct)
        }
        Row::WarmRandom => random(runtime, job, WARM_TASKS, Opening::Buffered),
        Row::FilesCold | Row::FilesWarm => files(runtime, job, FILE_TASKS, Opening::Buffered),
        Row::Hash => hash(runtime, job, Opening::Direct),
        Row::CoreScan | Row::CoreRandom | Row::CoresScan | Row::CoresRandom => job.unknown(),
    }
}

/// The whole file, some pieces in flight.
pub(super) fn scan<R: Runtime>(runtime: &R, job: &Job, opening: Opening) -> io::Result<Sample> {
    let meter = Meter::start();
    let pieces = job.pieces()?;
    runtime.block_on(async {
        let file = Rc::new(runtime.open(&job.path, opening).await?);
        let task = |first| {
            let (runtime, file, pieces) = (runtime.clone(), file.clone(), pieces.clone());
            async move {
                let (mut buffer, mut total) = (runtime.buffer(PIECE_BYTES), PageSum::default());
                for offset in pieces.skip(first).step_by(PIECES_AHEAD) {
                    buffer = runtime.read(&file, buffer, offset).await?;
                    // Each begins at a page.
                    let mut piece = PageSum::default();
                    piece.add(buffer.as_ref());
                    total = total.merge(piece);
                }
                Ok(total)
            }
        };
        let mut total = PageSum::default();
        for part in runtime.all((0..PIECES_AHEAD).map(task).collect()).await {
            total = total.merge(part.map_err(|error: io::Error| error)?);
        }
        Ok(meter.sample(total.bytes, 0, total.sum))
    })
}

/// Pages at random places, `depth` in flight.
pub(super) fn random<R: Runtime>(runtime: &R, job: &Job, depth: u32, opening: Opening) -> io::Result<Sample> {
    runtime.block_on(async {
        let file = Rc::new(runtime.open(&job.path, opening).await?);
        let (lanes, meter) = (Lane::all(job, depth)?, Meter::start());
        let task = |mut lane: Lane| {
            let (runtime, file) = (runtime.clone(), file.clone());
            async move {
                let mut buffer = runtime.buffer(PAGE as usize);
                while let Some(offset) = lane.next() {
                    buffer = runtime.read(&file, buffer, offset).await?;
                    lane.take(buffer.as_ref())?;
                }
                Ok(lane)
            }
        };
        meter.lanes(runtime.all(lanes.into_iter().map(task).collect()).await)
    })
}

/// Every small file, `in_flight` tasks.
pub(super) fn files<R: Runtime>(
    runtime: &R,
    job: &Job,
    in_flight: usize,
    opening: Opening,
) -> io::Result<Sample> {
    let meter = Meter::start();
    let next = Rc::new(Cell::new(0));
    let task = |_| {
        let (runtime, job, next) = (runtime.clone(), job.clone(), next.clone());
        async move {
            let (mut buffer, mut total) = (runtime.buffer(SMALL_BUFFER_BYTES), FileSum::default());
            while next.get() < job.files {
                let path = job.file(next.replace(next.get() + 1));
                let file = runtime.open(&path, opening).await?;
                buffer = runtime.read(&file, buffer, 0).await?;
                total.add(buffer.as_ref());
                runtime.close(file).await?;
            }
            Ok(total)
        }
    };
    runtime.block_on(async {
        let mut total = FileSum::default();
        for part in runtime.all((0..in_flight).map(task).collect()).await {
            total = total.merge(part.map_err(|error: io::Error| error)?);
        }
        Ok(meter.sample(total.bytes, total.files, total.sum))
    })
}

/// The whole file in order, some pieces in flight, hashed in a thread of its own.
pub(super) fn hash<R: Runtime>(runtime: &R, job: &Job, opening: Opening) -> io::Result<Sample>
where
    R::Buffer: Send,
{
    let meter = Meter::start();
    let (to_hash, arriving) = mpsc::sync_channel::<R::Buffer>(PIECES_AHEAD);
    let (give_back, used) = mpsc::channel();
    let hashing = thread::spawn(move || {
        let mut hashing = Hashing::default();
        for buffer in arriving {
            hashing.add(buffer.as_ref());
            // Nobody takes the last ones.
            let _ = give_back.send(buffer);
        }
        hashing
    });
    let read = runtime.block_on(async {
        let file = &runtime.open(&job.path, opening).await?;
        let read = |offset| {
            let buffer = used.try_recv().unwrap_or_else(|_| runtime.buffer(PIECE_BYTES));
            runtime.read(file, buffer, offset)
        };
        let mut pieces = stream::iter(job.pieces()?).map(read).buffered(PIECES_AHEAD);
        while let Some(buffer) = pieces.try_next().await? {
            to_hash.send(buffer).map_err(|_| io::Error::other("the hashing thread has ended"))?;
        }
        Ok(())
    });
    drop(to_hash);
    let hashing = hashing.join().expect("the hashing thread does not panic");
    read.map(|()| hashing.finish(&meter))
}

/// For `open(2)`.
pub(super) fn flags(opening: Opening) -> i32 {
    match opening {
        Opening::Direct => rustix::fs::OFlags::DIRECT.bits() as i32,
        Opening::Buffered => 0,
    }
}

/// Memory for rings that are given it and give it back: aligned for O_DIRECT, and what is large in a huge page of its own.
/// They all take a `Vec`, whose memory is where `malloc` puts it; it asks for huge pages because of what
/// [`HUGE_PAGES`] tells it.
pub(super) struct RingBuffer {
    pub(super) memory: Vec<u8>,
    lead: usize,
    length: usize,
    filled: usize,
}

impl RingBuffer {
    pub(super) fn new(length: usize) -> RingBuffer {
        let alignment = if length >= PIECE_BYTES { HUGE_PAGE_BYTES } else { PAGE as usize };
        let memory = vec![0; length.next_multiple_of(alignment) + alignment];
        let lead = memory.as_ptr().align_offset(alignment);
        RingBuffer { memory, lead, length, filled: 0 }
    }

    /// Where in its memory it is.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.lead..self.lead + self.length
    }

    /// The same with memory that was read into.
    pub(super) fn filled(&self, memory: Vec<u8>, filled: usize) -> RingBuffer {
        RingBuffer { memory, lead: self.lead, length: self.length, filled }
    }

    /// Takes the memory out, to be given to a ring.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.memory)
    }
}

impl AsRef<[u8]> for RingBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.lead..self.lead + self.filled]
    }
}

/// Where peers are given memory, it is a `Vec`'s: with this, glibc asks for huge pages below what is large, so that direct
/// reads into it are as fast as they can be.
pub(super) const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Reads of a warm file in flight: enough for one system call to start many.
pub(super) const WARM_TASKS: u32 = 32;

/// Small files in flight.
pub(super) const FILE_TASKS: usize = 50;
