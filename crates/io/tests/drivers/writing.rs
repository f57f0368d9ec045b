//! Writing: pages of the cache that are written back, syncs, and files that are made, truncated and extended.
//!
//! ```text
//!   cache ─► pages, here and there in memory ─► PinnedRun ─► WriteBack ─► file, as the standard library reads it
//! ```
//!
//! Owns: what requests and calls that change a file do, and where pins are afterwards.
//! Does not own: writes from owned memory (`transfers`), faults of the device (`faults`).

use std::io;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::task::{Context, Waker};
use std::thread;
use std::time::Instant;

use headwater_core::frame::LoadId;
use headwater_core::replacement::Policy;
use headwater_core::units::{ByteRange, PAGE_BYTES, PageIndex, PageRange};
use headwater_io::{
    Access, Allocated, Arena, Creation, DirectIo, DriverKind, Extents, FilePages, Found, Fsync, OpenFile,
    PageCache, PinnedPage, PinnedRun, Request, Route, SimOptions, Stretch, SyncScope, Urgency, WriteBack,
};
use headwater_testkit::{
    PATIENCE, Pattern, Rng, ScratchDir, run_forked, scratch_dirs, skip, tmpfs, with_seed,
};

use crate::bench::{Bench, LENGTH_BYTES, drivers, errno, in_child};

/// Pages in a cache of their own, full of a pattern, scattered over its memory.
pub(crate) struct Pages {
    pub(crate) cache: PageCache,
    arena: Arena,
    file: FilePages,
    pub(crate) pattern: Pattern,
}

impl Pages {
    /// The first `count` pages of a file. With `scatter`, no two that follow each other are neighbours in memory.
    pub(crate) fn new(count: u64, scatter: Scatter, seed: u64) -> Pages {
        let arena = Arena::new(9 << 20).unwrap();
        let cache = PageCache::new(&arena, Policy::Clock2QPlus);
        let pages = Pages { file: cache.add_file().unwrap(), cache, arena, pattern: Pattern::new(!seed) };
        match scatter {
            Scatter::Not => (0..count).for_each(|page| pages.load(page)),
            // Evens first: what lies side by side is two apart.
            Scatter::EachPage => {
                (0..count).step_by(2).chain((1..count).step_by(2)).for_each(|p| pages.load(p))
            }
        }
        pages
    }

    fn load(&self, page: u64) {
        let range = PageRange::new(PageIndex::new(page), PageIndex::new(page + 1));
        let mut extents =
            Extents::from_iter([self.arena.allocate(PAGE_BYTES, Urgency::Demand).expect("there is room")]);
        let loading = self.file.begin_load(range, &extents, LoadId::new(0), range.end).unwrap();
        self.pattern.fill(page * PAGE_BYTES as u64, &mut extents[0]);
        loading.publish(extents, PAGE_BYTES);
    }

    fn pin(&self, page: u64) -> PinnedPage<'_> {
        match self.file.pin(PageIndex::new(page), 0..4096) {
            Found::Page(pinned) => pinned,
            Found::Pending(_) | Found::Absent => panic!("page {page} is not there"),
        }
    }

    pub(crate) fn run(&self, pages: std::ops::Range<u64>) -> PinnedRun {
        let mut run = PinnedRun::of(&self.file);
        pages.for_each(|page| run.push(self.pin(page)));
        run
    }

    /// Nobody has anything pinned, once what was abandoned is dropped: all can be evicted.
    pub(crate) fn assert_unpinned(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.cache.stats().pinned_pages > 0 {
            assert!(Instant::now() < deadline, "still pinned: {:?}", self.cache);
            thread::yield_now();
        }
        let stats = self.cache.stats();
        assert_eq!(self.cache.evict(usize::MAX, &mut Vec::new()), stats.resident_pages);
        assert_eq!(self.arena.stats().cached_bytes, 0);
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Scatter {
    Not,
    EachPage,
}

pub(crate) fn write_back(bench: &Bench, offset_bytes: u64, pages: PinnedRun) -> WriteBack {
    let length_bytes = pages.len_bytes();
    WriteBack {
        file: bench.file.clone(),
        route: bench.route(),
        offset_bytes,
        length_bytes,
        skip_bytes: 0,
        pages,
    }
}

/// Goal: pages arrive in file order, in one piece of memory or in hundreds, and are unpinned when the run is dropped.
#[test]
fn pages_arrive() {
    with_seed("writing::pages_arrive", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 16, seed), Rng::new(seed));
            let mut expected = std::fs::read(bench.path()).unwrap();
            for scatter in [Scatter::Not, Scatter::EachPage] {
                let pages = Pages::new(600, scatter, seed);
                for count in [1, 2, 7, 512, 600] {
                    let first = rng.below(601 - count);
                    let run = pages.run(first..first + count);
                    let offset_bytes = rng.below(LENGTH_BYTES / 4096 - count) * 4096;
                    let finished = bench.submit(write_back(&bench, offset_bytes, run)).wait();
                    let length_bytes = count as usize * PAGE_BYTES;
                    assert_eq!(finished.result.as_ref().unwrap(), &length_bytes);
                    assert!(finished.stopped_by.is_none() && finished.extents.is_empty());
                    assert_eq!(finished.pages.as_ref().unwrap().len_bytes(), length_bytes);
                    assert_eq!(pages.cache.stats().pinned_pages as u64, count);
                    let written = &mut expected[offset_bytes as usize..][..length_bytes];
                    pages.pattern.fill(first * 4096, written);
                }
                pages.assert_unpinned();
            }
            assert!(std::fs::read(bench.path()).unwrap() == expected, "{}", bench.name());
            bench.assert_idle();
        }
    });
}

/// Goal: the same in a batch, and through the ordinary descriptor, where a write may end within a page.
#[test]
fn parts_of_pages_in_a_batch() {
    with_seed("writing::parts_of_pages_in_a_batch", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 16, seed);
            let pages = Pages::new(40, Scatter::EachPage, seed);
            let mut expected = std::fs::read(bench.path()).unwrap();
            let mut batch = bench.driver.batch();
            for number in 0..10 {
                let (offset_bytes, length_bytes) = (number * 100_000 + 77, 4 * PAGE_BYTES - 1000);
                let run = pages.run(number * 4..number * 4 + 4);
                let write = write_back(&bench, offset_bytes, run);
                batch.push(WriteBack { route: Route::Buffered, length_bytes, ..write }).unwrap();
                pages.pattern.fill(number * 16_384, &mut expected[offset_bytes as usize..][..length_bytes]);
            }
            batch.finish(|_, finished| assert_eq!(finished.result.unwrap(), 4 * PAGE_BYTES - 1000));
            assert!(std::fs::read(bench.path()).unwrap() == expected, "{}", bench.name());
            pages.assert_unpinned();
            bench.assert_idle();
        }
    });
}

/// Goal: I4: an abandoned write keeps its pins until it is done, and is done. Method: a place for each, so that none is
/// withdrawn; let the driver end them and look at file and pins.
#[test]
fn abandoned_writes_are_carried_out() {
    with_seed("writing::abandoned_writes_are_carried_out", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 16, seed);
            let pages = Pages::new(200, Scatter::EachPage, seed);
            let mut expected = std::fs::read(bench.path()).unwrap();
            for number in 0..10 {
                let run = pages.run(number * 20..number * 20 + 20);
                let mut completion = bench.submit(write_back(&bench, number * 81_920, run));
                if number % 2 == 0 {
                    let _ = completion.poll(&mut Context::from_waker(Waker::noop()));
                }
                drop(completion);
                pages.pattern.fill(number * 81_920, &mut expected[number as usize * 81_920..][..81_920]);
            }
            bench.assert_idle();
            pages.assert_unpinned();
            assert!(std::fs::read(bench.path()).unwrap() == expected, "{}", bench.name());
        }
    });
}

/// Goal: an error leaves no pin behind once its result is dropped. Method: a file open for reading alone.
#[test]
fn a_refused_write_unpins() {
    for kind in drivers(4) {
        let bench = Bench::new(kind, 4, 4);
        let pages = Pages::new(9, Scatter::EachPage, 4);
        let file = OpenFile::open(&bench.path(), DirectIo::Off, Access::Read).unwrap().into();
        let write = WriteBack { file, route: Route::Buffered, ..write_back(&bench, 0, pages.run(0..9)) };
        let finished = bench.submit(write).wait();
        assert_eq!(errno(&finished.result), Some(libc::EBADF));
        drop(finished);
        pages.assert_unpinned();
        bench.assert_idle();
    }
}

/// Goal: a child of fork is refused, and neither unpins the parent's pages nor writes them.
#[test]
fn a_child_writes_nothing() {
    if !in_child("writing::a_child_writes_nothing") {
        return;
    }
    for kind in drivers(5) {
        let bench = Bench::new(kind, 4, 5);
        let pages = Pages::new(3, Scatter::EachPage, 5);
        let mut run = Some(pages.run(0..3));
        run_forked(|| {
            let (driver, file) = (&bench.driver, &*bench.file);
            let write = write_back(&bench, 0, run.take().expect("there is a run"));
            drop(driver.submit(write, Urgency::Demand).unwrap_err());
            let refused = io::ErrorKind::Unsupported;
            assert_eq!(
                driver.write_blocking(file, Route::Buffered, &[1; 10], 0).unwrap_err().kind(),
                refused
            );
            assert_eq!(driver.sync_blocking(file, SyncScope::All).unwrap_err().kind(), refused);
            assert_eq!(driver.set_len_blocking(file, 0).unwrap_err().kind(), refused);
            assert_eq!(driver.allocate_blocking(file, ByteRange::new(0, 1)).unwrap_err().kind(), refused);
            assert_eq!(driver.reserve_blocking(file, ByteRange::new(0, 1)).unwrap_err().kind(), refused);
            assert_eq!(driver.extend_blocking(file, 1 << 30).unwrap_err().kind(), refused);
            assert_eq!(driver.free_bytes(file).unwrap_err().kind(), refused);
        });
        assert_eq!(pages.cache.stats().pinned_pages, 3);
        drop(run);
        pages.assert_unpinned();
        assert_eq!(bench.pattern.mismatch(0, &std::fs::read(bench.path()).unwrap()), None);
        bench.assert_idle();
    }
}

/// Goal: syncs of both scopes succeed, alone, among writes and abandoned, and report the kernel's refusals.
#[test]
fn syncs() {
    with_seed("writing::syncs", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 4, seed);
            let pages = Pages::new(64, Scatter::EachPage, seed);
            for scope in [SyncScope::Data, SyncScope::All] {
                let write = bench.submit(write_back(&bench, 0, pages.run(0..64)));
                let sync = bench.submit(Fsync { file: bench.file.clone(), scope }).wait();
                assert_eq!(sync.result.unwrap(), 0);
                assert!(sync.stopped_by.is_none() && sync.pages.is_none());
                assert_eq!(write.wait().result.unwrap(), 64 * PAGE_BYTES);
                drop(bench.submit(Fsync { file: bench.file.clone(), scope }));
                bench.driver.sync_blocking(&bench.file, scope).unwrap();
                let mut batch = bench.driver.batch();
                batch.push(Request::Nop).unwrap();
                batch.push(Fsync { file: bench.file.clone(), scope }).unwrap();
                batch.finish(|_, finished| assert_eq!(finished.result.unwrap(), 0));
                let zero = OpenFile::open(Path::new("/dev/zero"), DirectIo::Off, Access::Read).unwrap();
                let refused = bench.submit(Fsync { file: zero.into(), scope }).wait();
                assert_eq!(errno(&refused.result), Some(libc::EINVAL));
            }
            pages.assert_unpinned();
            bench.assert_idle();
        }
    });
}

/// Goal: what a thread writes by itself is there, and files are truncated, extended and given space.
#[test]
fn blocking_calls() {
    with_seed("writing::blocking_calls", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 4, seed);
            let (driver, file) = (&bench.driver, &bench.file);
            let mut expected = std::fs::read(bench.path()).unwrap();
            let text = vec![7_u8; 100_001];
            assert_eq!(driver.write_blocking(file, Route::Buffered, &text, 5000).unwrap(), text.len());
            expected[5000..][..text.len()].fill(7);
            driver.set_len_blocking(file, 1_000_000).unwrap();
            expected.truncate(1_000_000);
            assert!(std::fs::read(bench.path()).unwrap() == expected);
            driver.set_len_blocking(file, 1_500_000).unwrap();
            let allocated = driver.allocate_blocking(file, ByteRange::new(1_400_000, 1_700_000)).unwrap();
            assert_eq!(
                file.length_bytes().unwrap(),
                match allocated {
                    Allocated::Yes => 1_700_000,
                    Allocated::Unsupported => 1_500_000,
                }
            );
            assert_eq!(driver.allocate_blocking(file, ByteRange::new(7, 7)).unwrap(), Allocated::Yes);
            let too_large = driver.allocate_blocking(file, ByteRange::new(0, u64::MAX)).unwrap_err();
            assert_eq!(too_large.kind(), io::ErrorKind::FileTooLarge);
            expected.resize(file.length_bytes().unwrap() as usize, 0);
            driver.extend_blocking(file, 1000).unwrap();
            driver.extend_blocking(file, 1_800_001).unwrap();
            expected.resize(1_800_001, 0);
            assert_eq!(driver.reserve_blocking(file, ByteRange::new(0, 2_000_000)).unwrap(), allocated);
            assert!(driver.free_bytes(file).unwrap() > 0);
            assert!(std::fs::read(bench.path()).unwrap() == expected, "{}", bench.name());
            bench.assert_idle();
        }
    });
}

/// Goal: a direct write that is not aligned is refused, and changes nothing. ext4 refuses one only after it has stored what lies in the
/// first extent, so the file has two: one that is written, and one that is set aside.
#[test]
fn unaligned_direct_writes_change_nothing() {
    with_seed("writing::unaligned_direct_writes_change_nothing", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 4, seed);
            let Some(direct) = bench.file.direct() else { continue };
            let whole = LENGTH_BYTES - direct.offset.get();
            bench.driver.allocate_blocking(&bench.file, ByteRange::new(0, 2 * LENGTH_BYTES)).unwrap();
            let before = std::fs::read(bench.path()).unwrap();
            let mut memory = bench.arena.allocate(2 << 20, Urgency::Demand).expect("there is room");
            memory.fill(7);
            let write = |bytes: &[u8], offset| {
                let refused =
                    bench.driver.write_blocking(&bench.file, Route::Direct, bytes, offset).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
            };
            write(&memory[..(1 << 20) + 100], whole);
            write(&memory[..1 << 20], whole + 100);
            write(&memory[1..][..1 << 20], whole);
            let mut bytes = vec![0; 4097];
            let refused = bench.driver.read_blocking(&bench.file, Route::Direct, &mut bytes, 0).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
            assert!(std::fs::read(bench.path()).unwrap() == before, "{}", bench.name());
        }
    });
}

/// Goal: space is set aside where the file system can do that, and refused, without an error, where it cannot.
#[test]
fn space_set_aside() {
    for (name, directory) in scratch_dirs() {
        let path = directory.path().join("file");
        let file = OpenFile::create(&path, DirectIo::Preferred, Access::ReadWrite, Creation::New).unwrap();
        assert_eq!(file.allocate(ByteRange::new(1000, 9000)).unwrap(), Allocated::Yes, "{name}");
        assert_eq!(file.length_bytes().unwrap(), 9000, "{name}");
        assert_eq!(std::fs::read(&path).unwrap(), [0; 9000], "{name}");
    }
    let comm = OpenFile::open(Path::new("/proc/self/comm"), DirectIo::Off, Access::ReadWrite).unwrap();
    assert_eq!(comm.allocate(ByteRange::new(0, 1)).unwrap(), Allocated::Unsupported);
    let null = OpenFile::open(Path::new("/dev/null"), DirectIo::Off, Access::ReadWrite).unwrap();
    assert_eq!(null.allocate(ByteRange::new(0, 1)).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    assert_eq!(null.write_blocking(Route::Buffered, &[1; 77], 0).unwrap(), 77);
    let full = OpenFile::open(Path::new("/dev/full"), DirectIo::Off, Access::ReadWrite).unwrap();
    let error = full.write_blocking(Route::Buffered, &[1; 77], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
}

/// Goal: a file that was not there is made, with direct I/O where it would have it; one that is there is refused or kept, as
/// asked. Method: each way of creation, before and after, followed by a write.
#[test]
fn creation() -> io::Result<()> {
    scratch_dirs().iter().try_for_each(|(_, directory)| create_in(directory))
}

fn create_in(directory: &ScratchDir) -> io::Result<()> {
    let old = directory.path().join("old");
    std::fs::write(&old, [1; 5000])?;
    let has_direct = OpenFile::open(&old, DirectIo::Preferred, Access::Read)?.direct();
    for creation in [Creation::IfMissing, Creation::New] {
        let path = directory.path().join(format!("{creation:?}"));
        let create = || OpenFile::create(&path, DirectIo::Preferred, Access::ReadWrite, creation);
        let file = create()?;
        assert_eq!((file.length_bytes()?, file.direct()), (0, has_direct));
        assert_eq!(file.write_blocking(Route::Buffered, &[5; 100], 0)?, 100);
        match (creation, create()) {
            (Creation::IfMissing, again) => assert_eq!(again?.length_bytes()?, 100),
            (Creation::New, again) => {
                assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            }
        }
    }
    let read_only = OpenFile::create(&old, DirectIo::Off, Access::Read, Creation::IfMissing);
    assert_eq!(read_only.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(std::fs::metadata(&old)?.len(), 5000);
    Ok(())
}

/// Goal: neither a FIFO nor a folder is opened by creating it; a device is; a dangling link makes its
/// target, unless the file must be new.
#[test]
fn creation_of_what_is_there() -> io::Result<()> {
    let directory = ScratchDir::on_target().unwrap();
    let (fifo, link) = (directory.path().join("fifo"), directory.path().join("link"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600))?;
    assert!(std::fs::metadata(&fifo)?.file_type().is_fifo());
    symlink("target", &link)?;
    let create = |path: &Path, creation| OpenFile::create(path, DirectIo::Off, Access::ReadWrite, creation);
    let opened = |path: &Path| create(path, Creation::IfMissing);
    assert_eq!(opened(&fifo).unwrap_err().kind(), io::ErrorKind::Unsupported);
    assert_eq!(opened(directory.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    opened(Path::new("/dev/null"))?;
    for path in [&fifo, &link] {
        assert_eq!(create(path, Creation::New).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
    create(&link, Creation::IfMissing)?;
    assert!(directory.path().join("target").exists());
    Ok(())
}

/// Goal: a file that was made and cannot be opened as it has to be leaves nothing behind; one that was there, or that lies behind a link,
/// stays. Method: `O_DIRECT` on tmpfs.
#[test]
fn a_creation_that_fails_leaves_nothing() -> io::Result<()> {
    let directory = match tmpfs() {
        Ok(directory) => directory,
        Err(reason) => {
            skip(reason);
            return Ok(());
        }
    };
    let (path, link) = (directory.path().join("file"), directory.path().join("link"));
    let kind = |path: &Path, creation| {
        let made = OpenFile::create(path, DirectIo::Required, Access::ReadWrite, creation);
        made.unwrap_err().kind()
    };
    for creation in [Creation::IfMissing, Creation::New] {
        assert_eq!(kind(&path, creation), io::ErrorKind::Unsupported);
        assert!(!path.exists(), "{creation:?}");
    }
    symlink("file", &link)?;
    assert_eq!(kind(&link, Creation::IfMissing), io::ErrorKind::Unsupported);
    assert!(link.is_symlink() && path.exists());
    assert_eq!(kind(&path, Creation::IfMissing), io::ErrorKind::Unsupported);
    assert!(path.exists());
    Ok(())
}

/// Goal: holes and data of a file are told apart, each as far as it reaches within the range; what a file system does not tell is data, and
/// what lies beyond the end a hole. Method: an island in a sparse file, on each file system; one of `/proc`.
#[test]
fn stretches_are_those_of_the_file_system() -> io::Result<()> {
    for (kind, directory) in scratch_dirs() {
        let path = directory.path().join("sparse");
        let file = std::fs::File::create(&path)?;
        file.set_len(4 << 20)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 65_536], 1 << 20)?;
        file.sync_all()?;
        let file = OpenFile::open(&path, DirectIo::Preferred, Access::Read)?;
        let at = |start, end| file.first_stretch(ByteRange::new(start, end));
        if at(0, 4 << 20)? == Stretch::Data(4 << 20) {
            println!("{kind} does not tell");
            continue;
        }
        assert_eq!(at(0, 4 << 20)?, Stretch::Hole(1 << 20), "{kind}");
        assert_eq!(at(5000, 6000)?, Stretch::Hole(6000), "{kind}");
        assert_eq!(at(1 << 20, 4 << 20)?, Stretch::Data((1 << 20) + 65_536), "{kind}");
        assert_eq!(at((1 << 20) + 1, (1 << 20) + 9)?, Stretch::Data((1 << 20) + 9), "{kind}");
        assert_eq!(at(2 << 20, 9 << 20)?, Stretch::Hole(9 << 20), "{kind}");
        assert_eq!(at(6 << 20, 9 << 20)?, Stretch::Hole(9 << 20), "{kind}");
        assert_eq!(at(7, 7)?, Stretch::Data(7), "{kind}");
    }
    let made_up = OpenFile::open(Path::new("/proc/version"), DirectIo::Off, Access::Read)?;
    let read_bytes = std::fs::read("/proc/version")?.len() as u64;
    let stretch = made_up.first_stretch(ByteRange::new(0, read_bytes))?;
    assert!(matches!(stretch, Stretch::Data(_)), "{stretch:?}");
    Ok(())
}

/// Goal: short transfers and transient errors are gone on with until all is written, each byte where it belongs.
/// Method: a device that does half of everything badly.
#[test]
fn short_writes_are_continued() {
    with_seed("writing::short_writes_are_continued", |seed| {
        let options = SimOptions { short_per_mille: 800, ..SimOptions::hostile(seed) };
        let control = options.control.clone();
        let (bench, mut rng) = (Bench::new(DriverKind::Sim(options), 8, seed), Rng::new(seed));
        let pages = Pages::new(100, Scatter::EachPage, seed);
        for _ in 0..30 {
            let first = rng.below(90);
            let run = pages.run(first..first + 1 + rng.below(10));
            let length_bytes = run.len_bytes();
            let finished = bench.submit(write_back(&bench, first * 4096, run)).wait();
            assert_eq!(finished.result.unwrap(), length_bytes);
            let bytes = std::fs::read(bench.path()).unwrap();
            let written = &bytes[first as usize * PAGE_BYTES..][..length_bytes];
            assert_eq!(pages.pattern.mismatch(first * 4096, written), None);
        }
        // One for each run, and more for those of several pages: the device may move whole pages only.
        assert!(control.attempts() > 40, "{} attempts", control.attempts());
        pages.assert_unpinned();
        bench.assert_idle();
    });
}

/// Goal: a file that is open for writing alone takes bytes through the page cache, gives none, and has no direct I/O, also where that is asked for.
#[test]
fn files_are_open_for_writing_alone() -> io::Result<()> {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "contents")?;
    let file = OpenFile::open(&path, DirectIo::Preferred, Access::Write)?;
    assert_eq!((file.direct(), Access::Write.reads(), Access::Write.writes()), (None, false, true));
    assert_eq!(file.write_blocking(Route::Buffered, b"CON", 0)?, 3);
    let refused = file.read_blocking(Route::Buffered, &mut [0], 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    let refused = OpenFile::open(&path, DirectIo::Required, Access::Write).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported, "{refused}");
    assert_eq!(std::fs::read(&path)?, b"CONtents");
    Ok(())
}
