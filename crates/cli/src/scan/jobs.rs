//! Jobs: the files to read, from a walk or from lists of sums.
//!
//! Owns: the order; reading lists.
//! Does not own: the form of a line (`lines`), what is below a directory (`walk`).

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use os_display::Quotable;

use super::digest::{Algorithm, Hasher};
use super::lines;
use super::walk::{STANDARD_INPUT, Subject, Unreached, Walk};
use crate::shared::complain::complain;
use crate::shared::standard;

/// A file to read.
pub(super) struct Job {
    pub(super) subject: Result<Subject, Unreached>,
    /// With --check: the sum of the list.
    pub(super) expected: Option<String>,
}

pub(super) enum Jobs {
    Walk(Walk),
    Listed(std::vec::IntoIter<(String, PathBuf)>),
}

impl Jobs {
    /// Symbolic links and special files so far.
    pub(super) fn skipped(&self) -> u64 {
        match self {
            Jobs::Walk(walk) => walk.skipped(),
            Jobs::Listed(_) => 0,
        }
    }
}

impl Iterator for Jobs {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        match self {
            Jobs::Walk(walk) => walk.next().map(|subject| Job { subject, expected: None }),
            Jobs::Listed(lines) => {
                lines.next().map(|(sum, path)| Job { subject: Ok(Subject::named(path)), expected: Some(sum) })
            }
        }
    }
}

/// The contents of lists of sums, and counts of their errors.
pub(super) struct Listed {
    pub(super) sums: Vec<(String, PathBuf)>,
    /// Malformed lines of lists that have well-formed ones, too.
    pub(super) malformed_lines: u64,
    /// Lists that could not be read, or have no well-formed line; their errors are printed already.
    pub(super) failed_lists: u64,
}

impl Listed {
    /// Reads all lists; prints an error for each that is unusable.
    pub(super) fn read(paths: &[PathBuf], algorithm: Algorithm) -> Listed {
        let mut listed = Listed { sums: Vec::new(), malformed_lines: 0, failed_lists: 0 };
        for path in paths {
            if let Err(text) = listed.add(path, algorithm) {
                complain(text);
                listed.failed_lists += 1;
            }
        }
        listed
    }

    /// Reads one list.
    ///
    /// # Errors
    /// If it cannot be read, or has no well-formed line.
    pub(super) fn add(&mut self, path: &Path, algorithm: Algorithm) -> Result<(), String> {
        let shown = path.maybe_quote();
        let text = read_list(path).map_err(|error| format!("failed to read {shown}: {error}"))?;
        let (before, mut malformed_lines) = (self.sums.len(), 0);
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#');
        for line in lines {
            match lines::parse(line, algorithm) {
                Some(sum) => self.sums.push(sum),
                None => malformed_lines += 1,
            }
        }
        if self.sums.len() == before {
            let name = algorithm.name();
            return Err(format!(
                "{shown} has no line with a sum of {name} and a name (--hash chooses another)"
            ));
        }
        self.malformed_lines += malformed_lines;
        Ok(())
    }

    /// The algorithm of the sums, if it is not `algorithm` but another with sums of the same length. Method: hashes a small file
    /// near the start of the list.
    pub(super) fn other_algorithm(&self, algorithm: Algorithm) -> Option<Algorithm> {
        let others = Algorithm::value_variants().iter().copied();
        let mut others = others.filter(|other| *other != algorithm && other.digits() == algorithm.digits());
        let length =
            |path: &Path| std::fs::metadata(path).ok().filter(Metadata::is_file).map(|file| file.len());
        let first =
            self.sums.iter().take(PROBED_FILES).filter_map(|(sum, path)| Some((length(path)?, sum, path)));
        let (_, sum, path) = first.min().filter(|(length, ..)| *length <= PROBED_BYTES_MAX)?;
        let bytes = std::fs::read(path).ok()?;
        let is_of = |algorithm| {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(&bytes);
            hasher.finish() == *sum
        };
        if is_of(algorithm) { None } else { others.find(|other| is_of(*other)) }
    }
}

/// How many files at the start of the list are considered; the smallest is hashed.
const PROBED_FILES: usize = 16;

/// The largest file that is hashed for that, within some hundredths of a second.
const PROBED_BYTES_MAX: u64 = 64 << 20;

fn read_list(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if path == Path::new(STANDARD_INPUT) {
        standard::input()?.take(LIST_BYTES_MAX).read_to_end(&mut text)?;
    } else {
        File::open(path)?.take(LIST_BYTES_MAX).read_to_end(&mut text)?;
    }
    if text.len() as u64 == LIST_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a list of sums has less than 1 GiB"));
    }
    Ok(text)
}

/// The longest list, some 8 million lines: `/dev/zero` would never end.
const LIST_BYTES_MAX: u64 = 1 << 30;
