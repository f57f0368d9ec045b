//! Alignment suite: that every shape is tried in every way, refusals are told, and nothing is left behind.
//!
//! Owns: rows, fields, what is said when something is impossible.
//! Does not own: how fast it is.

use std::fs;
use std::path::Path;

use headwater_testkit::{Pattern, ScratchDir, skip, tmpfs};
use serde_json::Value;

use crate::{assert_one_line, run, text, to_json, utf8};

fn alignment(arguments: &[&str], out: &Path) -> (String, Value) {
    let common = ["bench", "alignment", "--rounds", "2", "--ops", "20", "--size", "1M", &to_json(utf8(out))];
    let output = run(&[&common[..], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    (text(&output.stdout), serde_json::from_slice(&fs::read(out).unwrap()).unwrap())
}

fn rows<'a>(results: &'a Value, work: &str, way: &str) -> Vec<&'a Value> {
    let rows = results["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["work"] == work && row["way"] == way).collect()
}

const SHAPES: [&str; 8] = ["aligned", "buffer-512", "buffer-1", "offset-1", "length", "all", "block", "few"];

/// Goal: all works, ways and shapes are there, each with figures or with its refusal, which only `O_DIRECT` has, and nothing is left.
#[test]
fn an_own_file() {
    let scratch = ScratchDir::on_target().unwrap();
    let (place, out) = (scratch.path().join("place"), scratch.path().join("out.json"));
    fs::create_dir(&place).unwrap();
    let (table, results) = alignment(&["--dir", utf8(&place)], &out);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    let pairs = [("read", 4), ("held", 2), ("write", 3)];
    for (work, ways) in pairs {
        let all = ["buffered", "direct", "headwater", "uncached"].map(|way| rows(&results, work, way));
        let there = all.iter().filter(|rows| !rows.is_empty());
        assert!(there.clone().count() == ways || !results["skipped"].as_array().unwrap().is_empty());
        for rows in there {
            let shapes: Vec<&str> = rows.iter().map(|row| row["shape"].as_str().unwrap()).collect();
            assert_eq!(shapes, SHAPES);
            for row in rows {
                let is_refused = row["refusal"] == "EINVAL";
                assert!(!is_refused || row["way"] == "direct" && row["shape"] != "aligned", "{row}");
                assert_eq!(row["us_per_op"].is_null(), is_refused, "{row}");
                assert!(is_refused || row["us_per_op"].as_f64().unwrap() > 0.0, "{row}");
                assert!(is_refused || work == "held" || row["ops"] == 20, "{row}");
            }
        }
    }
    if results["host"]["file_system"] == "ext4" {
        let refused = rows(&results, "read", "direct").into_iter().filter(|row| row["refusal"] == "EINVAL");
        let refused: Vec<&str> = refused.map(|row| row["shape"].as_str().unwrap()).collect();
        for shape in ["offset-1", "length", "all", "few"] {
            assert!(refused.contains(&shape), "{shape} of {refused:?}");
        }
        assert!(table.contains("O_DIRECT fails (EINVAL) with ") && table.contains("EINVAL\u{20}"), "{table}");
    }
    for words in
        ["read from the device, µs", "bytes read by a write", "100 bytes", "headwater takes all of them"]
    {
        assert!(table.contains(words), "{words} in {table}");
    }
}

/// Goal: less than a page that is not in memory costs a read of the rest, and a whole page none.
#[test]
fn less_than_a_page_is_read_first() {
    let scratch = ScratchDir::on_target().unwrap();
    let out = scratch.path().join("out.json");
    let (_, results) = alignment(&["--dir", utf8(scratch.path())], &out);
    let of = |shape: &str| {
        let rows = rows(&results, "write", "buffered");
        let row = rows.iter().find(|row| row["shape"] == shape).unwrap();
        row["device_read_bytes_per_op"].as_f64()
    };
    match (of("aligned"), of("few")) {
        (Some(whole), Some(few)) => assert!(whole == 0.0 && few >= 4096.0, "{whole} {few}"),
        _ => skip("the kernel does not count what goes to devices"),
    }
}

/// Goal: a file of the user's is read and not written, and its rows of writing are skipped with a reason.
#[test]
fn a_given_file() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("file"), scratch.path().join("out.json"));
    Pattern::new(5).write_file(&path, (1 << 20) + 77).unwrap();
    let (table, results) = alignment(&["--file", utf8(&path)], &out);
    assert!(rows(&results, "write", "buffered").is_empty());
    assert_eq!(rows(&results, "read", "headwater").len(), SHAPES.len());
    assert!(table.contains("skipped writing: a file of yours is not written to"), "{table}");
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), Pattern::new(5).mismatch(0, &bytes)), ((1 << 20) + 77, None));
}

/// Goal: where there is no direct I/O the other ways are there, and it is said.
#[test]
fn on_tmpfs() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let out = tempfile::NamedTempFile::new().unwrap();
    let (table, results) = alignment(&["--dir", utf8(scratch.path())], out.path());
    assert!(rows(&results, "read", "direct").is_empty());
    assert_eq!(rows(&results, "write", "headwater").len(), SHAPES.len());
    assert!(table.contains("skipped O_DIRECT: ") && table.contains("the page cache kept some"), "{table}");
}

#[test]
fn nonsense_is_refused() {
    let scratch = ScratchDir::on_target().unwrap();
    let small = scratch.path().join("small");
    fs::write(&small, [7; 5000]).unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["--ops", "0"], "--ops"),
        (&["--size", "0"], "--size 0"),
        (&["--dir", "/nowhere"], "/nowhere"),
        (&["--file", utf8(&small)], "too small"),
    ];
    for (arguments, named) in cases {
        assert_one_line(&run(&[&["bench", "alignment"], arguments].concat()), named);
    }
}
