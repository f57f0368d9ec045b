//! Bench: that it measures, agrees with itself, says all it promises and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use headwater_testkit::{PATIENCE, Pattern, ScratchDir, tmpfs};
use serde_json::Value;

use crate::{assert_one_line, copy_command, headwater, run, text, to_json, utf8, with_program};

fn scan(arguments: &[&str], out: &Path) -> (String, Value) {
    let common = ["bench", "scan", "--rounds", "1", &to_json(utf8(out))];
    let output = run(&[&common[..], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    let results = serde_json::from_slice(&fs::read(out).unwrap()).unwrap();
    (text(&output.stdout), results)
}

fn row_ids(results: &Value) -> Vec<&str> {
    results["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect()
}

/// Goal: a file made for it is measured in all ways and is gone after. Method: 64 MiB, one round.
#[test]
fn scan_of_an_own_file() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let out = scratch.path().join("out.json");
    let (table, results) = scan(&["--size", "64M", "--dir", utf8(&place)], &out);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    assert_eq!(results["suite"], "scan");
    assert_eq!(results["file"]["bytes"], 64 << 20);
    assert!(results["host"]["kernel"].as_str().unwrap().starts_with("Linux"));
    for row in results["rows"].as_array().unwrap() {
        assert!(row["mib_per_s"].as_f64().unwrap() > 0.0, "{row}");
        for field in ["cpu_s_per_gib", "peak_rss_mib", "ratio_to_buffered"] {
            assert!(row[field].as_f64().unwrap() >= 0.0, "{field} of {row}");
        }
        assert!(table.contains(row["name"].as_str().unwrap()));
    }
    assert!(row_ids(&results).len() >= 17, "{results}");
    let steps = row_ids(&results).into_iter().filter(|id| id.starts_with("step-")).collect::<Vec<_>>();
    assert_eq!(steps[..4], ["step-4k-1", "step-4k-ahead", "step-4k-ahead-lent", "step-512k-5"]);
    for word in ["fastest: ", "fio --name=", "std buffered 128 KiB, with"] {
        assert!(table.contains(word), "{word} in {table}");
    }
}

/// Goal: a file of the user's, of odd length, is only read; a part of it, or in some ways, if asked.
#[test]
fn scan_of_a_given_file() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("file"), scratch.path().join("out.json"));
    let length = (9 << 20) + 1234;
    Pattern::new(5).write_file(&path, length).unwrap();
    let (_, whole) = scan(&["--file", utf8(&path)], &out);
    assert_eq!(whole["file"]["bytes"], length);
    let (_, part) = scan(&["--file", utf8(&path), "--size", "4M", "--driver", "threads"], &out);
    assert_eq!(part["file"]["bytes"], 4 << 20);
    assert_eq!(part["host"]["driver"], "threads");
    let (_, two) = scan(&["--file", utf8(&path), "--only", "mmap,buffered-1m"], &out);
    assert_eq!(row_ids(&two), ["buffered-1m", "mmap"]);
    let unknown = run(&["bench", "scan", "--file", utf8(&path), "--only", "buffered"]);
    assert_one_line(&unknown, "there is no such row; the rows are buffered-4k, ");
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len() as u64, Pattern::new(5).mismatch(0, &bytes)), (length, None));
}

/// Goal: figures of a file that no device has to read say so. Method: a file with data in front of a hole, and its data alone.
#[test]
fn scan_of_holes() {
    use std::os::unix::fs::MetadataExt;
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("file"), scratch.path().join("out.json"));
    Pattern::new(5).write_file(&path, 2 << 20).unwrap();
    fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(8 << 20).unwrap();
    if fs::metadata(&path).unwrap().blocks() * 512 >= 8 << 20 {
        return headwater_testkit::skip("the file system has no holes");
    }
    let of_file = ["--file", utf8(&path), "--only", "mmap"];
    let (table, results) = scan(&of_file, &out);
    let note = results["notes"].to_string();
    assert!(note.contains("6 MiB of the 8 MiB that were read are holes"), "{note}");
    assert!(table.contains("note: 6 MiB of the 8 MiB"), "{table}");
    let (_, results) = scan(&[&of_file[..], &["--size", "2M"]].concat(), &out);
    assert!(!results["notes"].to_string().contains("holes"), "{results}");
}

/// Goal: where there is no direct I/O the other rows remain, and the reason is said.
#[test]
fn scan_without_direct_io() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return headwater_testkit::skip(reason),
    };
    let out = scratch.path().join("out.json");
    let (table, results) = scan(&["--size", "4M", "--dir", utf8(scratch.path())], &out);
    assert_eq!(row_ids(&results), ["buffered-4k", "buffered-128k", "buffered-1m", "mmap", "mmap-sequential"]);
    assert!(table.contains("does not support direct I/O"), "{table}");
    assert!(table.contains("not cold"), "{table}");
}

/// Goal: a measurement that is killed has no process that measures on. Method: SIGKILL, which no process can act on, while a row has a
/// minute to go.
#[test]
fn a_killed_measurement_ends_with_its_row() {
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join("file");
    Pattern::new(5).write_file(&path, 1 << 20).unwrap();
    let mut command = headwater();
    command.args(["bench", "random", "--memory=64M", "--seconds", "60", "--file", utf8(&path)]);
    let mut bench = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    let row = loop {
        assert!(started.elapsed() < PATIENCE, "no row begins");
        if let Some(row) = row_of(bench.id()) {
            break row;
        }
        std::thread::yield_now();
    };
    bench.kill().unwrap();
    bench.wait().unwrap();
    while is_row(row) {
        assert!(started.elapsed() < PATIENCE, "the row goes on");
        std::thread::yield_now();
    }
}

/// The process that measures a row for this one.
fn row_of(parent: u32) -> Option<u32> {
    let parent = format!("PPid:\t{parent}\n");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    ids.find(|id| {
        let status = fs::read_to_string(format!("/proc/{id}/status"));
        status.is_ok_and(|status| status.contains(&parent)) && is_row(*id)
    })
}

fn is_row(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.contains("bench-row"))
}

/// Goal: without arguments it works where nothing can be written, for a user who is not root, and where a program that it runs fails.
#[test]
fn quick_form_works_for_nobody() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = place.path().join("headwater");
    copy_command(&binary);
    let json = fs::File::create(place.path().join("out.json")).unwrap();
    json.set_permissions(fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = std::process::Command::new(&binary);
    command.args(["bench", "--json=out.json"]).current_dir(place.path());
    let programs = tempfile::tempdir().unwrap();
    fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755)).unwrap();
    command.env("PATH", with_program(programs.path(), "coreutils", "exit 3"));
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for suite in ["fastest: ", "headwater reads 8 bytes in", "64 KiB into BLAKE3"] {
        assert!(text(&output.stdout).contains(suite), "{suite}");
    }
    let said = text(&output.stdout);
    let (_, last) = said.rsplit_once("\n\n").expect("there are paragraphs");
    assert!(
        last.starts_with("Is your storage slow, or is it your API?\nIt ") && last.lines().count() == 2,
        "{last}"
    );
    let results: Value = serde_json::from_slice(&fs::read(place.path().join("out.json")).unwrap()).unwrap();
    let suites = results["suites"].as_array().unwrap();
    let rows = |report: &Value| report["rows"].as_array().is_some_and(|rows| !rows.is_empty());
    assert!(
        suites.iter().all(|report| report["suite"] == "tune" || report["suite"] == "nop" || rows(report))
    );
    let names: Vec<&str> = suites.iter().map(|report| report["suite"].as_str().unwrap()).collect();
    assert_eq!(names, ["scan", "tune", "random", "cat", "cache", "readahead", "ubc", "nop"]);
    let left = fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 2, "only the binary and the results");
}

/// Goal: results are not written over the file that is measured with, by whichever name. Method: each file of results as another name of it.
#[test]
fn the_file_is_not_written_over() {
    let scratch = ScratchDir::on_target().unwrap();
    let [file, name] = ["file", "name"].map(|name| scratch.path().join(name));
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    fs::hard_link(&file, &name).unwrap();
    let name = utf8(&name);
    let (json, file) = (to_json(name), utf8(&file));
    let scan = ["bench", "scan", "--only", "mmap", "--rounds", "1", "--file", file];
    for line in [&[&scan[..], &[&json]].concat(), &[&scan[..], &["--html", name]].concat()] {
        assert_one_line(&run(line), "it is one of the files to read");
    }
    let cat = ["bench", "cat", "--rounds", "1", "--export-json", name, "--file", file];
    assert_one_line(&run(&cat), "it is one of the files to read");
    assert_eq!(fs::read(file).unwrap(), vec![1; 1 << 20]);
}
