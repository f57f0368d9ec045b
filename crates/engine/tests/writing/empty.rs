//! Empty: handles that were opened for reading while their file was empty on the device, and what they see afterwards.
//!
//! ```text
//!   file system over the engine: open for reading ─► open for writing ─► write ─► both read, by every interface
//!   clone, untar: create ─► write ─► close ─► open for reading ─► length ─► rename ─► read back, byte by byte
//! ```
//!
//! Owns: handles for reading beside those for writing.
//! Does not own: files that hide contents behind a length of 0 (`reading::bad_input`).

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use futures_util::TryStreamExt;
use futures_util::io::AsyncReadExt;
use headwater::{Caching, File, ManyRead, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, with_seed};

use crate::rig::{Rig, block_on, rigs};

/// Goal: a handle for reading sees what the engine has written, by every interface, whether it was opened before the first
/// write, when the file was empty, or after it. Method: all interfaces after a write, a sync, an overwrite, a truncate.
#[test]
fn readers_of_an_empty_file_see_what_is_written() {
    with_seed("empty::readers_of_an_empty_file_see_what_is_written", |seed| {
        for (rig, caching) in rigs(seed).iter().flat_map(|rig| CACHING.map(|caching| (rig, caching))) {
            let directory = ScratchDir::on_target().unwrap();
            let path = directory.path().join("file");
            std::fs::write(&path, b"").unwrap();
            let before = open(rig, &path, caching);
            see("opened", rig, &path, &before, b"");
            let writer = writer(rig, &path, caching);
            let mut contents = vec![7; 10_000];
            writer.write_all_at(&contents, 0).unwrap();
            see("written", rig, &path, &before, &contents);
            let after = open(rig, &path, caching);
            let both = |when: &str, contents: &[u8]| {
                see(when, rig, &path, &before, contents);
                see(when, rig, &path, &after, contents);
            };
            both("opened after", &contents);
            writer.sync_data().unwrap();
            both("synced", &contents);
            contents[..5000].fill(8);
            writer.write_all_at(&contents[..5000], 0).unwrap();
            both("overwritten", &contents);
            writer.set_len(0).unwrap();
            both("truncate", b"");
            writer.append(b"again").unwrap();
            both("appended", b"again");
        }
    });
}

/// Goal: the same when the file is closed for writing. Method: write, close, and open for reading before or after that.
#[test]
fn a_closed_file_is_read_as_it_was_written() {
    with_seed("empty::a_closed_file_is_read_as_it_was_written", |seed| {
        for rig in rigs(seed) {
            let directory = ScratchDir::on_target().unwrap();
            for number in 0..50 {
                let path = directory.path().join(number.to_string());
                let writer = create(&rig, &path, &[7; 10_000]);
                let before = (number % 2 == 0).then(|| open(&rig, &path, Caching::Auto));
                drop(writer);
                let reader = before.unwrap_or_else(|| open(&rig, &path, Caching::Auto));
                see("closed", &rig, &path, &reader, &[7; 10_000]);
            }
        }
    });
}

/// Goal: a file system over the engine, which opens its files for reading first, gives what was written, and so does the
/// disk afterwards. Method: random writes through other handles than those that read, against vectors.
#[test]
fn files_open_for_reading_first() {
    with_seed("empty::files_open_for_reading_first", |seed| {
        for rig in rigs(seed) {
            let (directory, mut rng) = (ScratchDir::on_target().unwrap(), Rng::new(seed));
            let paths: Vec<_> = (0..FILES).map(|file| directory.path().join(file.to_string())).collect();
            paths.iter().for_each(|path| std::fs::write(path, b"").unwrap());
            let readers: Vec<_> = paths.iter().map(|path| open(&rig, path, Caching::Auto)).collect();
            let writers: Vec<_> = paths.iter().map(|path| writer(&rig, path, Caching::Auto)).collect();
            let mut contents = vec![Vec::new(); FILES];
            for _ in 0..OPERATIONS {
                let file = rng.below(FILES as u64) as usize;
                change(&writers[file], &mut contents[file], &mut rng);
                read_back(&rig, &readers[file], &paths[file], &contents[file], &mut rng);
            }
            rig.engine.flush().unwrap();
            for (path, contents) in paths.iter().zip(&contents) {
                assert!(std::fs::read(path).unwrap() == *contents, "{}", path.display());
            }
        }
    });
}

/// Goal: a tree that is made as `git clone` and `tar` make it is the same, for the engine and on the disk. Method: create,
/// write in parts, close, open for reading, ask for the length, rename, read back.
#[test]
fn a_tree_is_made_and_read_back() {
    with_seed("empty::a_tree_is_made_and_read_back", |seed| {
        for rig in rigs(seed) {
            let (directory, mut rng) = (ScratchDir::on_target().unwrap(), Rng::new(seed));
            let mut tree = BTreeMap::new();
            for number in 0..TREE_FILES {
                let folder = directory.path().join(format!("folder {}", number % 7));
                std::fs::create_dir_all(&folder).unwrap();
                let (made, path) = (folder.join("made"), folder.join(number.to_string()));
                let contents = bytes(&mut rng, 30_000);
                let file = create(&rig, &made, b"");
                for part in contents.chunks(rng.range(1000, 40_000) as usize) {
                    file.append(part).unwrap();
                }
                let before = rng.chance(1, 2).then(|| open(&rig, &made, Caching::Auto));
                drop(file);
                let reader = before.unwrap_or_else(|| open(&rig, &made, Caching::Auto));
                assert_eq!(reader.len().unwrap(), contents.len() as u64);
                std::fs::rename(&made, &path).unwrap();
                assert!(whole(&reader) == contents, "{}", path.display());
                assert!(rig.engine.read(&path).unwrap() == contents, "{}", path.display());
                tree.insert(path, contents);
            }
            for (path, contents) in &tree {
                assert!(whole(&open(&rig, path, Caching::Auto)) == *contents, "{}", path.display());
            }
            rig.engine.flush().unwrap();
            for (path, contents) in &tree {
                assert!(std::fs::read(path).unwrap() == *contents, "{}", path.display());
            }
        }
    });
}

/// By every interface.
fn see(when: &str, rig: &Rig, path: &Path, file: &File, contents: &[u8]) {
    let length = contents.len();
    let check = |how: &str, seen: &[u8]| {
        assert!(seen == contents, "{when}, {how}, {}: {} bytes of {length}", rig.name(), seen.len());
    };
    assert_eq!(file.len().unwrap(), length as u64, "{when}");
    let mut buffer = vec![0; length + 10];
    let read_bytes = file.read_at(&mut buffer, 0).unwrap();
    check("read_at", &buffer[..read_bytes]);
    let mut many = [ManyRead::new(0, &mut buffer)];
    file.read_many(&mut many).unwrap();
    let read_bytes = many[0].read_bytes;
    check("read_many", &buffer[..read_bytes]);
    check("read_at_async", &block_on(file.read_at_async(0, length + 10)).unwrap());
    check("view", &file.view(0, length).unwrap().to_vec());
    check("view_async", &block_on(file.view_async(0, length)).unwrap().to_vec());
    assert!(file.view(0, length + 1).is_err());
    check("reader", &whole(file));
    let mut streamed = Vec::new();
    block_on(file.async_reader().read_to_end(&mut streamed)).unwrap();
    check("async_reader", &streamed);
    let parts: Vec<bytes::Bytes> = block_on(file.stream().try_collect()).unwrap();
    check("stream", &parts.concat());
    check("Engine::read", &rig.engine.read(path).unwrap());
    let mut reader = file.reader();
    assert_eq!(reader.seek(SeekFrom::End(0)).unwrap(), length as u64, "{when}");
}

fn change(writer: &File, contents: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(contents.len() as u64 + 5000);
    match rng.below(8) {
        0 => writer.sync_data().unwrap(),
        1 => {
            writer.set_len(at).unwrap();
            contents.resize(at as usize, 0);
        }
        2 => {
            let added = bytes(rng, 9000);
            writer.append(&added).unwrap();
            contents.extend(added);
        }
        _ => {
            let written = bytes(rng, 9000);
            writer.write_all_at(&written, at).unwrap();
            let end = at as usize + written.len();
            contents.resize(contents.len().max(end), 0);
            contents[at as usize..end].copy_from_slice(&written);
        }
    }
}

fn read_back(rig: &Rig, reader: &File, path: &Path, contents: &[u8], rng: &mut Rng) {
    assert_eq!(reader.len().unwrap(), contents.len() as u64);
    let seen = match rng.below(4) {
        0 => whole(reader),
        1 => rig.engine.read(path).unwrap().into(),
        2 => reader.view(0, contents.len()).unwrap().to_vec(),
        _ => {
            let mut seen = vec![0; contents.len() + 1];
            let read_bytes = reader.read_at(&mut seen, 0).unwrap();
            seen.truncate(read_bytes);
            seen
        }
    };
    assert!(seen == contents, "{} of {} bytes", seen.len(), contents.len());
}

fn whole(file: &File) -> Vec<u8> {
    let mut seen = Vec::new();
    file.reader().read_to_end(&mut seen).unwrap();
    seen
}

fn open(rig: &Rig, path: &Path, caching: Caching) -> File {
    OpenOptions::new().engine(&rig.engine).caching(caching).open(path).unwrap()
}

fn writer(rig: &Rig, path: &Path, caching: Caching) -> File {
    OpenOptions::new().engine(&rig.engine).caching(caching).write(true).open(path).unwrap()
}

fn create(rig: &Rig, path: &Path, contents: &[u8]) -> File {
    let file = OpenOptions::new().engine(&rig.engine).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(contents, 0).unwrap();
    file
}

fn bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    let (length, byte) = (rng.below(most) + 1, rng.range(1, 256) as u8);
    (0..length).map(|at| byte ^ (at / 512) as u8).collect()
}

const CACHING: [Caching; 3] = [Caching::Auto, Caching::On, Caching::Off];

const FILES: usize = 6;

const OPERATIONS: usize = 400;

const TREE_FILES: u64 = 60;
