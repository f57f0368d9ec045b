//! Cp access: the permissions and access control lists of copies.
//!
//! Owns: those that a directory gives to what is made in it, those that are kept.
//! Does not own: the umask alone (cp), special bits (cp_tree).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use headwater_testkit::{FileSystem, LoopMount, ScratchDir, lack, skip};

use crate::cp_tree::{listing, make_tree};
use crate::{copy_command, run, text, utf8};

/// The name of an access control list, and of one that a directory gives to what is made in it.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// A list in which the file's owner and this user may do everything, its group and others nothing.
fn list_for(user: u32) -> Vec<u8> {
    list(&[(OWNER, 7, NONE), (USER, 7, user), (GROUP_OF_FILE, 0, NONE), (MASK, 7, NONE), (OTHERS, 0, NONE)])
}

/// A list in the kernel's form (`linux/posix_acl_xattr.h`), of tags, permissions, and users or groups.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for &(tag, permissions, id) in entries {
        bytes.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 200];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

/// Goal: with -a directories, files and FIFOs have the access control lists and extended attributes of their sources, and no others: none
/// that the directory they are copied to would give them.
#[test]
fn access_is_that_of_the_source() {
    let scratch = ScratchDir::on_target().unwrap();
    let (from, into) = (scratch.path().join("from"), scratch.path().join("into"));
    make_tree(&from);
    fs::create_dir(&into).unwrap();
    let has_lists = LISTS.iter().all(|name| set_attribute(&into, name, &list_for(1234)))
        && ["a/b", "a/one", "a/fifo"]
            .iter()
            .all(|name| set_attribute(&from.join(name), LISTS[0], &list_for(99)))
        && set_attribute(&from.join("a/b"), LISTS[1], &list_for(98));
    if !has_lists || !set_attribute(&from.join("a/b"), "user.headwater", b"7") {
        return skip("no access control lists here");
    }
    for options in [&["-a"][..], &["-rp"], &["-r", "--preserve=mode,xattr"]] {
        let to = into.join("to");
        let output = run(&[&["cp"], options, &[utf8(&from), utf8(&to)]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(listing(&to), listing(&from), "{options:?}");
        for name in [".", "a", "a/b", "a/b/empty", "a/one", "a/b/two", "a/fifo"] {
            let lists = |top: &Path| LISTS.map(|list| attribute(&top.join(name), list));
            assert_eq!(lists(&to), lists(&from), "{name} with {options:?}");
        }
        assert_eq!(attribute(&to.join("a/b"), "user.headwater").as_deref(), Some(&b"7"[..]), "{options:?}");
        fs::remove_dir_all(&to).unwrap();
    }
}

/// Goal: a copy is open to no more than the directory's default list says, which takes the place of the umask: a new file or directory, of
/// any kind of source. Method: lists with and without further entries, a source that others may read and one that its group may write, and
/// the modes and lists that GNU cp leaves.
#[test]
fn access_is_that_of_the_directory() {
    let scratch = ScratchDir::on_target().unwrap();
    let from = scratch.path().join("from");
    fs::create_dir_all(from.join("directory/inner")).unwrap();
    for (name, mode) in [("file", 0o644), ("directory/file", 0o664), ("run", 0o755), ("empty", 0o666)] {
        fs::write(from.join(name), name).unwrap();
        fs::set_permissions(from.join(name), Permissions::from_mode(mode)).unwrap();
    }
    // Directories that only their owners write to: GNU cp takes more from others than the list does.
    for (name, mode) in [("", 0o755), ("directory", 0o755), ("directory/inner", 0o1755)] {
        fs::set_permissions(from.join(name), Permissions::from_mode(mode)).unwrap();
    }
    let lists: [&[(u16, u16, u32)]; 4] = [
        &[(OWNER, 7, NONE), (GROUP_OF_FILE, 0, NONE), (OTHERS, 0, NONE)],
        &[(OWNER, 7, NONE), (GROUP_OF_FILE, 7, NONE), (OTHERS, 7, NONE)],
        &[(OWNER, 7, NONE), (GROUP_OF_FILE, 5, NONE), (GROUP, 7, 1234), (MASK, 7, NONE), (OTHERS, 0, NONE)],
        &[(OWNER, 5, NONE), (GROUP_OF_FILE, 7, NONE), (GROUP, 7, 1234), (MASK, 4, NONE), (OTHERS, 4, NONE)],
    ];
    for (index, entries) in lists.into_iter().enumerate() {
        let copied = |command: &str, options: &str| {
            let into = scratch.path().join(format!("into-{index}"));
            fs::create_dir(&into).unwrap();
            if !set_attribute(&into, LISTS[1], &list(entries)) {
                return None;
            }
            let sources = "from/file from/run from/empty";
            let script = format!(
                "umask 022; {command} {sources} into-{index} && {command} -r {options} from into-{index} \
                 && {command} from/file into-{index}/from/again && head -c 9 from/run | {command} /dev/stdin into-{index}/stream"
            );
            let mut shell = Command::new("sh");
            let output = shell.args(["-c", &script]).current_dir(scratch.path()).output().unwrap();
            assert!(output.status.success(), "{command}: {}", text(&output.stderr));
            let names = listing(&into).into_iter().map(|line| line.split(' ').next().unwrap().to_owned());
            let found = names.map(|name| {
                let path = into.join(&name);
                let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
                let lists = LISTS.map(|list| attribute(&path, list).map(|bytes| format!("{bytes:?}")));
                format!("{name} {mode:o} {lists:?}")
            });
            let found: Vec<String> = found.collect();
            fs::remove_dir_all(&into).unwrap();
            Some(found)
        };
        for options in ["", "--preserve=timestamps", "--preserve=ownership"] {
            let ours = copied(&format!("{} cp", env!("CARGO_BIN_EXE_headwater")), options);
            if ours.is_none() {
                return skip("no access control lists here");
            }
            // GNU cp opens what is to keep its owner to all that the umask lets in.
            assert_eq!(ours, copied("cp", ""), "{options} with list {index}");
        }
    }
}

/// Tags of entries (`acl(5)`).
const OWNER: u16 = 0x01;

const USER: u16 = 0x02;

const GROUP_OF_FILE: u16 = 0x04;

const GROUP: u16 = 0x08;

const MASK: u16 = 0x10;

const OTHERS: u16 = 0x20;

/// Of an entry that is of no user or group by number.
const NONE: u32 = u32::MAX;

/// Goal: an extended attribute that is too large for the file system of the copy is left out where all that can be kept is, and named where
/// attributes were asked for. Method: 8 KiB, which XFS takes and ext4 does not.
#[test]
fn an_attribute_that_does_not_fit() {
    let mounts = [(FileSystem::Xfs, 300 << 20), (FileSystem::Ext4, 32 << 20)].map(|(kind, size_bytes)| {
        LoopMount::new(kind, size_bytes).map_err(|reason| format!("{}: {reason}", kind.name()))
    });
    let [large, small] = match mounts {
        [Ok(large), Ok(small)] => [large, small],
        [Err(reason), _] | [_, Err(reason)] => return skip(reason),
    };
    let (from, to) = (large.path().join("from"), small.path().join("to"));
    fs::write(&from, "contents").unwrap();
    assert!(set_attribute(&from, "user.large", &[7; 8 << 10]));
    assert!(set_attribute(&from, "user.small", b"7"));
    let output = run(&["cp", "-a", utf8(&from), utf8(&to)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&to).unwrap(), "contents");
    assert_eq!(attribute(&to, "user.small").as_deref(), Some(&b"7"[..]));
    let output = run(&["cp", "--preserve=xattr", utf8(&from), utf8(&to)]);
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("user.large"), "{error}");
}

/// Goal: where a file system gives files to an owner of its own choice, files and directories are copied, and keep what they can. Method: a
/// FAT that is another user's; a mirror in which all files are.
#[test]
fn files_of_another_owner() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    ["mount", "mirrored"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    [folder.path(), &at("mirrored")]
        .iter()
        .for_each(|path| fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap());
    fs::File::create(at("fat")).unwrap().set_len(32 << 20).unwrap();
    let is_done = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(folder.path());
        command.output().is_ok_and(|output| output.status.success())
    };
    let is_mounted =
        is_done("PATH=$PATH:/usr/sbin:/sbin mkfs.vfat fat && mount -o loop,umask=000,utf8 fat mount")
            || is_done("bindfs --force-user=root --perms=a+rwX -o allow_other mirrored mount");
    if !is_mounted {
        return lack("no FAT can be mounted here, and there is no bindfs");
    }
    copy_command(&at("headwater"));
    fs::create_dir_all(at("tree/a/b")).unwrap();
    fs::write(at("tree/a/b/two"), [7; 70_000]).unwrap();
    // FAT takes names of 255 characters, and no part of one.
    fs::write(at(&format!("tree/a{}", "ж".repeat(120))), "contents").unwrap();
    let copied = ["-r", "-rp"].map(|option| {
        let mut copy = Command::new(at("headwater"));
        copy.args(["cp", option, "tree", &format!("mount/to{option}")]).current_dir(folder.path());
        let output = copy.uid(65_534).gid(65_534).output().unwrap();
        let contents = fs::read(at(&format!("mount/to{option}/a/b/two"))).unwrap_or_default();
        (output.status.success(), text(&output.stderr), contents.len())
    });
    assert!(is_done("umount mount"));
    for found in copied {
        assert_eq!(found, (true, String::new(), 70_000));
    }
}

/// Goal: with -p a file is copied whose owner the user namespace does not have. Method: a namespace in which no user has a name.
#[test]
fn an_owner_that_the_namespace_does_not_have() {
    let scratch = ScratchDir::on_target().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::write(&from, "contents").unwrap();
    std::os::unix::fs::chown(&from, Some(12_345), Some(12_345)).ok();
    let mut copy = Command::new("unshare");
    copy.args(["-U", env!("CARGO_BIN_EXE_headwater"), "cp", "-p", utf8(&from), utf8(&to)]);
    let output = copy.output();
    if !Command::new("unshare").args(["-U", "true"]).status().is_ok_and(|status| status.success()) {
        return lack("no user namespaces here");
    }
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&to).unwrap(), "contents");
}
