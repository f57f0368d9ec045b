//! Contents: what is no stored file, through every interface: bytes in memory, character devices.
//!
//! Owns: `File::from_bytes`, `/dev/zero`, `/dev/null`, `/dev/urandom`.
//! Does not own: stored files.

use std::io::{BufRead, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt};
use headwater::{
    Advice, ByteRange, Caching, DriverKind, File, FileStats, IoMode, OpenOptions, Operation, Residency,
};
use headwater_testkit::{Pattern, Rng, with_seed};

use crate::rig::{Rig, block_on, rigs};

fn in_memory(seed: u64, length: usize) -> (File, Bytes) {
    let mut bytes = vec![0; length];
    Pattern::new(seed).fill(0, &mut bytes);
    let bytes = Bytes::from(bytes);
    (File::from_bytes(bytes.clone()), bytes)
}

/// Goal: positional reads are slices, blocking and not; the asynchronous ones are the bytes themselves.
#[test]
fn bytes_at_positions() {
    with_seed("contents::bytes_at_positions", |seed| {
        let (file, bytes) = in_memory(seed, 100_000);
        let mut rng = Rng::new(seed);
        for _ in 0..500 {
            let (offset, length) = (rng.below(110_000) as usize, rng.below(20_000) as usize);
            let expected = bytes.get(offset..).unwrap_or_default();
            let expected = &expected[..length.min(expected.len())];
            let mut buffer = vec![0; length];
            let read_bytes = file.read_at(&mut buffer, offset as u64).unwrap();
            assert_eq!(&buffer[..read_bytes], expected);
            let lent = block_on(file.read_at_async(offset as u64, length)).unwrap();
            assert_eq!(lent, expected);
            assert!(lent.is_empty() || lent.as_ptr() == expected.as_ptr(), "it is a copy");
        }
        let error = file.read_exact_at(&mut [0; 2], 99_999).unwrap_err();
        assert_eq!(error.to_string(), "read <memory> at byte 100000: the file ends here");
        let error = block_on(file.read_exact_at_async(99_999, 2)).unwrap_err();
        assert_eq!((error.kind(), error.offset_bytes()), (ErrorKind::UnexpectedEof, Some(100_000)));
        assert_eq!(file.read_at(&mut [0], 1 << 63).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(block_on(file.read_at_async(1 << 63, 1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

/// Goal: readers show the bytes where they lie, seek as files do, and the stream is one piece.
#[test]
fn bytes_from_start_to_end() {
    let (file, bytes) = in_memory(3, 50_000);
    let mut reader = file.reader();
    assert_eq!(reader.fill_buf().unwrap().as_ptr(), bytes.as_ptr());
    reader.consume(7);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, bytes[7..]);
    assert_eq!(reader.seek(SeekFrom::End(-10)).unwrap(), 49_990);
    assert_eq!(reader.seek(SeekFrom::Current(5)).unwrap(), 49_995);
    assert_eq!(reader.fill_buf().unwrap(), &bytes[49_995..]);
    assert_eq!(reader.seek(SeekFrom::Start(60_000)).unwrap(), 60_000);
    assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0);
    let error = reader.seek(SeekFrom::Current(-60_001)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let inner = error.downcast::<headwater::Error>().unwrap();
    assert_eq!((inner.operation(), inner.path()), (Operation::Seek, Some(Path::new("<memory>"))));
    let mut reader = file.async_reader();
    assert_eq!(block_on(reader.fill_buf()).unwrap().as_ptr(), bytes.as_ptr());
    block_on(reader.seek(SeekFrom::Start(100))).unwrap();
    let mut rest = Vec::new();
    block_on(reader.read_to_end(&mut rest)).unwrap();
    assert_eq!(rest, bytes[100..]);
    let parts: Vec<Bytes> = block_on(file.stream().try_collect()).unwrap();
    assert_eq!((parts.len(), parts[0].as_ptr()), (1, bytes.as_ptr()));
}

/// Goal: everything else that a file can be asked, and the empty one.
#[test]
fn bytes_as_a_file() {
    let file = File::from_bytes_named("table of contents", "abc");
    assert_eq!((file.len().unwrap(), file.path()), (3, Path::new("table of contents")));
    assert_eq!((file.is_direct(), file.residency(ByteRange::new(0, 3))), (false, Residency::Whole));
    assert_eq!(file.stats(), FileStats::default());
    drop(file.on_evicted(|_| panic!("nothing is cached")));
    for advice in [Advice::NoReuse, Advice::WillNeed, Advice::DontNeed] {
        file.advise(advice, ..).unwrap();
    }
    let empty = File::from_bytes(Vec::new());
    assert_eq!(empty.read_at(&mut [0; 4], 0).unwrap(), 0);
    assert_eq!(empty.reader().read_to_end(&mut Vec::new()).unwrap(), 0);
    assert_eq!(block_on(empty.stream().try_collect::<Vec<_>>()).unwrap(), Vec::<Bytes>::new());
    assert!(block_on(empty.read_at_async(0, 10)).unwrap().is_empty());
    let name = format!("{:?} {:?} {:?}", file.reader(), file.async_reader(), file.stream());
    assert_eq!(name.matches(r#"{ position: 0, file: File { path: "table of contents""#).count(), 3, "{name}");
}

fn device(rig: &Rig, path: &str) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).open(path).unwrap()
}

/// Goal: `/dev/zero` gives zeros at every place and without end, through every interface.
#[test]
fn zeros_without_end() {
    for rig in rigs(5) {
        let file = device(&rig, "/dev/zero");
        assert_eq!((file.len().unwrap(), file.is_direct()), (0, false));
        let mut buffer = vec![1; 700_000];
        file.read_exact_at(&mut buffer, 1 << 40).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 0));
        let bytes = block_on(file.read_exact_at_async(77, 100_000)).unwrap();
        assert!(bytes.len() == 100_000 && bytes.iter().all(|byte| *byte == 0));
        drop(bytes);
        buffer.fill(1);
        file.reader().read_exact(&mut buffer).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 0), "{}", rig.name());
        buffer.fill(1);
        block_on(file.async_reader().read_exact(&mut buffer)).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 0));
        let first = block_on(file.stream().try_next()).unwrap().unwrap();
        assert!(!first.is_empty() && first.iter().all(|byte| *byte == 0));
        drop(first);
        assert_eq!(file.stats(), FileStats::default(), "a device is never cached");
        rig.assert_idle();
    }
}

/// Goal: `/dev/null` ends at once.
#[test]
fn nothing_at_all() {
    for rig in rigs(6) {
        let file = device(&rig, "/dev/null");
        assert_eq!(file.read_at(&mut [0; 100], 5).unwrap(), 0);
        assert!(block_on(file.read_at_async(0, 100)).unwrap().is_empty());
        assert_eq!(file.reader().read_to_end(&mut Vec::new()).unwrap(), 0, "{}", rig.name());
        assert_eq!(block_on(file.async_reader().read_to_end(&mut Vec::new())).unwrap(), 0);
        assert!(block_on(file.stream().try_next()).unwrap().is_none());
        rig.assert_idle();
    }
}

/// Goal: what `/dev/urandom` gives is never taken from a cache.
#[test]
fn never_the_same_bytes() {
    for rig in rigs(7) {
        let file = device(&rig, "/dev/urandom");
        let (mut first, mut second) = ([0; 4096], [0; 4096]);
        file.read_exact_at(&mut first, 0).unwrap();
        file.read_exact_at(&mut second, 0).unwrap();
        assert_ne!(first, second);
        let third = block_on(file.read_exact_at_async(0, 4096)).unwrap();
        assert_ne!(third, &second[..]);
        drop(third);
        file.reader().read_exact(&mut first).unwrap();
        assert_ne!(first, second);
        rig.assert_idle();
    }
}

/// Goal: a character device has no direct I/O, and that is what the error says.
#[test]
fn devices_are_not_read_directly() {
    let rig = Rig::new(DriverKind::Threads);
    for path in ["/dev/null", "/dev/zero"] {
        let error = OpenOptions::new().engine(&rig.engine).io(IoMode::Direct).open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let expected = format!("open {path}: a character device has no direct I/O (O_DIRECT)");
        assert_eq!(error.to_string(), expected);
        rig.open(Path::new(path), IoMode::Buffered);
    }
}
