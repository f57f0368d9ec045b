//! Manual: man pages, completions, and JSON of the commands that move data.

use std::fs;
use std::process::Command;

use headwater_testkit::ScratchDir;
use serde_json::Value;

use crate::{assert_one_line, headwater, run, text, to_json, utf8};

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error} in {}", text(bytes)))
}

#[test]
fn man_pages_are_printed_and_written() {
    let page = text(&run(&["man", "bench", "scan"]).stdout);
    for words in [".TH headwater-bench-scan 1", "\\-\\-rounds", ".SH EXAMPLES", "headwater bench scan"] {
        assert!(page.contains(words), "{words} in {page}");
    }
    let place = tempfile::tempdir().unwrap();
    assert!(run(&["man", "--dir", utf8(place.path())]).status.success());
    let whole = fs::read_to_string(place.path().join("headwater.1")).unwrap();
    assert!(whole.contains("headwater\\-cat(1)"), "{whole}");
    assert_one_line(&run(&["man", "nothing"]), "no command `headwater nothing`");
    assert_one_line(&run(&["man", "--dir", "/nowhere"]), "/nowhere/headwater.1");
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success());
        let script = text(&output.stdout);
        assert!(script.contains("queue-depth") && script.contains("scan"), "{shell}: {script}");
        for internal in ["bench-row", "cp-guard", "internal"] {
            assert!(!script.contains(internal), "{shell} completes {internal}");
        }
    }
    assert_one_line(&run(&["completions", "cmd"]), "cmd");
}

/// Goal: the examples for pages and completions work as they stand, for a user with an empty home. Method: the lines that `--help` shows are a
/// script; its files are there afterwards.
#[test]
fn examples_work_in_an_empty_home() {
    let home = tempfile::tempdir().unwrap();
    let has_man = Command::new("man").arg("--version").output().is_ok_and(|output| output.status.success());
    for command in ["man", "completions"] {
        let help = headwater().args([command, "--help"]).output().unwrap();
        let help = text(&help.stdout);
        let (_, examples) = help.split_once("Examples:\n").unwrap();
        // Behind more spaces a line says what it is for, and so does one that begins with more.
        let lines = examples.lines().filter(|line| !line.starts_with("   "));
        let lines = lines.map(|line| line.trim_start().split("  ").next().unwrap());
        let lines: Vec<&str> = lines.filter(|line| has_man || !line.contains("| man")).collect();
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_headwater")).parent().unwrap();
        let paths = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-ec", &lines.join("\n")])
            .current_dir(home.path())
            .env("HOME", home.path())
            .env("PATH", paths)
            .output()
            .unwrap();
        assert!(output.status.success(), "{lines:#?}: {}", text(&output.stderr));
    }
    for (file, words) in [
        (".local/share/man/man1/headwater-cat.1", ".TH headwater-cat"),
        (".local/share/bash-completion/completions/headwater", "headwater"),
        (".zfunc/_headwater", "#compdef headwater"),
        (".config/fish/completions/headwater.fish", "complete -c headwater"),
    ] {
        let made = fs::read_to_string(home.path().join(file)).unwrap();
        assert!(made.contains(words), "{file}");
    }
}

/// Goal: what was copied from where, beside the data and not among them; a file that cannot be read has its reason.
#[test]
fn cat_tells_in_json() {
    let place = ScratchDir::on_target().unwrap();
    let (path, out) = (place.path().join("file"), place.path().join("out.json"));
    fs::write(&path, vec![7; 300_000]).unwrap();
    let output = run(&["cat", "--json", utf8(&path), "/nowhere"]);
    assert_eq!((output.stdout.len(), output.status.code()), (300_000, Some(1)));
    let said = text(&output.stderr);
    let entries = json(&said.as_bytes()[said.find('[').unwrap()..]);
    assert_eq!((&entries[0]["bytes"], &entries[0]["error"]), (&300_000.into(), &Value::Null));
    assert!(entries[1]["error"].as_str().unwrap().contains("No such file"), "{entries}");
    let output = run(&["cat", "--io", "direct", &to_json(utf8(&out)), utf8(&path)]);
    if output.status.success() {
        let entries = json(&fs::read(&out).unwrap());
        assert_eq!(entries[0]["by_headwater_bytes"], 300_000, "{entries}");
    } else {
        assert!(text(&output.stderr).contains("direct I/O"), "no direct I/O here");
    }
    assert_one_line(&run(&["cat", "--json=/nowhere/out", utf8(&path)]), "/nowhere/out");
}

#[test]
fn cp_tells_in_json() {
    let place = ScratchDir::on_target().unwrap();
    let (path, copy) = (place.path().join("file"), place.path().join("copy"));
    fs::write(&path, vec![7; 300_000]).unwrap();
    let output = run(&["cp", "--json", "--verify", "--reflink=never", utf8(&path), utf8(&copy)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let entry = &json(&output.stdout)[0];
    assert_eq!((&entry["length_bytes"], &entry["copied_bytes"]), (&300_000.into(), &300_000.into()));
    assert!(entry["verified"].as_str().unwrap().contains("read again"), "{entry}");
    let output = run(&["cp", "--json", "/nowhere", utf8(&copy)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(json(&output.stdout)[0]["error"].as_str().unwrap().contains("/nowhere"));
}

/// Goal: nothing asks for a terminal: neither colours nor bars where there is none, whatever the environment says.
#[test]
fn output_is_plain_where_there_is_no_terminal() {
    for (name, value) in [("NO_COLOR", "1"), ("COLORTERM", "truecolor"), ("TERM", "xterm-256color")] {
        let output = headwater().env(name, value).args(["bench", "--help"]).output().unwrap();
        assert!(!output.stdout.contains(&0x1b), "{name}");
        let output = headwater().env(name, value).args(["stat", "/nowhere"]).output().unwrap();
        assert!(!output.stderr.contains(&0x1b), "{name}");
    }
}
