//! Matrix: the drivers that a test runs on, and their product with the file systems of this machine.
//!
//! ```text
//!   with_uring: threads, sim, … ─┬─ a ring is granted ─► uring too
//!                                └─ refused ─► skip
//!   on_each: scratch_dirs × drivers ─► name of the file system, a directory for the pair, driver
//! ```
//!
//! Owns: the product, the skip of a missing driver.
//! Does not own: file systems (scratch); drivers, of which this crate knows none, so that the crate of the drivers can use it.

use std::fmt::Display;
use std::sync::Arc;

use crate::scratch::{ScratchDir, scratch_dirs};
use crate::skip::skip;

/// `drivers`, and `uring` unless `refusal` says why this process gets no ring, which goes through [`skip`].
#[must_use]
pub fn with_uring<D>(drivers: impl Into<Vec<D>>, uring: D, refusal: Option<impl Display>) -> Vec<D> {
    let mut drivers = drivers.into();
    match refusal {
        None => drivers.push(uring),
        Some(reason) => skip(format!("uring: {reason}")),
    }
    drivers
}

/// Each file system of [`scratch_dirs`] with each driver: the file system's name, an empty directory, the driver.
pub fn on_each<D: Clone>(drivers: Vec<D>) -> impl Iterator<Item = (&'static str, ScratchDir, D)> {
    scratch_dirs().into_iter().flat_map(move |(name, place)| {
        let place = Arc::new(place);
        drivers.clone().into_iter().map(move |driver| (name, ScratchDir::within(&place), driver))
    })
}

#[cfg(test)]
mod tests {
    use super::{on_each, with_uring};

    /// Goal: each driver gets an empty directory on each file system, and nothing stays. Method: two drivers, a file in each.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn every_pair_has_a_directory() {
        let drivers = with_uring(["threads"], "uring", None::<&str>);
        let mut pairs = Vec::new();
        for (name, directory, driver) in on_each(drivers) {
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{driver} on {name}");
            std::fs::write(directory.path().join("file"), driver).unwrap();
            pairs.push((name, driver, directory.path().to_owned()));
        }
        assert!(pairs.chunks(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1), "{pairs:?}");
        assert!(pairs.iter().all(|(.., path)| !path.exists()), "{pairs:?}");
    }
}
