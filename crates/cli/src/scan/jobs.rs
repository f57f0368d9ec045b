//! Jobs: the files to read, from a walk or from lists of sums.
//!
//! Owns: the order; what becomes of the sums of lists.
//! Does not own: what is below a directory (`walk`), reading lists (`listed`).

use super::listed::{Faults, Listed};
use super::walk::{Subject, Unreached, Walk};

/// A file to read.
pub(super) struct Job {
    pub(super) subject: Result<Subject, Unreached>,
    /// With --check: the sum of the list.
    pub(super) expected: Option<String>,
}

pub(super) enum Jobs {
    Walk(Walk),
    Listed(Box<Listed>),
}

impl Jobs {
    /// Symbolic links and special files so far.
    pub(super) fn skipped(&self) -> u64 {
        match self {
            Jobs::Walk(walk) => walk.skipped(),
            Jobs::Listed(_) => 0,
        }
    }

    /// What was wrong with lists.
    pub(super) fn into_faults(self) -> Faults {
        match self {
            Jobs::Walk(_) => Faults::default(),
            Jobs::Listed(listed) => listed.into_faults(),
        }
    }
}

impl Iterator for Jobs {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        match self {
            Jobs::Walk(walk) => walk.next().map(|subject| Job { subject, expected: None }),
            Jobs::Listed(listed) => listed
                .next()
                .map(|(sum, path)| Job { subject: Ok(Subject::named(path)), expected: Some(sum) }),
        }
    }
}
