//! Local: writing in an engine that stays in one thread, which has no keeper.
//!
//! Owns: the ways of writing there, and what becomes of what nobody synced.
//! Does not own: writing as such, which is that of every engine.

use std::io::{Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::io::{AsyncSeekExt, AsyncWriteExt};
use headwater::{ByteRange, Engine, File, Local, LocalEngine, OpenOptions};
use headwater_testkit::{Pattern, ScratchDir, watched, with_seed};

use crate::rig::{drivers, uring_refusal};

const PARTS: u64 = 40;
const PART_BYTES: u64 = 70_001;

fn open(engine: &LocalEngine, directory: &ScratchDir) -> Local<File> {
    engine.open_with(OpenOptions::new().write(true).create(true), directory.path().join("file")).unwrap()
}

async fn write_part(file: &Local<File>, pattern: Pattern, part: u64) {
    let mut bytes = vec![0; PART_BYTES as usize];
    pattern.fill(part * PART_BYTES, &mut bytes);
    file.write_all_at_async(bytes, part * PART_BYTES).await.unwrap();
}

fn check(directory: &ScratchDir, pattern: Pattern) {
    let contents = std::fs::read(directory.path().join("file")).unwrap();
    assert_eq!(contents.len() as u64, PARTS * PART_BYTES);
    assert_eq!(pattern.mismatch(0, &contents), None);
}

/// Goal: to ask a local writer where it is writes nothing, as with any writer.
#[test]
fn a_position_is_no_write() {
    for driver in drivers(1) {
        let directory = ScratchDir::on_target().unwrap();
        let engine = Engine::builder().memory(4 << 20).driver(driver).local().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [0; 100]).unwrap();
        let mut writer = engine.open_with(OpenOptions::new().append(true), &path).unwrap().writer();
        writer.write_all(b"abc").unwrap();
        assert_eq!((writer.stream_position().unwrap(), std::fs::metadata(&path).unwrap().len()), (3, 100));
        writer.flush().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 103);
    }
}

/// Goal: tasks of one thread write more than may be dirty, all at once, sync together, and it is all there.
#[test]
fn tasks_write_and_sync_together() {
    with_seed("local::tasks_write_and_sync_together", |seed| {
        for driver in drivers(seed) {
            let (directory, pattern) = (ScratchDir::on_target().unwrap(), Pattern::new(seed));
            let engine = Engine::builder().memory(4 << 20).queue_depth(8).driver(driver).local().unwrap();
            let file = open(&engine, &directory);
            watched("a local engine", || {
                engine.block_on(async {
                    join_all((0..PARTS).map(|part| write_part(&file, pattern, part))).await;
                    join_all([file.sync_data_async(), file.sync_data_async()]).await;
                    file.sync_all_async().await.unwrap();
                });
            });
            check(&directory, pattern);
            let view = file.view(PART_BYTES - 5, 10).unwrap();
            assert_eq!(pattern.mismatch(PART_BYTES - 5, &view.to_vec()), None);
            let last = PARTS * PART_BYTES;
            engine.block_on(async {
                let mut writer = file.async_writer();
                assert_eq!(writer.seek(SeekFrom::Start(last)).await.unwrap(), last);
                writer.write_all(&[1; 5000]).await.unwrap();
                writer.close().await.unwrap();
                assert_eq!(file.wait_for_growth_async(last).await.unwrap(), last + 5000);
                assert_eq!(file.copy_range_to_async(..100, &file, last).await.unwrap(), 100);
                file.punch_hole_async(last + 100..).await.unwrap();
                let mut expected = [0; 5000];
                pattern.fill(0, &mut expected[..100]);
                assert_eq!(file.read_exact_at_async(last, 5000).await.unwrap(), expected[..]);
                file.set_len_async(last).await.unwrap();
                file.sync_data_async().await.unwrap();
            });
            assert_eq!(engine.stats().cache.dirty_pages, 0);
            let window = file.map(ByteRange::new(8, 24)).unwrap();
            window.store_u64(0, 7).unwrap();
            assert_eq!(window.fetch_add_u64(0, 3).unwrap(), 7);
            assert_eq!(file.view(8, 8).unwrap().to_vec(), 10_u64.to_ne_bytes());
            window.sync().unwrap();
            assert_eq!(engine.stats().cache.dirty_pages, 0);
        }
    });
}

/// Goal: what nobody synced is written when the last handle goes, be it the engine's or a file's.
#[test]
fn the_last_handle_writes_what_is_left() {
    with_seed("local::the_last_handle_writes_what_is_left", |seed| {
        for driver in drivers(seed) {
            for engine_first in [false, true] {
                let (directory, pattern) = (ScratchDir::on_target().unwrap(), Pattern::new(seed));
                let engine = Engine::builder().memory(16 << 20).driver(driver.clone()).local().unwrap();
                let file = open(&engine, &directory);
                engine.block_on(async {
                    for part in 0..PARTS {
                        write_part(&file, pattern, part).await;
                    }
                });
                watched("a local engine", || {
                    if engine_first {
                        drop(engine);
                        drop(file);
                    } else {
                        drop(file);
                        drop(engine);
                    }
                });
                check(&directory, pattern);
            }
        }
    });
}

/// Goal: a clone of a file that syncs or ends in a foreign thread panics there or writes nothing, as documented, and the owner syncs and
/// ends as if nothing had been. Method: pages enough for requests.
#[test]
fn a_foreign_thread_leaves_no_page_in_flight() {
    for round in 0..4 {
        let (directory, pattern) = (ScratchDir::on_target().unwrap(), Pattern::new(round));
        let engine = Engine::builder().memory(16 << 20).local().unwrap();
        let file = open(&engine, &directory);
        engine.block_on(async {
            for part in 0..PARTS {
                write_part(&file, pattern, part).await;
            }
        });
        let clone = File::clone(&file);
        let last = (round % 2 == 1).then_some(file);
        let foreign = std::thread::spawn(move || {
            if round < 2 {
                let sync = catch_unwind(AssertUnwindSafe(|| clone.sync_data()));
                assert_eq!(sync.is_err(), uring_refusal().is_none());
            }
        });
        watched("a foreign thread", || foreign.join().unwrap());
        watched("the owner", || {
            if let Some(file) = &last {
                file.sync_data().unwrap();
                assert_eq!(engine.stats().cache.dirty_pages, 0);
            }
            drop(last);
            drop(engine);
        });
        check(&directory, pattern);
    }
}

/// Goal: readers and writers can be moved, and give their file back, in the thread that they cannot leave.
#[test]
fn parts_are_consumed_in_their_thread() {
    let directory = ScratchDir::on_target().unwrap();
    let engine = Engine::builder().memory(4 << 20).local().unwrap();
    let mut writer = open(&engine, &directory).writer().starting_at(2);
    writer.write_all(b"cd").unwrap();
    let file: Local<File> = writer.into_inner().unwrap();
    let read = engine.block_on(async {
        let mut writer = file.async_writer().starting_at(4);
        AsyncWriteExt::write_all(&mut writer, b"ef").await.unwrap();
        let file: Local<File> = writer.into_inner().await.unwrap();
        let stream = file.async_reader().starting_at(1).into_stream();
        stream.map(|bytes| bytes.unwrap().to_vec()).concat().await
    });
    assert_eq!(read, b"\0cdef");
    let mut text = String::new();
    file.reader().starting_at(3).read_to_string(&mut text).unwrap();
    assert_eq!(text, "def");
    let files: [Local<File>; 2] = [file.reader().into_inner(), file.async_reader().into_inner()];
    assert!(files.iter().all(|file| file.len().unwrap() == 6));
}

/// Goal: what a writer takes as a sink, its local form takes. Method: chunks are sent, and read back.
#[test]
fn local_writers_are_sinks() {
    use futures_util::SinkExt;

    let directory = ScratchDir::on_target().unwrap();
    let engine = Engine::builder().local().unwrap();
    let file = open(&engine, &directory);
    let mut writer = file.async_writer();
    engine.block_on(async {
        for chunk in ["one ", "two ", "three"] {
            writer.send(chunk.into()).await.unwrap();
        }
        SinkExt::close(&mut writer).await.unwrap();
    });
    let mut text = String::new();
    file.reader().read_to_string(&mut text).unwrap();
    assert_eq!(text, "one two three");
}

/// Goal: local readers and writers have the traits of tokio, and write, seek, and read lines by them.
#[cfg(feature = "tokio")]
#[test]
fn local_parts_have_the_traits_of_tokio() {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

    let directory = ScratchDir::on_target().unwrap();
    let engine = Engine::builder().local().unwrap();
    let file = open(&engine, &directory);
    engine.block_on(async {
        let mut writer = file.async_writer();
        AsyncWriteExt::write_all(&mut writer, b"first\nsecond\n").await.unwrap();
        AsyncWriteExt::flush(&mut writer).await.unwrap();
        AsyncSeekExt::seek(&mut writer, SeekFrom::Start(0)).await.unwrap();
        AsyncWriteExt::write_all(&mut writer, b"F").await.unwrap();
        AsyncWriteExt::shutdown(&mut writer).await.unwrap();
        let mut reader = file.async_reader();
        let (mut line, mut rest) = (String::new(), String::new());
        AsyncBufReadExt::read_line(&mut reader, &mut line).await.unwrap();
        AsyncReadExt::read_to_string(&mut reader, &mut rest).await.unwrap();
        assert_eq!((&line[..], &rest[..]), ("First\n", "second\n"));
        assert_eq!(AsyncSeekExt::seek(&mut reader, SeekFrom::Start(3)).await.unwrap(), 3);
        assert_eq!(AsyncReadExt::read_u8(&mut reader).await.unwrap(), b's');
    });
}
