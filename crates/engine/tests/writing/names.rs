//! Names: files that are renamed, deleted and made anew while they are open and not yet synced.
//!
//! Owns: that bytes belong to the file they were written to, whatever its name.
//! Does not own: opening what is not there (bad_input).

use std::fs;

use headwater::IoMode;
use headwater_testkit::{ScratchDir, watched};

use crate::model::same;
use crate::rig::rigs;
use crate::threads::open;

/// Goal: a file that is renamed keeps what was written to it, under its new name.
#[test]
fn renamed() {
    for rig in rigs(1) {
        let directory = ScratchDir::on_target().unwrap();
        let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
        let file = open(&rig, &old, IoMode::Auto);
        file.write_all_at(&[1; 10_000], 0).unwrap();
        fs::rename(&old, &new).unwrap();
        file.write_all_at(&[2; 10_000], 5000).unwrap();
        // Another file takes the name.
        let other = open(&rig, &old, IoMode::Auto);
        other.write_all_at(&[3; 100], 0).unwrap();
        assert_eq!(open(&rig, &new, IoMode::Auto).view(0, 15_000).unwrap().to_vec()[4999..5001], [1, 2]);
        file.sync_data().unwrap();
        other.sync_data().unwrap();
        same("new", 0, &[[1; 5000], [2; 5000], [2; 5000]].concat(), &fs::read(&new).unwrap()).unwrap();
        same("old", 0, &[3; 100], &fs::read(&old).unwrap()).unwrap();
        drop((file, other));
        rig.assert_idle();
    }
}

/// Goal: a file without a name is as good as one with, for those who have it open.
#[test]
fn deleted_while_open() {
    for rig in rigs(2) {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        let file = open(&rig, &path, IoMode::Auto);
        file.write_all_at(&[1; 10_000], 0).unwrap();
        fs::remove_file(&path).unwrap();
        // More than the memory holds.
        for round in 0..10 {
            file.write_all_at(&vec![round as u8; 1 << 20], round << 20).unwrap();
        }
        file.sync_data().unwrap();
        for round in 0..10 {
            assert_eq!(file.view(round << 20, 1 << 20).unwrap().to_vec(), vec![round as u8; 1 << 20]);
        }
        file.write_all_at(b"not synced", 0).unwrap();
        drop(file);
        assert!(!path.exists());
        watched(rig.name(), || rig.assert_idle());
    }
}

/// Goal: what was written to a file that is deleted, and never synced, is nowhere to be found in its successor, which has the
/// same name and mostly the same inode number.
#[test]
fn deleted_and_made_anew() {
    for rig in rigs(3) {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        for round in 1..40_u8 {
            let file = open(&rig, &path, IoMode::Auto);
            assert_eq!(file.len().unwrap(), 0, "round {round}");
            let length = usize::from(round) * 3001 % 50_000 + 1;
            // The first page is a gap.
            file.write_all_at(&vec![round; length], 4096).unwrap();
            let expected = [vec![0; 4096], vec![round; length]].concat();
            let mut found = vec![1; expected.len() + 10_000];
            let read = file.read_at(&mut found, 0).unwrap();
            same("here", 0, &expected, &found[..read]).unwrap();
            if round % 4 == 0 {
                file.sync_data().unwrap();
                same("on disk", 0, &expected, &fs::read(&path).unwrap()).unwrap();
            }
            // Sometimes it is closed first, sometimes deleted first.
            let file = if round % 2 == 0 { Some(file) } else { None };
            fs::remove_file(&path).unwrap();
            drop(file);
        }
        watched(rig.name(), || rig.assert_idle());
    }
}

/// Goal: a file that is replaced by renaming another over it is another file, for who opens it anew.
#[test]
fn replaced() {
    for rig in rigs(4) {
        let directory = ScratchDir::on_target().unwrap();
        let [path, draft] = ["file", "draft"].map(|name| directory.path().join(name));
        let mut before = open(&rig, &path, IoMode::Auto);
        for round in 0..20_u8 {
            before.write_all_at(&[round; 5000], 3000).unwrap();
            let file = open(&rig, &draft, IoMode::Auto);
            file.write_all_at(&[100 + round; 7000], 0).unwrap();
            file.sync_data().unwrap();
            fs::rename(&draft, &path).unwrap();
            assert_eq!(before.view(3000, 5000).unwrap().to_vec(), [round; 5000]);
            before = open(&rig, &path, IoMode::Auto);
            assert_eq!(before.view(0, 7000).unwrap().to_vec(), [100 + round; 7000]);
            assert_eq!(fs::read(&path).unwrap(), [100 + round; 7000]);
        }
        before.sync_data().unwrap();
        drop(before);
        rig.assert_idle();
    }
}
