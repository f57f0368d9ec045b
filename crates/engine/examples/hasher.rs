//! Hasher: a tree of small files, read whole and hashed by four threads.
//!
//! `cargo run --release -p headwater --example hasher`

mod programs;

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use programs::{Form, Program, mixed};

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
    let next = AtomicUsize::new(0);
    let hash_some = || {
        let mut sum = 0_u64;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= files {
                return io::Result::Ok(sum);
            }
            let path = directory.join(number.to_string());
            let mut hasher = DefaultHasher::new();
            match form {
                Form::Headwater => hasher.write(&headwater::read(&path)?),
                Form::Std => hasher.write(&std::fs::read(&path)?),
            }
            sum = sum.wrapping_add(hasher.finish());
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(hash_some)).collect();
        let mut sums = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        sums.try_fold(0_u64, |all, sum| Ok(all.wrapping_add(sum?)))
    })
}

const THREADS: usize = 4;

#[test]
fn both_forms_agree() {
    programs::check(&PROGRAM, 50);
}
