//! Store: a key-value store: values are appended to one file, an index in memory knows where, and gets return shared bytes.
//!
//! With headwater a get pins the value where it lies in the cache; the plain form allocates and copies for each.
//!
//! `cargo run --release -p headwater --example store`

mod programs;

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use bytes::Bytes;
use programs::{Form, Program, mixed};

const PROGRAM: Program =
    Program { name: "store", unit: "gets", units: 1_000_000, prepare: |_, _| Ok(()), run };

fn main() -> io::Result<()> {
    PROGRAM.main()
}

/// Where each value lies.
#[derive(Default)]
struct Index(HashMap<u64, (u64, usize)>);

enum Values {
    Headwater(headwater::File),
    Std(std::fs::File),
}

impl Values {
    fn get(&self, index: &Index, key: u64) -> io::Result<Option<Bytes>> {
        let Some(&(offset_bytes, length)) = index.0.get(&key) else { return Ok(None) };
        Ok(Some(match self {
            Values::Headwater(file) => file.view(offset_bytes, length)?.into_bytes(),
            Values::Std(file) => {
                let mut value = vec![0; length];
                file.read_exact_at(&mut value, offset_bytes)?;
                value.into()
            }
        }))
    }
}

/// The sum of what the gets have found.
fn run(form: Form, directory: &Path, gets: usize) -> io::Result<u64> {
    let (path, mut index, mut end_bytes) = (directory.join("values"), Index::default(), 0);
    let mut output: Box<dyn Write> = match form {
        Form::Headwater => Box::new(headwater::File::create(&path)?.writer()),
        Form::Std => Box::new(BufWriter::new(std::fs::File::create(&path)?)),
    };
    for key in 0..KEYS {
        let length = 200 + (mixed(key) % 3800) as usize;
        output.write_all(&vec![key as u8; length])?;
        index.0.insert(key, (end_bytes, length));
        end_bytes += length as u64;
    }
    output.flush()?;
    drop(output);
    let values = match form {
        Form::Headwater => Values::Headwater(headwater::File::open(&path)?),
        Form::Std => Values::Std(std::fs::File::open(&path)?),
    };
    thread::scope(|scope| {
        let ask = |thread: usize| {
            let (values, index) = (&values, &index);
            scope.spawn(move || {
                (0..gets / THREADS).try_fold(0_u64, |sum, number| {
                    let key = mixed((thread * gets + number) as u64) % (KEYS + KEYS / 10);
                    let found = values.get(index, key)?;
                    io::Result::Ok(sum + found.map_or(1, |value| u64::from(value[0]) + value.len() as u64))
                })
            })
        };
        let threads: Vec<_> = (0..THREADS).map(ask).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<io::Result<u64>>()
    })
}

const KEYS: u64 = 50_000;

const THREADS: usize = 4;

#[test]
fn both_forms_agree() {
    programs::check(&PROGRAM, 4000);
}
