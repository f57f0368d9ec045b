//! Hasher: a tree of small files, read whole and hashed by four threads of rayon.
//!
//! `cargo run --release -p headwater --example hasher`

mod programs;

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::Path;

use programs::{Form, Program, mixed};
use rayon::ThreadPoolBuilder;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

const PROGRAM: Program = Program { name: "hasher", unit: "files", units: 2000, prepare, run };

fn main() -> io::Result<()> {
    PROGRAM.main()
}

fn prepare(directory: &Path, files: usize) -> io::Result<()> {
    for number in 0..files {
        let length = (mixed(number as u64) % (128 << 10)) as usize;
        let file = std::fs::File::create(directory.join(number.to_string()))?;
        io::Write::write_all(&mut &file, &vec![number as u8; length])?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// The hashes of all files, summed.
fn run(form: Form, directory: &Path, files: usize) -> io::Result<u64> {
    let hash = |number: usize| {
        let path = directory.join(number.to_string());
        let mut hasher = DefaultHasher::new();
        match form {
            Form::Headwater => hasher.write(&headwater::read(&path)?),
            Form::Std => hasher.write(&std::fs::read(&path)?),
        }
        io::Result::Ok(hasher.finish())
    };
    let pool = ThreadPoolBuilder::new().num_threads(THREADS).build().map_err(io::Error::other)?;
    let sum = |all: u64, hash| Ok(all.wrapping_add(hash));
    pool.install(|| (0..files).into_par_iter().map(hash).try_reduce(|| 0, sum))
}

/// More than processors: they wait for the device.
const THREADS: usize = 4;

#[test]
fn both_forms_agree() {
    programs::check(&PROGRAM, 50);
}
