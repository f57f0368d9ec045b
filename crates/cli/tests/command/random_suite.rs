//! Random suite: that all ways are measured in both spans as far as cgroups can be had, and nothing is left behind.
//!
//! Owns: rows, fields, what is said when something is impossible.
//! Does not own: how fast it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use headwater::testing::uring_refusal;
use headwater_io::DemandMemory;
use headwater_testkit::{MemoryCgroup, PATIENCE, Pattern, ScratchDir, skip, tmpfs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{assert_one_line, copy_command, headwater, run, text, to_json, utf8};

const COMMON: [&str; 7] = ["bench", "random", "--rounds", "1", "--seconds", "0.02", "--memory=64M"];

fn random(arguments: &[&str], out: &Path) -> (String, Value) {
    let output = run(&[&COMMON[..], &[&to_json(utf8(out))], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    (text(&output.stdout), serde_json::from_slice(&fs::read(out).unwrap()).unwrap())
}

fn ids(results: &Value) -> Vec<&str> {
    results["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect()
}

const CACHED: [&str; 6] =
    ["buffered", "mmap", "mmap-random", "headwater-threads", "headwater-tasks", "headwater-views"];
/// Where userfaultfd is allowed.
const WINDOW: &str = "headwater-window";
const DIRECT: [&str; 2] = ["direct", "headwater-direct"];
/// Where there is io_uring.
const SQPOLL: &str = "headwater-direct-sqpoll";

/// Where the suite makes its cgroups, if it may.
fn cgroup_parent() -> Option<PathBuf> {
    let cgroup = MemoryCgroup::new(32 << 20).ok()?;
    cgroup.path().parent().map(Path::to_owned)
}

/// What is there of the cgroups of a process.
fn cgroups_of(parent: &Path, process: u32) -> Vec<String> {
    let names =
        fs::read_dir(parent).unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let prefix = format!("headwater-bench-{process}-");
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// Goal: both spans in all ways where cgroups can be had, else one of them and the reason; no file and no cgroup afterwards.
#[test]
fn tables_of_an_own_file() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let out = scratch.path().join("out.json");
    let child = headwater()
        .args(COMMON)
        .args([&to_json(utf8(&out)), "--dir", utf8(&place), "--kernel-affinity", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is left");
    let parent = cgroup_parent();
    assert_eq!(parent.as_ref().map_or(Vec::new(), |parent| cgroups_of(parent, process)), [""; 0]);
    let (table, results) = (text(&output.stdout), fs::read(&out).unwrap());
    let results: Value = serde_json::from_slice(&results).unwrap();
    assert_eq!((&results["suite"], &results["memory_bytes"]), (&"random".into(), &(64 << 20).into()));
    assert_eq!((&results["bytes"], &results["limited"]), (&(160 << 20).into(), &parent.is_some().into()));
    let rows = ids(&results);
    let sqpoll = uring_refusal().is_none().then_some(SQPOLL);
    let window = DemandMemory::new(1).is_ok().then_some(WINDOW);
    for way in CACHED.iter().chain(&DIRECT).chain(&sqpoll).chain(&window) {
        assert!(rows.contains(&&*format!("within-{way}")), "{way} of {rows:?}");
        let is_beyond = parent.is_some() && *way != "headwater-views";
        assert_eq!(rows.contains(&&*format!("beyond-{way}")), is_beyond, "{way} of {rows:?}");
    }
    for row in results["rows"].as_array().unwrap() {
        assert_row(row, parent.is_some());
        assert!(table.contains(row["name"].as_str().unwrap()), "{row} in {table}");
    }
    for word in ["reads/s", "p99.9 µs", "hit %", "Within memory headwater ", "fio --name="] {
        assert!(table.contains(word), "{word} in {table}");
    }
    assert!(!table.contains('\x1b'), "{table}");
}

fn assert_row(row: &Value, is_limited: bool) {
    for field in
        ["reads_per_s", "reads_per_s_min", "cpu_us_per_read", "memory_mib", "p99_us", "p99_9_us", "ratio"]
    {
        assert!(row[field].as_f64().unwrap() > 0.0, "{field} of {row}");
    }
    assert_eq!(row["memory_of"], if is_limited { "cgroup" } else { "process" });
    assert!(!is_limited || row["memory_mib"].as_f64().unwrap() <= 64.0, "{row}");
    let points = row["within_us"].as_array().unwrap();
    assert!(points.windows(2).all(|pair| pair[0][1].as_f64() <= pair[1][1].as_f64()), "{row}");
    let way = row["way"].as_str().unwrap();
    if way.contains("direct") {
        assert!(row["kernel_share"].is_null() || row["kernel_share"] == 0.0, "{row}");
        assert!(row["hit_share"].is_null(), "{row}");
        // Nothing is counted for what is no block device.
        let amplification = row["amplification"].as_f64().unwrap_or(0.0);
        assert!(amplification == 0.0 || amplification >= 1.0, "{row}");
    } else if row["span"] == "within" {
        // The kernel may take a page of its own cache back at any moment (reclaim, DAMON); nothing but the engine takes its pages.
        let (share, least) =
            if way.starts_with("headwater") { ("own_share", 1.0) } else { ("kernel_share", 0.95) };
        assert!(row[share].is_null() || row[share].as_f64().unwrap() >= least, "warm: {row}");
    }
    let is_cached = way.starts_with("headwater") && !way.contains("direct") && way != WINDOW;
    assert_eq!(row["hit_share"].is_number(), is_cached, "{row}");
}

/// Goal: a file of the user's is only read; where it is no larger than memory, it is said why there is no second span.
#[test]
fn a_given_file_bounds_the_spans() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("file"), scratch.path().join("out.json"));
    let length = (3 << 20) + 1234;
    Pattern::new(6).write_file(&path, length).unwrap();
    let (table, results) = random(&["--file", utf8(&path), "--driver", "threads"], &out);
    assert!(ids(&results).iter().all(|id| id.starts_with("within-")), "{results}");
    assert_eq!(results["rows"][0]["span_bytes"], 3 << 20);
    assert_eq!(results["host"]["driver"], "threads");
    assert!(table.contains("skipped std buffered, 20 threads, beyond memory: "), "{table}");
    assert!(!ids(&results).iter().any(|id| id.ends_with(SQPOLL)), "threads have no ring: {results}");
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len() as u64, Pattern::new(6).mismatch(0, &bytes)), (length, None));
}

/// Goal: where there is no direct I/O the other rows remain, and it is said why.
#[test]
fn without_direct_io() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let out = tempfile::NamedTempFile::new().unwrap();
    let (path, length) = (scratch.path().join("file"), 2 << 20);
    Pattern::new(7).write_file(&path, length).unwrap();
    let (table, results) = random(&["--file", utf8(&path)], out.path());
    let window = DemandMemory::new(1).is_ok().then_some(WINDOW);
    let ways: Vec<_> = CACHED.iter().chain(&window).map(|way| format!("within-{way}")).collect();
    assert_eq!(ids(&results), ways);
    for name in
        ["O_DIRECT, 20 threads", "headwater direct, 20 tasks on 1", "headwater direct, SQPOLL, 20 tasks on 1"]
    {
        let said = format!("skipped {name}, within memory: the file system does not support direct I/O");
        assert!(table.contains(&said), "{said} in {table}");
    }
}

/// Goal: who has no rights to cgroups gets the span that fits, and the reason.
#[test]
fn for_nobody() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return skip(headwater_testkit::Skip("only root can become nobody".to_owned()));
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let binary = place.path().join("headwater");
    copy_command(&binary);
    let mut command = std::process::Command::new(&binary);
    command.args(COMMON).arg("--json").current_dir(place.path()).uid(65534).gid(65534);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["limited"], false);
    assert!(ids(&results).iter().all(|id| id.starts_with("within-")), "{results}");
    let skipped = results["skipped"].as_array().unwrap();
    assert!(skipped.iter().any(|row| row["reason"].as_str().unwrap().contains("cgroup")), "{results}");
    assert_eq!(results["rows"][0]["memory_of"], "process");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "only the binary");
}

/// Goal: interrupted, it leaves no cgroup. Method: a signal as soon as there is one.
#[test]
fn interrupted() {
    let Some(parent) = cgroup_parent() else {
        return skip(headwater_testkit::Skip("no cgroups can be made here".to_owned()));
    };
    let scratch = ScratchDir::on_target().unwrap();
    let mut command = headwater();
    command.args(COMMON).args(["--dir", utf8(scratch.path())]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while cgroups_of(&parent, child.id()).is_empty() && child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    // It may have ended already.
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    child.wait().unwrap();
    while !cgroups_of(&parent, child.id()).is_empty() {
        assert!(started.elapsed() < PATIENCE, "the guard removes it");
        std::thread::yield_now();
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn nonsense_is_refused() {
    assert_one_line(&run(&["bench", "random", "--memory", "1M"]), "rows take from 64M");
    assert_one_line(&run(&["bench", "random", "--file", "/nowhere"]), "/nowhere");
    assert_one_line(&run(&["bench", "random", "--seconds", "0"]), "seconds");
}
