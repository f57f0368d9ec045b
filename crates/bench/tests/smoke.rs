//! Smoke: the groups of comparisons that are quick enough run to their end, on files so small that the figures say nothing.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Goal: every row of the groups `write` runs and finds the right bytes, and each promise that can be judged here is.
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
    let mut judged = 0;
    for group in report["suites"].as_array().unwrap() {
        let count = |field: &str| group[field].as_array().unwrap().len();
        assert!(count("rows") >= 2, "rows are missing:\n{text}");
        judged += count("verdicts") + count("skipped");
    }
    assert_eq!(report["suites"].as_array().unwrap().len(), 10, "groups are missing:\n{text}");
    assert!(judged >= PROMISES, "{judged} promises:\n{text}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 2, "files are left behind");
}

/// Goal: every row of `peers` runs, every arm reads the same bytes or says why it cannot, headwater is in every row, and no
/// file is left behind.
#[test]
fn peers_runs_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
        .args(["peers", "--rounds", "1", "--seconds", "0.02", "--scan", "8M", "--set", "1M", "--hash", "2M"])
        .args(["--files", "80", "--dir"])
        .arg(&files)
        .arg(format!("--json={}", json.display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let suites = report["suites"].as_array().unwrap();
    assert_eq!(suites.len(), PEER_ROWS + 1, "{text}");
    for suite in &suites[..PEER_ROWS] {
        let (rows, skipped) = (suite["rows"].as_array().unwrap(), suite["skipped"].as_array().unwrap());
        for row in skipped {
            let failure = row["reason"].as_str().unwrap();
            let is_refused =
                ["panicked", "hung", "other bytes", "signal"].iter().all(|word| !failure.contains(word));
            assert!(is_refused, "{} in {}: {failure}", row["name"], suite["suite"]);
            let is_ours = row["name"].as_str().unwrap().starts_with("headwater");
            let could_run = ["kernel's page cache holds", "not all of its rows", "there is no io_uring here"]
                .iter()
                .all(|reason| !failure.contains(reason));
            assert!(!is_ours || !could_run, "{} in {}: {failure}", row["name"], suite["suite"]);
        }
        let mut names = rows.iter().chain(skipped).map(|row| row["name"].as_str().unwrap());
        assert!(names.any(|name| name.starts_with("headwater")), "{} is without it: {text}", suite["suite"]);
    }
    assert_eq!(files.read_dir().unwrap().count(), 0, "files are left behind");
}

/// Goal: what is asked for alone runs alone, all of headwater's ways with it, and `--json` without a path puts nothing but JSON on standard
/// output.
#[test]
fn peers_runs_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
        .args(["peers", "--rounds", "2", "--files", "10", "--only", "files-warm", "--peers", "std", "--json"])
        .arg("--dir")
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let suite = &report["suites"][0];
    assert_eq!(suite["suite"], "files-warm");
    for row in suite["rows"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        assert!(name.starts_with("std") || name.starts_with("headwater"), "{name}");
        assert_eq!(row["metrics"][0]["samples"].as_array().unwrap().len(), 2, "{row}");
    }
    let is_ring = |row: &Value| row["name"] == "headwater-ring";
    let has_uring = headwater::testing::uring_refusal().is_none();
    assert_eq!(suite["rows"].as_array().unwrap().iter().any(is_ring), has_uring, "{suite}");
    let skipped = suite["skipped"].as_array().unwrap();
    assert!(skipped.iter().all(|row| is_ring(row) && !has_uring), "{suite}");
}

/// Goal: what cannot work is refused at once, in words that say what is wrong and where, and leaves nothing behind. Method: each kind of mistake in
/// every command that can have it.
#[test]
fn what_cannot_work_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, json) = (folder.path().join("empty"), folder.path().join("none/out.json"));
    std::fs::write(&empty, "").unwrap();
    let place = folder.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let [empty, json, place] = [&empty, &json, &place].map(|path| path.to_str().unwrap());
    let in_folders = ["nop", "cache", "log", "peers", "amplify", "windows", "store", "examples"];
    for command in in_folders {
        assert_refused(&[command, "--dir", "/nowhere"], 1, "/nowhere: No such file");
        assert_refused(&[command, "--dir", empty], 1, "empty: Not a directory");
        assert_refused(&[command, "--rounds", "0"], 2, "--rounds");
        let to_json = format!("--json={json}");
        assert_refused(&[command, "--dir", place, &to_json], 1, "out.json: No such file");
    }
    for command in ["nop", "cache", "log", "peers", "windows", "store"] {
        for seconds in ["--seconds=0", "--seconds=-1", "--seconds=nan", "--seconds=1e300"] {
            assert_refused(&[command, "--dir", place, seconds], 2, "from 0.001 to 86400 seconds");
        }
    }
    let cases: [(&[&str], i32, &str); 13] = [
        (&["peers", "--only", "cold-scan", "--scan", "9000000000G"], 1, "no room: "),
        (&["peers", "--only", "hash,files-warm", "--hash", "9000000000G"], 1, "no room: "),
        (&["peers", "--file", empty], 1, "it is empty"),
        (&["peers", "--file", place], 1, "neither a file nor a block device"),
        (&["peers", "--files", "0"], 2, "--files"),
        (&["amplify", "--mib", "1000000000"], 1, "no room: 1000000000 MiB are needed in "),
        (&["amplify", "--mib", "99999999999999"], 2, "--mib"),
        (&["store", "--mib", "1000000000"], 1, "no room: "),
        (&["store", "--objects", "0"], 2, "--objects"),
        (&["log", "--record-bytes", "0"], 2, "--record-bytes"),
        (&["log", "--record-bytes", "18446744073709551615"], 2, "--record-bytes"),
        (&["log", "--only", "writer,log-2"], 1, "--only log-2: there is only log-1, log-8"),
        (&["nop", "--only", "nop,direct-3"], 1, "--only direct-3: there is only nop-1x64"),
    ];
    for (arguments, code, named) in cases {
        assert_refused(&[arguments, &["--dir", place]].concat(), code, named);
    }
    assert_refused(&["bars", "--file", "/nowhere"], 1, "/nowhere: No such file");
    assert_refused(&["bars", "--file", empty, "--only", "scan"], 1, "it is empty");
    assert_refused(&["bars", "--file", empty, "--only", "scan,pon"], 1, "--only pon: there is only scan");
    assert_refused(&["old-kernel", "4.4"], 1, "no release of Debian has Linux 4.4; there are 5.10");
    assert_eq!(std::fs::read_dir(place).unwrap().count(), 0, "files are left behind");
}

#[track_caller]
fn assert_refused(arguments: &[&str], code: i32, named: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(named) && !said.contains("panicked"), "{named} of {arguments:?} in {said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
}

/// Goal: results that cannot be printed are not lost without a word. Method: a standard output that is full.
#[test]
fn a_full_output_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
        .args(["log", "--only", "writer", "--rounds", "1", "--seconds", "0.02", "--dir"])
        .arg(folder.path())
        .stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("headwater-bench: standard output: No space left"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files are left behind");
}

/// Goal: every arm of `nop` runs with every shape, with and without an affinity of kernel threads, and reports its least and its rarest
/// latency.
#[test]
fn nop_runs_every_row() {
    if let Some(reason) = headwater::testing::uring_refusal() {
        return headwater_testkit::skip(reason);
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pinned = ["--affinity", "0", "--kernel-affinity", "0", "--only", "nop"];
    for (arguments, shapes) in [(&[][..], 5), (&pinned, 2)] {
        let json = folder.path().join("report.json");
        let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
            .args(["nop", "--rounds", "1", "--seconds", "0.05", "--dir"])
            .arg(folder.path())
            .args(arguments)
            .arg("--json")
            .arg(&json)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let suites = report["suites"].as_array().unwrap();
        assert_eq!(suites.len(), shapes, "{text}");
        for (suite, rows) in suites.iter().zip([12, 12, 6, 6, 6]) {
            let found = suite["rows"].as_array().unwrap();
            let skipped = suite["skipped"].to_string();
            assert!(found.len() >= rows || skipped.contains("no direct reads here"), "{text}");
            for row in found {
                let metrics = row["metrics"].as_array().unwrap();
                let has = |name: &str| metrics.iter().any(|metric| metric["name"] == name);
                assert!(has("min_us") && has("p99_9999_us"), "{row}");
            }
        }
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 1, "files are left behind");
}

/// Goal: every row of `store` runs, every arm reads the right bytes, and no object is left behind.
#[test]
fn store_runs_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
        .args(["store", "--rounds", "1", "--seconds", "0.02", "--mib", "8", "--objects", "50", "--dir"])
        .arg(folder.path())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let suites = report["suites"].as_array().unwrap();
    assert_eq!(suites.len(), 7, "{text}");
    for suite in suites {
        assert!(suite["rows"].as_array().unwrap().len() >= 2, "rows are missing:\n{text}");
        assert!(suite["verdicts"].as_array().unwrap().len() >= 2, "promises are missing:\n{text}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 1, "objects are left behind");
}

/// Goal: every arm of `amplify` reads the right bytes, and the kernel counts what the device reads for them; no file is left behind.
#[test]
fn amplify_runs_every_row() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
        .args([
            "amplify",
            "--rounds",
            "1",
            "--mib",
            "4",
            "--files",
            "20",
            "--reads",
            "50",
            "--json",
            "/dev/stderr",
        ])
        .arg("--dir")
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    let suites = report["suites"].as_array().unwrap();
    assert_eq!(suites.len(), 2, "{text}");
    for suite in suites {
        assert!(suite["rows"].as_array().unwrap().len() >= 5, "rows are missing:\n{text}");
        assert!(suite["rows"].to_string().contains("amplification"), "nothing is counted:\n{text}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "files are left behind");
}

/// Goal: every arm of `windows` loads the right bytes with every number of threads, or says what it lacks here, and no file is left behind.
#[test]
fn windows_runs_every_row() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
        .args([
            "windows",
            "--rounds",
            "1",
            "--mib",
            "16",
            "--seconds",
            "0.05",
            "--json",
            "/dev/stderr",
            "--dir",
        ])
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    let suites = report["suites"].as_array().unwrap();
    assert_eq!(suites.len(), 4, "{text}");
    for suite in suites {
        let (rows, skipped) = (suite["rows"].as_array().unwrap(), suite["skipped"].as_array().unwrap());
        for row in skipped {
            let failure = row["reason"].as_str().unwrap();
            // The kernel may kill a process with a mapping where the device's readahead in flight is as large as the cgroup.
            let is_of_others = row["name"].as_str().is_some_and(|name| name.starts_with("mmap"));
            let faults: &[&str] = if is_of_others { &[] } else { &["hung", "signal"] };
            assert!(
                ["panicked", "another byte"].iter().chain(faults).all(|word| !failure.contains(word)),
                "{row}"
            );
        }
        let ours =
            rows.iter().find(|row| row["name"] == "map").unwrap_or_else(|| panic!("no row of map:\n{text}"));
        assert!(ours["metrics"].to_string().contains("reads_per_s"), "{ours}");
        let names: Vec<&str> = rows.iter().chain(skipped).filter_map(|row| row["name"].as_str()).collect();
        assert!(
            ["mmap", "mmap-random", "calls", "cells"].iter().all(|name| names.contains(name)),
            "{names:?}:\n{text}"
        );
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "files are left behind");
}

/// Where a tool is missing, a row has one line for all of its promises.
const PROMISES: usize = 16;

/// Groups of `peers`; the last suite is their summary.
const PEER_ROWS: usize = 12;

/// Goal: a program that fails, or prints less than the file, wins nothing. Method: scripts in the place of headwater, for a file whose name
/// has to be quoted; none has a row, and both of its ways are named.
#[test]
fn what_fails_wins_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [file, program, json] = ["it's a file", "headwater", "json"].map(|name| folder.path().join(name));
    std::fs::write(&file, vec![b'x'; 100_000]).unwrap();
    for script in ["exit 1", "[ \"$1\" = cat ] && head -c 5000 \"$2\"", "[ \"$1\" = cat ] && cat \"$2\""] {
        write_program(&program, script);
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-bench"));
        command.args(["bars", "--only", "cat", "--rounds", "1", "--file"]).arg(&file);
        command.arg("--headwater").arg(&program).arg("--json").arg(&json);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cat, headwater bench cat"), "{said}");
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let rows = report["suites"][0]["rows"].as_array().unwrap().clone();
        let has = |name: &str| rows.iter().any(|row| row["name"] == name);
        let is_whole = script.contains(" cat \"");
        assert!(has("GNU into a pipe") && has("headwater into a pipe") == is_whole, "{script}: {rows:?}");
        assert_eq!(said.contains("cat, headwater into a pipe"), !is_whole, "{said}");
    }
}

/// Goal: beside a device no files are made, which would lie in memory. Method: a device node, of whatever device.
#[test]
fn a_device_takes_a_folder() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("device");
    if mknodat(CWD, &device, FileType::BlockDevice, Mode::RWXU, makedev(7, 0)).is_err() {
        return headwater_testkit::skip("only root makes devices");
    }
    let device = device.to_str().unwrap();
    assert_refused(&["bars", "--only", "write-fork", "--file", device], 1, "give a --dir");
}

/// Goal: documents that cannot be written are found out before a chapter is measured, and one that does not fit is not cut. Method: folders
/// without them, and a full file system.
#[test]
fn documents_are_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let figures = ["figures", "--root", root, "--only", "nop", "--headwater", "/nowhere"];
    assert_refused(&figures, 1, "benchmarks.json: No such file");
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    assert_refused(&figures, 1, "README.md: No such file");

    let full = match headwater_testkit::small_tmpfs(256 << 10) {
        Ok(full) => full,
        Err(reason) => return headwater_testkit::skip(reason),
    };
    let store = full.path().join("docs/benchmarks.json");
    std::fs::create_dir(full.path().join("docs")).unwrap();
    std::fs::write(full.path().join("README.md"), "<!-- figures: begin --><!-- figures: end -->").unwrap();
    // It takes more room where each number has a line.
    let results = serde_json::json!({ "suites": [], "more": vec![0; 10_000] });
    let chapter = serde_json::json!({
        "id": "nop", "command": "", "date": "", "commit": "", "machine": "", "results": results
    });
    let chapters = serde_json::json!({ "chapters": [chapter] }).to_string();
    std::fs::write(&store, &chapters).unwrap();
    let filling = std::fs::write(full.path().join("rest"), vec![0; 1 << 20]);
    assert!(filling.is_err(), "it is full");
    assert_refused(&["figures", "--render", "--root", full.path().to_str().unwrap()], 1, "No space left");
    assert_eq!(std::fs::read_to_string(&store).unwrap(), chapters);
}

/// A script in the place of a program. Another process writes it: a file that is open for writing, in a child of another test as well,
/// cannot be run.
fn write_program(path: &Path, script: &str) {
    let mut write = Command::new("sh");
    write
        .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .arg(script);
    assert!(write.status().unwrap().success());
}
