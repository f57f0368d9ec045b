//! Unanswered: a file whose device does not answer holds up those that use it, and no others.
//!
//! Owns: readers and writers of other files, when what has no answer fills the memory.
//! Does not own: threads that are stuck in the kernel (the suite `host`).

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use futures_util::StreamExt;
use futures_util::io::AsyncReadExt;
use headwater::testing::SimOptions;
use headwater::{Caching, DriverKind, File, IoMode, OpenOptions};
use headwater_testkit::{Pattern, ScratchDir, with_seed};

use crate::rig::{Rig, block_on, watched};

/// Goal: readers of one file go on while loads of another have no answer and hold all that the cache may have. Method: tasks that look once
/// for more than the memory holds, of a file that the device holds; then every way to read the other, with and without the cache.
#[test]
fn readers_of_another_file_go_on() {
    with_seed("unanswered::readers_of_another_file_go_on", |seed| {
        let files = Files::new(seed);
        for (caching, io) in [(Caching::On, IoMode::Auto), (Caching::Off, IoMode::Direct)] {
            let rig = rig(seed);
            rig.control().hold(fs::File::open(files.silent()).unwrap()).unwrap();
            let silent = open(&rig, &files.silent(), Caching::On, IoMode::Auto);
            let places = (0..LENGTH_BYTES).step_by(100_000);
            let waiting: Vec<_> =
                places.filter_map(|place| looked_once(silent.read_at_async(place, 100_000))).collect();
            let answered = open(&rig, &files.answered(), caching, io);
            watched(&format!("{caching:?}, {io:?}"), || read_in_all_ways(&answered, &files));
            rig.control().release();
            drop(waiting);
            rig.assert_idle();
        }
    });
}

fn read_in_all_ways(file: &File, files: &Files) {
    let check = |place: usize, bytes: &[u8]| {
        assert_eq!(files.pattern.mismatch(place as u64, bytes), None, "{} bytes at {place}", bytes.len());
    };
    for (place, length) in [(0, 10), (4096, 4096), (700_001, 100_000), (1_000_000, 1_000_000)] {
        let mut buffer = vec![0; length];
        file.read_exact_at(&mut buffer, place as u64).unwrap();
        check(place, &buffer);
        check(place, &block_on(file.read_at_async(place as u64, length)).unwrap());
        check(place, &file.view(place as u64, length).unwrap().to_vec());
        check(place, &block_on(file.view_async(place as u64, length)).unwrap().to_vec());
    }
    let mut contents = Vec::new();
    file.reader().read_to_end(&mut contents).unwrap();
    assert_eq!(contents.len() as u64, LENGTH_BYTES);
    check(0, &contents);
    contents.clear();
    block_on(file.async_reader().read_to_end(&mut contents)).unwrap();
    assert_eq!(contents.len() as u64, LENGTH_BYTES);
    check(0, &contents);
    let mut stream = file.stream();
    contents.clear();
    while let Some(bytes) = block_on(stream.next()) {
        contents.extend_from_slice(&bytes.unwrap());
    }
    check(0, &contents);
}

/// Goal: writers of one file go on, and sync, while writes of another have no answer. Method: tasks that look once write more than may be
/// dirty to a file that the device holds; then a thread and a task write more than that to another.
#[test]
fn writers_of_another_file_go_on() {
    with_seed("unanswered::writers_of_another_file_go_on", |seed| {
        let files = Files::new(seed);
        let rig = rig(seed);
        rig.control().hold(fs::File::open(files.silent()).unwrap()).unwrap();
        let silent = open(&rig, &files.silent(), Caching::On, IoMode::Auto);
        let places = (0..LENGTH_BYTES).step_by(1 << 20);
        let write = |place| silent.write_all_at_async(vec![1; 1 << 20], place);
        let waiting: Vec<_> = places.filter_map(|place| looked_once(write(place))).collect();
        assert!(!waiting.is_empty(), "more was written than may be dirty");
        let answered = open(&rig, &files.answered(), Caching::On, IoMode::Auto);
        let contents = vec![2; LENGTH_BYTES as usize];
        watched("a thread and a task", || {
            answered.write_all_at(&contents[5..], 5).unwrap();
            block_on(answered.write_all_at_async(contents[..100].to_vec(), 0)).unwrap();
            block_on(answered.write_all_at_async(contents.clone(), 0)).unwrap();
            answered.writer().write_all(&contents).unwrap();
            answered.sync_all().unwrap();
        });
        assert!(fs::read(files.answered()).unwrap() == contents, "bytes are missing");
        rig.control().release();
        watched("the rest", || {
            drop(waiting);
            silent.sync_all().unwrap();
        });
    });
}

/// Goal: a flush of all files writes the others although one has no answer. Method: the others are made before it and after; the flush ends
/// once the device answers.
#[test]
fn a_flush_of_all_files_writes_the_others() {
    with_seed("unanswered::a_flush_of_all_files_writes_the_others", |seed| {
        let (files, rig) = (Files::new(seed), rig(seed));
        let others = [1, 2].map(|number| files.directory.path().join(number.to_string()));
        let opened = [&others[0], &files.silent(), &others[1]].map(|path| {
            fs::write(path, "").unwrap();
            let file = open(&rig, path, Caching::On, IoMode::Auto);
            file.write_all_at(&[3; 200_000], 0).unwrap();
            file
        });
        rig.control().hold(fs::File::open(files.silent()).unwrap()).unwrap();
        watched("a flush", || {
            thread::scope(|scope| {
                let flushing = scope.spawn(|| rig.engine.flush());
                while others.iter().any(|path| fs::read(path).unwrap() != [3; 200_000]) {
                    thread::yield_now();
                }
                assert!(!flushing.is_finished(), "one file is not written");
                rig.control().release();
                flushing.join().unwrap().unwrap();
            });
        });
        assert_eq!(fs::read(files.silent()).unwrap(), [3; 200_000]);
        drop(opened);
    });
}

/// What a future waits for, if it does, when it is polled once.
fn looked_once<F: Future>(future: F) -> Option<Pin<Box<F>>> {
    let mut future = Box::pin(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(_) => None,
        Poll::Pending => Some(future),
    }
}

fn rig(seed: u64) -> Rig {
    Rig::sized(DriverKind::Sim(SimOptions::hostile(seed)), 4 << 20, 64)
}

fn open(rig: &Rig, path: &Path, caching: Caching, io: IoMode) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).read(true).write(true).caching(caching).io(io);
    options.open(path).unwrap()
}

/// Two files with the same contents.
struct Files {
    directory: ScratchDir,
    pattern: Pattern,
}

impl Files {
    fn new(seed: u64) -> Files {
        let files = Files { directory: ScratchDir::on_target().unwrap(), pattern: Pattern::new(seed) };
        for path in [files.silent(), files.answered()] {
            files.pattern.write_file(&path, LENGTH_BYTES).unwrap();
            headwater_testkit::make_cold(&fs::File::open(path).unwrap()).unwrap();
        }
        files
    }

    fn silent(&self) -> std::path::PathBuf {
        self.directory.path().join("silent")
    }

    fn answered(&self) -> std::path::PathBuf {
        self.directory.path().join("answered")
    }
}

const LENGTH_BYTES: u64 = 8_000_000;
