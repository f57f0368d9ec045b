//! Cache: that every source is measured in every way, from the cache it is said to have.

use std::fs;
use std::path::Path;

use headwater_testkit::{Pattern, ScratchDir};
use serde_json::Value;

use crate::{run, text, to_json, utf8};

fn cache(arguments: &[&str], out: &Path) -> (String, Value) {
    let common = ["bench", "cache", "--rounds", "1", "--seconds", "0.01", &to_json(utf8(out))];
    let output = run(&[&common[..], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    (text(&output.stdout), serde_json::from_slice(&fs::read(out).unwrap()).unwrap())
}

/// Goal: all rows with all columns, in JSON and as text, and what each cache held. Method: a set of 2 MiB.
#[test]
fn table() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let (table, results) = cache(&["--set", "2M", "--dir", utf8(&place)], &scratch.path().join("out.json"));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    assert_eq!((&results["suite"], &results["set_bytes"]), (&"cache".into(), &(2 << 20).into()));
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 18);
    for row in rows {
        for field in ["ns_per_read", "reads_per_s", "gb_per_s", "cpu_ns_per_read", "ratio_to_pread"] {
            assert!(row[field].as_f64().unwrap() > 0.0, "{field} of {row}");
        }
        assert_eq!(row["scaling"].is_null(), row["threads"] == 1, "{row}");
        assert!(row["source"] != "pread" || row["ratio_to_pread"] == 1.0, "{row}");
        assert!(table.contains(row["name"].as_str().unwrap()));
    }
    for state in results["caches"].as_array().unwrap() {
        let before = &state["kernel_pages_before"];
        let expected = if state["source"] == "headwater" { 0 } else { 512 };
        assert!(before.is_null() || *before == expected, "{state}");
    }
    assert!(table.contains("headwater reads 8 bytes in"), "{table}");
    // Where files are read directly, they are cached here: the set, and what was read ahead of its end.
    assert!(table.contains(" in headwater's cache"), "{table}");
}

/// Goal: a file of the user's is only read, and a set larger than it is cut to it.
#[test]
fn a_given_file_bounds_the_set() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("file"), scratch.path().join("out.json"));
    let length = (1 << 20) + 1234;
    Pattern::new(6).write_file(&path, length).unwrap();
    let (_, results) = cache(&["--file", utf8(&path), "--driver", "threads"], &out);
    assert_eq!(results["set_bytes"], 1 << 20);
    assert_eq!(results["host"]["driver"], "threads");
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    let (_, results) = cache(&["--file", utf8(&path), "--set", "1M"], &out);
    assert_eq!(results["set_bytes"], 1 << 20);
}
