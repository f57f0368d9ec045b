//! Words: values that threads change at the same time, through views and beside them.
//!
//! Owns: sums that come out exactly, words that are never torn.
//! Does not own: what one thread sees (oracle).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use headwater::{Advice, ByteRange, Caching, IoMode};
use headwater_testkit::ScratchDir;

use crate::open;
use crate::rig::{rigs, watched};

/// Goal: no addition is lost, whatever happens to the page meanwhile. Method: threads add to the same words through views of
/// two handles; others pin the page, write its other bytes, sync it and drop it.
#[test]
fn additions_sum_up() {
    for rig in rigs(1) {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        let files = [Caching::On, Caching::Off].map(|caching| open(&rig, &path, IoMode::Auto, caching));
        files[0].set_len(8192).unwrap();
        let done = AtomicBool::new(false);
        watched(rig.name(), || {
            thread::scope(|scope| {
                let adders: Vec<_> = files
                    .iter()
                    .map(|file| {
                        let view = file.map(ByteRange::new(4096, 8192)).unwrap();
                        scope.spawn(move || {
                            for round in 0..ROUNDS {
                                view.fetch_add_u64(8, 1).unwrap();
                                let mut before = view.load_u64(1000).unwrap();
                                loop {
                                    let now =
                                        view.compare_exchange_u64(1000, before, before + round).unwrap();
                                    if now == before {
                                        break;
                                    }
                                    before = now;
                                }
                            }
                        })
                    })
                    .collect();
                let (file, done) = (&files[0], &done);
                scope.spawn(move || {
                    let mut round = 0_u64;
                    while !done.load(Ordering::Relaxed) {
                        round += 1;
                        let pinned = file.view(4096, 4096).unwrap();
                        file.write_all_at(&round.to_ne_bytes(), 4096 + 16).unwrap();
                        drop(pinned);
                        if round.is_multiple_of(20) {
                            file.sync_data().unwrap();
                            file.advise(Advice::DontNeed, ..).unwrap();
                        }
                    }
                });
                let results: Vec<_> = adders.into_iter().map(|adder| adder.join()).collect();
                done.store(true, Ordering::Relaxed);
                results.into_iter().for_each(|result| result.unwrap());
            });
        });
        let view = files[1].map(ByteRange::new(4096, 8192)).unwrap();
        assert_eq!(view.load_u64(8).unwrap(), 2 * ROUNDS);
        assert_eq!(view.load_u64(1000).unwrap(), ROUNDS * (ROUNDS - 1));
        view.sync().unwrap();
        let disk = std::fs::read(&path).unwrap();
        assert_eq!(disk[4104..4112], (2 * ROUNDS).to_ne_bytes());
        drop((files, view));
        rig.assert_idle();
    }
}

/// Goal: a value in one aligned word is read as it was written at some time, never half; and what was stored before another
/// store is seen by who sees that.
#[test]
fn words_are_whole_and_in_order() {
    for rig in rigs(2) {
        let directory = ScratchDir::on_target().unwrap();
        let file = open(&rig, &directory.path().join("file"), IoMode::Auto, Caching::On);
        file.set_len(16_384).unwrap();
        let (view, last) = (file.map(ByteRange::new(0, 16_384)).unwrap(), AtomicU64::new(0));
        watched(rig.name(), || {
            thread::scope(|scope| {
                let (view, last) = (&view, &last);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let value = round * 0x0001_0001_0001_0001;
                        view.store_u64(12_288, value).unwrap();
                        view.store_u64(64, value).unwrap();
                        last.store(round, Ordering::Release);
                    }
                });
                for _ in 0..2 {
                    scope.spawn(move || {
                        let mut newest = 0;
                        while newest < ROUNDS {
                            let least = last.load(Ordering::Acquire);
                            let (second, first) =
                                (view.load_u64(64).unwrap(), view.load_u64(12_288).unwrap());
                            for word in [first, second] {
                                assert!(word.is_multiple_of(0x0001_0001_0001_0001), "{word:#x} is torn");
                            }
                            assert!(first >= second, "{first:#x} was stored before {second:#x}");
                            newest = second / 0x0001_0001_0001_0001;
                            assert!(newest >= least, "{newest} is older than {least}");
                        }
                    });
                }
            });
        });
        drop((view, file));
        rig.assert_idle();
    }
}

const ROUNDS: u64 = 2000;
