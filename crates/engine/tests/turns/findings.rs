//! Findings: each way in which a change by another program was once not seen, or was undone.
//!
//! Owns: one test for each, with the levels, ways of caching and of I/O in one run.
//! Does not own: what is unwritten meanwhile (unwritten), random turns (rounds), programs that change a file at once (races, appends).

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use headwater::{Caching, Coherence, File, OpenOptions};
use headwater_testkit::{ScratchDir, lack};

use crate::api::refresh;
use crate::combination::{drivers, engine_on};
use crate::contents::bytes;
use crate::foreign::Stranger;
use crate::ways::{Other, Ways, each_way};

/// Goal: what others write after our own write and sync is seen, whatever page it is in, and again after the file was opened
/// again. Method: it is read before, so that its page is cached; write, sync, a foreign write of that page, a look.
#[test]
fn a_write_after_our_own_write_is_seen() {
    each_way("a_write_after_our_own_write_is_seen", &start(), |ways| {
        let mut model = start();
        ways.check_read("at first", &model);
        write_x(ways, &mut model);
        write_two_pages(ways, &mut model);
        ways.check_both("after a foreign write", &model);
        ways.ours(|subject| subject.close());
        ways.ours(|subject| subject.open());
        ways.check_both("opened again", &model);
        ways.theirs(|other, path| other.write(path, 24_576, 4096, 8));
        put(&mut model, 24_576, &bytes(8, 4096));
        ways.check_both("after another foreign write", &model);
    });
}

/// Goal: the same when nothing is read between the sync and the foreign write, and the first look comes when the write is old:
/// after a second, and after 31, when a write that was under way at the sync must be over. Method: time passes for all files at once.
#[test]
fn a_first_look_long_after_sees_the_write() {
    for seconds in [1, 31] {
        let directory = ScratchDir::on_target().unwrap();
        let mut stranger = Stranger::new();
        let mut files = Vec::new();
        for (number, driver) in drivers().into_iter().enumerate() {
            let engine = engine_on(driver, 16 << 20);
            for (caching, level) in
                [(Caching::On, Coherence::Revalidated), (Caching::Auto, Coherence::Leased)]
            {
                let path = directory.path().join(format!("{number}-{level:?}"));
                std::fs::write(&path, start()).unwrap();
                let mut options = OpenOptions::new();
                options.engine(&engine).caching(caching).coherence(level).write(true);
                let file = options.open(&path).unwrap();
                file.write_all_at(&[1; 8192], 0).unwrap();
                file.sync_all().unwrap();
                stranger.turn_to(&path);
                stranger.tell("write 0 8192 7");
                stranger.tell("sync");
                files.push((engine.clone(), file, path));
            }
        }
        std::thread::sleep(Duration::from_secs(seconds));
        let mut model = start();
        put(&mut model, 0, &bytes(7, 8192));
        for (engine, file, path) in &files {
            assert!(whole(file) == model, "{} after {seconds} s", path.display());
            assert!(
                engine.read(path).unwrap() == model,
                "Engine::read, {} after {seconds} s",
                path.display()
            );
        }
    }
}

/// Goal: the same where the file is closed right after the sync, and opened after the foreign write.
#[test]
fn a_write_while_closed_after_a_sync_is_seen() {
    each_way("a_write_while_closed_after_a_sync_is_seen", &start(), |ways| {
        let mut model = start();
        ways.check_read("at first", &model);
        write_x(ways, &mut model);
        ways.ours(|subject| subject.close());
        write_two_pages(ways, &mut model);
        ways.check_both("opened after a foreign write", &model);
    });
}

/// Goal: the same after `set_len` alone, without anything written.
#[test]
fn a_write_after_our_own_set_len_is_seen() {
    each_way("a_write_after_our_own_set_len_is_seen", &start(), |ways| {
        let mut model = start();
        ways.check_read("at first", &model);
        ways.ours(|subject| {
            subject.file().set_len(100_000).unwrap();
            subject.close();
        });
        model.resize(100_000, 0);
        write_two_pages(ways, &mut model);
        ways.check_both("opened after a foreign write", &model);
    });
}

/// Goal: a file that has the inode number of one that was deleted shows its own bytes. Method: the file is truncated to its later
/// length, closed, deleted and made anew until the number is the same; where the file system does not use the number again, the
/// new file shows its bytes all the same.
#[test]
fn a_recreated_file_has_its_own_bytes() {
    each_way("a_recreated_file_has_its_own_bytes", &start(), |ways| {
        ways.check_read("at first", &start());
        ways.ours(|subject| {
            subject.file().set_len(40_000).unwrap();
            subject.close();
        });
        let mut reused = 0;
        ways.theirs(|other, path| {
            let number = std::fs::metadata(path).unwrap().ino();
            let is_reused = (0..20).any(|_| {
                other.recreate(path, 40_000, 9);
                std::fs::metadata(path).unwrap().ino() == number
            });
            reused += u64::from(is_reused);
        });
        if reused == 0 {
            lack("this file system uses no inode number again");
        }
        ways.check_both("recreated", &bytes(9, 40_000));
    });
}

/// Goal: what others write after `Engine::flush` is seen by a handle that was opened for reading before.
#[test]
fn a_write_after_a_flush_is_seen_by_another_handle() {
    for driver in drivers() {
        let (directory, engine) = (ScratchDir::on_target().unwrap(), engine_on(driver, 8 << 20));
        let path = directory.path().join("file");
        std::fs::write(&path, start()).unwrap();
        let mut options = OpenOptions::new();
        let reader = options.engine(&engine).open(&path).unwrap();
        let writer = options.write(true).open(&path).unwrap();
        assert!(whole(&reader) == start());
        writer.write_all_at(b"X", 0).unwrap();
        engine.flush().unwrap();
        Stranger::on(&path).tell("write 20480 4096 7");
        refresh(&reader).unwrap();
        let mut model = start();
        model[0] = b'X';
        put(&mut model, 20_480, &bytes(7, 4096));
        assert!(whole(&reader) == model, "{driver:?}");
        assert!(whole(&writer) == model, "{driver:?}");
    }
}

/// Goal: with `revalidate(ZERO)` every read sees what was written before it, also after our own writes. Method: no pause
/// but around some of the foreign writes.
#[test]
fn reads_that_always_look_see_writes_at_once() {
    for driver in drivers() {
        let (directory, engine) = (ScratchDir::on_target().unwrap(), engine_on(driver, 8 << 20));
        let path = directory.path().join("file");
        std::fs::write(&path, start()).unwrap();
        let mut options = OpenOptions::new();
        options.engine(&engine).caching(Caching::On).revalidate(Duration::ZERO).write(true);
        let (file, mut stranger, mut model) = (options.open(&path).unwrap(), Stranger::on(&path), start());
        for round in 0..50_u8 {
            file.write_all_at(&[round], u64::from(round)).unwrap();
            file.sync_data().unwrap();
            model[usize::from(round)] = round;
            // Times of the file that are old before a change, and after it.
            if round % 5 == 3 {
                std::thread::sleep(Duration::from_millis(50));
            }
            // Of the page that we write to, and of another one.
            let offset = [1000, 20_480][usize::from(round) % 2] + usize::from(round) * 50;
            stranger.tell(&format!("write {offset} 100 {round}"));
            put(&mut model, offset, &bytes(round.into(), 100));
            if round % 10 == 3 {
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(whole(&file) == model, "{driver:?}, round {round}");
        }
    }
}

/// Goal: a byte that we write to a page that others have written meanwhile leaves their bytes on disk. Method: nothing reads
/// the page between their write and ours.
#[test]
fn a_byte_written_to_a_stale_page_keeps_what_others_wrote() {
    each_way("a_byte_written_to_a_stale_page_keeps_what_others_wrote", &start(), |ways| {
        let mut model = start();
        ways.check_read("at first", &model);
        write_x(ways, &mut model);
        write_two_pages(ways, &mut model);
        ways.ours(|subject| {
            subject.file().write_all_at(b"Y", 20_580).unwrap();
            // The page that both have written.
            subject.file().write_all_at(b"Z", 1990).unwrap();
            subject.file().sync_data().unwrap();
        });
        (model[20_580], model[1990]) = (b'Y', b'Z');
        ways.check_both("after a byte of ours", &model);
    });
}

/// Goal: the control: with a read between our sync and the foreign write it is seen as well.
#[test]
fn a_write_after_a_read_is_seen() {
    each_way("a_write_after_a_read_is_seen", &start(), |ways| {
        let mut model = start();
        write_x(ways, &mut model);
        ways.check_both("after our own write", &model);
        write_two_pages(ways, &mut model);
        ways.check_both("after a foreign write", &model);
    });
}

/// Goal: lines that both append in turn, each of ours synced, are all there, and where each was said to be.
#[test]
fn appends_in_turn_are_all_there() {
    each_way("appends_in_turn_are_all_there", b"header..", |ways| {
        let mut model = b"header..".to_vec();
        for round in 0..6_u64 {
            let end = model.len() as u64;
            model.extend(bytes(round, 5 + 20 * round as usize));
            let line = model[end as usize..].to_vec();
            ways.check("the place of our append", &end.to_le_bytes(), |subject| {
                let at = subject.file().append(&line)?;
                subject.file().sync_data()?;
                Ok(at.to_le_bytes().to_vec())
            });
            let (end, length) = (model.len() as u64, 7 + 700 * round as usize);
            ways.theirs(|other, path| assert_eq!(other.append(path, length, 100 + round), end));
            model.extend(bytes(100 + round, length));
            if round % 2 == 0 {
                ways.check_both("after both appended", &model);
            }
        }
        ways.check_both("at the end", &model);
    });
}

/// Goal: a file that was opened, and to which others then append, ends behind their line for us as well.
#[test]
fn an_append_after_a_foreign_append_comes_behind_it() {
    each_way("an_append_after_a_foreign_append_comes_behind_it", b"12345678", |ways| {
        ways.theirs(|other, path| assert_eq!(other.append(path, 30, 7), 8));
        ways.check("the place of our append", &38_u64.to_le_bytes(), |subject| {
            let at = subject.file().append(b"ours\n")?;
            subject.file().sync_data()?;
            Ok(at.to_le_bytes().to_vec())
        });
        let model = [&b"12345678"[..], &bytes(7, 30), b"ours\n"].concat();
        ways.check_both("after both appended", &model);
    });
}

/// Goal: truncates by others are seen after our own writes, and what lies behind is not written again.
#[test]
fn a_truncate_after_our_own_write_is_seen() {
    each_way("a_truncate_after_our_own_write_is_seen", &start(), |ways| {
        let mut model = start();
        ways.check_read("at first", &model);
        ways.ours(|subject| {
            subject.file().write_all_at(b"XX", 30_000).unwrap();
            subject.file().sync_data().unwrap();
        });
        ways.theirs(|other, path| other.set_len(path, 10_001));
        model.truncate(10_001);
        ways.check_both("after a truncate", &model);
        ways.theirs(|other, path| other.set_len(path, 40_000));
        model.resize(40_000, 0);
        ways.ours(|subject| {
            subject.file().write_all_at(b"Y", 10_100).unwrap();
            subject.file().sync_data().unwrap();
        });
        model[10_100] = b'Y';
        ways.check_both("longer again, after a byte of ours", &model);
    });
}

/// Goal: a foreign write right after our sync, within one tick of the clock, is seen. Method: a hundred files, one pause.
#[test]
fn a_write_right_after_our_sync_is_seen() {
    for driver in drivers() {
        let (directory, engine) = (ScratchDir::on_target().unwrap(), engine_on(driver, 8 << 20));
        let mut files = Vec::new();
        for number in 0..100 {
            let path = directory.path().join(number.to_string());
            std::fs::write(&path, b"aaaaaaaa").unwrap();
            let file = OpenOptions::new().engine(&engine).write(true).open(&path).unwrap();
            file.write_all_at(b"HH", 0).unwrap();
            file.sync_data().unwrap();
            Other::Std.write(&path, 4, 2, 7);
            files.push(file);
        }
        std::thread::sleep(Duration::from_millis(11));
        let model = [b"HHaa", &bytes(7, 2)[..], b"aa"].concat();
        let stale = files.iter().filter(|file| whole(file) != model).count();
        assert_eq!(stale, 0, "{driver:?}: of {}", files.len());
    }
}

/// Goal: the second of two quick foreign writes is seen by a handle that read between them.
#[test]
fn the_second_of_two_quick_writes_is_seen() {
    each_way("the_second_of_two_quick_writes_is_seen", b"aaaaaaaa", |ways| {
        ways.check_read("at first", b"aaaaaaaa");
        let mut model = b"aaaaaaaa".to_vec();
        for (number, offset) in [0, 2, 4, 6].into_iter().enumerate() {
            ways.theirs(|other, path| other.write(path, offset as u64, 2, number as u64));
            put(&mut model, offset, &bytes(number as u64, 2));
            ways.check_read("after a foreign write", &model);
        }
    });
}

/// We write a byte of the first page, and sync it.
pub(crate) fn write_x(ways: &mut Ways, model: &mut [u8]) {
    ways.ours(|subject| {
        subject.file().write_all_at(b"X", 0).unwrap();
        subject.file().sync_data().unwrap();
    });
    model[0] = b'X';
}

/// The other program writes a page that was read before, and bytes of the first page, which is the one that we write to.
fn write_two_pages(ways: &mut Ways, model: &mut [u8]) {
    ways.theirs(|other, path| {
        other.write(path, 20_480, 4096, 7);
        other.write(path, 2000, 100, 8);
    });
    put(model, 20_480, &bytes(7, 4096));
    put(model, 2000, &bytes(8, 100));
}

pub(crate) fn whole(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize + 100];
    let length = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(length);
    bytes
}

pub(crate) fn put(model: &mut [u8], offset: usize, part: &[u8]) {
    model[offset..offset + part.len()].copy_from_slice(part);
}

/// Sixteen pages.
pub(crate) fn start() -> Vec<u8> {
    vec![b'A'; 65_536]
}
