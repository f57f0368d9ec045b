//! Tasks: windows beside syncs that are dropped half-way, or not polled any more, and beside streams.
//!
//! Owns: what a task that has begun to write a window back leaves to others.
//! Does not own: what it writes (contiguous).

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::TryStreamExt;
use headwater::testing::{FaultOn, FaultRange, SimOptions};
use headwater::{ByteRange, Caching, DriverKind, File, IoMode, SharedView};
use headwater_testkit::block_on;

use crate::contiguous::{roomy_rigs, window};
use crate::open;
use crate::rig::{Rig, Scratch, drivers, watched};

/// Goal: a sync that is dropped while it writes a window neither extends the file again after a truncate, nor puts old bytes over new ones.
/// Method: devices that take their time, in many orders; the same piece is written again, or truncated off.
#[test]
fn a_sync_is_dropped_half_way() {
    let mut dropped = 0;
    for seed in 0..SEEDS {
        let rig = slow_rig(seed);
        let scratch = Scratch::new(seed, 0);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let Some(view) = window(&file, 0, 20_000) else { return };
        file.set_len(20_000).unwrap();
        fill(&view, 1);
        let Some(syncing) = begin_sync(&file) else { continue };
        fill(&view, 2);
        drop(syncing);
        dropped += 1;
        let length = if seed % 2 == 0 { 1769 } else { 20_000 };
        file.set_len(length as u64).unwrap();
        view.sync().unwrap();
        // What was in flight would arrive now.
        (0..100).for_each(|_| rig.pass_time());
        let disk = std::fs::read(scratch.path()).unwrap();
        assert_eq!(disk.len(), length, "seed {seed}");
        assert!(disk.iter().all(|&byte| byte == 2), "seed {seed}: old bytes came last");
        drop((view, file));
        rig.assert_idle();
    }
    assert!(dropped > SEEDS / 2, "too few syncs were under way: {dropped}");
}

/// Goal: a sync that is not polled any more holds up its own file, not the background thread, which has others to look after.
/// Method: its round, later than windows may stay unwritten.
#[test]
fn the_background_waits_for_no_task() {
    let rig = slow_rig(1);
    let (scratch, others) = (Scratch::new(1, 20_000), Scratch::new(2, 0));
    let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
    let other = open(&rig, &others.path(), IoMode::Auto, Caching::On);
    let Some(view) = window(&file, 0, 20_000) else { return };
    fill(&view, 1);
    other.write_all_at(b"written", 0).unwrap();
    let syncing = begin_sync(&file).expect("the device takes its time");
    rig.control().advance(Duration::from_secs(60));
    watched("a round", || rig.engine.maintain());
    (0..100).for_each(|_| rig.pass_time());
    assert_eq!(std::fs::read(others.path()).unwrap(), b"written");
    drop(syncing);
    watched("a round", || rig.engine.maintain());
    assert_eq!(std::fs::read(scratch.path()).unwrap()[..], [1; 20_000]);
    drop((view, file, other));
    rig.assert_idle();
}

/// Goal: a window whose device does not answer holds up its own file, not the background thread. Method: its rounds, beside a file that is
/// closed with dirty bytes; then the device answers.
#[test]
fn the_background_waits_for_no_device_without_an_answer() {
    let rig = slow_rig(2);
    let (silent, others) = (Scratch::new(1, 20_000), Scratch::new(2, 0));
    let file = open(&rig, &silent.path(), IoMode::Auto, Caching::On);
    let Some(view) = window(&file, 0, 20_000) else { return };
    fill(&view, 1);
    rig.control().hold(silent.file()).unwrap();
    for round in 0..3 {
        let other = open(&rig, &others.path(), IoMode::Auto, Caching::On);
        other.write_all_at(b"written", round * 7).unwrap();
        drop(other);
        rig.control().advance(Duration::from_secs(60));
        watched("a round", || rig.engine.maintain());
        (0..100).for_each(|_| rig.pass_time());
        assert_eq!(std::fs::read(others.path()).unwrap(), b"written".repeat(round as usize + 1));
    }
    rig.control().release();
    view.sync().unwrap();
    assert_eq!(std::fs::read(silent.path()).unwrap(), [1; 20_000]);
    drop((view, file));
    rig.assert_idle();
}

/// Goal: the same for a window that nothing has any more and that could not be written back: it ends with the next round, and a device that
/// does not answer then holds up that round no longer than a piece of another window. Method: its view is dropped while writes fail.
#[test]
fn the_background_waits_for_no_window_that_is_left() {
    let rig = slow_rig(3);
    let silent = Scratch::new(1, 20_000);
    let file = open(&rig, &silent.path(), IoMode::Auto, Caching::On);
    let Some(view) = window(&file, 0, 20_000) else { return };
    fill(&view, 1);
    rig.control().add_fault(FaultRange { operation: FaultOn::Writes, ..FaultRange::new(ALL, 5) });
    drop(view);
    rig.control().clear_faults();
    rig.control().hold(silent.file()).unwrap();
    for _ in 0..2 {
        rig.control().advance(Duration::from_secs(60));
        watched("a round", || rig.engine.maintain());
    }
    rig.control().release();
    watched("the rest", || rig.engine.maintain());
    assert!(file.sync_data().is_err(), "a write has failed");
    assert_eq!(std::fs::read(silent.path()).unwrap(), [1; 20_000]);
    drop(file);
    rig.assert_idle();
}

/// Goal: a stream of an empty file ends, and shows what comes later, although a window reaches over its end.
#[test]
fn a_stream_beside_a_window_beyond_the_end() {
    for rig in roomy_rigs(3) {
        let scratch = Scratch::new(3, 0);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let Some(view) = window(&file, 0, 20_000) else { return };
        fill(&view, 1);
        let all =
            || watched(rig.name(), || block_on(file.stream().try_collect::<Vec<_>>())).unwrap().concat();
        assert_eq!(all(), b"");
        file.write_all_at(b"later", 0).unwrap();
        assert_eq!(all(), b"later");
        drop((view, file));
        rig.assert_idle();
    }
}

/// Goal: a window is written back, and a file written, although views have all pages that the cache may hold beside the window. Method:
/// the views come first, when half of the memory is not in use yet.
#[test]
fn a_window_beside_views_of_all_pages() {
    for driver in drivers(4) {
        let rig = Rig::sized(driver, 5 << 20, 16);
        let (scratch, others) = (Scratch::new(4, PINNED_PAGES * 4096), Scratch::new(5, 4096));
        let file = open(&rig, &scratch.path(), IoMode::Direct, Caching::On);
        let other = open(&rig, &others.path(), IoMode::Auto, Caching::On);
        scratch.age();
        let view = |page: u64| file.view(page * 4096, 4096).unwrap();
        let views: Vec<_> = (0..PINNED_PAGES).map(view).collect();
        let Some(window) = window(&other, 0, 4096) else { return };
        let arena = rig.engine.stats().arena;
        assert_eq!((arena.budget_bytes, arena.cached_bytes), (2 << 20, (7 << 20) / 4), "{}", rig.name());
        watched(rig.name(), || {
            fill(&window, 1);
            window.sync().unwrap();
            file.write_all_at(b"written", 5000).unwrap();
            file.sync_data().unwrap();
        });
        assert_eq!(std::fs::read(others.path()).unwrap(), [1; 4096]);
        assert_eq!(std::fs::read(scratch.path()).unwrap()[5000..5007], *b"written");
        scratch.check(4096, &views[1].to_vec());
        drop((views, window, file, other));
        rig.assert_idle();
    }
}

/// A device that is asked many times before it has done all of a request.
fn slow_rig(seed: u64) -> Rig {
    let options = SimOptions { short_per_mille: 900, ..SimOptions::hostile(seed) };
    Rig::sized(DriverKind::Sim(options), 64 << 20, 16)
}

fn fill(view: &SharedView, byte: u8) {
    view.as_cells().expect("it is contiguous").iter().for_each(|cell| cell.store(byte, Ordering::Relaxed));
}

type Syncing = Pin<Box<dyn Future<Output = headwater::Result<()>> + Send>>;

/// A sync that was polled once; `None` if it was over then.
fn begin_sync(file: &File) -> Option<Syncing> {
    let mut syncing: Syncing = Box::pin(file.sync_data_async());
    syncing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending().then_some(syncing)
}

const SEEDS: u64 = 40;

/// All that the cache may hold of one chunk.
const PINNED_PAGES: u64 = 448;

const ALL: ByteRange = ByteRange::new(0, u64::MAX);
