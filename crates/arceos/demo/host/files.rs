//! Files: writes the content of the test disk into a directory, on the machine that makes the image.
//!
//! `files DIRECTORY NAMES ARM...`: a directory for each arm, and in each the files of these names, or all if there are none. Every arm has its own, so that no read
//! finds what another arm's has left in the caches of the block layer.

#[path = "../src/layout.rs"]
mod layout;

use std::path::Path;
use std::{env, fs, io};

use layout::{FILE_BYTES, LONG_BYTES, STREAMS, WORD_BYTES, WRITES_BYTES, WRITES_PATH, seed, word};

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let directory = arguments.next().expect("the first argument is a directory");
    let names = arguments.next().expect("the second argument names files");
    fs::create_dir_all(&directory)?;
    fs::write(Path::new(&directory).join(WRITES_PATH.trim_start_matches('/')), vec![0; WRITES_BYTES])?;
    for arm in arguments {
        write_arm(Path::new(&directory), &names, &arm)?;
    }
    Ok(())
}

fn write_arm(root: &Path, names: &str, arm: &str) -> io::Result<()> {
    fs::create_dir_all(root.join(arm))?;
    let is_wanted = |name: &str| names.is_empty() || names.split_whitespace().any(|wanted| wanted == name);
    for (name, bytes) in FILES.into_iter().filter(|(name, _)| is_wanted(name)) {
        let seed = seed(&format!("/{arm}/{name}"));
        let content: Vec<u8> =
            (0..bytes / WORD_BYTES).flat_map(|index| word(seed, index).to_le_bytes()).collect();
        fs::write(root.join(arm).join(name), content)?;
    }
    Ok(())
}

/// Names as the workloads have them, and lengths.
const FILES: [(&str, usize); 12] = [
    ("small", FILE_BYTES),
    ("large", FILE_BYTES),
    ("mixed", FILE_BYTES),
    ("random", FILE_BYTES),
    ("streams", STREAMS * FILE_BYTES),
    ("apart0", FILE_BYTES),
    ("apart1", FILE_BYTES),
    ("apart2", FILE_BYTES),
    ("apart3", FILE_BYTES),
    ("long", LONG_BYTES),
    ("compute", LONG_BYTES),
    ("again", FILE_BYTES),
];
