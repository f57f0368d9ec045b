//! Cores: a file hashed in parts, each core a part: `LocalEngines` against threads of std.
//!
//! `cargo run --release -p headwater --example cores`

mod programs;

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;

use futures_util::{AsyncReadExt, AsyncSeekExt};
use headwater::LocalEngines;
use programs::{Form, Program, mixed};

const PROGRAM: Program = Program { name: "cores", unit: "MiB", units: 512, prepare, run };

fn main() -> io::Result<()> {
    PROGRAM.main()
}

fn prepare(directory: &Path, mebibytes: usize) -> io::Result<()> {
    let file = std::fs::File::create(path(directory))?;
    for number in 0..mebibytes {
        (&file).write_all(&vec![mixed(number as u64) as u8; PART_BYTES])?;
    }
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// The hashes of all mebibytes, summed.
fn run(form: Form, directory: &Path, mebibytes: usize) -> io::Result<u64> {
    let path = path(directory);
    let sums: Vec<io::Result<u64>> = match form {
        Form::Headwater => {
            let engines = LocalEngines::per_processor()?;
            let each = mebibytes.div_ceil(engines.count());
            engines.run(move |engine, core| {
                let path = path.clone();
                async move {
                    let mut reader = engine.open(&path)?.async_reader();
                    let (mut part, mut sum) = (vec![0; PART_BYTES], 0_u64);
                    for number in core * each..((core + 1) * each).min(mebibytes) {
                        reader.seek(SeekFrom::Start((number * PART_BYTES) as u64)).await?;
                        reader.read_exact(&mut part).await?;
                        sum = sum.wrapping_add(hash(&part));
                    }
                    Ok(sum)
                }
            })
        }
        Form::Std => {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            let each = mebibytes.div_ceil(cores);
            thread::scope(|scope| {
                let threads: Vec<_> = (0..cores)
                    .map(|core| {
                        let numbers = core * each..((core + 1) * each).min(mebibytes);
                        scope.spawn(|| hash_by_std(&path, numbers))
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            })
        }
    };
    sums.into_iter().try_fold(0_u64, |all, sum| Ok(all.wrapping_add(sum?)))
}

fn hash_by_std(path: &Path, numbers: std::ops::Range<usize>) -> io::Result<u64> {
    let (mut file, mut part, mut sum) = (std::fs::File::open(path)?, vec![0; PART_BYTES], 0_u64);
    file.seek(SeekFrom::Start((numbers.start * PART_BYTES) as u64))?;
    for _ in numbers {
        file.read_exact(&mut part)?;
        sum = sum.wrapping_add(hash(&part));
    }
    Ok(sum)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn path(directory: &Path) -> PathBuf {
    directory.join("file")
}

const PART_BYTES: usize = 1 << 20;

#[test]
fn both_forms_agree() {
    programs::check(&PROGRAM, 9);
}
