//! Dropped writers: their last bytes are written, or reported.
//!
//! Owns: the drop, beside failures.
//! Does not own: what a writer buffers (writer).

use std::io::{ErrorKind, Write};

use futures_util::AsyncWriteExt;

use crate::failures::Bench;
use crate::faults::EIO;
use crate::rig::block_on;

/// Goal: the last write of a writer that is dropped writes also where an earlier failure is still to be reported through its handle, which
/// is reported by the next sync instead. Method: writers of both kinds on a device that is well again.
#[test]
fn the_drop_of_a_writer_writes_beside_a_report() {
    for kind in ["writer", "async"] {
        let bench = Bench::new(13);
        let (first, second) = (bench.open("a"), bench.open("a"));
        let mut writer = second.writer();
        let mut tasks = second.async_writer();
        match kind {
            "writer" => writer.write_all(&[1; 100]).unwrap(),
            _ => block_on(AsyncWriteExt::write_all(&mut tasks, &[1; 100])).unwrap(),
        }
        first.write_all_at(&[7; 100], 100).unwrap();
        bench.break_from(0);
        assert_eq!(first.flush().unwrap_err().raw_os_error(), Some(EIO));
        bench.heal();
        drop((writer, tasks));
        assert_eq!(second.sync_data().unwrap_err().raw_os_error(), Some(EIO), "{kind}");
        second.sync_data().unwrap();
        bench.check_disk("a", &[[1; 100], [7; 100]].concat());
    }
}

/// Goal: what a writer loses when it is dropped as the last handle of its file is reported by the flush of the engine, once.
#[test]
fn the_flush_of_an_engine_reports_what_a_writer_lost() {
    let bench = Bench::new(14);
    let engine = bench.rig.engine.clone();
    let mut writer = bench.open("a").writer();
    writer.write_all(b"lost").unwrap();
    bench.rig.control().space_left(Some(0));
    drop(writer);
    assert_eq!(engine.flush().unwrap_err().kind(), ErrorKind::StorageFull);
    engine.flush().unwrap();
}
