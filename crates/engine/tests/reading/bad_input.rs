//! Bad input: what cannot be opened or built is refused with a kind and one line; what is merely odd works.
//!
//! Owns: paths, kinds of files, settings of an engine.
//! Does not own: offsets (see `positions`).

use std::io::{ErrorKind, Read};
use std::path::Path;

use headwater::{DriverKind, Engine, EngineBuilder, Error, File, IoMode, OpenOptions, ReadaheadLimits};
use headwater_testkit::ScratchDir;

use crate::rig::{Rig, block_on, rigs};

/// Goal: each wrong path has its kind and a text of one line with the path in it.
#[test]
fn paths_that_cannot_be_read() {
    let directory = ScratchDir::on_target().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let dangling = directory.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    let missing = directory.path().join("missing");
    let long = directory.path().join("x".repeat(300));
    let cases = [
        (missing.as_path(), ErrorKind::NotFound),
        (directory.path(), ErrorKind::IsADirectory),
        (&fifo, ErrorKind::Unsupported),
        (&dangling, ErrorKind::NotFound),
        (&long, ErrorKind::InvalidFilename),
        (Path::new(""), ErrorKind::NotFound),
        (Path::new("a\0b"), ErrorKind::InvalidInput),
    ];
    let rig = Rig::new(DriverKind::Threads);
    for (path, kind) in cases {
        for mode in [IoMode::Auto, IoMode::Direct, IoMode::Buffered] {
            let error = OpenOptions::new().engine(&rig.engine).io(mode).open(path).unwrap_err();
            assert_eq!((error.kind(), error.path()), (kind, Some(path)), "{error}");
            let text = error.to_string();
            assert!(text.starts_with("open ") && text.lines().count() == 1, "{text}");
        }
    }
}

/// Goal: direct I/O where there is none is refused by name; without it the file is read.
#[test]
fn direct_io_where_there_is_none() {
    let rig = Rig::new(DriverKind::Threads);
    let error = OpenOptions::new().engine(&rig.engine).io(IoMode::Direct).open("/proc/version").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("O_DIRECT"), "{error}");
    assert!(!rig.open(Path::new("/proc/version"), IoMode::Auto).is_direct());
}

/// Goal: files of `/proc` and `/sys`, whose lengths lie, are read as `cat` reads them, in all ways.
#[test]
fn files_that_lie_about_their_length() {
    let scratch = ScratchDir::on_target().unwrap();
    for path in [
        "/proc/version",
        "/proc/filesystems",
        "/proc/kallsyms",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let Ok(expected) = std::fs::read(path) else { continue };
        for rig in rigs(1) {
            for mode in [IoMode::Auto, IoMode::Buffered] {
                let file = rig.open(Path::new(path), mode);
                let mut contents = Vec::new();
                file.reader().read_to_end(&mut contents).unwrap();
                assert!(contents == expected, "{path}: {} bytes on {}", contents.len(), rig.name());
                let mut buffer = vec![0; 100];
                let read_bytes = file.read_at(&mut buffer, 3).unwrap();
                assert_eq!(buffer[..read_bytes], expected[3..expected.len().min(103)], "{path}");
                let bytes = block_on(file.read_at_async(5, 50)).unwrap();
                assert_eq!(bytes, expected[5..expected.len().min(55)], "{path}");
                let page = file.peek(2).unwrap();
                assert_eq!(page[..], expected[2..expected.len().min(4096)], "{path}");
                let mut options = OpenOptions::new();
                options.engine(&rig.engine).write(true).create(true).truncate(true);
                let copy = options.open(scratch.path().join("copy")).unwrap();
                assert_eq!(file.copy_range_to(.., &copy, 0).unwrap(), expected.len() as u64, "{path}");
                assert_eq!(block_on(file.copy_range_to_async(1..9, &copy, 0)).unwrap(), 8, "{path}");
                let mut copied = vec![0; expected.len()];
                copy.read_exact_at(&mut copied, 0).unwrap();
                assert_eq!((&copied[..8], &copied[8..]), (&expected[1..9], &expected[8..]), "{path}");
            }
            rig.assert_idle();
        }
    }
}

/// Goal: settings out of range are refused with the setting and the range, absurd but possible ones work.
#[test]
fn settings_out_of_range() {
    let refused = |builder: EngineBuilder, words: &str| {
        let error: Error = builder.driver(DriverKind::Threads).build().unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        assert!(text.starts_with("build the engine: ") && text.contains(words), "{text}");
        assert_eq!(text.lines().count(), 1);
    };
    for bytes in [0, 1, 4096, (3 << 20) - 1] {
        refused(Engine::builder().memory(bytes), "at least 3 MiB");
    }
    for bytes in [(4 << 40) + 1, u64::MAX] {
        refused(Engine::builder().memory(bytes), "more than 4 TiB");
    }
    for depth in [0, 4097, 5000, u32::MAX] {
        refused(Engine::builder().queue_depth(depth), "not within 1 to 4096");
    }
    for (rings, depth) in [(0, 8), (9, 8), (u32::MAX, 4096)] {
        refused(Engine::builder().rings(rings).queue_depth(depth), "not within 1 to the queue depth");
    }
    for (builder, words) in [
        (Engine::builder().rings(2), "a local driver has one ring, not 2"),
        (Engine::builder().rings(0), "not within 1 to the queue depth"),
        (Engine::builder().queue_depth(0), "not within 1 to 4096"),
        (Engine::builder().memory(4096), "at least 3 MiB"),
    ] {
        let error = builder.local().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(words), "{error}");
    }
    let odd = ReadaheadLimits { size_bytes_min: 5000, ..ReadaheadLimits::default() };
    refused(Engine::builder().readahead(odd), "power of two");
    for memory_bytes in [3 << 20, (3 << 20) + 1, 4 << 40] {
        for depth in [1, 4096] {
            let builder = Engine::builder().memory(memory_bytes).queue_depth(depth);
            let engine = builder.driver(DriverKind::Threads).build().unwrap();
            let mut text = String::new();
            let file = OpenOptions::new().engine(&engine).open("/proc/version").unwrap();
            file.reader().read_to_string(&mut text).unwrap();
            assert!(text.starts_with("Linux"));
        }
    }
}

/// Goal: what std has of a kind may be used after a panic that was caught, so may this; not an `Error`, as `std::io::Error`, and not a
/// `LocalEngine`, which holds the futures of its user. Method: it compiles.
#[test]
fn values_outlive_panics() {
    fn outlives<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    outlives::<File>();
    outlives::<Engine>();
    outlives::<OpenOptions>();
    outlives::<headwater::Reader>();
    outlives::<headwater::Writer>();
    outlives::<headwater::AsyncReader>();
    outlives::<headwater::AsyncWriter>();
    outlives::<headwater::ByteStream>();
    outlives::<headwater::View>();
    outlives::<headwater::ContiguousView>();
    outlives::<headwater::SharedView>();
    outlives::<headwater::PageRef<'_>>();
    outlives::<headwater::ReaderBuilder<'_>>();
    outlives::<headwater::LocalEngines>();
    outlives::<headwater::Local<File>>();
    outlives::<headwater::Local<headwater::AsyncReader>>();
    outlives::<headwater::EvictionListener>();
    outlives::<headwater::EngineBuilder>();
    outlives::<headwater::Task<()>>();
    outlives::<headwater::Profiles>();
    outlives::<headwater::ring::Driver>();
    outlives::<headwater::ring::Arena>();
    outlives::<headwater::ring::OpenFile>();
    let file = File::open("/proc/version").unwrap();
    let caught = std::panic::catch_unwind(|| {
        file.read_at(&mut [0; 10], 0).unwrap();
        panic!("on purpose");
    });
    assert!(caught.is_err());
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 10);
}
