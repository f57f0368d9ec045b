//! Overtaken: readers and streams beside writes of the same engine, and of others.
//!
//! ```text
//!   reader: extent at hand ─ extents ahead ─ a request that a poll left ── write, truncate ──► next fill: as the file is now
//! ```
//!
//! Owns: what readers hold when something is written.
//! Does not own: positional reads (oracle).

use std::io::{BufRead, Read, Seek, SeekFrom};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::poll_immediate;
use futures_util::io::{AsyncReadExt, AsyncSeekExt};
use futures_util::{StreamExt, TryStreamExt};
use headwater::{AsyncReader, Caching, File, IoMode, OpenOptions, Reader};
use headwater_testkit::{Rng, ScratchDir, with_seed};

use crate::rig::{Rig, block_on, rigs, watched};

/// Goal: I8: bytes that a poll asked for are not shown once they are overwritten. Method: poll once, write, poll again: an
/// async reader where it is and after a seek, and a stream. Polls that found nothing yet are counted.
#[test]
fn a_poll_that_was_left_shows_nothing_old() {
    on_all("overtaken::a_poll_that_was_left_shows_nothing_old", |rig, path, mode, caching, _| {
        let mut left = [0; 3];
        for round in 1..20 {
            for seeks in [false, true] {
                let file = cold(rig, path, mode, caching);
                let mut reader = file.async_reader();
                let mut buffer = [0; 8192];
                let first = block_on(poll_immediate(reader.read(&mut buffer)));
                left[usize::from(seeks)] += u32::from(first.is_none());
                let new = 2 * round + u8::from(seeks);
                file.write_all_at(&[new; 40_000], 0).unwrap();
                if seeks || first.is_some() {
                    let position = first.map_or(0, |read| read.unwrap() as u64);
                    block_on(reader.seek(SeekFrom::Start(position))).unwrap();
                }
                let read_bytes = block_on(reader.read(&mut buffer)).unwrap();
                assert!(read_bytes > 0, "the end");
                assert!(buffer[..read_bytes].iter().all(|&byte| byte == new), "reader, seeks: {seeks}");
            }
            let file = cold(rig, path, mode, caching);
            let mut stream = pin!(file.stream());
            let first = block_on(poll_immediate(stream.next()));
            left[2] += u32::from(first.is_none());
            file.write_all_at(&[round + 100; 40_000], 0).unwrap();
            let next = block_on(stream.try_next()).unwrap();
            let (skip, next) =
                (first.flatten().map_or(0, |first| first.unwrap().len()), next.unwrap_or_default());
            let is_new = |(at, &byte): (usize, &u8)| skip + at >= 40_000 || byte == round + 100;
            assert!(next.iter().enumerate().all(is_new), "stream");
        }
        // A file system in memory has nothing to wait for.
        if mode == IoMode::Direct && left.contains(&0) {
            headwater_testkit::skip(format!("{}: no poll had to wait, of three kinds {left:?}", rig.name()));
        }
    });
}

/// Goal: I8: a reader that has read a part of an extent shows the rest as it is written meanwhile, and the part too after
/// a seek. Method: ten bytes, a write, a sync or none, the next bytes, back to the start.
#[test]
fn the_rest_of_an_extent_is_as_it_was_written() {
    on_all("overtaken::the_rest_of_an_extent_is_as_it_was_written", |rig, path, mode, caching, _| {
        let file = cold(rig, path, mode, caching);
        let (mut reader, mut tasks) = (file.reader(), file.async_reader());
        for round in 1..20 {
            let mut seen = [0; 10];
            reader.rewind().unwrap();
            reader.read_exact(&mut seen).unwrap();
            block_on(async { tasks.seek(SeekFrom::Start(0)).await.unwrap() });
            block_on(tasks.read_exact(&mut seen)).unwrap();
            file.write_all_at(&[round; 8192], 0).unwrap();
            if round % 3 == 0 {
                file.sync_data().unwrap();
            }
            for _ in 0..2 {
                reader.read_exact(&mut seen).unwrap();
                assert_eq!(seen, [round; 10], "{}", rig.name());
                block_on(tasks.read_exact(&mut seen)).unwrap();
                assert_eq!(seen, [round; 10], "{}", rig.name());
                reader.rewind().unwrap();
                block_on(tasks.seek(SeekFrom::Start(0))).unwrap();
            }
        }
    });
}

/// Goal: I8: a reader that has read a part of an extent shows the rest as it was written, however much has been written elsewhere
/// since. Method: ten bytes, a write, more writes behind it than are remembered, the next bytes.
#[test]
fn many_writes_elsewhere_hide_none() {
    on_all("overtaken::many_writes_elsewhere_hide_none", |rig, path, mode, caching, _| {
        let file = cold(rig, path, mode, caching);
        let (mut reader, mut seen) = (file.reader(), [0; 10]);
        reader.read_exact(&mut seen).unwrap();
        file.write_all_at(&[2; 8192], 0).unwrap();
        file.flush().unwrap();
        for round in 0..WRITES_REMEMBERED {
            file.write_all_at(&[3; 1000], LENGTH + round * 1000).unwrap();
            file.flush().unwrap();
        }
        reader.read_exact(&mut seen).unwrap();
        assert_eq!(seen, [2; 10], "{}", rig.name());
    });
}

/// Goal: whatever is written, truncated and synced between two reads of a reader, an async reader or a stream, each gives the file
/// as it is. Method: random operations against a vector.
#[test]
fn readers_beside_writes() {
    on_all("overtaken::readers_beside_writes", |rig, path, mode, caching, rng| {
        let file = cold(rig, path, mode, caching);
        let mut contents = std::fs::read(path).unwrap();
        let (mut reader, mut tasks) = (file.reader(), file.async_reader());
        let mut stream = Box::pin(file.stream());
        let mut streamed = 0;
        for _ in 0..OPERATIONS {
            match rng.below(12) {
                0..3 => write(&file, &mut contents, rng),
                3 => file.sync_data().unwrap(),
                4 => {
                    let length = rng.below(LENGTH);
                    file.set_len(length).unwrap();
                    contents.resize(length as usize, 0);
                }
                5..8 => read(&mut reader, &contents, rng),
                8..10 => read_async(&mut tasks, &contents, rng),
                _ => match block_on(poll_immediate(stream.next())) {
                    None => {}
                    Some(Some(bytes)) => streamed += check(&contents, streamed, &bytes.unwrap(), "stream"),
                    Some(None) => {
                        assert!(streamed >= contents.len(), "the stream ends at {streamed}");
                        (stream, streamed) = (Box::pin(file.stream()), 0);
                    }
                },
            }
        }
    });
}

/// Goal: a reader that a truncate has left behind the end is at the end, also within a page that is dirty and stays. Method: a
/// reader that knows the old length, a truncate in its page.
#[test]
fn a_reader_behind_a_new_end_ends() {
    on_all("overtaken::a_reader_behind_a_new_end_ends", |rig, path, mode, caching, _| {
        let file = cold(rig, path, mode, caching);
        file.write_all_at(&[2; 10_000], LENGTH).unwrap();
        let mut reader = file.reader();
        reader.seek(SeekFrom::Start(LENGTH + 9000)).unwrap();
        reader.read_exact(&mut [0; 100]).unwrap();
        file.set_len(LENGTH + 8999).unwrap();
        let read_bytes = watched("behind the end", || reader.read(&mut [0; 100]).unwrap());
        assert_eq!(read_bytes, 0, "{}", rig.name());
        file.append(&[3; 200]).unwrap();
        let mut seen = [0; 99];
        reader.read_exact(&mut seen).unwrap();
        assert_eq!(seen, [3; 99]);
    });
}

/// Goal: a reader shows what another program has written, once it is time to look. Method: look each time.
#[test]
fn others_writes_show_in_what_is_at_hand() {
    on_all("overtaken::others_writes_show_in_what_is_at_hand", |rig, path, mode, caching, _| {
        std::fs::write(path, vec![1; LENGTH as usize]).unwrap();
        let mut options = OpenOptions::new();
        let file =
            options.engine(&rig.engine).io(mode).caching(caching).revalidate(Duration::ZERO).open(path);
        let (mut reader, mut seen) = (file.unwrap().reader(), [0; 10]);
        for round in 2..10 {
            reader.read_exact(&mut seen).unwrap();
            std::fs::write(path, vec![round; LENGTH as usize]).unwrap();
            reader.read_exact(&mut seen).unwrap();
            assert_eq!(seen, [round; 10], "{}", rig.name());
        }
    });
}

/// On all drivers, by all routes, with and without the cache.
fn on_all(name: &str, test: impl Fn(&Rig, &Path, IoMode, Caching, &mut Rng)) {
    with_seed(name, |seed| {
        for rig in rigs(seed) {
            for mode in [IoMode::Auto, IoMode::Buffered, IoMode::Direct] {
                for caching in [Caching::On, Caching::Off] {
                    let directory = ScratchDir::on_target().unwrap();
                    let path = directory.path().join("file");
                    std::fs::write(&path, vec![1; LENGTH as usize]).unwrap();
                    let open = OpenOptions::new().engine(&rig.engine).io(mode).open(&path);
                    if open.is_err() && mode == IoMode::Direct {
                        headwater_testkit::skip("no direct I/O here");
                        continue;
                    }
                    test(&rig, &path, mode, caching, &mut Rng::new(seed));
                }
            }
        }
    });
}

/// The file with bytes that neither cache has.
fn cold(rig: &Rig, path: &Path, mode: IoMode, caching: Caching) -> File {
    let file =
        OpenOptions::new().engine(&rig.engine).io(mode).caching(caching).write(true).open(path).unwrap();
    file.sync_all().unwrap();
    headwater_testkit::make_cold(&std::fs::File::open(path).unwrap()).unwrap();
    file
}

fn write(file: &File, contents: &mut Vec<u8>, rng: &mut Rng) {
    let (at, length, byte) =
        (rng.below(LENGTH) as usize, rng.range(1, 40_000) as usize, rng.next_u64() as u8);
    file.write_all_at(&vec![byte; length], at as u64).unwrap();
    contents.resize(contents.len().max(at + length), 0);
    contents[at..at + length].fill(byte);
}

fn read(reader: &mut Reader, contents: &[u8], rng: &mut Rng) {
    if rng.chance(1, 4) {
        reader.seek(SeekFrom::Start(rng.below(LENGTH))).unwrap();
    }
    let at = reader.stream_position().unwrap() as usize;
    if rng.chance(1, 3) {
        let length = check(contents, at, reader.fill_buf().unwrap(), "fill_buf");
        reader.consume(rng.below(length as u64 + 1) as usize);
        return;
    }
    // From 64 KiB on it is filled straight from the kernel's cache.
    let mut buffer = vec![0; rng.range(1, 100_000) as usize];
    let read_bytes = reader.read(&mut buffer).unwrap();
    check(contents, at, &buffer[..read_bytes], "reader");
}

fn read_async(reader: &mut AsyncReader, contents: &[u8], rng: &mut Rng) {
    if rng.chance(1, 4) {
        block_on(reader.seek(SeekFrom::Start(rng.below(LENGTH)))).unwrap();
    }
    let at = block_on(reader.stream_position()).unwrap() as usize;
    let mut buffer = vec![0; rng.range(1, 20_000) as usize];
    let read_bytes = match rng.below(2) {
        0 => block_on(reader.read(&mut buffer)).unwrap(),
        _ => match block_on(poll_immediate(reader.read(&mut buffer))) {
            Some(read_bytes) => read_bytes.unwrap(),
            None => return,
        },
    };
    check(contents, at, &buffer[..read_bytes], "async reader");
}

/// That these are the bytes there. Says how many.
fn check(contents: &[u8], at: usize, seen: &[u8], how: &str) -> usize {
    let there = contents.get(at..).unwrap_or_default();
    assert!(seen.len() <= there.len(), "{how}: {} bytes at {at}, behind the end", seen.len());
    let wrong = seen.iter().zip(there).position(|(seen, there)| seen != there);
    assert_eq!(wrong, None, "{how}: {} bytes at {at}", seen.len());
    assert!(!seen.is_empty() || there.is_empty(), "{how}: nothing at {at} of {}", contents.len());
    seen.len()
}

const LENGTH: u64 = 600_000;

const OPERATIONS: usize = 300;

/// Of which an engine knows where they were, and some more.
const WRITES_REMEMBERED: u64 = 80;
