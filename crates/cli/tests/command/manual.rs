//! Manual: man pages, completions, and JSON of the commands that move data.

use std::fs;

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
    }
    assert_one_line(&run(&["completions", "cmd"]), "cmd");
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
