//! Silent: a file system of which the server does not answer holds up its own files, and no others.
//!
//! Owns: real requests to it, on the drivers that have threads.
//! Does not own: memory that they hold (the suite `caching`), threads that are stuck in the kernel (stuck).

use std::fs;
use std::path::Path;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use futures_util::AsyncReadExt;
use headwater::{Caching, Engine, File, OpenOptions, ReadaheadPolicy};
use headwater_testkit::{FuseMount, ScratchDir, block_on, lack, watched};

use super::drivers;

/// Goal: the background thread writes files back while it cannot begin that of a file whose server does not answer. Method: both are
/// closed with more dirty pages than their closing writes; space for those of the server is asked for first.
#[test]
fn writeback_without_an_answer() {
    let Some(mount) = mount() else { return };
    for kind in drivers() {
        let path = mount.put("file", b"");
        let engine = Engine::builder().memory(64 << 20).driver(kind.clone()).build().unwrap();
        let silent = open(&engine, &path);
        silent.write_all_at(&[1; PAGES_LEFT * 4096], 0).unwrap();
        mount.fall_silent();
        drop(silent);
        watched(&format!("{kind:?}"), || {
            while mount.kept() == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            local_files_are_written_back(&engine);
        });
        mount.answer();
        watched(&format!("{kind:?}"), || drop(engine));
        assert_eq!(mount.contents("file"), [1; PAGES_LEFT * 4096]);
    }
}

/// Waits until files that were closed are in their places.
fn local_files_are_written_back(engine: &Engine) {
    let directory = ScratchDir::on_target().unwrap();
    for number in 0..3 {
        let other = directory.path().join(number.to_string());
        open(engine, &other).write_all_at(&[2; PAGES_LEFT * 4096], 0).unwrap();
        while !fs::read(&other).is_ok_and(|bytes| bytes == [2; PAGES_LEFT * 4096]) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Goal: the thread that takes the result of a write does not ask the server what the file is now. Method: a server that answers a write
/// that nothing waits for, and nothing after it; then files of this machine are written back.
#[test]
fn a_server_that_falls_silent_after_a_write() {
    let Some(mount) = mount() else { return };
    for kind in drivers() {
        let path = mount.put("file", b"");
        let engine = Engine::builder().memory(64 << 20).driver(kind.clone()).build().unwrap();
        let silent = open(&engine, &path);
        silent.write_all_at(&[1], 0).unwrap();
        silent.sync_data().unwrap();
        mount.fall_silent_after(1 << 20);
        watched(&format!("{kind:?}"), || {
            // Its writeback begins at once.
            silent.write_all_at(&[2; 1 << 20], 1 << 20).unwrap();
            while !mount.is_silent() {
                thread::sleep(Duration::from_millis(1));
            }
            local_files_are_written_back(&engine);
        });
        mount.answer();
        watched(&format!("{kind:?}"), || drop((silent, engine)));
        assert_eq!(mount.contents("file")[1 << 20..], [2; 1 << 20]);
    }
}

/// Goal: a read or a write of a task does not block its thread until a server has answered for the times or the length of the file. Method:
/// each is polled once, when a check is due; the kernel keeps no attributes.
#[test]
fn tasks_without_an_answer() {
    let Some(mount) = FuseMount::new(Duration::ZERO).map_err(lack).ok() else { return };
    for kind in drivers() {
        for caching in [Caching::On, Caching::Off] {
            let path = mount.put("file", &[1; LENGTH_BYTES]);
            let engine = Engine::builder().memory(64 << 20).driver(kind.clone()).build().unwrap();
            let mut options = OpenOptions::new();
            options.engine(&engine).read(true).write(true).caching(caching);
            let file = options.open(&path).unwrap();
            file.read_exact_at(&mut [0; LENGTH_BYTES], 0).unwrap();
            let mut reader = file.async_reader();
            let (mut buffer, mut at_end) = ([0; 10], [0; 10]);
            watched(&format!("{kind:?}, {caching:?}"), || {
                mount.fall_silent();
                thread::sleep(2 * CHECKED_EVERY);
                let read = file.read_at_async(5000, 10);
                let behind = file.read_at_async(LENGTH_BYTES as u64 - 5, 10);
                let view = file.view_async(0, 8192);
                let streamed = reader.read(&mut buffer);
                let (mut read, mut behind) = (Box::pin(read), Box::pin(behind));
                let (mut view, mut streamed) = (Box::pin(view), Box::pin(streamed));
                let context = &mut Context::from_waker(Waker::noop());
                let are_pending = [
                    read.as_mut().poll(context).is_pending(),
                    behind.as_mut().poll(context).is_pending(),
                    view.as_mut().poll(context).is_pending(),
                    streamed.as_mut().poll(context).is_pending(),
                ];
                assert!(caching == Caching::Off || are_pending == [true; 4], "{are_pending:?}");
                mount.answer();
                assert_eq!(block_on(read).unwrap(), [1; 10][..]);
                assert_eq!(block_on(behind).unwrap(), [1; 5][..]);
                assert_eq!(block_on(view).unwrap().to_vec(), [1; 8192]);
                assert_eq!(block_on(streamed).unwrap(), 10);
                if caching == Caching::On {
                    mount.fall_silent();
                    thread::sleep(2 * CHECKED_EVERY);
                    let mut write = Box::pin(file.write_all_at_async(vec![2; 10], 5000));
                    assert!(write.as_mut().poll(context).is_pending());
                    mount.answer();
                    block_on(write).unwrap();
                    assert_eq!(
                        block_on(file.read_at_async(4999, 12)).unwrap()[..],
                        [&[1], &[2; 10][..], &[1]].concat()
                    );
                }
                drop(reader);
                mount.put("file", &[3; LENGTH_BYTES + 1]);
                thread::sleep(2 * CHECKED_EVERY);
                let changed = block_on(file.read_at_async(LENGTH_BYTES as u64 - 1, 10)).unwrap();
                assert_eq!(changed, [3; 2][..]);
                let (end, mut reader) = (LENGTH_BYTES as u64 + 1, file.async_reader());
                reader = reader.starting_at(end - 1);
                assert_eq!(block_on(reader.read(&mut at_end)).unwrap(), 1);
                assert_eq!(block_on(reader.read(&mut at_end)).unwrap(), 0);
            });
        }
    }
}

/// Goal: more requests without an answer than the queue has places, and than the kernel has threads for, hold up no other file. Method:
/// reads of a silent server's file, of a page each; then another file is read, written to and synced.
#[test]
fn a_queue_full_of_requests_without_an_answer() {
    let Some(mount) = mount() else { return };
    for kind in drivers() {
        let path = mount.put("file", &vec![1; 1 << 20]);
        let builder = Engine::builder();
        let engine = builder.memory(64 << 20).driver(kind.clone()).queue_depth(32).build().unwrap();
        let mut options = OpenOptions::new();
        // Not checked meanwhile: the server is asked for pages alone.
        options
            .engine(&engine)
            .caching(Caching::On)
            .readahead(ReadaheadPolicy::Off)
            .revalidate(Duration::from_secs(3600));
        let (silent, directory) = (options.open(&path).unwrap(), ScratchDir::on_target().unwrap());
        let file = open(&engine, &directory.path().join("file"));
        file.write_all_at(&[2; 8192], 0).unwrap();
        file.sync_all().unwrap();
        silent.read_exact_at(&mut [0; 10], (1 << 20) - 10).unwrap();
        watched(&format!("{kind:?}"), || {
            mount.fall_silent();
            let context = &mut Context::from_waker(Waker::noop());
            let mut reads: Vec<_> =
                (0..100).map(|page| Box::pin(silent.read_at_async(page * 8192, 10))).collect();
            reads.iter_mut().for_each(|read| assert!(read.as_mut().poll(context).is_pending()));
            while mount.kept() < 8 {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(block_on(file.read_at_async(4000, 200)).unwrap(), [2; 200][..]);
            block_on(file.write_all_at_async(vec![3; 10], 100)).unwrap();
            block_on(file.sync_all_async()).unwrap();
            mount.answer();
            reads.into_iter().for_each(|read| assert_eq!(block_on(read).unwrap(), [1; 10][..]));
        });
    }
}

/// Goal: worker threads wake the thread of a local engine when they have done a request for it, which its ring does not show. Method: reads,
/// writes and syncs of a file that a server answers for, while that thread sleeps.
#[test]
fn a_local_engine_reads_from_a_server() {
    let Some(mount) = mount() else { return };
    let path = mount.put("file", &vec![1; 1 << 20]);
    watched("a local engine", || {
        let engine = Engine::builder().memory(16 << 20).local().unwrap();
        let mut options = OpenOptions::new();
        let file = engine.open_with(options.read(true).write(true).caching(Caching::On), &path).unwrap();
        engine.block_on(async {
            for page in (0..256).step_by(3) {
                assert_eq!(file.read_at_async(page * 4096, 10).await.unwrap(), [1; 10][..]);
            }
            file.write_all_at_async(vec![2; 8192], 4096).await.unwrap();
            file.sync_all_async().await.unwrap();
        });
    });
    assert_eq!(mount.contents("file")[4096..12_288], [2; 8192]);
}

/// `None` where there is none.
fn mount() -> Option<FuseMount> {
    FuseMount::new(Duration::from_secs(60)).map_err(lack).ok()
}

fn open(engine: &Engine, path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.engine(engine).read(true).write(true).create(true).caching(Caching::On).open(path).unwrap()
}

/// More than the thread that closes a file writes.
const PAGES_LEFT: usize = 40;

const LENGTH_BYTES: usize = 40_000;

/// How often an open file is checked for changes, by default.
const CHECKED_EVERY: Duration = Duration::from_millis(10);
