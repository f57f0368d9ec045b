//! Heap: how much of the allocator's memory is in use, without what it keeps for later.
//!
//! What glibc keeps grows for an hour when many threads allocate, up to a multiple of what is in use, and hides what leaks.
//!
//! Owns: two calls of glibc.
//! Does not own: other allocators.

/// Gives the system what the allocator keeps for later, so that the resident memory of the process says something, and returns the
/// bytes in use. `None` where the allocator is not glibc's.
#[must_use]
#[cfg(all(target_env = "gnu", not(miri)))]
pub fn trim_heap() -> Option<u64> {
    // SAFETY: takes the allocator's own locks, and gives back what nobody uses.
    unsafe { libc::malloc_trim(0) };
    // SAFETY: only looks.
    let info = unsafe { libc::mallinfo2() };
    Some((info.uordblks + info.hblkhd) as u64)
}

/// There is nothing to ask.
#[must_use]
#[cfg(not(all(target_env = "gnu", not(miri))))]
pub fn trim_heap() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is allocated is in use, and what is freed is not. Method: a process of its own, where no other test allocates.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn the_heap_is_seen() {
        const CHILD: &str = "HEADWATER_TESTKIT_HEAP";
        if std::env::var_os(CHILD).is_none() {
            let output = crate::run_self_with_env("heap::tests::the_heap_is_seen", CHILD, "1");
            return assert!(output.status.success(), "{output:?}");
        }
        let Some(before) = trim_heap() else { return };
        let pieces: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 10_000]).collect();
        let between = trim_heap().expect("it was there before");
        assert!(between > before + 9_000_000, "{before}, {between}");
        drop(pieces);
        let after = trim_heap().expect("it was there before");
        assert!(after < before + 5_000_000, "{before}, {between}, {after}");
    }
}
