//! Cold files: make the next read of one file come from the device.
//!
//! One file only, by `posix_fadvise`: dropping all the caches of the machine disturbs everything else that runs,
//! and on virtual machines it hands memory back to the host, which makes the reads that follow far dearer than
//! any cold read is.
//!
//! Owns: the time a file needs before its times tell two changes apart, the second try of a test whose cold or warm pages the
//! machine took.
//! Does not own: what a test makes of the file.

use std::fs::File;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Advice, fadvise, major, minor};

/// Writes the file's dirty pages back and drops its pages from the kernel's cache. Pages that are mapped, or that
/// others dirty meanwhile, may stay; on tmpfs all stay, because there the cache is the file.
///
/// # Errors
/// What syncing or `posix_fadvise(2)` reports.
pub fn make_cold(file: &File) -> io::Result<()> {
    make_cold_from(file, 0)
}

/// The same for what lies from `offset_bytes` on, which is the beginning of a page.
///
/// # Errors
/// As [`make_cold`].
pub fn make_cold_from(file: &File, offset_bytes: u64) -> io::Result<()> {
    // The advice skips dirty pages, hence the sync before it.
    file.sync_all()?;
    // No length means to the end of the file.
    Ok(fadvise(file, offset_bytes, None, Advice::DontNeed)?)
}

/// How far the kernel reads ahead on the device of a file, bytes; `None` if it does not tell.
pub fn kernel_readahead_bytes(path: &Path) -> Option<u64> {
    let device = std::fs::metadata(path).ok()?.st_dev();
    let path = format!("/sys/class/bdi/{}:{}/read_ahead_kb", major(device), minor(device));
    let kib: u64 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Lets time pass until the file was written long enough ago that its times would show another write: before that, what is cached of it
/// leaves at each look at them.
///
/// # Panics
/// When the file has no times.
pub fn let_age(path: &Path) {
    let is_young = || {
        let changed =
            std::fs::metadata(path).and_then(|metadata| metadata.modified()).expect("the file has times");
        changed.elapsed().is_ok_and(|age| age < Duration::from_millis(20))
    };
    while is_young() {
        std::thread::yield_now();
    }
}

/// Does the work again if it fails while something drops the kernel's page cache, as whatever shares the machine may do.
pub fn again_if_dropped(work: impl Fn()) {
    for _ in 0..4 {
        let before = drops();
        match catch_unwind(AssertUnwindSafe(&work)) {
            Ok(()) => return,
            Err(panic) if drops() == before => resume_unwind(panic),
            Err(_) => println!("the page cache was dropped meanwhile: once more"),
        }
    }
    work();
}

/// How often the kernel's page cache was dropped (proc_vmstat(5)); `None` where the kernel does not count it.
fn drops() -> Option<String> {
    let counts = std::fs::read_to_string("/proc/vmstat").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("drop_pagecache ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    /// Goal: a file just written and read can be made cold, and still has its contents.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn contents_survive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        Pattern::new(1).write_file(&path, 1 << 20).unwrap();
        make_cold(&File::open(&path).unwrap()).unwrap();
        assert_eq!(Pattern::new(1).mismatch(0, &std::fs::read(&path).unwrap()), None);
    }
}
