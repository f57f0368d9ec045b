//! Faults: what went wrong in other caches, or once in this one; a test for each.
//!
//! Owns: faults that one reader can meet, or a device.
//! Does not own: files that change (see `changing`), who waits for whom (see `once`), memory that callers keep (see
//! `held`).

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use headwater::testing::{FaultOn, FaultRange};
use headwater::{
    ByteRange, Caching, DriverKind, Engine, File, IoMode, OpenOptions, ReadaheadLimits, ReadaheadPolicy,
};
use headwater_testkit::{Rng, ScratchDir, scratch_dirs, skip, with_seed};

use crate::rig::{Rig, Scratch, block_on, calm, calm_device, rigs, watched};

/// Goal: a read at the end of the file, which gives nothing, uses no page: neither is readahead told of one, nor is a
/// page that was read ahead taken for used. Method: the page of the end is read ahead and marked.
#[test]
fn a_read_at_the_end_uses_no_page() {
    with_seed("faults::a_read_at_the_end_uses_no_page", |seed| {
        let scratch = Scratch::new(seed, 4096 + 100);
        let rig = calm(seed);
        let file = rig.open(&scratch.path(), IoMode::Direct);
        file.read_at(&mut [0; 4096], 0).unwrap();
        rig.assert_idle();
        assert_eq!(file.stats().counts.read_ahead, 1, "the page of the end was not read ahead");
        assert!(block_on(file.read_at_async(4096 + 100, 10)).unwrap().is_empty());
        assert_eq!(file.read_at(&mut [0; 10], 4096 + 100).unwrap(), 0);
        assert_eq!(file.stats().counts.used, 0);
        rig.assert_idle();
    });
}

/// Goal: whoever meets a page on its way gets the bytes of the file, never what the memory held before. Method: many
/// small reads right behind readahead that has just begun, on devices that deliver late.
#[test]
fn a_hit_on_a_page_on_its_way_waits() {
    with_seed("faults::a_hit_on_a_page_on_its_way_waits", |seed| {
        let scratch = Scratch::new(seed, 3_000_000);
        for rig in rigs(seed) {
            let file = cached(&rig, &scratch);
            let mut buffer = [0; 700];
            for offset_bytes in (0..3_000_000).step_by(700) {
                let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
                scratch.check_all(offset_bytes, 700, &buffer[..read_bytes]);
            }
            let counts = file.stats().counts;
            assert!(counts.read_ahead > 0 && counts.late <= counts.used, "{counts:?}");
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: nothing at or behind the end is read or shown, wherever the end lies in a window and in a page. Method: files
/// of many lengths, read over the end; the buffer's rest stays as it was.
#[test]
fn the_end_inside_a_window() {
    with_seed("faults::the_end_inside_a_window", |seed| {
        let mut rng = Rng::new(seed);
        for length_bytes in [1, 511, 512, 4095, 4097, 131_071, 131_073, 400_000 + rng.below(10_000)] {
            let scratch = Scratch::new(rng.next_u64(), length_bytes);
            for rig in rigs(rng.next_u64()) {
                let file = cached(&rig, &scratch);
                for _ in 0..10 {
                    let offset_bytes = rng.below(length_bytes + 5000);
                    let mut buffer = vec![0xAA; 9000];
                    let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
                    scratch.check_all(offset_bytes, 9000, &buffer[..read_bytes]);
                    assert!(buffer[read_bytes..].iter().all(|&byte| byte == 0xAA), "stale bytes show");
                    let bytes = block_on(file.read_at_async(offset_bytes, 9000)).unwrap();
                    scratch.check_all(offset_bytes, 9000, &bytes);
                }
                rig.assert_idle();
                assert!(file.stats().resident_pages <= length_bytes.div_ceil(4096), "pages behind the end");
            }
        }
    });
}

/// Goal: a request that is there at both ends and lacks its middle reads the middle, and once. Method: cache the ends.
#[test]
fn a_miss_in_the_middle_of_a_request() {
    with_seed("faults::a_miss_in_the_middle_of_a_request", |seed| {
        let scratch = Scratch::new(seed, 40 * 4096);
        let rig = calm(seed);
        let file = with_policy(&rig, &scratch, ReadaheadPolicy::Off);
        let mut buffer = vec![0; 40 * 4096];
        for (first, pages) in [(0, 10), (30, 10), (20, 2)] {
            file.read_exact_at(&mut buffer[..pages * 4096], first * 4096).unwrap();
        }
        let before = file.stats().counts;
        file.read_exact_at(&mut buffer, 0).unwrap();
        scratch.check_all(0, usize::MAX, &buffer);
        let after = file.stats().counts;
        assert_eq!(after.misses - before.misses, 10 + 8, "the pages of the two gaps");
        assert_eq!(after.device_read_bytes, 40 * 4096);
        assert_eq!(after.sync_misses - before.sync_misses, 1, "one plan for both");
    });
}

/// Goal: a request of many times the largest read and of more than the memory comes right, with every policy, and is
/// read once if it fits. Method: 12 MiB at once with 64 and with 4 MiB of memory.
#[test]
fn an_oversized_request() {
    with_seed("faults::an_oversized_request", |seed| {
        let scratch = Scratch::new(seed, 12_000_001);
        let policies = [
            ReadaheadPolicy::Adaptive,
            ReadaheadPolicy::Linux,
            ReadaheadPolicy::Off,
            ReadaheadPolicy::Fixed(300),
        ];
        for policy in policies {
            let large = calm(seed);
            let file = with_policy(&large, &scratch, policy);
            let mut contents = vec![0; 12_000_001];
            file.read_exact_at(&mut contents, 0).unwrap();
            scratch.check_all(0, usize::MAX, &contents);
            let counts = file.stats().counts;
            assert_eq!(counts.device_read_bytes, 12_000_001u64.next_multiple_of(4096), "{policy:?}");
            for small in rigs(seed) {
                let file = with_policy(&small, &scratch, policy);
                watched(small.name(), || {
                    contents.fill(0);
                    file.read_exact_at(&mut contents, 0).unwrap();
                    scratch.check_all(0, usize::MAX, &contents);
                    let bytes = block_on(file.read_at_async(0, 13_000_000)).unwrap();
                    scratch.check_all(0, usize::MAX, &bytes);
                });
                small.assert_idle();
            }
        }
    });
}

/// Goal: limits that ask for larger reads than a piece of memory holds are refused.
#[test]
fn limits_beyond_the_largest_run() {
    for (size_bytes_max, fits) in [(2 << 20, true), (4 << 20, false)] {
        let distance_bytes_max = 16 << 20;
        let limits = ReadaheadLimits { size_bytes_max, distance_bytes_max, ..ReadaheadLimits::default() };
        let result = Engine::builder().driver(DriverKind::Threads).readahead(limits).build();
        assert_eq!(result.is_ok(), fits, "{result:?}");
        let Ok(engine) = result else { continue };
        let scratch = Scratch::new(1, 24 << 20);
        let file = OpenOptions::new().engine(&engine).caching(Caching::On).open(scratch.path()).unwrap();
        let mut contents = vec![0; 24 << 20];
        file.read_exact_at(&mut contents, 0).unwrap();
        scratch.check_all(0, usize::MAX, &contents);
    }
}

/// Goal: a mark that another handle meets goes on with the stream that set it, not with that handle's own. Method: two
/// handles take turns in one stream: as few misses as with one.
#[test]
fn a_mark_met_by_another_handle() {
    with_seed("faults::a_mark_met_by_another_handle", |seed| {
        let scratch = Scratch::new(seed, 8 << 20);
        let rig = calm(seed);
        let files = [cached(&rig, &scratch), cached(&rig, &scratch)];
        let mut buffer = [0; 4096];
        for page in 0..2048 {
            files[page as usize % 2].read_exact_at(&mut buffer, page * 4096).unwrap();
            scratch.check(page * 4096, &buffer);
        }
        let counts = files[0].stats().counts;
        assert_eq!(counts.sync_misses, 1, "{counts:?}");
        assert_eq!(counts.device_read_bytes, 8 << 20, "{counts:?}");
    });
}

/// Goal: what fails ahead of a reader fails nobody's read; who comes to it gets the error, with its place; healed, the
/// bytes. Method: bad bytes within readahead's reach.
#[test]
fn a_failed_prefetch_fails_no_read() {
    with_seed("faults::a_failed_prefetch_fails_no_read", |seed| {
        let scratch = Scratch::new(seed, 2_000_000);
        for rig in [calm(seed), Rig::sim(seed)] {
            let file = cached(&rig, &scratch);
            let range = ByteRange::new(409_600, 413_696);
            rig.control().add_fault(FaultRange::new(range, EIO));
            let mut buffer = [0; 4096];
            for page in 0..100 {
                file.read_exact_at(&mut buffer, page * 4096).unwrap();
                scratch.check(page * 4096, &buffer);
            }
            for _ in 0..2 {
                let error = file.read_at(&mut buffer, 409_600).unwrap_err();
                assert_eq!((error.raw_os_error(), error.offset_bytes()), (Some(EIO), Some(409_600)));
                let error = block_on(file.read_at_async(409_700, 10)).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(EIO));
            }
            file.read_exact_at(&mut buffer, 413_696).unwrap();
            scratch.check(413_696, &buffer);
            rig.control().clear_faults();
            let mut contents = vec![0; 2_000_000];
            file.read_exact_at(&mut contents, 0).unwrap();
            scratch.check_all(0, usize::MAX, &contents);
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: page numbers have more than 32 bits. Method: a sparse file of 17 TiB, where the file system has such: pages
/// whose numbers differ in their upper bits only hold different bytes, and are all there at once.
#[test]
fn page_numbers_beyond_32_bits() {
    let mut found = false;
    for (kind, directory) in scratch_dirs() {
        let path = directory.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        if file.set_len(17 << 40).is_err() {
            continue;
        }
        found = true;
        let places = [0, 4096, 1 << 44, (1 << 44) + 4096, (17 << 40) - 4096];
        for (number, place) in (1..).zip(places) {
            file.write_all_at(&[number; 4096], place).unwrap();
        }
        file.sync_all().unwrap();
        for rig in rigs(7) {
            eprintln!("{} on {kind}", rig.name());
            let file = OpenOptions::new().engine(&rig.engine).caching(Caching::On).open(&path).unwrap();
            for _ in 0..2 {
                for (number, place) in (1..).zip(places) {
                    let mut buffer = [0; 4096];
                    file.read_exact_at(&mut buffer, place).unwrap();
                    assert!(buffer == [number; 4096], "at {place}");
                    assert_eq!(block_on(file.read_at_async(place + 4000, 96)).unwrap(), [number; 96][..]);
                }
            }
            assert!(file.stats().resident_pages >= 5);
            drop(file);
            rig.assert_idle();
        }
    }
    if !found {
        skip("no file system has files of 17 TiB");
    }
}

/// Goal: two streams whose windows fill the memory between them both go on, and what is read ahead of one is not pushed
/// out by the other before it is used. Method: two sequential readers in turns, 3 MiB of memory.
#[test]
fn two_windows_that_fill_the_cache() {
    with_seed("faults::two_windows_that_fill_the_cache", |seed| {
        let scratch = Scratch::new(seed, 16 << 20);
        for memory_bytes in [3 << 20, 5 << 20] {
            let rig = Rig::sized(calm_device(seed), memory_bytes, 16);
            let file = cached(&rig, &scratch);
            let mut buffer = vec![0; 16 << 10];
            for round in 0..512 {
                for start_bytes in [0, 8 << 20] {
                    let offset_bytes = start_bytes + round * (16 << 10);
                    file.read_exact_at(&mut buffer, offset_bytes).unwrap();
                    scratch.check(offset_bytes, &buffer);
                }
            }
            let counts = file.stats().counts;
            assert!(counts.device_read_bytes <= (16 << 20) / 100 * 105, "read twice: {counts:?}");
            assert!(counts.sync_misses <= 16, "{counts:?}");
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: a jump back is no sequential read, and reads from the end to the beginning are right. Method: jumps of a few
/// pages back from a stream, and a backward scan.
#[test]
fn backward_jumps() {
    with_seed("faults::backward_jumps", |seed| {
        let scratch = Scratch::new(seed, 4 << 20);
        for rig in rigs(seed) {
            let file = cached(&rig, &scratch);
            let (mut rng, mut buffer) = (Rng::new(seed), [0; 4096]);
            for page in (0..1024u64).rev() {
                for page in [page, page.saturating_sub(rng.below(20))] {
                    file.read_exact_at(&mut buffer, page * 4096).unwrap();
                    scratch.check(page * 4096, &buffer);
                }
            }
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: a file that is opened, read and closed over and over stays cached. Method: more often than closed files are
/// remembered.
#[test]
fn opened_and_closed_again_and_again() {
    let scratch = Scratch::new(1, 50_000);
    let rig = calm(1);
    let mut buffer = vec![0; 50_000];
    // Until the file is old enough for its stamp to be trusted, opening it drops what is cached.
    while cached(&rig, &scratch).stats().resident_pages == 0 {
        cached(&rig, &scratch).read_exact_at(&mut buffer, 0).unwrap();
    }
    let mut favourite = Favourite::new(&rig, &scratch);
    for _ in 0..5000 {
        favourite.open("what was cached is gone");
    }
    let file = cached(&rig, &scratch);
    file.read_exact_at(&mut buffer, 0).unwrap();
    scratch.check_all(0, usize::MAX, &buffer);
}

/// Goal: among many more files than are remembered, one that is opened again and again stays cached. Method: after each of
/// 5000 files, which leave a page each, that one is opened and closed.
#[test]
fn a_favourite_among_many_closed_files() {
    let (scratch, rig) = (Scratch::new(1, 50_000), calm(1));
    let mut buffer = vec![0; 50_000];
    while cached(&rig, &scratch).stats().resident_pages == 0 {
        cached(&rig, &scratch).read_exact_at(&mut buffer, 0).unwrap();
    }
    let directory = ScratchDir::on_target().unwrap();
    let mut favourite = Favourite::new(&rig, &scratch);
    for number in 0..5000 {
        let path = directory.path().join(number.to_string());
        std::fs::write(&path, [1; 10]).unwrap();
        let mut options = OpenOptions::new();
        let file = options.engine(&rig.engine).io(IoMode::Buffered).caching(Caching::On).open(&path).unwrap();
        file.read_exact_at(&mut [0; 10], 0).unwrap();
        drop(file);
        favourite.open(&format!("gone after {number} files"));
    }
    rig.assert_idle();
    assert!(
        rig.engine.stats().arena.cached_bytes <= (4096 + 13) * 4096,
        "closed files are remembered for ever"
    );
}

/// A file of 13 pages that stays cached. Once, when it is as old as a write may last, it is read again.
struct Favourite<'a> {
    rig: &'a Rig,
    scratch: &'a Scratch,
    made: Instant,
    is_old: bool,
}

impl<'a> Favourite<'a> {
    fn new(rig: &'a Rig, scratch: &'a Scratch) -> Favourite<'a> {
        Favourite { rig, scratch, made: Instant::now(), is_old: false }
    }

    fn open(&mut self, what: &str) {
        let file = cached(self.rig, self.scratch);
        let became_old = !self.is_old && self.made.elapsed() > Duration::from_secs(28);
        if became_old && file.stats().resident_pages == 0 {
            self.is_old = true;
            file.read_exact_at(&mut [0; 50_000], 0).unwrap();
        }
        assert_eq!(file.stats().resident_pages, 13, "{what}");
    }
}

fn cached(rig: &Rig, scratch: &Scratch) -> File {
    with_policy(rig, scratch, ReadaheadPolicy::Adaptive)
}

fn with_policy(rig: &Rig, scratch: &Scratch, policy: ReadaheadPolicy) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).io(IoMode::Direct).caching(Caching::On).readahead(policy);
    // The file was written just now, and its first stamp is too young to be trusted.
    options.revalidate(Duration::MAX);
    // Where there is no direct I/O, through the kernel's page cache.
    options.open(scratch.path()).or_else(|_| options.io(IoMode::Buffered).open(scratch.path())).unwrap()
}

const EIO: i32 = 5;

/// Goal: a page of which the device gives a part alone is no page with zeros behind, and no end of the file: views, copies and writes into
/// it report the device's error, and change nothing. Method: half of a page cannot be read.
#[test]
fn half_a_page_is_no_page() {
    with_seed("faults::half_a_page_is_no_page", |seed| {
        const PAGE: u64 = 3 * 4096;
        let (scratch, other) = (Scratch::new(seed, 10 * 4096), Scratch::new(seed, 0));
        let rig = calm(seed);
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).caching(Caching::On).write(true).read(true);
        let (file, target) = (options.open(scratch.path()).unwrap(), options.open(other.path()).unwrap());
        let bad = ByteRange::at(PAGE + 2048, 512);
        rig.control().add_fault(FaultRange { operation: FaultOn::Reads, ..FaultRange::new(bad, 5) });
        let failed = |what: &str, error: Option<headwater::Error>| {
            let error = error.unwrap_or_else(|| panic!("{what}: no error"));
            assert_eq!(error.raw_os_error(), Some(5), "{what}: {error}");
        };
        for (offset_bytes, length) in [(PAGE, 4096), (PAGE + 100, 3000), (4096, 5 * 4096)] {
            failed("a view", file.view(offset_bytes, length).err());
            failed("a task's view", block_on(file.view_async(offset_bytes, length)).err());
            let range = offset_bytes..offset_bytes + length as u64;
            failed("a copy", file.copy_range_to(range.clone(), &target, 0).err());
            failed("a task's copy", block_on(file.copy_range_to_async(range, &target, 0)).err());
        }
        failed("a write", file.write_at(b"xy", PAGE + 100).err());
        failed("a task's write", block_on(file.write_all_at_async(b"xy".to_vec(), PAGE + 100)).err());
        failed("a write behind", file.write_at(b"xy", PAGE + 4000).err());
        rig.control().clear_faults();
        file.sync_data().unwrap();
        scratch.check_all(0, 10 * 4096, &file.view(0, 10 * 4096).unwrap().to_vec());
        scratch.check_all(0, 10 * 4096, &std::fs::read(scratch.path()).unwrap());
    });
}
