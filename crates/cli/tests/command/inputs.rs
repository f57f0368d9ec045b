//! Inputs: command lines that make no sense, and the help.

use headwater_testkit::ScratchDir;

use crate::{assert_one_line, headwater, run, text, utf8};

#[test]
fn nonsense_gets_one_line() {
    let cases: [(&[&str], &str); 42] = [
        (&["cat", "--memory", "1", "x"], "at least 3M"),
        (&["cat", "--memory", "9999999T", "x"], "9999999T"),
        (&["cat", "--memory", "much", "x"], "write it like 4M"),
        (&["cat", "--queue-depth", "0", "x"], "--queue-depth"),
        (&["cat", "--queue-depth", "99999", "x"], "--queue-depth"),
        (&["cat", "--driver", "none", "x"], "--driver"),
        (&["cat", "--nonsense"], "--nonsense"),
        (&["meow"], "meow"),
        (&["bench", "scan", "--size", "0"], "--size 0"),
        (&["bench", "scan", "--size", "9999999T"], "9999999T"),
        (&["bench", "scan", "--rounds", "0"], "--rounds"),
        (&["bench", "scan", "--size", "1000T"], "no room"),
        (&["bench", "cache", "--set", "4K"], "less than 1M"),
        (&["bench", "cache", "--set", "1000T"], "no room"),
        (&["bench", "cache", "--seconds", "x"], "0.01 to 3600"),
        (&["bench", "readahead", "--places", "0"], "'0' for '--places <N>': it must be 1 at least"),
        (&["bench", "scan", "--size", "1E"], "no room: 1.0 EiB are needed"),
        (&["bench", "cache", "--set", "7P"], "give a smaller --set or another directory"),
        (&["bench", "random", "--memory", "1P"], "give a smaller --memory or another directory"),
        (&["bench", "cat", "--size", "1P"], "give a smaller --size or another directory"),
        (&["bench", "random", "--memory", "2P"], "rows take from 64M to 1P of memory"),
        (&["tune", "memory", "--size", "1E"], "no room: 1.0 EiB are needed"),
        (&["bench", "readahead", "--size", "0"], "--size 0"),
        (&["bench", "ubc", "--size", "0"], "--size 0"),
        (&["bench", "ubc", "--size", "1000T"], "no room"),
        (&["cp"], "<PATH>"),
        (&["cp", "--sparse", "sometimes", "a", "b"], "--sparse"),
        (&["cp", "--queue-depth", "0", "a", "b"], "--queue-depth"),
        (&["bench", "nop", "--seconds", "0"], "0.01 to 3600"),
        (&["bench", "nop", "--seconds", "nan"], "0.01 to 3600"),
        (&["bench", "nop", "--threads", "0"], "--threads"),
        (&["bench", "nop", "--entries", "99999"], "--entries"),
        (&["bench", "nop", "--threads", "4", "--entries", "64"], "need 128 entries"),
        (&["bench", "nop", "--affinity", "3-1"], "a list of processors"),
        (&["bench", "nop", "--affinity", "1023"], "no processor 1023"),
        (&["bench", "nop", "--plot", "/nowhere/out.svg"], "No such file"),
        (&["bench", "nop", "--affinity", "1023"], "to run on, only 0"),
        (&["cat", "--queue-depth", "-1", "x"], "'-1' for '--queue-depth <N>': it must be from 1 to 4096"),
        (&["bench", "scan", "--rounds", "1001"], "it must be from 1 to 1000"),
        (&["stat", ""], "[FILE]...: an empty path names no file"),
        (&["cp", "-v", "", "x"], "an empty path names no file"),
        (&["tune", "--size", "1"], "--size 1 is too small to measure, it takes at least 1 MiB"),
    ];
    for (arguments, named) in cases {
        assert_one_line(&run(arguments), named);
    }
    let no_room = run(&["tune", "--size", "1000T"]);
    let said = text(&no_room.stderr);
    assert_eq!(said.matches("give a").count(), 1, "one advice is enough: {said}");
}

#[test]
fn what_cannot_be_measured_gets_one_line() {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let empty = place.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let cases = [
        ("--file", "/nowhere", "No such file"),
        ("--file", utf8(place.path()), "it is a directory; --dir makes a file there"),
        ("--file", utf8(&fifo), "a FIFO or socket"),
        ("--file", "/dev/zero", "a character device"),
        ("--file", utf8(&empty), "empty"),
        ("--dir", "/nowhere", "No such file"),
        ("--dir", utf8(&empty), "suites measure with a file that is there by --file"),
        ("--json", "/nowhere/out", "No such file"),
    ];
    for suite in ["scan", "cache", "readahead", "ubc", "cat", "random", "alignment"] {
        for (option, value, named) in cases {
            assert_one_line(&run(&["bench", suite, &format!("{option}={value}")]), named);
        }
    }
}

#[test]
fn help_has_examples_and_no_escape_codes() {
    let suites = ["scan", "cache", "readahead", "ubc", "cat", "random", "alignment", "nop"]
        .map(|suite| vec!["bench", suite, "--help"]);
    let commands = [
        vec!["--help"],
        vec!["cat", "--help"],
        vec!["cp", "--help"],
        vec!["stat", "--help"],
        vec!["scan", "--help"],
        vec!["tune", "--help"],
        vec!["tune", "memory", "--help"],
        vec!["man", "--help"],
        vec!["completions", "--help"],
        vec!["bench", "--help"],
    ];
    for arguments in commands.iter().chain(&suites) {
        let output = run(arguments);
        assert!(output.status.success());
        let help = text(&output.stdout);
        let fits = |line: &str| line.chars().count() <= 80 || line.starts_with("  headwater ");
        assert!(help.lines().all(fits), "80 columns where there is no terminal: {help}");
        assert!(help.contains("Examples:\n  ") && help.contains("Usage: headwater"), "{help}");
        assert!(!help.contains('\x1b') && !help.contains("bench-row"), "{help}");
    }
    let all = text(&run(&["bench", "--help"]).stdout);
    for suite in suites.iter().map(|arguments| arguments[1]) {
        let example = format!("\n  headwater bench {suite} ");
        assert!(all.contains(&example), "an example of each suite, {suite} too: {all}");
    }
    let version = text(&run(&["--version"]).stdout);
    assert_eq!(version, format!("headwater {}\n", env!("CARGO_PKG_VERSION")));
    assert!(text(&run(&["cat", "--version"]).stdout).ends_with(&version["headwater".len()..]));
}

/// Goal: results are not written over what a command reads: `--json=FILE` is a character away from `--json FILE`. Method: every command, each
/// with its input as the file for results, by another name too; the input stays.
#[test]
fn results_go_over_no_input() {
    let scratch = ScratchDir::on_target().unwrap();
    let (input, other, copy) =
        (scratch.path().join("input"), scratch.path().join("other"), scratch.path().join("copy"));
    std::fs::write(&input, "contents").unwrap();
    std::fs::hard_link(&input, &other).unwrap();
    let name = utf8(&input);
    for json in [&input, &other].map(|path| format!("--json={}", utf8(path))) {
        for line in [
            &["cat", &json, name][..],
            &["cp", &json, name, utf8(&copy)],
            &["scan", &json, name],
            &["scan", "--check", &json, name],
            &["stat", &json, name],
            &["doctor", &json, name],
            &["trace", "replay", name, "--cache", "1M", &json],
            &["tune", name, &json],
            &["tune", name, &json.replace("--json", "--svg")],
        ] {
            assert_one_line(&run(line), "it is one of the files to read");
            assert_eq!(std::fs::read(&input).unwrap(), b"contents", "{line:?}");
        }
    }
    assert!(run(&["stat", "--json=/dev/null", name]).status.success());
}

/// Goal: words that are no UTF-8 are a usage error as others are, wherever they stand.
#[test]
fn words_that_are_no_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let word = OsStr::from_bytes(b"\xff");
    for line in [&[word][..], &[word, OsStr::new("--nonsense")], &[OsStr::new("cp"), OsStr::new("--x"), word]]
    {
        let output = headwater().args(line).output().unwrap();
        assert_one_line(&output, "--help");
        assert_eq!(output.status.code(), Some(2), "{line:?}");
    }
}
