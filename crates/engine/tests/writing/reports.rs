//! Reports: a report that a handle gives once reaches its caller.
//!
//! Owns: calls whose answer is another than the report.
//! Does not own: which handles report a failure, and how often (failures).

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;

use headwater::{Coherence, Error, OpenOptions};

use crate::failures::Bench;
use crate::faults::EIO;

/// Goal: a vectored write that has written its first buffer leaves the report of a failure to the next call. Method: that buffer is written
/// to the kernel's page cache at once, because others have changed the file, and fails there.
#[test]
fn a_part_of_a_vectored_write_is_no_report() {
    let bench = Bench::new(16);
    fs::write(bench.path("a"), [1; 4096]).unwrap();
    let file = bench.open("a");
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    fs::File::options().write(true).open(bench.path("a")).unwrap().write_all_at(&[2; 10], 0).unwrap();
    file.refresh().unwrap();
    bench.break_from(0);
    let buffers = [[7; 100], [8; 100]];
    let buffers = buffers.each_ref().map(|buffer| std::io::IoSlice::new(buffer));
    assert_eq!(file.write_vectored_at(&buffers, 4096).unwrap(), 100);
    bench.heal();
    assert_eq!(file.write_at(&[8; 100], 4196).unwrap_err().raw_os_error(), Some(EIO));
    file.write_all_at(&[8; 100], 4196).unwrap();
    file.sync_data().unwrap();
    let found = fs::read(bench.path("a")).unwrap();
    assert_eq!(found[4096..], [[7; 100], [8; 100]].concat());
}

/// Goal: a conflict that comes before the drop of a writer is reported by its handle, and as a conflict, and by no other handle.
#[test]
fn the_drop_of_a_writer_is_no_report_of_a_conflict() {
    let bench = Bench::new(17);
    fs::write(bench.path("a"), [1; 10_000]).unwrap();
    let mut options = OpenOptions::new();
    options.engine(&bench.rig.engine).read(true).write(true).coherence(Coherence::Checked);
    let (checked, other) = (options.open(bench.path("a")).unwrap(), bench.open("a"));
    other.read_exact_at(&mut [0; 10_000], 0).unwrap();
    let mut writer = checked.writer();
    writer.write_all(&[3; 100]).unwrap();
    other.write_all_at(&[7; 100], 5000).unwrap();
    fs::File::options().write(true).open(bench.path("a")).unwrap().write_all_at(&[2; 10], 9000).unwrap();
    other.refresh().unwrap();
    assert_eq!(other.stats().counts.conflicts, 1);
    drop(writer);
    other.sync_data().unwrap();
    assert!(matches!(checked.sync_data(), Err(Error::Conflict { .. })));
    checked.sync_data().unwrap();
    let found = fs::read(bench.path("a")).unwrap();
    assert_eq!((found[99], found[100], found[5000], found[9000]), (3, 1, 7, 2));
}
