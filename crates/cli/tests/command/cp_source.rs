//! Cp source: what is copied where symbolic links are not followed, and what a copy keeps of a source that this user may not write to.
//!
//! Owns: FIFOs and devices without -r, what comes in the place of a source meanwhile, attributes of read-only sources.
//! Does not own: trees (cp_tree), access control lists (cp_access).

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater_testkit::{ScratchDir, skip};
use rustix::fs::{CWD, RenameFlags, XattrFlags, getxattr, mkfifoat, renameat_with, setxattr};

use crate::{copy_command, run, text, utf8};

/// Goal: without -r, symbolic links alone are copied as what they are; a FIFO and a device are what they give.
#[test]
fn devices_are_what_they_give() {
    let scratch = ScratchDir::on_target().unwrap();
    let at = |name: &str| scratch.path().join(name);
    mkfifoat(CWD, at("fifo"), 0o600.into()).unwrap();
    for option in ["-P", "-d"] {
        let fifo = at("fifo");
        let writer = thread::spawn(move || fs::write(fifo, "given"));
        let output = run(&["cp", option, utf8(&at("fifo")), utf8(&at(option))]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(fs::symlink_metadata(at(option)).unwrap().is_file(), "{option} copies contents");
        writer.join().unwrap().unwrap();
        assert_eq!(fs::read(at(option)).unwrap(), b"given");
        let output = run(&["cp", option, "/dev/null", utf8(&at("none"))]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let copied = fs::symlink_metadata(at("none")).unwrap();
        assert!(copied.is_file() && copied.len() == 0, "{copied:?}");
    }
}

/// Goal: with -r nothing is copied that a symbolic link leads to, also if it takes the place of a file at any moment. Method: another thread
/// exchanges the two all the time.
#[test]
fn what_takes_the_place_of_a_source_is_not_copied() {
    let scratch = ScratchDir::on_target().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("from")).unwrap();
    fs::write(at("secret"), "secret").unwrap();
    fs::write(at("from/file"), "own").unwrap();
    symlink(at("secret"), at("link")).unwrap();
    let exchange = || renameat_with(CWD, at("from/file"), CWD, at("link"), RenameFlags::EXCHANGE);
    if exchange().is_err() {
        return skip("this file system does not exchange names");
    }
    let is_over = AtomicBool::new(false);
    let copies: Vec<_> = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                exchange().unwrap();
            }
        });
        let copy = |number: u32| {
            let to = at(&number.to_string());
            let output = run(&["cp", "-r", utf8(&at("from")), utf8(&to)]);
            (
                fs::read_link(to.join("file")).is_ok(),
                fs::read_to_string(to.join("file")),
                text(&output.stderr),
            )
        };
        let copies = (0..60).map(copy).collect();
        is_over.store(true, Ordering::Relaxed);
        copies
    });
    for (is_link, contents, said) in copies {
        match contents {
            Ok(contents) if !is_link => assert_eq!((&*contents, &*said), ("own", "")),
            Ok(_) => assert_eq!(said, ""),
            Err(_) => assert!(said.contains("another file has taken"), "{said}"),
        }
    }
}

/// Goal: a file and a directory that their owner may not write to keep their extended attributes. Method: as nobody, which only root can become.
#[test]
fn a_source_that_is_read_only_keeps_its_attributes() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become somebody else");
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    copy_command(&at("headwater"));
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("file"), "contents").unwrap();
    for (name, mode) in [("folder", 0o555), ("file", 0o444)] {
        if setxattr(at(name), "user.headwater", b"7", XattrFlags::empty()).is_err() {
            return skip("no extended attributes here");
        }
        chown(at(name), Some(65_534), Some(65_534)).unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    }
    for (name, options) in [("file", "-a"), ("folder", "-a"), ("file", "--preserve=mode,xattr")] {
        let to = at(&format!("{name}{options}"));
        let mut copy = Command::new(at("headwater"));
        copy.args(["cp", options, utf8(&at(name)), utf8(&to)]).uid(65_534).gid(65_534);
        let output = copy.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut value = [0; 8];
        assert_eq!(getxattr(&to, "user.headwater", &mut value), Ok(1), "{name} {options}");
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(to), mode(at(name)));
    }
}
