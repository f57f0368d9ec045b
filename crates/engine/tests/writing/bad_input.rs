//! Bad input: what cannot be written is refused by name, and nothing is changed by it.
//!
//! Owns: files, modes and offsets that do not take writes.
//! Does not own: devices that fail (faults), that are full (space).

use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use headwater::{Caching, Error, File, IoMode, OpenOptions, Operation};
use headwater_testkit::{FileSystem, LoopMount, ScratchDir, skip};

use crate::rig::{Rig, Scratch, block_on, rigs, watched};
use crate::threads::open;

/// Goal: a file that is open for reading takes no write through any interface, says so, and stays as it is.
#[test]
fn files_open_for_reading() {
    let scratch = Scratch::new(1, 10_000);
    for rig in rigs(1) {
        for mode in [IoMode::Auto, IoMode::Buffered] {
            refuses_all(&rig.open(&scratch.path(), mode));
        }
        assert_eq!(scratch.pattern.mismatch(0, &std::fs::read(scratch.path()).unwrap()), None);
        assert_eq!(scratch.file().metadata().unwrap().len(), 10_000);
        rig.assert_idle();
    }
}

/// Goal: the same for bytes in memory.
#[test]
fn bytes_in_memory() {
    let file = File::from_bytes("abc");
    refuses_all(&file);
    assert_eq!(file.view(0, 3).unwrap().to_vec(), b"abc");
}

fn refuses_all(file: &File) {
    let refused = |operation: Operation, result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert_eq!((error.operation(), error.path()), (operation, Some(file.path())));
        let text = error.to_string();
        assert!(text.contains(&*file.path().to_string_lossy()) && text.contains("writing"), "{text}");
        assert_eq!(text.lines().count(), 1);
    };
    refused(Operation::Write, file.write_at(b"x", 5).map(|_| ()));
    refused(Operation::Write, file.write_all_at(b"x", 5));
    refused(Operation::Write, file.append(b"x").map(|_| ()));
    refused(Operation::SetLength, file.set_len(0));
    refused(Operation::Write, block_on(file.write_all_at_async("x", 5)));
    refused(Operation::Write, block_on(file.append_async("x")).map(|_| ()));
    refused(Operation::SetLength, block_on(file.set_len_async(0)));
    let error = file.writer().write(b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

/// Goal: what cannot be opened for writing has its kind, and a text of one line with the path in it.
#[test]
fn paths_that_cannot_be_written() {
    let directory = ScratchDir::on_target().unwrap();
    let [fifo, below, file] = ["fifo", "missing/file", "file"].map(|name| directory.path().join(name));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::fs::write(&file, "contents").unwrap();
    let rig = Rig::sim(1);
    let refused = |name: &str, options: &mut OpenOptions, path: &Path, kind: ErrorKind| {
        let opened = watched(name, || options.engine(&rig.engine).open(path));
        let error = opened.unwrap_err();
        assert_eq!((error.kind(), error.path()), (kind, Some(path)), "{name}: {error}");
        assert_eq!(error.operation(), Operation::Open);
        let text = error.to_string();
        // Names that a terminal would not show as they are stand in quotes.
        let is_plain =
            path.to_str().is_some_and(|name| name.starts_with('/') && !name.contains(char::is_control));
        let begin = if is_plain { format!("open {}: ", path.display()) } else { "open ".to_owned() };
        assert!(text.starts_with(&begin) && text.lines().count() == 1, "{text}");
    };
    refused("new", OpenOptions::new().write(true).create_new(true), &file, ErrorKind::AlreadyExists);
    refused(
        "new, truncated",
        OpenOptions::new().write(true).create_new(true).truncate(true),
        &file,
        ErrorKind::AlreadyExists,
    );
    refused("write", OpenOptions::new().write(true), &below, ErrorKind::NotFound);
    refused(
        "truncate",
        OpenOptions::new().write(true).truncate(true),
        &directory.path().join("none"),
        ErrorKind::NotFound,
    );
    for (path, kind) in [
        (below.as_path(), ErrorKind::NotFound),
        (directory.path(), ErrorKind::IsADirectory),
        (&fifo, ErrorKind::Unsupported),
        (Path::new(""), ErrorKind::NotFound),
        (Path::new("a\0b"), ErrorKind::InvalidInput),
        (&file.join("below"), ErrorKind::NotADirectory),
    ] {
        refused("create", OpenOptions::new().write(true).create(true), path, kind);
        refused("create, truncated", OpenOptions::new().write(true).create(true).truncate(true), path, kind);
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"contents");
    assert!(!directory.path().join("none").exists() && !directory.path().join("missing").exists());
    rig.assert_idle();
}

/// Goal: a device is created and truncated as std does it: it is opened as it is.
#[test]
fn a_device_stays_as_it_is() {
    let rig = Rig::sim(12);
    for options in
        [OpenOptions::new().write(true).create(true), OpenOptions::new().write(true).truncate(true)]
    {
        let file = options.engine(&rig.engine).open("/dev/null").unwrap();
        file.write_all_at(b"gone", 0).unwrap();
        assert_eq!(file.read_at(&mut [0; 4], 0).unwrap(), 0);
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).engine(&rig.engine).open("/dev/null").unwrap();
    assert_eq!(file.set_len(1).unwrap_err().kind(), ErrorKind::InvalidInput);
    rig.assert_idle();
}

/// Goal: `create`, `create_new` and `truncate` do what they say.
#[test]
fn paths_that_can() {
    let (directory, rig) = (ScratchDir::on_target().unwrap(), Rig::sim(2));
    let path = directory.path().join("file");
    let open = |options: &mut OpenOptions| options.engine(&rig.engine).open(&path).unwrap();
    let file = open(OpenOptions::new().write(true).create_new(true));
    file.write_all_at(b"contents", 0).unwrap();
    assert_eq!(open(OpenOptions::new().write(true).create(true)).len().unwrap(), 8);
    assert_eq!(open(OpenOptions::new().write(true)).view(0, 8).unwrap().to_vec(), b"contents");
    assert_eq!(open(OpenOptions::new().write(true).truncate(true)).len().unwrap(), 0);
    file.sync_data().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

/// Goal: opening a file with `truncate` empties it for all its handles, with what these wrote to it.
#[test]
fn truncated_by_opening() {
    for rig in rigs(3) {
        let scratch = Scratch::new(3, 50_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto);
        file.write_all_at(&[1; 20_000], 40_000).unwrap();
        let other = OpenOptions::new()
            .engine(&rig.engine)
            .caching(Caching::On)
            .write(true)
            .truncate(true)
            .open(scratch.path());
        let other = other.unwrap();
        assert_eq!(other.len().unwrap(), 0);
        other.write_all_at(b"x", 9_999).unwrap();
        let mut found = vec![1; 10_001];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), 10_000);
        assert!(found[..9_999].iter().all(|byte| *byte == 0), "bytes from before the truncate");
        file.sync_data().unwrap();
        assert_eq!(std::fs::read(scratch.path()).unwrap(), found[..10_000]);
        drop((file, other));
        rig.assert_idle();
    }
}

/// Goal: offsets and lengths that files do not have are refused with place and kind, before anything is written.
#[test]
fn offsets_that_files_do_not_have() {
    for rig in rigs(4) {
        let scratch = Scratch::new(4, 10_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto);
        for offset_bytes in
            [u64::MAX, u64::MAX - 3, i64::MAX as u64 + 1, i64::MAX as u64, i64::MAX as u64 - 3]
        {
            let results = [
                file.write_at(&[1; 10], offset_bytes).map(|_| ()),
                file.write_all_at(&[1; 10], offset_bytes),
                block_on(file.write_all_at_async(vec![1; 10], offset_bytes)),
            ];
            for error in results.map(Result::unwrap_err) {
                assert!(
                    [ErrorKind::InvalidInput, ErrorKind::FileTooLarge].contains(&error.kind()),
                    "{error}"
                );
                let begin = format!("write {} at byte {offset_bytes}: ", scratch.path().display());
                assert!(error.to_string().starts_with(&begin), "{error}");
                assert_eq!(error.offset_bytes(), Some(offset_bytes));
            }
        }
        for length_bytes in [u64::MAX, i64::MAX as u64 + 1] {
            let error = file.set_len(length_bytes).unwrap_err();
            assert!([ErrorKind::InvalidInput, ErrorKind::FileTooLarge].contains(&error.kind()), "{error}");
            assert_eq!((error.operation(), error.path()), (Operation::SetLength, Some(&*scratch.path())));
        }
        let mut writer = file.writer();
        assert!(
            writer.seek(SeekFrom::Current(-1)).is_err() && writer.seek(SeekFrom::Start(u64::MAX)).is_err()
        );
        assert_eq!(writer.stream_position().unwrap(), 0);
        unchanged(&file, &scratch);
        drop(file);
        rig.assert_idle();
    }
}

fn unchanged(file: &File, scratch: &Scratch) {
    file.sync_data().unwrap();
    assert_eq!(file.len().unwrap(), scratch.length_bytes);
    let mut bytes = vec![0; 20_000];
    let read = file.read_at(&mut bytes, 0).unwrap();
    scratch.check_all(0, 20_000, &bytes[..read]);
    scratch.check_all(0, 20_000, &std::fs::read(scratch.path()).unwrap());
}

/// Goal: an offset that this file system does not have, though others do, is an error of the write or of the next sync.
#[test]
fn offsets_that_this_file_system_does_not_have() {
    let mount = match LoopMount::new(FileSystem::Ext4, 64 << 20) {
        Ok(mount) => mount,
        Err(reason) => return skip(format!("ext4: {reason}")),
    };
    for rig in rigs(5) {
        let path = mount.path().join("file");
        std::fs::write(&path, "contents").unwrap();
        let file = open(&rig, &path, IoMode::Auto);
        // ext4 ends at 2^32 blocks, which are 4 KiB at most here.
        let result = file.write_all_at(b"far", 1 << 50).and_then(|()| file.sync_data());
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::FileTooLarge, Some(&*path)), "{error}");
        drop(file);
        assert_eq!(&std::fs::read(&path).unwrap()[..8], b"contents");
        rig.assert_idle();
    }
}

/// Goal: files of `/proc` that take no writes are an error of the write or the sync, by name, and can be read afterwards.
#[test]
fn files_that_take_no_writes() {
    let path = Path::new("/proc/version");
    let expected = std::fs::read(path).unwrap();
    for rig in rigs(6) {
        for caching in [Caching::Auto, Caching::On, Caching::Off] {
            let opened = OpenOptions::new().engine(&rig.engine).caching(caching).write(true).open(path);
            let written = opened.and_then(|file| {
                file.write_all_at(b"x", 0)?;
                file.sync_data()
            });
            let error = written.unwrap_err();
            assert_eq!(error.path(), Some(path), "{error}");
        }
        let file = rig.open(path, IoMode::Auto);
        let mut bytes = vec![0; expected.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, expected);
        let error = OpenOptions::new()
            .engine(&rig.engine)
            .write(true)
            .create_new(true)
            .open("/proc/headwater")
            .unwrap_err();
        assert_eq!(error.path(), Some(Path::new("/proc/headwater")), "{error}");
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: a file system that is mounted for reading says so when a file of it is opened for writing.
#[test]
fn file_systems_mounted_for_reading() {
    let mount = match LoopMount::new(FileSystem::Ext4, 16 << 20) {
        Ok(mount) => mount,
        Err(reason) => return skip(format!("ext4: {reason}")),
    };
    let path = mount.path().join("file");
    std::fs::write(&path, "contents").unwrap();
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(mount.path()).status().unwrap();
    assert!(remounted.success());
    let rig = Rig::sim(7);
    for mode in [IoMode::Auto, IoMode::Direct, IoMode::Buffered] {
        let [mut write, mut create, mut truncate] = [(); 3].map(|()| OpenOptions::new());
        for options in
            [write.write(true), create.write(true).create(true), truncate.write(true).truncate(true)]
        {
            let error = options.engine(&rig.engine).io(mode).open(&path).unwrap_err();
            assert_eq!(
                (error.kind(), error.path()),
                (ErrorKind::ReadOnlyFilesystem, Some(&*path)),
                "{error}"
            );
        }
        let new = mount.path().join("new");
        let error =
            OpenOptions::new().engine(&rig.engine).io(mode).write(true).create(true).open(&new).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::ReadOnlyFilesystem, Some(&*new)), "{error}");
    }
    assert_eq!(rig.open(&path, IoMode::Auto).view(0, 8).unwrap().to_vec(), b"contents");
    rig.assert_idle();
}
