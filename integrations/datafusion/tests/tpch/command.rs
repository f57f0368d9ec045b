//! Command: what `headwater-tpch` prints, and what it says about bad input.
//!
//! Owns: command lines.
//! Does not own: what the queries answer.

use std::process::{Command, Output};

use serde_json::Value;

use crate::{data, folder};

fn tpch(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater-tpch")).args(arguments).output().unwrap()
}

fn complaint(arguments: &[&str]) -> String {
    let output = tpch(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Goal: a report names every store, its JSON has a row for each query and store, and the figures are those of reads.
#[test]
fn a_run_reports_every_store() {
    let (folder, scratch) = (data().folder().to_str().unwrap(), folder());
    let (json, html) = (scratch.path().join("out.json"), scratch.path().join("out.html"));
    let files = ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    for state in ["--cold", "--warm"] {
        let arguments =
            [&["run", "--folder", folder, "--rounds", "2", "--queries", "6,columns", state], &files[..]]
                .concat();
        let output = tpch(&arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for word in
            ["local", "direct", "headwater", "q6", "columns", "the same answers to 2 queries", &state[2..]]
        {
            assert!(text.contains(word), "{word}: {text}");
        }
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 6);
        for row in rows {
            let value = |metric: &str| row[metric].as_f64().unwrap_or_else(|| panic!("{metric}: {row}"));
            assert!(
                value("seconds") > 0.0 && value("returned_mib") > 0.0 && value("peak_mib") > 1.0,
                "{row}"
            );
            assert!(value("wait_seconds") > 0.0 && value("wait_seconds") <= value("seconds"), "{row}");
        }
        assert!(std::fs::read_to_string(&html).unwrap().contains("TPC-H at scale 0.01"));
    }
}

/// Goal: each mistake is named, with what to do about it.
#[test]
fn mistakes_are_explained() {
    let (folder, empty) = (data().folder().to_str().unwrap(), folder());
    let empty = empty.path().to_str().unwrap();
    assert!(complaint(&["run", "--folder", empty]).contains("headwater-tpch generate --scale 1 --folder"));
    assert!(complaint(&["run", "--folder", "/no/such/folder"]).contains("holds no TPC-H data"));
    for option in ["--json", "--html"] {
        // Before the work, which would end here with another error.
        let file = complaint(&["run", "--folder", empty, option, "/no/such/folder/out"]);
        assert!(file.contains("/no/such/folder/out: "), "{file}");
    }
    assert!(
        complaint(&["run", "--folder", folder, "--queries", "23"]).contains("there are 1 to 22, and count")
    );
    assert!(
        complaint(&["run", "--folder", folder, "--stores", "s3"])
            .contains("possible values: local, direct, headwater")
    );
    assert!(complaint(&["run", "--folder", folder, "--memory", "lots"]).contains("is no size"));
    assert!(complaint(&["run", "--folder", folder, "--cold", "--warm"]).contains("cannot be used with"));
    assert!(
        complaint(&["generate", "--scale", "0", "--folder", empty]).contains("the scale is 0; it can be")
    );
    assert!(complaint(&["generate", "--scale", "nan", "--folder", empty]).contains("the scale is NaN"));
    assert!(complaint(&["generate", "--folder", "/dev/null/x"]).contains("/dev/null/x: "));
}

/// Goal: a table whose files went after they were made is missing, not empty.
#[test]
fn missing_files_are_named() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    assert!(tpch(&["generate", "--scale", "0.001", "--folder", path]).status.success());
    std::fs::remove_file(folder.path().join("orders/0.parquet")).unwrap();
    assert!(complaint(&["run", "--folder", path]).contains("orders/0.parquet"));
}

/// Goal: a query that fails over a store, or over every one, is named with its reason, the others go on, and the exit status says so.
#[test]
fn queries_that_fail_are_named() {
    let folder = data().folder().to_str().unwrap();
    let output = tpch(&["run", "--folder", folder, "--rounds", "1", "--queries", "6,18", "--pool", "64K"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("skipped q18 over headwater: q18: Resources exhausted"), "{text}");
    assert!(text.contains("the same answers to 1 queries (1 rows)"), "{text}");
    // Less than an engine can have: the query fails over headwater alone.
    let arguments = ["run", "--folder", folder, "--rounds", "1", "--queries", "6", "--memory", "1"];
    let text = String::from_utf8(tpch(&arguments).stdout).unwrap();
    assert!(text.contains("skipped q6 over headwater") && !text.contains("skipped q6 over local"), "{text}");
    assert!(text.contains("no query came to its end"), "{text}");
}
