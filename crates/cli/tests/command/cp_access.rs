//! Cp access: the permissions and access control lists of copies.
//!
//! Owns: those that a directory gives to what is made in it, those that are kept.
//! Does not own: the umask alone (cp), special bits (cp_tree).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use headwater_testkit::{ScratchDir, skip};

use crate::cp_tree::{listing, make_tree};
use crate::{run, text, utf8};

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
