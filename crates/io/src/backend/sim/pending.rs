//! Pending: requests that the simulated device has, and which of them is next.
//!
//! Owns: order and delays, by its random numbers.
//! Does not own: carrying a request out (sim), which files are held (control).

use super::calls::SimWait;
use super::control::SimControl;
use super::record::Ticket;
use crate::file::FileKey;
use crate::request::slot_table::SlotId;

/// All requests of the device.
pub(super) struct State {
    pub(super) random: u64,
    pub(super) pending: Vec<Pending>,
}

/// A request that is not done.
pub(super) struct Pending {
    pub(super) id: SlotId,
    pub(super) delay_steps: u32,
    /// Its entry in the log.
    pub(super) ticket: Option<Ticket>,
    pub(super) wait: Option<SimWait>,
    /// A transfer of this file, which was held when it began.
    pub(super) held: Option<FileKey>,
}

impl Pending {
    pub(super) fn is_held(&self, control: &SimControl) -> bool {
        self.held.is_some_and(|file| control.holds(file))
    }
}

impl State {
    pub(super) fn choose(&mut self, control: &SimControl) -> Option<Pending> {
        if self.pending.iter().all(|pending| pending.is_held(control)) {
            return None;
        }
        self.pending
            .iter_mut()
            .for_each(|pending| pending.delay_steps = pending.delay_steps.saturating_sub(1));
        let is_ready = |pending: &Pending| pending.delay_steps == 0 && !pending.is_held(control);
        let ready = self.pending.iter().filter(|pending| is_ready(pending)).count() as u64;
        let nth = if ready == 0 { return self.choose(control) } else { self.below(ready) as usize };
        let ready = self.pending.iter().enumerate().filter(|(_, pending)| is_ready(pending));
        let (place, _) = ready.into_iter().nth(nth)?;
        Some(self.pending.swap_remove(place))
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // splitmix64 (Steele, Lea, Flood 2014): small, seedable, good enough to shuffle.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}
