//! Slow: a node whose calls stop at a gate, and what others do meanwhile.
//!
//! Owns: loads under way that are joined, overtaken by writes and truncates, or left behind by the tasks that serve.
//! Does not own: failing nodes (faults), little memory (memory).

use std::sync::Arc;
use std::thread;

use headwater_arceos::{ReadaheadPolicy, Settings};
use headwater_testkit::watched;

use crate::node::{Gate, Kind, Moment, Node};
use crate::rig::{File, Rig, SMALL_BYTES, assert_pattern, pattern, read, until};

/// Goal: a page on its way is joined by all who want it, and read once.
#[test]
fn a_page_on_its_way_is_joined() {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (node, file) = rig.patterned(8);
    let gate = node.gate(Kind::Read, Moment::Before, 0..4096);
    watched("joining", || {
        thread::scope(|scope| {
            let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| read(&file, 0, 4096))).collect();
            until(|| rig.stats().joined == 2);
            gate.open();
            readers.into_iter().for_each(|reader| assert_pattern(&reader.join().unwrap(), 0));
        });
    });
    assert_eq!((node.calls(Kind::Read).len(), node.readers_max()), (1, 1));
    drop(file);
    rig.assert_empty();
}

/// Goal: whoever needs a queued window reads it, while the only task that serves is busy elsewhere.
#[test]
#[cfg_attr(miri, ignore)]
fn a_reader_runs_its_own_window_while_the_server_is_busy() {
    let rig = Rig::new(Settings::new(16 << 20), 1);
    let busy = Busy::new(&rig);
    let (node, file) = rig.patterned(1024);
    watched("a server that is busy", || {
        for page in 0..1024 {
            assert_pattern(&read(&file, page * 4096, 4096), page * 4096);
        }
    });
    let asked: u64 = node.calls(Kind::Read).iter().map(|call| call.length.div_ceil(4096)).sum();
    assert_eq!((asked, node.doubled()), (1024, Vec::new()));
    busy.gate.open();
    drop((busy.file, file));
    rig.assert_empty();
}

/// Goal: what is queued as the tasks are stopped is read nevertheless.
#[test]
#[cfg_attr(miri, ignore)]
fn stop_reads_what_is_queued() {
    let rig = Rig::new(Settings::new(16 << 20), 1);
    let busy = Busy::new(&rig);
    let (node, file) = rig.patterned(1024);
    let mut page = 0;
    // Until something waits for the server.
    while rig.stats().loading_pages == busy.loading_pages {
        let _ = read(&file, page * 4096, 4096);
        page += 1;
    }
    rig.cache.stop();
    busy.gate.open();
    rig.stop();
    assert_eq!(rig.stats().loading_pages, 0);
    let loaded: u64 = node.calls(Kind::Read).iter().map(|call| call.length.div_ceil(4096)).sum();
    assert!(loaded > page, "the window ahead was not read");
    for page in 0..1024 {
        assert_pattern(&read(&file, page * 4096, 4096), page * 4096);
    }
    assert_eq!(node.doubled(), []);
    drop((busy.file, file));
    rig.assert_empty();
}

/// A server that stands at a gate.
struct Busy {
    gate: Arc<Gate>,
    file: File,
    loading_pages: u32,
}

impl Busy {
    fn new(rig: &Rig) -> Self {
        let (node, file) = rig.patterned(1024);
        let gate = node.gate(Kind::Read, Moment::Before, 512 << 10..u64::MAX);
        for page in 0.. {
            let _ = read(&file, page * 4096, 4096);
            // Whatever is queued is the server's, since nobody reads on.
            until(|| rig.stats().loading_pages == 0 || gate.arrivals() > 0);
            if gate.arrivals() > 0 {
                break;
            }
        }
        Self { gate, file, loading_pages: rig.stats().loading_pages }
    }
}

/// Goal: what a load brings late does not overwrite what was written meanwhile.
#[test]
fn a_late_load_does_not_undo_a_write() {
    overtaken(|file, gate| {
        file.write_at(&[9; 4096], 4096).unwrap();
        assert_eq!(read(file, 4096, 4096), [9; 4096]);
        gate.open();
        let mut expected = pattern(4);
        expected[4096..8192].fill(9);
        expected
    });
}

/// Goal: the same for a write of a part of the page, which waits for the load.
#[test]
fn a_late_load_does_not_undo_part_of_a_write() {
    overtaken(|file, gate| {
        thread::scope(|scope| {
            let writer = scope.spawn(|| file.write_at(&[9; 100], 5000));
            gate.open();
            assert_eq!(writer.join().unwrap(), Ok(100));
        });
        let mut expected = pattern(4);
        expected[5000..5100].fill(9);
        expected
    });
}

/// Goal: after a truncate and a lengthening there are zeros, whatever a load brings that began before.
#[test]
fn a_late_load_does_not_undo_a_truncate() {
    overtaken(|file, gate| {
        file.set_len(4096).unwrap();
        file.set_len(4 * 4096).unwrap();
        gate.open();
        let mut expected = pattern(4);
        expected[4096..].fill(0);
        expected
    });
}

/// Goal: the same where the truncate is within the page on its way.
#[test]
fn a_late_load_does_not_undo_a_truncate_within_its_page() {
    overtaken(|file, gate| {
        thread::scope(|scope| {
            let truncating = scope.spawn(|| file.set_len(5000).and_then(|()| file.set_len(4 * 4096)));
            until(|| file.len() == 5000);
            gate.open();
            assert_eq!(truncating.join().unwrap(), Ok(()));
        });
        let mut expected = pattern(4);
        expected[5000..].fill(0);
        expected
    });
}

/// Goal: an end that moves on during a load of the last page shows zeros, and then what was appended.
#[test]
fn a_late_load_does_not_undo_an_append() {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let node = rig.node(pattern(1)[..1000].to_vec());
    let file = rig.open(&node);
    let gate = node.gate(Kind::Read, Moment::After, 0..4096);
    watched("an append during a load", || {
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&file, 0, 1000));
            gate.await_arrivals(1);
            let appender = scope.spawn(|| file.append(&[3; 5000]));
            gate.open();
            assert_eq!(appender.join().unwrap(), Ok((5000, 6000)));
            assert_pattern(&reader.join().unwrap(), 0);
        });
    });
    assert_eq!(read(&file, 1000, 5000), [3; 5000]);
    drop(file);
    rig.cache.sync().unwrap();
    assert_eq!(node.bytes()[1000..], [3; 5000]);
    rig.assert_empty();
}

/// Has a load of page 1 stand behind its gate with the bytes as they were, while `meanwhile` changes the file and opens it.
fn overtaken(meanwhile: impl FnOnce(&File, &Gate) -> Vec<u8>) {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (node, file): (Arc<Node>, File) = rig.patterned(4);
    let gate = node.gate(Kind::Read, Moment::After, 4096..8192);
    let expected = watched("a load that is overtaken", || {
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut buffer = [0; 4096];
                file.read_at(&mut buffer, 4096).unwrap();
            });
            gate.await_arrivals(1);
            let expected = meanwhile(&file, &gate);
            reader.join().unwrap();
            expected
        })
    });
    assert_eq!(read(&file, 0, expected.len()), expected);
    rig.cache.sync().unwrap();
    assert_eq!(node.bytes(), expected);
    drop(file);
    rig.assert_empty();
}
