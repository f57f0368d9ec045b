//! Nuclei: its files, tasks in one thread, its aligned buffers.
//!
//! Owns: where in a huge page a buffer lies.
//! Does not own: the rows that are written for all runtimes (runtime).

use std::fs::File;
use std::future::Future;
use std::io;
use std::path::Path;

use nuclei::Handle;
use nuclei::fs::OpenOptions;
use nuclei::io::AlignedBuf;

use super::runtime::{self, HUGE_PAGE_BYTES, Opening, Runtime};
use super::work::{Job, PIECE_BYTES, Sample};
use crate::pages::PAGE;

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    runtime::all_rows(&Nuclei, job)
}

#[derive(Clone)]
struct Nuclei;

/// What is read goes behind the bytes that the buffer has.
struct Buffer {
    memory: AlignedBuf,
    lead: usize,
}

impl Buffer {
    /// What is large ends where a huge page does, so that all of it is in that page.
    fn new(length: usize) -> io::Result<Buffer> {
        if length < PIECE_BYTES {
            return Ok(Buffer { memory: AlignedBuf::new(length, PAGE as usize)?, lead: 0 });
        }
        let capacity = length.next_multiple_of(HUGE_PAGE_BYTES);
        let lead = capacity - length;
        let mut memory = AlignedBuf::new(capacity, HUGE_PAGE_BYTES)?;
        memory.extend_from_slice(&vec![0; lead]);
        Ok(Buffer { memory, lead })
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.lead..]
    }
}

impl Runtime for Nuclei {
    type File = Handle<File>;
    type Buffer = Buffer;

    fn block_on<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        nuclei::runtime::block_on(future)
    }

    async fn all<T: 'static>(&self, tasks: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
        let tasks: Vec<_> = tasks.into_iter().map(nuclei::runtime::spawn_local).collect();
        futures_util::future::join_all(tasks).await
    }

    async fn open(&self, path: &Path, opening: Opening) -> io::Result<Handle<File>> {
        match opening {
            Opening::Direct => {
                OpenOptions::new().read(true).custom_flags(runtime::flags(opening)).open(path).await
            }
            Opening::Buffered => Handle::<File>::open(path).await,
        }
    }

    fn buffer(&self, length: usize) -> Buffer {
        Buffer::new(length).expect("memory is not that short")
    }

    async fn read(&self, file: &Handle<File>, buffer: Buffer, offset: u64) -> io::Result<Buffer> {
        let Buffer { mut memory, lead } = buffer;
        memory.truncate(lead);
        let (read, memory) = file.read_at_owned(memory, offset).await;
        read?;
        Ok(Buffer { memory, lead })
    }
}
