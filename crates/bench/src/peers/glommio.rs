//! Glommio: its direct files and their streams, its buffered files, tasks in one thread that does not spin.
//!
//! Owns: its streams, its two kinds of file.
//! Does not own: the rows that are written for all runtimes (runtime).

use std::future::Future;
use std::io;
use std::path::Path;

use glommio::io::{BufferedFile, DmaFile, ImmutableFileBuilder, ReadResult};
use glommio::{LocalExecutorBuilder, Placement};

use super::rows::{Arm, Row};
use super::runtime::{self, Opening, Runtime};
use super::work::{Hashing, Job, Meter, PIECE_BYTES, PageSum, Sample};

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
    }
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

/// Twice as fast as with 5.
const BUFFERS_AHEAD: usize = 32;
