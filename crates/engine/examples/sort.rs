//! Sort: an external merge sort of eight-byte keys: runs that fit into memory are sorted and written, then merged.
//!
//! Both forms are the same program over `Read` and `Write`, which move blocks of 128 KiB; one opens its files with headwater, whose
//! readers read ahead directly from the device and whose writers write back meanwhile. Two thirds of its time are comparisons: with
//! headwater it takes as long from a device as the form in std does with all files in memory, which is the limit.
//!
//! `cargo run --release -p headwater --example sort -- 67108864 /var/tmp`

mod programs;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
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
    let mut run = vec![0; (keys / RUNS).max(1) * KEY_BYTES];
    loop {
        let read_bytes = fill(&mut *input, &mut run)?;
        if read_bytes == 0 {
            break;
        }
        let mut sorted: Vec<u64> = keys_of(&run[..read_bytes]).collect();
        sorted.sort_unstable();
        for (place, key) in run.as_chunks_mut::<KEY_BYTES>().0.iter_mut().zip(sorted) {
            *place = key.to_le_bytes();
        }
        let path = directory.join(format!("run{}", runs.len()));
        let mut output = create(form, &path)?;
        output.write_all(&run[..read_bytes])?;
        output.flush()?;
        runs.push(path);
    }
    let mut runs = runs.iter().map(|path| Run::open(form, path)).collect::<io::Result<Vec<_>>>()?;
    let mut heads = BinaryHeap::new();
    for (number, run) in runs.iter_mut().enumerate() {
        heads.extend(run.next()?.map(|key| Reverse((key, number))));
    }
    let mut output = create(form, &directory.join("output"))?;
    let (mut block, mut order) = (Vec::with_capacity(BLOCK_BYTES), 0_u64);
    while let Some(mut head) = heads.peek_mut() {
        let Reverse((key, number)) = *head;
        match runs[number].next()? {
            Some(next) => *head = Reverse((next, number)),
            None => drop(PeekMut::pop(head)),
        }
        block.extend_from_slice(&key.to_le_bytes());
        order = order.rotate_left(1) ^ key;
        if block.len() == BLOCK_BYTES {
            output.write_all(&block)?;
            block.clear();
        }
    }
    output.write_all(&block)?;
    output.flush()?;
    Ok(order)
}

/// A sorted file, of which a block is in memory.
struct Run {
    input: Box<dyn Read>,
    block: Vec<u8>,
    keys: std::vec::IntoIter<u64>,
}

impl Run {
    fn open(form: Form, path: &Path) -> io::Result<Run> {
        Ok(Run { input: open(form, path)?, block: vec![0; BLOCK_BYTES], keys: Vec::new().into_iter() })
    }

    fn next(&mut self) -> io::Result<Option<u64>> {
        if self.keys.len() == 0 {
            let read_bytes = fill(&mut *self.input, &mut self.block)?;
            self.keys = keys_of(&self.block[..read_bytes]).collect::<Vec<_>>().into_iter();
        }
        Ok(self.keys.next())
    }
}

fn keys_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<KEY_BYTES>().0.iter().map(|key| u64::from_le_bytes(*key))
}

fn open(form: Form, path: &Path) -> io::Result<Box<dyn Read>> {
    Ok(match form {
        Form::Headwater => Box::new(headwater::File::open(path)?.reader()),
        Form::Std => Box::new(File::open(path)?),
    })
}

fn create(form: Form, path: &Path) -> io::Result<Box<dyn Write>> {
    Ok(match form {
        Form::Headwater => Box::new(headwater::File::create(path)?.writer()),
        Form::Std => Box::new(File::create(path)?),
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

const KEY_BYTES: usize = 8;

const RUNS: usize = 8;

/// Of a run that is merged, and of the output.
const BLOCK_BYTES: usize = 128 << 10;

#[test]
fn both_forms_agree() {
    programs::check(&PROGRAM, 100_003);
}
