//! Twice: what headwater reads from the device does not lie in the kernel's page cache as well; what lay there stays, and is copied.
//!
//! Owns: the pages that the kernel has of a file before and after it is read in each way.
//! Does not own: parts of pages that are written (`writing`, small), files without direct I/O.

use std::fs;
use std::os::unix::fs::FileExt;

use futures_util::TryStreamExt;
use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::{ByteRange, Caching, File, OpenOptions};
use headwater_testkit::{again_if_dropped, block_on, kernel_readahead_bytes, lack};

use crate::rig::{Rig, Scratch, drivers};

/// A name and a way to read a file whole.
type Way = (&'static str, Caching, fn(&File));

const WAYS: [Way; 7] = [
    ("read_at", Caching::Auto, |file| {
        let mut buffer = vec![0; 100_000];
        for at in (0..LENGTH_BYTES).step_by(100_000) {
            file.read_at(&mut buffer, at).unwrap();
        }
    }),
    ("read_at, always cached", Caching::On, |file| {
        let mut buffer = vec![0; 100_000];
        for at in (0..LENGTH_BYTES).step_by(100_000) {
            file.read_at(&mut buffer, at).unwrap();
        }
    }),
    ("read_at around the cache", Caching::Off, |file| {
        for at in (0..LENGTH_BYTES).step_by(16 << 10) {
            file.read_at(&mut [0; 16 << 10], at).unwrap();
        }
    }),
    ("pages at random", Caching::Auto, |file| {
        for page in (0..LENGTH_BYTES / 4096).map(|page| page * 463 % (LENGTH_BYTES / 4096)) {
            file.read_exact_at(&mut [0; 4096], page * 4096).unwrap();
        }
    }),
    ("views", Caching::Auto, |file| {
        for at in (0..LENGTH_BYTES - 50_000).step_by(50_000) {
            file.view(at, 50_000).unwrap();
        }
    }),
    ("read_at_async", Caching::Auto, |file| {
        for at in (0..LENGTH_BYTES).step_by(64 << 10) {
            block_on(file.read_at_async(at, 64 << 10)).unwrap();
        }
    }),
    ("stream", Caching::Auto, |file| _ = block_on(file.stream().try_collect::<Vec<_>>()).unwrap()),
];

/// Goal: the kernel has of a file after it was read what it had before: nothing, or the part that another program has read, and what it
/// reads ahead once when the end of that part is copied.
#[test]
fn no_page_lies_in_two_caches() {
    for driver in drivers(1) {
        let scratch = Scratch::new(1, LENGTH_BYTES);
        let theirs = OpenFile::open(&scratch.path(), DirectIo::Off, Access::Read).unwrap();
        let kernel_pages = || theirs.resident_pages(ByteRange::new(0, LENGTH_BYTES));
        if kernel_pages().is_none() {
            return lack("the kernel has no cachestat (before Linux 6.5)");
        }
        if kernel_readahead_bytes(&scratch.path()).is_none_or(|bytes| bytes > AHEAD_PAGES_MAX * 4096) {
            return lack("a kernel that reads at most 16 MiB ahead");
        }
        for (name, caching, read) in WAYS {
            for warm_bytes in [0, 1_000_000] {
                let rig = Rig::sized(driver.clone(), 64 << 20, 16);
                let what = format!("{name} on {}, {warm_bytes} bytes in the kernel", rig.name());
                scratch.make_cold();
                fs::File::open(scratch.path()).unwrap().read_exact_at(&mut vec![0; warm_bytes], 0).unwrap();
                let before = kernel_pages();
                assert!(
                    before >= Some(warm_bytes as u64 / 4096) && before < Some(LENGTH_BYTES / 4096),
                    "{before:?}"
                );
                let file =
                    OpenOptions::new().engine(&rig.engine).caching(caching).open(scratch.path()).unwrap();
                read(&file);
                // The kernel may drop pages meanwhile.
                let more_pages = kernel_pages().unwrap().saturating_sub(before.unwrap());
                let most_pages = if warm_bytes == 0 { 0 } else { AHEAD_PAGES_MAX };
                assert!(more_pages <= most_pages, "{more_pages} more than {before:?}: {what}");
                drop(file);
                rig.assert_idle();
            }
        }
    }
}

/// Goal: pages that the kernel has when they are read first lie in both caches, by default as with `Caching::On`: they stay in the kernel's,
/// where others may use them, and are read again from the engine's. Method: the kernel's count, and the misses of a further reading.
#[test]
fn what_the_kernel_had_is_in_both() {
    again_if_dropped(|| {
        for driver in drivers(1) {
            let scratch = Scratch::new(1, 1 << 20);
            let theirs = OpenFile::open(&scratch.path(), DirectIo::Off, Access::Read).unwrap();
            let kernel_pages = || theirs.resident_pages(ByteRange::new(0, 1 << 20));
            if kernel_pages().is_none() {
                return lack("the kernel has no cachestat (before Linux 6.5)");
            }
            for caching in [Caching::Auto, Caching::On] {
                let rig = Rig::sized(driver.clone(), 16 << 20, 16);
                assert_eq!(fs::read(scratch.path()).unwrap().len(), 1 << 20);
                scratch.age();
                let file =
                    OpenOptions::new().engine(&rig.engine).caching(caching).open(scratch.path()).unwrap();
                let read = || {
                    let mut buffer = vec![0; 1 << 20];
                    file.read_exact_at(&mut buffer, 0).unwrap();
                    scratch.check(0, &buffer);
                    file.stats().counts
                };
                // The first reading may go around the engine's cache.
                let [_, second, third] = [read(), read(), read()];
                let what = format!("{caching:?} on {}", rig.name());
                assert_eq!(kernel_pages(), Some(256), "{what}");
                assert_eq!(
                    (second.misses, third.misses),
                    (256, 256),
                    "{what}: misses of the second and third reading"
                );
                drop(file);
                rig.assert_idle();
            }
        }
    });
}

const LENGTH_BYTES: u64 = 60_000_000;

const AHEAD_PAGES_MAX: u64 = 4096;
