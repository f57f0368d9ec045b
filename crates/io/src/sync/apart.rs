//! Apart: values that threads write to, away from what others only read.
//!
//! Owns: their place in memory.
//! Does not own: the values.

use std::ops::Deref;

/// A value in cache lines of its own: each write takes a line away from all other processors, which then wait for whatever else is in it.
/// Two lines, because processors fetch them in pairs.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
