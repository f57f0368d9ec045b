//! Live: memory for windows, on the kernel that this runs on.
//!
//! Owns: one module for each thing that the memory does.
//! Does not own: access to single bytes, which the crate's own tests hold against an array.

mod accessing;
mod filling;
mod forks;
mod measured;
mod tracking;

use headwater_core::units::PAGE_BYTES;
use headwater_io::{LiveMemory, live_support};
use headwater_testkit::skip;

/// Memory, where the kernel offers it.
fn live_memory(bytes: usize) -> Option<LiveMemory> {
    match live_support() {
        Ok(()) => Some(LiveMemory::new(bytes).expect("the kernel has all that is needed")),
        Err(reason) => {
            skip(reason);
            None
        }
    }
}

fn bytes_of(memory: &LiveMemory, at_bytes: usize, length_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; length_bytes];
    memory.read(at_bytes, &mut bytes).unwrap();
    bytes
}
const HUGE_BYTES: usize = 2 << 20;
