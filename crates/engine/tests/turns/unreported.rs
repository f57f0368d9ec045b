//! Unreported: what others do with a file that is no write: changes of names and permissions, stores through a mapping, openings.
//!
//! Owns: that the first cost nothing, that stores are seen once they are synced, and that an opening is a sign of writes to come.
//! Does not own: writes (findings).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::{ByteRange, Caching, Coherence, File, OpenOptions};
use headwater_testkit::{ScratchDir, skip, watched};

use crate::combination::{drivers, engine_on};
use crate::findings::{put, start, whole, write_x};
use crate::foreign::Stranger;
use crate::ways::each_way;

/// Goal: a file that headwater writes to, and so watches, keeps its pages when its permissions, links or names change; not when it
/// is written to, nor where nothing tells the two apart. Method: the bytes that are read from the device, after each change.
#[test]
fn names_and_permissions_leave_the_pages() {
    for driver in drivers() {
        for level in [Coherence::Revalidated, Coherence::Unwatched] {
            watched("names_and_permissions_leave_the_pages", || {
                let (directory, engine) = (ScratchDir::on_target().unwrap(), engine_on(driver, 8 << 20));
                let (path, other) = (directory.path().join("file"), directory.path().join("other"));
                std::fs::write(&path, start()).unwrap();
                let mut options = OpenOptions::new();
                let file = options
                    .engine(&engine)
                    .caching(Caching::On)
                    .coherence(level)
                    .write(true)
                    .open(&path)
                    .unwrap();
                file.write_all_at(b"X", 0).unwrap();
                file.sync_all().unwrap();
                let mut model = start();
                model[0] = b'X';
                if level != Coherence::Unwatched && file.coherence() == Coherence::Unwatched {
                    return skip("the kernel gives no watch (fanotify)");
                }
                reads_anew(&file, &model);
                let is_watched = level != Coherence::Unwatched;
                let changes: [(&str, &dyn Fn()); 4] = [
                    ("permissions", &|| {
                        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
                    }),
                    ("a link", &|| std::fs::hard_link(&path, &other).unwrap()),
                    ("a link less", &|| std::fs::remove_file(&other).unwrap()),
                    ("another name", &|| std::fs::rename(&path, &other).unwrap()),
                ];
                for (what, change) in changes {
                    change();
                    assert_eq!(reads_anew(&file, &model), !is_watched, "{driver:?} {level:?}, {what}");
                }
                Stranger::on(&other).tell("write 20480 4096 7");
                put(&mut model, 20_480, &crate::contents::bytes(7, 4096));
                assert!(reads_anew(&file, &model), "{driver:?} {level:?}, a write");
            });
        }
    }
}

/// Goal: what another program stores through a mapping is seen after its `msync`, although the kernel reports no such change.
/// Method: `xfs_io`, which works on any file system.
#[test]
fn stores_through_a_mapping_are_seen_when_they_are_synced() {
    if Command::new("xfs_io").arg("-V").output().is_err() {
        return skip("storing through a mapping of another program needs xfs_io (xfsprogs)");
    }
    each_way("stores_through_a_mapping_are_seen_when_they_are_synced", &start(), |ways| {
        let mut model = start();
        ways.check_read("at first", &model);
        write_x(ways, &mut model);
        ways.check_both("after our own write", &model);
        ways.theirs(|_, path| store(path, &["mwrite -S 0x37 20480 4096", "mwrite -S 0x38 2000 100"]));
        put(&mut model, 20_480, &[0x37; 4096]);
        put(&mut model, 2000, &[0x38; 100]);
        ways.check_both("after stores", &model);
        ways.theirs(|_, path| store(path, &["mwrite -S 0x39 20480 10"]));
        put(&mut model, 20_480, &[0x39; 10]);
        ways.check_both("after another store", &model);
    });
}

/// Goal: for a while after another program has opened a file, headwater writes to it through the kernel's page cache: a direct write
/// beside the other program's first one would have the syncs of both fail. Method: whether the kernel has the pages after a sync.
#[test]
fn an_opening_is_a_sign_of_writes() {
    for driver in drivers() {
        let (directory, engine) = (ScratchDir::on_target().unwrap(), engine_on(driver, 8 << 20));
        let path = directory.path().join("file");
        std::fs::write(&path, start()).unwrap();
        let file = OpenOptions::new().engine(&engine).caching(Caching::On).write(true).open(&path).unwrap();
        let kernel = OpenFile::open(&path, DirectIo::Preferred, Access::Read).unwrap();
        let pages_after_a_write = |byte: u8| {
            kernel.evict_from_kernel().unwrap();
            file.write_all_at(&vec![byte; start().len()], 0).unwrap();
            file.sync_all().unwrap();
            kernel.resident_pages(ByteRange::new(0, start().len() as u64))
        };
        file.write_all_at(b"X", 0).unwrap();
        file.sync_all().unwrap();
        if kernel.direct().is_none() || file.coherence() == Coherence::Unwatched {
            return skip("without direct I/O, or a watch (fanotify), there is nothing to tell apart");
        }
        if kernel.resident_pages(ByteRange::new(0, 1)).is_none() {
            return skip("the kernel does not tell what it caches (before Linux 6.5)");
        }
        // Until then, another program may have had it open before.
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(pages_after_a_write(1), Some(0), "{driver:?}: directly");
        assert!(Command::new("cat").arg(&path).output().unwrap().status.success());
        assert_eq!(pages_after_a_write(2), Some(16), "{driver:?}: through the kernel's page cache");
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(pages_after_a_write(3), Some(0), "{driver:?}: directly again");
    }
}

fn store(path: &Path, stores: &[&str]) {
    let mut command = Command::new("xfs_io");
    command.args(["-c", "mmap -rw 0 65536"]);
    stores.iter().for_each(|store| _ = command.args(["-c", store]));
    let output = command.args(["-c", "msync -s"]).arg(path).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Checks what is read after a look, and says whether the device was read for it.
fn reads_anew(file: &File, model: &[u8]) -> bool {
    file.refresh().unwrap();
    let before = file.stats().counts.device_reads;
    assert!(whole(file) == model);
    file.stats().counts.device_reads > before
}
