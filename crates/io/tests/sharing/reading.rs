//! Reading: direct reads of a file that another program writes to through the kernel's page cache.
//!
//! Owns: that no read fails because of those writes.
//! Does not own: which of the bytes written meanwhile a read gives.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use headwater_core::units::ByteRange;
use headwater_io::{
    Access, Arena, DirectIo, Direction, Driver, DriverKind, DriverOptions, Finished, OpenFile, Route,
    Transfer, Urgency, uring_refusal,
};
use headwater_testkit::{scratch_dirs, with_uring};

const BUFFER_BYTES: usize = 64 << 10;
const START_BYTES: u64 = 400 << 10;
const END_BYTES: u64 = 420_000;
const LENGTH_BYTES: u64 = 423_000;

/// Goal: a direct read does not fail where others have written to a file. XFS has it fail with EIO, again and again, if it meets space
/// that is promised to a write through the kernel's page cache and not found yet; and it promises more than is written, which stays
/// so if the file is then made longer. Method: a few foreign bytes, space set aside behind them, and reads of all that, blocking
/// and by each driver, on every file system.
#[test]
fn no_direct_read_fails_beside_foreign_writes() {
    for (name, directory) in scratch_dirs() {
        let path = directory.path().join("file");
        let foreign = fs::File::create(&path).unwrap();
        let file = Arc::new(OpenFile::open(&path, DirectIo::Preferred, Access::ReadWrite).unwrap());
        // tmpfs has no direct reads that could fail.
        if file.direct().is_none() {
            continue;
        }
        foreign.set_len(END_BYTES / 2).unwrap();
        foreign.write_all_at(&[7; 600], END_BYTES - 600).unwrap();
        file.allocate(ByteRange::new(END_BYTES.next_multiple_of(4096), LENGTH_BYTES)).unwrap();
        foreign.sync_all().unwrap();
        let mut expected = vec![0; (LENGTH_BYTES - START_BYTES) as usize];
        let at = (END_BYTES - 600 - START_BYTES) as usize;
        expected[at..at + 600].fill(7);
        for driver in drivers() {
            let arena = Arena::new(4 << 20).unwrap();
            let mut extents = arena.allocate_run(BUFFER_BYTES, Urgency::Demand).unwrap();
            let read = driver.read_blocking(&file, Route::Direct, &mut extents[0], START_BYTES);
            assert_eq!(read.unwrap(), expected.len(), "{name}");
            assert!(extents[0].starts_with(&expected), "{name}");
            let request = Transfer {
                direction: Direction::Read,
                file: file.clone(),
                route: Route::Direct,
                offset_bytes: START_BYTES,
                length_bytes: BUFFER_BYTES,
                extents,
            };
            let Finished { result, extents, .. } = driver.submit(request, Urgency::Demand).unwrap().wait();
            assert_eq!(result.unwrap(), expected.len(), "{name}");
            assert!(extents[0].starts_with(&expected), "{name}");
        }
    }
}

fn drivers() -> Vec<Driver> {
    with_uring([DriverKind::Threads], DriverKind::Uring, uring_refusal())
        .into_iter()
        .map(|kind| Driver::new(&DriverOptions { kind, ..Default::default() }).unwrap())
        .collect()
}
