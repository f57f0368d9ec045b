//! Cursors: readers and a writer, which go on where they are.
//!
//! Owns: where each is, and what it must find or leave there.
//! Does not own: calls with a position (actor).

use std::io::{Read, Result, Seek, SeekFrom, Write};
use std::pin::Pin;
use std::task::Context;

use futures_io::{AsyncRead, AsyncSeek};
use headwater::{AsyncReader, Reader};
use headwater_fuzz::guarded::Side;

use super::{Actor, DISK_BYTES_MAX, FILL, OFFSET_BYTES_MAX, block_on, check_error, fits};
use crate::steps::{Step, Target, Way};

pub(super) enum Cursor {
    Blocking(Box<Reader>),
    Async(Box<AsyncReader>),
}

impl Actor {
    pub(super) fn perform_on_cursor(&mut self, step: &Step) {
        match *step {
            Step::Reader(on, way) => {
                let cursor = match way {
                    Way::Blocking => Cursor::Blocking(Box::new(self.file(on).reader())),
                    Way::Async => Cursor::Async(Box::new(self.file(on).async_reader())),
                };
                self.readers.truncate(READERS_MAX - 1);
                self.readers.push((cursor, 0));
            }
            Step::Seek(which, target) => {
                let count = self.readers.len().max(1);
                let Some((cursor, position)) = self.readers.get_mut(usize::from(which) % count) else {
                    return;
                };
                let expected = expected(target, *position, self.model.length_bytes);
                let found = match cursor {
                    Cursor::Blocking(reader) => reader.seek(whence(target)),
                    Cursor::Async(reader) => {
                        let poll = |context: &mut Context<'_>| {
                            Pin::new(&mut **reader).poll_seek(context, whence(target))
                        };
                        block_on(std::future::poll_fn(poll))
                    }
                };
                *position = check_seek(found, expected).unwrap_or(*position);
            }
            Step::ReadOn(which, length, side) => self.read_on(which, usize::from(length), side),
            Step::Stream(on) => self.stream(on),
            Step::SeekWriter(on, target) => {
                let writer = self.handles[usize::from(on) % self.handles.len()].writer();
                let (writer, position) = self.writer.get_or_insert((writer, 0));
                let expected = expected(target, *position, self.model.length_bytes);
                *position = check_seek(writer.seek(whence(target)), expected).unwrap_or(*position);
            }
            Step::WriteOn(on, length) => self.write_on(on, usize::from(length)),
            _ => unreachable!("it is no step of a cursor"),
        }
    }

    fn read_on(&mut self, which: u8, length: usize, side: Side) {
        let count = self.readers.len().max(1);
        let Some((cursor, position)) = self.readers.get_mut(usize::from(which) % count) else { return };
        let buffer = self.guarded.buffer(length, side, FILL);
        let read = match cursor {
            Cursor::Blocking(reader) => reader.read(buffer),
            Cursor::Async(reader) => {
                let poll = |context: &mut Context<'_>| Pin::new(&mut **reader).poll_read(context, buffer);
                block_on(std::future::poll_fn(poll))
            }
        };
        let read = read.expect("the device has not failed");
        let expected = self.model.read(*position, buffer.len());
        assert!(read > 0 || expected.is_empty(), "{} bytes at {position} are there", expected.len());
        assert!(buffer[..read] == expected[..read], "{read} bytes at {position}");
        *position += read as u64;
    }

    /// The first items: a sparse file goes on for ages.
    fn stream(&mut self, on: u8) {
        let mut stream = self.file(on).async_reader();
        let mut position = 0;
        for _ in 0..3 {
            let mut chunk = vec![0; 5000];
            let poll = |context: &mut Context<'_>| Pin::new(&mut stream).poll_read(context, &mut chunk);
            let read = block_on(std::future::poll_fn(poll)).expect("the device has not failed");
            assert!(chunk[..read] == self.model.read(position, read), "{read} bytes at {position}");
            position += read as u64;
        }
    }

    fn write_on(&mut self, on: u8, length: usize) {
        let writer = self.handles[usize::from(on) % self.handles.len()].writer();
        let (writer, position) = self.writer.get_or_insert((writer, 0));
        if self.offset_bytes_max == DISK_BYTES_MAX && *position > DISK_BYTES_MAX {
            return;
        }
        let bytes = vec![self.fill; length];
        match writer.write(&bytes) {
            Ok(written) => {
                self.model.write(*position, &bytes[..written]);
                *position += written as u64;
            }
            Err(error) => check_error(error, !fits(*position, length)),
        }
    }
}

fn check_seek(found: Result<u64>, expected: Option<u64>) -> Option<u64> {
    assert_eq!(found.as_ref().ok(), expected.as_ref());
    if let Err(error) = found {
        check_error(error, true);
    }
    expected
}

fn expected(target: Target, position: u64, length: u64) -> Option<u64> {
    let place = match whence(target) {
        SeekFrom::Start(offset) => Some(offset),
        SeekFrom::Current(delta) => position.checked_add_signed(delta),
        SeekFrom::End(delta) => length.checked_add_signed(delta),
    };
    place.filter(|&place| place <= OFFSET_BYTES_MAX)
}

fn whence(target: Target) -> SeekFrom {
    match target {
        Target::Start(number) => SeekFrom::Start(number.get()),
        Target::Current(number) => SeekFrom::Current(number.get() as i64),
        Target::End(number) => SeekFrom::End(number.get() as i64),
    }
}

const READERS_MAX: usize = 3;
