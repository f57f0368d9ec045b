//! Unwritten: bytes of ours that are not on disk yet when another program changes the file.
//!
//! Owns: that the bytes of both are kept, or the change is reported where that is asked for.
//! Does not own: changes after our sync (findings), random ones (rounds).

use std::time::Duration;

use headwater::{File, OpenOptions};
use headwater_testkit::ScratchDir;

use crate::api::{LEVELS, is_checked, refresh};
use crate::combination::{Driver, drivers, engine_on};
use crate::contents::bytes;
use crate::findings::{put, start, whole};
use crate::ways::{Other, Ways, each_way};

/// Goal: bytes of ours that are unwritten and bytes that others write to the same page and block meanwhile are all there
/// after our sync, and can be read before it.
#[test]
fn disjoint_bytes_of_one_page_are_both_kept() {
    each_way("disjoint_bytes_of_one_page_are_both_kept", b"aaaaaaaa", |ways| {
        ways.without_private();
        ways.ours(|subject| subject.file().write_all_at(b"HHH", 0).unwrap());
        ways.theirs(|other, path| other.write(path, 4, 3, 7));
        take_reports(ways);
        let model = [b"HHHa", &bytes(7, 3)[..], b"a"].concat();
        ways.check_read("before the sync", &model);
        ways.ours(|subject| subject.file().sync_data().unwrap());
        ways.check_both("after the sync", &model);
    });
}

/// Goal: the same with many pages, and writes that cross them: ours and theirs alternate every 700 bytes.
#[test]
fn alternating_bytes_are_both_kept() {
    each_way("alternating_bytes_are_both_kept", &start(), |ways| {
        ways.without_private();
        let mut model = start();
        for number in 0..30 {
            let (offset, part) = (number * 1400, bytes(number as u64, 700));
            ways.ours(|subject| subject.file().write_all_at(&part, offset as u64).unwrap());
            put(&mut model, offset, &part);
        }
        ways.theirs(|other, path| {
            (0..30_u64).for_each(|number| other.write(path, number * 1400 + 700, 700, 100 + number));
        });
        (0..30).for_each(|number| put(&mut model, number * 1400 + 700, &bytes(100 + number as u64, 700)));
        take_reports(ways);
        ways.ours(|subject| subject.file().sync_data().unwrap());
        ways.check_both("after the sync", &model);
    });
}

/// Goal: a foreign append to a page of which something of ours is unwritten stays, and our next append comes behind it.
#[test]
fn an_append_to_a_page_with_unwritten_bytes_is_kept() {
    each_way("an_append_to_a_page_with_unwritten_bytes_is_kept", b"header..", |ways| {
        ways.without_private();
        ways.ours(|subject| subject.file().write_all_at(b"HEADER", 0).unwrap());
        ways.theirs(|other, path| assert_eq!(other.append(path, 12, 7), 8));
        take_reports(ways);
        ways.ours(|subject| subject.file().sync_data().unwrap());
        let mut model = [b"HEADER..", &bytes(7, 12)[..]].concat();
        ways.check_both("after the sync", &model);
        ways.check("the place of our append", &20_u64.to_le_bytes(), |subject| {
            let at = subject.file().append(b"ours\n")?;
            subject.file().sync_data()?;
            Ok(at.to_le_bytes().to_vec())
        });
        model.extend(b"ours\n");
        ways.check_both("after our append", &model);
    });
}

/// Goal: a truncate by others does not come undone by what we had unwritten before it.
#[test]
fn a_truncate_stays_where_something_is_unwritten_before_it() {
    each_way("a_truncate_stays_where_something_is_unwritten_before_it", &start(), |ways| {
        ways.without_private();
        ways.ours(|subject| subject.file().write_all_at(b"HEADER", 10).unwrap());
        ways.theirs(|other, path| other.set_len(path, 1000));
        take_reports(ways);
        ways.ours(|subject| subject.file().sync_data().unwrap());
        let mut model = start();
        put(&mut model, 10, b"HEADER");
        model.truncate(1000);
        ways.check_both("after the sync", &model);
    });
}

/// Goal: the same where the bytes of the deleted file are not written when it is deleted: they do not come into the new one.
#[test]
fn a_recreated_file_gets_nothing_of_the_deleted_one() {
    each_way("a_recreated_file_gets_nothing_of_the_deleted_one", &start(), |ways| {
        ways.without_private();
        ways.ours(|subject| {
            subject.file().write_all_at(&[1; 9000], 3).unwrap();
            subject.close();
        });
        ways.theirs(|other, path| other.recreate(path, 65_536, 9));
        ways.ours(|subject| subject.engine.flush().unwrap());
        ways.check_both("recreated", &bytes(9, 65_536));
    });
}

/// Goal: two engines that write to one page in turn see and keep each other's bytes, with a sync in each turn and with both
/// syncs behind both writes; by a look that is asked for, and by the one that a read makes by itself when its time has come.
#[test]
fn two_engines_share_a_page() {
    let looks: [fn(&File); 2] =
        [|file| refresh(file).unwrap(), |_| std::thread::sleep(REVALIDATED + Duration::from_millis(1))];
    for driver in drivers() {
        for look in looks {
            [true, false].iter().for_each(|&is_synced_in_turn| share_a_page(driver, look, is_synced_in_turn));
        }
    }
}

fn share_a_page(driver: Driver, look: fn(&File), is_synced_in_turn: bool) {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"aaaa").unwrap();
    let engines = [engine_on(driver, 8 << 20), engine_on(driver, 8 << 20)];
    let open = |engine| OpenOptions::new().engine(engine).write(true).open(&path).unwrap();
    let [first, second] = engines.each_ref().map(open);
    assert!(whole(&first) == b"aaaa" && whole(&second) == b"aaaa");
    first.write_all_at(b"bb", 0).unwrap();
    if is_synced_in_turn {
        first.sync_data().unwrap();
        look(&second);
    }
    second.write_all_at(b"cc", 2).unwrap();
    first.sync_data().unwrap();
    second.sync_data().unwrap();
    for file in [&first, &second] {
        look(file);
        assert_eq!(String::from_utf8_lossy(&whole(file)), "bbcc", "synced in turn: {is_synced_in_turn}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"bbcc");
}

/// Goal: where changes by others are to be reported, each handle hears once of one that came while bytes of ours were
/// unwritten, and the bytes of both are kept. Method: only levels that ask for it.
#[test]
fn a_change_beside_unwritten_bytes_is_reported_once_to_each_handle() {
    for &level in LEVELS.iter().filter(|&&level| is_checked(level)) {
        for driver in drivers() {
            let (directory, engine) = (ScratchDir::on_target().unwrap(), engine_on(driver, 8 << 20));
            let path = directory.path().join("file");
            std::fs::write(&path, b"aaaaaaaa").unwrap();
            let mut options = OpenOptions::new();
            options.engine(&engine).coherence(level).write(true);
            let handles = [options.open(&path).unwrap(), options.open(&path).unwrap()];
            handles[0].write_all_at(b"HH", 0).unwrap();
            // Before Linux 6.13 a change within a tick of the clock after the file's last one is not certain to be one.
            std::thread::sleep(Duration::from_millis(11));
            Other::Std.write(&path, 4, 2, 7);
            let reported = handles.each_ref().map(|handle| handle.sync_data().is_err());
            assert_eq!(reported, [true, true], "{driver:?}");
            let later = options.open(&path).unwrap();
            for handle in handles.iter().chain([&later]) {
                handle.sync_data().unwrap();
                let model = [b"HHaa", &bytes(7, 2)[..], b"aa"].concat();
                assert!(whole(handle) == model && std::fs::read(&path).unwrap() == model, "{driver:?}");
            }
            // And nothing where nothing was unwritten.
            Other::Std.write(&path, 4, 2, 8);
            refresh(&handles[0]).unwrap();
            handles[0].write_all_at(b"II", 0).unwrap();
            handles.iter().for_each(|handle| handle.sync_data().unwrap());
        }
    }
}

/// A level that reports changes does so once, which is not what these tests are about.
fn take_reports(ways: &mut Ways) {
    ways.ours(|subject| {
        if is_checked(subject.combination.level) {
            let _ = subject.file().sync_data();
        }
    });
}

/// How long a file is not looked at again unless that is asked for.
const REVALIDATED: Duration = Duration::from_millis(10);
