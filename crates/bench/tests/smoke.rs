//! Smoke: the groups of comparisons that are quick enough run to their end, on files so small that the figures say nothing.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Goal: every row of the group `write` runs and finds the right bytes, and each promise that can be judged here is.
/// Method: all sizes divided until they are a few MiB; whether a bar is met is not looked at.
#[test]
fn write_runs_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let (file, json) = (folder.path().join("file"), folder.path().join("report.json"));
    std::fs::write(&file, "only its folder matters").unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_headwater-bench"));
    let output = Command::new(program)
        .args(["bars", "--only", "write", "--rounds", "1", "--seconds", "0.02", "--shrink", "512"])
        .arg("--file")
        .arg(&file)
        .arg("--json")
        .arg(&json)
        // It is there when the whole workspace was built.
        .arg("--headwater")
        .arg(program.with_file_name("headwater"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let lines = report["lines"].as_array().unwrap();
    for row in ["new", "overwrite", "random", "reread", "beside", "fork"] {
        assert!(lines.iter().any(|line| line["row"] == row), "{row} is missing:\n{text}");
    }
    let judged = report["verdicts"].as_array().unwrap().len() + report["skipped"].as_array().unwrap().len();
    assert!(judged >= PROMISES, "{judged} promises:\n{text}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 2, "files are left behind");
}

/// Where a tool is missing, a row has one line for all of its promises.
const PROMISES: usize = 16;
