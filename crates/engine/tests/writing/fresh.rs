//! Fresh: what is written through one interface is read at once through every other, of every handle.
//!
//! Owns: each way of writing with each way of reading, once.
//! Does not own: the order of many operations (oracle).

use std::io::{BufRead, Read, Seek, SeekFrom, Write};
use std::path::Path;

use futures_util::StreamExt;
use futures_util::io::AsyncReadExt;
use headwater::{Caching, File, IoMode, ManyRead, OpenOptions};

use crate::model::same;
use crate::rig::{Rig, Scratch, block_on, rigs, watched};
use crate::threads::open;

type WriteAt = fn(&File, u64, &[u8]);
type ReadAll = fn(&File) -> Vec<u8>;

/// Goal: among cached handles nothing stale is ever read. Method: each way of reading has read the file before, so that there
/// is something stale to be had; then one handle writes, and another, or the same, reads.
#[test]
fn cached_handles_read_what_was_written() {
    let modes = [IoMode::Auto, IoMode::Direct, IoMode::Buffered].map(|mode| (mode, Caching::On));
    rigs(1).iter().for_each(|rig| everything_with_everything(rig, &modes));
}

/// Goal: the same among handles of which some go through the cache and some do not.
#[test]
fn all_handles_read_what_was_written() {
    let modes = [
        (IoMode::Auto, Caching::On),
        (IoMode::Direct, Caching::Off),
        (IoMode::Buffered, Caching::Off),
        (IoMode::Auto, Caching::Off),
        (IoMode::Direct, Caching::Auto),
        (IoMode::Buffered, Caching::Auto),
    ];
    rigs(2).iter().for_each(|rig| everything_with_everything(rig, &modes));
}

fn everything_with_everything(rig: &Rig, modes: &[(IoMode, Caching)]) {
    let scratch = Scratch::new(1, LENGTH_BYTES);
    let mut expected = vec![0; LENGTH_BYTES as usize];
    scratch.pattern.fill(0, &mut expected);
    let handles: Vec<File> = modes.iter().map(|mode| open_as(rig, &scratch.path(), *mode)).collect();
    let mut round = 0;
    watched(rig.name(), || {
        for (writer, writing) in modes.iter().zip(&handles) {
            for (reader, reading) in modes.iter().zip(&handles) {
                for (write_name, write) in WRITES {
                    for (read_name, read) in READS {
                        same("before", 0, &expected, &read(reading)).unwrap();
                        round += 1;
                        let (at, bytes) = (round * 7919 % (LENGTH_BYTES - 6000), [round as u8; 5000]);
                        write(writing, at, &bytes);
                        expected[at as usize..at as usize + 5000].copy_from_slice(&bytes);
                        let what = format!("{write_name} of {writer:?}, {read_name} of {reader:?}");
                        same(&what, 0, &expected, &read(reading)).unwrap();
                    }
                }
            }
        }
    });
    let late = open_as(rig, &scratch.path(), modes[0]);
    same("opened afterwards", 0, &expected, &READS[0].1(&late)).unwrap();
    late.sync_data().unwrap();
    same("on disk", 0, &expected, &std::fs::read(scratch.path()).unwrap()).unwrap();
    drop((handles, late));
    rig.assert_idle();
}

/// Goal: new lengths are everybody's at once, through every interface that changes one and every one that depends on one.
#[test]
fn cached_handles_see_new_lengths() {
    for rig in rigs(3) {
        let scratch = Scratch::new(2, 0);
        let modes = [IoMode::Auto, IoMode::Direct, IoMode::Buffered];
        let handles: Vec<File> =
            modes.iter().map(|&mode| open_as(&rig, &scratch.path(), (mode, Caching::On))).collect();
        let mut expected = Vec::new();
        for round in 0..40_usize {
            let (writing, reading) = (&handles[round % 3], &handles[round / 3 % 3]);
            change_length(writing, round, &mut expected);
            assert_eq!(reading.len().unwrap(), expected.len() as u64, "round {round}");
            for (name, read) in READS {
                same(&format!("{name} in round {round}"), 0, &expected, &read(reading)).unwrap();
            }
        }
        handles[0].sync_data().unwrap();
        same("on disk", 0, &expected, &std::fs::read(scratch.path()).unwrap()).unwrap();
        drop(handles);
        rig.assert_idle();
    }
}

fn change_length(file: &File, round: usize, expected: &mut Vec<u8>) {
    let bytes = vec![round as u8 + 1; 1 + round * 997 % 9000];
    let end_bytes = expected.len() as u64;
    match round % 8 {
        0 | 1 => assert_eq!(file.append(&bytes).unwrap(), end_bytes),
        2 => assert_eq!(block_on(file.append_async(bytes.clone())).unwrap(), end_bytes),
        3 => {
            let mut writer = file.writer();
            writer.seek(SeekFrom::End(0)).unwrap();
            writer.write_all(&bytes).unwrap();
        }
        4 => return truncate(file, expected, expected.len() / 2 + 1),
        5 => return truncate(file, expected, expected.len() + 10_000),
        6 => file.write_all_at(&bytes, end_bytes).unwrap(),
        _ => return truncate(file, expected, if round % 16 == 7 { 0 } else { 4096 }),
    }
    expected.extend(&bytes);
}

fn truncate(file: &File, expected: &mut Vec<u8>, length: usize) {
    file.set_len(length as u64).unwrap();
    expected.resize(length, 0);
}

/// Goal: who is reading in order meets what is written ahead of him meanwhile, though he has read ahead.
#[test]
fn readers_on_their_way_meet_what_is_written_ahead() {
    for rig in rigs(4) {
        let scratch = Scratch::new(3, 3 << 20);
        let mut expected = vec![0; 3 << 20];
        scratch.pattern.fill(0, &mut expected);
        let file = open(&rig, &scratch.path(), IoMode::Auto);
        let (mut reader, mut stream) = (file.reader(), file.stream());
        let shown = reader.fill_buf().unwrap().len();
        let first = block_on(stream.next()).unwrap().unwrap();
        // Behind what either was shown.
        let at = first.len().max(shown) + 10_000;
        file.write_all_at(&[0x55; 200_000], at as u64).unwrap();
        expected[at..at + 200_000].fill(0x55);
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        same("reader", 0, &expected, &found).unwrap();
        let mut found = first.to_vec();
        while let Some(bytes) = block_on(stream.next()) {
            found.extend(bytes.unwrap());
        }
        same("stream", 0, &expected, &found).unwrap();
        file.sync_data().unwrap();
        drop((file, reader, stream, first));
        rig.assert_idle();
    }
}

fn open_as(rig: &Rig, path: &Path, (mode, caching): (IoMode, Caching)) -> File {
    OpenOptions::new().engine(&rig.engine).io(mode).caching(caching).write(true).open(path).unwrap()
}

const WRITES: [(&str, WriteAt); 4] = [
    ("write_all_at", |file, at, bytes| file.write_all_at(bytes, at).unwrap()),
    ("write_all_at_async", |file, at, bytes| block_on(file.write_all_at_async(bytes.to_vec(), at)).unwrap()),
    ("writer", |file, at, bytes| {
        let mut writer = file.writer();
        writer.seek(SeekFrom::Start(at)).unwrap();
        writer.write_all(bytes).unwrap();
    }),
    ("a view written", |file, at, bytes| {
        let half = bytes.len() / 2;
        file.write_all_at(&bytes[half..], at + half as u64).unwrap();
        let view = file.view(at + half as u64, half).unwrap();
        // All bytes are equal, so that the second half can be the first.
        block_on(file.write_all_at_async(view.into_bytes(), at)).unwrap();
    }),
];

const READS: [(&str, ReadAll); 9] = [
    ("read_at", |file| {
        let mut bytes = vec![0; file.len().unwrap() as usize + 10];
        let read = file.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(read);
        bytes
    }),
    ("read_exact_at", |file| {
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }),
    ("read_at_async", |file| block_on(file.read_at_async(0, file.len().unwrap() as usize)).unwrap().to_vec()),
    ("view", |file| file.view(0, file.len().unwrap() as usize).unwrap().to_vec()),
    ("read_many", |file| {
        let mut bytes = vec![0; file.len().unwrap() as usize];
        let mut reads: Vec<ManyRead> = (0..)
            .step_by(30_000)
            .zip(bytes.chunks_mut(30_000))
            .map(|(at, piece)| ManyRead::new(at, piece))
            .collect();
        file.read_many(&mut reads).unwrap();
        drop(reads);
        bytes
    }),
    ("reader", |file| {
        let mut bytes = Vec::new();
        file.reader().read_to_end(&mut bytes).unwrap();
        bytes
    }),
    ("async_reader", |file| {
        let mut bytes = Vec::new();
        block_on(file.async_reader().read_to_end(&mut bytes)).unwrap();
        bytes
    }),
    ("stream", |file| block_on(file.stream().map(|bytes| bytes.unwrap().to_vec()).concat())),
    ("a clone's read_at", |file| READS[0].1(&file.clone())),
];

/// Little, as it is read often.
const LENGTH_BYTES: u64 = 100_003;
