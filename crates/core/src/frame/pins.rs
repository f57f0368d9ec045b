//! Pins: a page that is pinned, pinned once more; how many pins there are, and that they are of pages with bytes.

use super::{AHEAD, FREE, FRESH, Frame, PIN, PINS, PINS_MAX, PINS_SHIFT, STATE, WRITING, is_loading};
use crate::sync::Ordering;

impl Frame {
    /// Adds a pin to that of the caller, unless the page has `pins_max` by now. Says nothing about the use of the page.
    ///
    /// # Panics
    /// If the caller has no pin.
    pub fn pin_again(&self, pins_max: u32) -> bool {
        let pins_max = pins_max.min(PINS_MAX);
        let added = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            assert!(!is_loading(word) && word & PINS != 0, "the caller has pinned it");
            (word & PINS < u64::from(pins_max) << PINS_SHIFT).then_some(word + PIN)
        });
        added.is_ok()
    }

    /// Readers that have it pinned.
    pub fn pins(&self) -> u32 {
        let word = self.word.load(Ordering::Acquire);
        if is_loading(word) { 0 } else { ((word & PINS) >> PINS_SHIFT) as u32 }
    }

    /// Asserts F1 and that the word has no other bits.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        let word = self.word.load(Ordering::Acquire);
        assert!(word & (FRESH | AHEAD) != FRESH | AHEAD, "a page is demanded, or a guess");
        let may_be_pinned = !matches!(word & STATE, FREE | WRITING);
        assert!(word & PINS == 0 || may_be_pinned, "F1: pinned in a state without bytes to read");
    }
}
