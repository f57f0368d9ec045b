//! Changes: what each work makes of a file, and the calls that do it, for a task and for a thread.
//!
//! Owns: what a file may be once a work has begun; the calls.
//! Does not own: what becomes of them (tasks), which bytes are possible then (versions).

use std::fs;
use std::future::Future;
use std::io::{ErrorKind, IoSlice};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::pin::pin;
use std::task::{Context, Waker};

use futures_util::{AsyncReadExt, AsyncWriteExt, StreamExt};
use headwater::{ByteRange, File, OpenOptions};
use headwater_testkit::{Pattern, as_owner, is_more_than_owner};

use super::tasks::{Deed, Done, Working};
use super::{Outcome, World, text};
use crate::coverage::Reached;
use crate::steps::{Before, Place, Span, Work};

impl World {
    /// From now on the file may be what the work makes of it.
    pub(super) fn begin_deed(&mut self, file: usize, work: Work) -> Deed {
        let source = work.source(file);
        let since = self.targets[file].versions.now();
        let (mut work, mut copied_bytes) = (work, 0);
        if let Work::CopyWithin(span, at_bytes) | Work::CopyFrom(span, at_bytes) = &mut work {
            let held = self.targets[source].versions.bytes();
            let read = range_of(*span).clip(held.len() as u64);
            if source == file && !read.intersect(ByteRange::at(*at_bytes, read.len())).is_empty() {
                *at_bytes = read.end;
            }
            copied_bytes = read.len();
            let (copied, at) = (part_of(held, *span).to_vec(), *at_bytes as usize);
            self.targets[file].versions.begin(|bytes| overwrite(bytes, at, &copied));
        } else if work.changes() {
            self.targets[file].versions.begin(|bytes| work.change(bytes));
        }
        Deed {
            file,
            work,
            since,
            faults: self.faults,
            began_faulty: self.is_faulty,
            copied_bytes,
            is_source_changed: false,
        }
    }

    /// Copies from a file that begins to change have its bytes as they were, or as they will be.
    pub(super) fn note_source_change(&mut self, begun: &Deed) {
        if !begun.work.changes() {
            return;
        }
        for deed in self.tasks.iter_mut().map(|task| &mut task.deed) {
            let Work::CopyFrom(span, at_bytes) = deed.work else { continue };
            if deed.work.source(deed.file) == begun.file {
                let mut copied = part_of(self.targets[begun.file].versions.last(), span).to_vec();
                let versions = &mut self.targets[deed.file].versions;
                versions.begin_also(|bytes| overwrite(bytes, at_bytes as usize, &copied));
                let (before, after) = (deed.copied_bytes as usize, copied.len());
                if before != after {
                    // As for a read beside a truncate or a growth: zeros where the file ends at one of the moments.
                    copied.truncate(before);
                    copied.resize(before.max(after), 0);
                    versions.begin_also(|bytes| overwrite(bytes, at_bytes as usize, &copied));
                }
                deed.is_source_changed = true;
            }
        }
    }

    /// By calls that block. Nothing else changes the file, nor the one that is copied from: they would wait for a task of this thread.
    pub(super) fn perform_now(&mut self, place: Place, work: Work, before: Before) -> Outcome {
        let source = work.source(place.file);
        let is_free = work.reads() || self.free_size_lock(place.file)? && self.free_size_lock(source)?;
        if !is_free {
            return Ok(());
        }
        if let Before::Writes(fill) = before
            && !work.reads()
            && !self.leave_writes(place, work, fill)?
        {
            return Ok(());
        }
        let (file, source) = (self.handle(place)?, self.handle(Place { file: source, ..place })?);
        let deed = self.begin_deed(place.file, work);
        let done = self.call_now(&file, &source, &deed);
        self.coverage.note(match work {
            Work::View(_) => Reached::ViewedNow,
            Work::Append(..) | Work::AppendDurable(..) | Work::AppendShared(..) => Reached::AppendedNow,
            Work::CopyWithin(..) | Work::CopyFrom(..) => Reached::CopiedNow,
            _ if work.changes() => Reached::ChangedNow,
            _ => Reached::SyncedNow,
        });
        self.conclude(&deed, done)
    }

    /// Writes runs of pages around the place of a work, in the file that it changes or copies from, and leaves a flush that has made a request
    /// of each. False if that fails.
    fn leave_writes(&mut self, place: Place, work: Work, fill: u64) -> Outcome<bool> {
        let (file, first) = match work {
            Work::CopyFrom(span, _) if fill.is_multiple_of(2) => (work.source(place.file), span.offset_bytes),
            _ => (place.file, work.place_bytes(self.targets[place.file].versions.bytes().len())),
        };
        let (handle, first_page) = (self.handle(Place { file, ..place })?, (first / PAGE).saturating_sub(2));
        for number in 0..LEFT_RUNS {
            let offset_bytes = (first_page + number * (LEFT_PAGES + 1)) * PAGE;
            let span = Span { offset_bytes, length: (LEFT_PAGES * PAGE) as usize };
            let deed = self.begin_deed(file, Work::Write(span, fill.wrapping_add(number)));
            let done = self.call_now(&handle, &handle, &deed);
            self.conclude(&deed, done)?;
            if !self.targets[file].versions.is_certain() {
                return Ok(false);
            }
        }
        let in_flight = || self.engine.stats().driver.in_flight;
        let before = in_flight();
        let left = pin!(handle.flush_async()).poll(&mut Context::from_waker(Waker::noop()));
        self.coverage.note_if(left.is_pending() && in_flight() > before, Reached::ChangedBesideWrites);
        Ok(true)
    }

    pub(super) fn write_vectored_now(&mut self, place: Place, span: Span, fill: u64) -> Outcome {
        if !self.free_size_lock(place.file)? {
            return Ok(());
        }
        let (file, bytes) = (self.handle(place)?, contents(span.length, fill));
        let versions = &mut self.targets[place.file].versions;
        versions.begin(|file| overwrite(file, span.offset_bytes as usize, &bytes));
        let (first, rest) = bytes.split_at(span.length / 3);
        let buffers = [first, &[], &rest[..rest.len() / 2], &rest[rest.len() / 2..]].map(IoSlice::new);
        let written = file.write_vectored_at(&buffers, span.offset_bytes);
        if written.as_ref().is_ok_and(|&written| written == span.length) {
            versions.finish();
            self.note_change(place.file);
            self.coverage.note(Reached::WrittenVectored);
            return Ok(());
        }
        versions.give_up();
        self.forgive(self.faults > 0, Reached::MutationFailed, &format!("{written:?} of {}", span.length))
    }

    /// Room on the device, of which no reader sees anything.
    pub(super) fn allocate_now(&mut self, place: Place, span: Span) -> Outcome {
        let (file, range) = (self.handle(place)?, range_of(span));
        let was_clean = file.is_clean();
        match file.allocate(range.start..range.end) {
            Ok(()) => {
                let room_bytes = fs::metadata(&self.targets[place.file].path).map_err(text)?.blocks() * 512;
                if room_bytes < range.len() {
                    return Err(format!("{room_bytes} bytes of room, with {range:?} allocated"));
                }
                let end_bytes = self.targets[place.file].versions.least_bytes() as u64;
                self.coverage.note(Reached::Allocated);
                self.coverage.note_if(range.end > end_bytes, Reached::AllocatedBeyondEnd);
            }
            Err(error) => {
                let may_fail = self.faults > 0 || error.kind() == ErrorKind::Unsupported;
                self.forgive(may_fail, Reached::AllocationRefused, &error)?;
            }
        }
        if was_clean && !file.is_clean() {
            return Err("an allocation made it dirty".to_owned());
        }
        self.read_now(place, span)
    }

    /// A task's call.
    pub(super) fn call(&self, file: &File, source: &File, deed: &Deed) -> Working {
        match deed.work {
            Work::Read(Span { offset_bytes, length }) => {
                let reading = file.read_at_async(offset_bytes, length);
                Box::pin(async { Done::Bytes(reading.await.map(|bytes| bytes.to_vec()).map_err(text)) })
            }
            Work::View(Span { offset_bytes, length }) => {
                let viewing = file.view_async(offset_bytes, length);
                Box::pin(async { Done::View(viewing.await) })
            }
            Work::Stream(items) => {
                let mut stream = file.stream();
                Box::pin(async move {
                    let mut all = Vec::new();
                    for _ in 0..items {
                        match stream.next().await {
                            None => break,
                            Some(Ok(bytes)) => all.extend_from_slice(&bytes),
                            Some(Err(error)) => return Done::Bytes(Err(text(error))),
                        }
                    }
                    Done::Bytes(Ok(all))
                })
            }
            Work::ReadInOrder(Span { offset_bytes, length }) => {
                let mut reader = file.async_reader().starting_at(offset_bytes).take(length as u64);
                Box::pin(async move {
                    let mut all = Vec::new();
                    let read = reader.read_to_end(&mut all).await;
                    Done::Bytes(read.map(|_| all).map_err(text))
                })
            }
            Work::SyncData => nothing(file.sync_data_async()),
            Work::SyncAll => nothing(file.sync_all_async()),
            Work::Flush => nothing(file.flush_async()),
            _ => self.call_change(file, source, deed),
        }
    }

    fn call_change(&self, file: &File, source: &File, deed: &Deed) -> Working {
        match deed.work {
            Work::Write(Span { offset_bytes, length }, fill) => {
                nothing(file.write_all_at_async(contents(length, fill), offset_bytes))
            }
            Work::WriteInOrder(Span { offset_bytes, length }, fill) => {
                let mut writer = file.async_writer().starting_at(offset_bytes);
                Box::pin(async move {
                    for piece in contents(length, fill).chunks(length / 3 + 1) {
                        if let Err(error) = writer.write_all(piece).await {
                            return Done::Nothing(Err(text(error)));
                        }
                    }
                    Done::Nothing(writer.into_inner().await.map(drop).map_err(text))
                })
            }
            Work::WriteAlone(Span { offset_bytes, length }, fill) => {
                let opened = self.open_alone(deed.file);
                Box::pin(async move {
                    let Ok(file) = opened else { return Done::Nothing(opened.map(drop).map_err(text)) };
                    let writing = file.write_all_at_async(contents(length, fill), offset_bytes);
                    Done::Nothing(writing.await.map_err(text))
                })
            }
            Work::Append(length, fill) => appended(file.append_async(contents(length, fill))),
            Work::AppendDurable(length, fill) => appended(file.append_durable_async(contents(length, fill))),
            Work::AppendShared(length, fill) => {
                let opened = self.open_shared(deed.file);
                Box::pin(async move {
                    let Ok(log) = opened else { return Done::Appended(opened.map(|_| 0).map_err(text)) };
                    Done::Appended(log.append_async(contents(length, fill)).await.map_err(text))
                })
            }
            Work::PunchHole(span) => {
                let range = range_of(span);
                nothing(file.punch_hole_async(range.start..range.end))
            }
            Work::CopyWithin(span, at_bytes) | Work::CopyFrom(span, at_bytes) => {
                let range = range_of(span);
                let copying = source.copy_range_to_async(range.start..range.end, file, at_bytes);
                Box::pin(async { Done::Copied(copying.await.map_err(text)) })
            }
            Work::SetLength(length_bytes) => nothing(file.set_len_async(length_bytes)),
            _ => unreachable!("it changes nothing"),
        }
    }

    fn call_now(&self, file: &File, source: &File, deed: &Deed) -> Done {
        let done = match deed.work {
            Work::View(Span { offset_bytes, length }) => return Done::View(file.view(offset_bytes, length)),
            Work::Append(length, fill) => {
                return Done::Appended(file.append(&contents(length, fill)).map_err(text));
            }
            Work::AppendDurable(length, fill) => {
                return Done::Appended(file.append_durable(&contents(length, fill)).map_err(text));
            }
            Work::AppendShared(length, fill) => {
                let opened = self.open_shared(deed.file);
                let appended = opened.and_then(|log| log.append(&contents(length, fill)));
                return Done::Appended(appended.map_err(text));
            }
            Work::CopyWithin(span, at_bytes) | Work::CopyFrom(span, at_bytes) => {
                let range = range_of(span);
                let copied = source.copy_range_to(range.start..range.end, file, at_bytes);
                return Done::Copied(copied.map_err(text));
            }
            Work::Write(Span { offset_bytes, length }, fill) => {
                file.write_all_at(&contents(length, fill), offset_bytes)
            }
            Work::WriteAlone(Span { offset_bytes, length }, fill) => self
                .open_alone(deed.file)
                .and_then(|file| file.write_all_at(&contents(length, fill), offset_bytes)),
            Work::PunchHole(span) => file.punch_hole(range_of(span).start..range_of(span).end),
            Work::SetLength(length_bytes) => file.set_len(length_bytes),
            Work::SyncData => file.sync_data(),
            Work::SyncAll => file.sync_all(),
            Work::Flush => file.flush(),
            Work::Read(_) | Work::ReadInOrder(_) | Work::Stream(_) | Work::WriteInOrder(..) => {
                unreachable!("it has a step of its own")
            }
        };
        Done::Nothing(done.map_err(text))
    }

    /// By a handle that cannot read the file, where this process may do more than the file's owner.
    fn open_alone(&self, file: usize) -> headwater::Result<File> {
        let opened =
            as_owner(|| OpenOptions::new().engine(&self.engine).write(true).open(&self.targets[file].path));
        let is_alone =
            |file: &File| file.view(0, 1).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        assert!(opened.as_ref().map_or(true, |file| is_alone(file) == is_more_than_owner()), "{opened:?}");
        opened
    }

    fn open_shared(&self, file: usize) -> headwater::Result<File> {
        OpenOptions::new().engine(&self.engine).append(true).open(&self.targets[file].path)
    }
}

impl Work {
    /// Where it changes a file of this length first.
    fn place_bytes(self, length: usize) -> u64 {
        match self {
            Work::Write(span, _) | Work::WriteAlone(span, _) | Work::PunchHole(span) => span.offset_bytes,
            Work::CopyWithin(_, at_bytes) | Work::CopyFrom(_, at_bytes) | Work::SetLength(at_bytes) => {
                at_bytes
            }
            _ => length as u64,
        }
    }

    /// What it makes of a file, if it takes its bytes from nowhere else.
    fn change(self, bytes: &mut Vec<u8>) {
        match self {
            Work::Write(span, fill) | Work::WriteInOrder(span, fill) | Work::WriteAlone(span, fill) => {
                overwrite(bytes, span.offset_bytes as usize, &contents(span.length, fill));
            }
            Work::Append(length, fill)
            | Work::AppendDurable(length, fill)
            | Work::AppendShared(length, fill) => bytes.extend_from_slice(&contents(length, fill)),
            Work::PunchHole(span) => {
                let hole = within(bytes.len(), span);
                bytes[hole].fill(0);
            }
            Work::SetLength(length_bytes) => bytes.resize(length_bytes as usize, 0),
            _ => unreachable!("it changes nothing, or copies"),
        }
    }
}

fn nothing(work: impl Future<Output = headwater::Result<()>> + Send + 'static) -> Working {
    Box::pin(async { Done::Nothing(work.await.map_err(text)) })
}

fn appended(work: impl Future<Output = headwater::Result<u64>> + Send + 'static) -> Working {
    Box::pin(async { Done::Appended(work.await.map_err(text)) })
}

fn range_of(span: Span) -> ByteRange {
    ByteRange::at(span.offset_bytes, span.length as u64)
}

fn part_of(bytes: &[u8], span: Span) -> &[u8] {
    &bytes[within(bytes.len(), span)]
}

/// What of a span lies in a file of this length.
fn within(length: usize, span: Span) -> Range<usize> {
    let start = length.min(span.offset_bytes as usize);
    start..length.min(start + span.length)
}

pub(super) fn overwrite(file: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        file.resize(file.len().max(start + bytes.len()), 0);
        file[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

pub(super) fn contents(length: usize, fill: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Pattern::new(fill).fill(0, &mut bytes);
    bytes
}

/// Written before a call, with a page between any two.
const LEFT_RUNS: u64 = 3;

/// Of each: more than a flush copies into the kernel's page cache itself.
const LEFT_PAGES: u64 = 17;

const PAGE: u64 = 4096;
