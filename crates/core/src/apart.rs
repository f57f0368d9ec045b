//! Apart: arrays of atomics that miri is quick with.
//!
//! Each reference to an array, and each call that passes one on, takes miri a step for each atomic in it: some seconds for a page that is
//! looked up. Under miri the array holds boxes instead, which a reference to it does not lead into.
//!
//! Owns: the choice.
//! Does not own: the arrays.

/// An element of a large array.
#[cfg(not(miri))]
pub(crate) type Apart<T> = T;

/// As above.
#[cfg(miri)]
pub(crate) type Apart<T> = alloc::boxed::Box<T>;

/// Makes one.
pub(crate) fn apart<T>(value: T) -> Apart<T> {
    #[cfg(miri)]
    let value = alloc::boxed::Box::new(value);
    value
}
