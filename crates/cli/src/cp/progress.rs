//! Progress: a bar for commands that take longer than a second.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget};
use os_display::Quotable;

use crate::shared::progress::{BYTES, COUNTING, PATIENCE, style};

/// A callback that takes the number of bytes copied, or compared, since its last call.
pub(super) type OnCopied<'a> = &'a mut dyn FnMut(u64);

/// The bar of all files of a command. It appears when the work has taken a second, if standard error is a terminal.
#[derive(Clone)]
pub(super) struct Progress {
    // It counts from the start, hidden, so that its first rate is right.
    bar: ProgressBar,
    /// Without it never.
    shown_from: Option<Instant>,
    files: u64,
    /// Until then small files are not named.
    quiet_until: Instant,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let shown_from = io::stderr().is_terminal().then(|| Instant::now() + PATIENCE);
        Progress { bar, shown_from, files: 0, quiet_until: Instant::now() }
    }

    /// Counts a file.
    pub(super) fn add_file(&mut self) {
        self.files += 1;
    }

    /// Begins with a file of `all_bytes` bytes, if they are known, and the message `what path`.
    pub(super) fn begin(&mut self, what: &str, path: &Path, all_bytes: Option<u64>) {
        let is_small = all_bytes.is_some_and(|bytes| bytes < SMALL_BYTES);
        let now = Instant::now();
        if self.shown_from.is_none() || is_small && now < self.quiet_until {
            return;
        }
        self.quiet_until = now + INTERVAL;
        let number = if self.files > 1 { format!(" file {},", self.files) } else { String::new() };
        self.bar.reset();
        self.bar.set_style(style(match all_bytes {
            Some(_) if is_small => "{wide_msg}",
            Some(_) => BYTES,
            None => COUNTING,
        }));
        self.bar.set_length(all_bytes.unwrap_or(0));
        self.bar.set_message(format!("{what}{number} {}", path.maybe_quote()));
        self.add(0);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
        if self.shown_from.is_some_and(|from| Instant::now() >= from) && self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Hides the bar while `write` prints to the terminal.
    pub(super) fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Removes the bar from the terminal.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Copied before its bar could be read.
const SMALL_BYTES: u64 = 1 << 20;

const INTERVAL: Duration = Duration::from_millis(100);
