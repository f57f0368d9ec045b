//! Tune memory: that every buffer is measured in every way, in all forms of the report, and nothing is left behind.
//!
//! Owns: rows, fields, files, what is refused.
//! Does not own: how fast it is.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};

use headwater_testkit::{ScratchDir, skip, tmpfs};
use serde_json::Value;

use crate::{assert_one_line, headwater, run, text, to_json, utf8};

fn sweep(arguments: &[&str], place: &Path, out: &Path) -> (String, Value) {
    let common =
        ["tune", "memory", "--rounds", "2", "--size", "2M", "--dir", utf8(place), &to_json(utf8(out))];
    let output = run(&[&common[..], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    assert_eq!(fs::read_dir(place).unwrap().count(), 0, "nothing is left");
    (text(&output.stdout), serde_json::from_slice(&fs::read(out).unwrap()).unwrap())
}

/// A row for each way and buffer, with samples of both rounds.
fn assert_rows(results: &Value, ways: &[&str], buffers: &[u64], metric: &str) {
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), ways.len() * buffers.len(), "{results}");
    for way in ways {
        let of_way: Vec<&Value> = rows.iter().filter(|row| row["way"] == *way).collect();
        let bytes: Vec<u64> = of_way.iter().map(|row| row["buffer_bytes"].as_u64().unwrap()).collect();
        assert_eq!(bytes, buffers, "{way}");
        for row in of_way {
            let value = |suffix: &str| row[format!("{metric}{suffix}")].as_f64().unwrap();
            assert!(0.0 < value("_min") && value("_min") <= value("") && value("") <= value("_max"), "{row}");
            assert_eq!(row["bytes"], 2 << 20, "{row}");
            let metrics = row["metrics"].as_array().unwrap();
            assert!(metrics.iter().all(|metric| metric["samples"].as_array().unwrap().len() == 2), "{row}");
        }
    }
}

/// Goal: reading: table, drawing, page and JSON have all buffers and ways.
#[test]
fn reading() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let [out, svg, html] = ["out.json", "out.svg", "out.html"].map(|name| scratch.path().join(name));
    let arguments = ["--from", "512", "--to", "4K", "--svg", utf8(&svg), "--html", utf8(&html)];
    let (table, results) = sweep(&arguments, &place, &out);
    assert_eq!((&results["suite"], &results["write"]), (&"tune-memory".into(), &false.into()));
    assert_rows(&results, &["zero", "read", "headwater"], &[512, 1024, 2048, 4096], "mib_per_s");
    for words in
        ["512 bytes", "4 KiB", "zero to null", "read(2)", "headwater", "min – max", "Fastest: read(2) at "]
    {
        assert!(table.contains(words), "{words} in {table}");
    }
    let drawing = fs::read_to_string(svg).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.trim_end().ends_with("</svg>"), "{drawing}");
    assert_eq!(drawing.matches(" error\"").count(), 3, "a spread for each way: {drawing}");
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("How large should a buffer be?") && page.contains("<svg class=\"plot\""), "{page}");
}

/// Goal: writing: until the last write has returned, and until all is on the device, which takes longer.
#[test]
fn writing() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let out = scratch.path().join("out.json");
    let (table, results) = sweep(&["--write", "--from", "4K", "--to", "8K"], &place, &out);
    for metric in ["mib_per_s", "synced_mib_per_s"] {
        assert_rows(&results, &["write", "headwater"], &[4096, 8192], metric);
    }
    for row in results["rows"].as_array().unwrap() {
        assert!(row["synced_mib_per_s"].as_f64() <= row["mib_per_s"].as_f64(), "{row}");
    }
    assert!(
        table.contains("buffer, synced")
            && table.contains("Fastest until all is on the device: write(2) at "),
        "{table}"
    );
}

/// Goal: where there is no direct I/O it works, and says what headwater's rows are then.
#[test]
fn on_tmpfs() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let out = tempfile::NamedTempFile::new().unwrap();
    let (table, results) = sweep(&["--from", "4K", "--to", "4K"], scratch.path(), out.path());
    assert_rows(&results, &["zero", "read", "headwater"], &[4096], "mib_per_s");
    assert!(table.contains("note: no direct I/O here"), "{table}");
}

/// Goal: a signal in the midst of it ends it at once, and the file goes with it. Method: wait until the process has a file without a name
/// open in the directory; SIGTERM, because a shell without job control has its children ignore SIGINT.
#[test]
fn a_signal_leaves_nothing() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = fs::canonicalize(scratch.path()).unwrap();
    let mut command = headwater();
    command.args(["tune", "memory", "--size", "64M", "--rounds", "1000", "--dir", utf8(&place)]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    while !has_file_in(&child, &place) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the signal");
        std::thread::yield_now();
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(rustix::process::Signal::TERM.as_raw()));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
}

fn has_file_in(child: &Child, place: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id()));
    let targets =
        descriptors.into_iter().flatten().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets
        .into_iter()
        .any(|target| target.starts_with(place) && target.to_string_lossy().ends_with(" (deleted)"))
}

#[test]
fn nonsense_is_refused() {
    let cases: [(&[&str], &str); 9] = [
        (&["--from", "1"], "from 64 bytes to 1G"),
        (&["--to", "2G"], "from 64 bytes to 1G"),
        (&["--from", "8K", "--to", "4K"], "--from 8K is more than --to 4K"),
        (&["--size", "1M"], "--to 64M is more than --size 1M"),
        (&["--size", "0", "--from", "64", "--to", "64"], "--to 64 is more than --size 0"),
        (&["--size", "1000T"], "no room"),
        (&["--dir", "/nowhere"], "/nowhere"),
        (&["--rounds", "0"], "--rounds"),
        (&["--svg", "/nowhere/out.svg"], "No such file"),
    ];
    for (arguments, named) in cases {
        assert_one_line(&run(&[&["tune", "memory"], arguments].concat()), named);
    }
    assert_one_line(&run(&["tune", "--dry-run", "memory"]), "memory");
}
