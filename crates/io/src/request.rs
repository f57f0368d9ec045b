//! Request: one positioned transfer between a file and frame memory, and what became of it.
//!
//! Owns: the frame memory while the transfer is under way, and a share of the file so that its descriptor stays open.
//! Does not own: the slot that it occupies.
//! Invariants: I1, I4: the extents are inside the request from submission to completion.

use std::io;
use std::sync::Arc;

use crate::arena::Extents;
use crate::file::{OpenFile, Route};
use crate::sys::Operation;

/// One transfer to be done.
#[derive(Debug)]
pub struct Request {
    /// Direction.
    pub operation: Operation,
    /// The file.
    pub file: Arc<OpenFile>,
    /// Which of its descriptors.
    pub route: Route,
    /// First byte in the file.
    pub offset_bytes: u64,
    /// Bytes to transfer; no more than the extents hold together, and at most 2 GiB.
    pub length_bytes: usize,
    /// The memory, in file order.
    pub extents: Extents,
}

/// A transfer that the kernel is done with.
#[derive(Debug)]
pub struct Finished {
    /// The memory, back from the driver.
    pub extents: Extents,
    /// Bytes transferred. Fewer than asked means that the file ended there, unless `stopped_by` tells otherwise.
    pub result: io::Result<usize>,
    /// Why the bytes beyond those transferred were not.
    pub stopped_by: Option<io::Error>,
}

impl Request {
    /// Asserts what the kernel or the driver would otherwise trip over later.
    pub(crate) fn check(&self) {
        let capacity_bytes: usize = self.extents.iter().map(|extent| extent.len()).sum();
        assert!(self.length_bytes > 0, "a request transfers at least one byte");
        assert!(self.length_bytes <= capacity_bytes, "a request fits its extents");
        assert!(i64::try_from(self.offset_bytes).is_ok(), "file offsets are below 2^63");
        assert!(
            self.route == Route::Buffered || self.file.direct().is_some(),
            "the file has a direct descriptor"
        );
    }
}
