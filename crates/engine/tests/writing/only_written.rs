//! Only written: files that the process may write and not read.
//!
//! ```text
//!   root: files of mode 0222, a descriptor to read one ─► child without rights: opens, writes, is refused reads ─► root: contents
//! ```
//!
//! Owns: that such files can be written in every way, beside handles that read them.
//! Does not own: the options (standard).

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use headwater::{File, IoMode, ManyRead, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, run_forked, skip, with_seed};

use crate::forked::in_a_process_of_its_own;
use crate::rig::{Rig, block_on, drivers};

/// Goal: a file that may only be written is opened where the standard library opens it and refused where that refuses it; reads are refused,
/// and so is direct I/O, which would need them. Method: a child that has given up its rights.
#[test]
fn files_are_opened_as_by_std() {
    let Some(directory) = for_all() else { return };
    run_forked(move || {
        give_up_rights(directory.path());
        let rig = Rig::sim(1);
        for bits in 0..32_u32 {
            let [write, append, truncate, create, read] = [0, 1, 2, 3, 4].map(|bit| bits >> bit & 1 == 1);
            let mut theirs = fs::OpenOptions::new();
            theirs.read(read).write(write).append(append).truncate(truncate).create(create);
            let mut ours = OpenOptions::new();
            ours.engine(&rig.engine).write(write).append(append).truncate(truncate).create(create).read(read);
            let theirs = theirs.open("file").map(drop).map_err(|error| error.kind());
            let ours = ours.open("file").map(drop).map_err(|error| error.kind());
            assert_eq!(
                ours, theirs,
                "read {read}, write {write}, append {append}, truncate {truncate}, create {create}"
            );
        }
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).write(true);
        let file = options.open("file").unwrap();
        assert!(!file.is_direct() && format!("{file:?}").contains("read: false"), "{file:?}");
        assert_unreadable(&file);
        assert_eq!(kind_of(options.io(IoMode::Direct).open("file")), ErrorKind::PermissionDenied);
        let given = fs::OpenOptions::new().write(true).open("file").unwrap();
        let given = OpenOptions::new().engine(&rig.engine).open_std(given).unwrap();
        given.write_all_at(b"given", 0).unwrap();
        assert_unreadable(&given);
        drop((file, given));
        rig.assert_idle();
    });
}

/// Goal: what is written in any way is in the file, at its place, and nothing else is changed; a handle of the same engine that reads the file sees
/// it at once, and what such a handle writes stays. Method: random operations through a handle that only writes, beside one with a descriptor from
/// before the rights were given up, against a vector.
#[test]
fn every_way_of_writing_agrees_with_a_vector() {
    let Some(directory) = for_all() else { return };
    let name = "only_written::every_way_of_writing_agrees_with_a_vector";
    let compare = |seed| {
        for kind in drivers(seed) {
            let path = directory.path().join("file");
            fs::write(&path, vec![b'-'; 20_000]).unwrap();
            let given = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
            run_forked(|| {
                give_up_rights(directory.path());
                let rig = Rig::new(kind);
                let mut options = OpenOptions::new();
                let both = options.engine(&rig.engine).open_std(given).unwrap();
                let written = options.write(true).open("file").unwrap();
                let (mut rng, mut model) = (Rng::new(seed), vec![b'-'; 20_000]);
                for step in 0..300 {
                    change(&mut rng, &mut model, (&written, &both));
                    let mut found = vec![0; model.len() + 1];
                    assert_eq!(both.read_at(&mut found, 0).unwrap(), model.len(), "length after step {step}");
                    assert!(found[..model.len()] == model, "bytes after step {step}");
                }
                written.sync_all().unwrap();
                drop((written, both));
                rig.assert_idle();
                fs::write("expected", model).unwrap();
            });
            assert!(fs::read(&path).unwrap() == fs::read(directory.path().join("expected")).unwrap());
        }
    };
    in_a_process_of_its_own(name, || with_seed(name, compare));
}

/// Goal: a log that a program may add to and not read takes records in every way, alone and durably.
#[test]
fn logs_are_appended_to() {
    let Some(directory) = for_all() else { return };
    run_forked(|| {
        give_up_rights(directory.path());
        let rig = Rig::sim(2);
        let mut options = OpenOptions::new();
        let log = options.engine(&rig.engine).append(true).open("file").unwrap();
        assert_unreadable(&log);
        assert_eq!(log.append(b"one\n").unwrap(), 9);
        assert_eq!(log.append_durable(b"two\n").unwrap(), 13);
        assert_eq!(block_on(log.append_async("three\n")).unwrap(), 17);
        let mut writer = log.writer();
        writer.write_all(b"four\n").unwrap();
        writer.flush().unwrap();
        assert_eq!(log.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::InvalidInput);
        let positioned = options.append(false).write(true).open("file").unwrap();
        assert_eq!(positioned.append_durable(b"five\n").unwrap(), 28);
        assert_eq!(log.len().unwrap(), 33);
        drop((log, writer, positioned));
        rig.assert_idle();
    });
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"contents\none\ntwo\nthree\nfour\nfive\n");
}

/// One change by the handle that only writes, or rarely by the other.
fn change(rng: &mut Rng, model: &mut Vec<u8>, (written, both): (&File, &File)) {
    let (at, length, byte) = (rng.below(40_000), 1 + rng.below(9_000) as usize, b'a' + rng.below(26) as u8);
    let bytes = vec![byte; length];
    let put = |model: &mut Vec<u8>, at: usize| {
        model.resize(model.len().max(at + length), 0);
        model[at..at + length].fill(byte);
    };
    match rng.below(8) {
        0 => {
            let end = model.len();
            assert_eq!(written.append(&bytes).unwrap(), end as u64);
            put(model, end);
        }
        1 => {
            written.set_len(at).unwrap();
            model.resize(at as usize, 0);
        }
        2 => {
            written.punch_hole(at..at + length as u64).unwrap();
            let end = model.len().min(at as usize + length);
            model[(at as usize).min(end)..end].fill(0);
        }
        3 => {
            both.write_all_at(&bytes, at).unwrap();
            put(model, at as usize);
        }
        4 => {
            block_on(written.write_all_at_async(bytes, at)).unwrap();
            put(model, at as usize);
        }
        _ => {
            written.write_all_at(&bytes, at).unwrap();
            put(model, at as usize);
        }
    }
}

fn assert_unreadable(file: &File) {
    let mut byte = [0];
    assert_eq!(kind_of(file.read_at(&mut byte, 0)), ErrorKind::PermissionDenied);
    assert_eq!(kind_of(block_on(file.read_at_async(0, 1))), ErrorKind::PermissionDenied);
    assert_eq!(kind_of(file.view(0, 1)), ErrorKind::PermissionDenied);
    assert_eq!(kind_of(block_on(file.view_async(0, 1))), ErrorKind::PermissionDenied);
    assert_eq!(kind_of(file.peek(0)), ErrorKind::PermissionDenied);
    assert_eq!(kind_of(file.map(..)), ErrorKind::PermissionDenied);
    assert_eq!(kind_of(file.will_need(&[])), ErrorKind::PermissionDenied);
    assert_eq!(kind_of(file.read_many(&mut [ManyRead::new(0, &mut byte)])), ErrorKind::PermissionDenied);
    let read = std::io::Read::read(&mut file.reader(), &mut byte);
    assert_eq!(read.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

fn kind_of<T>(outcome: headwater::Result<T>) -> ErrorKind {
    outcome.map(drop).expect_err("it is refused").kind()
}

/// A directory that all users may search and write to, with a file in it that all may write, and only root read.
pub(crate) fn for_all() -> Option<ScratchDir> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can give up its rights");
        return None;
    }
    let directory = ScratchDir::on_target().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "contents\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o222)).unwrap();
    Some(directory)
}

/// As a user without rights, in the directory: those above it may be closed to that user.
pub(crate) fn give_up_rights(directory: &Path) {
    std::env::set_current_dir(directory).unwrap();
    let user = rustix::process::Uid::from_raw(65_534);
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
    assert!(fs::File::open(Path::new("file")).is_err(), "the file can be read");
}
