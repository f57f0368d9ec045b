//! Output: lines on standard output, whole or not at all.
//!
//! Owns: the buffer of lines, when it is written.
//! Does not own: the text of lines.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use headwater_measure::standard;

/// A buffer of lines. One write is at most as long as a pipe takes atomically (`PIPE_BUF`, see pipe(7)), so that no reader sees a
/// part of a line when this process is interrupted.
pub(super) struct Output {
    waiting: Vec<u8>,
    written: Instant,
}

impl Output {
    pub(super) fn new() -> Output {
        Output { waiting: Vec::with_capacity(PIPE_BYTES), written: Instant::now() }
    }

    /// Adds a line; writes the buffer when it is full, or its last write is long ago.
    ///
    /// # Errors
    /// What `write(2)` reports.
    pub(super) fn push(&mut self, line: &[u8]) -> io::Result<()> {
        if self.waiting.len() + line.len() > PIPE_BYTES {
            self.flush()?;
        }
        self.waiting.extend_from_slice(line);
        if self.written.elapsed() >= PATIENCE { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer.
    ///
    /// # Errors
    /// What `write(2)` reports.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.written = Instant::now();
        if self.waiting.is_empty() {
            return Ok(());
        }
        let done = standard::output().and_then(|mut output| output.write_all(&self.waiting));
        self.waiting.clear();
        done
    }
}

const PIPE_BYTES: usize = 4096;

/// The longest delay of a line, so that people see the progress.
const PATIENCE: Duration = Duration::from_millis(100);
