//! Threads: many handles on one file, each with its own thread, in pages that they share.
//!
//! Owns: who does what at once, what must hold whatever the order.
//! Does not own: records that are appended (appends), lengths that change (lengths).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater::{Advice, ByteRange, Caching, DriverKind, File, IoMode, OpenOptions, View};
use headwater_testkit::{Pattern, Rng, ScratchDir, soak_seconds, with_seed};

use crate::model::same;
use crate::rig::{Rig, block_on, drivers, watched};

/// Goal: threads that write neighbouring ranges, which share pages, do not disturb each other, nor do evictions, advice and
/// syncs. Method: each thread has ranges of its own with odd ends, and a model of them.
#[test]
fn neighbours_in_a_page_do_not_disturb_each_other() {
    with_seed("threads::neighbours_in_a_page_do_not_disturb_each_other", |seed| {
        let (mut rng, directory) = (Rng::new(seed), ScratchDir::on_target().unwrap());
        let path = directory.path().join("file");
        for driver in drivers(seed) {
            let rig = Rig::sized(driver, 3 << 20, 16);
            let file = open(&rig, &path, IoMode::Auto);
            let mut gardens = gardens(&mut rng);
            let length_bytes = gardens.iter().flat_map(|garden| &garden.beds).map(Bed::end).max().unwrap();
            file.set_len(0).unwrap();
            file.set_len(length_bytes).unwrap();
            let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(0));
            watched_for(rig.name(), || {
                thread::scope(|scope| {
                    for garden in &mut gardens {
                        let mode = [IoMode::Auto, IoMode::Buffered][rng.below(2) as usize];
                        let (file, mut rng) = (open(&rig, &path, mode), Rng::new(rng.next_u64()));
                        scope.spawn(move || work(&file, garden, &mut rng, end));
                    }
                });
            });
            file.sync_data().unwrap();
            let disk = std::fs::read(&path).unwrap();
            assert_eq!(disk.len() as u64, length_bytes);
            for bed in gardens.iter().flat_map(|garden| &garden.beds) {
                let found = &disk[bed.offset_bytes as usize..bed.end() as usize];
                same("on disk", bed.offset_bytes, &bed.bytes, found).unwrap();
            }
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: a page that is replaced again and again, because readers have it pinned, is never taken for one that the cache lacks: the device
/// has none of its bytes. Method: a writer of whole pages beside views of them, of a file of which nothing is written back.
#[test]
fn a_page_that_is_replaced_is_never_missing() {
    let directory = ScratchDir::on_target().unwrap();
    for driver in drivers(5) {
        let rig = Rig::sized(driver, 8 << 20, 16);
        let file = open(&rig, &directory.path().join("file"), IoMode::Auto);
        file.set_len(0).unwrap();
        file.write_all_at(&[0; 16_384], 0).unwrap();
        let is_over = AtomicBool::new(false);
        watched(rig.name(), || {
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        file.write_all_at(&[1; 16_384], 0).unwrap();
                    }
                });
                let look = || (0..30_000).try_for_each(|_| file.view(0, 16_384).map(drop));
                let readers = [scope.spawn(look), scope.spawn(look)];
                let looked = readers.map(|reader| reader.join().unwrap());
                is_over.store(true, Ordering::Relaxed);
                looked.into_iter().for_each(|looked| looked.unwrap());
            });
        });
        assert_eq!(file.stats().counts.bypassed, 0);
        drop(file);
        rig.assert_idle();
    }
}

/// What one thread owns.
#[derive(Default)]
struct Garden {
    beds: Vec<Bed>,
}

struct Bed {
    offset_bytes: u64,
    bytes: Vec<u8>,
}

impl Bed {
    fn end(&self) -> u64 {
        self.offset_bytes + self.bytes.len() as u64
    }
}

/// Twice as much as the memory holds, in small pieces.
fn gardens(rng: &mut Rng) -> Vec<Garden> {
    let (mut gardens, mut offset_bytes) = (Vec::new(), 0);
    gardens.resize_with(THREADS, Garden::default);
    while offset_bytes < 6 << 20 {
        let length = if rng.chance(1, 4) { rng.range(4000, 60_000) } else { rng.range(1, 5000) };
        let bed = Bed { offset_bytes, bytes: vec![0; length as usize] };
        gardens[rng.below(THREADS as u64) as usize].beds.push(bed);
        offset_bytes += length;
    }
    gardens
}

fn work(file: &File, garden: &mut Garden, rng: &mut Rng, end: Instant) {
    let mut step = 0;
    while step < STEPS || Instant::now() < end {
        step += 1;
        // Some beds are visited often, so that threads meet there.
        let among = if rng.chance(1, 2) { garden.beds.len().min(12) } else { garden.beds.len() };
        let bed = &mut garden.beds[rng.below(among as u64) as usize];
        let start = rng.below(bed.bytes.len() as u64) as usize;
        let length = 1 + rng.below((bed.bytes.len() - start) as u64) as usize;
        let offset_bytes = bed.offset_bytes + start as u64;
        let mine = &mut bed.bytes[start..start + length];
        match rng.below(20) {
            0..=5 => {
                Pattern::new(rng.next_u64()).fill(0, mine);
                file.write_all_at(mine, offset_bytes).unwrap();
            }
            6..=7 => {
                Pattern::new(rng.next_u64()).fill(0, mine);
                block_on(file.write_all_at_async(mine.to_vec(), offset_bytes)).unwrap();
            }
            8..=11 => {
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, offset_bytes).unwrap();
                same("read_at", offset_bytes, mine, &buffer).unwrap();
            }
            12..=13 => {
                let bytes = block_on(file.read_at_async(offset_bytes, length)).unwrap();
                same("read_at_async", offset_bytes, mine, &bytes).unwrap();
            }
            14..=17 => {
                let view = file.view(offset_bytes, length).unwrap();
                let before = mine.to_vec();
                if rng.chance(1, 2) {
                    Pattern::new(rng.next_u64()).fill(0, mine);
                    file.write_all_at(mine, offset_bytes).unwrap();
                }
                same("view", offset_bytes, &before, &view.to_vec()).unwrap();
            }
            18 => {
                let range = ByteRange::new(offset_bytes, offset_bytes + length as u64);
                file.advise([Advice::WillNeed, Advice::DontNeed][rng.below(2) as usize], range).unwrap();
            }
            _ => file.sync_data().unwrap(),
        }
    }
}

/// Goal: nobody sees a page half written. Method: two threads write pages with one stamp in all of its words, with others that
/// read single pages and make views of them, in memory that holds half of the pages.
#[test]
fn pages_are_written_whole() {
    with_seed("threads::pages_are_written_whole", |seed| {
        let (mut rng, directory) = (Rng::new(seed), ScratchDir::on_target().unwrap());
        let path = directory.path().join("file");
        for driver in drivers(seed) {
            let rig = Rig::sized(driver, 3 << 20, 16);
            let (stamp, done, file) =
                (AtomicU64::new(1), AtomicBool::new(false), open(&rig, &path, IoMode::Auto));
            file.set_len(PAGES * 4096).unwrap();
            watched_for(rig.name(), || {
                thread::scope(|scope| {
                    let (done, stamp) = (&done, &stamp);
                    let writers: Vec<_> = (0..2)
                        .map(|_| {
                            let (file, rng) = (open(&rig, &path, IoMode::Auto), Rng::new(rng.next_u64()));
                            scope.spawn(move || write_stamps(&file, stamp, rng))
                        })
                        .collect();
                    for _ in 0..2 {
                        let (file, rng) = (open(&rig, &path, IoMode::Auto), Rng::new(rng.next_u64()));
                        scope.spawn(move || read_stamps(&file, done, rng));
                    }
                    let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
                    done.store(true, Ordering::Relaxed);
                    results.into_iter().for_each(|result| result.unwrap());
                });
            });
            file.sync_data().unwrap();
            std::fs::read(&path).unwrap().chunks(4096).for_each(check_stamp);
            drop(file);
            rig.assert_idle();
        }
    });
}

fn write_stamps(file: &File, stamp: &AtomicU64, mut rng: Rng) {
    let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(0));
    let mut step = 0;
    while step < STEPS || Instant::now() < end {
        step += 1;
        let pages = if rng.chance(1, 3) { 1 + rng.below(20) } else { 1 };
        let mut bytes = Vec::new();
        for _ in 0..pages {
            bytes.extend(stamp.fetch_add(1, Ordering::Relaxed).to_le_bytes().repeat(512));
        }
        file.write_all_at(&bytes, draw_page(&mut rng, PAGES - pages) * 4096).unwrap();
        if rng.chance(1, 30) {
            file.sync_data().unwrap();
        }
    }
}

fn read_stamps(file: &File, done: &AtomicBool, mut rng: Rng) {
    let mut page = [0; 4096];
    while !done.load(Ordering::Relaxed) {
        let offset_bytes = draw_page(&mut rng, PAGES) * 4096;
        if rng.chance(1, 2) {
            file.read_exact_at(&mut page, offset_bytes).unwrap();
            check_stamp(&page);
        } else {
            let view = file.view(offset_bytes, 4096).unwrap();
            check_stamp(&view.to_vec());
        }
    }
}

fn draw_page(rng: &mut Rng, pages: u64) -> u64 {
    let hot = rng.chance(1, 2);
    rng.below(if hot { 4 } else { pages })
}

fn check_stamp(page: &[u8]) {
    let different = page.as_chunks::<8>().0.iter().position(|word| word[..] != page[..8]);
    assert_eq!(different, None, "two stamps in one page: {:?} and others", &page[..8]);
}

/// Goal: threads that keep views, and read, write, append, truncate and sync in little memory, never stand still; views stay as they were made, and
/// every byte is one that was written at its place. Method: eight threads on one file in 3 MiB, with four requests in flight; two patterns by
/// position, and appended bytes behind both.
#[test]
fn much_at_once_in_little_memory() {
    with_seed("threads::much_at_once_in_little_memory", |seed| {
        for driver in drivers(seed).into_iter().filter(|driver| !matches!(driver, DriverKind::Sim(_))) {
            for caching in [Caching::On, Caching::Off] {
                let (rig, directory) =
                    (Rig::sized(driver.clone(), 3 << 20, 4), ScratchDir::on_target().unwrap());
                let path = directory.path().join("file");
                patterns(seed)[0].write_file(&path, CROWDED_BYTES).unwrap();
                let mut options = OpenOptions::new();
                let file = options.engine(&rig.engine).caching(caching).write(true).open(&path).unwrap();
                let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(0));
                watched_for(&format!("{}, {caching:?}", rig.name()), || {
                    thread::scope(|scope| {
                        for number in 0..8 {
                            let file = &file;
                            scope.spawn(move || crowd(file, seed, number, end));
                        }
                    });
                });
                file.sync_data().unwrap();
                let disk = std::fs::read(&path).unwrap();
                assert!(disk.len() as u64 >= CROWDED_BYTES);
                check_patterns(seed, 0, &disk[..CROWDED_BYTES as usize]);
                assert!(disk[CROWDED_BYTES as usize..].iter().all(|&byte| byte == APPENDED));
                for (at, bytes) in (0..).step_by(100_000).zip(disk.chunks(100_000)) {
                    let mut buffer = vec![0; bytes.len()];
                    file.read_exact_at(&mut buffer, at).unwrap();
                    same("at the end", at, bytes, &buffer).unwrap();
                }
                drop(file);
                rig.assert_idle();
            }
        }
    });
}

fn crowd(file: &File, seed: u64, number: u64, end: Instant) {
    let (mut rng, mut views, mut step) = (Rng::new(seed ^ number), Vec::<(View, Vec<u8>)>::new(), 0);
    while step < STEPS / 2 || Instant::now() < end {
        step += 1;
        let (at, length) = (rng.below(CROWDED_BYTES - 200_000), 1 + rng.below(200_000) as usize);
        let mut buffer = vec![0; length];
        match rng.below(80) {
            0..30 => {
                // None where the views that are kept take all that may be lent.
                if let Ok(view) = file.view(at, length) {
                    let bytes = view.to_vec();
                    assert_eq!(bytes.len(), length);
                    check_patterns(seed, at, &bytes);
                    views.push((view, bytes));
                }
            }
            30..40 => {
                file.read_exact_at(&mut buffer, at).unwrap();
                check_patterns(seed, at, &buffer);
            }
            40..60 => {
                patterns(seed)[rng.below(2) as usize].fill(at, &mut buffer);
                file.write_all_at(&buffer, at).unwrap();
            }
            60..70 => {
                let appended_at = file.append(&vec![APPENDED; 1 + length % 10_000]).unwrap();
                assert!(appended_at >= CROWDED_BYTES);
            }
            70 => file.set_len(CROWDED_BYTES).unwrap(),
            71..74 => file.sync_data().unwrap(),
            _ => views
                .drain(..)
                .for_each(|(view, bytes)| assert!(view.to_vec() == bytes, "a view has changed")),
        }
        if views.len() > 6 {
            let (view, bytes) = views.swap_remove(rng.below(6) as usize);
            assert!(view.to_vec() == bytes, "a view has changed");
        }
    }
}

fn patterns(seed: u64) -> [Pattern; 2] {
    [Pattern::new(seed), Pattern::new(!seed)]
}

fn check_patterns(seed: u64, at: u64, bytes: &[u8]) {
    let [first, second] = patterns(seed);
    let strange =
        (at..).zip(bytes).find(|(at, byte)| first.byte(*at) != **byte && second.byte(*at) != **byte);
    assert_eq!(strange, None, "a byte that was never written there");
}

pub(crate) fn open(rig: &Rig, path: &std::path::Path, mode: IoMode) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).io(mode).write(true).create(true).open(path).unwrap()
}

/// A soak takes longer than a hang may, by itself.
pub(crate) fn watched_for(what: &str, work: impl FnOnce()) {
    if soak_seconds().is_some() { work() } else { watched(what, work) }
}

/// Five times the memory.
const CROWDED_BYTES: u64 = 16 << 20;
const APPENDED: u8 = 0xA5;
const THREADS: usize = 4;
const STEPS: usize = 700;
const PAGES: u64 = 1500;
