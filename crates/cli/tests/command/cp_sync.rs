//! Cp sync: what `--sync` makes durable, and the calls of a copy as `strace` shows them.
//!
//! Owns: which files and directories are synced, and when; the moment between two names.
//! Does not own: whether a device keeps what it was given.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use headwater_testkit::{ScratchDir, lack};

use crate::cp_tree::make_tree;
use crate::{text, utf8};

/// Goal: with --sync all that a copy has made is durable: files with their attributes, directories after all that was made in them and
/// after their attributes, and the directory that holds the copy. Method: the calls that `strace` shows; whatever changes something is
/// followed by a sync of what it changed, or of the directory of a name.
#[test]
fn all_that_was_made_is_synced() {
    let scratch = ScratchDir::on_target().unwrap();
    let base = scratch.path().canonicalize().unwrap();
    let from = base.join("from");
    make_tree(&from);
    fs::hard_link(from.join("a/one"), from.join("one")).unwrap();
    fs::create_dir(base.join("into")).unwrap();
    let [link, fifo, one, other] = ["a/link", "a/fifo", "a/one", "one"].map(|name| from.join(name));
    let tree = ["", "top", "top/a", "top/a/b", "top/a/b/empty"];
    let cases: [(&[&str], &str, &[&str]); 7] = [
        (&["-r", utf8(&from)], "top", &tree),
        (&["-a", utf8(&from)], "archive", &["", "archive", "archive/a/b/empty"]),
        (&["-rp", utf8(&from)], "into", &["into", "into/from", "into/from/a/b/empty"]),
        (&["-P", utf8(&link)], "link", &[""]),
        (&["-rp", utf8(&fifo)], "into/fifo", &["into"]),
        (&["-d", utf8(&one), utf8(&other)], "into", &["into"]),
        (&["--preserve=all", "/dev/null"], "empty", &[""]),
    ];
    for (arguments, to, directories) in cases {
        let trace = base.join("trace");
        let mut traced = Command::new("strace");
        traced.args(["-f", "-y", "-s", "4096", "-e", CALLS, "-o", utf8(&trace)]);
        traced.args([env!("CARGO_BIN_EXE_headwater"), "cp", "--sync"]).args(arguments);
        let Ok(output) = traced.arg(base.join(to)).output() else {
            return lack("strace is not installed");
        };
        let said = text(&output.stderr);
        if said.starts_with("strace: ") {
            return lack(format!("strace may not trace: {said}"));
        }
        assert!(output.status.success(), "{said}");
        let calls = fs::read_to_string(&trace).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        for directory in directories {
            assert_synced(utf8(&base.join(directory)).trim_end_matches('/'), &calls, arguments);
        }
        // Files without a name have numbers.
        let mut last_of_file = HashMap::new();
        for call in calls.iter().filter(|call| call.contains("/#") && (is_change(call) || is_sync(call))) {
            last_of_file.insert(call.split(['<', '>']).nth(1).unwrap(), call);
        }
        assert!(last_of_file.values().all(|last| is_sync(last)), "{arguments:?}: {calls:#?}");
    }
}

/// Goal: a signal that comes while a copy has a name of its own, before it takes that of the file that it replaces, leaves none of both. Method:
/// `strace` sends it with the call that gives the first name.
#[test]
fn no_name_is_left_between_two() {
    let scratch = ScratchDir::on_target().unwrap();
    let [from, to] = ["from", "to"].map(|name| scratch.path().join(name));
    fs::write(&from, "new").unwrap();
    fs::write(&to, "old").unwrap();
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=linkat", "-e", "inject=linkat:signal=SIGINT:when=1"]);
    let Ok(output) = traced.args([env!("CARGO_BIN_EXE_headwater"), "cp", utf8(&from), utf8(&to)]).output()
    else {
        return lack("strace is not installed");
    };
    let said = text(&output.stderr);
    if said.starts_with("strace: ") {
        return lack(format!("strace may not trace: {said}"));
    }
    if !said.contains("linkat(") {
        return lack("no files without a name here");
    }
    assert!(said.contains("killed by SIGINT"), "{said}");
    let mut names: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["from", "to"]);
    assert_eq!(fs::read_to_string(&to).unwrap(), "new");
}

/// A directory is synced after the last change of it, and of names in it.
fn assert_synced(directory: &str, calls: &[&str], arguments: &[&str]) {
    let is_of = |call: &str| call.contains(&format!("<{directory}>"));
    let is_within =
        |call: &str| call.split('"').any(|path| Path::new(path).parent() == Some(Path::new(directory)));
    let last = |wanted: &dyn Fn(&str) -> bool| calls.iter().rposition(|call| wanted(call));
    let synced = last(&|call| is_sync(call) && is_of(call));
    let changed = last(&|call| is_change(call) && is_of(call) || !is_sync(call) && is_within(call));
    assert!(synced.is_some() && synced > changed, "{directory} with {arguments:?}: {calls:#?}");
}

/// Those that make and change files, and that make changes durable.
const CALLS: &str = "fsync,fdatasync,?mkdir,mkdirat,?mknod,mknodat,?link,linkat,?symlink,symlinkat,?rename,renameat,renameat2,\
     ?chmod,fchmod,fchmodat,?chown,?lchown,fchown,fchownat,utimensat,setxattr,lsetxattr,fsetxattr";

fn is_change(call: &str) -> bool {
    ["fchmod(", "fchown(", "utimensat(", "fsetxattr("].iter().any(|name| call.contains(name))
}

fn is_sync(call: &str) -> bool {
    ["fsync(", "fdatasync("].iter().any(|name| call.contains(name))
}
