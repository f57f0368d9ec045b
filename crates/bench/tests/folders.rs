//! Folders: what a run leaves of its files when it is killed, and what the next one does with that.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Goal: a run that a signal ends leaves no files, and no process that works on. Method: each signal that ends a run in practice, SIGKILL among them, as soon as the
/// run has its file.
#[test]
fn a_run_that_is_killed_leaves_nothing() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::KILL] {
        let place = tempfile::tempdir().unwrap();
        let mut child = long_run(place.path());
        wait_for("its file", || has_file(place.path()));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success(), "{signal:?} ends it");
        wait_for("the removal", || folders(place.path()).is_empty());
        wait_for("the end of its arm", || processes_of(place.path()).is_empty());
    }
}

/// Goal: what a run could not remove, since its guard was killed as well, the next run in the same place removes; it leaves alone what a
/// run that still lives has, what another program has, and what has no lock by design. Method: two long runs, of which one is killed with
/// its guard, a short one, and folders with names like theirs.
#[test]
fn the_next_run_removes_what_dead_ones_left() {
    let place = tempfile::tempdir().unwrap();
    let mut dead = long_run(place.path());
    wait_for("its file", || has_file(place.path()));
    let left = folders(place.path());
    let mut living = long_run(place.path());
    wait_for("the file of both", || folders(place.path()).len() == 2 && has_file(place.path()));
    for guard in guards_of(&dead) {
        kill_process(guard, Signal::KILL).unwrap();
    }
    kill_process(Pid::from_child(&dead), Signal::KILL).unwrap();
    dead.wait().unwrap();
    assert!(left[0].exists(), "there is something to remove");
    let others = ["headwater-bench-notes", "headwater-bench-abc123", "headwater-bench-notes.files"];
    for name in others {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }

    let next = run(place.path(), "0.02").args(["--rounds", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(next.status.success(), "{said}");
    assert!(said.contains(left[0].file_name().unwrap().to_str().unwrap()), "it says what it removes: {said}");
    assert!(!left[0].exists(), "{said}");
    let here = folders(place.path());
    assert_eq!(here.len(), 1 + others.len(), "{here:?}");
    assert!(others.iter().all(|name| here.contains(&place.path().join(name))), "{here:?}");
    let file_of_living = here.iter().find(|folder| !others.iter().any(|name| folder.ends_with(name)));
    assert!(file_of_living.is_some_and(|folder| folder != &left[0]), "{here:?}");

    kill_process(Pid::from_child(&living), Signal::TERM).unwrap();
    living.wait().unwrap();
    wait_for("the removal", || folders(place.path()).len() == others.len());
}

/// A run that appends to a file for minutes.
fn long_run(place: &Path) -> Child {
    let child = run(place, "60").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.unwrap()
}

fn run(place: &Path, seconds: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-bench"));
    command.args(["log", "--only", "log-1", "--seconds", seconds, "--dir"]).arg(place);
    command
}

fn folders(place: &Path) -> Vec<PathBuf> {
    place.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Whether there is something in all of them.
fn has_file(place: &Path) -> bool {
    let folders = folders(place);
    let is_used = |folder: &PathBuf| folder.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    !folders.is_empty() && folders.iter().all(is_used)
}

/// Those that were started with a path in this folder and have not ended.
fn processes_of(place: &Path) -> Vec<PathBuf> {
    let place = place.to_str().unwrap();
    let is_meant = |process: &PathBuf| {
        let command = std::fs::read_to_string(process.join("cmdline"));
        command.is_ok_and(|command| command.contains(place))
    };
    Path::new("/proc").read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(is_meant).collect()
}

/// The processes that wait for the end of this one.
fn guards_of(parent: &Child) -> Vec<Pid> {
    let parent = format!("PPid:\t{}\n", parent.id());
    let is_guard = |process: &PathBuf| {
        let read = |name| std::fs::read_to_string(process.join(name)).unwrap_or_default();
        read("status").contains(&parent) && read("cmdline").contains("folder-guard")
    };
    let processes = Path::new("/proc").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let pid = |process: PathBuf| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?);
    let guards: Vec<Pid> = processes.filter(is_guard).filter_map(pid).collect();
    assert!(guards.iter().all(|&guard| test_kill_process(guard).is_ok()), "they run");
    guards
}

#[track_caller]
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_there() {
        assert!(started.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(PAUSE);
    }
}

/// A busy machine may take long to start a process.
const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(5);
