//! Progress: a bar for copies that take longer than a second.

use std::path::Path;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget};
use os_display::Quotable;

use crate::shared::progress::{BYTES, PATIENCE, style};

/// A callback that takes the number of bytes copied, or compared, since its last call.
pub(super) type OnCopied<'a> = &'a mut dyn FnMut(u64);

/// A bar that appears when the work has taken a second, if standard error is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
    is_hidden: bool,
}

impl Progress {
    /// A bar for `all_bytes` bytes, with the message `what path`.
    pub(super) fn new(what: &str, path: &Path, all_bytes: u64) -> Progress {
        // The bar counts from the start, hidden, so that its first rate is right.
        let bar = ProgressBar::with_draw_target(Some(all_bytes), ProgressDrawTarget::hidden());
        let bar = bar.with_style(style(BYTES)).with_message(format!("{what} {}", path.maybe_quote()));
        Progress { bar, started: Instant::now(), is_hidden: true }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.bar.inc(bytes);
        if self.is_hidden && self.started.elapsed() >= PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.is_hidden = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
