//! Closed: standard input, output and error that the shell closed (`>&-`), each for itself, and an output that is full.
//!
//! Owns: that results are not lost without a word, and that what needs none of the three works.
//! Does not own: data for which there is no room, and broken pipes (see `cat`, `scan`).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use headwater::testing::uring_refusal;
use headwater_testkit::ScratchDir;

use crate::{assert_one_line, text};

/// In a folder that has the files `in`, `sums` and `trace`. The shell closes what `closed` says, and then becomes the command.
fn run_without(closed: &str, arguments: &str, scratch: &Path) -> Output {
    let line = format!("exec \"$HEADWATER\" {arguments} {closed}");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).current_dir(scratch).env("HEADWATER", env!("CARGO_BIN_EXE_headwater"));
    shell.env("HEADWATER_PROFILES", scratch.join("profiles")).output().expect("there is a shell")
}

fn scratch() -> ScratchDir {
    let scratch = ScratchDir::on_target().unwrap();
    let write = |name: &str, contents: &[u8]| fs::write(scratch.path().join(name), contents).unwrap();
    write("in", &[b'x'; 300_000]);
    write("empty", b"");
    write("trace", b"time,obj_id,size\n1,1,4096\n");
    let sums = run_without("", "scan --hash sha256 in", scratch.path());
    write("sums", &sums.stdout);
    scratch
}

/// Goal: no command loses its results without a word. Method: each command that prints with standard output closed, and with one
/// that was opened for reading.
#[test]
fn results_are_not_lost() {
    let scratch = scratch();
    let commands = [
        "cat in",
        "cat empty",
        "cat --io direct in",
        "cat --io buffered in",
        "cat --driver threads in",
        "scan in",
        "scan --hash sha256 in",
        "scan --hash sha256 --check sums",
        "scan --json in",
        "scan --check --status --json --hash sha256 sums",
        "stat in",
        "stat --json in",
        "doctor",
        "doctor --json",
        "trace replay --cache 1M trace",
        "trace replay --json --cache 1M trace",
        "tune .",
        "tune --json .",
        "tune --show",
        "tune --reset --all",
        "bench",
        "bench scan --size 4M",
        "bench nop --seconds 0.01",
        "bench nop --seconds 0.01 --json",
        "bench cat --size 4M",
        "bench random",
        "cp --verify in copy",
        "cp --json in copy",
        "man",
        "completions bash",
        "--help",
        "cat --help",
        "--version",
    ];
    for closed in [">&-", "1</dev/null"] {
        for command in commands {
            let output = run_without(closed, command, scratch.path());
            println!("{command} {closed}: {}", text(&output.stderr));
            assert_one_line(&output, "failed to write to standard output: Bad file descriptor");
        }
    }
    for verify in ["scan --check --quiet --hash sha256 sums", "scan --check --status --hash sha256 sums"] {
        let output = run_without(">&-", verify, scratch.path());
        assert!(output.status.success(), "{verify} prints nothing: {}", text(&output.stderr));
    }
}

/// Goal: results for which there is no room are not lost without a word either, whenever they are written. Method: each kind of
/// results on a device that is full; measurements have been made by then.
#[test]
fn results_that_do_not_fit_are_not_lost() {
    let scratch = scratch();
    let mut commands = vec![
        "scan --hash sha256 in",
        "stat in",
        "doctor",
        "trace replay --cache 1M trace",
        "tune --show",
        "tune --dry-run --seconds 1 .",
        "bench scan --only mmap --rounds 1 --size 1M",
        "bench scan --only mmap --rounds 1 --size 1M --json",
        "man",
        "--help",
    ];
    if uring_refusal().is_none() {
        commands.push("bench nop --seconds 0.01");
    }
    for command in commands {
        let output = run_without(">/dev/full", command, scratch.path());
        println!("{command}: {}", text(&output.stderr));
        assert_one_line(&output, "failed to write to standard output: No space left");
    }
}

/// Goal: nothing that was read from nowhere counts as empty. Method: each command that reads standard input.
#[test]
fn a_closed_input_is_not_empty() {
    let scratch = scratch();
    for command in ["cat", "cat in -", "scan -", "scan --hash sha256 -", "scan --hash sha256 --check -"] {
        let output = run_without("<&-", command, scratch.path());
        println!("{command}: {}", text(&output.stderr));
        assert!(!output.status.success(), "{command}");
        assert!(text(&output.stderr).contains("failed to read -: Bad file descriptor"), "{command}");
    }
}

/// Goal: where complaints cannot be written, the exit code still tells; JSON that was to go there is not lost without a trace.
#[test]
fn a_closed_error_output_changes_no_exit_code() {
    let scratch = scratch();
    let code = |command: &str| run_without("2>&-", command, scratch.path()).status.code();
    assert_eq!(code("cat in"), Some(0));
    assert_eq!(code("cat missing in"), Some(1));
    assert_eq!(code("stat missing"), Some(1));
    assert_eq!(code("cat --nonsense"), Some(2));
    assert_eq!(code("cat --json in"), Some(1), "its JSON goes to standard error");
}

/// Goal: what prints nothing works without all three, and no file that it opens takes their place: neither complaints nor
/// results get into it. Method: copies, one of which complains; children of the measurements inherit the closed three.
#[test]
fn what_prints_nothing_needs_none_of_the_three() {
    let scratch = scratch();
    let (source, copy) = (scratch.path().join("in"), scratch.path().join("copy"));
    for closed in [">&-", "<&- >&- 2>&-"] {
        let output = run_without(closed, "cp in copy", scratch.path());
        assert!(output.status.success(), "{closed}: {}", text(&output.stderr));
        assert!(fs::read(&copy).unwrap() == fs::read(&source).unwrap());
        fs::create_dir(scratch.path().join("folder")).unwrap();
        let output = run_without(closed, "cp missing in folder", scratch.path());
        assert_eq!(output.status.code(), Some(1), "{closed}");
        assert!(fs::read(scratch.path().join("folder/in")).unwrap() == fs::read(&source).unwrap());
        fs::remove_dir_all(scratch.path().join("folder")).unwrap();
    }
    let output = run_without("<&- 2>&-", "bench nop --seconds 0.01 --json=out", scratch.path());
    assert!(output.status.success(), "{:?}", output.status);
}
