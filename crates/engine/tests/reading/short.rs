//! Short: programs that read little and end.
//!
//! Owns: that they set up neither rings nor threads.
//! Does not own: how long they take (`headwater-bench bars --only short`).

use std::fs;

use headwater::{Engine, OpenOptions};

use crate::refusal::in_child;
use crate::rig::{Scratch, block_on};

/// Goal: a program that reads a page has no ring and no thread, and gets its bytes; one that reads more at once gets its ring then.
/// Method: descriptors and threads of a process of its own, after a page was read, and after a read in flight.
#[test]
fn a_page_takes_neither_ring_nor_thread() {
    if !in_child("short::a_page_takes_neither_ring_nor_thread") {
        return;
    }
    let scratch = Scratch::new(1, 4 << 20);
    scratch.make_cold();
    let engine = Engine::builder().build().unwrap();
    let file = OpenOptions::new().engine(&engine).open(scratch.path()).unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    scratch.check(0, &page);
    assert_eq!((rings(), threads()), (0, 0));
    let bytes = block_on(file.read_at_async(1 << 20, 2 << 20)).unwrap();
    scratch.check_all(1 << 20, 2 << 20, &bytes);
    assert_eq!(rings(), engine.info().rings as usize);
    assert!(rings() + threads() > 0);
}

fn rings() -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.as_os_str() == "anon_inode:[io_uring]").count()
}

/// Of headwater's.
fn threads() -> usize {
    let names = fs::read_dir("/proc/self/task").unwrap();
    let names = names.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("headwater-")).count()
}
