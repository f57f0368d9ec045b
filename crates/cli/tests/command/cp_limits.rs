//! Copy at its limits: what comes into being meanwhile, streams, what a file system does not have.
//!
//! Owns: what is kept, refused or passed over then, and how that is said.
//! Does not own: contents and holes of ordinary files (`cp`).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use headwater_testkit::{forbid_nameless_files, run_self_with_env, skip, small_tmpfs};

use crate::cp::{copy, names_in, paths, scratch};
use crate::{assert_one_line, headwater, run, text, utf8};

/// Goal: -n replaces nothing, not even what came into being while it copied, and passes over it as over what was there before. Method: a
/// file in the place of the copy of a FIFO, of which more was taken in than a pipe holds; with files without a name and without.
#[test]
fn what_comes_into_being_is_not_replaced() {
    const CHILD: &str = "HEADWATER_CP_NAMED";
    let is_named = std::env::var_os(CHILD).is_some();
    if is_named {
        forbid_nameless_files();
    } else {
        let output = run_self_with_env("cp_limits::what_comes_into_being_is_not_replaced", CHILD, "1");
        assert!(output.status.success(), "{output:?}");
    }
    let scratch = scratch();
    let [fifo, to] = ["fifo", "to"].map(|name| scratch.path().join(name));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    for options in [&["-n"][..], &["-n", "-f", "-v"]] {
        let child =
            headwater().arg("cp").args(options).args([&fifo, &to]).stdout(Stdio::piped()).spawn().unwrap();
        let mut writer = File::options().write(true).open(&fifo).unwrap();
        std::io::Write::write_all(&mut writer, &vec![b'x'; 1 << 20]).unwrap();
        fs::write(&to, "precious").unwrap();
        drop(writer);
        let output = child.wait_with_output().unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"precious", "named: {is_named}");
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert_eq!(names_in(scratch.path()), ["fifo", "to"]);
        fs::remove_file(&to).unwrap();
    }
}

/// Goal: what cannot be done with a stream is refused, and holes are made of its zeros. Method: a FIFO of zeros around a byte.
#[test]
fn options_hold_for_streams() {
    let scratch = scratch();
    let [fifo, to] = ["fifo", "to"].map(|name| scratch.path().join(name));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let shared = run(&["cp", "--reflink=always", "/dev/null", utf8(&to)]);
    assert_one_line(&shared, "no blocks that could be shared");
    let mut contents = vec![0; 8 << 20];
    contents[3 << 20] = 1;
    for (option, least, most) in [("--sparse=always", 0, 1 << 20), ("--sparse=auto", 8 << 20, 1 << 30)] {
        let mut child = headwater().args(["cp", option]).args([&fifo, &to]).spawn().unwrap();
        fs::write(&fifo, &contents).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(fs::read(&to).unwrap(), contents, "{option}");
        let taken = fs::metadata(&to).unwrap().blocks() * 512;
        assert!((least..=most).contains(&taken), "{option}: {taken}");
    }
}

/// Goal: errors of streams name the side and what is left: no room in which directory, an incomplete file that was written in place.
#[test]
fn errors_of_streams_name_the_side() {
    let full = match small_tmpfs(1 << 20) {
        Ok(full) => full,
        Err(reason) => return skip(reason),
    };
    let to = full.path().join("to");
    let said = format!("failed to write {}: no space left in {}", utf8(&to), utf8(full.path()));
    assert_one_line(&run(&["cp", "/dev/zero", utf8(&to)]), &said);
    assert_eq!(names_in(full.path()), [""; 0]);
}

/// Goal: with -p the copy has the time of the source's last access, also when --verify has read it since.
#[test]
fn verifying_is_no_access() {
    let scratch = scratch();
    let (from, to) = paths(&scratch, 9 << 20);
    let before = SystemTime::now() - Duration::from_secs(100_000);
    for options in [&["-p", "--verify"][..], &["-a", "--verify", "--sync"]] {
        File::open(&from)
            .unwrap()
            .set_times(fs::FileTimes::new().set_accessed(before).set_modified(before))
            .unwrap();
        copy(&[options, &[utf8(&from), utf8(&to)]].concat());
        assert_eq!(fs::metadata(&to).unwrap().accessed().unwrap(), before, "{options:?}");
    }
}

/// Goal: -p copies to a file system without extended attributes, and a list that names them does not. Method: ramfs.
#[test]
fn what_is_kept_may_be_missing() {
    let scratch = scratch();
    let (from, to) = paths(&scratch, 100);
    if rustix::fs::setxattr(&from, "user.headwater", b"x", rustix::fs::XattrFlags::empty()).is_err() {
        return skip("no extended attributes here");
    }
    let mounted = scratch.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    match Command::new("mount").args(["-t", "ramfs", "none"]).arg(&mounted).output() {
        Ok(output) if output.status.success() => {}
        refused => return skip(format!("no ramfs: {refused:?}")),
    }
    let results = ["-p", "--preserve", "--preserve=xattr"]
        .map(|option| run(&["cp", option, utf8(&from), utf8(&mounted.join("to"))]));
    assert!(Command::new("umount").arg(&mounted).status().unwrap().success());
    for (output, succeeds) in results.iter().zip([true, true, false]) {
        assert_eq!(output.status.success(), succeeds, "{output:?}");
    }
    // Shortened, a value is one that the help shows.
    copy(&["--preserve=m", utf8(&from), utf8(&to)]);
}

/// Goal: without /proc it is said what is missing. Method: a process that sees another file system there.
#[test]
fn proc_is_needed() {
    let scratch = scratch();
    let (from, to) = paths(&scratch, 100);
    let program = env!("CARGO_BIN_EXE_headwater");
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh", program, "cp"]);
    let output = shell.args([&from, &to]).output();
    match output {
        Ok(output) if text(&output.stderr).starts_with("headwater: ") => {
            assert_one_line(&output, "cp needs /proc, which is not mounted");
            assert_eq!(names_in(scratch.path()), ["from"]);
        }
        other => skip(format!("no mounts of one's own: {other:?}")),
    }
}
