//! Crashes: from the log of a simulated device to what a file may hold after a crash, and whether that is so.
//!
//! Owns: the way from the log to the tests' kit; that syncs on the simulated device keep what they say.
//! Does not own: the model of a disk that crashes (`headwater-testkit`).

use headwater_io::{DeviceEvent, DriverKind, FileKey, Fsync, SimOptions, SyncScope};
use headwater_testkit::{CrashEvent, CrashEventKind, CrashImages, Rng, with_seed};

use crate::bench::Bench;
use crate::writing::{Pages, Scatter, write_back};

/// What the log says of one file, in the words of the kit.
fn crash_events(log: Vec<DeviceEvent>, key: FileKey) -> Vec<CrashEvent> {
    let of_file = log.into_iter().filter(|event| event.file() == key);
    let event = |event: DeviceEvent| {
        let (began, ended) = (event.began(), event.ended());
        let kind = match event {
            DeviceEvent::Write { offset_bytes, bytes, .. } => CrashEventKind::Write { offset_bytes, bytes },
            DeviceEvent::SetLen { length_bytes, .. } => CrashEventKind::SetLen { length_bytes },
            DeviceEvent::Allocate { range, .. } => CrashEventKind::Allocate { end_bytes: range.end },
            DeviceEvent::Sync { succeeded: true, .. } => CrashEventKind::Sync,
            DeviceEvent::Sync { succeeded: false, .. } => return None,
        };
        Some(CrashEvent { kind, began, ended })
    };
    of_file.filter_map(event).collect()
}

/// Goal: what was done before a sync that succeeded is there after a crash at any later moment; when all is done, what
/// can be there at the most is the file. Method: pages written out of order on a hostile device, each page once between
/// two syncs, some abandoned; growth and truncates; after each sync the file is looked at, and must not be lost again.
#[test]
fn what_was_synced_survives() {
    with_seed("crashes::what_was_synced_survives", |seed| {
        let options = SimOptions::hostile(seed);
        let control = options.control.clone();
        let (bench, mut rng) = (Bench::new(DriverKind::Sim(options), 8, seed), Rng::new(seed));
        bench.driver.set_len_blocking(&bench.file, 32 * 4096).unwrap();
        let key = bench.file.identity().unwrap().0;
        let base = std::fs::read(bench.path()).unwrap();
        let pages = Pages::new(16, Scatter::EachPage, seed);
        control.record();
        // What the file held when a sync that succeeded began, and the moment of its end.
        let mut kept = Vec::new();
        for round in 0..6 {
            write_some(&bench, &pages, &mut rng);
            bench.assert_idle();
            if rng.chance(1, 2) {
                bench.driver.set_len_blocking(&bench.file, (8 + rng.below(40)) * 1000).unwrap();
            }
            if round % 3 == 2 {
                control.fail_syncs(libc::EIO, 1);
            }
            let held = std::fs::read(bench.path()).unwrap();
            let sync = bench.submit(Fsync { file: bench.file.clone(), scope: SyncScope::Data }).wait();
            if sync.result.is_ok() {
                kept.push((control.log().last().and_then(DeviceEvent::ended).unwrap(), held));
            }
        }
        let events = crash_events(control.take_log(), key);
        let images = CrashImages::new(base, events.clone());
        let points = images.crash_points();
        assert!(images.most(*points.last().unwrap()) == std::fs::read(bench.path()).unwrap());
        for (moment, held) in &kept {
            assert!(images.least(*moment) == *held && images.most(*moment) == *held, "at {moment}");
        }
        for point in points {
            let Some((moment, held)) = kept.iter().rfind(|(moment, _)| *moment <= point) else { continue };
            let later: Vec<_> = events.iter().filter(|e| (*moment..=point).contains(&e.began)).collect();
            for _ in 0..10 {
                assert_untouched_is_kept(held, &images.sample(&mut rng, point), &later);
            }
        }
        pages.assert_unpinned();
    });
}

/// What nothing was done to since is as it was.
fn assert_untouched_is_kept(held: &[u8], image: &[u8], later: &[&CrashEvent]) {
    let mut touched = vec![false; held.len()];
    for event in later {
        let range = match &event.kind {
            CrashEventKind::Write { offset_bytes, bytes } => {
                *offset_bytes as usize..*offset_bytes as usize + bytes.len()
            }
            CrashEventKind::SetLen { length_bytes } => *length_bytes as usize..held.len(),
            CrashEventKind::Allocate { .. } | CrashEventKind::Sync => continue,
        };
        let end = range.end.min(held.len());
        touched[range.start.min(end)..end].fill(true);
    }
    let lost = (0..held.len()).find(|&at| !touched[at] && image.get(at) != Some(&held[at]));
    assert_eq!(lost, None, "of {} bytes", held.len());
}

/// Eight writes, each to a part of the file of its own.
fn write_some(bench: &Bench, pages: &Pages, rng: &mut Rng) {
    for place in 0..8 {
        let (first, count) = (rng.below(12), 1 + rng.below(4));
        let completion = bench.submit(write_back(bench, (place * 4) << 12, pages.run(first..first + count)));
        if rng.chance(1, 2) {
            assert!(completion.wait().result.is_ok());
        }
    }
}
