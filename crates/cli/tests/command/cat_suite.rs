//! Cat suite: that all ways are measured in both states, deliver the same bytes, and nothing is left behind.
//!
//! Owns: rows, fields, what is said when something is impossible.
//! Does not own: how fast it is.

use std::fs;
use std::path::Path;
use std::process::Command;

use headwater_testkit::{Pattern, ScratchDir, skip, tmpfs};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::{assert_one_line, headwater, run, text, to_json, utf8, with_program};

fn cat_suite(arguments: &[&str], out: &Path) -> (String, Value) {
    let common = ["bench", "cat", "--rounds", "1", &to_json(utf8(out))];
    let output = run(&[&common[..], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    (text(&output.stdout), serde_json::from_slice(&fs::read(out).unwrap()).unwrap())
}

/// The ways that were measured in a state.
fn ways<'a>(results: &'a Value, state: &str) -> Vec<&'a str> {
    let rows = results["rows"].as_array().unwrap().iter().filter(|row| row["state"] == state);
    rows.map(|row| row["way"].as_str().unwrap()).collect()
}

const OWN: [&str; 9] = ["cat1", "cat2", "cat3", "cat4", "cat5", "cat6", "cat7", "sendfile", "splice"];

fn assert_all_ways(results: &Value, state: &str) {
    let ways = ways(results, state);
    assert!(OWN.iter().all(|way| ways.contains(way)), "{ways:?}");
    let skipped = text(results["skipped"].to_string().as_bytes());
    for (way, name) in [("gnu", "GNU cat"), ("uutils", "uutils cat"), ("dd", "dd"), ("cp", "cp")] {
        assert_ne!(
            ways.contains(&way),
            skipped.contains(&format!("\"{name}\"")),
            "{way} is there, or it is said why not: {results}"
        );
    }
}

/// Goal: both tables with all rows, in JSON and as text, and no file afterwards. Method: 3 and 2 MiB, one round.
#[test]
fn tables_of_own_files() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let out = scratch.path().join("out.json");
    let (table, results) = cat_suite(&["--size", "3M", "--warm", "2M", "--dir", utf8(&place)], &out);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    assert_eq!((&results["suite"], &results["cold_bytes"]), (&"cat".into(), &(3 << 20).into()));
    assert_eq!(results["warm_bytes"], 2 << 20);
    for (state, bytes, resident) in [("warm", 2 << 20, 1.0), ("cold", 3 << 20, 0.0)] {
        assert_all_ways(&results, state);
        for row in results["rows"].as_array().unwrap().iter().filter(|row| row["state"] == state) {
            for field in ["mib_per_s", "mib_per_s_min", "mib_per_s_max", "seconds", "cpu_s_per_gib"] {
                assert!(row[field].as_f64().unwrap() > 0.0, "{field} of {row}");
            }
            assert_eq!(row["bytes"], if row["way"] == "cat1" { 256 << 10 } else { bytes }, "{row}");
            assert!(row["resident_share"].is_null() || row["resident_share"] == resident, "{row}");
            assert!(table.contains(row["name"].as_str().unwrap()), "{row} in {table}");
        }
    }
    assert_eq!(results["sweep"]["points"].as_array().unwrap().len(), 11);
    for word in ["GiB/s", "MiB/s", "CPU s/GiB", "headwater cat moves a warm file at ", "fio --name="] {
        assert!(table.contains(word), "{word} in {table}");
    }
    assert!(!table.contains('\x1b'), "{table}");
}

/// Goal: a file of the user's, of odd length, is read whole and not written, and its sum is the one that all ways agree on.
#[test]
fn tables_of_a_given_file() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("file"), scratch.path().join("out.json"));
    let length = (1 << 20) + 1234;
    Pattern::new(5).write_file(&path, length).unwrap();
    let (_, results) = cat_suite(&["--file", utf8(&path)], &out);
    assert_eq!((&results["cold_bytes"], &results["warm_bytes"]), (&length.into(), &length.into()));
    assert_eq!(results["xxh3"], format!("{:016x}", xxh3_64(&fs::read(&path).unwrap())));
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    let left = fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, 2, "only the file and the results");
}

/// Goal: where a file cannot be made cold the table is there all the same, and says so.
#[test]
fn on_tmpfs() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let out = tempfile::NamedTempFile::new().unwrap();
    let (table, results) =
        cat_suite(&["--size", "1M", "--warm", "1M", "--dir", utf8(scratch.path())], out.path());
    assert_all_ways(&results, "warm");
    assert_all_ways(&results, "cold");
    assert!(table.contains("note: not cold in some round: cat1"), "{table}");
    assert!(table.contains("note: tmpfs is made of memory: what was measured is memory"), "{table}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left");
}

/// Goal: a program of which it is not certain whose it is does not stand in the table. Method: a PATH without programs.
#[test]
fn without_other_programs() {
    let scratch = ScratchDir::on_target().unwrap();
    let out = scratch.path().join("out.json");
    let mut command: Command = headwater();
    command.args(["bench", "cat", "--rounds", "1", "--size", "1M", "--warm", "1M", &to_json(utf8(&out))]);
    let output = command.env("PATH", "").current_dir(scratch.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(
        table.contains("skipped uutils cat: neither `coreutils cat` nor `uu-cat` is installed"),
        "{table}"
    );
    let results: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_all_ways(&results, "warm");
}

/// Goal: a command of the user's is a row like the others, with the path of the file, and is no rival if it is no cat; its times are
/// in the form of hyperfine, by hyperfine's formulas. Method: a file with a space in its name and one without any name.
#[test]
fn commands_of_the_user() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("a file"), scratch.path().join("out.json"));
    let export = scratch.path().join("times.json");
    Pattern::new(5).write_file(&path, 1 << 20).unwrap();
    let also = ["--also", "cat {}", "--also", "wc -c {}", "--also", "sh -c 'cat | cat'"];
    let of_export = ["--export-json", utf8(&export), "--runs", "5", "--warmup", "1"];
    for file in
        [&["--file", utf8(&path)][..], &["--size", "2M", "--warm", "1M", "--dir", utf8(scratch.path())]]
    {
        let out_option = to_json(utf8(&out));
        let output = run(&[&["bench", "cat", &out_option], file, &also, &of_export].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = text(&output.stdout);
        for words in [
            "mean ± σ",
            "min … max",
            "after 1 to warm up",
            "no cats, as they write other bytes than the file has: wc -c {}\n",
        ] {
            assert!(table.contains(words), "{words} in {table}");
        }
        let results: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
        let row = |id: &str| results["rows"].as_array().unwrap().iter().find(|row| row["id"] == id).cloned();
        let (cat, count) = (row("warm-also-1").unwrap(), row("cold-also-2").unwrap());
        assert_eq!((&cat["name"], &cat["output"]), (&"cat {}".into(), &"file".into()));
        assert_eq!((&count["output"], &count["runs"]), (&"other".into(), &5.into()));
        assert!(!results["answer"].as_str().unwrap().contains("wc"), "{results}");
        let times: Value = serde_json::from_slice(&fs::read(&export).unwrap()).unwrap();
        let times = times["results"].as_array().unwrap();
        assert_eq!(times.len(), results["rows"].as_array().unwrap().len());
        times.iter().for_each(assert_as_of_hyperfine);
        assert_eq!(times.iter().filter(|result| result["command"] == "cat {} (warm)").count(), 1);
    }
}

/// The fields of `hyperfine --export-json`, in agreement with the times.
fn assert_as_of_hyperfine(result: &Value) {
    let times: Vec<f64> =
        result["times"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect();
    let number = |field: &str| result[field].as_f64().unwrap_or_else(|| panic!("{field} of {result}"));
    let close = |one: f64, other: f64| (one - other).abs() <= 1e-9 * other.abs().max(1.0);
    let mean = times.iter().sum::<f64>() / 5.0;
    let deviation = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / 4.0;
    assert!(close(number("mean"), mean) && close(number("stddev"), deviation.sqrt()), "{result}");
    assert!(close(number("min"), times.iter().copied().fold(f64::INFINITY, f64::min)), "{result}");
    assert!(number("min") <= number("median") && number("median") <= number("max"), "{result}");
    assert!(number("user") >= 0.0 && number("system") >= 0.0, "{result}");
    assert_eq!(memory_of(result).len(), times.len(), "{result}");
    assert_eq!(result["exit_codes"], serde_json::json!([0, 0, 0, 0, 0]));
    assert!(["warm", "cold"].contains(&result["parameters"]["file"].as_str().unwrap()), "{result}");
}

/// What each run had resident at most, in bytes.
fn memory_of(result: &Value) -> Vec<u64> {
    let memory = result["memory_usage_byte"].as_array().unwrap_or_else(|| panic!("no memory in {result}"));
    memory.iter().map(|bytes| bytes.as_u64().unwrap()).collect()
}

/// Goal: what a process had resident is a figure of its run, and of no other. Method: a command that fills 64 MiB between two that need
/// little; rounds go forwards and backwards, so each of those runs behind it.
#[test]
fn memory_of_each_run() {
    let scratch = ScratchDir::on_target().unwrap();
    let export = scratch.path().join("times.json");
    let large = "sh -c 'dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null'";
    let also = ["--also", "cat", "--also", large, "--also", "cat -"];
    let of_files = ["--size", "1M", "--warm", "1M", "--dir", utf8(scratch.path()), "--rounds", "2"];
    let output = run(&[&["bench", "cat", "--export-json", utf8(&export)], &of_files[..], &also].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let times: Value = serde_json::from_slice(&fs::read(&export).unwrap()).unwrap();
    for (command, is_large) in [("cat", false), (large, true), ("cat -", false)] {
        for state in ["warm", "cold"] {
            let name = format!("{command} ({state})");
            let mut results = times["results"].as_array().unwrap().iter();
            let result = results.find(|result| result["command"] == *name).unwrap();
            let memory = memory_of(result);
            assert_eq!(memory.len(), 2, "{result}");
            let is_right = |bytes: &u64| (*bytes >= 64 << 20) == is_large && *bytes > 256 << 10;
            assert!(memory.iter().all(is_right), "{result}");
        }
    }
}

/// Goal: a program that fails has no row but a reason, and costs no other program its row. Method: a `coreutils` that has a version, and
/// fails when it is looked at, or when it is measured.
#[test]
fn programs_that_fail() {
    let scratch = ScratchDir::on_target().unwrap();
    let out = scratch.path().join("out.json");
    for (script, reason) in [
        ("echo no luck >&2; exit 3", "failed to run it: ended with exit code 3; it said: no luck"),
        ("[ -p /dev/stdout ] && exec cat; exit 4", "failed to measure it: ended with exit code 4"),
        ("echo mine", "it delivers other bytes than the file has"),
    ] {
        let path = with_program(scratch.path(), "coreutils", script);
        let mut command = headwater();
        command.args(["bench", "cat", "--rounds", "2", "--size", "1M", "--warm", "1M", &to_json(utf8(&out))]);
        let output = command.env("PATH", path).current_dir(scratch.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let results: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
        assert_all_own(&results);
        let skipped =
            results["skipped"].as_array().unwrap().iter().find(|row| row["id"] == "uutils").unwrap();
        assert_eq!(skipped["name"], "uutils cat 0.1");
        assert!(skipped["reason"].as_str().unwrap().contains(reason), "{skipped}");
        assert!(!ways(&results, "cold").contains(&"uutils"), "{results}");
        assert!(text(&output.stdout).contains("skipped uutils cat 0.1: "), "{}", text(&output.stdout));
    }
}

fn assert_all_own(results: &Value) {
    for state in ["warm", "cold"] {
        let ways = ways(results, state);
        assert!(OWN.iter().all(|way| ways.contains(way)), "{ways:?}");
    }
}

/// Goal: a file for which there is no room costs no other results. Method: a full device in the place of hyperfine's form.
#[test]
fn what_cannot_be_written_costs_nothing_else() {
    let scratch = ScratchDir::on_target().unwrap();
    let (json, html) = (scratch.path().join("out.json"), scratch.path().join("out.html"));
    let small = ["--size", "1M", "--warm", "1M", "--rounds", "1", "--dir", utf8(scratch.path())];
    let files = ["--export-json", "/dev/full", "--html", utf8(&html), &to_json(utf8(&json))];
    let output = run(&[&["bench", "cat"], &small[..], &files].concat());
    assert_one_line(&output, "failed to write /dev/full: No space left");
    assert!(text(&output.stdout).contains("headwater cat moves"), "{}", text(&output.stdout));
    assert_all_own(&serde_json::from_slice(&fs::read(json).unwrap()).unwrap());
    assert!(fs::metadata(html).unwrap().len() > 1000);
}

/// Goal: a command that fails, or is not there, ends the measurement with a reason, the latter before a file is made.
#[test]
fn commands_that_fail() {
    let scratch = ScratchDir::on_target().unwrap();
    let small =
        ["bench", "cat", "--size", "1M", "--warm", "1M", "--rounds", "1", "--dir", utf8(scratch.path())];
    let cases = [
        ("sh -c 'cat {}; echo broken pipes >&2; exit 3'", "ended with exit code 3; it said: broken pipes"),
        ("false", "failed to run false: ended with exit code 1; it said nothing"),
        ("sh -c 'kill -9 $$'", "ended by signal 9"),
        ("no-such-program -q {}", "there is no program no-such-program in PATH"),
        ("cat 'a", "a quotation in it has no end"),
    ];
    for (command, said) in cases {
        assert_one_line(&run(&[&small[..], &["--also", command]].concat()), said);
    }
    let huge = ["bench", "cat", "--size", "1000T", "--also", "no-such-program"];
    assert_one_line(&run(&huge), "there is no program no-such-program in PATH");
    assert_one_line(&run(&["bench", "cat", "--export-json", "/nowhere/times.json"]), "/nowhere/times.json");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn nonsense_is_refused() {
    assert_one_line(&run(&["bench", "cat", "--size", "4K"]), "says nothing");
    assert_one_line(&run(&["bench", "cat", "--file", "/dev/null"]), "/dev/null");
    assert_one_line(&run(&["bench", "cat", "--file", "f", "--size", "4M"]), "--size");
    assert_one_line(&run(&["bench", "cat", "--dir", "/nowhere"]), "/nowhere");
}
