//! Appends: two processes that append lines to one file at once.
//!
//! ```text
//!   this process ──┐
//!                  ├─► one file ─► every line there, whole, each writer's in its order
//!   another one ───┘     (headwater in a child, or the stranger's program)
//! ```
//!
//! 2000 lines from each, or `HEADWATER_APPENDS=100000`.
//!
//! Owns: that nothing of what `append(true)` appends is lost, and that no program gets an error, with it or without.
//! Does not own: appends in turn (findings).

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Child;

use headwater::{Engine, File, IoMode, OpenOptions};
use headwater_testkit::{ScratchDir, spawn_self_with_env};

use crate::api::appending;
use crate::combination::{Driver, drivers, engine_on, places};
use crate::contents::line;
use crate::foreign::Stranger;

/// Goal: each line that two processes of headwater append with `append(true)` is there, whole and in order, where `append`
/// said; synced every tenth time, and not.
#[test]
fn headwater_beside_headwater() {
    const NAME: &str = "appends::headwater_beside_headwater";
    if in_child() {
        return;
    }
    for task in tasks(End::OfTheKernel) {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let child = Beside::new(NAME, &path, task);
        let places = append_lines(&path, 'a', task);
        child.finish();
        check_lines(&path, &['a', 'b'], task);
        check_places(&path, 'a', &places);
    }
}

/// Goal: the same beside a program that appends by the standard library.
#[test]
fn headwater_beside_std() {
    for task in tasks(End::OfTheKernel) {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let mut stranger = Stranger::on(&path);
        stranger.begin(&format!("lines {} {}", task.count, task.synced_every));
        let places = append_lines(&path, 'a', task);
        stranger.finish();
        check_lines(&path, &['a', 's'], task);
        check_places(&path, 'a', &places);
    }
}

/// Goal: the control: two programs of the standard library pass.
#[test]
fn std_beside_std() {
    let directory = ScratchDir::on_target().unwrap();
    for task in tasks(End::OfTheKernel).into_iter().take(2) {
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let mut stranger = Stranger::on(&path);
        stranger.begin(&format!("lines {} {}", task.count, task.synced_every));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let places = (0..task.count).map(|number| {
            let line = line('a', number);
            file.write_all(line.as_bytes()).unwrap();
            file.stream_position().unwrap() - line.len() as u64
        });
        let places: Vec<u64> = places.collect();
        stranger.finish();
        check_lines(&path, &['a', 's'], task);
        check_places(&path, 'a', &places);
    }
}

/// Goal: two processes of headwater that append to one file without `append(true)` may overwrite each other's lines, and
/// neither gets an error, nor does a bystander's sync: no route of one makes the other's fail. Method: both sync often, so that
/// direct writes of one meet what the other has in the kernel's cache.
#[test]
fn two_engines_without_append_get_no_error() {
    const NAME: &str = "appends::two_engines_without_append_get_no_error";
    if in_child() {
        return;
    }
    for (name, directory) in places() {
        for task in tasks(End::AsKnown).into_iter().filter(|task| task.synced_every > 0) {
            let task = Task { synced_every: 3, count: 200, ..task };
            let path = directory.path().join("file");
            std::fs::write(&path, "").unwrap();
            let child = Beside::new(NAME, &path, task);
            append_lines(&path, 'a', task);
            child.finish();
            let bystander = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            assert!(bystander.sync_all().is_ok(), "{name}: the sync of a bystander");
        }
    }
}

/// Goal: the same beside the standard library, which appends all the time and syncs now and then, and gets no error either.
#[test]
fn std_beside_headwater_without_append_gets_no_error() {
    for (name, directory) in places() {
        for task in tasks(End::AsKnown).into_iter().filter(|task| task.synced_every > 0) {
            let path = directory.path().join("file");
            std::fs::write(&path, "").unwrap();
            let mut stranger = Stranger::on(&path);
            stranger.tell("appends 200 40");
            append_lines(&path, 'a', Task { synced_every: 3, count: 100, ..task });
            let lines = stranger.tell("stop");
            assert!(lines > 0, "{name}");
        }
    }
}

/// What both processes do.
#[derive(Clone, Copy, Debug)]
struct Task {
    driver: Driver,
    mode: IoMode,
    end: End,
    count: u64,
    /// After each so many lines; 0 for never.
    synced_every: u64,
}

/// Where a line goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// With `append(true)`.
    OfTheKernel,
    /// Without.
    AsKnown,
}

impl Task {
    /// How often each line is appended, in one go: without `append(true)` so often that pages become full all the time.
    fn repeated(self) -> usize {
        if self.end == End::OfTheKernel { 1 } else { 40 }
    }
}

fn tasks(end: End) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (driver, mode) in
        drivers().into_iter().flat_map(|driver| [IoMode::Auto, IoMode::Buffered].map(|mode| (driver, mode)))
    {
        tasks.extend([10, 0].map(|synced_every| Task { driver, mode, end, count: count(), synced_every }));
    }
    tasks
}

/// Appends what the task says, and says where that is.
fn append_lines(path: &Path, writer: char, task: Task) -> Vec<u64> {
    let engine = engine_on(task.driver, 8 << 20);
    let (mut file, mut places) = (open(&engine, path, task), Vec::new());
    let failed = |error| -> u64 { panic!("{writer}, {task:?}: {error}") };
    for number in 0..task.count {
        let appended = file.append(line(writer, number).repeat(task.repeated()).as_bytes());
        places.push(appended.unwrap_or_else(failed));
        if task.synced_every > 0 && number % task.synced_every == 0 {
            file.sync_data().map_or_else(failed, |()| 0);
            if task.end == End::AsKnown && number % 2 == 0 {
                // Which shows where the file ends.
                file = open(&engine, path, task);
            }
        }
    }
    file.sync_data().map_or_else(failed, |()| 0);
    places
}

fn open(engine: &Engine, path: &Path, task: Task) -> File {
    let mut options = OpenOptions::new();
    options.engine(engine).io(task.mode).write(true);
    if task.end == End::OfTheKernel {
        appending(&mut options);
    }
    options.open(path).unwrap()
}

/// The file consists of these lines, and each writer's are in their order.
fn check_lines(path: &Path, writers: &[char], task: Task) {
    let contents = std::fs::read(path).unwrap();
    let mut next = vec![0; writers.len()];
    for found in contents.split_inclusive(|&byte| byte == b'\n') {
        let found = String::from_utf8_lossy(found);
        let writer = writers.iter().position(|&writer| found.starts_with(writer));
        let Some(writer) = writer.filter(|&writer| found == line(writers[writer], next[writer])) else {
            panic!("{task:?}: after {next:?} lines comes {found:?}, and {} bytes in all", contents.len());
        };
        next[writer] += 1;
    }
    assert_eq!(next, vec![task.count; writers.len()], "{task:?}");
}

fn check_places(path: &Path, writer: char, places: &[u64]) {
    let contents = std::fs::read(path).unwrap();
    for (number, &place) in places.iter().enumerate() {
        let expected = line(writer, number as u64);
        let found = contents[place as usize..].get(..expected.len());
        assert_eq!(found, Some(expected.as_bytes()), "line {number} is not at {place}");
    }
}

/// Another process of headwater, which begins when this one does.
struct Beside {
    child: Child,
    path: PathBuf,
}

impl Beside {
    fn new(test_name: &str, path: &Path, task: Task) -> Beside {
        let Task { driver, mode, end, count, synced_every } = task;
        let text = format!("{driver:?} {mode:?} {end:?} {count} {synced_every} {}", path.display());
        let mut child = spawn_self_with_env(test_name, CHILD, &text);
        while !ready(path).exists() {
            assert!(child.try_wait().unwrap().is_none(), "the other process has ended");
            std::thread::yield_now();
        }
        std::fs::write(begin(path), "").unwrap();
        Beside { child, path: path.to_owned() }
    }

    fn finish(self) {
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        std::fs::remove_file(ready(&self.path)).unwrap();
        std::fs::remove_file(begin(&self.path)).unwrap();
    }
}

/// In the child, appends what the parent says. In the parent, says so.
fn in_child() -> bool {
    let Ok(text) = std::env::var(CHILD) else { return false };
    let words: Vec<&str> = text.splitn(6, ' ').collect();
    let driver = if words[0] == "Uring" { Driver::Uring } else { Driver::Threads };
    let mode = if words[1] == "Buffered" { IoMode::Buffered } else { IoMode::Auto };
    let end = if words[2] == "OfTheKernel" { End::OfTheKernel } else { End::AsKnown };
    let (count, synced_every) = (words[3].parse().unwrap(), words[4].parse().unwrap());
    let path = Path::new(words[5]);
    std::fs::write(ready(path), "").unwrap();
    while !begin(path).exists() {
        std::thread::yield_now();
    }
    append_lines(path, 'b', Task { driver, mode, end, count, synced_every });
    true
}

fn ready(path: &Path) -> PathBuf {
    path.with_extension("ready")
}

fn begin(path: &Path) -> PathBuf {
    path.with_extension("begin")
}

/// Lines of each writer.
fn count() -> u64 {
    let wanted = std::env::var("HEADWATER_APPENDS").ok();
    wanted.map_or(2000, |text| text.parse().expect("HEADWATER_APPENDS is a number of lines"))
}

const CHILD: &str = "HEADWATER_TURNS_CHILD";
