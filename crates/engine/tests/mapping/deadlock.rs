//! Deadlock: a file is written from its own pages, in both directions at once, in memory that holds neither.
//!
//! ```text
//!   A ─(view, peek, bytes, reads, reader, task's reader, stream, map, window, on demand)─► (write, vectored, task, writer, map, window) ─► B
//!   A ─(copy_range_to, by a thread and by a task)─► B
//!   B ────────────────────────────────────────────────────────────────────────► A      at the same time
//!   the rest of the file ─► read, so that each page has to evict another
//! ```
//!
//! A write system call of a mapping of the same file can wait for a page that it has locked itself; UBC's paper names this. Here every
//! form of source meets every form of target.
//!
//! Owns: the combinations, that they end, the bytes afterwards.
//! Does not own: each form by itself (the other modules), the notice that nothing goes on (testkit).

use std::io::{BufRead, IoSlice, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use futures_util::{AsyncBufReadExt, AsyncWriteExt, StreamExt};
use headwater::{ByteRange, Caching, File, IoMode, ManyRead, SharedView};
use headwater_testkit::{Rng, block_on};

use crate::contiguous::window;
use crate::rig::{Rig, Scratch, drivers, watched};
use crate::{on_demand, open};

/// In what form the bytes to write are lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    /// Pinned pages, piece by piece.
    View,
    /// One pinned page at a time.
    Peek,
    /// Pinned pages, by a buffer that owns them.
    Bytes,
    /// Several reads in one call.
    ReadMany,
    /// The frames of a stream.
    Reader,
    /// The same, for a task.
    AsyncReader,
    /// The frames of a stream, each by a buffer that owns it.
    Stream,
    /// A live view.
    Map,
    /// Memory that stands for a part of the file.
    Window,
    /// Memory whose pages come when a call needs them.
    OnDemand,
    /// Memory whose pages come when they are touched.
    Cells,
}

/// How they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    WriteAt,
    /// In two pieces.
    Vectored,
    Task,
    Writer,
    /// Of a task.
    AsyncWriter,
    Map,
    Window,
}

/// What a thread does again and again.
#[derive(Clone, Copy, Debug)]
enum Form {
    Through(From, To),
    /// `copy_range_to`.
    CopyRange,
    /// The same, by a task.
    CopyRangeAsync,
}

impl Form {
    fn is_on_demand(self) -> bool {
        matches!(self, Form::Through(From::OnDemand | From::Cells, _))
    }
}

const FROM: [From; 11] = [
    From::View,
    From::Peek,
    From::Bytes,
    From::ReadMany,
    From::Reader,
    From::AsyncReader,
    From::Stream,
    From::Map,
    From::Window,
    From::OnDemand,
    From::Cells,
];

const TO: [To; 7] = [To::WriteAt, To::Vectored, To::Task, To::Writer, To::AsyncWriter, To::Map, To::Window];

/// Goal: each combination ends, every byte of both parts is one that was there before in either, at its place, and the file has what
/// is read. Method: two threads copy against each other, a third keeps the memory full.
#[test]
fn a_file_is_written_from_itself() {
    let pairs = FROM.into_iter().flat_map(|from| TO.map(|to| Form::Through(from, to)));
    for form in pairs.chain([Form::CopyRange, Form::CopyRangeAsync]) {
        // Windows take memory that is not in use yet.
        for driver in drivers(7) {
            let on_demand_bytes = if form.is_on_demand() { 2 * ON_DEMAND_BYTES } else { 0 };
            let rig = Rig::sized(driver, MEMORY_BYTES + on_demand_bytes, 16);
            let what = format!("{form:?} on {}", rig.name());
            watched(&what, || copy_both_ways(&rig, form, &what));
            rig.assert_idle();
        }
    }
}

fn copy_both_ways(rig: &Rig, form: Form, what: &str) {
    let scratch = Scratch::new(7, LENGTH_BYTES);
    let file = open(rig, &scratch.path(), IoMode::Auto, Caching::On);
    let needs_windows = matches!(form, Form::Through(From::Window, _) | Form::Through(_, To::Window));
    let windows =
        PARTS.map(|start| needs_windows.then(|| window(&file, start, start + PART_BYTES)).flatten());
    if needs_windows && windows.iter().any(Option::is_none) {
        return;
    }
    let on_demand = PARTS.map(|start| {
        form.is_on_demand().then(|| on_demand::window(&file, start..start + PART_BYTES)).flatten()
    });
    if form.is_on_demand() && on_demand.iter().any(Option::is_none) {
        return;
    }
    let (copies, over) = ([(0, 1), (1, 0)], AtomicBool::new(false));
    thread::scope(|scope| {
        let pressure = scope.spawn(|| read_the_rest(&file, &over));
        let copying = copies.map(|(source, target)| {
            let part = |index: usize| Part {
                file: &file,
                start: PARTS[index],
                window: windows[index].as_ref(),
                on_demand: on_demand[index].as_ref(),
            };
            let (source, target) = (part(source), part(target));
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    match form {
                        Form::Through(from, to) => source.copy(from, &target, to),
                        Form::CopyRange => assert_eq!(source.copy_range(&target), PART_BYTES),
                        Form::CopyRangeAsync => assert_eq!(source.copy_range_async(&target), PART_BYTES),
                    }
                }
            })
        });
        copying.into_iter().for_each(|thread| thread.join().unwrap());
        over.store(true, Ordering::Relaxed);
        pressure.join().unwrap();
    });
    windows.iter().flatten().for_each(|window| window.sync().unwrap());
    file.sync_data().unwrap();
    let read = |start: u64| {
        let mut bytes = vec![0; PART_BYTES as usize];
        file.read_exact_at(&mut bytes, start).unwrap();
        bytes
    };
    let (parts, disk) = (PARTS.map(read), std::fs::read(scratch.path()).unwrap());
    for (start, bytes) in PARTS.into_iter().zip(&parts) {
        assert!(disk[start as usize..][..PART_BYTES as usize] == bytes[..], "{what}: the disk differs");
        let strange = bytes
            .iter()
            .zip(0..)
            .position(|(&byte, at)| PARTS.iter().all(|&part| scratch.pattern.byte(part + at) != byte));
        assert_eq!(strange, None, "{what}: a byte of neither part");
    }
    drop((windows, on_demand, file));
}

/// Writes the next bytes.
type Sink<'a> = Box<dyn FnMut(&[u8]) + 'a>;

/// A part of the file, and its windows if there are any.
struct Part<'a> {
    file: &'a File,
    start: u64,
    window: Option<&'a SharedView>,
    on_demand: Option<&'a SharedView>,
}

impl Part<'_> {
    fn copy(&self, from: From, target: &Part<'_>, to: To) {
        let sink = &mut target.sink(to);
        match from {
            From::View | From::Bytes => {
                for at in (0..PART_BYTES).step_by(PIECE_BYTES) {
                    let view = self.file.view(self.start + at, PIECE_BYTES).unwrap();
                    match from {
                        From::Bytes => view.into_chunks().into_iter().for_each(|chunk| sink(&chunk)),
                        _ => view.chunks().for_each(&mut *sink),
                    }
                }
            }
            From::Peek => {
                let mut at = self.start;
                while at < self.start + PART_BYTES {
                    let page = self.file.peek(at).unwrap();
                    let taken = page.len().min((self.start + PART_BYTES - at) as usize);
                    sink(&page[..taken]);
                    at += taken as u64;
                }
            }
            From::ReadMany => {
                let mut pieces = [(); 4].map(|()| vec![0; PIECE_BYTES]);
                for at in (0..PART_BYTES).step_by(pieces.len() * PIECE_BYTES) {
                    let places = (self.start + at..self.start + PART_BYTES).step_by(PIECE_BYTES);
                    let mut reads: Vec<_> = pieces
                        .iter_mut()
                        .zip(places)
                        .map(|(piece, place)| ManyRead::new(place, piece))
                        .collect();
                    self.file.read_many(&mut reads).unwrap();
                    let read = reads.len();
                    pieces[..read].iter().for_each(|piece| sink(piece));
                }
            }
            From::Reader | From::AsyncReader | From::Stream => self.copy_in_order(from, sink),
            From::Map => Part::read_all(&self.map(), sink),
            From::Window => Part::read_all(self.window.expect("there are windows"), sink),
            From::Cells => {
                let cells = self.on_demand.expect("there are windows").as_cells().expect("of bytes");
                for piece in cells.chunks(PIECE_BYTES) {
                    let bytes: Vec<u8> = piece.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
                    sink(&bytes);
                }
            }
            From::OnDemand => Part::read_all(self.on_demand.expect("there are windows"), sink),
        }
    }

    fn copy_in_order(&self, from: From, sink: &mut dyn FnMut(&[u8])) {
        let mut left = PART_BYTES as usize;
        let mut take = |lent: &[u8]| {
            let taken = lent.len().min(left);
            sink(&lent[..taken]);
            left -= taken;
            (taken, left > 0)
        };
        match from {
            From::Reader => {
                let mut reader = self.file.reader();
                reader.seek(SeekFrom::Start(self.start)).unwrap();
                let mut goes_on = true;
                while goes_on {
                    let taken;
                    (taken, goes_on) = take(reader.fill_buf().unwrap());
                    reader.consume(taken);
                }
            }
            From::AsyncReader => block_on(async {
                let mut reader = self.file.async_reader().starting_at(self.start);
                let mut goes_on = true;
                while goes_on {
                    let taken;
                    (taken, goes_on) = take(AsyncBufReadExt::fill_buf(&mut reader).await.unwrap());
                    reader.consume_unpin(taken);
                }
            }),
            _ => block_on(async {
                let mut stream = self.file.async_reader().starting_at(self.start).into_stream();
                while take(&stream.next().await.expect("the file goes on").unwrap()).1 {}
            }),
        }
    }

    fn copy_range(&self, target: &Part<'_>) -> u64 {
        self.file.copy_range_to(self.start..self.start + PART_BYTES, target.file, target.start).unwrap()
    }

    fn copy_range_async(&self, target: &Part<'_>) -> u64 {
        let range = self.start..self.start + PART_BYTES;
        block_on(self.file.copy_range_to_async(range, target.file, target.start)).unwrap()
    }

    fn read_all(view: &SharedView, sink: &mut dyn FnMut(&[u8])) {
        let mut buffer = vec![0; PIECE_BYTES];
        for at in (0..PART_BYTES).step_by(PIECE_BYTES) {
            view.read(at, &mut buffer).unwrap();
            sink(&buffer);
        }
    }

    fn map(&self) -> SharedView {
        self.file.map(ByteRange::at(self.start, PART_BYTES)).unwrap()
    }

    /// Takes the bytes in order.
    fn sink(&self, to: To) -> Sink<'_> {
        let mut at = 0;
        let mut next = move |bytes: &[u8]| {
            at += bytes.len() as u64;
            at - bytes.len() as u64
        };
        let (file, start) = (self.file, self.start);
        match to {
            To::WriteAt => Box::new(move |bytes| file.write_all_at(bytes, start + next(bytes)).unwrap()),
            To::Task => Box::new(move |bytes| {
                block_on(file.write_all_at_async(bytes.to_vec(), start + next(bytes))).unwrap();
            }),
            To::Vectored => Box::new(move |bytes| {
                let (mut place, (one, other)) = (start + next(bytes), bytes.split_at(bytes.len() / 3));
                let mut pieces = &mut [one, other].map(IoSlice::new)[..];
                while !pieces.is_empty() {
                    let written = file.write_vectored_at(pieces, place).unwrap();
                    place += written as u64;
                    IoSlice::advance_slices(&mut pieces, written);
                }
            }),
            To::Writer => {
                let mut writer = file.writer().starting_at(start);
                Box::new(move |bytes| writer.write_all(bytes).unwrap())
            }
            To::AsyncWriter => {
                let mut writer = file.async_writer().starting_at(start);
                Box::new(move |bytes| {
                    block_on(async {
                        writer.write_all(bytes).await.unwrap();
                        writer.flush().await.unwrap();
                    });
                })
            }
            To::Map => {
                let map = self.map();
                Box::new(move |bytes| map.write(next(bytes), bytes).unwrap())
            }
            To::Window => {
                let window = self.window.expect("there are windows");
                Box::new(move |bytes| window.write(next(bytes), bytes).unwrap())
            }
        }
    }
}

fn read_the_rest(file: &File, over: &AtomicBool) {
    let (mut rng, mut buffer) = (Rng::new(7), vec![0; PIECE_BYTES]);
    while !over.load(Ordering::Relaxed) {
        let at = REST_BYTES + rng.below(LENGTH_BYTES - REST_BYTES - PIECE_BYTES as u64);
        file.read_exact_at(&mut buffer, at).unwrap();
    }
}

/// Much less than what is read meanwhile. Two windows take up to half of it, of which the cache then has nothing.
const MEMORY_BYTES: u64 = 10 << 20;

/// What a window on demand takes for its pages, and what keeps track of them.
const ON_DEMAND_BYTES: u64 = 2 << 20;

const LENGTH_BYTES: u64 = 24 << 20;

/// Where the parts begin; neither at the beginning of a MiB.
const PARTS: [u64; 2] = [4096, (3 << 20) + 4096];

const PART_BYTES: u64 = 768 << 10;

/// Behind both.
const REST_BYTES: u64 = 5 << 20;

/// Not a divisor of what is written at once.
const PIECE_BYTES: usize = 128 << 10;

const ROUNDS: usize = 2;
