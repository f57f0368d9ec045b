//! Contents: reads one file after another, each in the way that suits it, and hashes what arrives.
//!
//! ```text
//!   open ─┬─ no certain length ─► piece after piece to the end
//!         ├─ fits a buffer ─► one read ─► hashed by this thread
//!         └─ longer ─► headwater's reader, ahead of the hash ─► each piece hashed by all threads of the pool
//! ```
//!
//! Owns: what the reading threads share: engine, hashing pool, limits; the handling of unreadable places.
//! Does not own: the order of files, the report.
//! Blocking: everything here.

use std::io::{self, BufRead, Seek, SeekFrom};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use headwater::ring::{Access, DirectIo, OpenFile, Route};
use headwater::testing::Limits;
use headwater::{ByteRange, Caching, Engine, OpenOptions, Reader};
use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_measure::standard;
use rayon::ThreadPool;

use super::arguments::ScanFilesArguments;
use super::buffer::Buffer;
use super::candidates::{Candidates, Hashers, Sums};
use super::digest::Hasher;
use super::extents::{Unreadable, is_of_place, locate};
use super::gate::Gate;
use super::pace::{Hashing, Pace};
use super::progress::Progress;
use super::walk::Subject;
use super::whole::{Input, Kind, kind, stream};
use crate::cat::cause;

/// The result of reading a file.
pub(super) struct Found {
    pub(super) bytes: u64,
    /// One for each algorithm in question.
    pub(super) sums: Sums,
    /// Unreadable places, ascending. Empty when a hash is computed: a file with such a place fails then.
    pub(super) unreadable: Vec<Unreadable>,
}

/// Why a file was not read to its end.
#[derive(Debug)]
pub(super) enum Failure {
    Open(io::Error),
    Read(io::Error),
    ReadAt(u64, io::Error),
}

/// What the reading threads share.
pub(super) struct Contents<'a> {
    arguments: &'a ScanFilesArguments,
    candidates: &'a Candidates,
    /// Limits the threads that hash.
    hashing: Gate,
    /// Limits the large files that are read at the same time.
    large: Gate,
    files_max: usize,
    buffer_bytes: usize,
    progress: &'a Progress,
    is_stopped: &'a AtomicBool,
    /// Built for the first large file.
    engine: OnceLock<Result<Engine, String>>,
    pool: OnceLock<Result<ThreadPool, String>>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(
        arguments: &'a ScanFilesArguments,
        candidates: &'a Candidates,
        files_max: usize,
        progress: &'a Progress,
        is_stopped: &'a AtomicBool,
    ) -> Contents<'a> {
        let threads = arguments.threads();
        Contents {
            arguments,
            candidates,
            hashing: Gate::new(threads),
            large: Gate::new(threads.max(LARGE_FILES)),
            files_max,
            buffer_bytes: buffer_bytes(arguments.engine.memory.0, files_max),
            progress,
            is_stopped,
            engine: OnceLock::new(),
            pool: OnceLock::new(),
        }
    }

    /// A buffer into which one thread reads small files.
    pub(super) fn buffer(&self) -> Buffer {
        Buffer::new(self.buffer_bytes)
    }

    /// # Errors
    /// Why the file was not read to its end.
    pub(super) fn read(&self, subject: &Subject, buffer: &mut Buffer) -> Result<Found, Failure> {
        let path = match subject {
            Subject::StandardInput => {
                // If it is named twice, one thread reads it after the other.
                let _turn = io::stdin().lock();
                return self.stream(|each| stream(standard::input()?, buffer, each));
            }
            Subject::File(path) => path,
        };
        if self.arguments.check {
            // A list may name anything, and to open a FIFO lets its writer go on.
            std::fs::metadata(path).and_then(|metadata| kind(&metadata)).map_err(Failure::Open)?;
        }
        let input = Input::open(path).map_err(Failure::Open)?;
        if input.kind == Kind::Regular && input.length_bytes == 0 {
            return self.stream(|each| input.stream(buffer, each));
        }
        let resident_pages = input.resident_pages();
        let found = self.read_input(path, &input, resident_pages, buffer);
        input.restore(resident_pages);
        found
    }

    fn read_input(
        &self,
        path: &Path,
        input: &Input,
        resident_pages: Option<u64>,
        buffer: &mut Buffer,
    ) -> Result<Found, Failure> {
        if input.may_have_another_length(path).map_err(Failure::Open)? {
            return self.stream(|each| input.stream(buffer, each));
        }
        match input.kind {
            Kind::Regular if input.length_bytes <= buffer.len() as u64 => {
                self.read_whole(input, resident_pages, buffer)
            }
            Kind::Regular | Kind::BlockDevice => {
                let _entered = self.large.enter();
                self.read_large(path, input.length_bytes, buffer)
            }
        }
    }

    fn stream(
        &self,
        read: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<u64>,
    ) -> Result<Found, Failure> {
        let mut hashers = self.candidates.hashers();
        let mut each = |bytes: &[u8]| {
            self.check_stopped()?;
            self.hash(&mut hashers, bytes)
        };
        let bytes = read(&mut each).map_err(Failure::Read)?;
        Ok(Found { bytes, sums: hashers.finish(), unreadable: Vec::new() })
    }

    fn read_whole(
        &self,
        input: &Input,
        resident_pages: Option<u64>,
        buffer: &mut Buffer,
    ) -> Result<Found, Failure> {
        let (length_bytes, mut unreadable) = (input.length_bytes, Vec::new());
        let mut hashers = self.candidates.hashers();
        match input.read(resident_pages, buffer) {
            Ok(read_bytes) if (read_bytes as u64) < length_bytes => {
                return Err(became_shorter(read_bytes as u64));
            }
            Ok(_) => {}
            Err(error) if hashers.is_empty() && is_of_place(&error) => {
                unreadable = input.unreadable(buffer).map_err(Failure::Read)?;
            }
            Err(error) => return Err(Failure::Read(error)),
        }
        let bytes = length_bytes - unreadable.iter().map(|extent| extent.range.len()).sum::<u64>();
        for hasher in hashers.each() {
            let _entered = self.hashing.enter();
            hasher.update(&buffer.bytes()[..length_bytes as usize]);
        }
        self.progress.add(length_bytes);
        Ok(Found { bytes, sums: hashers.finish(), unreadable })
    }

    fn read_large(&self, path: &Path, length_bytes: u64, buffer: &mut Buffer) -> Result<Found, Failure> {
        let engine = self.engine()?;
        let mut options = OpenOptions::new();
        let opened = options.engine(engine).caching(Caching::Off).open(path);
        let mut reader = opened.map_err(|error| Failure::Open(cause(error.into())))?.reader();
        let (mut hashers, mut position_bytes, mut unreadable) = (self.candidates.hashers(), 0, Vec::new());
        reader.will_read(length_bytes);
        let mut pace = Pace::new();
        loop {
            self.check_stopped().map_err(Failure::Read)?;
            let asked = Instant::now();
            match reader.fill_buf() {
                Ok([]) => break,
                Ok(chunk) => {
                    let came = Instant::now();
                    self.hash_by(pace.hashing(), &mut hashers, chunk).map_err(Failure::Read)?;
                    pace.note(came - asked, came.elapsed());
                    let chunk_bytes = chunk.len();
                    reader.consume(chunk_bytes);
                    position_bytes += chunk_bytes as u64;
                }
                Err(error) => {
                    let error = Failure::ReadAt(position_bytes, cause(error));
                    position_bytes = self.pass(path, &mut reader, error, buffer, &mut unreadable)?;
                }
            }
        }
        if position_bytes < length_bytes {
            return Err(became_shorter(position_bytes));
        }
        let unread_bytes: u64 = unreadable.iter().map(|extent| extent.range.len()).sum();
        Ok(Found { bytes: position_bytes - unread_bytes, sums: hashers.finish(), unreadable })
    }

    /// Locates the unreadable pages around a failed read, and moves the reader past them. Returns its new position.
    fn pass(
        &self,
        path: &Path,
        reader: &mut Reader,
        failure: Failure,
        buffer: &mut Buffer,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<u64, Failure> {
        let Failure::ReadAt(at_bytes, error) = &failure else { return Err(failure) };
        if self.candidates.first().is_some() || !is_of_place(error) {
            return Err(failure);
        }
        let failed = |error| Failure::ReadAt(*at_bytes, error);
        let open = OpenFile::open(path, DirectIo::Preferred, Access::Read).map_err(failed)?;
        let start = at_bytes / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
        let window = ByteRange::at(start, buffer.len() as u64).clip(open.length_bytes().map_err(failed)?);
        let mut read = |range: ByteRange| read_all(&open, range, buffer);
        locate(window, &mut read, unreadable).map_err(failed)?;
        if window.end <= *at_bytes {
            return Err(failure);
        }
        reader.seek(SeekFrom::Start(window.end)).map_err(failed)?;
        Ok(window.end)
    }

    fn hash(&self, hashers: &mut Hashers, bytes: &[u8]) -> io::Result<()> {
        self.hash_by(Hashing::Shared, hashers, bytes)
    }

    fn hash_by(&self, how: Hashing, hashers: &mut Hashers, bytes: &[u8]) -> io::Result<()> {
        self.progress.add(bytes.len() as u64);
        hashers.each().try_for_each(|hasher| self.hash_one(how, hasher, bytes))
    }

    fn hash_one(&self, how: Hashing, hasher: &mut Hasher, bytes: &[u8]) -> io::Result<()> {
        if how == Hashing::Shared && bytes.len() >= SHARED_BYTES_MIN && self.arguments.threads() > 1 {
            let pool = self.pool.get_or_init(|| {
                let builder = rayon::ThreadPoolBuilder::new().num_threads(self.arguments.threads());
                builder.build().map_err(|error| format!("no threads to hash: {error}"))
            });
            if hasher.update_in(pool.as_ref().map_err(|text| io::Error::other(text.clone()))?, bytes) {
                return Ok(());
            }
        }
        let _entered = self.hashing.enter();
        hasher.update(bytes);
        Ok(())
    }

    fn engine(&self) -> Result<&Engine, Failure> {
        let engine = &self.arguments.engine;
        let build = || {
            let memory_bytes = engine_bytes(engine.memory.0, self.buffer_bytes, self.files_max);
            let built = engine.queue.builder().memory(memory_bytes).build();
            built.map_err(|error| error.to_string())
        };
        self.engine.get_or_init(build).as_ref().map_err(|text| Failure::Open(io::Error::other(text.clone())))
    }

    fn check_stopped(&self) -> io::Result<()> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }
}

/// Reads a range. A short read is no error: the file ends earlier then. A read that stopped within a page goes on through the kernel's
/// page cache, which knows whether the file ends there or a bad block begins.
fn read_all(open: &OpenFile, range: ByteRange, buffer: &mut Buffer) -> io::Result<()> {
    let mut route = if open.direct().is_some() { Route::Direct } else { Route::Buffered };
    let mut at = range.start;
    while at < range.end {
        let wanted_bytes = ((range.end - at) as usize).next_multiple_of(PAGE_SIZE_BYTES as usize);
        let read_bytes = open.read_blocking(route, &mut buffer.bytes()[..wanted_bytes], at)?;
        at += read_bytes as u64;
        if read_bytes == 0 {
            break;
        }
        if !at.is_multiple_of(PAGE_SIZE_BYTES) {
            route = Route::Buffered;
        }
    }
    Ok(())
}

fn became_shorter(at_bytes: u64) -> Failure {
    let text = "it became shorter while it was read";
    Failure::ReadAt(at_bytes, io::Error::new(io::ErrorKind::UnexpectedEof, text))
}

/// The size of a thread's buffer: a power of two, from the memory that the engine leaves.
fn buffer_bytes(memory_bytes: u64, files_max: usize) -> usize {
    let share_bytes = memory_bytes.saturating_sub(Limits::MEMORY_BYTES_MIN) / files_max as u64;
    let power = 1 << share_bytes.max(1).ilog2();
    (power as usize).clamp(PAGE_SIZE_BYTES as usize, BUFFER_BYTES_MAX)
}

/// The memory that the buffers leave to the engine.
fn engine_bytes(memory_bytes: u64, buffer_bytes: usize, files_max: usize) -> u64 {
    let buffers_bytes = (buffer_bytes * files_max) as u64;
    memory_bytes.saturating_sub(buffers_bytes).max(Limits::MEMORY_BYTES_MIN)
}

/// Up to this size one pread is as fast as readahead: the device transfers for longer than its latency.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// At least this many large files are read at the same time: the end of one and the start of the next leave the device idle.
const LARGE_FILES: usize = 2;

/// A shorter piece is hashed sooner by one thread than handed to others (BLAKE3's own advice is 128 KiB).
const SHARED_BYTES_MIN: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: buffers and the engine stay within the memory, but for the least that both need.
    #[test]
    fn memory_is_shared() {
        assert_eq!(buffer_bytes(32 << 20, 64), 256 << 10);
        assert_eq!(buffer_bytes(Limits::MEMORY_BYTES_MIN, 32), 4096);
        assert_eq!(buffer_bytes(8 << 20, 32), 128 << 10);
        for (memory_bytes, files) in [(3 << 20, 1), (4 << 20, 32), (1 << 30, 1024)] {
            let engine = engine_bytes(memory_bytes, buffer_bytes(memory_bytes, files), files);
            assert!((Limits::MEMORY_BYTES_MIN..=memory_bytes).contains(&engine));
        }
    }
}
