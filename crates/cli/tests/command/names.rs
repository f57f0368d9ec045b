//! Names: no name of a file sends a command to a terminal, whatever is said of the file.
//!
//! Owns: names with escape sequences and line feeds, in every command that takes names.
//! Does not own: what the commands do with files of such names otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use headwater_testkit::{ScratchDir, lack};
use serde_json::Value;

use crate::{headwater, text};

/// Sets the title of a terminal; more would look like a line of its own.
const NAME: &str = "odd \x1b]0;x\x07\nname";

/// As a shell reads it.
const QUOTED: &str = r"odd \x1B]0;x\x07\nname'";

fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    headwater().current_dir(folder).args(arguments).stdin(Stdio::null()).output().expect("the binary starts")
}

/// What was said without a command to the terminal, and with the name as a shell takes it.
fn assert_quoted(said: &[u8], command: &str) -> String {
    let said = text(said);
    let is_command = |character: char| character.is_control() && character != '\n';
    assert!(!said.chars().any(is_command), "{command}: {said:?}");
    assert!(said.contains(QUOTED), "{command}: {said}");
    said
}

fn scratch() -> (ScratchDir, PathBuf) {
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join(NAME);
    fs::write(&path, "contents").unwrap();
    (scratch, path)
}

/// Goal: every error message quotes the name, in one line. Method: names of nothing, of a directory, of a list without sums, as a
/// source and as a destination, for every command that takes one; and a name that looks like an option.
#[test]
fn errors_quote_names() {
    let scratch = ScratchDir::on_target().unwrap();
    fs::create_dir(scratch.path().join("folder")).unwrap();
    fs::write(scratch.path().join("file"), "").unwrap();
    let missing: [&[&str]; 9] = [
        &["stat", NAME],
        &["cat", NAME],
        &["scan", NAME],
        &["scan", "--check", NAME],
        &["cp", NAME, "folder"],
        &["cp", "file", "file", NAME],
        &["cp", "file", "missing/odd \x1b]0;x\x07\nname"],
        &["tune", NAME],
        &["trace", "replay", "--cache", "1M", NAME],
    ];
    let check = |arguments: &[&str]| {
        let output = run_in(scratch.path(), arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let said = assert_quoted(&output.stderr, &format!("{arguments:?}"));
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    missing.into_iter().for_each(check);
    fs::create_dir(scratch.path().join(NAME)).unwrap();
    let directory: [&[&str]; 5] = [
        &["stat", NAME],
        &["cat", NAME],
        &["cp", NAME, "copy"],
        &["scan", "--check", NAME],
        &["trace", "replay", "--cache", "1M", NAME],
    ];
    directory.into_iter().for_each(check);
    for option in ["--\x1b]0;x\x07", "-\u{9b}2J"] {
        let output = run_in(scratch.path(), &["stat", option]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && !said.trim_end().chars().any(char::is_control), "{said:?}");
    }
}

/// Goal: text about a file quotes its name; JSON has the name itself.
#[test]
fn reports_quote_names() {
    let (scratch, _) = scratch();
    let output = run_in(scratch.path(), &["stat", NAME]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_quoted(&output.stdout, "stat");
    let output = run_in(scratch.path(), &["cp", "--verify", NAME, "copy"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_quoted(&output.stdout, "cp --verify");
    for arguments in [&["stat", "--json", NAME][..], &["scan", "--json", NAME]] {
        let output = run_in(scratch.path(), arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let entries = document.get("files").unwrap_or(&document);
        assert_eq!(entries[0]["path"], NAME);
    }
    let output = run_in(scratch.path(), &["cat", NAME]);
    assert_eq!(text(&output.stdout), "contents");
}

/// Goal: a list of sums is the same as that of `sha256sum`, which verifies it, as this command verifies the other.
#[test]
fn lists_keep_names() {
    let (scratch, path) = scratch();
    let list = run_in(scratch.path(), &["scan", "--hash", "sha256", NAME]);
    assert!(list.status.success(), "{}", text(&list.stderr));
    fs::write(scratch.path().join("list"), &list.stdout).unwrap();
    let verify = || run_in(scratch.path(), &["scan", "--hash", "sha256", "--check", "list"]);
    let verified = verify();
    assert_eq!(text(&verified.stdout), "\\odd \x1b]0;x\x07\\nname: OK\n", "{}", text(&verified.stderr));
    let run_tool = |arguments: &[&str]| {
        let mut tool = std::process::Command::new("sha256sum");
        tool.current_dir(scratch.path()).args(arguments).output()
    };
    match run_tool(&["--", NAME]) {
        Ok(theirs) => {
            assert_eq!(text(&theirs.stdout), text(&list.stdout));
            assert!(run_tool(&["--check", "list"]).unwrap().status.success());
        }
        Err(error) => lack(format!("sha256sum: {error}")),
    }
    fs::remove_file(path).unwrap();
    let gone = verify();
    assert!(!gone.status.success());
    assert_quoted(&gone.stderr, "scan --check");
}

/// Goal: JSON says of a name that is no UTF-8 what its bytes are, in every command that names files, and of any other name its text alone.
#[test]
fn json_loses_no_name() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let scratch = ScratchDir::on_target().unwrap();
    let odd = OsStr::from_bytes(b"odd \xff");
    let (bytes, lossy) = (serde_json::json!(odd.as_bytes()), odd.to_string_lossy());
    if fs::write(scratch.path().join(odd), vec![7; 1 << 20]).is_err() {
        return lack("the file system has names of UTF-8 only");
    }
    let json = |arguments: &[&OsStr], name: &OsStr| -> Value {
        let mut command = headwater();
        command.current_dir(scratch.path()).args(arguments).arg(name).env("HEADWATER_PROFILES", "off");
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        let said = if arguments[0] == "cat" { output.stderr } else { output.stdout };
        serde_json::from_slice(&said).unwrap_or_else(|error| panic!("{error}: {}", text(&said)))
    };
    let words = |words: &'static str| words.split(' ').map(OsStr::new).collect::<Vec<_>>();
    for (line, pointer) in [
        ("stat --json", "/0"),
        ("cat --json", "/0"),
        ("scan --json", "/files/0"),
        ("doctor --json", ""),
        ("tune --json --dry-run --seconds 1", ""),
        ("bench alignment --json --ops 1 --rounds 1 --file", ""),
    ] {
        let results = json(&words(line), odd);
        let entry = results.pointer(pointer).unwrap();
        assert_eq!((&entry["path"], &entry["path_bytes"]), (&(*lossy).into(), &bytes), "{line}");
    }
    let copied = json(&[&words("cp --json")[..], &[odd]].concat(), OsStr::new("copy"));
    assert_eq!((&copied[0]["source_bytes"], &copied[0]["destination"]), (&bytes, &"copy".into()));
    assert!(copied[0].get("destination_bytes").is_none(), "{copied}");
    assert!(json(&words("stat --json"), OsStr::new("copy"))[0].get("path_bytes").is_none());
}
