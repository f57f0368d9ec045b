//! Whole files by their path: what is cached is taken from the cache, nothing is stale, nothing short, and nothing given to a
//! thread that may not open the file.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::testing::FaultRange;
use headwater::{ByteRange, Engine, Operation};
use headwater_testkit::{Pattern, ScratchDir, let_age, skip};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::rig::{calm, drivers, rigs};

/// Of no page, a part of one, one, several, and more than is kept of a file that is read whole.
const LENGTHS: [u64; 6] = [0, 1, 4096, 4097, 100_000, (1 << 20) + 5];

fn contents(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    Pattern::new(seed).fill(0, &mut bytes);
    bytes
}

fn assert_reads(engine: &Engine, path: &Path, expected: &[u8], when: &str) {
    for time in 0..3 {
        let read = engine.read(path).unwrap();
        assert!(read == expected, "{when}, {} bytes, reading {time}", expected.len());
    }
}

/// Goal: the same bytes at the first reading and at later ones, also after the file has changed in each way there is.
#[test]
fn whole_files_are_as_they_are_now() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, other) = (scratch.path().join("file"), scratch.path().join("other"));
    for driver in drivers(71) {
        let engine = Engine::builder().driver(driver).memory(16 << 20).build().unwrap();
        for (seed, length) in (0..).step_by(3).zip(LENGTHS) {
            fs::write(&path, contents(seed, length)).unwrap();
            let_age(&path);
            assert_reads(&engine, &path, &contents(seed, length), "at first");
            fs::write(&path, contents(seed + 1, length)).unwrap();
            assert_reads(&engine, &path, &contents(seed + 1, length), "written in place");
            fs::write(&other, contents(seed + 2, length)).unwrap();
            fs::rename(&other, &path).unwrap();
            assert_reads(&engine, &path, &contents(seed + 2, length), "another by that name");
            fs::remove_file(&path).unwrap();
            let error = io::Error::from(engine.read(&path).unwrap_err());
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}

/// Goal: what this engine has written and not yet written back is what is read.
#[test]
fn whole_files_hold_what_is_unwritten() {
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join("file");
    for rig in rigs(72) {
        fs::write(&path, contents(1, 10_000)).unwrap();
        let_age(&path);
        assert_reads(&rig.engine, &path, &contents(1, 10_000), "before");
        let file = headwater::OpenOptions::new().engine(&rig.engine).write(true).open(&path).unwrap();
        file.write_all_at(&contents(2, 12_000), 0).unwrap();
        assert_reads(&rig.engine, &path, &contents(2, 12_000), "unwritten");
        drop(file);
        assert_reads(&rig.engine, &path, &contents(2, 12_000), "closed");
        rig.engine.flush().unwrap();
        assert_reads(&rig.engine, &path, &contents(2, 12_000), "flushed");
    }
}

/// Goal: the first reading leaves the cache as it is, where the kernel tells what it caches; the third meets the cache alone. Method:
/// its counters.
#[test]
fn whole_files_come_from_the_cache() {
    let scratch = ScratchDir::on_target().unwrap();
    let rig = calm(73);
    for length in [4096, 100_000] {
        let path = scratch.path().join(format!("file{length}"));
        fs::write(&path, contents(1, length)).unwrap();
        let_age(&path);
        let resident_before = rig.engine.stats().cache.resident_pages;
        assert_eq!(rig.engine.read(&path).unwrap(), contents(1, length));
        if kernel_tells(&path) {
            assert_eq!(rig.engine.stats().cache.resident_pages, resident_before);
        }
        assert_eq!(rig.engine.read(&path).unwrap().len() as u64, length);
        let before = rig.engine.stats().cache.counts;
        assert_eq!(rig.engine.read(&path).unwrap(), contents(1, length));
        let after = rig.engine.stats().cache.counts;
        assert_eq!((after.hits - before.hits, after.misses - before.misses), (length.div_ceil(4096), 0));
    }
    rig.assert_idle();
}

/// Goal: what is no regular file is read as std reads it, or refused.
#[test]
fn whole_of_other_kinds() {
    let scratch = ScratchDir::on_target().unwrap();
    let rig = calm(74);
    assert_eq!(rig.engine.read("/proc/version").unwrap(), fs::read("/proc/version").unwrap());
    let error = io::Error::from(rig.engine.read(scratch.path()).unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    let fifo = scratch.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = io::Error::from(rig.engine.read(&fifo).unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::Unsupported, "and it does not wait for the other end");
}

/// Goal: a source that never ends is an error, and takes no more memory than is said.
#[test]
fn a_source_without_end_is_refused() {
    let rig = calm(76);
    let error = rig.engine.read("/dev/zero").map(|bytes| bytes.len()).unwrap_err();
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(rig.engine.read("/dev/null").unwrap(), b""[..]);
    rig.assert_idle();
}

/// Goal: a file of which a later part cannot be read is an error that names the place, at the first reading and the second,
/// through the cache and as a stream; and all of it when the device has healed. Method: a fault behind the middle of a file
/// that the kernel does not hold.
#[test]
fn whole_files_fail_where_a_part_fails() {
    const BAD: u64 = 400_000;
    let eio = Errno::IO.raw_os_error();
    let scratch = ScratchDir::on_target().unwrap();
    for length in [600_000, 3 << 20] {
        let rig = calm(75);
        let path = scratch.path().join(format!("file{length}"));
        fs::write(&path, contents(1, length)).unwrap();
        let_age(&path);
        if length <= 1 << 20 && kernel_tells(&path) {
            // Around the cache and the driver: only from the second time on does the simulation see it.
            assert_eq!(rig.engine.read(&path).unwrap(), contents(1, length));
        }
        make_cold(&path);
        let bad_bytes = BAD.max(length.saturating_sub(1 << 20));
        rig.control().add_fault(FaultRange::new(ByteRange::new(bad_bytes, bad_bytes + 1), eio));
        for time in 0..2 {
            let error = rig.engine.read(&path).map(|read| read.len()).expect_err("half of a file is none");
            assert_eq!((error.raw_os_error(), error.operation()), (Some(eio), Operation::Read), "{error}");
            let offset_bytes = error.offset_bytes().unwrap();
            assert!(bad_bytes - offset_bytes < 4096, "{time}: {error}, bad from {bad_bytes} on");
        }
        rig.control().clear_faults();
        assert_reads(&rig.engine, &path, &contents(1, length), "healed");
        rig.assert_idle();
    }
}

/// Whether the kernel tells what it caches of a file. Where not, no reading goes around the engine's cache, not even the first.
fn kernel_tells(path: &Path) -> bool {
    let file = OpenFile::open(path, DirectIo::Off, Access::Read).unwrap();
    let tells = file.resident_pages(ByteRange::new(0, 1)).is_some();
    if !tells {
        skip("a reading around the cache: the kernel has no cachestat (before Linux 6.5)");
    }
    tells
}

/// Takes a file out of the kernel's page cache.
fn make_cold(path: &Path) {
    fs::File::open(path).unwrap().sync_all().unwrap();
    OpenFile::open(path, DirectIo::Off, Access::Read).unwrap().evict_from_kernel().unwrap();
}

/// Goal: a file of `/proc` that opens and cannot be read is an error, not an empty file.
#[test]
fn whole_of_what_cannot_be_read() {
    let path = "/proc/self/mem";
    let expected = fs::read(path).unwrap_err().raw_os_error();
    for rig in rigs(76) {
        assert_eq!(rig.engine.read(path).unwrap_err().raw_os_error(), expected);
        rig.assert_idle();
    }
}

/// Goal: whatever others do to the length meanwhile, what is read is a beginning of the file as long as it was at some moment.
/// Method: a thread that truncates and extends a file of known contents at pages, across the size from which files are streamed,
/// to and from nothing.
#[test]
fn whole_files_grow_and_shrink() {
    const LENGTHS: [u64; 6] = [8192, 0, 598_016, 4096, 2_097_152, 1_048_576];
    let scratch = ScratchDir::on_target().unwrap();
    for rig in rigs(77) {
        let path = scratch.path().join(rig.name());
        let all = contents(1, 2_097_152);
        fs::write(&path, &all).unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                for length in LENGTHS.into_iter().cycle().take_while(|_| !is_done.load(Ordering::Relaxed)) {
                    let now = file.metadata().unwrap().len();
                    if now < length {
                        file.write_all_at(&all[now as usize..length as usize], now).unwrap();
                    } else {
                        file.set_len(length).unwrap();
                    }
                }
            });
            let wrong = (0..300).find_map(|_| match rig.engine.read(&path) {
                Ok(read) => {
                    // Zeros: the kernel zeroes a large folio that a truncate cuts while another thread copies from it.
                    let mut pairs = read.iter().zip(&all);
                    pairs.any(|(is, should)| is != should && *is != 0).then(|| "other bytes".to_owned())
                }
                Err(error) => Some(error.to_string()),
            });
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None);
        });
        assert_eq!(rig.engine.read(&path).unwrap(), fs::read(&path).unwrap());
    }
}

/// Makes the calling thread, and no other, run as the user `nobody` until it ends.
pub(crate) fn become_nobody() {
    let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

/// Goal: a thread that may not open a file is not given its cached bytes, also while the name that it reads by changes between
/// this file and one that it may read. Method: a file of root's in the cache, a thread that runs as the user `nobody`, and one that
/// moves a symbolic link to and fro.
#[test]
fn whole_files_are_not_given_to_strangers() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become the user nobody");
    }
    let scratch = ScratchDir::on_target().unwrap();
    let at = |name: &str| -> PathBuf { scratch.path().join(name) };
    let (secret, public, link, spare) = (at("secret"), at("public"), at("link"), at("spare"));
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (path, bytes, mode) in [(&secret, "secret", 0o600), (&public, "public", 0o644)] {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let_age(path);
    }
    symlink(&public, &link).unwrap();
    let rig = calm(78);
    assert_reads(&rig.engine, &secret, b"secret", "as root");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for target in
                [&secret, &public].into_iter().cycle().take_while(|_| !is_done.load(Ordering::Relaxed))
            {
                symlink(target, &spare).unwrap();
                fs::rename(&spare, &link).unwrap();
            }
        });
        let nobody = scope.spawn(|| {
            become_nobody();
            if fs::read(&public).is_err() {
                return skip("the user nobody has no way to the scratch directory");
            }
            let denied = |path: &Path| rig.engine.read(path).unwrap_err().kind();
            assert_eq!(denied(&secret), io::ErrorKind::PermissionDenied);
            let (mut given, mut refused) = (0, 0);
            while given < 5_000 || refused < 5_000 {
                match rig.engine.read(&link) {
                    Ok(bytes) => given += u32::from(bytes == "public" || panic!("leaked {bytes:?}")),
                    Err(error) => refused += u32::from(error.kind() == io::ErrorKind::PermissionDenied),
                }
            }
        });
        let ended = nobody.join();
        is_done.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
    rig.assert_idle();
}
