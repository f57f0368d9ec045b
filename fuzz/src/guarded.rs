//! Guarded: buffers that end, or begin, where nothing may be read or written.
//!
//! ```text
//!   PROT_NONE │ Side::Begin ─►  …  ◄─ Side::End │ PROT_NONE
//! ```
//!
//! A store beyond the buffer is a SIGSEGV on the spot; a system call that reaches beyond it fails with EFAULT.

#![allow(unsafe_code)]

use arbitrary::Arbitrary;
use headwater_core::units::PAGE_BYTES;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

/// Which end of a buffer lies at a guard page.
#[derive(Arbitrary, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The first byte.
    Begin,
    /// The last byte.
    End,
}

/// Memory between two guard pages, mapped for as long as the process runs.
pub struct Guarded {
    bytes: &'static mut [u8],
}

impl Guarded {
    /// Memory of `pages` pages.
    pub fn new(pages: usize) -> Guarded {
        let (none, length) = (ProtFlags::empty(), pages * PAGE_BYTES);
        // SAFETY: the kernel places a new mapping where nothing is.
        let raw =
            unsafe { mmap_anonymous(std::ptr::null_mut(), length + 2 * PAGE_BYTES, none, MapFlags::PRIVATE) };
        let base = raw.expect("there is address space").cast::<u8>().wrapping_add(PAGE_BYTES);
        // SAFETY: all pages but the first and the last of the mapping just made.
        unsafe { mprotect(base.cast(), length, MprotectFlags::READ | MprotectFlags::WRITE) }
            .expect("the mapping is private");
        // SAFETY: these pages are mapped, zero, never unmapped, and known here alone.
        Guarded { bytes: unsafe { std::slice::from_raw_parts_mut(base, length) } }
    }

    /// A buffer of `length` bytes, at most all of them, filled with `fill`.
    pub fn buffer(&mut self, length: usize, side: Side, fill: u8) -> &mut [u8] {
        let length = length.min(self.bytes.len());
        let start = match side {
            Side::Begin => 0,
            Side::End => self.bytes.len() - length,
        };
        let buffer = &mut self.bytes[start..start + length];
        buffer.fill(fill);
        buffer
    }
}

/// Fails if an error says that the kernel was told of memory that is not there.
///
/// # Panics
/// Then.
pub fn check_fault(error: &std::io::Error) {
    assert_ne!(error.raw_os_error(), Some(EFAULT), "the kernel was to reach beyond a buffer");
}

const EFAULT: i32 = 14;
