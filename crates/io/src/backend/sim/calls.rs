//! Calls: what the simulated device makes of calls that move no bytes, and how long waits last by its clock.
//!
//! Owns: which calls the device's space and its log know; the end of waits.
//! Does not own: the order of requests (sim), making the calls (`system`).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use headwater_core::units::ByteRange;

use super::Sim;
use super::record::{DeviceEvent, Recording, Ticket};
use crate::file::FileKey;
use crate::request::slot_table::SlotId;
use crate::system::calls::{SystemCall, monotonic};

/// A request that lasts as long as something else pleases.
#[derive(Clone, Copy)]
pub(super) struct SimWait {
    pub(super) call: SystemCall,
    /// When a timeout is over, by the driver's clock.
    pub(super) due: Option<Duration>,
}

impl Sim {
    pub(super) fn due(&self, call: &SystemCall) -> Option<Duration> {
        let SystemCall::Timeout { time, .. } = call else { return None };
        Some(self.clock().saturating_add(*time))
    }

    pub(super) fn clock(&self) -> Duration {
        monotonic() + self.ahead()
    }

    /// The result of a wait that is over.
    ///
    /// # Safety
    /// The caller is the driver of this request.
    pub(super) unsafe fn look_at(&self, id: SlotId, wait: SimWait) -> Option<io::Result<usize>> {
        if self.slots.may_end_early(id) {
            return Some(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
        }
        if let Some(due) = wait.due {
            return (self.clock() >= due).then_some(Ok(0));
        }
        // SAFETY: the slot keeps the descriptor open until it is told the result.
        match unsafe { wait.call.carry_out() } {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            result => Some(result),
        }
    }

    /// One call as this device does it: made, or not even begun.
    ///
    /// # Safety
    /// As for [`SystemCall::carry_out`].
    pub(super) unsafe fn attempt_call(&self, call: SystemCall, ticket: Option<Ticket>) -> io::Result<usize> {
        self.control().note_attempt();
        if self.draw_transient().is_err() {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        let SystemCall::Allocate { descriptor, mode, offset_bytes, length_bytes } = call else {
            // SAFETY: as the caller promises.
            return unsafe { call.carry_out() };
        };
        if !matches!(mode, 0 | libc::FALLOC_FL_KEEP_SIZE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let range = ByteRange::at(offset_bytes, length_bytes);
        // SAFETY: as the caller promises.
        let key = FileKey::of_descriptor(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
        self.control().admit_allocate(key, range)?;
        // SAFETY: as the caller promises.
        let result = unsafe { call.carry_out() };
        if result.is_ok() {
            self.control().note_allocate(key, range);
            self.control().note(ticket, Recording::end);
        }
        result
    }
}

/// Of calls, only space that is set aside below the file's new end changes what a crash leaves of a file's contents.
///
/// # Safety
/// The descriptor is open.
pub(super) unsafe fn describe_call(call: &SystemCall) -> io::Result<Option<DeviceEvent>> {
    let SystemCall::Allocate { descriptor, mode: 0, offset_bytes, length_bytes } = *call else {
        return Ok(None);
    };
    // SAFETY: as the caller promises.
    let file = FileKey::of_descriptor(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
    let range = ByteRange::at(offset_bytes, length_bytes);
    Ok(Some(DeviceEvent::Allocate { file, range, began: 0, ended: None }))
}
