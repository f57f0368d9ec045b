//! Progress: a bar for copies that take their time.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use os_display::Quotable;

/// A bar that appears when the work has taken a second, if standard error is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
    is_hidden: bool,
}

impl Progress {
    /// `what` is done with `path`, `all_bytes` in all.
    pub(super) fn new(what: &str, path: &Path, all_bytes: u64) -> Progress {
        // Without colours, so NO_COLOR asks for nothing else.
        let style = "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left, {msg}";
        let style = ProgressStyle::with_template(style).expect("the template is well-formed");
        // From the start, so that the rate is known when it is shown.
        let bar = ProgressBar::with_draw_target(Some(all_bytes), ProgressDrawTarget::hidden());
        let bar = bar.with_style(style).with_message(format!("{what} {}", path.maybe_quote()));
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

/// What is done sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);
