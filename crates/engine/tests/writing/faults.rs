//! Faults: a script of writes in which each operation on the device fails once.
//!
//! ```text
//!   n = 0, 1, 2 …: script, the nth operation fails ─► healed ─► a sync succeeds, the disk is the model
//!                                                         └──── or a sync had failed: latched, for all and for ever
//! ```
//!
//! Owns: the script, and what must be true after any failure.
//! Does not own: faults that last (failures), reads that fail (reading).

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use headwater::testing::{FaultOn, FaultRange, SimOptions};
use headwater::{ByteRange, DriverKind, Error, File, IoMode, Operation};
use headwater_testkit::{Pattern, ScratchDir, make_cold, with_seed};

use crate::model::same;
use crate::rig::{Rig, calm_device, watched};
use crate::threads::open;

/// Goal: whatever operation of the device fails, with whatever error, nobody panics or hangs; each error says what was
/// done and to which file; afterwards what was acknowledged is on disk, or the file says that it may not be. Method: on a
/// device that is calm, and on some that are not.
#[test]
fn each_operation_fails_once() {
    with_seed("faults::each_operation_fails_once", |seed| {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        let hostile = (seed..).take(3).map(|seed| DriverKind::Sim(SimOptions::hostile(seed)));
        for device in [calm_device(seed)].into_iter().chain(hostile) {
            for errno in [EIO, ENOSPC] {
                let failures = (0..).take_while(|&nth| {
                    let what = format!("operation {nth} fails with {errno} on {device:?}");
                    watched(&what, || fails(device.clone(), nth, errno, &path))
                });
                let count = failures.count();
                assert!(count > 10, "the script makes only {count} operations");
            }
        }
    });
}

/// Says whether there was an nth operation.
fn fails(device: DriverKind, nth: u64, errno: i32, path: &Path) -> bool {
    let rig = Rig::sized(device, 3 << 20, 8);
    let mut script = Script::new(&rig, path, errno);
    rig.control().fail_at(nth, errno);
    script.run();
    let has_failed = !rig.control().is_failure_to_come();
    rig.control().fail_at(u64::MAX, errno);
    script.finish();
    rig.assert_idle();
    has_failed
}

struct Script<'a> {
    rig: &'a Rig,
    path: &'a Path,
    errno: i32,
    file: File,
    /// What was acknowledged.
    bytes: Vec<u8>,
    is_latched: bool,
}

impl<'a> Script<'a> {
    fn new(rig: &'a Rig, path: &'a Path, errno: i32) -> Script<'a> {
        let mut bytes = vec![0; 10 * 4096 + 123];
        Pattern::new(7).fill(0, &mut bytes);
        fs::write(path, &bytes).unwrap();
        make_cold(&fs::File::open(path).unwrap()).unwrap();
        Script { rig, path, errno, file: open(rig, path, IoMode::Auto), bytes, is_latched: false }
    }

    fn run(&mut self) {
        self.write(5000, 100);
        self.write(8192, 20_000);
        self.append(3000);
        self.sync();
        // A gap.
        self.write(70_001, 500);
        self.flush();
        self.set_len(30_001);
        self.append(777);
        self.sync();
        self.set_len(50_000);
        // Begins to be written by itself.
        self.write(1 << 20, 1 << 20);
        self.write(100, 50);
        self.sync();
        self.set_len(20_000);
        self.write(19_990, 3);
        self.file = open(self.rig, self.path, IoMode::Auto);
        self.write(4095, 2);
        self.append(1);
        self.sync();
        // Left dirty.
        self.write(0, 4097);
    }

    fn write(&mut self, offset_bytes: usize, length: usize) {
        let mut bytes = vec![0; length];
        Pattern::new(offset_bytes as u64).fill(1, &mut bytes);
        let mut done = 0;
        while done < length {
            match self.file.write_at(&bytes[done..], (offset_bytes + done) as u64) {
                Ok(written) => done += written,
                Err(error) => return self.check_error(&error, Operation::Write),
            }
            let end = offset_bytes + done;
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[offset_bytes..end].copy_from_slice(&bytes[..done]);
        }
        self.check_read();
    }

    /// All of it or, if it fails, as much as the length says.
    fn append(&mut self, length: usize) {
        let mut bytes = vec![0; length];
        Pattern::new(99).fill(1, &mut bytes);
        match self.file.append(&bytes) {
            Ok(at) => {
                assert_eq!(at, self.bytes.len() as u64);
                self.bytes.extend(bytes);
            }
            Err(error) => {
                let appended = self.file.len().unwrap() as usize - self.bytes.len();
                self.bytes.extend(&bytes[..appended]);
                self.check_error(&error, Operation::Write);
            }
        }
        self.check_read();
    }

    fn set_len(&mut self, length_bytes: usize) {
        match self.file.set_len(length_bytes as u64) {
            Ok(()) => self.bytes.resize(length_bytes, 0),
            Err(error) => self.check_error(&error, Operation::SetLength),
        }
        self.check_read();
    }

    fn sync(&mut self) {
        match self.file.sync_data() {
            Ok(()) => {
                assert!(!self.is_latched, "success after a sync that failed");
                same("on disk", 0, &self.bytes, &fs::read(self.path).unwrap()).unwrap();
            }
            Err(error) => self.check_error(&error, Operation::Sync),
        }
        self.check_read();
    }

    fn flush(&mut self) {
        if let Err(error) = self.rig.engine.flush() {
            assert_eq!((error.operation(), error.raw_os_error()), (Operation::Sync, Some(self.errno)));
        }
    }

    /// Who reads sees what was acknowledged, all the time.
    fn check_read(&self) {
        assert_eq!(self.file.len().unwrap(), self.bytes.len() as u64);
        let mut found = vec![0; self.bytes.len()];
        self.file.read_exact_at(&mut found, 0).unwrap();
        same("in memory", 0, &self.bytes, &found).unwrap();
    }

    fn check_error(&mut self, error: &Error, operation: Operation) {
        let text = error.to_string();
        assert_eq!((error.operation(), error.path()), (operation, Some(self.path)), "{text}");
        assert!(text.contains(&*self.path.to_string_lossy()), "{text}");
        self.is_latched |= is_latched(error);
        assert!(error.raw_os_error() == Some(self.errno) || self.is_latched, "{text}");
    }

    /// The device is well again.
    fn finish(mut self) {
        self.write(4000, 200);
        let told = self.file.sync_data();
        let Err(error) = self.file.sync_data() else {
            assert!(told.as_ref().err().is_none_or(|error| !is_latched(error)), "{told:?}");
            assert!(!self.is_latched, "success after a sync that failed");
            return same("on disk", 0, &self.bytes, &fs::read(self.path).unwrap()).unwrap();
        };
        assert!(is_latched(&error), "told twice: {error}");
        let other = open(self.rig, self.path, IoMode::Buffered);
        for file in [&self.file, &other, &self.file] {
            assert!(is_latched(&file.sync_all().unwrap_err()));
            assert!(is_latched(&file.sync_data().unwrap_err()));
        }
        // It is written all the same.
        self.rig.engine.flush().unwrap();
        same("on disk", 0, &self.bytes, &fs::read(self.path).unwrap()).unwrap();
    }
}

pub(crate) fn is_latched(error: &Error) -> bool {
    error.to_string().contains("an earlier sync failed")
}

/// Goal: a write to a part of a page that cannot be read fails, says so and changes nothing; one to all of it succeeds,
/// and the part as well once the device is well.
#[test]
fn a_part_of_an_unreadable_page() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    for seed in 0..20 {
        let rig = Rig::sized(DriverKind::Sim(SimOptions::hostile(seed)), 3 << 20, 8);
        let mut script = Script::new(&rig, &path, EIO);
        let range = ByteRange::new(4096, 12288);
        rig.control().add_fault(FaultRange { operation: FaultOn::Reads, ..FaultRange::new(range, EIO) });
        watched(&format!("seed {seed}"), || {
            let error = script.file.write_at(b"part", 5000).unwrap_err();
            assert_eq!((error.path(), error.raw_os_error()), (Some(&*path), Some(EIO)), "{error}");
            assert!((4096..8192).contains(&error.offset_bytes().unwrap()), "{error}");
            assert_eq!(script.file.write_at(&[9; 4096], 8192).unwrap(), 4096);
            script.bytes[8192..12288].fill(9);
            let mut page = [0; 4096];
            script.file.read_exact_at(&mut page, 8192).unwrap();
            assert_eq!(page, [9; 4096]);
        });
        rig.control().clear_faults();
        script.write(5000, 4);
        script.sync();
        script.finish();
        rig.assert_idle();
    }
}

/// Goal: a device that writes less than it is asked to each time is asked again until all is written.
#[test]
fn all_writes_are_short() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    let options = SimOptions { short_per_mille: 1000, ..SimOptions::hostile(3) };
    let rig = Rig::sized(DriverKind::Sim(options), 3 << 20, 8);
    let mut script = Script::new(&rig, &path, EIO);
    watched("short writes", || script.run());
    assert!(!script.is_latched);
    script.finish();
    rig.assert_idle();
}

/// Goal: a device that is full refuses writes, or what was written to be synced, by name; what was acknowledged is read meanwhile, and on disk when there is
/// room again; it is told once. Method: room for nothing, for a little, for about half.
#[test]
fn a_full_device() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    for room_bytes in [0, 5000, 600_000] {
        for seed in 0..4 {
            let rig = Rig::sized(DriverKind::Sim(SimOptions::hostile(seed)), 3 << 20, 8);
            let mut script = Script::new(&rig, &path, ENOSPC);
            rig.control().space_left(Some(room_bytes));
            watched(&format!("room for {room_bytes}, seed {seed}"), || {
                script.run();
                script.write(1 << 20, 1 << 20);
                // What finds no room is refused when it is written, or, if it seemed to find some, when it is synced.
                let is_refused = script.bytes.len() < 2 << 20;
                match script.file.sync_data() {
                    Ok(()) => assert!(is_refused, "there is no room for all"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}"),
                }
                script.check_read();
            });
            rig.control().space_left(None);
            script.finish();
            rig.assert_idle();
        }
    }
}

pub(crate) const EIO: i32 = 5;
pub(crate) const ENOSPC: i32 = 28;
