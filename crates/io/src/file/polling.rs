//! Polling: whether a device supports polled I/O, and up to which request size.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;

use headwater_core::units::PAGE_BYTES;

/// Whether the device below a file completes polled I/O (`io_poll` in its queue's sysfs folder), the condition for
/// [`crate::Polling::Auto`] to make a difference.
///
/// # Errors
/// When the file has no metadata.
pub fn device_polls(path: &Path) -> io::Result<bool> {
    let metadata = std::fs::metadata(path)?;
    let is_device = metadata.file_type().is_block_device();
    Ok(queue_polled_bytes_max(if is_device { metadata.rdev() } else { metadata.dev() }) > 0)
}

/// The same, remembered: opening one small file after the other must not read sysfs for each. Does not wait for another thread, which a
/// forked child would do for ever.
pub(super) fn known_polled_bytes_max(device: u64) -> usize {
    let Ok(mut known) = KNOWN.try_lock() else { return queue_polled_bytes_max(device) };
    if let Some(&(_, bytes)) = known.iter().find(|(of, _)| *of == device) {
        return bytes;
    }
    let bytes = queue_polled_bytes_max(device);
    if known.len() < DEVICES_KNOWN_MAX {
        known.push((device, bytes));
    }
    bytes
}

static KNOWN: Mutex<Vec<(u64, usize)>> = Mutex::new(Vec::new());

/// More than a machine has file systems in use at once.
const DEVICES_KNOWN_MAX: usize = 64;

/// The largest request that the device takes whole, if it supports polling, else 0. The kernel does not poll for requests that it
/// has to split: Linux 6.1 (seen on 6.1.192, 1 MiB to an NVMe disk that takes 512 KiB) never completes it.
fn queue_polled_bytes_max(device: u64) -> usize {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = format!("/sys/dev/block/{major}:{minor}");
    let number = |queue: &str, name: &str| {
        std::fs::read_to_string(format!("{queue}/{name}")).ok().and_then(|text| text.trim().parse().ok())
    };
    // A partition has no queue of its own; its parent has.
    let queues = [format!("{folder}/queue"), format!("{folder}/../queue")];
    let Some(queue) = queues.iter().find(|queue| number(queue, "io_poll") == Some(1)) else { return 0 };
    let sectors_bytes = number(queue, "max_sectors_kb").unwrap_or(0) * 1024;
    let segments_bytes = number(queue, "max_segments").unwrap_or(0) * PAGE_BYTES;
    sectors_bytes.min(segments_bytes)
}

#[cfg(all(test, not(headwater_loom), not(miri)))]
mod tests {
    use headwater_testkit::run_forked;

    use super::*;
    use crate::sync::lock;

    /// Goal: an engine that a forked child makes for itself reads files, whatever the parent's threads were doing. Method: the lock is held
    /// while it forks.
    #[test]
    fn a_child_does_not_wait_for_a_thread_of_the_parent() {
        let held = lock(&KNOWN);
        run_forked(|| _ = known_polled_bytes_max(0));
        drop(held);
    }
}
