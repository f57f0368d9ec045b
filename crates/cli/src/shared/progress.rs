//! Progress: what the progress bars of all commands share.

use std::time::Duration;

use indicatif::ProgressStyle;

/// The style of a bar. Without colours, so that `NO_COLOR` (no-color.org) changes nothing.
///
/// # Panics
/// If the template is malformed.
pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
}

/// Bytes done of all bytes, the rate, the time left, and as much of a message as the terminal has room for: 60 columns hold all else.
pub(crate) const BYTES: &str =
    "{bar:12} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left {wide_msg}";

/// Work that ends sooner shows no bar.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
