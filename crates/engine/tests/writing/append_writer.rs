//! Append writer: readers of a log find what writers of all kinds put at its end, whole, whatever other programs append beside them.
//!
//! Owns: writers of files that are open for appending.
//! Does not own: appends by themselves (appends), writers at positions (writer).

use std::fs;
use std::io::{BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::thread;

use futures_util::{AsyncSeekExt, AsyncWriteExt};
use headwater::{Engine, File, OpenOptions};
use headwater_testkit::{Pattern, Rng, ScratchDir, skip, small_tmpfs, with_seed};

use crate::appends::{Parser, record, record_of};
use crate::model::same;
use crate::rig::{Rig, block_on, drivers, watched};

/// Goal: a writer of a file that is open for appending does what std's `BufWriter` does around such a file: the same contents and the
/// same positions, with seeks in between, and with appends of another program. Method: random steps on both.
#[test]
fn as_a_buf_writer_around_an_append_file() {
    with_seed("append_writer::as_a_buf_writer_around_an_append_file", |seed| {
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::new(driver), ScratchDir::on_target().unwrap());
            let [ours, theirs] = ["ours", "theirs"].map(|name| directory.path().join(name));
            let mut others = [&ours, &theirs].map(|path| {
                fs::write(path, "what was there\n").unwrap();
                fs::OpenOptions::new().append(true).open(path).unwrap()
            });
            let mut writer = appending(&rig, &ours).writer().starting_at(3);
            let std_file = fs::OpenOptions::new().append(true).open(&theirs).unwrap();
            let mut std_writer = BufWriter::with_capacity(64 << 10, std_file);
            let mut rng = Rng::new(seed);
            for step in 0..300 {
                match rng.below(10) {
                    0..6 => {
                        let length = [rng.below(300), rng.below(70_000), rng.below(300_000)];
                        let mut piece = vec![0; length[[0, 0, 0, 1, 2][rng.below(5) as usize]] as usize];
                        Pattern::new(step).fill(0, &mut piece);
                        writer.write_all(&piece).unwrap();
                        std_writer.write_all(&piece).unwrap();
                    }
                    6 => {
                        let target = SeekFrom::Start(rng.below(1000));
                        assert_eq!(writer.seek(target).unwrap(), std_writer.seek(target).unwrap());
                        let ours = writer.stream_position().unwrap();
                        assert_eq!(ours, std_writer.stream_position().unwrap());
                    }
                    7 => {
                        let ends = [writer.seek(SeekFrom::End(0)), std_writer.seek(SeekFrom::End(0))];
                        assert_eq!(ends[0].as_ref().unwrap(), ends[1].as_ref().unwrap());
                    }
                    _ => {
                        writer.flush().unwrap();
                        std_writer.flush().unwrap();
                        others.iter_mut().for_each(|other| other.write_all(b"another's line\n").unwrap());
                    }
                }
            }
            writer.sync().unwrap();
            std_writer.flush().unwrap();
            same("appended", 0, &fs::read(&theirs).unwrap(), &fs::read(&ours).unwrap()).unwrap();
            drop(writer);
            rig.assert_idle();
        }
    });
}

/// Goal: a writer of tasks appends as well, by the traits of `futures`, of tokio and as a `Sink`, also what it holds when it is closed,
/// dropped, or gives its file back; a seek changes nothing.
#[test]
fn writers_of_tasks_append() {
    for driver in drivers(1) {
        let (rig, directory) = (Rig::new(driver), ScratchDir::on_target().unwrap());
        let path = directory.path().join("file");
        let (file, mut expected) = (appending(&rig, &path), Vec::new());
        let mut other = fs::OpenOptions::new().append(true).open(&path).unwrap();
        let mut append_beside = |expected: &mut Vec<u8>| {
            other.write_all(b"another's").unwrap();
            expected.extend(b"another's");
        };
        block_on(async {
            append_beside(&mut expected);
            let mut writer = file.async_writer();
            for length in [3, 5000, 200_000, 65_536, 1] {
                writer.write_all(&vec![7; length]).await.unwrap();
                expected.resize(expected.len() + length, 7);
            }
            writer.flush().await.unwrap();
            append_beside(&mut expected);
            assert_eq!(AsyncSeekExt::seek(&mut writer, SeekFrom::Start(2)).await.unwrap(), 2);
            writer.write_all(b"small").await.unwrap();
            writer.sync().await.unwrap();
            expected.extend(b"small");
            append_beside(&mut expected);
            for item in [vec![1; 10], vec![2; 100_000], vec![3; 10]] {
                expected.extend(&item);
                futures_util::SinkExt::feed(&mut writer, item.into()).await.unwrap();
            }
            futures_util::SinkExt::close(&mut writer).await.unwrap();
            append_beside(&mut expected);
            writer.write_all(b"given back").await.unwrap();
            expected.extend(b"given back");
            writer.into_inner().await.unwrap();
        });
        append_beside(&mut expected);
        let mut writer = file.async_writer();
        block_on(writer.write_all(b"dropped")).unwrap();
        drop(writer);
        expected.extend(b"dropped");
        let mut writer = file.writer();
        writer.write_all(b"dropped too").unwrap();
        drop(writer);
        expected.extend(b"dropped too");
        same("appended", 0, &expected, &fs::read(&path).unwrap()).unwrap();
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        same("read", 0, &expected, &found).unwrap();
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: a writer of a local engine appends as well, also what it holds when it is dropped, which blocks there.
#[test]
fn a_writer_of_a_local_engine_appends() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    let engine = Engine::builder().memory(8 << 20).local().unwrap();
    let file = engine.open_with(OpenOptions::new().append(true).create(true), &path).unwrap();
    let mut other = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let mut writer = file.async_writer();
    engine.block_on(writer.write_all(b"one ")).unwrap();
    engine.block_on(writer.flush()).unwrap();
    other.write_all(b"two ").unwrap();
    engine.block_on(writer.write_all(b"three ")).unwrap();
    drop(writer);
    let mut writer = file.writer();
    writer.write_all(b"four").unwrap();
    drop(writer);
    assert_eq!(fs::read_to_string(&path).unwrap(), "one two three four");
}

/// Goal: records that threads write through writers, tasks through theirs, and another program by itself, are each whole in the file,
/// each sender's in its order. Method: one call for each record, of up to 100 KB, and flushes at random.
#[test]
fn records_of_many_writers_are_whole() {
    with_seed("append_writer::records_of_many_writers_are_whole", |seed| {
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::new(driver), ScratchDir::on_target().unwrap());
            let path = directory.path().join("file");
            watched(rig.name(), || {
                thread::scope(|scope| {
                    for sender in 0..SENDERS {
                        let (file, mut rng) = (appending(&rig, &path), Rng::new(seed ^ sender));
                        let path = &path;
                        scope.spawn(move || match sender % 3 {
                            0 => send(file.writer(), sender, &mut rng),
                            1 => block_on(send_async(file.async_writer(), sender, &mut rng)),
                            _ => {
                                let other = fs::OpenOptions::new().append(true).open(path).unwrap();
                                send(BufWriter::with_capacity(64 << 10, other), sender, &mut rng);
                            }
                        });
                    }
                });
            });
            let mut parser = Parser::new(SENDERS as usize);
            parser.parse(&fs::read(&path).unwrap());
            assert_eq!(parser.next, [RECORDS; SENDERS as usize]);
            assert_eq!(parser.position_bytes, fs::metadata(&path).unwrap().len());
            rig.assert_idle();
        }
    });
}

fn send(mut writer: impl Write, sender: u64, rng: &mut Rng) {
    for sequence in 0..RECORDS {
        writer.write_all(&some_record(sender, sequence, rng)).unwrap();
        if rng.chance(1, 5) {
            writer.flush().unwrap();
        }
    }
    writer.flush().unwrap();
}

async fn send_async(mut writer: headwater::AsyncWriter, sender: u64, rng: &mut Rng) {
    for sequence in 0..RECORDS {
        writer.write_all(&some_record(sender, sequence, rng)).await.unwrap();
        if rng.chance(1, 5) {
            writer.flush().await.unwrap();
        }
    }
    writer.close().await.unwrap();
}

fn some_record(sender: u64, sequence: u64, rng: &mut Rng) -> Vec<u8> {
    if rng.chance(1, 20) {
        record_of(sender, sequence, rng.below(100_000))
    } else {
        record(sender, sequence, rng)
    }
}

/// Goal: a full file system is an error by name, also where it takes a part of the bytes; those that it took are not written again, and
/// the others come when there is room. Method: a tmpfs of 1 MiB, and a file that leaves it.
#[test]
fn nothing_is_lost_or_doubled_where_the_device_is_full() {
    for (is_async, driver) in
        [false, true].into_iter().flat_map(|way| drivers(3).into_iter().map(move |kind| (way, kind)))
    {
        let directory = match small_tmpfs(1 << 20) {
            Ok(directory) => directory,
            Err(reason) => return skip(reason),
        };
        let (rig, path) = (Rig::new(driver), directory.path().join("file"));
        let (file, ballast) = (appending(&rig, &path), directory.path().join("ballast"));
        fs::write(&ballast, vec![1; 980_000]).unwrap();
        let mut expected = vec![0; 300_000];
        Pattern::new(1).fill(0, &mut expected);
        let (first, second) = expected.split_at(50_000);
        if is_async {
            let mut writer = file.async_writer();
            block_on(writer.write_all(first)).unwrap();
            let accepted = block_on(writer.write_all(second));
            let error = accepted.and_then(|()| block_on(writer.flush())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            fs::remove_file(&ballast).unwrap();
            block_on(writer.close()).unwrap();
        } else {
            let mut writer = file.writer();
            writer.write_all(first).unwrap();
            let accepted = writer.write(second).and_then(|accepted| writer.flush().map(|()| accepted));
            let (error, accepted) = match accepted {
                Ok(accepted) => (writer.write_all(&second[accepted..]).unwrap_err(), accepted),
                Err(error) => (error, 0),
            };
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            fs::remove_file(&ballast).unwrap();
            // Of a failed `write_all` it is not known what was accepted: the file tells.
            writer.flush().unwrap();
            let length = fs::metadata(&path).unwrap().len() as usize;
            assert!(length >= 50_000 + accepted);
            writer.write_all(&expected[length..]).unwrap();
            writer.flush().unwrap();
        }
        same("at last", 0, &expected, &fs::read(&path).unwrap()).unwrap();
        drop(file);
        rig.assert_idle();
    }
}

fn appending(rig: &Rig, path: &std::path::Path) -> File {
    OpenOptions::new().engine(&rig.engine).append(true).create(true).open(path).unwrap()
}

const SENDERS: u64 = 6;
const RECORDS: u64 = 150;

#[cfg(feature = "tokio")]
mod tokio_traits {
    use std::fs;
    use std::io::SeekFrom;

    use headwater_testkit::ScratchDir;
    use tokio::io::{AsyncSeekExt, AsyncWriteExt};

    use super::appending;
    use crate::rig::{Rig, drivers};

    /// Goal: the same by the traits of tokio.
    #[test]
    fn writers_of_tokio_append() {
        for driver in drivers(2) {
            let (rig, directory) = (Rig::new(driver), ScratchDir::on_target().unwrap());
            let path = directory.path().join("file");
            fs::write(&path, "before ").unwrap();
            let file = appending(&rig, &path);
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
                let mut writer = file.async_writer();
                writer.write_all(b"one ").await.unwrap();
                writer.flush().await.unwrap();
                assert_eq!(writer.seek(SeekFrom::Start(0)).await.unwrap(), 0);
                writer.write_all(b"two").await.unwrap();
                writer.shutdown().await.unwrap();
            });
            assert_eq!(fs::read(&path).unwrap(), b"before one two");
            drop(file);
            rig.assert_idle();
        }
    }
}
