//! Exits: a process that ends in an orderly way, without a word about what it has written through the global engine.
//!
//! Owns: the child and its ways of ending.
//! Does not own: what a kill leaves (killed).

use headwater::File;
use headwater_testkit::{ScratchDir, spawn_self_with_env, watched};

const CHILD: &str = "HEADWATER_TEST_EXITS";
const LINES: u32 = 5000;

/// Goal: what was not synced is written when the process ends: by `exit`, by the end of the test's process, with the file
/// closed, or leaked and so open for ever.
#[test]
fn what_is_not_synced_is_written_at_the_end() {
    if let Ok(task) = std::env::var(CHILD) {
        return write_and_end(&task);
    }
    let directory = ScratchDir::on_target().unwrap();
    for way in ["exits", "leaks", "closes"] {
        let path = directory.path().join(way);
        let task = format!("{way} {}", path.display());
        let name = "exits::what_is_not_synced_is_written_at_the_end";
        let status =
            watched(way, || spawn_self_with_env(name, CHILD, &task).wait_with_output().unwrap().status);
        assert_eq!(status.code(), Some(if way == "exits" { 3 } else { 0 }), "{way}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), contents(), "{way}");
    }
}

fn contents() -> String {
    (0..LINES).map(|line| format!("line {line}\n")).collect()
}

fn write_and_end(task: &str) {
    let (way, path) = task.split_once(' ').unwrap();
    let file = File::create(path).unwrap();
    for line in 0..LINES {
        file.append(format!("line {line}\n").as_bytes()).unwrap();
    }
    match way {
        "exits" => std::process::exit(3),
        "leaks" => std::mem::forget(file),
        _ => drop(file),
    }
}
