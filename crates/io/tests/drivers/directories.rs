//! Directories: calls whose paths begin at a directory that the caller has opened, on each driver.
//!
//! Owns: results and errors of each.
//! Does not own: the same calls without a directory (operations).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use headwater_io::Call;

use crate::bench::{all_kinds, block_on, errno_of, is_closed_on_exec};

/// Goal: each call with a directory does what its namesake does, from that directory on, and gives the descriptor back; an absolute path
/// leaves it aside. Method: names that mean nothing where the process works; the directory itself is renamed meanwhile.
#[test]
fn from_a_directory_on() {
    for bench in all_kinds(8) {
        let (driver, path) = (&bench.driver, bench.directory.path().join("parent"));
        std::fs::create_dir(&path).unwrap();
        let parent = Arc::new(File::open(&path).unwrap());
        let made = driver.call(Call::make_directory_at(parent.clone(), "inner", 0o700)).wait();
        made.result.unwrap();
        let path = path.with_file_name("moved");
        std::fs::rename(path.with_file_name("parent"), &path).unwrap();
        let open = Call::open_at(made.given, "inner", libc::O_DIRECTORY, 0);
        let inner = Arc::new(driver.call(open).wait().result.unwrap());
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let file = block_on(driver.call(Call::open_at(inner.clone(), "file", flags, 0o640))).result.unwrap();
        assert!(is_closed_on_exec(&file));
        driver.call(Call::pwrite(file, [5; 1000], 0)).wait().result.unwrap();
        std::os::unix::fs::symlink("file", path.join("inner/link")).unwrap();
        let inode = |name: &Path, flags| {
            driver.call(Call::attributes_at(inner.clone(), name, flags)).wait().result.unwrap().inode
        };
        let known = |name: &str| std::fs::symlink_metadata(path.join("inner").join(name)).unwrap().ino();
        assert_eq!(inode(Path::new("link"), 0), known("file"));
        assert_eq!(inode(Path::new("link"), libc::AT_SYMLINK_NOFOLLOW), known("link"));
        assert_eq!(inode(Path::new(""), libc::AT_EMPTY_PATH), known(""));
        assert_eq!(inode(&bench.path(), 0), std::fs::metadata(bench.path()).unwrap().ino());
        let renamed = driver.call(Call::rename_at(inner.clone(), "file", parent.clone(), "other", 0)).wait();
        renamed.result.unwrap();
        assert!(Arc::ptr_eq(&renamed.given.0, &inner) && Arc::ptr_eq(&renamed.given.1, &parent));
        assert_eq!(std::fs::read(path.join("other")).unwrap(), [5; 1000]);
        let unlink =
            |directory, name: &str, flags| driver.call(Call::unlink_at(directory, name, flags)).wait().result;
        assert_eq!(
            errno_of(driver.call(Call::unlink_at(parent.clone(), "inner", 0)).wait().result),
            libc::EISDIR
        );
        driver.call(Call::unlink_at(inner, "link", 0)).wait().result.unwrap();
        unlink(parent.clone(), "inner", libc::AT_REMOVEDIR).unwrap();
        unlink(parent.clone(), "other", 0).unwrap();
        assert_eq!(path.read_dir().unwrap().count(), 0);
        let again = driver.call(Call::make_directory_at(parent.clone(), path.as_path(), 0o700)).wait();
        assert_eq!(errno_of(again.result), libc::EEXIST);
        let no_directory = driver.call(Call::open_at(File::open(bench.path()).unwrap(), "file", 0, 0)).wait();
        assert_eq!(errno_of(no_directory.result.map(drop)), libc::ENOTDIR);
        let invalid = driver.call(Call::rename_at(parent, "with\0zero", rustix::fs::CWD, "to", 0)).wait();
        assert_eq!(invalid.result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop((again.given, renamed.given));
        assert!(Arc::into_inner(invalid.given.0).is_some(), "all calls gave it back");
        bench.assert_idle();
    }
}
