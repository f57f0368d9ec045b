//! Streams: what the program does with a standard output that is full or closed, and with a reader that leaves.
//!
//! Owns: that results are not lost without a word, and that nothing is measured for a reader that is not there.
//! Does not own: which results there are (see `smoke`), what a killed run leaves (see `folders`).

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// In a folder that has the file `in`. The shell redirects as `streams` says, and then becomes the program.
fn run_with(streams: &str, arguments: &str, folder: &Path) -> Output {
    let line = format!("exec \"$PROGRAM\" {arguments} {streams}");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).current_dir(folder).env("PROGRAM", env!("CARGO_BIN_EXE_headwater-bench"));
    shell.stdin(Stdio::null()).output().expect("there is a shell")
}

/// The same with a pipe that nothing reads.
fn run_unread(arguments: &str, folder: &Path) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let program = env!("CARGO_BIN_EXE_headwater-bench");
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).current_dir(folder).stdout(writer).output().unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in"), vec![b'x'; 300_000]).unwrap();
    folder
}

/// One line that names what is wrong, and the code of a failure.
#[track_caller]
fn assert_one_line(output: &Output, what: &str, named: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{what}: {said}");
    assert!(said.starts_with("headwater-bench: ") && said.contains(named), "{what}: {said}");
    assert_eq!(output.status.code(), Some(1), "{what}: {said}");
}

#[track_caller]
fn assert_only_input_is_left(folder: &Path, what: &str) {
    let left: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["in"], "{what}");
}

/// Goal: no results are lost without a word, and nothing is begun that cannot be printed. Method: every command with standard output
/// closed, and with one that was opened for reading; it would complain of its place next.
#[test]
fn a_closed_output_is_an_error() {
    let folder = folder();
    let commands = [
        "bars --file /nowhere",
        "nop --dir /nowhere",
        "cache --dir /nowhere",
        "log --dir /nowhere",
        "peers --dir /nowhere",
        "peers --dir /nowhere --json",
        "amplify --dir /nowhere",
        "windows --dir /nowhere",
        "store --dir /nowhere",
        "examples --dir /nowhere",
        "figures --root /nowhere",
        "guest --require --cache-dir /dev/null/nowhere",
        "old-kernel --require --cache-dir /dev/null/nowhere",
        "--help",
        "help log",
        "log --help",
        "--version",
    ];
    for closed in [">&-", "1</dev/null"] {
        for command in commands {
            let output = run_with(closed, command, folder.path());
            assert_one_line(&output, &format!("{command} {closed}"), "standard output: Bad file descriptor");
            assert_only_input_is_left(folder.path(), command);
        }
    }
}

/// Goal: a full device is an error for what is printed without a measurement as well. Method: help and version.
#[test]
fn help_that_does_not_fit_is_an_error() {
    let folder = folder();
    for command in ["--help", "help", "help log", "log --help", "--version"] {
        let output = run_with(">/dev/full", command, folder.path());
        assert_one_line(&output, command, "standard output: No space left");
        let output = run_unread(command, folder.path());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{command}");
        assert_eq!(output.status.code(), Some(0), "{command}");
    }
}

/// Goal: a run ends without a word when nothing reads its results, and leaves nothing behind. Method: a pipe without a reader from the
/// start.
#[test]
fn a_reader_that_has_gone_ends_a_run() {
    let folder = folder();
    let commands = [
        "cache --rounds 1 --seconds 0.02 --pages 256",
        "log --only writer --rounds 2 --seconds 0.02",
        PEERS,
        "store --only stream-warm --rounds 2 --mib 1 --objects 1 --seconds 0.02",
    ];
    for command in commands {
        let output = run_unread(command, folder.path());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{command}");
        assert_eq!(output.status.code(), Some(141), "{command}: as a shell shows SIGPIPE");
        assert_only_input_is_left(folder.path(), command);
    }
}

/// Goal: a run goes on for a file, whether or not its text is read. Method: the same pipe, and JSON in a file.
#[test]
fn a_file_is_written_without_a_reader() {
    let folder = folder();
    let command = "log --only writer --rounds 2 --seconds 0.02 --json out";
    let output = run_unread(command, folder.path());
    assert!(output.status.success(), "{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let out = fs::read(folder.path().join("out")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(report["suite"], "log");
}

/// Goal: JSON for which there is no room is not lost without a word. Method: a full device in the place of the file.
#[test]
fn json_that_does_not_fit_is_an_error() {
    let folder = folder();
    for command in ["log --only writer --rounds 1 --seconds 0.02", PEERS] {
        let command = format!("{command} --json=/dev/full");
        let output = run_with("", &command, folder.path());
        assert_one_line(&output, &command, "/dev/full: No space left");
        assert!(!output.stdout.is_empty(), "the text is there: {command}");
        assert_only_input_is_left(folder.path(), &command);
    }
}

/// Goal: what cannot be complained of changes no exit code. Method: an error, and a standard error that is full or closed.
#[test]
fn a_full_error_output_is_no_panic() {
    let folder = folder();
    for streams in ["2>/dev/full", "2>&-"] {
        for (command, code) in [("log --dir /nowhere", 1), ("log --nonsense", 2)] {
            let output = run_with(streams, command, folder.path());
            assert_eq!(output.status.code(), Some(code), "{command} {streams}");
        }
    }
}

/// Goal: an arm that cannot print its figures fails as the commands do. Method: one that appends for a moment, with a full output.
#[test]
fn an_arm_that_cannot_print_fails() {
    let folder = folder();
    let arm = "log-arm std-writer log --callers 1 --seconds 0.02 --record-bytes 64";
    let output = run_with(">/dev/full", arm, folder.path());
    assert_one_line(&output, arm, "standard output: No space left");
    assert!(folder.path().join("log").exists(), "it has measured");
}

const PEERS: &str = "peers --only files-warm --peers std --rounds 1 --files 2";

/// Goal: JSON in a file is written although the text does not fit. Method: a full device as standard output.
#[test]
fn json_is_not_lost_with_the_text() {
    let folder = folder();
    for command in ["log --only writer --rounds 1 --seconds 0.02", PEERS] {
        let output = run_with(">/dev/full", &format!("{command} --json=out"), folder.path());
        assert_one_line(&output, command, "standard output: No space left");
        let out = fs::read(folder.path().join("out")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert!(!report["suites"].as_array().unwrap()[0]["rows"].as_array().unwrap().is_empty(), "{command}");
        fs::remove_file(folder.path().join("out")).unwrap();
    }
}
