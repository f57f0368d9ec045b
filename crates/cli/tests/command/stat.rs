//! Stat: what it says of files in every state of the cache, and of what is no file.
//!
//! Owns: words, numbers and exit codes.
//! Does not own: which pages the kernel keeps.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use headwater_testkit::{Pattern, ScratchDir, again_if_dropped, make_cold, scratch_dirs, skip, tmpfs};
use serde_json::Value;

use crate::{assert_one_line, copy_command, headwater, run, text, utf8};

const LENGTH_BYTES: u64 = (1 << 20) + 1;

const PAGES: u64 = 257;

fn file_in(scratch: &Path) -> std::path::PathBuf {
    let path = scratch.join("file");
    Pattern::new(31).write_file(&path, LENGTH_BYTES).unwrap();
    path
}

fn stat(path: &Path) -> (String, Value) {
    let words = run(&["stat", utf8(path)]);
    assert!(words.status.success(), "{}", text(&words.stderr));
    let json = run(&["stat", "--json", utf8(path)]);
    assert!(json.status.success(), "{}", text(&json.stderr));
    let mut entries: Vec<Value> = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(entries.len(), 1);
    (text(&words.stdout), entries.remove(0))
}

/// Goal: the memory of an engine is shown, in words and numbers that fit each other.
#[test]
fn memory_is_shown() {
    let (words, json) = (run(&["stat", "--memory"]), run(&["stat", "--memory", "--json"]));
    assert!(words.status.success() && json.status.success(), "{}", text(&words.stderr));
    let facts: Value = serde_json::from_slice(&json.stdout).unwrap();
    let number = |name: &str| facts[name].as_u64().unwrap();
    assert!(number("possible_bytes") <= number("ceiling_bytes"), "{facts}");
    assert!(["ceiling", "system", "cgroup"].contains(&facts["bound"].as_str().unwrap()), "{facts}");
    let words = text(&words.stdout);
    assert!(
        words.contains("could have") && words.contains("on offer") && words.lines().count() == 4,
        "{words}"
    );
}

/// Goal: all, nothing and a part of a file in the cache are told apart, in words, numbers and the map.
#[test]
fn residency_is_shown() {
    again_if_dropped(|| {
        // What lies in memory cannot be made cold.
        for (_, scratch) in scratch_dirs().into_iter().filter(|(kind, _)| *kind != "tmpfs") {
            let path = file_in(scratch.path());
            let file = File::open(&path).unwrap();
            fs::read(&path).unwrap();
            let (words, facts) = stat(&path);
            assert_eq!((&facts["length_bytes"], &facts["pages"]), (&LENGTH_BYTES.into(), &PAGES.into()));
            if facts["resident_pages"].is_null() {
                return skip("the kernel does not tell what is cached");
            }
            assert!(words.contains("257 of 257 pages, 100.0 %, 1.0 MiB"), "{words}");
            assert!(!words.contains("  map"), "{words}");
            make_cold(&file).unwrap();
            let (words, facts) = stat(&path);
            assert_eq!(facts["resident_pages"], 0, "{words}");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
            file.read_exact_at(&mut [0; 4096], LENGTH_BYTES / 2).unwrap();
            let (words, facts) = stat(&path);
            let resident = facts["resident_pages"].as_u64().unwrap();
            assert!(0 < resident && resident < PAGES, "{words}");
            let parts: Vec<Value> = facts["parts"]["resident_pages"].as_array().unwrap().clone();
            assert_eq!(parts.iter().map(|pages| pages.as_u64().unwrap()).sum::<u64>(), resident);
            let map = words.lines().find_map(|line| line.trim().strip_prefix("map")).unwrap().trim();
            assert_eq!(map.len(), parts.len() + 2);
            assert!(map.starts_with("|.") && map.ends_with(".|"), "{map}");
        }
    });
}

/// Goal: what direct I/O asks for is said, and headwater's way with it.
#[test]
fn direct_io_is_described() {
    for (_, scratch) in scratch_dirs() {
        let (words, facts) = stat(&file_in(scratch.path()));
        let refused = !facts["direct"]["refusal"].is_null();
        assert_eq!(facts["reads"], if refused { "buffered" } else { "direct" }, "{words}");
        assert!(facts["preferred_block_bytes"].as_u64().unwrap() > 0);
        assert!(!facts["file_system"].as_str().unwrap().is_empty(), "{words}");
        if !refused {
            let offset = facts["direct"]["offset_alignment_bytes"].as_u64().unwrap();
            assert!(offset.is_power_of_two() && words.contains(&format!("lengths to {offset}")), "{words}");
        }
    }
}

#[test]
fn a_file_in_memory_is_read_through_the_cache() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let (words, facts) = stat(&file_in(scratch.path()));
    assert_eq!((&facts["reads"], &facts["file_system"]), (&"buffered".into(), &"tmpfs".into()));
    assert!(words.contains("does not support direct I/O"), "{words}");
}

#[test]
fn an_empty_file_has_no_pages() {
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join("empty");
    fs::write(&path, "").unwrap();
    let (words, facts) = stat(&path);
    assert_eq!((&facts["pages"], &facts["resident_pages"]), (&0.into(), &0.into()));
    assert!(words.contains("0 of 0 pages"), "{words}");
}

#[test]
fn what_is_no_file_gets_one_line() {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let cases = [
        ("/nowhere", "No such file"),
        (utf8(place.path()), "directory"),
        (utf8(&fifo), "a FIFO or socket"),
        ("/dev/zero", "a character device"),
    ];
    for (path, named) in cases {
        assert_one_line(&run(&["stat", path]), named);
    }
    assert_one_line(&run(&["stat"]), "FILE");
}

/// Goal: the files after a bad one are still looked at, and the exit code tells.
#[test]
fn a_bad_file_does_not_stop_the_others() {
    let scratch = ScratchDir::on_target().unwrap();
    let path = file_in(scratch.path());
    let output = run(&["stat", "/nowhere", utf8(&path)]);
    assert_one_line(&output, "/nowhere");
    assert!(text(&output.stdout).contains("1048577 bytes"));
    let output = run(&["stat", "--json", "/nowhere", utf8(&path)]);
    assert_eq!(output.status.code(), Some(1));
    let entries: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(entries[0]["error"].as_str().unwrap().contains("No such file"));
    assert_eq!(entries[1]["length_bytes"], LENGTH_BYTES);
}

/// Goal: without permission it says so; of a file of somebody else's what the kernel does not tell is not made up.
#[test]
fn other_peoples_files() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become somebody else");
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = place.path().join("headwater");
    copy_command(&binary);
    let path = file_in(place.path());
    let as_nobody = |mode| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = std::process::Command::new(&binary);
        command.args(["stat", utf8(&path)]).uid(65534).gid(65534).output().unwrap()
    };
    assert_one_line(&as_nobody(0o600), "Permission denied");
    let output = as_nobody(0o644);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("unknown: the kernel"), "{}", text(&output.stdout));
}

/// Goal: a reader that leaves early is no error.
#[test]
fn a_closed_pipe_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = headwater().args(["stat", "/proc/self/exe"]).stdout(writer).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Goal: what is no file is looked at without being opened, which would let the writer of a FIFO go on. Method: the kernel's notices of
/// openings, beside stat and a list of sums that names the FIFO.
#[test]
fn a_fifo_is_not_opened() {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let place = tempfile::tempdir().unwrap();
    let (fifo, list) = (place.path().join("fifo"), place.path().join("list"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    fs::write(&list, format!("{}  {}\n", "0".repeat(64), utf8(&fifo))).unwrap();
    let notices = init(CreateFlags::NONBLOCK).unwrap();
    add_watch(&notices, &fifo, WatchFlags::OPEN).unwrap();
    assert_one_line(&run(&["stat", utf8(&fifo)]), "a FIFO or socket");
    assert!(text(&run(&["scan", "--check", utf8(&list)]).stderr).contains("neither a file"));
    let noticed = rustix::io::read(&notices, &mut [0; 64]);
    assert_eq!(noticed.unwrap_err(), rustix::io::Errno::AGAIN, "it was opened");
}
