//! Progress: a bar for all files together.
//!
//! Where standard error is a terminal, a thread of its own walks all files once more and sums up their lengths, so that the bar can
//! show the time left. Elsewhere nothing is counted.
//!
//! Owns: the bar, the count of bytes to read.
//! Does not own: results.

use std::fs::File;
use std::io::{IsTerminal, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

use super::jobs::Jobs;
use super::walk::Subject;
use crate::shared::progress::{BYTES, COUNTING, PATIENCE, style};

/// Empty where standard error is no terminal.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    files: Arc<AtomicU64>,
}

impl Progress {
    /// Starts the threads that count the bytes of `jobs`, if there are any, and draw the bar.
    pub(super) fn new(jobs: impl FnOnce() -> Option<Jobs>) -> Progress {
        let files = Arc::new(AtomicU64::new(0));
        if !std::io::stderr().is_terminal() {
            return Progress { bar: None, files };
        }
        let bar =
            ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style(COUNTING));
        let (jobs, counted, done) = (jobs(), bar.clone(), files.clone());
        // Both threads end with the process at the latest; no thread joins them.
        if let Some(jobs) = jobs {
            std::thread::spawn(move || count(jobs, &counted));
        }
        let shown = bar.clone();
        std::thread::spawn(move || show(&shown, &done));
        Progress { bar: Some(bar), files }
    }

    pub(super) fn add(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    pub(super) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the bar from the terminal.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Hides the bar while `write` prints to the terminal.
    pub(super) fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

fn count(jobs: Jobs, bar: &ProgressBar) {
    let subjects = jobs.filter_map(|job| job.subject.ok());
    let length_bytes = |subject: Subject| match subject {
        Subject::StandardInput => 0,
        Subject::File(path) => match std::fs::metadata(&path) {
            Ok(metadata) if metadata.file_type().is_block_device() => {
                File::open(path).and_then(|mut device| device.seek(SeekFrom::End(0))).unwrap_or(0)
            }
            found => found.map_or(0, |metadata| metadata.len()),
        },
    };
    bar.set_length(subjects.map(length_bytes).sum());
    bar.set_style(style(BYTES));
}

/// Draws the bar ten times a second, once the scan has taken a second.
fn show(bar: &ProgressBar, files: &AtomicU64) {
    std::thread::sleep(PATIENCE);
    bar.set_draw_target(ProgressDrawTarget::stderr());
    while !bar.is_finished() {
        bar.set_message(format!("{} files", files.load(Ordering::Relaxed)));
        std::thread::sleep(INTERVAL);
    }
}

const INTERVAL: Duration = Duration::from_millis(100);
