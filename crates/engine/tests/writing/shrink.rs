//! Shrink: a list of operations that fails, made shorter while it still does.
//!
//! Takes out halves, then quarters, down to single operations (Zeller and Hildebrandt, "Simplifying and isolating
//! failure-inducing input", 2002, without its complements).
//!
//! Owns: which lists are tried, and when it is enough.
//! Does not own: what fails.

use std::time::{Duration, Instant};

/// The shortest list found for which `fails` is true; `items` must fail.
pub(crate) fn shorten<T: Clone>(items: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let (mut items, end) = (items.to_vec(), Instant::now() + PATIENCE);
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let before = items.len();
        // From the end: what comes last needs what came before.
        for start in (0..items.len()).step_by(size).rev() {
            let mut fewer = items.clone();
            fewer.drain(start..(start + size).min(items.len()));
            if Instant::now() < end && fails(&fewer) {
                items = fewer;
            }
        }
        if size > 1 || items.len() == before {
            size /= 2;
        }
    }
    items
}

/// Less than what a hang is given: the list that failed is printed in any case.
const PATIENCE: Duration = Duration::from_secs(40);

#[cfg(test)]
mod tests {
    use super::shorten;

    /// Goal: what does not matter is gone, what does stays in its order.
    #[test]
    fn only_what_matters_is_left() {
        let items: Vec<u32> = (0..500).collect();
        let found = shorten(&items, |items| [17, 33, 480].iter().all(|item| items.contains(item)));
        assert_eq!(found, [17, 33, 480]);
        assert_eq!(shorten(&items, |_| true), [0_u32; 0]);
    }
}
