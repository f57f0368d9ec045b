//! Positions: offsets past 4 GiB, near 2^63 and beyond.
//!
//! Owns: sparse files, the largest offsets, clear errors for those that no file has.
//! Does not own: ordinary offsets (see `oracle`).

use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use futures_util::io::{AsyncReadExt, AsyncSeekExt};
use headwater::{File, IoMode};
use headwater_testkit::{Pattern, ScratchDir, skip, tmpfs, with_seed};

use crate::rig::{Scratch, block_on, rigs};

/// Goal: bytes beyond 4 GiB are those at the offset, not at its low half. Method: islands of data in a sparse file.
#[test]
fn past_four_gib() {
    with_seed("positions::past_four_gib", |seed| {
        sparse(ScratchDir::on_target().unwrap(), seed, &[0, (4 << 30) - 5000, 1 << 33, (1 << 42) + 12_345]);
    });
}

/// Goal: as far as files go. Method: tmpfs, whose files go to 2^63 - 1.
#[test]
fn near_the_largest_offset() {
    with_seed("positions::near_the_largest_offset", |seed| match tmpfs() {
        Ok(directory) => sparse(directory, seed, &[1 << 45, 1 << 62, (1 << 63) - (8 << 20)]),
        Err(reason) => skip(reason),
    });
}

fn sparse(directory: ScratchDir, seed: u64, islands: &[u64]) {
    let (path, pattern) = (directory.path().join("sparse"), Pattern::new(seed));
    let ordinary = std::fs::File::create(&path).unwrap();
    for &island in islands {
        let mut data = vec![0; ISLAND_BYTES];
        pattern.fill(island, &mut data);
        ordinary.write_all_at(&data, island).unwrap();
    }
    headwater_testkit::make_cold(&ordinary).unwrap();
    for rig in rigs(seed) {
        let file = rig.open(&path, IoMode::Auto);
        islands.iter().for_each(|&island| check_island(&file, pattern, island));
        rig.assert_idle();
    }
}

/// Whole, in unaligned parts, and the hole before it.
fn check_island(file: &File, pattern: Pattern, island: u64) {
    let mut buffer = vec![0; ISLAND_BYTES - 100];
    file.read_exact_at(&mut buffer, island + 37).unwrap();
    assert_eq!(pattern.mismatch(island + 37, &buffer), None);
    let bytes = block_on(file.read_exact_at_async(island + 41, ISLAND_BYTES - 100)).unwrap();
    assert_eq!(pattern.mismatch(island + 41, &bytes), None);
    let mut reader = file.reader();
    reader.seek(SeekFrom::Start(island.saturating_sub(10_000))).unwrap();
    let mut hole = vec![1; island.min(10_000) as usize];
    reader.read_exact(&mut hole).unwrap();
    assert!(hole.iter().all(|&byte| byte == 0), "a hole before {island}");
    reader.read_exact(&mut buffer).unwrap();
    assert_eq!(pattern.mismatch(island, &buffer), None);
    let mut async_reader = file.async_reader();
    block_on(async_reader.seek(SeekFrom::Start(island))).unwrap();
    block_on(async_reader.read_exact(&mut buffer)).unwrap();
    assert_eq!(pattern.mismatch(island, &buffer), None);
}

/// Goal: offsets that no file has are refused with kind, path and offset; offsets beyond the end are the end. Never a
/// panic, never an allocation of the size asked for.
#[test]
fn beyond_every_file() {
    for rig in rigs(0) {
        let scratch = Scratch::new(1, 10_000);
        for mode in [IoMode::Auto, IoMode::Direct, IoMode::Buffered] {
            let file = rig.open(&scratch.path(), mode);
            check_refused(&file);
            check_beyond_the_end(&file);
            check_seeks(&file);
            let whole = block_on(file.read_at_async(0, usize::MAX)).unwrap();
            scratch.check_all(0, 10_000, &whole);
        }
        rig.assert_idle();
    }
}

fn check_refused(file: &File) {
    for offset_bytes in [1 << 63, u64::MAX - 4096, u64::MAX] {
        let error = file.read_at(&mut [0; 10], offset_bytes).unwrap_err();
        assert_eq!((error.kind(), error.offset_bytes()), (ErrorKind::InvalidInput, Some(offset_bytes)));
        let text = error.to_string();
        assert!(text.ends_with("offsets of files end at 2^63 - 1") && !text.contains('\n'), "{text}");
        let error = block_on(file.read_at_async(offset_bytes, 10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            file.read_exact_at(&mut [0; 10], offset_bytes).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
}

fn check_beyond_the_end(file: &File) {
    for offset_bytes in [10_000, 1 << 40, (1 << 63) - 8192, (1 << 63) - 1] {
        for length in [0, 1, 10_000, 400_000] {
            assert_eq!(file.read_at(&mut vec![0; length], offset_bytes).unwrap(), 0, "at {offset_bytes}");
            assert!(block_on(file.read_at_async(offset_bytes, length)).unwrap().is_empty());
        }
        let error = file.read_exact_at(&mut [0; 10], offset_bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}

fn check_seeks(file: &File) {
    let mut reader = file.reader();
    for target in [SeekFrom::Start(1 << 63), SeekFrom::Current(-1), SeekFrom::End(-10_001)] {
        let error = reader.seek(target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with("seek in "), "{error}");
    }
    reader.seek(SeekFrom::Start(i64::MAX as u64)).unwrap();
    assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(reader.seek(SeekFrom::Current(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(reader.seek(SeekFrom::End(-1)).unwrap(), 9_999);
    assert_eq!(reader.read(&mut [0; 10]).unwrap(), 1);
}

/// Goal: more than memory holds is an error, not the end of the process. Method: all of a sparse file of 2^62 bytes.
#[test]
fn more_than_memory_holds_is_an_error() {
    let Ok(directory) = tmpfs() else { return skip("no tmpfs") };
    let path = directory.path().join("vast");
    std::fs::File::create(&path).unwrap().set_len(1 << 62).unwrap();
    for rig in rigs(0) {
        let file = rig.open(&path, IoMode::Auto);
        let error = block_on(file.read_at_async(5, usize::MAX)).unwrap_err();
        assert_eq!((error.kind(), error.offset_bytes()), (ErrorKind::OutOfMemory, Some(5)));
        rig.assert_idle();
    }
}

const ISLAND_BYTES: usize = 600_000;
