//! Jobs: what there is to read, from a walk or from lists of sums.
//!
//! Owns: the order; reading lists.
//! Does not own: the form of a line (`lines`), what is below a directory (`walk`).

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use os_display::Quotable;

use super::digest::Algorithm;
use super::lines;
use super::walk::{STANDARD_INPUT, Subject, Unreached, Walk};
use crate::complain;

/// One file.
pub(super) struct Job {
    pub(super) subject: Result<Subject, Unreached>,
    /// What its sum should be.
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

/// What lists of sums name, and what was wrong with them.
pub(super) struct Listed {
    pub(super) sums: Vec<(String, PathBuf)>,
    /// Beside others that were well-formed.
    pub(super) malformed_lines: u64,
    /// Lists that could not be read, or had no line of the form; told already.
    pub(super) failed_lists: u64,
}

impl Listed {
    /// Reads all lists; complains of those that are of no use.
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

    fn add(&mut self, path: &Path, algorithm: Algorithm) -> Result<(), String> {
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
}

fn read_list(path: &Path) -> io::Result<Vec<u8>> {
    if path != Path::new(STANDARD_INPUT) {
        return std::fs::read(path);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}
