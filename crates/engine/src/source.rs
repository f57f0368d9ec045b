//! Source: an open file as the reading code sees it.
//!
//! Owns: the descriptors, the path for error texts, the I/O mode, a share of the engine.
//! Does not own: positions and what is in flight (the readers').

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{OpenFile, RejectReason, Residency, Route};

use crate::engine::{Engine, Shared};
use crate::error::{Error, Operation, Result};

/// How bytes come from the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoMode {
    /// What the kernel's page cache holds is taken from there, the rest is read directly where the file system allows
    /// it. The page cache is left as it is.
    #[default]
    Auto,
    /// Always directly (`O_DIRECT`). Opening fails where the file system does not allow it.
    Direct,
    /// Always through the kernel's page cache.
    Buffered,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) open: Arc<OpenFile>,
    pub(crate) path: PathBuf,
    pub(crate) mode: IoMode,
    pub(crate) engine: Engine,
}

impl Source {
    pub(crate) fn shared(&self) -> &Shared {
        &self.engine.shared
    }

    /// Nothing of a parent's engine works in its child, not even waiting.
    pub(crate) fn check_process(&self, offset_bytes: u64) -> Result<()> {
        if !self.shared().driver.is_forked() {
            return Ok(());
        }
        Err(self.read_error(offset_bytes, RejectReason::Forked.into()))
    }

    /// The route for what the page cache does not hold.
    pub(crate) fn device_route(&self) -> Route {
        if self.open.direct().is_some() { Route::Direct } else { Route::Buffered }
    }

    /// What offsets and lengths on the device route are rounded to.
    pub(crate) fn offset_alignment(&self) -> Alignment {
        self.open.direct().map_or(Alignment::ONE, |direct| direct.offset)
    }

    /// Takes what the page cache holds of the range; `None` when nothing is known to be there.
    pub(crate) fn read_if_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<Option<usize>> {
        match self.mode {
            IoMode::Direct => Ok(None),
            IoMode::Auto | IoMode::Buffered => self
                .open
                .read_if_resident(buffer, offset_bytes)
                .map_err(|error| self.read_error(offset_bytes, error)),
        }
    }

    /// The same for a range that [`Source::is_resident`] said is there. `None` too where the page cache gives no bytes or
    /// an error: the device is asked next, and its answer is the one that counts.
    pub(crate) fn read_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> Option<usize> {
        self.open.read_resident(buffer, offset_bytes).ok().flatten().filter(|&read_bytes| read_bytes > 0)
    }

    pub(crate) fn is_resident(&self, range: ByteRange) -> bool {
        self.mode != IoMode::Direct && self.open.residency(range) == Residency::Whole
    }

    pub(crate) fn length_bytes(&self) -> Result<u64> {
        self.open.length_bytes().map_err(|error| Error::on_file(Operation::Length, &self.path, error))
    }

    pub(crate) fn read_error(&self, offset_bytes: u64, error: io::Error) -> Error {
        self.error(Operation::Read, offset_bytes, error)
    }

    pub(crate) fn error(&self, operation: Operation, offset_bytes: u64, error: io::Error) -> Error {
        Error::at(operation, &self.path, offset_bytes, error)
    }
}

/// The largest offset that files have.
pub(crate) const OFFSET_BYTES_MAX: u64 = i64::MAX as u64;

/// Where reading ends in any file. The last page of offsets is left out, so that rounding up stays addressable.
pub(crate) const READABLE_BYTES_MAX: u64 = OFFSET_BYTES_MAX / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
