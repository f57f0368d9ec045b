//! Closed: standard input, output and error that the shell closed (`>&-`), each for itself; an output that is full; a reader that leaves
//! while a command measures or scans.
//!
//! Owns: that results are not lost without a word, and that what needs none of the three works.
//! Does not own: data for which there is no room, and pipes of other commands (see `cat`, `scan`, `stat`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use headwater::testing::uring_refusal;
use headwater_testkit::ScratchDir;

use crate::{assert_one_line, headwater, text};

/// In a folder that has the files `in`, `sums` and `trace`. The shell closes what `closed` says, and then becomes the command.
fn run_without(closed: &str, arguments: &str, scratch: &Path) -> Output {
    let line = format!("exec \"$HEADWATER\" {arguments} {closed}");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).current_dir(scratch).env("HEADWATER", env!("CARGO_BIN_EXE_headwater"));
    shell.env("HEADWATER_PROFILES", scratch.join("profiles")).output().expect("there is a shell")
}

/// The same with a pipe that nothing reads.
fn run_unread(arguments: &str, scratch: &Path) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = headwater();
    command
        .args(arguments.split(' '))
        .current_dir(scratch)
        .env("HEADWATER_PROFILES", scratch.join("profiles"));
    command.stdout(writer).output().unwrap()
}

fn names_in(folder: &Path) -> BTreeSet<OsString> {
    folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect()
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

/// Goal: results in files for which there is no room are not lost without a word. Method: a full device in the place of each file.
#[test]
fn files_that_do_not_fit_are_an_error() {
    let scratch = scratch();
    let mut commands = vec![
        "scan --json=/dev/full in",
        "stat --json=/dev/full in",
        "doctor --json=/dev/full",
        "cp --json=/dev/full in copy",
        "trace replay --json=/dev/full --cache 1M trace",
        "tune --dry-run --seconds 1 --json=/dev/full .",
        "tune --dry-run --seconds 1 --svg /dev/full .",
        "bench scan --file in --only mmap --rounds 1 --json=/dev/full",
        "bench scan --file in --only mmap --rounds 1 --html /dev/full",
    ];
    if uring_refusal().is_none() {
        commands.push("bench nop --seconds 0.01 --plot /dev/full");
    }
    for command in commands {
        let output = run_without("", command, scratch.path());
        println!("{command}: {}", text(&output.stderr));
        assert_one_line(&output, "failed to write /dev/full: No space left");
    }
}

/// Goal: a measurement ends without a word when nothing reads its results, and leaves nothing behind. Method: a pipe without a reader from
/// the start, and every suite with a file that is there; some that make theirs.
#[test]
fn a_reader_that_has_gone_ends_a_measurement() {
    let scratch = scratch();
    let before = names_in(scratch.path());
    let mut commands = vec![
        "bench",
        "bench scan --file in --only mmap --rounds 2",
        "bench scan --size 1M --only mmap --rounds 2",
        "bench cache --file in --set 1M --seconds 0.01",
        "bench readahead --file in --rounds 1",
        "bench ubc --file in --rounds 1",
        "bench cat --file in --rounds 1",
        "bench random --file in --memory 64M --seconds 0.01 --rounds 1",
        "bench alignment --file in --rounds 1 --ops 1",
        "tune --dry-run --seconds 1 .",
        "tune memory --size 1M --rounds 1",
    ];
    if uring_refusal().is_none() {
        commands.push("bench nop --seconds 0.01");
    }
    for command in commands {
        let output = run_unread(command, scratch.path());
        println!("{command}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{command}");
        assert_eq!(output.status.code(), Some(141), "{command}: as a shell shows SIGPIPE");
        assert_eq!(names_in(scratch.path()), before, "{command}");
    }
}

/// Goal: a measurement goes on for a file, whether or not its text is read. Method: the same pipe, and each kind of file.
#[test]
fn files_are_written_without_a_reader() {
    let scratch = scratch();
    let scan = "bench scan --file in --only mmap --rounds 2";
    let mut commands = vec![format!("{scan} --json=out"), format!("{scan} --html out")];
    if uring_refusal().is_none() {
        commands.push("bench nop --seconds 0.01 --plot out".to_owned());
    }
    for command in commands {
        let output = run_unread(&command, scratch.path());
        assert!(output.status.success(), "{command}: {:?}: {}", output.status, text(&output.stderr));
        let out = scratch.path().join("out");
        assert!(fs::metadata(&out).unwrap().len() > 1000, "{command}");
        fs::remove_file(out).unwrap();
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

/// Goal: where the text does not fit, JSON that goes to a file is written all the same. Method: each command that measures nothing.
#[test]
fn json_is_not_lost_with_the_text() {
    let scratch = scratch();
    for command in
        ["scan in", "stat in", "stat --memory", "doctor", "trace replay --cache 1M trace", "tune --show"]
    {
        let output = run_without(">/dev/full", &format!("{command} --json=out"), scratch.path());
        assert_one_line(&output, "failed to write to standard output: No space left");
        let written = fs::read(scratch.path().join("out")).expect(command);
        assert!(serde_json::from_slice::<serde_json::Value>(&written).is_ok(), "{command}");
        fs::remove_file(scratch.path().join("out")).unwrap();
    }
}

/// Goal: where nothing reads the lines any more, no file is said to be unreadable. Method: a reader that takes a part of one line, of files
/// that many threads read; more lines than a pipe holds.
#[test]
fn a_reader_that_leaves_is_no_error_of_files() {
    let scratch = ScratchDir::on_target().unwrap();
    let names: Vec<String> = (0..300).map(|number| format!("{number:0240}")).collect();
    names.iter().for_each(|name| fs::write(scratch.path().join(name), vec![7; 1 << 20]).unwrap());
    for _ in 0..5 {
        let mut scan = headwater();
        scan.args(["scan", "--hash", "crc32c"]).args(&names).current_dir(scratch.path());
        let mut child = scan.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "");
        assert!(!output.status.success());
    }
}
