//! Ledger: eight threads append records that must survive a power loss, and a follower reads each as it comes.
//!
//! With headwater a record is one call, concurrent callers share writes and syncs, and the follower sleeps until the file grows.
//! The plain form locks, writes and syncs for each record, and its follower looks every ten milliseconds.
//!
//! `cargo run --release -p headwater --example ledger`

mod programs;

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use programs::{Form, Program, mixed};

const PROGRAM: Program =
    Program { name: "ledger", unit: "records", units: 4000, prepare: |_, _| Ok(()), run };

fn main() -> io::Result<()> {
    PROGRAM.main()
}

/// The sum of all records, as the follower has read them.
fn run(form: Form, directory: &Path, records: usize) -> io::Result<u64> {
    let path = directory.join("ledger");
    let each = records / WRITERS;
    match form {
        Form::Headwater => {
            let log = headwater::OpenOptions::new().create(true).append(true).open(&path)?;
            thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let log = &log;
                    scope.spawn(move || {
                        let numbers = writer * each..(writer + 1) * each;
                        numbers
                            .into_iter()
                            .try_for_each(|number| log.append_durable(&record(number)).map(|_| ()))
                    });
                }
                let (mut known_bytes, mut sum) = (0, 0);
                while known_bytes < (each * WRITERS * RECORD_BYTES) as u64 {
                    let end_bytes = whole(log.wait_for_growth(known_bytes, None)?);
                    let view = log.view(known_bytes, (end_bytes - known_bytes) as usize)?;
                    sum = add(sum, &view.to_vec());
                    known_bytes = end_bytes;
                }
                Ok(sum)
            })
        }
        Form::Std => {
            let log = Mutex::new(std::fs::File::options().create(true).append(true).open(&path)?);
            let reader = std::fs::File::open(&path)?;
            thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let log = &log;
                    scope.spawn(move || {
                        for number in writer * each..(writer + 1) * each {
                            let mut log = log.lock().expect("no panic");
                            log.write_all(&record(number))?;
                            log.sync_data()?;
                        }
                        io::Result::Ok(())
                    });
                }
                let (mut known_bytes, mut sum) = (0, 0);
                while known_bytes < (each * WRITERS * RECORD_BYTES) as u64 {
                    let end_bytes = whole(reader.metadata()?.len());
                    if end_bytes == known_bytes {
                        thread::sleep(Duration::from_millis(10));
                        continue;
                    }
                    let mut bytes = vec![0; (end_bytes - known_bytes) as usize];
                    reader.read_exact_at(&mut bytes, known_bytes)?;
                    sum = add(sum, &bytes);
                    known_bytes = end_bytes;
                }
                Ok(sum)
            })
        }
    }
}

fn record(number: usize) -> [u8; RECORD_BYTES] {
    let mut record = [b' '; RECORD_BYTES];
    record[..8].copy_from_slice(&mixed(number as u64).to_le_bytes());
    record
}

/// The end of the last whole record.
fn whole(length_bytes: u64) -> u64 {
    length_bytes / RECORD_BYTES as u64 * RECORD_BYTES as u64
}

fn add(sum: u64, records: &[u8]) -> u64 {
    let numbers = records.chunks(RECORD_BYTES).filter_map(|record| record.first_chunk());
    numbers.fold(sum, |sum, number| sum.wrapping_add(u64::from_le_bytes(*number)))
}

const WRITERS: usize = 8;

const RECORD_BYTES: usize = 100;

#[test]
fn both_forms_agree() {
    programs::check(&PROGRAM, 80);
}
