//! Reads: those that block, into buffers of the caller.
//!
//! Owns: what they must leave alone, which errors they may have.
//! Does not own: what bytes are possible (versions).

use std::io::{IoSliceMut, Read};

use headwater::ManyRead;

use super::{Outcome, World};
use crate::coverage::Reached;
use crate::steps::{EIO, Place, Span};

impl World {
    pub(super) fn read_now(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let mut bytes = vec![CANARY; span.length + CANARIES];
        let read = file.read_at(&mut bytes[..span.length], span.offset_bytes);
        if bytes[span.length..] != [CANARY; CANARIES] {
            return Err("a read wrote beyond its buffer".to_owned());
        }
        self.check_read(place.file, span, &read, &bytes)
    }

    pub(super) fn read_many_now(&mut self, place: Place, span: Span) -> Outcome {
        let (file, half) = (self.handle(place)?, span.length / 2);
        let (mut first, mut second) = (vec![0; half], vec![0; span.length - half]);
        let rest = Span { offset_bytes: span.offset_bytes + half as u64, length: span.length - half };
        let mut reads =
            [ManyRead::new(rest.offset_bytes, &mut second), ManyRead::new(span.offset_bytes, &mut first)];
        let done = file.read_many(&mut reads);
        let counts = [reads[0].read_bytes, reads[1].read_bytes];
        self.coverage.note_if(done.is_ok(), Reached::ManyRead);
        let read = |count| done.as_ref().map(|()| count).map_err(|_| EIO);
        let results = [read(counts[0]), read(counts[1])];
        if done.is_err() && !self.is_faulty {
            return Err(format!("without a fault: {done:?}"));
        }
        self.check_read_bytes(place.file, rest, results[0], &second)?;
        self.check_read_bytes(place.file, Span { length: half, ..span }, results[1], &first)
    }

    pub(super) fn read_vectored_now(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let mut bytes = vec![0; span.length];
        let (first, rest) = bytes.split_at_mut(span.length / 3);
        let (second, third) = rest.split_at_mut(rest.len() / 2);
        let read = file
            .read_vectored_at(&mut [first, &mut [], second, third].map(IoSliceMut::new), span.offset_bytes);
        self.coverage.note_if(read.as_ref().is_ok_and(|&count| count > 0), Reached::ReadVectored);
        self.check_read(place.file, span, &read, &bytes)
    }

    pub(super) fn read_in_order_now(&mut self, place: Place, span: Span) -> Outcome {
        let reader = self.handle(place)?.reader().starting_at(span.offset_bytes);
        let mut bytes = Vec::new();
        match reader.take(span.length as u64).read_to_end(&mut bytes) {
            Ok(count) => self.check_read_bytes(place.file, span, Ok(count), &bytes),
            Err(error) => self.forgive(self.is_faulty, Reached::ReadFailed, &error),
        }
    }

    fn check_read(
        &mut self,
        file: usize,
        span: Span,
        read: &headwater::Result<usize>,
        bytes: &[u8],
    ) -> Outcome {
        match read {
            Ok(count) => self.check_read_bytes(file, span, Ok(*count), bytes),
            Err(error) => self.forgive(self.is_faulty, Reached::ReadFailed, error),
        }
    }

    fn check_read_bytes(
        &mut self,
        file: usize,
        span: Span,
        read: Result<usize, i32>,
        bytes: &[u8],
    ) -> Outcome {
        let Ok(count) = read else { return Ok(()) };
        let versions = &self.targets[file].versions;
        // A fault may end a read early.
        let length = if self.is_faulty { count } else { span.length };
        versions.check(versions.now(), span.offset_bytes, length, &bytes[..count]).map(drop)
    }
}

/// Bytes behind a buffer, where no read may write. What of the buffer itself lies behind the bytes read is unspecified.
const CANARY: u8 = 0xAA;
const CANARIES: usize = 64;
