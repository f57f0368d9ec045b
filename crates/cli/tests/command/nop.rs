//! Nop: that the ring's table is complete, agrees with itself, and says why where there is none.

use std::fs;

use headwater::testing::uring_refusal;
use headwater_testkit::{forbid_io_uring, run_self_with_env, skip};
use serde_json::Value;

use crate::{assert_one_line, run, text, to_json, utf8};

/// Goal: all rows of the table with all columns, in JSON and as text, and a drawing. Method: 20 ms a row.
#[test]
fn table_and_drawing() {
    if let Some(reason) = uring_refusal() {
        return skip(reason);
    }
    let place = tempfile::tempdir().unwrap();
    let (json, plot) = (place.path().join("out.json"), place.path().join("out.svg"));
    let output = run(&["bench", "nop", "--seconds", "0.02", &to_json(utf8(&json)), "--plot", utf8(&plot)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    let results: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let rows = results["rows"].as_array().unwrap();
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(
        ids,
        [
            "any-thread-1x64",
            "any-thread-sqpoll-1x64",
            "local-1x64",
            "any-thread-4x1024",
            "any-thread-sqpoll-4x1024",
            "local-4x1024"
        ]
    );
    let table = text(&output.stdout);
    let drawing = fs::read_to_string(plot).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.trim_end().ends_with("</svg>"), "{drawing}");
    for row in rows {
        assert_complete(row);
        let name = row["name"].as_str().unwrap();
        assert!(table.contains(name) && drawing.contains(name), "{name}");
    }
}

fn assert_complete(row: &Value) {
    let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("no {field} in {row}"));
    assert!(number("batches") > 0.0 && number("batches_per_s") > 0.0 && number("mean_us") > 0.0, "{row}");
    assert!(number("enters_per_batch") >= 0.0, "{row}");
    let rising = [
        "min_us",
        "p50_us",
        "p90_us",
        "p99_us",
        "p99_9_us",
        "p99_99_us",
        "p99_999_us",
        "p99_9999_us",
        "max_us",
    ]
    .map(number);
    assert!(rising.is_sorted(), "{row}");
}

/// Goal: a shape of the user's own replaces the table, pinned to a processor.
#[test]
fn own_shape() {
    if let Some(reason) = uring_refusal() {
        return skip(reason);
    }
    let place = tempfile::tempdir().unwrap();
    let json = place.path().join("out.json");
    let shape = ["--threads", "2", "--batch", "4", "--affinity", "spread", "--kernel-affinity", "0"];
    let output = run(&[&["bench", "nop", "--seconds", "0.02", &to_json(utf8(&json))], &shape[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(results["affinity"], "spread");
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!((&row["threads"], &row["entries"], &row["batch"]), (&2.into(), &64.into(), &4.into()));
    }
}

/// Goal: what is refused leaves no file behind that was not there.
#[test]
fn nothing_is_written_in_vain() {
    let place = tempfile::tempdir().unwrap();
    let json = place.path().join("out.json");
    for option in ["--affinity", "--kernel-affinity"] {
        assert_one_line(&run(&["bench", "nop", &to_json(utf8(&json)), option, "1023"]), option);
    }
    assert!(!json.exists());
}

/// Goal: without io_uring it fails in one line that says how to mend it. Method: this test again in a child under a
/// filter, which the command inherits.
#[test]
fn without_io_uring() {
    const CHILD: &str = "HEADWATER_NOP_FORBID";
    if std::env::var_os(CHILD).is_some() {
        forbid_io_uring();
        let output = run(&["bench", "nop", "--seconds", "0.02"]);
        assert_one_line(&output, "io_uring is refused");
        assert_one_line(&output, "io_uring_setup");
        println!("refused");
        return;
    }
    let output = run_self_with_env("nop::without_io_uring", CHILD, "1");
    assert!(output.status.success() && text(&output.stdout).contains("refused"), "{output:?}");
}
