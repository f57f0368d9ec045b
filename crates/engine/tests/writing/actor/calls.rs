//! Calls: appends, durable or not, alone or together with other programs, and calls with several buffers.
//!
//! Owns: what each of them promises beside the bytes.
//! Does not own: reads and writes with one buffer (actor).

use std::fs;
use std::io::{IoSlice, IoSliceMut};

use headwater::{File, OpenOptions};
use headwater_testkit::block_on;

use super::{Actor, contents, poll_and_drop, text};
use crate::model::{Outcome, same};
use crate::operations::{Durability, Place, Span, Way};

impl Actor<'_> {
    pub(super) fn append(
        &mut self,
        place: Place,
        way: Way,
        durability: Durability,
        length: usize,
        fill: u64,
    ) -> Outcome {
        let file = self.handle(place)?;
        self.append_by(&file, way, durability, contents(length, fill))
    }

    pub(super) fn append_abandoned(&mut self, place: Place, length: usize, fill: u64) -> Outcome {
        let (file, bytes) = (self.handle(place)?, contents(length, fill));
        let span = Span { offset_bytes: self.model.len(), length };
        match poll_and_drop(file.append_async(bytes.clone()))? {
            Some(at) if at == span.offset_bytes => {
                self.model.write(at, &bytes);
                self.check_length(&file)
            }
            Some(at) => Err(format!("appended at {at:?}, not {}", span.offset_bytes)),
            None => self.settle(&file, span, &bytes),
        }
    }

    /// By a handle that appends together with other programs.
    pub(super) fn append_shared(
        &mut self,
        way: Way,
        durability: Durability,
        length: usize,
        fill: u64,
    ) -> Outcome {
        let mut options = OpenOptions::new();
        options.engine(&self.rig.engine).append(true).create(true);
        let log = options.open(&self.path).map_err(text)?;
        self.append_by(&log, way, durability, contents(length, fill))
    }

    fn append_by(&mut self, file: &File, way: Way, durability: Durability, bytes: Vec<u8>) -> Outcome {
        let at = match (way, durability) {
            (Way::Blocking, Durability::None) => file.append(&bytes),
            (Way::Blocking, Durability::Durable) => file.append_durable(&bytes),
            (Way::Async, Durability::None) => block_on(file.append_async(bytes.clone())),
            (Way::Async, Durability::Durable) => block_on(file.append_durable_async(bytes.clone())),
        };
        let (at, expected) = (at.map_err(text)?, self.model.len());
        self.model.write(at, &bytes);
        if at != expected {
            return Err(format!("appended at {at}, not {expected}"));
        }
        self.check_length(file)?;
        if durability == Durability::Durable {
            self.model.sync();
            let disk = fs::read(&self.path).map_err(text)?;
            let found = disk.get(at as usize..).unwrap_or_default();
            same("on disk after a durable append", at, &bytes, found)?;
        }
        Ok(())
    }

    /// Four buffers, of which one is empty.
    pub(super) fn write_vectored(&mut self, place: Place, span: Span, fill: u64) -> Outcome {
        let (file, bytes) = (self.handle(place)?, contents(span.length, fill));
        let (first, rest) = bytes.split_at(span.length / 3);
        let buffers = [first, &[], &rest[..rest.len() / 2], &rest[rest.len() / 2..]].map(IoSlice::new);
        let written = file.write_vectored_at(&buffers, span.offset_bytes).map_err(text)?;
        self.model.write(span.offset_bytes, &bytes[..written.min(bytes.len())]);
        if written > bytes.len() || (written == 0 && !bytes.is_empty()) {
            return Err(format!("write_vectored_at wrote {written} of {} bytes", bytes.len()));
        }
        self.check_length(&file)
    }

    /// As many.
    pub(super) fn read_vectored(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let mut bytes = vec![0; span.length];
        let (first, rest) = bytes.split_at_mut(span.length / 3);
        let (second, third) = rest.split_at_mut(rest.len() / 2);
        let mut buffers = [first, &mut [], second, third].map(IoSliceMut::new);
        let read = file.read_vectored_at(&mut buffers, span.offset_bytes).map_err(text)?;
        let expected = self.model.slice(span.offset_bytes, span.length);
        same("read_vectored_at", span.offset_bytes, expected, &bytes[..read])
    }
}
