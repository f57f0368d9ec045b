//! Builders: readers with request size and readahead of their own.
//!
//! Owns: the sizes that a reader was built with, and those that do not fit.
//! Does not own: adaptive readers (oracle, statistics).

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use futures_util::io::AsyncReadExt;
use headwater::{Caching, Engine, File, IoMode, OpenOptions, Reader};
use headwater_testkit::{Pattern, ScratchDir, make_cold};

use crate::rig::{block_on, rigs};

const LENGTH: u64 = 5_000_001;

/// Goal: whatever the sizes, the bytes are those of the file, from the start and after a seek, blocking and async, on each driver.
#[test]
fn bytes_are_right_at_any_size() {
    let directory = ScratchDir::on_target().unwrap();
    let (path, pattern) = (directory.path().join("file"), Pattern::new(1));
    pattern.write_file(&path, LENGTH).unwrap();
    for rig in rigs(1) {
        let file = rig.open(&path, IoMode::Auto);
        for (request_bytes, ahead_bytes) in
            [(4096, 4096), (64 << 10, 100_000), (512 << 10, 1 << 20), (1 << 20, 1 << 20)]
        {
            let builder = Reader::builder(&file).request_bytes(request_bytes).ahead_bytes(ahead_bytes);
            let (mut reader, mut bytes) = (builder.build().unwrap(), Vec::new());
            reader.read_to_end(&mut bytes).unwrap();
            assert_eq!((bytes.len() as u64, pattern.mismatch(0, &bytes)), (LENGTH, None));
            reader.seek(SeekFrom::Start(1_234_567)).unwrap();
            bytes.clear();
            reader.read_to_end(&mut bytes).unwrap();
            assert_eq!((bytes.len() as u64, pattern.mismatch(1_234_567, &bytes)), (LENGTH - 1_234_567, None));
            let mut reader = builder.build_async().unwrap().starting_at(77);
            bytes.clear();
            block_on(reader.read_to_end(&mut bytes)).unwrap();
            assert_eq!((bytes.len() as u64, pattern.mismatch(77, &bytes)), (LENGTH - 77, None));
        }
        rig.assert_idle();
    }
}

/// Goal: the first byte asks for all that the reader is to have ahead, and it never takes more memory than that and the request that is
/// consumed.
#[test]
fn memory_is_what_was_set() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    Pattern::new(2).write_file(&path, 8 << 20).unwrap();
    make_cold(&std::fs::File::open(&path).unwrap()).unwrap();
    let engine = Engine::builder().memory(16 << 20).build().unwrap();
    let file = OpenOptions::new().engine(&engine).caching(Caching::On).open(&path).unwrap();
    let mut reader = Reader::builder(&file).request_bytes(256 << 10).ahead_bytes(1 << 20).build().unwrap();
    reader.read_exact(&mut [0]).unwrap();
    let used_bytes = || engine.stats().arena.used_bytes;
    assert!((1 << 20..=5 << 18).contains(&used_bytes()), "{} bytes", used_bytes());
    while reader.read(&mut [0; 10_000]).unwrap() > 0 {
        assert!(used_bytes() <= 5 << 18, "{} bytes", used_bytes());
    }
}

/// Goal: sizes that cannot be are refused with the reason, and those that are not set fit those that are.
#[test]
fn sizes_that_do_not_fit_are_refused() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "some bytes").unwrap();
    let engine = Engine::builder().memory(8 << 20).build().unwrap();
    let file = OpenOptions::new().engine(&engine).open(&path).unwrap();
    let builder = Reader::builder(&file);
    for (refused, reason) in [
        (builder.request_bytes(3000), "power of two"),
        (builder.request_bytes(0), "zero"),
        (builder.request_bytes(4 << 20), "more than"),
        (builder.request_bytes(8192).ahead_bytes(4096), "less than the largest size"),
        (builder.ahead_bytes(7 << 20), "half of the engine's memory"),
    ] {
        let error = refused.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains("file"), "{text}");
    }
    let text = |mut reader: Reader| std::io::read_to_string(&mut reader).unwrap();
    for builder in [builder, builder.request_bytes(1 << 20), builder.ahead_bytes(300_000)] {
        assert_eq!(text(builder.build().unwrap()), "some bytes");
    }
    let memory = File::from_bytes("in memory");
    assert_eq!(text(Reader::builder(&memory).request_bytes(1).build().unwrap()), "in memory");
}
