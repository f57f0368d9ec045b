//! Changing: files that shrink, grow and are replaced while they are read.
//!
//! Every byte delivered is the pattern's byte of its position, or zero where a hole was made; then a clean end.
//!
//! Owns: changes by others than the reader, through the ordinary interface of the kernel.
//! Does not own: errors of the device (see `faults`).

use std::io::{BufRead, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use futures_util::io::AsyncReadExt;
use futures_util::{AsyncRead, StreamExt};
use headwater::IoMode;
use headwater_testkit::{Rng, on_each, with_seed};

use crate::rig::{Rig, Scratch, block_on, drivers, rigs, watched};

/// Goal: a file truncated while prefetch is in flight ends cleanly at its new end. Method: read some, truncate at random, read on.
#[test]
fn truncated_while_read() {
    with_seed("changing::truncated_while_read", |seed| {
        let mut rng = Rng::new(seed);
        for rig in rigs(seed) {
            for mode in [IoMode::Auto, IoMode::Buffered] {
                for _ in 0..8 {
                    truncate_once(&rig, mode, &mut rng);
                }
            }
            rig.assert_idle();
        }
    });
}

fn truncate_once(rig: &Rig, mode: IoMode, rng: &mut Rng) {
    let scratch = Scratch::new(rng.next_u64(), 3_000_000);
    let file = rig.open(&scratch.path(), mode);
    let (mut reader, mut stream) = (file.reader(), file.stream());
    let mut front = vec![0; rng.below(1_500_000) as usize];
    reader.read_exact(&mut front).unwrap();
    scratch.check(0, &front);
    let first = block_on(stream.next()).unwrap().unwrap();
    let length_bytes = if rng.chance(1, 4) { 0 } else { rng.below(3_000_000) };
    scratch.file().set_len(length_bytes).unwrap();
    // What was already ahead may show old bytes, never others.
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    scratch.check(front.len() as u64, &rest);
    let end_bytes = (front.len() + rest.len()) as u64;
    assert!(end_bytes >= length_bytes, "ended at {end_bytes} of {length_bytes}");
    let mut streamed_bytes = first.len() as u64;
    while let Some(bytes) = block_on(stream.next()) {
        let bytes = bytes.unwrap();
        scratch.check(streamed_bytes, &bytes);
        streamed_bytes += bytes.len() as u64;
    }
    assert!(streamed_bytes >= length_bytes, "ended at {streamed_bytes} of {length_bytes}");
    // A reader that comes anew sees the new length to the byte.
    let mut fresh = Vec::new();
    file.reader().read_to_end(&mut fresh).unwrap();
    assert_eq!(fresh.len() as u64, length_bytes);
    regrow(&scratch, &mut reader, end_bytes);
}

/// The reader that came to the end goes on when the file has grown again.
fn regrow(scratch: &Scratch, reader: &mut headwater::Reader, end_bytes: u64) {
    scratch.pattern.write_file(scratch.path(), scratch.length_bytes).unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    scratch.check_all(end_bytes, usize::MAX, &rest);
}

/// Goal: a read of a task that gave up another read long ago sees what others have changed since then. Method: a poll that waits, a change, and
/// a second.
#[test]
fn changed_since_a_read_that_was_given_up() {
    for rig in rigs(1) {
        let scratch = Scratch::new(1, 100_000);
        let file = rig.open(&scratch.path(), IoMode::Auto);
        let (mut reader, mut buffer) = (file.async_reader(), [0; 1000]);
        let context = &mut Context::from_waker(Waker::noop());
        if Pin::new(&mut reader).poll_read(context, &mut buffer).is_ready() {
            continue;
        }
        thread::sleep(Duration::from_millis(1100));
        std::fs::write(scratch.path(), [7; 200_000]).unwrap();
        thread::sleep(Duration::from_millis(30));
        let mut found = Vec::new();
        block_on(reader.read_to_end(&mut found)).unwrap();
        assert!(found == [7; 200_000], "{} bytes, the first {:?}", found.len(), found.first());
        drop((reader, file));
        rig.assert_idle();
    }
}

/// Goal: a reader at the end of a log goes on with what is appended, also within the last page. Method: append random
/// lengths, read to the end each time, blocking and async.
#[test]
fn appended_while_followed() {
    with_seed("changing::appended_while_followed", |seed| {
        let mut rng = Rng::new(seed);
        for (kind, directory, driver) in on_each(drivers(seed)) {
            let (mut scratch, rig) = (Scratch::on(directory, seed, 0), Rig::new(driver));
            eprintln!("{} on {kind}", rig.name());
            for mode in [IoMode::Auto, IoMode::Buffered] {
                scratch.file().set_len(0).unwrap();
                follow(&rig, mode, &mut scratch, &mut rng);
            }
            rig.assert_idle();
        }
    });
}

fn follow(rig: &Rig, mode: IoMode, scratch: &mut Scratch, rng: &mut Rng) {
    let file = rig.open(&scratch.path(), mode);
    let (mut reader, mut async_reader) = (file.reader(), file.async_reader());
    let (mut position_bytes, ordinary) = (0, scratch.file());
    for _ in 0..25 {
        let limit = [10, 3000, 10_000, 400_000][rng.below(4) as usize];
        let mut appended = vec![0; rng.below(limit) as usize];
        scratch.pattern.fill(position_bytes, &mut appended);
        ordinary.write_all_at(&appended, position_bytes).unwrap();
        scratch.length_bytes = position_bytes + appended.len() as u64;
        let (mut read, mut async_read) = (Vec::new(), Vec::new());
        reader.read_to_end(&mut read).unwrap();
        scratch.check_all(position_bytes, usize::MAX, &read);
        block_on(futures_util::io::AsyncReadExt::read_to_end(&mut async_reader, &mut async_read)).unwrap();
        assert_eq!(read, async_read);
        position_bytes = scratch.length_bytes;
    }
}

/// Goal: no garbage and no hang while another thread truncates and regrows the file all the time. Method: the writer always
/// restores the pattern, so a byte is the pattern's or, for a moment after growth by a hole, zero.
#[test]
fn truncated_and_regrown_by_another_thread() {
    with_seed("changing::truncated_and_regrown_by_another_thread", |seed| {
        for rig in rigs(seed) {
            let scratch = Scratch::new(seed, 1_500_000);
            let done = AtomicBool::new(false);
            watched(rig.name(), || {
                thread::scope(|scope| {
                    scope.spawn(|| disturb(&scratch, &done, seed));
                    read_disturbed(&rig, &scratch, seed);
                    done.store(true, Ordering::Relaxed);
                });
            });
            rig.assert_idle();
        }
    });
}

fn disturb(scratch: &Scratch, done: &AtomicBool, seed: u64) {
    let (file, mut rng) = (scratch.file(), Rng::new(seed));
    let mut data = vec![0; scratch.length_bytes as usize];
    scratch.pattern.fill(0, &mut data);
    while !done.load(Ordering::Relaxed) {
        let end = rng.below(scratch.length_bytes);
        file.set_len(end).unwrap();
        file.write_all_at(&data[end as usize..], end).unwrap();
    }
}

fn read_disturbed(rig: &Rig, scratch: &Scratch, seed: u64) {
    let mut rng = Rng::new(seed ^ 1);
    for round in 0..24 {
        let file = rig.open(&scratch.path(), [IoMode::Auto, IoMode::Buffered][round % 2]);
        let mut reader = file.reader();
        reader.seek(SeekFrom::Start(rng.below(scratch.length_bytes))).unwrap();
        for _ in 0..40 {
            let position_bytes = reader.stream_position().unwrap();
            let chunk = reader.fill_buf().unwrap();
            scratch.check_or_zero(position_bytes, chunk);
            let length = chunk.len();
            reader.consume(length);
        }
        let (offset_bytes, length) = (rng.below(scratch.length_bytes), rng.below(400_000) as usize);
        let mut buffer = vec![0; length];
        let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
        scratch.check_or_zero(offset_bytes, &buffer[..read_bytes]);
        let bytes = block_on(file.read_at_async(offset_bytes, length)).unwrap();
        scratch.check_or_zero(offset_bytes, &bytes);
    }
}

/// Goal: a file replaced by rename stays the one that was opened.
#[test]
fn replaced_while_read() {
    for rig in rigs(0) {
        let scratch = Scratch::new(5, 1_000_000);
        let file = rig.open(&scratch.path(), IoMode::Auto);
        let (mut reader, mut front) = (file.reader(), vec![0; 10_000]);
        reader.read_exact(&mut front).unwrap();
        let other = scratch.path().with_extension("new");
        std::fs::write(&other, vec![0xEE; 500_000]).unwrap();
        std::fs::rename(&other, scratch.path()).unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        scratch.check_all(10_000, usize::MAX, &rest);
        drop(reader);
        rig.assert_idle();
    }
}
