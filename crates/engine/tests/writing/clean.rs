//! Clean: what a file's disk has after a flush, without one, and after its name is gone.
//!
//! Owns: what is written without a sync, and when a file says that it has all.
//! Does not own: which handles hear of failures (failures), what a sync promises (durable).

use std::fs;
use std::time::Duration;

use headwater::Result;

use crate::failures::Bench;
use crate::faults::EIO;
use crate::rig::{block_on, watched};

/// Goal: a file is clean when it has all that was written through any handle, or through a map; not so after a write back that failed,
/// until one succeeds.
#[test]
fn a_file_that_is_not_written_is_not_clean() {
    let bench = Bench::new(5);
    let (first, second) = (bench.open("a"), bench.open("a"));
    let is_clean = || (first.is_clean(), second.is_clean());
    assert_eq!(is_clean(), (true, true));
    first.write_all_at(&[7; 100], 0).unwrap();
    assert_eq!(is_clean(), (false, false));
    bench.break_from(0);
    assert_eq!(second.flush().unwrap_err().raw_os_error(), Some(EIO));
    assert_eq!(is_clean(), (false, false));
    bench.heal();
    let _ = first.flush();
    second.flush().unwrap();
    assert_eq!(is_clean(), (true, true));
    bench.check_disk("a", &[7; 100]);
    let map = second.map(..).unwrap();
    map.write(0, &[8; 100]).unwrap();
    assert_eq!(is_clean(), (false, false));
    map.sync().unwrap();
    assert_eq!(is_clean(), (true, true));
    bench.check_disk("a", &[8; 100]);
}

/// Goal: a flush writes what is dirty into the file and makes the device promise nothing: it costs no `fdatasync`, which a sync then does.
/// Method: flushes by calls and by tasks, of a file and of the engine, and a look at the disk behind each.
#[test]
fn a_flush_syncs_nothing() {
    let bench = Bench::new(6);
    let file = bench.open("a");
    let syncs = || bench.rig.control().syncs();
    let flushes: [&dyn Fn() -> Result<()>; 3] =
        [&|| file.flush(), &|| block_on(file.flush_async()), &|| bench.rig.engine.flush()];
    for (round, flush) in flushes.into_iter().enumerate() {
        let (before, bytes) = (syncs(), [round as u8 + 1; 9000]);
        file.write_all_at(&bytes, 0).unwrap();
        flush().unwrap();
        assert_eq!((syncs(), file.is_clean()), (before, true), "round {round}");
        bench.check_disk("a", &bytes);
        file.sync_data().unwrap();
        assert!(syncs() > before, "round {round}: the sync asked the device for nothing");
    }
}

/// Goal: unwritten pages of a file that has no name and no handle any more, and cannot be written, are given up by the engine itself, so that
/// the file system gets their space back without a flush; the next flush reports it, once, whether a sync has failed before or not.
#[test]
fn a_deleted_file_is_given_up_by_itself() {
    for has_failed in [true, false] {
        let bench = Bench::new(7);
        let file = bench.open("a");
        file.write_all_at(&[7; 20_000], 0).unwrap();
        bench.break_from(0);
        if has_failed {
            assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
        }
        let dirty_pages = || bench.rig.engine.stats().cache.dirty_pages;
        assert_eq!(dirty_pages(), 5);
        fs::remove_file(bench.path("a")).unwrap();
        drop(file);
        watched("a deleted file", || {
            while dirty_pages() > 0 {
                bench.rig.control().advance(Duration::from_secs(6));
                bench.rig.engine.maintain();
            }
        });
        assert_eq!(bench.rig.engine.flush().unwrap_err().raw_os_error(), Some(EIO), "{has_failed}");
        bench.rig.engine.flush().unwrap();
        bench.heal();
        bench.rig.assert_idle();
    }
}
