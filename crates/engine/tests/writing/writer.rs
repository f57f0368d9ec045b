//! Writer: small writes are gathered, nothing of them is lost, and errors are reported.
//!
//! Owns: what a `Writer` holds back, until when, and what it reports.
//! Does not own: writes at positions (operations), which random operations also make by a `Writer`.

use std::fs;
use std::future::Future;
use std::io::{BufRead, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::task::{Context, Waker};
use std::time::Instant;

use futures_util::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, Sink, SinkExt};
use headwater::{AsyncWriter, Caching, Engine, File, OpenOptions};
use headwater_testkit::{PATIENCE, Pattern, Rng, ScratchDir, with_seed};

use crate::faults::EIO;
use crate::model::same;
use crate::rig::{Rig, block_on, calm, drivers, watched};
use crate::threads::open;

/// Goal: what is written by pieces of any size, between seeks, is in the file as a vector has it. Method: random pieces and seeks,
/// with a flush now and then, after which readers see all.
#[test]
fn pieces_of_any_size() {
    with_seed("writer::pieces_of_any_size", |seed| {
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::sized(driver, 3 << 20, 16), ScratchDir::on_target().unwrap());
            let path = directory.path().join("file");
            let (file, mut rng, mut expected) =
                (open(&rig, &path, headwater::IoMode::Auto), Rng::new(seed), Vec::new());
            let (mut writer, mut position) = (file.writer(), 0);
            for step in 0..600 {
                let length = [rng.below(20), rng.below(3000), 4096, rng.below(200_000)];
                let length = length[[0, 0, 0, 1, 1, 2, 3][rng.below(7) as usize]] as usize;
                let mut piece = vec![0; length];
                Pattern::new(step).fill(0, &mut piece);
                writer.write_all(&piece).unwrap();
                expected.resize(expected.len().max(position + length), 0);
                expected[position..position + length].copy_from_slice(&piece);
                position += length;
                assert_eq!(writer.stream_position().unwrap(), position as u64);
                if rng.chance(1, 20) {
                    position = rng.below(expected.len() as u64 + 1) as usize;
                    writer.seek(SeekFrom::Start(position as u64)).unwrap();
                }
                if rng.chance(1, 30) {
                    writer.flush().unwrap();
                    let mut found = vec![0; expected.len()];
                    file.read_exact_at(&mut found, 0).unwrap();
                    same("flushed", 0, &expected, &found).unwrap();
                }
            }
            writer.sync().unwrap();
            same("synced", 0, &expected, &fs::read(&path).unwrap()).unwrap();
            drop((writer, file));
            rig.assert_idle();
        }
    });
}

/// Goal: the drop of a writer of tasks waits for no task, which may be one of its thread: what the writer holds comes later. Method: a
/// truncate that was polled once and waits for the device; then it ends.
#[test]
fn the_drop_waits_for_no_task() {
    let directory = ScratchDir::on_target().unwrap();
    let engine = Engine::builder().memory(64 << 20).build().unwrap();
    for round in 0..200 {
        let file = in_pieces(&engine, &directory.path().join(round.to_string()));
        let mut truncate = Box::pin(file.set_len_async(4096));
        let is_pending = truncate.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
        watched("a writer that is dropped beside a truncate", || {
            let mut writer = file.async_writer().starting_at(BEHIND);
            block_on(writer.write_all(&[8; 100])).unwrap();
            drop(writer);
        });
        if !is_pending {
            // The device was faster than the truncate.
            continue;
        }
        block_on(truncate).unwrap();
        let mut found = [0; 100];
        let began = Instant::now();
        while file.len().unwrap() != BEHIND + 100 {
            assert!(began.elapsed() < PATIENCE / 2, "{} bytes", file.len().unwrap());
            std::thread::yield_now();
        }
        file.read_exact_at(&mut found, BEHIND).unwrap();
        assert_eq!(found, [8; 100]);
        return;
    }
    panic!("no truncate was under way");
}

/// Makes a file with sixteen dirty pieces of 1 MiB, whose write-back a truncate has to wait for, and a few dirty bytes before each.
fn in_pieces(engine: &Engine, path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.engine(engine).caching(Caching::On).write(true).create(true).open(path).unwrap();
    for place in 0..16 {
        file.write_all_at(&[7; 1 << 20], (2 * place + 1) << 20).unwrap();
        file.write_all_at(b"dirty", (2 * place) << 20).unwrap();
    }
    file
}

/// Where a write changes the length of the file, which the truncate is about to do.
const BEHIND: u64 = 40 << 20;

/// Goal: as the test above, for the writer of tasks, by the traits of `futures`, those of tokio, and as a sink.
#[test]
fn pieces_of_any_size_from_tasks() {
    with_seed("writer::pieces_of_any_size_from_tasks", |seed| {
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::sized(driver, 3 << 20, 16), ScratchDir::on_target().unwrap());
            let path = directory.path().join("file");
            let (file, mut rng, mut expected) =
                (open(&rig, &path, headwater::IoMode::Auto), Rng::new(seed), Vec::new());
            let (mut writer, mut position) = (file.async_writer(), 0);
            for step in 0..400 {
                let length = [rng.below(20), rng.below(3000), 4096, rng.below(200_000)];
                let length = length[[0, 0, 0, 1, 1, 2, 3][rng.below(7) as usize]] as usize;
                let mut piece = vec![0; length];
                Pattern::new(step).fill(0, &mut piece);
                expected.resize(expected.len().max(position + length), 0);
                expected[position..position + length].copy_from_slice(&piece);
                position += length;
                block_on(async {
                    match rng.below(3) {
                        0 => AsyncWriteExt::write_all(&mut writer, &piece).await.unwrap(),
                        1 => SinkExt::feed(&mut writer, piece.into()).await.unwrap(),
                        _ => write_by_tokio(&mut writer, &piece).await,
                    }
                });
                if rng.chance(1, 20) {
                    position = rng.below(expected.len() as u64 + 1) as usize;
                    block_on(seek(&mut writer, &mut rng, position as u64));
                }
                if rng.chance(1, 30) {
                    block_on(AsyncWriteExt::flush(&mut writer)).unwrap();
                    let mut found = vec![0; expected.len()];
                    file.read_exact_at(&mut found, 0).unwrap();
                    same("flushed", 0, &expected, &found).unwrap();
                }
            }
            block_on(writer.sync()).unwrap();
            same("synced", 0, &expected, &fs::read(&path).unwrap()).unwrap();
            block_on(AsyncWriteExt::write_all(&mut writer, b"left")).unwrap();
            drop(writer);
            let (began, mut left) = (Instant::now(), [0; 4]);
            // Where all memory was in use, a thread goes on with them.
            while left != *b"left" {
                assert!(began.elapsed() < PATIENCE / 2, "{left:?}");
                // Before the end of the file there may be fewer.
                _ = file.read_at(&mut left, position as u64).unwrap();
            }
            let mut started = file.async_writer().starting_at(3);
            block_on(AsyncWriteExt::write_all(&mut started, b"started")).unwrap();
            block_on(AsyncWriteExt::close(&mut started)).unwrap();
            let (mut found, mut again) = (String::new(), Vec::new());
            std::io::Read::take(file.reader().starting_at(3), 7).read_to_string(&mut found).unwrap();
            let reader = file.async_reader().starting_at(3);
            block_on(AsyncReadExt::take(reader, 7).read_to_end(&mut again)).unwrap();
            assert_eq!((&found[..], &again[..]), ("started", &b"started"[..]));
            drop((started, file));
            rig.assert_idle();
        }
    });
}

#[cfg(feature = "tokio")]
async fn write_by_tokio(writer: &mut AsyncWriter, piece: &[u8]) {
    tokio::io::AsyncWriteExt::write_all(writer, piece).await.unwrap();
}

#[cfg(not(feature = "tokio"))]
async fn write_by_tokio(writer: &mut AsyncWriter, piece: &[u8]) {
    AsyncWriteExt::write_all(writer, piece).await.unwrap();
}

async fn seek(writer: &mut AsyncWriter, rng: &mut Rng, position: u64) {
    #[cfg(feature = "tokio")]
    if rng.chance(1, 2) {
        tokio::io::AsyncSeekExt::seek(writer, SeekFrom::Start(position)).await.unwrap();
        return;
    }
    _ = rng;
    AsyncSeekExt::seek(writer, SeekFrom::Start(position)).await.unwrap();
}

/// Goal: readers for tasks have the traits of tokio, and read, seek and show lines by them.
#[cfg(feature = "tokio")]
#[test]
fn tokio_reads_lines() {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt};
    let (rig, directory) = (calm(3), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    let text: String = (0..20_000).map(|number| format!("{number}\n")).collect();
    fs::write(&path, &text).unwrap();
    let file = rig.open(&path, headwater::IoMode::Auto);
    block_on(async {
        let (mut reader, mut whole) = (file.async_reader(), String::new());
        AsyncReadExt::read_to_string(&mut reader, &mut whole).await.unwrap();
        assert_eq!(whole, text);
        assert_eq!(AsyncSeekExt::seek(&mut reader, SeekFrom::Start(2)).await.unwrap(), 2);
        let mut lines = reader.lines();
        for number in 1..20_000 {
            assert_eq!(lines.next_line().await.unwrap().unwrap(), number.to_string());
        }
        assert_eq!(lines.next_line().await.unwrap(), None);
    });
    drop(file);
    rig.assert_idle();
}

/// Goal: errors of the writer of tasks lose nothing: what could not be written is written by the next call, or reported by the next sync.
#[test]
fn errors_in_tasks_are_reported_and_lose_nothing() {
    let (rig, directory) = (calm(4), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    let file = open(&rig, &path, headwater::IoMode::Auto);
    let mut writer = file.async_writer().starting_at(100_000);
    block_on(AsyncWriteExt::write_all(&mut writer, b"first")).unwrap();
    rig.control().fail_at(0, EIO);
    let error = block_on(AsyncWriteExt::flush(&mut writer)).unwrap_err();
    assert!(error.to_string().contains("os error 5"), "{error}");
    block_on(AsyncWriteExt::write_all(&mut writer, b", second")).unwrap();
    block_on(writer.sync()).unwrap();
    assert_eq!(&fs::read(&path).unwrap()[100_000..], b"first, second");
    block_on(AsyncSeekExt::seek(&mut writer, SeekFrom::Start(200_000))).unwrap();
    block_on(AsyncWriteExt::write_all(&mut writer, b"lost")).unwrap();
    rig.control().fail_at(0, EIO);
    drop(writer);
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    file.sync_data().unwrap();
    let reading = rig.open(&path, headwater::IoMode::Auto);
    let error = block_on(AsyncWriteExt::write_all(&mut reading.async_writer(), b"x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    drop((file, reading));
    rig.assert_idle();
}

/// Goal: a small write reaches readers by a flush, a seek, a sync, or the drop of the writer.
#[test]
fn what_hands_bytes_over() {
    let (rig, directory) = (calm(1), ScratchDir::on_target().unwrap());
    let file = open(&rig, &directory.path().join("file"), headwater::IoMode::Auto);
    let mut writer = file.writer();
    writer.write_all(b"a").unwrap();
    assert_eq!(file.len().unwrap(), 0, "it is gathered");
    writer.flush().unwrap();
    assert_eq!(file.len().unwrap(), 1);
    writer.write_all(b"b").unwrap();
    assert_eq!(writer.seek(SeekFrom::End(0)).unwrap(), 2);
    writer.write_all(b"c").unwrap();
    writer.sync().unwrap();
    assert_eq!(fs::read(file.path()).unwrap(), b"abc");
    writer.write_all(b"d").unwrap();
    drop(writer);
    let mut found = [0; 4];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"abcd");
    drop(file);
    rig.assert_idle();
}

/// Goal: an item of a sink that comes while a flush is under way that was given up is behind what that flush has. Method: a truncate that
/// was polled once and holds the flush back; then it ends.
#[test]
fn an_item_behind_a_flush_that_was_given_up() {
    let directory = ScratchDir::on_target().unwrap();
    let engine = Engine::builder().memory(64 << 20).build().unwrap();
    for round in 0..200 {
        let file = in_pieces(&engine, &directory.path().join(round.to_string()));
        let mut truncate = Box::pin(file.set_len_async(4096));
        let context = &mut Context::from_waker(Waker::noop());
        let is_pending = truncate.as_mut().poll(context).is_pending();
        let mut writer = file.async_writer().starting_at(BEHIND);
        block_on(SinkExt::feed(&mut writer, (&b"first"[..]).into())).unwrap();
        assert!(SinkExt::<bytes::Bytes>::poll_ready_unpin(&mut writer, context).is_ready());
        let is_left = SinkExt::<bytes::Bytes>::poll_flush_unpin(&mut writer, context).is_pending();
        Sink::start_send(std::pin::Pin::new(&mut writer), vec![9; 100_000].into()).unwrap();
        if is_pending {
            block_on(truncate).unwrap();
        }
        block_on(SinkExt::<bytes::Bytes>::close(&mut writer)).unwrap();
        let mut found = vec![0; 100_005];
        file.read_exact_at(&mut found, BEHIND).unwrap();
        assert!(found[..5] == *b"first" && found[5..] == [9; 100_000]);
        if is_pending && is_left {
            return;
        }
    }
    panic!("no flush was under way");
}

/// Goal: a writer that is taken apart has written what it held, or says why not, once. Method: the blocking one and that of tasks.
#[test]
fn a_writer_gives_its_file_back() {
    let (rig, directory) = (calm(3), ScratchDir::on_target().unwrap());
    let file = open(&rig, &directory.path().join("file"), headwater::IoMode::Auto);
    let blocking = |offset_bytes| {
        let mut writer = file.writer().starting_at(offset_bytes);
        writer.write_all(b"blocking").unwrap();
        writer.into_inner()
    };
    let of_tasks = |offset_bytes| {
        let mut writer = file.async_writer().starting_at(offset_bytes);
        block_on(AsyncWriteExt::write_all(&mut writer, b"of tasks")).unwrap();
        block_on(writer.into_inner())
    };
    assert_eq!(blocking(0).unwrap().len().unwrap(), 8);
    assert_eq!(of_tasks(8).unwrap().len().unwrap(), 16);
    for writer in [&blocking as &dyn Fn(u64) -> headwater::Result<File>, &of_tasks] {
        rig.control().fail_at(0, EIO);
        assert_eq!(writer(100_000).unwrap_err().raw_os_error(), Some(EIO));
        file.sync_data().unwrap();
    }
    let mut reader = file.reader().starting_at(8);
    assert_eq!(reader.fill_buf().unwrap(), b"of tasks");
    assert_eq!(reader.into_inner().path(), file.path());
    assert_eq!(file.async_reader().into_inner().path(), file.path());
    drop(file);
    rig.assert_idle();
}

/// Goal: bytes that cannot be written stay in the writer, and are written when there is room; an error at the drop is reported by
/// the next sync. Method: a device without room.
#[test]
fn errors_are_reported_and_lose_nothing() {
    let (rig, directory) = (calm(2), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    let file = open(&rig, &path, headwater::IoMode::Auto);
    let mut writer = file.writer();
    writer.write_all(b"first").unwrap();
    // A gap, which the device has to be extended for.
    writer.seek(SeekFrom::Start(100_000)).unwrap();
    writer.write_all(b"second").unwrap();
    rig.control().fail_at(0, EIO);
    assert!(writer.flush().unwrap_err().to_string().contains("os error 5"));
    writer.write_all(b", third").unwrap();
    writer.sync().unwrap();
    assert_eq!(&fs::read(&path).unwrap()[100_000..], b"second, third");
    writer.seek(SeekFrom::Start(200_000)).unwrap();
    writer.write_all(b"lost").unwrap();
    rig.control().fail_at(0, EIO);
    drop(writer);
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    file.sync_data().unwrap();
    let reading = OpenOptions::new().engine(&rig.engine).open(&path).unwrap();
    assert_eq!(reading.writer().write(b"x").unwrap_err().kind(), ErrorKind::PermissionDenied);
    drop((file, reading));
    rig.assert_idle();
}

/// Goal: a write of nothing lets no later one pass that is refused.
#[test]
fn a_write_of_nothing_changes_nothing() {
    for kind in drivers(1) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let file = open(&rig, &directory.path().join("file"), headwater::IoMode::Auto);
        // The largest length that can be written.
        let mut writer = file.writer().starting_at(1 << 56);
        assert_eq!(writer.write(b"").unwrap(), 0);
        assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
