//! Doctor: facts about the machine and a place, and hints in usage errors.
//!
//! Owns: that each fact has a verdict, that what is refused is named, the tips of usage errors.
//! Does not own: the facts themselves.

use std::process::Command;

use headwater_testkit::{ScratchDir, tmpfs};
use serde_json::Value;

use crate::{assert_one_line, headwater, run, text, utf8};

fn facts(arguments: &[&str]) -> Value {
    let output = headwater().args(["doctor", "--json"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn fact<'a>(facts: &'a Value, room: &str, name: &str) -> &'a Value {
    let found = facts[room].as_array().unwrap().iter().find(|fact| fact["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {facts}"))
}

/// Goal: the screen fits 80 columns, but for a path that does not, and 50 lines, and says of each fact what is the case.
#[test]
fn one_screen() {
    let scratch = ScratchDir::on_target().unwrap();
    let output = run(&["doctor", utf8(scratch.path())]);
    let said = text(&output.stdout);
    assert!(output.status.success() && said.lines().count() <= 50, "{said}");
    let fits = |line: &str| line.chars().count() <= 80 || line.split_whitespace().count() == 1;
    assert!(said.lines().all(fits), "{said}");
    for name in ["io_uring", "memlock", "huge pages", "direct I/O", "file system", "profile"] {
        assert!(said.contains(name), "{name} in {said}");
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing stays");
}

/// Goal: what is refused is found to be missing, with a way to mend it. Method: a limit of 256 descriptors; a file system in
/// memory.
#[test]
fn what_is_missing_is_found() {
    let limited = format!("ulimit -n 256; exec {} doctor --json", env!("CARGO_BIN_EXE_headwater"));
    let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let descriptors = fact(&found, "machine", "descriptors");
    assert_eq!(descriptors["verdict"], "limited", "{descriptors}");
    assert!(descriptors["mend"].as_str().unwrap().contains("ulimit"), "{descriptors}");
    match tmpfs() {
        Ok(directory) => {
            let found = facts(&[utf8(directory.path())]);
            assert_eq!(fact(&found, "place", "file system")["verdict"], "limited");
            assert_eq!(fact(&found, "place", "direct I/O")["verdict"], "limited");
            assert_explained(&found);
        }
        Err(reason) => headwater_testkit::skip(format!("tmpfs: {reason}")),
    }
    assert_explained(&found);
}

/// What is not good, and what a reader may wonder about, has a consequence and a way to change it.
fn assert_explained(found: &Value) {
    for fact in ["machine", "place"].into_iter().flat_map(|room| found[room].as_array().unwrap()) {
        let is_wondered_at = fact["name"] == "readahead"
            || fact["name"] == "polling" && fact["found"].as_str().unwrap().starts_with("not");
        if fact["verdict"] != "good" || is_wondered_at {
            assert!(fact["follows"].is_string() && fact["mend"].is_string(), "{fact}");
        }
    }
}

/// Goal: `tune` is advised where it finds something out, and with what it takes. Method: a file system in memory, for which it stores
/// nothing; a file that is too small to measure with; its directory.
#[test]
fn tune_is_advised_where_it_helps() {
    let profile_of = |path: &str| {
        let mut command = headwater();
        command.args(["doctor", "--json", path]).env("HEADWATER_PROFILES", "/nowhere/profiles.json");
        let found = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        fact(&found, "place", "profile").clone()
    };
    match tmpfs() {
        Ok(directory) => {
            let profile = profile_of(utf8(directory.path()));
            assert_eq!(profile["mend"], Value::Null, "{profile}");
            assert!(profile["found"].as_str().unwrap().contains("no device below"), "{profile}");
        }
        Err(reason) => headwater_testkit::skip(format!("tmpfs: {reason}")),
    }
    let scratch = ScratchDir::on_target().unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, b"abc").unwrap();
    let command = format!("headwater tune {}", utf8(scratch.path()));
    for path in [file.as_path(), scratch.path()] {
        assert_eq!(profile_of(utf8(path))["mend"], *command, "{}", path.display());
    }
}

/// Goal: files, directories and devices are looked at; what is none of these is an error in one line.
#[test]
fn places() {
    let scratch = ScratchDir::on_target().unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, b"abc").unwrap();
    assert_eq!(fact(&facts(&[utf8(&file)]), "place", "direct I/O")["verdict"], "good");
    assert_one_line(&run(&["doctor", "/dev/null"]), "/dev/null");
    assert_one_line(&run(&["doctor", "/nowhere"]), "/nowhere");
}

/// Goal: a word that is nearly a command or option is told apart, and options that GNU's commands have lead on.
#[test]
fn usage_errors_lead_on() {
    for (words, tip) in [
        (&["catt", "file"][..], "'cat'"),
        (&["cat", "--nmuber", "file"], "'--number'"),
        (&["cp", "-u", "one", "two"], "-n leaves"),
        (&["cp", "--link", "one", "two"], "ln"),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2));
        assert_one_line(&output, tip);
    }
}
