//! Copies into a file that is there, where its directory takes no other file in its place.
//!
//! Owns: when that is done, what is kept of the file, what is said when it ends early.
//! Does not own: copies that replace a file (`cp`).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headwater_testkit::{FileSystem, LoopMount, Pattern, ScratchDir, skip, small_tmpfs};
use serde_json::Value;

use crate::{assert_one_line, copy_command, run, text, utf8};

const PATTERN: Pattern = Pattern::new(61);

const NOBODY: u32 = 65534;

/// A directory that all may enter, with the command in it, a source, and a folder of root's with a file that all may write to.
struct Place {
    directory: tempfile::TempDir,
    folder: PathBuf,
    from: PathBuf,
    to: PathBuf,
}

impl Place {
    fn new(length: u64) -> Option<Place> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can become somebody else");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        mode(directory.path(), 0o755);
        copy_command(&directory.path().join("headwater"));
        let (folder, from) = (directory.path().join("folder"), directory.path().join("from"));
        fs::create_dir(&folder).unwrap();
        let to = folder.join("to");
        PATTERN.write_file(&from, length).unwrap();
        fs::write(&to, vec![b'o'; 100_000]).unwrap();
        mode(&to, 0o666);
        Some(Place { directory, folder, from, to })
    }

    fn copy_as_nobody(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.directory.path().join("headwater"));
        command.arg("cp").args(arguments).uid(NOBODY).gid(NOBODY).output().unwrap()
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn assert_copied(output: &Output, path: &Path, length: u64, case: &str) {
    assert!(output.status.success(), "{case}: {}", text(&output.stderr));
    let bytes = fs::read(path).unwrap();
    assert_eq!((bytes.len() as u64, PATTERN.mismatch(0, &bytes)), (length, None), "{case}");
}

/// Goal: a file that may be written to is overwritten where its directory is read-only, or sticky and another's; it stays the file
/// that it is, with its owner and permissions; shorter and longer than it was. Nothing else is left there.
#[test]
fn a_directory_that_takes_no_file() {
    for length in [0, 5000, (3 << 20) + 777] {
        let Some(place) = Place::new(length) else { return };
        for folder_mode in [0o755, 0o555, 0o1777] {
            mode(&place.folder, folder_mode);
            let before = fs::metadata(&place.to).unwrap();
            for options in [&[][..], &["--sync", "--verify"], &["--sparse", "never"], &["--reflink=never"]] {
                fs::write(&place.to, vec![b'o'; 100_000]).unwrap();
                let output = place.copy_as_nobody(&[options, &[utf8(&place.from), utf8(&place.to)]].concat());
                assert_copied(&output, &place.to, length, &format!("{folder_mode:o}, {options:?}"));
            }
            let after = fs::metadata(&place.to).unwrap();
            assert_eq!(
                (after.ino(), after.uid(), after.mode()),
                (before.ino(), before.uid(), before.mode()),
                "{folder_mode:o}"
            );
            assert_eq!(fs::read_dir(&place.folder).unwrap().count(), 1);
        }
        let output = place.copy_as_nobody(&["--json", utf8(&place.from), utf8(&place.to)]);
        let entries: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(entries[0]["in_place"], true);
    }
}

/// Goal: a file that something is mounted on has no other in its place, and is overwritten.
#[test]
fn a_file_that_is_a_mount_point() {
    let scratch = ScratchDir::on_target().unwrap();
    let (from, to, below) =
        (scratch.path().join("from"), scratch.path().join("to"), scratch.path().join("below"));
    PATTERN.write_file(&from, 5000).unwrap();
    fs::write(&to, "old").unwrap();
    fs::write(&below, "below").unwrap();
    match Command::new("mount").arg("--bind").args([&below, &to]).status() {
        Ok(status) if status.success() => {}
        other => return skip(format!("no bind mounts: {other:?}")),
    }
    let output = run(&["cp", utf8(&from), utf8(&to)]);
    let told = run(&["cp", "-v", utf8(&from), utf8(&to)]);
    assert!(Command::new("umount").arg(&to).status().unwrap().success());
    assert_copied(&output, &below, 5000, "a mount point");
    assert!(text(&told.stdout).ends_with(" (written in place)\n"), "{}", text(&told.stdout));
    assert_eq!(fs::read(&to).unwrap(), b"old");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3);
}

/// Goal: what cannot be kept of the source's attributes is said, after the contents; the file's owner can keep all.
#[test]
fn attributes_are_the_owners() {
    let Some(place) = Place::new(5000) else { return };
    mode(&place.from, 0o444);
    let arguments = ["--preserve", utf8(&place.from), utf8(&place.to)];
    let output = place.copy_as_nobody(&arguments);
    assert_one_line(&output, "its contents are those of the source, but not its permissions and times");
    assert_eq!(PATTERN.mismatch(0, &fs::read(&place.to).unwrap()), None);
    std::os::unix::fs::chown(&place.to, Some(NOBODY), Some(NOBODY)).unwrap();
    assert_copied(&place.copy_as_nobody(&arguments), &place.to, 5000, "as its owner");
    let (from, to) = (fs::metadata(&place.from).unwrap(), fs::metadata(&place.to).unwrap());
    assert_eq!((from.mode(), from.mtime_nsec()), (to.mode(), to.mtime_nsec()));
}

/// Goal: nothing is overwritten that would lose more than its contents, or its contents for nothing. Method: a file with two names,
/// one that may not be written to, one that is missing, a source that cannot be read, and too little room, which is known before.
#[test]
fn what_is_not_overwritten() {
    let Some(place) = Place::new(200_000) else { return };
    let refused = |arguments: &[&str], named: &str| {
        assert_one_line(&place.copy_as_nobody(arguments), named);
        assert!(fs::read(&place.to).is_ok_and(|bytes| bytes == vec![b'o'; 100_000]), "{named}");
    };
    let (from, to) = (utf8(&place.from), utf8(&place.to));
    refused(&[from, utf8(&place.folder.join("missing"))], "Permission denied");
    fs::hard_link(&place.to, place.folder.join("name")).unwrap();
    refused(&["--force", from, to], "Permission denied");
    fs::remove_file(place.folder.join("name")).unwrap();
    mode(&place.to, 0o444);
    refused(&[from, to], "it is write-protected");
    refused(&["--force", from, to], "Permission denied");
    mode(&place.to, 0o222);
    refused(&[from, to], "Permission denied");
    let small = match small_tmpfs(150 << 10) {
        Ok(small) => small,
        Err(reason) => return skip(reason),
    };
    let to = small.path().join("to");
    fs::write(&to, "old").unwrap();
    mode(&to, 0o666);
    mode(small.path(), 0o755);
    assert_one_line(&place.copy_as_nobody(&[from, utf8(&to)]), "are missing");
    assert_eq!(fs::read(&to).unwrap(), b"old");
}

/// Goal: a file keeps its contents if it is certain that cp cannot write the new ones. Method: too little room on a file system that shares no
/// blocks, for data and for holes that cp writes; --reflink=always there; a driver that does not exist; no /proc.
#[test]
fn nothing_is_emptied_in_vain() {
    let Some(place) = Place::new(2 << 20) else { return };
    let small = match small_tmpfs(160 << 10) {
        Ok(small) => small,
        Err(reason) => return skip(reason),
    };
    mode(small.path(), 0o755);
    let (folder, from, hole) = (small.path().join("d"), small.path().join("from"), small.path().join("hole"));
    fs::create_dir(&folder).unwrap();
    PATTERN.write_file(&from, 120_000).unwrap();
    fs::File::create(&hole).unwrap().set_len(10 << 20).unwrap();
    let to = folder.join("to");
    fs::write(&to, "old").unwrap();
    mode(&to, 0o666);
    let (source, target) = (utf8(&from), utf8(&to));
    for arguments in [
        &[source, target][..],
        &["--sparse=always", source, target],
        &["--sparse=never", utf8(&hole), target],
    ] {
        assert_one_line(&place.copy_as_nobody(arguments), "are missing");
        assert_eq!(fs::read(&to).unwrap(), b"old", "{arguments:?}");
    }
    assert_one_line(
        &place.copy_as_nobody(&["--reflink=always", source, target]),
        "its blocks cannot be shared",
    );
    assert_eq!(fs::read(&to).unwrap(), b"old");
    fs::remove_file(&from).unwrap();

    let (from, to) = (utf8(&place.from), utf8(&place.to));
    let mut command = Command::new(place.directory.path().join("headwater"));
    command.args(["cp", "--reflink=never", from, to]).uid(NOBODY).gid(NOBODY);
    let output = command.env("HEADWATER_DRIVER", "nonsense").output().unwrap();
    assert_one_line(&output, "no queue for its requests");
    assert!(fs::read(to).is_ok_and(|bytes| bytes == vec![b'o'; 100_000]), "no queue");
    let script = format!(
        "mount -t tmpfs tmpfs /proc && exec setpriv --reuid {NOBODY} --clear-groups {}/headwater cp {from} {to}",
        place.directory.path().display()
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    assert_one_line(&output, "cp needs /proc, which is not mounted");
    assert!(fs::read(to).is_ok_and(|bytes| bytes == vec![b'o'; 100_000]), "no /proc");
}

/// Goal: a file that is overwritten in place shares the source's blocks where the file system can, shorter and longer than it was, also where
/// the device has no room for a copy. Method: Btrfs, a source of more than half of it, lengths that end within a block and do not.
#[test]
fn blocks_are_shared_in_place() {
    let Some(place) = Place::new(1) else { return };
    let mount = match LoopMount::new(FileSystem::Btrfs, 200 << 20) {
        Ok(mount) => mount,
        Err(reason) => return skip(reason),
    };
    mode(mount.path(), 0o755);
    let [from, to] = ["from", "to"].map(|name| mount.path().join(name));
    for (length, before) in [(5000, 100_000), (8192, 100_000), (5000, 10), (110 << 20, 100_000)] {
        PATTERN.write_file(&from, length).unwrap();
        for reflink in ["--reflink=always", "--reflink=auto"] {
            fs::write(&to, vec![b'o'; before]).unwrap();
            mode(&to, 0o666);
            let output = place.copy_as_nobody(&["--json", reflink, utf8(&from), utf8(&to)]);
            assert_copied(&output, &to, length, &format!("{reflink}: {length} bytes over {before}"));
            let entries: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(
                (&entries[0]["shares_blocks"], &entries[0]["in_place"]),
                (&Value::Bool(true), &Value::Bool(true))
            );
        }
    }
}

/// Goal: a copy that ends early says that the file is neither the old nor the new one. Method: a source that opens, says it is
/// empty, and fails to be read.
#[test]
fn an_incomplete_copy_says_so() {
    let Some(place) = Place::new(1) else { return };
    let output = place.copy_as_nobody(&["/proc/self/mem", utf8(&place.to)]);
    assert_one_line(&output, "failed to read /proc/self/mem at byte 0");
    assert!(text(&output.stderr).contains("to is incomplete: it was written in place"), "{output:?}");
}
