//! Space: a file system that is full, really: nothing acknowledged is lost, and all is well when there is space again.
//!
//! Owns: small file systems, filled; the limit of the process for lengths of files.
//! Does not own: other errors of devices.

use std::fs;
use std::io::{ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater::{DriverKind, Error, File, IoMode, OpenOptions};
use headwater_testkit::{FileSystem, LoopMount, Pattern, make_cold, skip};
use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::model::same;
use crate::only_written::{for_all, give_up_rights};
use crate::rig::{Rig, block_on, drivers, watched};
use crate::threads::open;

/// Goal: a full ext4 is an error of a write or a sync, by name; what was acknowledged can be read meanwhile, and is on disk
/// after the first sync with space.
#[test]
fn ext4_is_full() {
    is_full(FileSystem::Ext4, 16 << 20);
}

/// Goal: the same on xfs, which allocates late and keeps space for itself.
#[test]
fn xfs_is_full() {
    is_full(FileSystem::Xfs, 300 << 20);
}

/// Goal: what the process's limit for lengths of files ends early is reported as that, not as a full device, and what lies below the limit is in
/// the file. Method: a child that ignores the limit's signal; appends by `O_APPEND`, of threads and tasks, and of a handle that cannot read.
#[test]
fn the_limit_of_lengths_is_reported_by_name() {
    const LIMITED: &str = "HEADWATER_TEST_SPACE_LIMITED";
    const NAME: &str = "space::the_limit_of_lengths_is_reported_by_name";
    if let Ok(directory) = std::env::var(LIMITED) {
        return append_to_the_limit(Path::new(&directory));
    }
    let Some(directory) = for_all() else { return };
    let mut child = Command::new("sh");
    child.args(["-c", "trap '' XFSZ; exec \"$0\" --exact \"$1\""]).arg(std::env::current_exe().unwrap());
    let output = child.arg(NAME).env(LIMITED, directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn append_to_the_limit(directory: &Path) {
    const LIMIT: usize = 300_000;
    let limit = Some(LIMIT as u64);
    setrlimit(Resource::Fsize, Rlimit { current: limit, maximum: limit }).unwrap();
    let bytes = vec![7; LIMIT + 100_000];
    let contents = fs::File::open(directory.join("file")).unwrap();
    give_up_rights(directory);
    for way in ["thread", "task", "in place"] {
        let file = OpenOptions::new().write(true).append(way != "in place").open("file").unwrap();
        file.set_len(0).unwrap();
        let appended = match way {
            "task" => block_on(file.append_async(bytes.clone())),
            _ => file.append(&bytes),
        };
        let error = appended.expect_err(way);
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{way}: {error}");
        let mut found = Vec::new();
        (&contents).read_to_end(&mut found).unwrap();
        (&contents).rewind().unwrap();
        assert!(found == [7; LIMIT], "{way}");
    }
}

fn is_full(kind: FileSystem, size_bytes: u64) {
    for (memory_bytes, driver) in [3 << 20, 32 << 20]
        .into_iter()
        .flat_map(|bytes| drivers(1).into_iter().map(move |driver| (bytes, driver)))
    {
        let mount = match LoopMount::new(kind, size_bytes) {
            Ok(mount) => mount,
            Err(reason) => return skip(format!("{}: {reason}", kind.name())),
        };
        let what = format!("{} on {driver:?} with {memory_bytes} bytes", kind.name());
        watched(&what, || fill_and_free(driver, memory_bytes, mount.path()));
    }
}

fn fill_and_free(driver: DriverKind, memory_bytes: u64, directory: &Path) {
    let (rig, path, ballast) =
        (Rig::sized(driver, memory_bytes, 16), directory.join("file"), Ballast::new(directory));
    let file = open(&rig, &path, IoMode::Auto);
    let mut expected = Vec::new();
    let error = fill(&file, &mut expected);
    is_about_space(&error, &path);
    check(&file, &expected);
    // Others, small and in place, are still taken or refused, but not lost either.
    if file.write_all_at(b"overwritten", 5000).is_ok() {
        expected[5000..5011].copy_from_slice(b"overwritten");
    }
    if let Err(error) = file.sync_data() {
        is_about_space(&error, &path);
    }
    check(&file, &expected);
    ballast.drop_it();
    sync(&file, &path);
    check(&file, &expected);
    let disk = fs::read(&path).unwrap();
    assert_eq!(disk.len() as u64, file.len().unwrap());
    same("on disk", 0, &expected, &disk[..expected.len()]).unwrap();
    // And it goes on.
    file.set_len(expected.len() as u64).unwrap();
    assert_eq!(file.append(b"more").unwrap(), expected.len() as u64);
    file.sync_data().unwrap();
    drop(file);
    make_cold(&fs::File::open(&path).unwrap()).unwrap();
    expected.extend(b"more");
    same("on disk at last", 0, &expected, &fs::read(&path).unwrap()).unwrap();
    rig.assert_idle();
}

/// Writes, and syncs now and then, until one of them fails. What was acknowledged is expected from then on.
fn fill(file: &File, expected: &mut Vec<u8>) -> Error {
    let pattern = Pattern::new(1);
    for number in 1..1000 {
        let at = expected.len();
        let mut bytes = vec![0; PIECE_BYTES];
        pattern.fill(at as u64, &mut bytes);
        match file.write_at(&bytes, at as u64) {
            Ok(written) => expected.extend(&bytes[..written]),
            Err(error) => return error,
        }
        if number % 8 == 0
            && let Err(error) = file.sync_data()
        {
            return error;
        }
    }
    panic!("{} bytes fit", expected.len());
}

/// With space again, what failed before may be told once more, not for ever.
fn sync(file: &File, path: &Path) {
    for attempt in 0..3 {
        match file.sync_data() {
            Ok(()) => return,
            Err(error) => {
                eprintln!("attempt {attempt}: {error}");
                is_about_space(&error, path);
            }
        }
    }
    panic!("it cannot be synced though there is space");
}

fn is_about_space(error: &Error, path: &Path) {
    assert_eq!((error.kind(), error.path()), (ErrorKind::StorageFull, Some(path)), "{error}");
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
}

fn check(file: &File, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    same("with the disk full", 0, expected, &found).unwrap();
}

/// A file that leaves little space for others.
struct Ballast {
    path: PathBuf,
}

impl Ballast {
    fn new(directory: &Path) -> Ballast {
        let path = directory.join("ballast");
        let (file, space) = (fs::File::create(&path).unwrap(), statvfs(directory).unwrap());
        let free_bytes = space.f_bavail * space.f_frsize;
        assert!(free_bytes > LEFT_BYTES, "only {free_bytes} bytes from the beginning");
        fallocate(&file, FallocateFlags::empty(), 0, free_bytes - LEFT_BYTES).unwrap();
        Ballast { path }
    }

    /// Its space can be used at once.
    fn drop_it(self) {
        fs::remove_file(&self.path).unwrap();
        syncfs(fs::File::open(self.path.parent().unwrap()).unwrap()).unwrap();
    }
}

const PIECE_BYTES: usize = 100_001;

/// Far less than the larger memory holds.
const LEFT_BYTES: u64 = 5 << 20;
