//! Slots: a table of parts that come one by one, of which only the beginning and what is used takes memory.
//!
//! ```text
//!   number ─┬─ below 1024 ─► near ─► part
//!           └─ else ─► far: groups of 512, made when a part of them is ─► part
//! ```
//!
//! The memory of a cache may grow to all that the machine has, and how far it will is not known at the start. With one table for all of
//! that, an engine on a machine of 1 TiB would begin with 40 MiB of empty slots. The near ones are there from the start, and
//! found without a look at another table: caches of some gibibytes need no others.
//!
//! Owns: where a part is.
//! Does not own: what a part is, and when it is made.
//! Locks: none; threads may race to make a part or a group, the first one's stays.
//! Hot path: `get` of a near part: one comparison, one load.

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use once_cell::race::OnceBox;

/// Parts with numbers from 0 up to a largest one.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    near: Box<[OnceBox<T>]>,
    far: Box<[OnceBox<Group<T>>]>,
    count_max: usize,
}

type Group<T> = [OnceBox<T>; GROUP];

impl<T> Slots<T> {
    /// Room for this many parts, none of which is there.
    pub(crate) fn new(count_max: usize) -> Self {
        let groups = count_max.saturating_sub(NEAR).div_ceil(GROUP);
        Self { near: empty(count_max.min(NEAR)), far: empty(groups), count_max }
    }

    /// Parts at most.
    pub(crate) fn count_max(&self) -> usize {
        self.count_max
    }

    /// The part, if it is there.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        match self.near.get(number) {
            Some(slot) => slot.get(),
            None => self.get_far(number - self.near.len()),
        }
    }

    fn get_far(&self, number: usize) -> Option<&T> {
        self.far.get(number / GROUP)?.get()?[number % GROUP].get()
    }

    /// Puts a part in its place. Gives it back if there is one already.
    ///
    /// # Errors
    /// When there is no memory for its group.
    ///
    /// # Panics
    /// If there can be no such part.
    pub(crate) fn set(&self, number: usize, part: Box<T>) -> Result<(), TryReserveError> {
        assert!(number < self.count_max, "part {number} is one of {}", self.count_max);
        let slot = match self.near.get(number) {
            Some(slot) => slot,
            None => {
                let far = number - self.near.len();
                &self.group(far / GROUP)?[far % GROUP]
            }
        };
        // Another thread may have been first; then this one goes.
        let _ = slot.set(part);
        Ok(())
    }

    /// The parts there are, and their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let groups = self.far.iter().enumerate().filter_map(|(group, slots)| Some((group, slots.get()?)));
        let far = groups.flat_map(|(group, slots)| {
            slots.iter().enumerate().map(move |(place, slot)| (NEAR + group * GROUP + place, slot))
        });
        let slots = self.near.iter().enumerate().chain(far);
        slots.filter_map(|(number, slot)| Some((number, slot.get()?)))
    }

    /// Memory of the table, without that of the parts.
    pub(crate) fn table_bytes(&self) -> usize {
        let groups = self.far.iter().filter(|group| group.get().is_some()).count();
        size_of_val(&*self.near) + size_of_val(&*self.far) + groups * size_of::<Group<T>>()
    }

    fn group(&self, group: usize) -> Result<&Group<T>, TryReserveError> {
        self.far[group].get_or_try_init(|| {
            let mut slots = Vec::new();
            slots.try_reserve_exact(GROUP)?;
            slots.resize_with(GROUP, OnceBox::new);
            Ok(slots.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("as many as were made")))
        })
    }
}

fn empty<T>(count: usize) -> Box<[OnceBox<T>]> {
    (0..count).map(|_| OnceBox::new()).collect()
}

/// 8 KiB: the frames of 2 GiB; the leaves of 4 GiB of files that are cached in order.
const NEAR: usize = 1024;

/// 4 KiB: the frames of 1 GiB.
const GROUP: usize = 512;

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use alloc::vec;

    use super::*;

    /// Goal: each part is found under its number, near or far, and the first one stays. Method: the edges of tables and groups, of
    /// tables that end anywhere.
    #[test]
    fn parts_are_found() {
        for count_max in [1, NEAR - 1, NEAR, NEAR + 1, NEAR + GROUP, NEAR + 2 * GROUP + 7] {
            let slots = Slots::new(count_max);
            let edges = [0, 1, NEAR - 1, NEAR, NEAR + GROUP - 1, NEAR + GROUP, count_max - 1];
            let mut numbers: Vec<usize> = edges.into_iter().filter(|number| *number < count_max).collect();
            numbers.sort_unstable();
            numbers.dedup();
            for &number in &numbers {
                assert_eq!(slots.get(number), None);
                slots.set(number, Box::new(number)).unwrap();
                slots.set(number, Box::new(usize::MAX)).unwrap();
                assert_eq!(slots.get(number), Some(&number));
            }
            let found: Vec<usize> = slots
                .iter()
                .map(|(number, part)| {
                    assert_eq!(number, *part);
                    number
                })
                .collect();
            assert_eq!((found, slots.count_max()), (numbers, count_max));
            assert_eq!(slots.get(count_max), None);
        }
    }

    /// Goal: what is not used takes no memory: the table of a cache that may grow to 4 TiB begins with some tens of kibibytes.
    #[test]
    fn tables_grow_with_use() {
        let slots: Slots<u64> = Slots::new(2 << 20);
        assert!(slots.table_bytes() < 48 << 10);
        slots.set(1 << 20, Box::new(7)).unwrap();
        assert!(slots.table_bytes() < 52 << 10);
        assert_eq!(vec![(1 << 20, &7)], slots.iter().collect::<Vec<_>>());
    }
}
