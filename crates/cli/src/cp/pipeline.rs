//! Pipeline: moves the data of one file into another, each part read and written from the same memory.
//!
//! ```text
//!   parts of 1 MiB ─┬─ cached by the kernel, or no direct I/O ─► copied from there ─┐
//!                   └─ else ─► direct read, several in flight ──────────────────────┴─► extent
//!   extent ─┬─ whole pages ─► direct write, several in flight ─► memory is free again
//!           └─ the rest of the last page, no direct I/O, pages of zeros to be left out, or the copy is left to the kernel
//!              ─► written through the page cache
//! ```
//!
//! Owns: parts in flight and their memory.
//! Does not own: which ranges hold data (`runs`), the lengths of the files, syncing.
//! Invariants: an extent belongs to one part from its read to the end of its write.
//! Hot path: two requests a MiB, no copy in this process.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use headwater::ring::{
    Arena, Completion, Direction, Driver, DriverOptions, Extents, OpenFile, Route, Transfer, Urgency,
};
use headwater::testing::Pressure;
use headwater::{ByteRange, DriverKind, Residency};
use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES};
use rustix::io::Errno;

use super::failure::{Failure, Side};
use super::kernel_copy::{self, Bytes};
use super::progress::OnCopied;
use super::{How, runs};

/// The queue and the memory of all files that one command copies.
pub(super) struct Pipeline {
    driver: Driver,
    arena: Arena,
    parts_max: usize,
}

impl Pipeline {
    /// # Errors
    /// The kernel's refusal of io_uring, if the user chose that driver, or of the memory.
    pub(super) fn new(kind: DriverKind, queue_depth: Option<u32>) -> io::Result<Pipeline> {
        let parts_max = queue_depth.unwrap_or(PARTS_DEFAULT);
        let kind = kind.or_environment()?;
        let options = DriverOptions { kind, queue_depth: parts_max, ..DriverOptions::default() };
        let driver = Driver::new(&options)?;
        let memory_bytes = (parts_max as usize * PART_BYTES as usize).next_multiple_of(CHUNK_BYTES);
        // Where there is less, fewer parts are under way.
        let budget_bytes = memory_bytes + METADATA_BYTES;
        let arena = Arena::elastic(budget_bytes, Pressure::new()).map_err(io::Error::other)?;
        driver.register_memory(&arena);
        Ok(Pipeline { driver, arena, parts_max: parts_max as usize })
    }

    /// Copies the ranges `runs` of `source` to the same places of `target`, whose length is set already. If it
    /// writes by [`Route::Buffered`], nothing is written directly. Blocks. After an error some of it is written.
    ///
    /// # Errors
    /// What reading or writing reports; `UnexpectedEof` of the source if it became shorter meanwhile.
    pub(super) fn copy(
        &self,
        source: &Arc<OpenFile>,
        target: &Arc<OpenFile>,
        runs: &[ByteRange],
        on_copied: OnCopied<'_>,
        how: How,
    ) -> Result<(), Failure> {
        let (reads, writes) = (VecDeque::new(), VecDeque::new());
        let (part_bytes, parts_max) = match how.writes_by {
            Route::Direct => (PART_BYTES, self.parts_max),
            Route::Buffered => (BUFFERED_PART_BYTES, self.parts_max.min(BUFFERED_PARTS_MAX)),
        };
        let mut copy = Copy { pipeline: self, source, target, how, parts_max, reads, writes, on_copied };
        copy.run(&mut runs.iter().flat_map(|&run| parts(run, part_bytes)).peekable())
    }
}

/// The copy of one file.
struct Copy<'a> {
    pipeline: &'a Pipeline,
    source: &'a Arc<OpenFile>,
    target: &'a Arc<OpenFile>,
    how: How,
    parts_max: usize,
    reads: VecDeque<Part>,
    writes: VecDeque<Part>,
    on_copied: OnCopied<'a>,
}

/// A part in flight, from the device or to it.
struct Part {
    range: ByteRange,
    completion: Completion,
}

impl Copy<'_> {
    fn run(
        &mut self,
        parts: &mut std::iter::Peekable<impl Iterator<Item = ByteRange>>,
    ) -> Result<(), Failure> {
        loop {
            self.start_reads(parts)?;
            // The oldest read first: what it brings keeps the other device busy.
            if let Some(read) = self.reads.pop_front() {
                self.complete_read(read)?;
            } else if let Some(write) = self.writes.pop_front() {
                self.complete_write(write)?;
            } else {
                return match parts.peek() {
                    None => Ok(()),
                    // Nothing is under way, so nothing will come back.
                    Some(&range) => Err(reading(range, io::ErrorKind::OutOfMemory.into())),
                };
            }
            while self.writes.front().is_some_and(|write| write.completion.is_done()) {
                let Some(write) = self.writes.pop_front() else { break };
                self.complete_write(write)?;
            }
        }
    }

    /// Fills the queue again, with one system call once several places are free.
    fn start_reads(
        &mut self,
        parts: &mut std::iter::Peekable<impl Iterator<Item = ByteRange>>,
    ) -> Result<(), Failure> {
        let mut plug = self.pipeline.driver.plug();
        while self.reads.len() + self.writes.len() < self.parts_max {
            let Some(&range) = parts.peek() else { break };
            let is_cached = self.source.direct().is_none()
                || self.source.residency(range) == Residency::Whole && self.source.begin_copy(range);
            if is_cached && self.how.writes_by == Route::Buffered {
                super::copy_by_kernel(self.source, self.target, range, self.on_copied, self.how.bytes)?;
                parts.next();
                continue;
            }
            let Some(mut extents) = self.pipeline.arena.allocate_run(range.len() as usize, Urgency::Demand)
            else {
                break;
            };
            parts.next();
            if is_cached {
                self.read_through_kernel(range, &mut extents)?;
                self.write(range, extents)?;
                continue;
            }
            let request = transfer(Direction::Read, self.source, range, extents);
            let submitted = plug.submit(request, Urgency::Demand);
            let completion = submitted.map_err(|rejected| reading(range, rejected.into()))?;
            self.reads.push_back(Part { range, completion });
        }
        Ok(())
    }

    fn read_through_kernel(&self, range: ByteRange, extents: &mut Extents) -> Result<(), Failure> {
        let mut start_bytes = range.start;
        for extent in extents {
            let length = extent.len().min((range.end - start_bytes) as usize);
            let read = self.source.read_blocking(Route::Buffered, &mut extent[..length], start_bytes);
            match read.map_err(|error| reading(range, error))? {
                read_bytes if read_bytes == length => start_bytes += length as u64,
                _ => return Err(Failure::became_shorter(range)),
            }
        }
        Ok(())
    }

    fn complete_read(&mut self, read: Part) -> Result<(), Failure> {
        let finished = read.completion.wait();
        let range = read.range;
        match (finished.result, finished.stopped_by) {
            (Ok(read_bytes), _) if read_bytes as u64 >= range.len() => self.write(range, finished.extents),
            (Err(error), _) if is_refusal(&error) => {
                let mut extents = finished.extents;
                self.read_through_kernel(range, &mut extents)?;
                self.write(range, extents)
            }
            (Err(error), _) | (Ok(_), Some(error)) => Err(reading(range, error)),
            (Ok(_), None) => Err(Failure::became_shorter(range)),
        }
    }

    /// Submits the write of a part. Only whole pages can be written directly. What is between pages that are left out is not: there
    /// the page cache makes few long writes of many short ones.
    fn write(&mut self, range: ByteRange, extents: Extents) -> Result<(), Failure> {
        let has_holes = self.how.bytes == Bytes::WithoutZeros && has_zeros(range, &extents);
        let direct_end = match self.target.direct() {
            Some(_) if self.how.writes_by == Route::Direct && !has_holes => {
                range.start + range.len() / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES
            }
            _ => range.start,
        };
        self.write_through_kernel(ByteRange::new(direct_end, range.end), direct_end - range.start, &extents)?;
        if direct_end == range.start {
            (self.on_copied)(range.len());
            return Ok(());
        }
        let request =
            transfer(Direction::Write, self.target, ByteRange::new(range.start, direct_end), extents);
        let submitted = self.pipeline.driver.submit(request, Urgency::Demand);
        let completion = submitted.map_err(|rejected| writing(range, rejected.into()))?;
        self.writes.push_back(Part { range, completion });
        Ok(())
    }

    /// Writes a range that begins after `skipped_bytes` of the extents.
    fn write_through_kernel(
        &self,
        range: ByteRange,
        skipped_bytes: u64,
        extents: &Extents,
    ) -> Result<(), Failure> {
        let (mut start_bytes, mut skipped) = (range.start, skipped_bytes as usize);
        for extent in extents {
            let begin = skipped.min(extent.len());
            skipped -= begin;
            let length = (extent.len() - begin).min((range.end - start_bytes) as usize);
            let bytes = &extent[begin..begin + length];
            kernel_copy::write(self.target, bytes, start_bytes, self.how.bytes)
                .map_err(|error| writing(range, error))?;
            start_bytes += length as u64;
        }
        Ok(())
    }

    fn complete_write(&mut self, write: Part) -> Result<(), Failure> {
        let finished = write.completion.wait();
        let range = write.range;
        let wanted_bytes = range.len() / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
        match (finished.result, finished.stopped_by) {
            (Ok(written_bytes), _) if written_bytes as u64 == wanted_bytes => {
                (self.on_copied)(range.len());
                Ok(())
            }
            (Err(error), _) if is_refusal(&error) => {
                let direct = ByteRange::new(range.start, range.start + wanted_bytes);
                self.write_through_kernel(direct, 0, &finished.extents)?;
                (self.on_copied)(range.len());
                Ok(())
            }
            (Err(error), _) | (Ok(_), Some(error)) => Err(writing(range, error)),
            (Ok(_), None) => Err(writing(range, io::ErrorKind::WriteZero.into())),
        }
    }
}

/// Whether direct I/O was refused: some file systems open a file for direct I/O, and then refuse it for parts of it.
fn is_refusal(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Whether a part has a page of zeros.
fn has_zeros(range: ByteRange, extents: &Extents) -> bool {
    let mut left = range.len() as usize;
    extents.iter().any(|extent| {
        let bytes = &extent[..extent.len().min(left)];
        left -= bytes.len();
        bytes.chunks(PAGE_BYTES).any(runs::is_zero)
    })
}

fn transfer(direction: Direction, file: &Arc<OpenFile>, range: ByteRange, extents: Extents) -> Transfer {
    // The last page of a file is read as a whole; what arrives tells where the file ends.
    let length_bytes = range.len().next_multiple_of(PAGE_SIZE_BYTES) as usize;
    let (file, offset_bytes, route) = (file.clone(), range.start, Route::Direct);
    Transfer { direction, file, route, offset_bytes, length_bytes, extents }
}

/// The parts of a run, each of which starts at a multiple of the page size.
fn parts(run: ByteRange, part_bytes: u64) -> impl Iterator<Item = ByteRange> {
    let starts = (run.start..run.end).step_by(part_bytes as usize);
    starts.map(move |start| ByteRange::new(start, run.end.min(start + part_bytes)))
}

fn reading(range: ByteRange, error: io::Error) -> Failure {
    Failure { side: Side::Source, offset_bytes: Some(range.start), error }
}

fn writing(range: ByteRange, error: io::Error) -> Failure {
    Failure { side: Side::Target, offset_bytes: Some(range.start), error }
}

/// The size of a part, at which devices reach their full rate.
const PART_BYTES: u64 = 1 << 20;

/// Where this thread writes what has arrived into the page cache: the first part arrives sooner, and a few keep a device busy. Each
/// 2 MiB in flight are memory to be mapped first, which takes 0.1 ms.
const BUFFERED_PART_BYTES: u64 = 256 << 10;
const BUFFERED_PARTS_MAX: usize = 12;

/// The most parts in flight, reads and writes together.
const PARTS_DEFAULT: u32 = 32;

/// The unit in which the arena allocates, and what the arena needs beside its extents.
const CHUNK_BYTES: usize = 2 << 20;
const METADATA_BYTES: usize = 1 << 20;
