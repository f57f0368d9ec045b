//! Actor: carries out operations on a file and compares all that comes back with the model.
//!
//! Owns: the handles, what is under way, what is kept to be looked at later.
//! Does not own: which operations (operations), what is right (model).

// Other tests have this file at another place.
#[path = "actor/calls.rs"]
mod calls;
#[path = "actor/other_file.rs"]
mod other_file;

use std::fs;
use std::future::Future;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{join_all, join3};
use headwater::{Advice, ByteRange, Caching, File, IoMode, OpenOptions, View};
use headwater_testkit::{Pattern, block_on};

use crate::model::{Model, Outcome, same};
use crate::operations::{HANDLES, Operation, Place, Span, Way};
use crate::rig::Rig;
use other_file::OtherFile;

pub(crate) struct Actor<'a> {
    rig: &'a Rig,
    path: PathBuf,
    model: Model,
    other: OtherFile,
    handles: [Option<File>; HANDLES],
    kept: Vec<(Keepsake, u64, Vec<u8>)>,
    under_way: Vec<UnderWay>,
}

/// What is left of an actor without its engine.
pub(crate) struct Abandoned {
    /// Of each file.
    files: [(PathBuf, Model); 2],
    kept: Vec<(Keepsake, u64, Vec<u8>)>,
}

impl Abandoned {
    pub(crate) fn check(&self) -> Outcome {
        check_kept(&self.kept)?;
        self.files.iter().try_for_each(|(path, model)| peek(path, model))
    }
}

/// Bytes that must stay as they are.
enum Keepsake {
    View(View),
    Bytes(Bytes),
}

struct UnderWay {
    reading: Pin<Box<dyn Future<Output = headwater::Result<Bytes>> + Send>>,
    span: Span,
    /// What the range had at the beginning, and after each operation since.
    versions: Vec<Vec<u8>>,
}

impl<'a> Actor<'a> {
    /// On a file that is not there yet.
    pub(crate) fn new(rig: &'a Rig, path: &Path) -> Actor<'a> {
        let (path, model, other) = (path.to_owned(), Model::default(), OtherFile::new(path));
        Actor {
            rig,
            path,
            model,
            other,
            handles: Default::default(),
            kept: Vec::new(),
            under_way: Vec::new(),
        }
    }

    pub(crate) fn perform(&mut self, operation: Operation) -> Outcome {
        match operation {
            Operation::Read(place, way, span) => self.read(place, way, span)?,
            Operation::Scan(place, span) => self.scan(place, span)?,
            Operation::BeginRead(place, span) => self.begin_read(place, span)?,
            Operation::FinishReads => self.finish_reads()?,
            Operation::ReadByReader(place, span) => self.read_by_reader(place, span)?,
            Operation::Stream(place, items) => self.stream(place, items)?,
            Operation::Write(place, way, span, fill) => self.write(place, way, span, fill)?,
            Operation::WriteAbandoned(place, span, fill) => self.write_abandoned(place, span, fill)?,
            Operation::AppendAbandoned(place, length, fill) => self.append_abandoned(place, length, fill)?,
            Operation::SetLengthAbandoned(place, bytes) => self.set_len_abandoned(place, bytes)?,
            Operation::SyncAbandoned(place) => self.sync_abandoned(place)?,
            Operation::WriteByWriter(place, span, fill) => self.write_by_writer(place, span, fill)?,
            Operation::WriteTogether(span, fill) => self.write_together(span, fill)?,
            Operation::WriteView(place, way, span, to) => self.write_view(place, way, span, to)?,
            Operation::Append(place, way, durability, length, fill) => {
                self.append(place, way, durability, length, fill)?;
            }
            Operation::AppendShared(way, durability, length, fill) => {
                self.append_shared(way, durability, length, fill)?;
            }
            Operation::WriteVectored(place, span, fill) => self.write_vectored(place, span, fill)?,
            Operation::ReadVectored(place, span) => self.read_vectored(place, span)?,
            Operation::SetLength(place, way, length_bytes) => self.set_len(place, way, length_bytes)?,
            Operation::PunchHole(place, way, span) => self.punch_hole(place, way, span)?,
            Operation::Allocate(place, span) => self.allocate(place, span)?,
            Operation::CopyRange(place, way, span, to) => self.copy_range(place, way, span, to)?,
            Operation::WriteOther(span, fill) => self.write_other(span, fill)?,
            Operation::SetLengthOfOther(length_bytes) => self.set_len_of_other(length_bytes)?,
            Operation::CloseOther => self.other.close(),
            Operation::CopyOut(place, way, span, to) => self.copy_out(place, way, span, to)?,
            Operation::CopyIn(place, way, span, to) => self.copy_in(place, way, span, to)?,
            Operation::Sync(place, way) => self.sync(place, way)?,
            Operation::KeepView(place, span) => self.keep_view(place, span)?,
            Operation::CheckKept => check_kept(&self.kept)?,
            Operation::DropKept => drop(self.kept.drain(..self.kept.len() / 2)),
            Operation::WillNeed(place, span) => self.advise(place, Advice::WillNeed, span)?,
            Operation::DontNeed(place, span) => self.advise(place, Advice::DontNeed, span)?,
            Operation::Open(place, mode, caching) => self.open(place, mode, caching)?,
            Operation::OpenTruncated(place, mode, caching) => self.open_truncated(place, mode, caching)?,
            Operation::Press(bytes) => self.press(bytes)?,
            Operation::Close(place) => self.handles[place] = None,
            Operation::CloseAll => self.handles = Default::default(),
            Operation::Peek => {
                peek(&self.path, &self.model)?;
                self.other.peek()?;
            }
            Operation::Compare(place) => self.compare(place)?,
        }
        self.note_versions();
        Ok(())
    }

    /// Nothing is left under way, kept or unsynced.
    pub(crate) fn finish(mut self) -> Outcome {
        self.finish_reads()?;
        check_kept(&self.kept)?;
        self.kept.clear();
        self.compare(0)?;
        self.compare_other()?;
        let length = self.model.bytes.len();
        self.read(1, Way::Blocking, Span { offset_bytes: 0, length: length + 5000 })
    }

    /// Everything is let go as it is. What is on disk then can be looked at when the engine is gone.
    pub(crate) fn abandon(self) -> Abandoned {
        Abandoned { files: [(self.path, self.model), self.other.abandon()], kept: self.kept }
    }

    fn handle(&mut self, place: Place) -> Outcome<File> {
        if self.handles[place].is_none() {
            self.open(place, IoMode::Auto, Caching::On)?;
        }
        Ok(self.handles[place].clone().expect("it was just opened"))
    }

    fn open(&mut self, place: Place, mode: IoMode, caching: Caching) -> Outcome {
        let mut options = OpenOptions::new();
        self.open_with(
            place,
            mode,
            options.engine(&self.rig.engine).caching(caching).write(true).create(true),
        )
    }

    fn open_truncated(&mut self, place: Place, mode: IoMode, caching: Caching) -> Outcome {
        let mut options = OpenOptions::new();
        // Before it is known whether there is direct I/O: if there is not, the file may be truncated all the same.
        self.open(place, mode, caching)?;
        self.model.set_len(0);
        self.open_with(
            place,
            IoMode::Auto,
            options.engine(&self.rig.engine).caching(caching).write(true).truncate(true),
        )
    }

    fn open_with(&mut self, place: Place, mode: IoMode, options: &mut OpenOptions) -> Outcome {
        let opened = match options.io(mode).open(&self.path) {
            // Where there is no direct I/O.
            Err(error) if mode == IoMode::Direct && error.kind() == ErrorKind::Unsupported => {
                options.io(IoMode::Auto).open(&self.path)
            }
            opened => opened,
        };
        let file = opened.map_err(text)?;
        self.check_length(&file)?;
        self.handles[place] = Some(file);
        Ok(())
    }

    fn check_length(&self, file: &File) -> Outcome {
        let (found, expected) = (file.len().map_err(text)?, self.model.len());
        if found == expected { Ok(()) } else { Err(format!("the length is {found}, not {expected}")) }
    }

    fn read(&mut self, place: Place, way: Way, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let expected = self.model.slice(span.offset_bytes, span.length);
        if way == Way::Async {
            let bytes = block_on(file.read_at_async(span.offset_bytes, span.length)).map_err(text)?;
            same("read_at_async", span.offset_bytes, expected, &bytes)?;
            let expected = expected.to_vec();
            return self.keep(Keepsake::Bytes(bytes), span.offset_bytes, expected);
        }
        let mut buffer = vec![0xAA; span.length + 9];
        let read = file.read_at(&mut buffer[..span.length], span.offset_bytes).map_err(text)?;
        same("read_at", span.offset_bytes, expected, &buffer[..read])?;
        // `File::read_at` leaves unspecified what the buffer has behind the bytes read.
        let beyond = buffer[span.length..].iter().all(|&byte| byte == 0xAA);
        if beyond { Ok(()) } else { Err("read_at wrote beyond the buffer".to_owned()) }
    }

    fn scan(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let step = (span.length / 6).clamp(1, 50_000);
        let mut buffer = vec![0; step];
        for offset_bytes in (span.offset_bytes..).step_by(step).take(8) {
            let expected = self.model.slice(offset_bytes, step);
            file.read_exact_at(&mut buffer[..expected.len()], offset_bytes).map_err(text)?;
            same("read_exact_at", offset_bytes, expected, &buffer[..expected.len()])?;
        }
        Ok(())
    }

    fn begin_read(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let versions = vec![self.model.slice(span.offset_bytes, span.length).to_vec()];
        let mut reading = Box::pin(file.read_at_async(span.offset_bytes, span.length));
        match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(bytes) => same("begun read", span.offset_bytes, &versions[0], &bytes.map_err(text)?),
            Poll::Pending => {
                self.under_way.push(UnderWay { reading, span, versions });
                if self.under_way.len() > UNDER_WAY_MAX { self.finish_reads() } else { Ok(()) }
            }
        }
    }

    fn note_versions(&mut self) {
        for UnderWay { span, versions, .. } in &mut self.under_way {
            let now = self.model.slice(span.offset_bytes, span.length);
            if versions.last().is_none_or(|last| last != now) {
                versions.push(now.to_vec());
            }
        }
    }

    fn finish_reads(&mut self) -> Outcome {
        for under_way in self.under_way.drain(..) {
            let bytes = block_on(under_way.reading).map_err(text)?;
            check_versions(under_way.span, &under_way.versions, &bytes)?;
        }
        Ok(())
    }

    fn read_by_reader(&mut self, place: Place, span: Span) -> Outcome {
        let (mut reader, mut bytes) = (self.handle(place)?.reader(), Vec::new());
        reader.seek(SeekFrom::Start(span.offset_bytes)).map_err(text)?;
        reader.take(span.length as u64).read_to_end(&mut bytes).map_err(text)?;
        same("reader", span.offset_bytes, self.model.slice(span.offset_bytes, span.length), &bytes)
    }

    fn stream(&mut self, place: Place, items: usize) -> Outcome {
        let (mut stream, mut offset_bytes) = (self.handle(place)?.stream(), 0);
        for _ in 0..items {
            let Some(bytes) = block_on(stream.next()) else {
                return same("stream", offset_bytes, self.model.slice(offset_bytes, 100), &[]);
            };
            let bytes = bytes.map_err(text)?;
            let expected = self.model.slice(offset_bytes, bytes.len()).to_vec();
            same("stream", offset_bytes, &expected, &bytes)?;
            let length_bytes = bytes.len() as u64;
            self.keep(Keepsake::Bytes(bytes), offset_bytes, expected)?;
            offset_bytes += length_bytes;
        }
        Ok(())
    }

    fn write(&mut self, place: Place, way: Way, span: Span, fill: u64) -> Outcome {
        let (file, bytes) = (self.handle(place)?, contents(span.length, fill));
        match way {
            Way::Async => {
                block_on(file.write_all_at_async(bytes.clone(), span.offset_bytes)).map_err(text)?;
                self.model.write(span.offset_bytes, &bytes);
            }
            Way::Blocking => {
                let written = file.write_at(&bytes, span.offset_bytes).map_err(text)?;
                self.model.write(span.offset_bytes, &bytes[..written]);
                if written > bytes.len() || (written == 0 && !bytes.is_empty()) {
                    return Err(format!("write_at wrote {written} of {} bytes", bytes.len()));
                }
            }
        }
        self.check_length(&file)
    }

    fn write_abandoned(&mut self, place: Place, span: Span, fill: u64) -> Outcome {
        let (file, bytes) = (self.handle(place)?, contents(span.length, fill));
        match poll_and_drop(file.write_all_at_async(bytes.clone(), span.offset_bytes))? {
            Some(()) => {
                self.model.write(span.offset_bytes, &bytes);
                self.check_length(&file)
            }
            None => self.settle(&file, span, &bytes),
        }
    }

    /// After a write that was dropped: each byte is the old one or the new one, and stays that.
    fn settle(&mut self, file: &File, span: Span, bytes: &[u8]) -> Outcome {
        let (length_bytes, end_bytes) = (file.len().map_err(text)?, span.offset_bytes + span.length as u64);
        if length_bytes < self.model.len() || length_bytes > self.model.len().max(end_bytes) {
            return Err(format!("the length is {length_bytes} after a write that was dropped"));
        }
        self.model.set_len(length_bytes);
        let mut found = vec![0; span.length];
        let read = file.read_at(&mut found, span.offset_bytes).map_err(text)?;
        let old = self.model.slice(span.offset_bytes, span.length).to_vec();
        let new = bytes[..old.len()].to_vec();
        check_versions(span, &[old, new], &found[..read])?;
        self.model.write(span.offset_bytes, &found[..read]);
        Ok(())
    }

    fn set_len_abandoned(&mut self, place: Place, length_bytes: u64) -> Outcome {
        let file = self.handle(place)?;
        let done = poll_and_drop(file.set_len_async(length_bytes))?.is_some();
        let found = file.len().map_err(text)?;
        if found != length_bytes && (done || found != self.model.len()) {
            return Err(format!("the length is {found} after it was set to {length_bytes}, done: {done}"));
        }
        self.model.set_len(found);
        Ok(())
    }

    fn sync_abandoned(&mut self, place: Place) -> Outcome {
        if poll_and_drop(self.handle(place)?.sync_data_async())?.is_some() {
            self.model.sync();
            return self.check_disk_length();
        }
        Ok(())
    }

    fn write_together(&mut self, span: Span, fill: u64) -> Outcome {
        let bytes = Bytes::from(contents(span.length, fill));
        let old = self.model.slice(span.offset_bytes, span.length).to_vec();
        let piece = span.length / HANDLES + 1;
        let mut writes = Vec::new();
        for place in 0..HANDLES {
            let start = (place * piece).min(span.length);
            let bytes = bytes.slice(start..(start + piece).min(span.length));
            writes.push(self.handle(place)?.write_all_at_async(bytes, span.offset_bytes + start as u64));
        }
        let file = self.handle(0)?;
        let (reading, syncing) = (file.read_at_async(span.offset_bytes, span.length), file.sync_data_async());
        let (written, read, synced) = block_on(join3(join_all(writes), reading, syncing));
        written.into_iter().chain([synced]).collect::<headwater::Result<Vec<()>>>().map_err(text)?;
        self.model.write(span.offset_bytes, &bytes);
        let new = self.model.slice(span.offset_bytes, span.length).to_vec();
        check_versions(span, &[old, new], &read.map_err(text)?)?;
        self.check_length(&file)
    }

    fn write_by_writer(&mut self, place: Place, span: Span, fill: u64) -> Outcome {
        let (file, bytes) = (self.handle(place)?, contents(span.length, fill));
        let mut writer = file.writer();
        writer.seek(SeekFrom::Start(span.offset_bytes)).map_err(text)?;
        for piece in bytes.chunks(span.length / 5 + 1) {
            writer.write_all(piece).map_err(text)?;
        }
        writer.flush().map_err(text)?;
        self.model.write(span.offset_bytes, &bytes);
        let (found, expected) =
            (writer.stream_position().map_err(text)?, span.offset_bytes + bytes.len() as u64);
        if found == expected { Ok(()) } else { Err(format!("the writer is at {found}, not {expected}")) }
    }

    fn write_view(&mut self, place: Place, way: Way, span: Span, to: u64) -> Outcome {
        let (file, expected) =
            (self.handle(place)?, self.model.slice(span.offset_bytes, span.length).to_vec());
        let view = file.view(span.offset_bytes.min(self.model.len()), expected.len()).map_err(text)?;
        match way {
            Way::Async => block_on(file.write_all_at_async(view.into_bytes(), to)).map_err(text)?,
            Way::Blocking => {
                let mut offset_bytes = to;
                for chunk in view.chunks() {
                    file.write_all_at(chunk, offset_bytes).map_err(text)?;
                    offset_bytes += chunk.len() as u64;
                }
                same("view after it was written", span.offset_bytes, &expected, &view.to_vec())?;
            }
        }
        self.model.write(to, &expected);
        Ok(())
    }

    fn set_len(&mut self, place: Place, way: Way, length_bytes: u64) -> Outcome {
        let file = self.handle(place)?;
        let result = match way {
            Way::Blocking => file.set_len(length_bytes),
            Way::Async => block_on(file.set_len_async(length_bytes)),
        };
        result.map_err(text)?;
        self.model.set_len(length_bytes);
        self.check_length(&file)
    }

    fn punch_hole(&mut self, place: Place, way: Way, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let range = ByteRange::at(span.offset_bytes, span.length as u64);
        let result = match way {
            Way::Blocking => file.punch_hole(range),
            Way::Async => block_on(file.punch_hole_async(range)),
        };
        result.map_err(text)?;
        let zeros = vec![0; range.clip(self.model.len()).len() as usize];
        self.model.write(span.offset_bytes, &zeros);
        self.check_length(&file)
    }

    fn allocate(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        match file.allocate(ByteRange::at(span.offset_bytes, span.length as u64)) {
            Ok(()) => self.check_length(&file),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    fn copy_range(&mut self, place: Place, way: Way, span: Span, to: u64) -> Outcome {
        let (from, target) = (self.handle(place)?, self.handle((place + 1) % HANDLES)?);
        let bytes = self.model.slice(span.offset_bytes, span.length).to_vec();
        let range = ByteRange::at(span.offset_bytes, bytes.len() as u64);
        let wanted = ByteRange::at(span.offset_bytes, span.length as u64);
        let result = match way {
            Way::Blocking => from.copy_range_to(wanted, &target, to),
            Way::Async => block_on(from.copy_range_to_async(wanted, &target, to)),
        };
        match result {
            Ok(copied_bytes) if copied_bytes == range.len() => self.model.write(to, &bytes),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let is_overlap = !range.intersect(ByteRange::at(to, range.len())).is_empty();
                return is_overlap.then_some(()).ok_or(text(error));
            }
            result => return Err(format!("copied {result:?} of {range:?}")),
        }
        self.check_length(&target)
    }

    fn sync(&mut self, place: Place, way: Way) -> Outcome {
        let file = self.handle(place)?;
        let result = match way {
            Way::Blocking => file.sync_data(),
            Way::Async => block_on(file.sync_all_async()),
        };
        result.map_err(text)?;
        self.model.sync();
        self.check_disk_length()
    }

    fn check_disk_length(&self) -> Outcome {
        let (found, expected) = (fs::metadata(&self.path).map_err(text)?.len(), self.model.len());
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found} bytes on disk after sync, not {expected}"))
        }
    }

    fn keep_view(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let expected = self.model.slice(span.offset_bytes, span.length).to_vec();
        let view = match file.view(span.offset_bytes, span.length) {
            Ok(view) => view,
            Err(error) if expected.len() < span.length && error.kind() == ErrorKind::UnexpectedEof => {
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        if view.len() != span.length || view.is_empty() != (span.length == 0) {
            return Err(format!("a view of {} bytes has {}", span.length, view.len()));
        }
        same("view", span.offset_bytes, &expected, &view.to_vec())?;
        self.keep(Keepsake::View(view), span.offset_bytes, expected)
    }

    fn keep(&mut self, keepsake: Keepsake, offset_bytes: u64, expected: Vec<u8>) -> Outcome {
        self.kept.push((keepsake, offset_bytes, expected));
        if self.kept.len() <= KEPT_MAX {
            return Ok(());
        }
        let (keepsake, offset_bytes, expected) = self.kept.remove(0);
        keepsake.check(offset_bytes, &expected)
    }

    fn advise(&mut self, place: Place, advice: Advice, span: Span) -> Outcome {
        let (file, end_bytes) = (self.handle(place)?, span.offset_bytes + span.length as u64);
        match file.advise(advice, ByteRange::new(span.offset_bytes, end_bytes)) {
            // Beyond the end, or refused by IoMode::Direct without a cache.
            Err(error) if ![ErrorKind::InvalidInput, ErrorKind::Unsupported].contains(&error.kind()) => {
                Err(error.to_string())
            }
            _ => Ok(()),
        }
    }

    fn press(&self, length: usize) -> Outcome {
        let path = self.path.with_extension("pressure");
        if !path.exists() {
            Pattern::new(0).write_file(&path, PRESSURE_BYTES).map_err(text)?;
        }
        let file =
            OpenOptions::new().engine(&self.rig.engine).caching(Caching::On).open(path).map_err(text)?;
        let mut buffer = vec![0; 100_000];
        for offset_bytes in (0..length as u64).step_by(buffer.len()) {
            file.read_exact_at(&mut buffer, offset_bytes).map_err(text)?;
            if Pattern::new(0).mismatch(offset_bytes, &buffer).is_some() {
                return Err(format!("another file has wrong bytes from {offset_bytes}"));
            }
        }
        Ok(())
    }

    fn compare(&mut self, place: Place) -> Outcome {
        self.sync(place, Way::Blocking)?;
        self.model.check_synced(&fs::read(&self.path).map_err(text)?)
    }
}

impl Keepsake {
    fn check(&self, offset_bytes: u64, expected: &[u8]) -> Outcome {
        match self {
            Keepsake::View(view) => same("view kept", offset_bytes, expected, &view.to_vec()),
            Keepsake::Bytes(bytes) => same("bytes kept", offset_bytes, expected, bytes),
        }
    }
}

fn check_kept(kept: &[(Keepsake, u64, Vec<u8>)]) -> Outcome {
    kept.iter().try_for_each(|(keepsake, offset_bytes, expected)| keepsake.check(*offset_bytes, expected))
}

fn peek(path: &Path, model: &Model) -> Outcome {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && model.len() == 0 => Ok(()),
        disk => model.check_unsynced(&disk.map_err(text)?),
    }
}

/// Each byte is that of one of the versions, or zero where the file was shorter meanwhile; as is the length.
fn check_versions(span: Span, versions: &[Vec<u8>], found: &[u8]) -> Outcome {
    let (least, most) = (versions.iter().map(Vec::len).min(), versions.iter().map(Vec::len).max());
    if Some(found.len()) < least || Some(found.len()) > most {
        return Err(format!("{} bytes at {span:?}, where {least:?} to {most:?} can be", found.len()));
    }
    if versions.iter().any(|version| version == found) {
        return Ok(());
    }
    for (index, byte) in found.iter().enumerate() {
        let may_be = |version: &Vec<u8>| *byte == version.get(index).copied().unwrap_or(0);
        if !versions.iter().any(may_be) {
            let at = span.offset_bytes + index as u64;
            return Err(format!(
                "byte {at} is {byte:#04x}, which it never was during the operation at {span:?}"
            ));
        }
    }
    Ok(())
}

/// What it gives if it is done when it is first polled.
fn poll_and_drop<T>(future: impl Future<Output = headwater::Result<T>>) -> Outcome<Option<T>> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.map(Some).map_err(text),
        Poll::Pending => Ok(None),
    }
}

fn contents(length: usize, fill: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Pattern::new(fill).fill(0, &mut bytes);
    bytes
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

const UNDER_WAY_MAX: usize = 4;
const KEPT_MAX: usize = 16;

/// Of the other file: some more than is read of it.
const PRESSURE_BYTES: u64 = 7 << 20;
