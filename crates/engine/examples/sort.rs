//! Sort: an external merge sort of eight-byte keys: runs that fit into memory are sorted and written, then merged.
//!
//! Both forms are the same program over `Read` and `Write`; one opens its files with headwater, whose readers read ahead directly
//! from the device and whose writers write back meanwhile.
//!
//! `cargo run --release -p headwater --example sort -- 67108864 /var/tmp`

mod programs;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use programs::{Form, Program, mixed};

const PROGRAM: Program = Program { name: "sort", unit: "keys", units: 16 << 20, prepare, run };

fn main() -> io::Result<()> {
    PROGRAM.main()
}

fn prepare(directory: &Path, keys: usize) -> io::Result<()> {
    let mut input = BufWriter::new(File::create(directory.join("input"))?);
    (0..keys as u64).try_for_each(|key| input.write_all(&mixed(key).to_le_bytes()))?;
    let input = input.into_inner()?;
    input.sync_all()?;
    // Cold, as a file that is larger than memory is.
    rustix::fs::fadvise(&input, 0, None, rustix::fs::Advice::DontNeed).map_err(io::Error::from)
}

/// A number that depends on the order of all keys in the output.
fn run(form: Form, directory: &Path, keys: usize) -> io::Result<u64> {
    let (mut input, mut runs) = (open(form, &directory.join("input"))?, Vec::new());
    let keys_of_run = (keys / RUNS).max(1);
    let mut run = vec![0; keys_of_run * KEY_BYTES];
    loop {
        let read_bytes = fill(&mut *input, &mut run)?;
        if read_bytes == 0 {
            break;
        }
        let chunks = run[..read_bytes].as_chunks::<KEY_BYTES>().0;
        let mut sorted: Vec<u64> = chunks.iter().map(|key| u64::from_le_bytes(*key)).collect();
        sorted.sort_unstable();
        let path = directory.join(format!("run{}", runs.len()));
        let mut output = create(form, &path)?;
        sorted.iter().try_for_each(|key| output.write_all(&key.to_le_bytes()))?;
        output.flush()?;
        runs.push(path);
    }
    let mut readers = runs.iter().map(|path| open(form, path)).collect::<io::Result<Vec<_>>>()?;
    let mut heads = BinaryHeap::new();
    for (number, reader) in readers.iter_mut().enumerate() {
        heads.extend(next(&mut **reader)?.map(|key| Reverse((key, number))));
    }
    let mut output = create(form, &directory.join("output"))?;
    let mut order = 0_u64;
    while let Some(Reverse((key, number))) = heads.pop() {
        output.write_all(&key.to_le_bytes())?;
        order = order.rotate_left(1) ^ key;
        heads.extend(next(&mut *readers[number])?.map(|key| Reverse((key, number))));
    }
    output.flush()?;
    Ok(order)
}

fn open(form: Form, path: &Path) -> io::Result<Box<dyn Read>> {
    Ok(match form {
        Form::Headwater => Box::new(headwater::File::open(path)?.reader()),
        Form::Std => Box::new(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?)),
    })
}

fn create(form: Form, path: &Path) -> io::Result<Box<dyn Write>> {
    Ok(match form {
        Form::Headwater => Box::new(headwater::File::create(path)?.writer()),
        Form::Std => Box::new(BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?)),
    })
}

/// As many bytes as there are, up to the length of the buffer.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match input.read(&mut buffer[done..])? {
            0 => break,
            read_bytes => done += read_bytes,
        }
    }
    Ok(done)
}

fn next(input: &mut dyn Read) -> io::Result<Option<u64>> {
    let mut key = [0; KEY_BYTES];
    Ok((fill(input, &mut key)? == KEY_BYTES).then(|| u64::from_le_bytes(key)))
}

const KEY_BYTES: usize = 8;

const RUNS: usize = 8;

const BUFFER_BYTES: usize = 128 << 10;

#[test]
fn both_forms_agree() {
    programs::check(&PROGRAM, 100_003);
}
