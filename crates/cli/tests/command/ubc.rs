//! UBC: that every work is measured in every way that goes with it, and nothing is left behind.
//!
//! Owns: rows, fields, what is said when something is impossible.
//! Does not own: how fast it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use headwater_testkit::{FileSystem, LoopMount, PATIENCE, Pattern, ScratchDir, skip, tmpfs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{assert_one_line, headwater, run, text, to_json, utf8};

fn ubc(arguments: &[&str], out: &Path) -> (String, Value) {
    let common = ["bench", "ubc", "--rounds", "1", &to_json(utf8(out))];
    let output = run(&[&common[..], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    (text(&output.stdout), serde_json::from_slice(&fs::read(out).unwrap()).unwrap())
}

/// The ways that a row was measured in, and what the page cache held.
fn row<'a>(results: &'a Value, id: &str) -> (Vec<&'a str>, &'a str) {
    let rows = results["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id}: {results}"));
    let cells = row["cells"].as_array().unwrap();
    (cells.iter().map(|cell| cell["way"].as_str().unwrap()).collect(), row["page_cache"].as_str().unwrap())
}

const ALL: [&str; 6] = ["buffered", "mmap", "direct", "headwater", "view", "device"];

/// Goal: all rows and columns, and no file afterwards. Method: 8 MiB, one round.
#[test]
fn table_of_own_files() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let out = scratch.path().join("out.json");
    let (table, results) = ubc(&["--size", "8M", "--dir", utf8(&place)], &out);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    assert_eq!((&results["suite"], &results["bytes"]), (&"ubc".into(), &(8 << 20).into()));
    for id in ["raw", "large", "small"] {
        assert_eq!(row(&results, id), (ALL.to_vec(), "dropped"), "{id}");
    }
    // The row is there if the file system has a device, and this user may open it.
    if table.contains("no row for the raw device") {
        assert!(!table.contains("raw device to null"), "{table}");
    } else {
        assert_eq!(row(&results, "disk").0, ["direct", "headwater", "view", "device"]);
    }
    let writes = vec!["buffered", "direct", "headwater", "device"];
    assert_eq!(row(&results, "new"), (writes.clone(), "new"));
    assert_eq!(row(&results, "overwrite"), (writes, "dropped"));
    assert_eq!(row(&results, "again-1"), (ALL[..5].to_vec(), "dropped"));
    for id in ["again-2", "again-3", "again-4"] {
        assert_eq!(row(&results, id), (ALL[..5].to_vec(), "kept"), "{id}");
    }
    for row in results["rows"].as_array().unwrap() {
        assert!(table.contains(row["name"].as_str().unwrap()), "{row} in {table}");
        for cell in row["cells"].as_array().unwrap() {
            assert_eq!(cell["bytes"], 8 << 20, "{row}");
            assert!(cell["seconds"].as_f64().unwrap() > 0.0 && cell["gb_per_s"].as_f64().unwrap() > 0.0);
            assert!(cell["cpu_seconds"].as_f64().unwrap() >= 0.0);
        }
    }
    for word in
        ["GB/s", "seconds", "CPU seconds", "O_DIRECT", "fio --name=", "--rw=write", "mmap and view only read"]
    {
        assert!(table.contains(word), "{word} in {table}");
    }
}

/// Goal: the device under the file has a row. Method: a loop device, which this process may open.
#[test]
fn the_device_is_read() {
    let mount = match LoopMount::new(FileSystem::Ext4, 64 << 20) {
        Ok(mount) => mount,
        Err(reason) => return skip(reason),
    };
    let out = tempfile::NamedTempFile::new().unwrap();
    let (table, results) = ubc(&["--size", "4M", "--dir", utf8(mount.path())], out.path());
    assert_eq!(row(&results, "disk").0, ["direct", "headwater", "view", "device"], "{table}");
}

/// Goal: a file of the user's, of odd length, is only read, or a part of it; files to write to go beside it.
#[test]
fn table_of_a_given_file() {
    let scratch = ScratchDir::on_target().unwrap();
    let out = tempfile::NamedTempFile::new().unwrap();
    let path = scratch.path().join("file");
    let length = (5 << 20) + 1234;
    Pattern::new(5).write_file(&path, length).unwrap();
    let (table, whole) = ubc(&["--file", utf8(&path), "--driver", "threads"], out.path());
    assert_eq!((&whole["bytes"], &whole["host"]["driver"]), (&length.into(), &"threads".into()));
    assert!(!table.contains("--rw=write"), "{table}");
    let (_, part) = ubc(&["--file", utf8(&path), "--size", "2M"], out.path());
    assert_eq!(part["bytes"], 2 << 20);
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len() as u64, Pattern::new(5).mismatch(0, &bytes)), (length, None));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "only the file");
}

/// Goal: where there is no direct I/O the other columns remain, and what was not cold is said.
#[test]
fn without_direct_io() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let out = tempfile::NamedTempFile::new().unwrap();
    let (table, results) = ubc(&["--size", "2M", "--dir", utf8(scratch.path())], out.path());
    assert_eq!(row(&results, "raw"), (vec!["buffered", "mmap", "headwater", "view"], "not-dropped"));
    assert_eq!(row(&results, "new"), (vec!["buffered", "headwater"], "new"));
    assert!(table.contains("note: no figures for O_DIRECT and device: "), "{table}");
    assert!(table.contains("not all rows were cold"), "{table}");
}

/// Goal: what does not fit three times is refused before anything is written; of a given file only writing is.
#[test]
fn no_room() {
    let mount = match LoopMount::new(FileSystem::Ext4, 64 << 20) {
        Ok(mount) => mount,
        Err(reason) => return skip(reason),
    };
    let place = utf8(mount.path());
    assert_one_line(&run(&["bench", "ubc", "--dir", place, "--size", "20M"]), "no room: 76 MiB are needed");
    let (path, out) = (mount.path().join("file"), tempfile::NamedTempFile::new().unwrap());
    Pattern::new(5).write_file(&path, 20 << 20).unwrap();
    let (table, results) = ubc(&["--file", utf8(&path)], out.path());
    assert_eq!((row(&results, "raw").0, row(&results, "new").0), (ALL.to_vec(), vec![]));
    assert!(table.contains("note: nothing was written: no room: "), "{table}");
}

/// Goal: interrupted, it leaves nothing. Method: a signal as soon as one of its files is open.
#[test]
fn interrupted() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let arguments = ["bench", "ubc", "--size", "64M", "--dir", utf8(&place)];
    let mut child = headwater().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let descriptors = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let has_begun = || {
        let entries = fs::read_dir(&descriptors).into_iter().flatten().flatten();
        let mut targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.any(|target| target.starts_with(&place))
    };
    let started = Instant::now();
    while !has_begun() && child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < PATIENCE);
    }
    // It may have ended already.
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    child.wait().unwrap();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}
