//! Tails: where a file ends, to the byte (invariant 10).
//!
//! Owns: lengths of every residue, reads that cross the end, empty files, stream buffers of odd sizes.
//! Does not own: files whose length changes under a reader (see `changing`).

use std::io::{Read, Seek, SeekFrom};

use futures_util::StreamExt;
use futures_util::io::AsyncReadExt;
use headwater::{File, IoMode};
use headwater_testkit::{ScratchDir, on_each, with_seed};

use crate::rig::{Rig, Scratch, block_on, drivers, rigs};

/// Goal: a file of any length modulo 4096 ends where it ends, on each driver. Method: one file is truncated byte by byte; its
/// last bytes are read in all ways, asking for more than there is.
#[test]
fn every_residue_ends_to_the_byte() {
    with_seed("tails::every_residue_ends_to_the_byte", |seed| {
        let mut scratch = Scratch::new(seed, 3 * 4096);
        let rigs = rigs(seed);
        let open = |rig: &Rig| rig.open(&scratch.path(), IoMode::Auto);
        let files: Vec<File> = rigs.iter().map(open).collect();
        let ordinary = scratch.file();
        for length_bytes in (2 * 4096 + 1..=3 * 4096).rev() {
            ordinary.set_len(length_bytes).unwrap();
            scratch.length_bytes = length_bytes;
            // The kernel zeroes the rest of the page in its cache; half of the lengths are read from the device.
            if length_bytes % 2 == 0 {
                scratch.make_cold();
            }
            let way = length_bytes as usize % 3;
            files.iter().for_each(|file| check_tail(file, &scratch, way));
        }
        rigs.iter().for_each(Rig::assert_idle);
    });
}

/// Goal: the same on every file system. Method: fewer lengths, all ways and modes.
#[test]
fn tails_on_every_file_system() {
    with_seed("tails::tails_on_every_file_system", |seed| {
        for (kind, directory, driver) in on_each(drivers(seed)) {
            let mut scratch = Scratch::on(directory, seed, 70_000);
            for residue in [0, 1, 2, 511, 512, 513, 2048, 4093, 4094, 4095] {
                scratch.length_bytes = 65536 + residue;
                scratch.pattern.write_file(scratch.path(), scratch.length_bytes).unwrap();
                scratch.make_cold();
                let rig = Rig::new(driver.clone());
                let auto = rig.open(&scratch.path(), IoMode::Auto);
                let buffered = rig.open(&scratch.path(), IoMode::Buffered);
                eprintln!("{} on {kind}, {} bytes", rig.name(), scratch.length_bytes);
                (0..3).for_each(|way| check_tail(&auto, &scratch, way));
                (0..3).for_each(|way| check_tail(&buffered, &scratch, way));
                rig.assert_idle();
            }
        }
    });
}

fn check_tail(file: &File, scratch: &Scratch, way: usize) {
    let length_bytes = scratch.length_bytes;
    match way {
        0 => {
            let mut buffer = [0xAA; 100];
            assert_eq!(file.read_at(&mut buffer, length_bytes - 3).unwrap(), 3);
            scratch.check(length_bytes - 3, &buffer[..3]);
            assert!(buffer[3..].iter().all(|&byte| byte == 0xAA), "padding shows");
            assert_eq!(file.read_at(&mut buffer, length_bytes).unwrap(), 0);
        }
        1 => {
            let bytes = block_on(file.read_at_async(length_bytes - 3, 100)).unwrap();
            scratch.check_all(length_bytes - 3, 100, &bytes);
            assert!(block_on(file.read_at_async(length_bytes, 1)).unwrap().is_empty());
        }
        _ => {
            let (mut reader, mut rest) = (file.reader(), Vec::new());
            reader.seek(SeekFrom::End(-4100)).unwrap();
            reader.read_to_end(&mut rest).unwrap();
            scratch.check_all(length_bytes - 4100, 5000, &rest);
        }
    }
}

/// Goal: a buffer of any size gets the right bytes. Method: sizes that are no power of two, through each reader.
#[test]
fn buffers_of_odd_sizes() {
    with_seed("tails::buffers_of_odd_sizes", |seed| {
        let scratch = Scratch::new(seed, 700_001);
        for rig in rigs(seed) {
            let file = rig.open(&scratch.path(), IoMode::Direct);
            for size in [1000, 4097, 10_000, 65_535, 130_000, 300_003] {
                let (mut reader, mut async_reader) = (file.reader(), file.async_reader());
                read_through(&scratch, size, |buffer| reader.read(buffer).unwrap());
                read_through(&scratch, size, |buffer| block_on(async_reader.read(buffer)).unwrap());
            }
            rig.assert_idle();
        }
    });
}

fn read_through(scratch: &Scratch, size: usize, mut read: impl FnMut(&mut [u8]) -> usize) {
    let (mut buffer, mut position_bytes) = (vec![0; size], 0);
    loop {
        let read_bytes = read(&mut buffer);
        scratch.check(position_bytes, &buffer[..read_bytes]);
        position_bytes += read_bytes as u64;
        if read_bytes == 0 {
            return assert_eq!(position_bytes, scratch.length_bytes);
        }
    }
}

/// Goal: an empty file is empty in all ways, and does not cost others their direct I/O.
#[test]
fn an_empty_file_opened_first() {
    for rig in rigs(0) {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        let empty = rig.open(&path, IoMode::Auto);
        let scratch = Scratch::new(1, 10_000);
        assert!(rig.open(&scratch.path(), IoMode::Auto).is_direct(), "{}", rig.name());
        assert_eq!(empty.read_at(&mut [0; 10], 0).unwrap(), 0);
        assert_eq!(empty.read_at(&mut [0; 10], 5000).unwrap(), 0);
        assert!(block_on(empty.read_at_async(0, 10)).unwrap().is_empty());
        assert!(block_on(empty.stream().next()).is_none());
        let mut reader = empty.reader();
        for position_bytes in [0, 1, 4096, 1 << 40, i64::MAX as u64] {
            reader.seek(SeekFrom::Start(position_bytes)).unwrap();
            assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0, "at {position_bytes}");
        }
        drop(reader);
        rig.assert_idle();
    }
}
