//! Views: what was seen stays as it was, whatever is written, truncated, evicted or closed afterwards.
//!
//! Owns: views by themselves, and as the source of writes.
//! Does not own: views among all other operations (oracle).

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;

use bytes::{Buf, Bytes};
use headwater::{Advice, ByteRange, Caching, File, IoMode, OpenOptions, Operation, View};
use headwater_testkit::{Pattern, Rng, ScratchDir, with_seed};

use crate::model::same;
use crate::rig::{Rig, Scratch, block_on, drivers, rigs, watched};
use crate::threads::open;

/// Goal: views and lent bytes are snapshots. Method: take some of all sizes, do everything to the file that changes it, and
/// look at them after each step; at last without file and engine.
#[test]
fn snapshots_survive_everything() {
    for rig in rigs(1) {
        let (scratch, other) = (Scratch::new(1, 1_000_003), Scratch::new(2, 12 << 20));
        let file = open(&rig, &scratch.path(), IoMode::Auto);
        let ranges =
            [(0, 1), (4096, 4096), (4090, 12), (100_000, 70_001), (999_000, 1003), (300_000, 300_000)];
        let views: Vec<(View, u64)> =
            ranges.iter().map(|&(at, length)| (file.view(at, length).unwrap(), at)).collect();
        let lent: Vec<(Bytes, u64)> = ranges
            .iter()
            .map(|&(at, length)| (block_on(file.read_at_async(at, length)).unwrap(), at))
            .collect();
        let check = |step: &str| {
            eprintln!("{step}");
            views.iter().for_each(|(view, at)| scratch.check(*at, &view.to_vec()));
            lent.iter().for_each(|(bytes, at)| scratch.check(*at, bytes));
        };
        check("made");
        file.write_all_at(&[0x11; 500_000], 1).unwrap();
        check("written over");
        file.sync_data().unwrap();
        check("synced");
        file.write_all_at(&[0x22; 1_000_003], 0).unwrap();
        check("written over again");
        file.set_len(4099).unwrap();
        check("truncated within a page of theirs");
        file.set_len(0).unwrap();
        file.set_len(2_000_000).unwrap();
        check("truncated to nothing and made longer");
        file.advise(Advice::DontNeed, ByteRange::new(0, 2_000_000)).unwrap();
        let pressure = open(&rig, &other.path(), IoMode::Auto);
        let mut buffer = vec![0; 100_000];
        for at in (0..12 << 20).step_by(100_000) {
            pressure.read_at(&mut buffer, at).unwrap();
        }
        check("evicted around");
        file.sync_data().unwrap();
        assert_eq!(std::fs::read(scratch.path()).unwrap(), vec![0; 2_000_000]);
        drop((file, pressure));
        check("closed");
        drop(rig);
        check("without an engine");
    }
}

/// Goal: a view of what is not on disk yet stays when that is written over before it got there; the disk has the last.
#[test]
fn a_view_of_what_is_not_synced() {
    for rig in rigs(2) {
        let scratch = Scratch::new(3, 0);
        let file = open(&rig, &scratch.path(), IoMode::Auto);
        let mut views = Vec::new();
        for round in 0..20_u8 {
            file.write_all_at(&[round; 9000], 1000).unwrap();
            views.push((file.view(500, 9500).unwrap(), round));
            if round % 7 == 6 {
                file.sync_data().unwrap();
                assert_eq!(std::fs::read(scratch.path()).unwrap()[1000..], [round; 9000]);
            }
        }
        for (view, round) in views {
            assert_eq!(view.to_vec(), [vec![0; 500], vec![round; 9000]].concat());
        }
        file.sync_data().unwrap();
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: writing a view to where it was made, or beside, ends, with the bytes that were seen.
#[test]
fn views_as_the_source_of_writes() {
    with_seed("views::views_as_the_source_of_writes", |seed| {
        for rig in rigs(seed) {
            let (mut rng, scratch) = (Rng::new(seed), Scratch::new(seed, 3_000_000));
            let file = open(&rig, &scratch.path(), IoMode::Auto);
            let mut expected = vec![0; 3_000_000];
            scratch.pattern.fill(0, &mut expected);
            watched(rig.name(), || {
                for _ in 0..60 {
                    write_one(&file, &mut expected, &mut rng);
                }
            });
            file.sync_data().unwrap();
            same("on disk", 0, &expected, &std::fs::read(scratch.path()).unwrap()).unwrap();
            drop(file);
            rig.assert_idle();
        }
    });
}

fn write_one(file: &File, expected: &mut [u8], rng: &mut Rng) {
    let length = [1, 100, 4096, 9000, 200_000, 1_200_000][rng.below(6) as usize];
    let from = rng.below(expected.len() as u64 - length) as usize;
    // Dirty, clean or absent.
    match rng.below(3) {
        0 => {
            Pattern::new(rng.next_u64()).fill(0, &mut expected[from..from + length as usize]);
            file.write_all_at(&expected[from..from + length as usize], from as u64).unwrap();
        }
        1 => file.sync_data().unwrap(),
        _ => file.advise(Advice::DontNeed, ByteRange::new(0, expected.len() as u64)).unwrap(),
    }
    let to = match rng.below(3) {
        0 => from,
        1 => (from + rng.below(length) as usize).min(expected.len() - length as usize),
        _ => from.saturating_sub(rng.below(length) as usize),
    };
    let view = file.view(from as u64, length as usize).unwrap();
    if rng.chance(1, 2) {
        block_on(file.write_all_at_async(view.into_bytes(), to as u64)).unwrap();
    } else {
        let mut at = to as u64;
        for chunk in view.chunks() {
            file.write_all_at(chunk, at).unwrap();
            at += chunk.len() as u64;
        }
        same("the view", from as u64, &expected[from..from + length as usize], &view.to_vec()).unwrap();
    }
    expected.copy_within(from..from + length as usize, to);
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    same("after a view was written", 0, expected, &found).unwrap();
}

/// Goal: a view is as long as was asked for, or an error that says where of what.
#[test]
fn views_past_the_end() {
    for rig in rigs(3) {
        let scratch = Scratch::new(4, 10_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto);
        for (offset_bytes, length) in [(0, 10_001), (9_999, 2), (10_000, 1), (20_000, 5), (0, 1 << 20)] {
            let error = file.view(offset_bytes, length).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
            assert_eq!((error.operation(), error.path()), (Operation::View, Some(&*scratch.path())));
            let (text, at) = (error.to_string(), error.offset_bytes().expect("it says where"));
            assert!((offset_bytes..=offset_bytes.max(10_000)).contains(&at), "{text}");
            let begin = format!("view {} at byte {at}: ", scratch.path().display());
            assert!(text.starts_with(&begin) && text.lines().count() == 1, "{text}");
        }
        // What was written a moment ago counts.
        file.write_all_at(&[1], 10_000).unwrap();
        assert_eq!(file.view(9_999, 2).unwrap().to_vec()[1], 1);
        file.set_len(9_999).unwrap();
        assert_eq!(file.view(9_998, 2).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        file.sync_data().unwrap();
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: lengths that no memory holds, and offsets that no file has, are errors.
#[test]
fn views_of_absurd_ranges() {
    let (rig, scratch) = (Rig::sim(1), Scratch::new(4, 10_000));
    let file = open(&rig, &scratch.path(), IoMode::Auto);
    for offset_bytes in [u64::MAX, u64::MAX - 5, i64::MAX as u64, i64::MAX as u64 - 5] {
        let error = file.view(offset_bytes, 10).unwrap_err();
        assert_eq!((error.operation(), error.path()), (Operation::View, Some(&*scratch.path())), "{error}");
    }
}

/// Goal: as above for lengths, before memory is asked for.
#[test]
fn views_of_absurd_lengths() {
    let (rig, scratch) = (Rig::sim(1), Scratch::new(4, 10_000));
    let file = open(&rig, &scratch.path(), IoMode::Auto);
    for length in [usize::MAX, isize::MAX as usize, 1 << 50] {
        let error = file.view(0, length).unwrap_err();
        assert_eq!((error.operation(), error.path()), (Operation::View, Some(&*scratch.path())), "{error}");
    }
}

/// Goal: nothing is a view too.
#[test]
fn empty_views() {
    let (rig, scratch) = (Rig::sim(2), Scratch::new(5, 10_000));
    let file = open(&rig, &scratch.path(), IoMode::Auto);
    for offset_bytes in [0, 1, 4096, 9_999, 10_000] {
        let view = file.view(offset_bytes, 0).unwrap();
        assert!(view.is_empty() && view.chunks().all(<[u8]>::is_empty));
        assert_eq!((view.len(), view.as_slice(), view.to_vec()), (0, Some(&[][..]), Vec::new()));
        file.write_all_at(view.chunks().next().unwrap_or(&[]), 20_000).unwrap();
        assert!(view.into_bytes().is_empty());
    }
    assert_eq!(file.len().unwrap(), 10_000, "an empty write is no write");
}

/// Goal: all that a view says about its bytes agrees, in every size.
#[test]
fn a_view_in_all_its_forms() {
    fn is_shared<T: Send + Sync + 'static>(_: &T) {}
    for rig in rigs(6) {
        let scratch = Scratch::new(6, 2_000_000);
        let (file, text) = (open(&rig, &scratch.path(), IoMode::Auto), scratch.path());
        for (at, length) in [(5, 1), (4095, 2), (0, 4096), (8192, 100_000), (1, 1_999_999)] {
            let view = file.view(at, length).unwrap();
            is_shared(&view);
            let pieces: usize = view.chunks().map(<[u8]>::len).sum();
            assert_eq!((view.len(), pieces), (length, length));
            scratch.check(at, &view.chunks().collect::<Vec<_>>().concat());
            scratch.check(at, &view.to_vec());
            if let Some(bytes) = view.as_slice() {
                scratch.check_all(at, length, bytes);
            }
            assert!(format!("{view:?}").contains(&length.to_string()), "{view:?} of {}", text.display());
            let same = view.clone();
            scratch.check_all(at, length, &view.into_bytes());
            scratch.check_all(at, length, &same.into_contiguous().clone());
        }
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: who keeps all views gets copies in the end, and others can still read, write and sync.
#[test]
fn how_much_can_be_lent() {
    for rig in rigs(7) {
        let scratch = Scratch::new(7, 12 << 20);
        let (file, budget_bytes) = (open(&rig, &scratch.path(), IoMode::Auto), 6 << 20);
        watched(rig.name(), || {
            let mut views = Vec::new();
            for at in (0..12 << 20).step_by(48 << 10) {
                views.push((file.view(at, 48 << 10).unwrap(), at));
                let stats = rig.engine.stats();
                assert!(stats.lent_bytes <= budget_bytes / 2, "{stats:?}");
                assert!(stats.arena.mapped_bytes <= stats.arena.budget_bytes, "{stats:?}");
            }
            write_beside(&file);
            let clones: Vec<_> = views.iter().map(|(view, at)| (view.clone(), *at)).collect();
            assert!(rig.engine.stats().lent_bytes <= budget_bytes / 2);
            views = clones;
            views.iter().for_each(|(view, at)| scratch.check(*at, &view.to_vec()));
        });
        file.sync_data().unwrap();
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: a peek is the rest of its page as it was, resident or not, within the quota for lending and beyond, and of files that are
/// not cached; kept or forgotten ones count as lent, and others can still read, write and sync.
#[test]
fn peeks_are_snapshots_of_pages() {
    for rig in rigs(9) {
        let (scratch, length) = (Scratch::new(9, (6 << 20) + 1000), (6 << 20) + 1000);
        let (file, budget_bytes) = (open(&rig, &scratch.path(), IoMode::Auto), 6 << 20);
        watched(rig.name(), || {
            let mut peeks = Vec::new();
            for at in (0..length).step_by(3000) {
                let peek = file.peek(at).unwrap();
                assert_eq!(peek.len() as u64, (4096 - at % 4096).min(length - at));
                peeks.push((peek, at));
                let lent_bytes = rig.engine.stats().lent_bytes;
                assert!(lent_bytes <= budget_bytes / 2, "{lent_bytes} bytes are lent");
            }
            assert!(file.peek(length).unwrap().is_empty() && file.peek(u64::MAX - 5000).unwrap().is_empty());
            file.write_all_at(&vec![0x55; 6 << 20], 0).unwrap();
            file.sync_data().unwrap();
            peeks.iter().for_each(|(peek, at)| scratch.check(*at, peek));
            assert_eq!(file.peek(5000).unwrap()[..], [0x55; 3192]);
        });
        let around =
            OpenOptions::new().engine(&rig.engine).caching(Caching::Off).open(scratch.path()).unwrap();
        assert_eq!(around.peek(100).unwrap()[..], [0x55; 3996]);
        drop((file, around));
        rig.assert_idle();
    }
}

/// Goal: the file of a peek is truncated and grows meanwhile: the bytes are those of one moment, never an error.
#[test]
fn peeks_beside_changes_of_length() {
    for rig in rigs(10) {
        let scratch = Scratch::new(10, 0);
        let file = open(&rig, &scratch.path(), IoMode::Auto);
        watched(rig.name(), || {
            thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 0..200 {
                        file.write_all_at(&[7; 8192], 0).unwrap();
                        file.set_len(round * 40).unwrap();
                    }
                });
                for round in 0..2000 {
                    let peek = file.peek(round % 2 * 4096).unwrap();
                    assert!(peek.len() <= 4096 && peek.iter().all(|&byte| byte == 7 || byte == 0));
                }
            });
        });
        assert_eq!(File::from_bytes(vec![1; 5000]).peek(4999).unwrap()[..], [1]);
        file.sync_data().unwrap();
        drop(file);
        rig.assert_idle();
    }
}

/// All pages of the file, in parts and as a whole.
fn write_beside(file: &File) {
    let mut expected = vec![0x77; 12 << 20];
    for at in (0..12 << 20).step_by(1 << 20) {
        file.write_all_at(&expected[at..at + (1 << 20)], at as u64).unwrap();
        file.write_all_at(b"odd", at as u64 + 4095).unwrap();
        expected[at + 4095..at + 4098].copy_from_slice(b"odd");
    }
    file.sync_data().unwrap();
    let mut found = vec![0; 12 << 20];
    file.read_exact_at(&mut found, 0).unwrap();
    same("beside views", 0, &expected, &found).unwrap();
}

/// Goal: views of bytes in memory are these bytes.
#[test]
fn views_of_bytes_in_memory() {
    let file = File::from_bytes(vec![7; 100]);
    assert_eq!(file.view(10, 20).unwrap().to_vec(), [7; 20]);
    let error = file.view(90, 20).unwrap_err();
    assert_eq!(
        (error.kind(), error.path()),
        (ErrorKind::UnexpectedEof, Some(Path::new("<memory>"))),
        "{error}"
    );
}

/// Goal: a view is the same when another thread looks at it, while others write and truncate. Method: views of a file of which
/// every write sets all bytes, so that a page of a view has one value.
#[test]
fn views_in_other_threads() {
    with_seed("views::views_in_other_threads", |seed| {
        for rig in rigs(seed) {
            let (scratch, mut rng) = (Scratch::new(seed, 0), Rng::new(seed));
            let file = open(&rig, &scratch.path(), IoMode::Auto);
            file.write_all_at(&[0; 40_960], 0).unwrap();
            let (sender, receiver) = std::sync::mpsc::sync_channel::<(View, Vec<u8>)>(40);
            watched(rig.name(), || {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        (0..400_u32).for_each(|round| file.write_all_at(&[round as u8; 40_960], 0).unwrap())
                    });
                    scope.spawn(move || {
                        for (view, first_look) in receiver {
                            assert_eq!(view.to_vec(), first_look);
                            let page_is_one = |page: &[u8]| page.iter().all(|byte| *byte == page[0]);
                            assert!(first_look.chunks(4096).all(page_is_one), "a page half written");
                        }
                    });
                    for _ in 0..200 {
                        let view = file.view(4096 * rng.below(5), 4096 * 5).unwrap();
                        let bytes = view.to_vec();
                        sender.send((view, bytes)).unwrap();
                    }
                    drop(sender);
                });
            });
            file.sync_data().unwrap();
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: one page is viewed and lent more often than a frame counts, and can still be read, written and synced, with all of that
/// kept and after it was given up; what is kept stays as it was. Method: 70 000 views, then as many reads by tasks of what was
/// written over them.
#[test]
fn one_page_is_kept_by_very_many() {
    const TIMES: usize = 70_000;
    for kind in drivers(5) {
        let rig = Rig::sized(kind, 2 << 30, 16);
        let scratch = Scratch::new(5, 8192);
        let file = OpenOptions::new()
            .engine(&rig.engine)
            .caching(Caching::On)
            .write(true)
            .open(scratch.path())
            .unwrap();
        let on_device = || std::fs::read(scratch.path()).unwrap();
        file.write_all_at(&[7; 4096], 0).unwrap();
        let again = |at| (at % 4000) as u64;
        let mut views: Vec<View> = (0..TIMES / 2).map(|at| file.view(again(at), 96).unwrap()).collect();
        (0..TIMES / 2).for_each(|at| views.push(views[at].clone()));
        let mut buffer = [0; 4096];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 4096);
        assert_eq!(buffer, [7; 4096]);
        watched("sync", || file.sync_data().unwrap());
        assert_eq!(on_device()[..4096], buffer);
        file.write_all_at(&[8; 4000], 96).unwrap();
        let lent: Vec<Bytes> = (0..TIMES).map(|_| block_on(file.read_at_async(96, 4000)).unwrap()).collect();
        file.write_all_at(&[9; 4], 200).unwrap();
        assert_eq!(rig.engine.read(scratch.path()).unwrap()[96..200], [8; 104]);
        watched("sync", || file.sync_data().unwrap());
        assert_eq!(on_device()[196..208], [8, 8, 8, 8, 9, 9, 9, 9, 8, 8, 8, 8]);
        assert!(views.iter().all(|view| view.chunks().flatten().all(|&byte| byte == 7)));
        assert!(
            lent.iter().all(|bytes| bytes.len() == 4000 && bytes.iter().step_by(99).all(|&byte| byte == 8))
        );
        drop((views, lent));
        file.write_all_at(&[10; 8192], 0).unwrap();
        watched("sync", || file.sync_data().unwrap());
        assert_eq!(on_device(), [10; 8192]);
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: a view of several pieces is the same bytes by its chunks, as a buffer, compared, and in one piece of memory. Method: pages
/// that were written one by one, so that they do not lie side by side, advanced by random steps.
#[test]
fn views_are_buffers_and_slices() {
    with_seed("views::views_are_buffers_and_slices", |seed| {
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::new(driver), ScratchDir::on_target().unwrap());
            let path = directory.path().join("file");
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).caching(Caching::On).write(true).create(true);
            let (file, mut rng) = (options.open(&path).unwrap(), Rng::new(seed));
            let mut bytes = vec![0; 40_000];
            Pattern::new(seed).fill(0, &mut bytes);
            for page in [3, 1, 8, 0, 2, 9, 4, 6, 5, 7] {
                let part = page * 4096..(page * 4096 + 4096).min(40_000);
                file.write_all_at(&bytes[part.clone()], part.start as u64).unwrap();
            }
            for _ in 0..50 {
                let start = rng.below(40_000) as usize;
                let length = rng.below((40_000 - start) as u64 + 1) as usize;
                let expected = &bytes[start..start + length];
                let view = || file.view(start as u64, length).unwrap();
                assert!(view() == *expected && view() == expected && view() == view());
                assert!(length == 0 || view() != expected[..length - 1]);
                assert!(length < 2 || view() != file.view(start as u64 + 1, length - 1).unwrap());
                let (mut buffer, mut passed) = (view(), Vec::new());
                while buffer.has_remaining() {
                    let step = (rng.below(6000) as usize).min(buffer.chunk().len());
                    passed.extend_from_slice(&buffer.chunk()[..step]);
                    buffer.advance(step);
                    assert_eq!(buffer.remaining(), length - passed.len());
                }
                assert!(passed == expected);
                let mut rest = view();
                let skipped = rng.below(length as u64 + 1) as usize;
                rest.advance(skipped);
                assert!(rest == expected[skipped..]);
                assert_eq!(rest.into_bytes(), expected[skipped..]);
                let whole = view().into_contiguous();
                assert!(*whole == *expected && whole == view().into_contiguous());
                assert!(HashSet::from([whole]).contains(expected));
            }
            drop(file);
            rig.assert_idle();
        }
    });
}
