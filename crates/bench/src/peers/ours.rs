//! Ours: headwater, as its users would use it for each kind of work.
//!
//! Owns: engines and how files are opened; futures of a local engine and on tokio.
//! Does not own: the rows for all async runtimes (runtime), and for all blocking readers (kernel).

use std::future::Future;
use std::io::{self, BufRead};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{AsyncBufReadExt, StreamExt, TryStreamExt};
use headwater::{Caching, Engine, File, IoMode, LocalEngine, ManyRead, OpenOptions};

use super::kernel;
use super::rows::{Arm, Row};
use super::runtime::{self, Opening, Runtime};
use super::work::{Hashing, Job, Lane, Meter, PageSum, Sample};
use crate::pages::PAGE;

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    match (job.row, job.arm) {
        (Row::ColdScan, Arm::Headwater) => scan(job),
        (Row::ColdRandom1 | Row::ColdRandom20 | Row::ColdRandom50, arm) => random(job, arm),
        (Row::WarmRandom, Arm::Headwater) => warm_read_at(job),
        (Row::WarmRandom, Arm::HeadwaterView) => warm_view(job),
        (Row::WarmRandom, Arm::HeadwaterMany) => warm_many(job),
        (Row::FilesCold | Row::FilesWarm, arm) => files(job, arm),
        (Row::Hash, Arm::Headwater) => hash(job),
        (Row::Hash, Arm::HeadwaterAsync) => hash_async(job),
        (Row::Hash, Arm::HeadwaterStream) => hash_stream(job),
        (Row::Hash, Arm::HeadwaterLocal) => hash_local(job),
        _ => job.unknown(),
    }
}

fn scan(job: &Job) -> io::Result<Sample> {
    let (meter, mut total) = (Meter::start(), PageSum::default());
    read(job, |chunk| total.add(chunk))?;
    Ok(meter.sample(total.bytes, 0, total.sum))
}

fn hash(job: &Job) -> io::Result<Sample> {
    let (meter, mut hashing) = (Meter::start(), Hashing::default());
    read(job, |chunk| hashing.add(chunk))?;
    Ok(hashing.finish(&meter))
}

fn read(job: &Job, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut reader = File::open(&job.path)?.reader();
    loop {
        let chunk = reader.fill_buf()?;
        let length = chunk.len();
        if length == 0 {
            return Ok(());
        }
        take(chunk);
        reader.consume(length);
    }
}

fn hash_async(job: &Job) -> io::Result<Sample> {
    let (meter, mut hashing) = (Meter::start(), Hashing::default());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio.block_on(hash_all(File::open(&job.path)?.async_reader(), &mut hashing))?;
    Ok(hashing.finish(&meter))
}

/// With a second thread, as those peers have it whose thread cannot read while it hashes.
fn hash_stream(job: &Job) -> io::Result<Sample> {
    let meter = Meter::start();
    let (to_hash, arriving) = mpsc::sync_channel::<Bytes>(CHUNKS_WAITING);
    let hashing = thread::spawn(move || {
        let mut hashing = Hashing::default();
        arriving.iter().for_each(|chunk| hashing.add(&chunk));
        hashing
    });
    let mut stream = File::open(&job.path)?.stream();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let read = tokio.block_on(async {
        while let Some(chunk) = stream.try_next().await? {
            to_hash.send(chunk).map_err(|_| io::Error::other("the hashing thread has ended"))?;
        }
        Ok(())
    });
    drop(to_hash);
    let hashing = hashing.join().expect("the hashing thread does not panic");
    read.map(|()| hashing.finish(&meter))
}

fn hash_local(job: &Job) -> io::Result<Sample> {
    let (meter, mut hashing) = (Meter::start(), Hashing::default());
    let engine = Engine::builder().local()?;
    engine.block_on(hash_all(engine.open(&job.path)?.async_reader(), &mut hashing))?;
    Ok(hashing.finish(&meter))
}

async fn hash_all(
    mut reader: impl futures_util::AsyncBufRead + Unpin,
    hashing: &mut Hashing,
) -> io::Result<()> {
    loop {
        let chunk = reader.fill_buf().await?;
        let length = chunk.len();
        if length == 0 {
            return Ok(());
        }
        hashing.add(chunk);
        Pin::new(&mut reader).consume(length);
    }
}

/// Around headwater's cache, as the peers read around the kernel's.
fn random(job: &Job, arm: Arm) -> io::Result<Sample> {
    let depth = job.row.depth();
    match arm {
        Arm::Headwater | Arm::HeadwaterThreads => {
            let mut options = OpenOptions::new();
            let file = options.io(IoMode::Direct).caching(Caching::Off).open(&job.path)?;
            kernel::random_on_threads(job, depth, |buffer, offset| Ok(file.read_at(buffer, offset)?))
        }
        Arm::HeadwaterLocal => runtime::random(&Local::new(Caching::Off)?, job, depth, Opening::Direct),
        Arm::HeadwaterTokio => runtime::random(&Tokio::new(Caching::Off)?, job, depth, Opening::Direct),
        _ => job.unknown(),
    }
}

/// Whole files by their path. Where they are to be warm, in headwater's cache: read once before.
fn files_whole(job: &Job, threads: u32) -> io::Result<Sample> {
    let engine = Engine::builder().memory(FILES_MEMORY_BYTES).build()?;
    if job.row == Row::FilesWarm {
        // The second time they stay.
        for index in (0..job.files).chain(0..job.files) {
            engine.read(job.file(index))?;
        }
    }
    kernel::files_by(job, threads, |path, _, total| {
        total.add(&engine.read(path)?);
        Ok(())
    })
}

fn files(job: &Job, arm: Arm) -> io::Result<Sample> {
    let read_file = |path: &Path, buffer: &mut [u8]| Ok(File::open(path)?.read_at(buffer, 0)?);
    let mut options = OpenOptions::new();
    let buffered = options.io(IoMode::Buffered);
    let read_buffered = |path: &Path, buffer: &mut [u8]| Ok(buffered.open(path)?.read_at(buffer, 0)?);
    match arm {
        Arm::HeadwaterRead => files_whole(job, 1),
        Arm::HeadwaterRead4 => files_whole(job, 4),
        Arm::HeadwaterRead32 => files_whole(job, 32),
        Arm::Headwater => kernel::files(job, 1, read_file),
        Arm::Headwater4 => kernel::files(job, 4, read_file),
        Arm::Headwater16 => kernel::files(job, 16, read_file),
        Arm::HeadwaterBuffered => kernel::files(job, 1, read_buffered),
        Arm::HeadwaterBuffered16 => kernel::files(job, 16, read_buffered),
        Arm::HeadwaterLocal => {
            runtime::files(&Local::new(Caching::Auto)?, job, FILE_TASKS, Opening::Buffered)
        }
        Arm::HeadwaterTokio => {
            runtime::files(&Tokio::new(Caching::Auto)?, job, FILE_TASKS, Opening::Buffered)
        }
        _ => job.unknown(),
    }
}

fn warm_read_at(job: &Job) -> io::Result<Sample> {
    let file = cached_file(job)?;
    kernel::random_on_threads(job, 1, |buffer, offset| Ok(file.read_at(buffer, offset)?))
}

/// The pages as they lie in the cache.
fn warm_view(job: &Job) -> io::Result<Sample> {
    let file = cached_file(job)?;
    let (mut lane, meter) = (Lane::all(job, 1)?.remove(0), Meter::start());
    while let Some(offset) = lane.next() {
        let view = file.view(offset, PAGE as usize)?;
        lane.take(view.as_slice().ok_or_else(|| io::Error::other("a view of a page is in two parts"))?)?;
    }
    meter.lanes([Ok(lane)])
}

fn warm_many(job: &Job) -> io::Result<Sample> {
    let file = cached_file(job)?;
    let mut memory = vec![0; PAGES_TOGETHER * PAGE as usize];
    let (mut lane, meter) = (Lane::all(job, 1)?.remove(0), Meter::start());
    loop {
        let mut reads: Vec<ManyRead<'_>> = Vec::with_capacity(PAGES_TOGETHER);
        for buffer in memory.as_chunks_mut::<{ PAGE as usize }>().0 {
            let Some(offset) = lane.next() else { break };
            reads.push(ManyRead::new(offset, buffer));
        }
        if reads.is_empty() {
            return meter.lanes([Ok(lane)]);
        }
        file.read_many(&mut reads)?;
        for read in &reads {
            lane.take(&read.buffer[..read.read_bytes])?;
        }
    }
}

/// A file whose pages are all in the cache.
fn cached_file(job: &Job) -> io::Result<File> {
    let length_bytes = job.length_bytes()?;
    let engine = Engine::builder().memory((length_bytes + length_bytes / 4).max(MEMORY_BYTES_MIN)).build()?;
    let file = OpenOptions::new().engine(&engine).caching(Caching::On).open(&job.path)?;
    let mut buffer = vec![0; FILL_BYTES];
    for _ in 0..FILLS {
        for offset in (0..length_bytes).step_by(FILL_BYTES) {
            let length = (length_bytes - offset).min(FILL_BYTES as u64) as usize;
            file.read_exact_at(&mut buffer[..length], offset)?;
        }
    }
    Ok(file)
}

/// What was read, and how much to ask for.
struct Buffer {
    length: usize,
    bytes: Bytes,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn mode(opening: Opening) -> IoMode {
    match opening {
        Opening::Direct => IoMode::Direct,
        Opening::Buffered => IoMode::Auto,
    }
}

/// An engine that stays in this thread.
#[derive(Clone)]
struct Local {
    engine: Rc<LocalEngine>,
    caching: Caching,
}

impl Local {
    fn new(caching: Caching) -> io::Result<Local> {
        Ok(Local { engine: Rc::new(Engine::builder().local()?), caching })
    }
}

impl Runtime for Local {
    type File = headwater::Local<File>;
    type Buffer = Buffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        self.engine.block_on(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        // Polls those that were woken, and no others.
        let tasks: FuturesUnordered<_> = tasks.into_iter().collect();
        tasks.collect().await
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<headwater::Local<File>> {
        let mut options = OpenOptions::new();
        Ok(self.engine.open_with(options.io(mode(opening)).caching(self.caching), path)?)
    }

    fn buffer(&self, length: usize) -> Buffer {
        Buffer { length, bytes: Bytes::new() }
    }

    async fn read(&self, file: &headwater::Local<File>, buffer: Buffer, offset: u64) -> io::Result<Buffer> {
        let Buffer { length, bytes } = buffer;
        drop(bytes);
        Ok(Buffer { length, bytes: file.read_at_async(offset, length).await? })
    }
}

/// An engine for all threads, its futures on a tokio current-thread runtime.
#[derive(Clone)]
struct Tokio {
    engine: Engine,
    caching: Caching,
}

impl Tokio {
    fn new(caching: Caching) -> io::Result<Tokio> {
        Ok(Tokio { engine: Engine::builder().build()?, caching })
    }
}

impl Runtime for Tokio {
    type File = File;
    type Buffer = Buffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        runtime::on_tokio(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        runtime::all_on_tokio(tasks).await
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<File> {
        let mut options = OpenOptions::new();
        Ok(options.engine(&self.engine).io(mode(opening)).caching(self.caching).open(path)?)
    }

    fn buffer(&self, length: usize) -> Buffer {
        Buffer { length, bytes: Bytes::new() }
    }

    async fn read(&self, file: &File, buffer: Buffer, offset: u64) -> io::Result<Buffer> {
        let Buffer { length, bytes } = buffer;
        drop(bytes);
        Ok(Buffer { length, bytes: file.read_at_async(offset, length).await? })
    }
}

/// They hold frames that the engine would read ahead into.
const CHUNKS_WAITING: usize = 2;

/// Small files in flight.
const FILE_TASKS: usize = 64;

/// Room for all of them, and for what is known of them while they are closed.
const FILES_MEMORY_BYTES: u64 = 1 << 30;

/// Reads in one call.
const PAGES_TOGETHER: usize = 16;

const FILL_BYTES: usize = 1 << 20;

/// The first brings the pages in; then each is marked as used as often as is counted.
const FILLS: usize = 4;

/// A quarter more than a few pages is not much.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
