//! Candidates: the algorithms that sums may be of, until one of them agrees with a file.
//!
//! ```text
//!   --hash, a tag, the first files ─► one ───────────────────────────────► each file is hashed with it
//!   only the number of digits ─► several ─► each file is hashed with all ─► the first that agrees shows which it is
//! ```
//!
//! A file that agrees with none of several has changed, whichever it is.
//!
//! Owns: which there are, the hashes of one file.
//! Does not own: how many threads hash, the lists (`listed`).

use std::sync::OnceLock;

use super::digest::{Algorithm, Hasher};

pub(super) struct Candidates {
    /// Empty if nothing is hashed.
    algorithms: Vec<Algorithm>,
    /// The one that was asked for, if others are looked at.
    wanted: Option<Algorithm>,
    found: OnceLock<Algorithm>,
}

/// The sums of one file, each by another algorithm.
pub(super) type Sums = Vec<(Algorithm, String)>;

impl Candidates {
    pub(super) fn new(algorithms: impl IntoIterator<Item = Algorithm>) -> Candidates {
        Candidates { algorithms: algorithms.into_iter().collect(), wanted: None, found: OnceLock::new() }
    }

    /// The same, of which one was asked for.
    pub(super) fn wanting(self, wanted: Option<Algorithm>) -> Candidates {
        Candidates { wanted, ..self }
    }

    /// One sentence for the user, if a file agrees by another algorithm than the one that was asked for.
    pub(super) fn refused(&self) -> Option<String> {
        let (found, wanted) = (self.found.get()?, self.wanted?);
        (*found != wanted).then(|| of_another(*found, wanted))
    }

    /// Those that are left.
    pub(super) fn left(&self) -> &[Algorithm] {
        self.found.get().map_or(&self.algorithms, std::slice::from_ref)
    }

    /// The algorithm, or while there are several the first; `None` if nothing is hashed.
    pub(super) fn first(&self) -> Option<Algorithm> {
        self.left().first().copied()
    }

    pub(super) fn hashers(&self) -> Hashers {
        Hashers(self.left().iter().map(|&algorithm| (algorithm, Hasher::new(algorithm))).collect())
    }

    /// Whether one of a file's sums is the expected one, which leaves its algorithm alone. Files come in their order, so that the order in
    /// which they were read makes no difference.
    pub(super) fn agrees(&self, sums: &Sums, expected: &str) -> bool {
        let left = self.left();
        let found = sums.iter().find(|(algorithm, sum)| sum == expected && left.contains(algorithm));
        found.is_some_and(|(algorithm, _)| self.found.get_or_init(|| *algorithm) == algorithm)
    }

    /// The sum by [`Candidates::first`].
    pub(super) fn sum_in(&self, sums: Sums) -> Option<String> {
        let first = self.first();
        sums.into_iter().find(|(algorithm, _)| Some(*algorithm) == first).map(|(_, sum)| sum)
    }
}

/// The error of sums that are of another algorithm than `wanted`.
pub(super) fn of_another(found: Algorithm, wanted: Algorithm) -> String {
    let (name, option) = (found.name(), found.argument());
    format!("the sums are of {name}, not of {}: check them with --hash {option}", wanted.name())
}

/// The hashes of one file, being computed.
pub(super) struct Hashers(Vec<(Algorithm, Hasher)>);

impl Hashers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Hasher> {
        self.0.iter_mut().map(|(_, hasher)| hasher)
    }

    pub(super) fn finish(self) -> Sums {
        self.0.into_iter().map(|(algorithm, hasher)| (algorithm, hasher.finish())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the first sum that agrees shows the algorithm: later ones of another do not agree, also if they were computed before.
    #[test]
    fn the_first_agreement_decides() {
        let candidates = Candidates::new([Algorithm::Blake3, Algorithm::Sha256]);
        let sums = vec![(Algorithm::Blake3, "b".to_owned()), (Algorithm::Sha256, "s".to_owned())];
        assert!(!candidates.agrees(&sums, "x"));
        assert_eq!((candidates.left().len(), candidates.first()), (2, Some(Algorithm::Blake3)));
        assert!(candidates.agrees(&sums, "s"));
        assert_eq!(candidates.left(), [Algorithm::Sha256]);
        assert!(!candidates.agrees(&sums, "b"));
        assert_eq!(candidates.sum_in(sums).as_deref(), Some("s"));
        assert_eq!(candidates.hashers().finish().len(), 1);
        assert!(Candidates::new(None).hashers().is_empty());
    }
}
