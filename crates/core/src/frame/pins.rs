//! Pins: a page that is pinned, pinned once more.

use super::{Frame, PIN, PINS, PINS_MAX, PINS_SHIFT, is_loading};
use crate::sync::Ordering;

impl Frame {
    /// Adds a pin to that of the caller, unless the page has `pins_max` by now. Says nothing about the use of the page.
    ///
    /// Panics if it is not pinned.
    pub fn pin_again(&self, pins_max: u32) -> bool {
        let pins_max = pins_max.min(PINS_MAX);
        let added = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            assert!(!is_loading(word) && word & PINS != 0, "the caller has pinned it");
            (word & PINS < u64::from(pins_max) << PINS_SHIFT).then_some(word + PIN)
        });
        added.is_ok()
    }
}
