//! Advice: what each says to whom, on cached files, uncached ones, empty ones.
//!
//! Owns: acts (pages come, pages go), refusals.
//! Does not own: which pages a policy reads ahead (`headwater-core`).

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use headwater::{Advice, ByteRange, Caching, File, IoMode, OpenOptions, Operation, Residency};
use headwater_testkit::{PATIENCE, again_if_dropped, with_seed};

use crate::rig::{Rig, Scratch, block_on, rigs};

const ORDERS: [Advice; 4] = [Advice::Normal, Advice::Sequential, Advice::Random, Advice::NoReuse];
const ACTS: [Advice; 2] = [Advice::WillNeed, Advice::DontNeed];

fn cached(rig: &Rig, scratch: &Scratch) -> File {
    let mut options = OpenOptions::new();
    // The files are young, and a look that cannot tell whether they changed drops their pages.
    options.engine(&rig.engine).caching(Caching::On).revalidate(Duration::MAX);
    options.open(scratch.path()).unwrap()
}

/// The pages that can be read now; what is on its way is let arrive.
fn resident_pages(rig: &Rig, file: &File) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Makes what has arrived resident; time passes on `sim` with requests only.
        rig.pass_time();
        rig.engine.stats();
        let stats = file.stats();
        if stats.loading_pages == 0 {
            return stats.resident_pages;
        }
        assert!(Instant::now() < deadline, "on its way for ever: {stats:?}");
    }
}

/// Goal: WillNeed reads exactly the pages asked for, once, without a reader; a read then meets hits alone.
#[test]
fn will_need_reads_without_waiting() {
    with_seed("advice::will_need_reads_without_waiting", |seed| {
        let scratch = Scratch::new(seed, 1_000_000);
        for rig in rigs(seed) {
            scratch.make_cold();
            let file = cached(&rig, &scratch);
            file.advise(Advice::WillNeed, ByteRange::new(5000, 300_000)).unwrap();
            assert_eq!(resident_pages(&rig, &file), 73, "pages 1 to 73 on {}", rig.name());
            let mut buffer = vec![0; 290_000];
            file.read_exact_at(&mut buffer, 5000).unwrap();
            scratch.check(5000, &buffer);
            let counts = file.stats().counts;
            assert_eq!((counts.misses, counts.read_ahead, counts.used), (0, 73, 72), "{counts:?}");
            // What is there is not read again, and the end of the file ends it.
            file.advise(Advice::WillNeed, ..).unwrap();
            assert_eq!(resident_pages(&rig, &file), 245);
            assert_eq!(file.stats().counts.read_ahead, 245);
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: several ranges at once read exactly their pages, and what lies beyond the end is left out.
#[test]
fn will_need_of_several_ranges_reads_their_pages() {
    with_seed("advice::will_need_of_several_ranges_reads_their_pages", |seed| {
        let scratch = Scratch::new(seed, 1_000_000);
        for rig in rigs(seed) {
            scratch.make_cold();
            let file = cached(&rig, &scratch);
            let ranges =
                [(500_000, 510_000), (0, 1), (4095, 4097), (990_000, 2_000_000), (3_000_000, 3_000_001)];
            file.will_need(&ranges.map(|(start, end)| ByteRange::new(start, end))).unwrap();
            // 122 to 124, 0, 0 and 1, 241 to 244.
            assert_eq!(resident_pages(&rig, &file), 3 + 2 + 4, "on {}", rig.name());
            let mut buffer = vec![0; 10_000];
            file.read_exact_at(&mut buffer, 500_000).unwrap();
            scratch.check(500_000, &buffer);
            let counts = file.stats().counts;
            assert_eq!((counts.misses, counts.read_ahead), (0, 9), "{counts:?}");
            file.will_need(&[]).unwrap();
            let mut uncached = OpenOptions::new();
            let uncached = uncached.engine(&rig.engine).caching(Caching::Off).open(scratch.path()).unwrap();
            uncached.will_need(&[ByteRange::new(0, 4096)]).unwrap();
            assert_eq!(resident_pages(&rig, &file), 9);
            drop((file, uncached));
            rig.assert_idle();
        }
    });
}

/// Goal: more ranges than there are places in a queue are all read, and a reader waits for none of them longer than for the others. Method:
/// every second page of a file, with demands for pages in between.
#[test]
fn will_need_of_many_ranges_reads_them_all() {
    with_seed("advice::will_need_of_many_ranges_reads_them_all", |seed| {
        let scratch = Scratch::new(seed, 2 << 20);
        for rig in rigs(seed) {
            scratch.make_cold();
            let file = cached(&rig, &scratch);
            let ranges: Vec<ByteRange> = (0..250).map(|number| ByteRange::at(number * 8192, 4096)).collect();
            file.will_need(&ranges).unwrap();
            let mut buffer = vec![0; 4096];
            for number in [249, 7, 130] {
                file.read_exact_at(&mut buffer, number * 8192).unwrap();
                scratch.check(number * 8192, &buffer);
                file.read_exact_at(&mut buffer, number * 8192 + 4096).unwrap();
                scratch.check(number * 8192 + 4096, &buffer);
            }
            assert_eq!(resident_pages(&rig, &file), 253, "on {}", rig.name());
            let counts = file.stats().counts;
            assert_eq!((counts.misses, counts.read_ahead, counts.device_reads), (3, 250, 253), "{counts:?}");
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: DontNeed drops whole pages, the last one of the file too, here and in the kernel; bytes lent live on.
#[test]
fn dont_need_drops_whole_pages() {
    with_seed("advice::dont_need_drops_whole_pages", |seed| {
        let scratch = Scratch::new(seed, 100_000);
        for rig in rigs(seed) {
            let file = cached(&rig, &scratch);
            let mut buffer = vec![0; 100_000];
            file.read_exact_at(&mut buffer, 0).unwrap();
            let lent = block_on(file.read_at_async(40_960, 4096)).unwrap();
            assert_eq!(resident_pages(&rig, &file), 25);
            file.advise(Advice::DontNeed, ByteRange::new(100, 8192 + 100)).unwrap();
            assert_eq!(resident_pages(&rig, &file), 24, "page 1");
            file.advise(Advice::DontNeed, ByteRange::new(98_304, 100_000)).unwrap();
            assert_eq!(resident_pages(&rig, &file), 23, "page 24");
            assert_eq!(rig.engine.stats().cache.pinned_pages, 1);
            file.advise(Advice::DontNeed, ..).unwrap();
            assert_eq!(resident_pages(&rig, &file), 0);
            assert_eq!(file.residency(ByteRange::new(0, 100_000)), Residency::None);
            assert_eq!(file.stats().counts.evictions, 25);
            scratch.check(40_960, &lent);
            drop(lent);
            assert_eq!(rig.engine.stats().cache.pinned_pages, 0);
            file.read_exact_at(&mut buffer, 0).unwrap();
            scratch.check(0, &buffer);
        }
    });
}

/// Goal: with NoReuse a scan in any portions leaves no page that it passed, and reads each from the device once.
#[test]
fn no_reuse_leaves_nothing_behind() {
    with_seed("advice::no_reuse_leaves_nothing_behind", |seed| {
        let scratch = Scratch::new(seed, 700_000);
        for rig in rigs(seed) {
            for portion in [1000, 4096, 10_000, 65_536] {
                scratch.make_cold();
                let file = cached(&rig, &scratch);
                file.advise(Advice::NoReuse, ..).unwrap();
                let mut buffer = vec![0; portion];
                for offset_bytes in (0..700_000).step_by(portion) {
                    let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
                    scratch.check_all(offset_bytes, portion, &buffer[..read_bytes]);
                }
                let (resident, counts) = (resident_pages(&rig, &file), file.stats().counts);
                assert_eq!(resident, 0, "portions of {portion} on {}: {counts:?}", rig.name());
                let bytes = block_on(file.read_at_async(4000, 5000)).unwrap();
                scratch.check(4000, &bytes);
                file.advise(Advice::DontNeed, ..).unwrap();
                file.advise(Advice::Normal, ..).unwrap();
                file.read_exact_at(&mut buffer[..100], 0).unwrap();
                assert!(resident_pages(&rig, &file) > 0, "advice is taken back");
                file.advise(Advice::DontNeed, ..).unwrap();
            }
            rig.assert_idle();
        }
    });
}

/// Goal: Random turns readahead off for all who have the file open.
#[test]
fn random_reads_what_is_asked_for() {
    let scratch = Scratch::new(1, 500_000);
    for rig in rigs(1) {
        scratch.make_cold();
        let (file, other) = (cached(&rig, &scratch), cached(&rig, &scratch));
        file.advise(Advice::Random, ..).unwrap();
        for page in 0..20 {
            other.read_exact_at(&mut [0; 4096], page * 4096).unwrap();
        }
        let counts = file.stats().counts;
        assert_eq!((counts.misses, counts.read_ahead), (20, 0), "{counts:?}");
    }
}

/// Goal: ranges that mean nothing are refused in one line that says why; empty files and empty ranges are not.
#[test]
fn ranges_that_mean_nothing() {
    let scratch = Scratch::new(1, 10_000);
    let empty = Scratch::new(1, 0);
    for rig in rigs(1) {
        let stored = [cached(&rig, &scratch), rig.open(&scratch.path(), IoMode::Buffered)];
        for file in stored.into_iter().chain([File::from_bytes(vec![1; 10_000])]) {
            let refused = |advice, start, end, words: &str| {
                // Its fields are public, so a range may end before it begins.
                let error = file.advise(advice, ByteRange { start, end }).unwrap_err();
                let text = error.to_string();
                assert_eq!((error.kind(), error.operation()), (ErrorKind::InvalidInput, Operation::Advise));
                assert!(text.contains(words) && text.lines().count() == 1, "{text}");
            };
            for advice in ORDERS {
                refused(advice, 0, 9_999, "is about a whole file, 0..10000, not 0..9999");
                refused(advice, 1, 10_000, "whole file");
                file.advise(advice, ByteRange::new(0, u64::MAX)).unwrap();
            }
            for advice in ACTS {
                refused(advice, 10_000, 10_001, "begins beyond the file's 10000 bytes");
                refused(advice, 0, u64::MAX, "2^63 - 1");
                file.advise(advice, ByteRange::new(20_000, 20_000)).unwrap();
                file.advise(advice, ByteRange::new(9_999, 20_000)).unwrap();
            }
            for advice in ORDERS.into_iter().chain(ACTS) {
                refused(advice, 8192, 4096, "ends before it begins");
                refused(advice, 1 << 63, 0, "ends before it begins");
            }
        }
        let file = rig.open(&empty.path(), IoMode::Auto);
        for advice in ORDERS.into_iter().chain(ACTS) {
            file.advise(advice, ..).unwrap();
        }
        let error = file.advise(Advice::WillNeed, ByteRange::new(0, 1)).unwrap_err();
        assert!(error.to_string().contains("the file's 0 bytes"), "{error}");
    }
}

/// Goal: more than the cache holds is an error that says how much it holds; nothing is read then.
#[test]
fn more_than_the_cache_holds() {
    let scratch = Scratch::new(1, 7 << 20);
    for rig in rigs(1) {
        let file = cached(&rig, &scratch);
        let error = file.advise(Advice::WillNeed, ..).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("that the cache can hold"), "{error}");
        assert_eq!(file.stats().counts.read_ahead, 0);
    }
}

/// Goal: a file that is not cached passes advice on to the kernel, or says that it cannot.
#[test]
fn files_that_are_not_cached() {
    again_if_dropped(|| {
        let scratch = Scratch::new(1, 100_000);
        let rig = &rigs(1)[0];
        let open = |mode| {
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).caching(Caching::Off).io(mode).open(scratch.path()).unwrap()
        };
        let range = ByteRange::new(0, 100_000);
        for mode in [IoMode::Auto, IoMode::Buffered] {
            let file = open(mode);
            ORDERS.into_iter().for_each(|advice| file.advise(advice, ..).unwrap());
            file.advise(Advice::WillNeed, ..).unwrap();
            let deadline = Instant::now() + PATIENCE;
            while file.residency(range) != Residency::Whole {
                assert!(Instant::now() < deadline, "the kernel does not read it");
                file.advise(Advice::WillNeed, ..).unwrap();
                std::thread::yield_now();
            }
            // Waits for what is counted as resident and still on its way.
            file.read_exact_at(&mut vec![0; 100_000], 0).unwrap();
            file.advise(Advice::DontNeed, ..).unwrap();
            assert_eq!(file.residency(range), Residency::None);
        }
        if open(IoMode::Auto).is_direct() {
            let error = open(IoMode::Direct).advise(Advice::WillNeed, ..).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
    });
}
