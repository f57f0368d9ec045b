//! Collision: bytes of a page that go through the kernel's page cache while the pages beside it go directly to the device.
//!
//! ```text
//!   pages written directly ─► still in flight ─► another program's read: one folio of the kernel over these pages and the next
//!                                            ─► a part of that next page ─► sync
//! ```
//!
//! A direct write ends with an invalidation of the kernel's pages in its range. Where one of them lies in a dirty folio, the kernel
//! fails the next sync of the file with `EIO`, though no byte is wrong.
//!
//! Owns: writes of one engine that meet so, and whether the kernel lets them collide at all.
//! Does not own: files that others write to (the `coherence` tests).

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use headwater::ring::{
    Access, Arena, DirectIo, Direction, Driver, DriverOptions, OpenFile, Route, Transfer, Urgency,
};
use headwater::{Caching, OpenOptions};
use headwater_testkit::{ScratchDir, skip, with_seed};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::model::same;
use crate::rig::{Rig, block_on, drivers, watched};

/// How the part of a page gets to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Means {
    /// By a sync of the thread that wrote it.
    Sync,
    /// The same, by a task.
    Task,
    /// By a sync that began before, and one after it.
    Both,
}

/// Goal: a sync does not fail because a part of a page was written while the pages beside it were on their way to the device.
/// Method: a thread writes whole pages and sends them to the device behind 4 MiB; meanwhile, in the same 2 MiB, the standard
/// library reads over their end, so that the kernel has them and the next page in one folio, and a part of that page is written.
/// Skipped where two such writes without an engine do not collide.
#[test]
fn a_part_of_a_page_waits_for_the_direct_write_beside_it() {
    with_seed("collision::a_part_of_a_page_waits_for_the_direct_write_beside_it", |seed| {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        if !collides(&path) {
            return skip("a direct and a buffered write to neighbouring pages do not collide here");
        }
        for driver in drivers(seed) {
            for means in [Means::Sync, Means::Task, Means::Both] {
                let rig = Rig::sized(driver.clone(), 64 << 20, 64);
                let what = format!("{}, {means:?}", rig.name());
                watched(&what, || write_beside(&rig, &path, means, &what));
                rig.assert_idle();
            }
        }
    });
}

/// Writes pages and parts of pages beside them, in another range of the file each round: the first reads of a range that is
/// reserved, and not written, take the kernel no time.
fn write_beside(rig: &Rig, path: &Path, means: Means, what: &str) {
    let disk = reserved(path);
    let mut options = OpenOptions::new();
    let file = options.engine(&rig.engine).caching(Caching::On).write(true).open(path).unwrap();
    // Else the first writes go into the kernel's page cache.
    assert!(file.view(0, 1).unwrap() == [0]);
    let mut bytes = vec![0; ROUNDS * RANGE_BYTES];
    for round in 0..ROUNDS {
        let range = |range: Range<usize>| range.start + round * RANGE_BYTES..range.end + round * RANGE_BYTES;
        for written in [FILLER, WHOLE, PART] {
            bytes[range(written)].fill(1 + round as u8);
        }
        let write = |part: Range<usize>| {
            let part = range(part);
            file.write_all_at(&bytes[part.clone()], part.start as u64).unwrap();
        };
        // Backwards and in small pieces, which the engine keeps: all go to the device together.
        for start in FILLER.step_by(PIECE).rev() {
            write(start..start + PIECE);
        }
        write(WHOLE);
        thread::scope(|scope| {
            let sync = || if means == Means::Both { file.sync_data() } else { file.flush() };
            let sending = scope.spawn(sync);
            while rig.engine.stats().driver.in_flight == 0 && !sending.is_finished() {
                thread::yield_now();
            }
            read(&disk, range(READ));
            write(PART);
            let synced = match means {
                Means::Task => block_on(file.sync_data_async()),
                Means::Sync | Means::Both => file.sync_data(),
            };
            synced
                .and(sending.join().unwrap())
                .unwrap_or_else(|error| panic!("{what}, round {round}: {error}"));
        });
    }
    same(what, 0, &bytes, &fs::read(path).unwrap()).unwrap();
}

/// Whether the kernel fails a sync after the same writes without an engine.
fn collides(path: &Path) -> bool {
    let (driver, arena) = (Driver::new(&DriverOptions::default()).unwrap(), Arena::new(16 << 20).unwrap());
    driver.register_memory(&arena);
    let disk = reserved(path);
    let file = Arc::new(OpenFile::open(path, DirectIo::Preferred, Access::ReadWrite).unwrap());
    file.direct().is_some()
        && (0..ROUNDS).map(|round| (round * RANGE_BYTES) as u64).any(|start_bytes| {
            let mut plug = driver.plug();
            let whole = FILLER.step_by(MIB).map(|start| start..start + MIB).chain([WHOLE]);
            let writes: Vec<_> = whole
                .map(|range| {
                    let transfer = Transfer {
                        direction: Direction::Write,
                        file: file.clone(),
                        route: Route::Direct,
                        offset_bytes: start_bytes + range.start as u64,
                        length_bytes: range.len(),
                        extents: arena.allocate_run(range.len(), Urgency::Demand).unwrap(),
                    };
                    plug.submit(transfer, Urgency::Demand).unwrap()
                })
                .collect();
            drop(plug);
            let start = start_bytes as usize;
            read(&disk, start + READ.start..start + READ.end);
            disk.write_all_at(b"beside", start_bytes + PART.start as u64).unwrap();
            writes.into_iter().for_each(|write| assert!(write.wait().result.is_ok()));
            disk.sync_data().is_err_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()))
        })
}

/// A file of zeros, with room for all of it.
fn reserved(path: &Path) -> fs::File {
    let disk = fs::File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    disk.set_len((ROUNDS * RANGE_BYTES) as u64).unwrap();
    // Elsewhere the blocks are found when they are written.
    let _ = fallocate(&disk, FallocateFlags::empty(), 0, (ROUNDS * RANGE_BYTES) as u64);
    disk
}

/// Reads in order and in small pieces, so that the kernel reads ahead.
fn read(disk: &fs::File, range: Range<usize>) {
    let mut buffer = vec![0; 32 << 10];
    for start in range.step_by(buffer.len()) {
        disk.read_exact_at(&mut buffer, start as u64).unwrap();
    }
}

/// No direct write begins in the first 20 ms.
const ROUNDS: usize = 16;
const MIB: usize = 1 << 20;
const PIECE: usize = MIB / 4;
const RANGE_BYTES: usize = 8 * MIB;
/// What keeps the device busy.
const FILLER: Range<usize> = 0..4 * MIB;
/// Whole pages, an odd number of them from a multiple of their folio.
const WHOLE: Range<usize> = 4 * MIB + 4096..4 * MIB + 4096 + (600 << 10);
/// A part of the page behind them.
const PART: Range<usize> = WHOLE.end + 100..WHOLE.end + 110;
const READ: Range<usize> = WHOLE.end - (512 << 10)..WHOLE.end + (256 << 10);
