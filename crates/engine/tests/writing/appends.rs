//! Appends: records from many threads and tasks, each whole, each sender's in order, while others read along.
//!
//! Owns: records, and how they are found again in bytes.
//! Does not own: anything else that writes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use futures_util::future::join_all;
use headwater::{File, IoMode, OpenOptions};
use headwater_testkit::{Pattern, Rng, ScratchDir, mix, with_seed};

use crate::rig::{Rig, block_on, drivers};
use crate::threads::{open, watched_for};

/// Goal: what is appended at once from many threads and tasks is in the file exactly once, whole, each sender's in its order;
/// who reads along meets whole records up to the length that the file had.
#[test]
fn records_are_whole_and_in_order() {
    with_seed("appends::records_are_whole_and_in_order", |seed| {
        let mut rng = Rng::new(seed);
        for driver in drivers(seed) {
            let directory = ScratchDir::on_target().unwrap();
            append_and_check(&Rig::sized(driver, 3 << 20, 16), &directory, &mut rng);
        }
    });
}

/// Goal: the same for one sender, who has the file for itself.
#[test]
fn records_of_one_sender_are_whole_and_in_order() {
    with_seed("appends::records_of_one_sender_are_whole_and_in_order", |seed| {
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::sized(driver, 3 << 20, 16), ScratchDir::on_target().unwrap());
            let file = open(&rig, &directory.path().join("file"), IoMode::Auto);
            let mut expected_bytes = 0;
            for sequence in 0..RECORDS {
                let record = record(0, sequence, &mut Rng::new(seed ^ sequence));
                assert_eq!(file.append(&record).unwrap(), expected_bytes);
                expected_bytes += record.len() as u64;
            }
            let mut parser = Parser::new(1);
            parser.follow(&file);
            assert_eq!(parser.next, [RECORDS]);
            assert_eq!(file.len().unwrap(), expected_bytes);
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: records of a handle that appends together with other programs, and of one that gathers them in memory, never lie over each other:
/// neither among bytes that the device lacks yet. Method: both at once in one engine, one by a thread and one by tasks and calls in turn.
#[test]
fn records_of_both_kinds_of_handles_are_whole_and_in_order() {
    with_seed("appends::records_of_both_kinds_of_handles_are_whole_and_in_order", |seed| {
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::sized(driver, 3 << 20, 16), ScratchDir::on_target().unwrap());
            let path = directory.path().join("file");
            let file = open(&rig, &path, IoMode::Auto);
            let shared = OpenOptions::new().engine(&rig.engine).append(true).open(&path).unwrap();
            let records = |sender: u64| {
                (0..RECORDS).map(move |sequence| record(sender, sequence, &mut Rng::new(seed ^ sequence)))
            };
            watched_for(rig.name(), || {
                thread::scope(|scope| {
                    scope.spawn(|| records(0).for_each(|record| _ = file.append(&record).unwrap()));
                    for (number, record) in records(1).enumerate() {
                        _ = match number % 2 {
                            0 => shared.append(&record).unwrap(),
                            _ => block_on(shared.append_async(record)).unwrap(),
                        };
                    }
                });
            });
            let mut parser = Parser::new(2);
            parser.follow(&file);
            assert_eq!(parser.next, [RECORDS; 2]);
            file.sync_data().unwrap();
            let length: usize = records(0).chain(records(1)).map(|record| record.len()).sum();
            let disk = std::fs::read(&path).unwrap();
            assert_eq!((disk.len(), file.len().unwrap()), (length, length as u64), "{}", rig.name());
            let mut cached = vec![0; length];
            file.read_exact_at(&mut cached, 0).unwrap();
            assert!(cached == disk, "{}: the cache has other bytes than the disk", rig.name());
            drop((file, shared));
            rig.assert_idle();
        }
    });
}

fn append_and_check(rig: &Rig, directory: &ScratchDir, rng: &mut Rng) {
    let path = directory.path().join("file");
    let (file, done) = (open(rig, &path, IoMode::Auto), AtomicBool::new(false));
    let ends: Vec<AtomicUsize> = (0..SENDERS).map(|_| AtomicUsize::new(0)).collect();
    watched_for(rig.name(), || {
        thread::scope(|scope| {
            let (done, ends) = (&done, &ends);
            for _ in 0..2 {
                let (file, mut parser) = (open(rig, &path, IoMode::Auto), Parser::new(SENDERS));
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        parser.follow(&file);
                    }
                });
            }
            let mut senders = Vec::new();
            for sender in 0..THREADS {
                let (file, mut rng) = (open(rig, &path, IoMode::Auto), Rng::new(rng.next_u64()));
                senders.push(scope.spawn(move || {
                    for sequence in 0..RECORDS {
                        let record = record(sender, sequence, &mut rng);
                        file.append(&record).unwrap();
                        ends[sender as usize].fetch_add(record.len(), Ordering::Relaxed);
                        if rng.chance(1, 40) {
                            file.sync_data().unwrap();
                        }
                    }
                }));
            }
            let (file, seed) = (open(rig, &path, IoMode::Auto), rng.next_u64());
            senders.push(scope.spawn(move || {
                let tasks = (THREADS..SENDERS as u64).map(|sender| append_all(&file, sender, seed, ends));
                block_on(join_all(tasks));
            }));
            let results: Vec<_> = senders.into_iter().map(|sender| sender.join()).collect();
            done.store(true, Ordering::Relaxed);
            results.into_iter().for_each(|result| result.unwrap());
        });
    });
    let length: usize = ends.iter().map(|end| end.load(Ordering::Relaxed)).sum();
    let mut parser = Parser::new(SENDERS);
    parser.follow(&file);
    assert_eq!((parser.next, parser.position_bytes), (vec![RECORDS; SENDERS], length as u64));
    file.sync_data().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), length as u64);
    let mut parser = Parser::new(SENDERS);
    parser.parse(&std::fs::read(&path).unwrap());
    assert_eq!(parser.next, [RECORDS; SENDERS]);
    drop(file);
    rig.assert_idle();
}

async fn append_all(file: &File, sender: u64, seed: u64, ends: &[AtomicUsize]) {
    let mut rng = Rng::new(seed ^ mix(sender));
    for sequence in 0..RECORDS {
        let record = record(sender, sequence, &mut rng);
        let length = record.len();
        file.append_async(record).await.unwrap();
        ends[sender as usize].fetch_add(length, Ordering::Relaxed);
    }
}

/// Sender, sequence, length of the contents, checksum of the three; then the contents, which follow from them.
pub(crate) fn record(sender: u64, sequence: u64, rng: &mut Rng) -> Vec<u8> {
    let length = if rng.chance(1, 10) { rng.below(20_000) } else { rng.below(300) };
    record_of(sender, sequence, length)
}

/// The same, of this length without the header.
pub(crate) fn record_of(sender: u64, sequence: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [sender, sequence, length, checksum(sender, sequence, length)] {
        bytes.extend(word.to_le_bytes());
    }
    let start = bytes.len();
    bytes.resize(start + length as usize, 0);
    Pattern::new(checksum(sender, sequence, length)).fill(0, &mut bytes[start..]);
    bytes
}

fn checksum(sender: u64, sequence: u64, length: u64) -> u64 {
    [sequence, length].into_iter().fold(mix(sender ^ 0xA5A5), |sum, word| mix(sum ^ word))
}

/// Where in the file it is, and which record of each sender must come next.
pub(crate) struct Parser {
    pub(crate) position_bytes: u64,
    pub(crate) next: Vec<u64>,
}

impl Parser {
    pub(crate) fn new(senders: usize) -> Parser {
        Parser { position_bytes: 0, next: vec![0; senders] }
    }

    /// All that the file has now.
    fn follow(&mut self, file: &File) {
        let mut buffer = vec![0; (file.len().unwrap() - self.position_bytes) as usize];
        file.read_exact_at(&mut buffer, self.position_bytes).unwrap();
        self.parse(&buffer);
    }

    /// Bytes from the position on. A record that is not there to its end is left for later.
    pub(crate) fn parse(&mut self, mut bytes: &[u8]) {
        while let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) {
            let words = header.as_chunks::<8>().0;
            let [sender, sequence, length, found] =
                [0, 1, 2, 3].map(|index: usize| u64::from_le_bytes(words[index]));
            let at = self.position_bytes;
            assert_eq!(found, checksum(sender, sequence, length), "no record begins at byte {at}");
            let Some((contents, rest)) = rest.split_at_checked(length as usize) else { return };
            let wrong = Pattern::new(found).mismatch(0, contents);
            assert_eq!(wrong, None, "record {sequence} of {sender}, {length} bytes at byte {at}");
            assert_eq!(sequence, self.next[sender as usize], "sender {sender}, at byte {at}");
            self.next[sender as usize] += 1;
            self.position_bytes += (HEADER_BYTES + contents.len()) as u64;
            bytes = rest;
        }
    }
}

const HEADER_BYTES: usize = 32;
const THREADS: u64 = 3;

/// Threads, and tasks of one more.
const SENDERS: usize = 6;
const RECORDS: u64 = 300;
