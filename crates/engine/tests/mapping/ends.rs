//! Ends: the end of the file, the end of the view, and what cannot be mapped at all.
//!
//! Owns: errors of live windows, and what they leave.
//! Does not own: what is inside.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater::{ByteRange, Caching, File, IoMode, OpenOptions, Operation};

use crate::open;
use crate::rig::{Rig, Scratch, rigs, watched};

/// Goal: what is cut off is gone at once, an error and no signal; it comes back as zeros, and nothing of it as it was.
#[test]
fn a_truncate_under_a_view() {
    for rig in rigs(1) {
        let scratch = Scratch::new(1, 100_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let view = file.map(ByteRange::new(4096, 90_000)).unwrap();
        let mut bytes = vec![0; 85_904];
        view.read(0, &mut bytes).unwrap();
        scratch.check(4096, &bytes);
        view.write(0, &[7; 85_904]).unwrap();
        file.set_len(10_001).unwrap();
        for error in [
            view.read(0, &mut bytes).unwrap_err(),
            view.load_u8(10_001 - 4096).unwrap_err(),
            view.write(0, &bytes).unwrap_err(),
            view.store_u64(9999 - 4096, 1).unwrap_err(),
        ] {
            assert_eq!(
                (error.kind(), error.offset_bytes()),
                (ErrorKind::UnexpectedEof, Some(10_001)),
                "{error}"
            );
            assert_eq!(error.path(), Some(&*scratch.path()));
        }
        let error = view.fetch_add_u64(12_288 - 4096, 1).unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::UnexpectedEof, Operation::Write));
        assert_eq!(file.len().unwrap(), 10_001);
        file.set_len(100_000).unwrap();
        view.read(0, &mut bytes).unwrap();
        assert!(bytes[..10_001 - 4096].iter().all(|&byte| byte == 7));
        assert!(bytes[10_001 - 4096..].iter().all(|&byte| byte == 0));
        drop((view, file));
        rig.assert_idle();
    }
}

/// Goal: reads and writes of a view race with truncates, and give what was there, zeros, or the error; never a longer file.
#[test]
fn cuts_race_with_views() {
    for rig in rigs(2) {
        let scratch = Scratch::new(2, 0);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let (view, done) = (file.map(ByteRange::new(0, LENGTH)).unwrap(), AtomicBool::new(false));
        watched(rig.name(), || {
            thread::scope(|scope| {
                let (view, done, file) = (&view, &done, &file);
                for number in 0..2 {
                    scope.spawn(move || {
                        let mut at = number * 4096;
                        while !done.load(Ordering::Relaxed) {
                            at = (at + 4120) % (LENGTH - 8);
                            let at = at / 8 * 8;
                            let results = [view.store_u64(at, 5), view.fetch_add_u64(at, 0).map(drop)];
                            let loaded = view.load_u64(at);
                            assert!(
                                loaded.as_ref().is_ok_and(|word| [0, 5].contains(word)) || loaded.is_err()
                            );
                            for error in results.into_iter().chain([loaded.map(drop)]).filter_map(Result::err)
                            {
                                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                            }
                        }
                    });
                }
                let wrong = (0..300).find_map(|round| {
                    let length_bytes = [0, 4100, LENGTH, 8192][round % 4];
                    file.set_len(length_bytes).unwrap();
                    let found = file.len().unwrap();
                    (found != length_bytes).then_some((round, found))
                });
                done.store(true, Ordering::Relaxed);
                assert_eq!(wrong, None);
            });
        });
        file.sync_data().unwrap();
        drop((view, file));
        rig.assert_idle();
    }
}

/// Goal: the view ends where it ends, also where offsets do; nothing outside of it can be touched.
#[test]
fn the_view_ends() {
    for rig in rigs(3) {
        let scratch = Scratch::new(3, 20_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let view = file.map(ByteRange::new(100, 4100)).unwrap();
        assert_eq!((view.len(), view.is_empty(), view.range()), (4000, false, ByteRange::new(100, 4100)));
        let mut bytes = [0; 8];
        for at in [3993, 4000, u64::MAX - 3, u64::MAX] {
            let errors =
                [view.read(at, &mut bytes), view.write(at, &bytes), view.fetch_add_u64(at, 1).map(drop)];
            for error in errors.map(Result::unwrap_err) {
                assert_eq!(
                    (error.kind(), error.operation()),
                    (ErrorKind::InvalidInput, Operation::View),
                    "{error}"
                );
            }
        }
        assert_eq!(
            view.fetch_add_u64(0, 1).unwrap_err().kind(),
            ErrorKind::InvalidInput,
            "100 is no multiple of 8"
        );
        view.fetch_add_u64(4, 1).unwrap();
        view.read(4000, &mut []).unwrap();
        let empty = file.map(ByteRange::new(7, 7)).unwrap();
        assert!(empty.is_empty() && empty.load_u8(0).is_err());
        assert_eq!(file.map(ByteRange::new(0, u64::MAX)).unwrap_err().kind(), ErrorKind::InvalidInput);
        // Its fields are public, so a range may end before it begins.
        let inverted = ByteRange { start: 8192, end: 4096 };
        for error in [file.map(inverted).unwrap_err(), file.map_contiguous(inverted).unwrap_err()] {
            let text = error.to_string();
            assert_eq!(
                (error.kind(), error.operation()),
                (ErrorKind::InvalidInput, Operation::View),
                "{text}"
            );
            assert!(text.contains("ends before it begins"), "{text}");
        }
        assert!(format!("{view:?}").ends_with("at 100..4100)"), "{view:?}");
        drop((view, empty, file));
        rig.assert_idle();
    }
}

/// Goal: what may only be read is only read, also bytes in memory; a failed exchange makes nothing dirty; what has no pages is
/// refused.
#[test]
fn what_is_refused() {
    for rig in rigs(4) {
        let scratch = Scratch::new(4, 5000);
        let view = rig.open(&scratch.path(), IoMode::Auto).map(ByteRange::new(0, 5000)).unwrap();
        scratch.check(0, &view.load_u64(0).unwrap().to_ne_bytes());
        refuse_writes(&view);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let writable = file.map(ByteRange::new(0, 5000)).unwrap();
        let word = writable.load_u64(8).unwrap();
        assert_eq!(writable.compare_exchange_u64(8, !word, 1).unwrap(), word);
        assert_eq!(file.stats().dirty_pages, 0);
        assert_eq!(writable.compare_exchange_u64(8, word, 1).unwrap(), word);
        assert_eq!((view.load_u64(8).unwrap(), file.stats().dirty_pages), (1, 1));
        refuse_devices(&rig);
        drop((view, writable, file));
        rig.assert_idle();
    }
    let view = File::from_bytes(vec![3; 100]).map(ByteRange::new(90, 110)).unwrap();
    assert_eq!(view.load_u64(0).unwrap(), u64::from_ne_bytes([3; 8]));
    assert_eq!(view.load_u64(8).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    refuse_writes(&view);
}

fn refuse_writes(view: &headwater::SharedView) {
    let errors = [
        view.store_u8(0, 1),
        view.fetch_add_u64(8 - view.range().start % 8, 1).map(drop),
        view.write(0, b"x"),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
}

fn refuse_devices(rig: &Rig) {
    let zeros = OpenOptions::new().engine(&rig.engine).open(Path::new("/dev/zero")).unwrap();
    let error = zeros.map(ByteRange::new(0, 4096)).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, Operation::View), "{error}");
}

const LENGTH: u64 = 40_960;
