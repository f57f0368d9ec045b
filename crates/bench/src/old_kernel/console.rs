//! Console: the log of the guest's console, read while it grows.
//!
//! Owns: where in the log reading goes on, what is shown meanwhile.
//! Does not own: what the lines mean (report).

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::inside::MARKER;
use super::report::{Line, Report};
use crate::guest::process::Tick;
use crate::tools::print;

/// Reads what is new, and shows it.
pub(crate) struct Console {
    log: PathBuf,
    read_bytes: usize,
    report: Report,
    shown_seconds: u64,
}

impl Console {
    pub(crate) fn new(log: &Path) -> Console {
        Console { log: log.to_owned(), read_bytes: 0, report: Report::default(), shown_seconds: 0 }
    }

    /// Prints a line for each suite that has ended, and on a terminal what runs now.
    pub(crate) fn follow(&mut self, tick: Tick) -> io::Result<()> {
        let elapsed = match tick {
            Tick::Runs(elapsed) if elapsed.as_secs() == self.shown_seconds => return Ok(()),
            Tick::Runs(elapsed) => elapsed,
            Tick::Ended => Duration::ZERO,
        };
        self.shown_seconds = elapsed.as_secs();
        let ended = self.read();
        let mut progress = Progress::new();
        progress.clear()?;
        for summary in ended {
            print(&format!("{summary}\n"))?;
        }
        if tick == Tick::Ended { Ok(()) } else { progress.show(&self.report.current(), self.shown_seconds) }
    }

    pub(crate) fn into_report(self) -> Report {
        self.report
    }

    /// All whole lines that have come since the last time. There is no log before QEMU has started.
    fn read(&mut self) -> Vec<String> {
        let log = fs::read(&self.log).unwrap_or_default();
        let new = log.get(self.read_bytes..).unwrap_or_default();
        let whole = new.iter().rposition(|&byte| byte == b'\n').map_or(0, |place| place + 1);
        self.read_bytes += whole;
        let text = String::from_utf8_lossy(&new[..whole]);
        let ours = text.lines().filter_map(|line| line.split_once(MARKER)).map(|(_, ours)| ours.trim());
        let lines = ours.filter_map(|line| serde_json::from_str::<Line>(line).ok());
        lines.filter_map(|line| self.report.add(line)).collect()
    }
}

/// One line on a terminal that changes; nothing where standard error is none.
struct Progress {
    is_terminal: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress { is_terminal: io::stderr().is_terminal() }
    }

    fn clear(&mut self) -> io::Result<()> {
        if self.is_terminal { write!(io::stderr(), "\r\x1b[K") } else { Ok(()) }
    }

    fn show(&mut self, what: &str, seconds: u64) -> io::Result<()> {
        if self.is_terminal { write!(io::stderr(), "{seconds} s: {what}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines are read once each, in pieces as they come, between those of the kernel.
    #[test]
    fn a_growing_log_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut console = Console::new(&log);
        assert!(console.read().is_empty());
        let line = |line: &Line| format!("{MARKER}{}\r\n", serde_json::to_string(line).unwrap());
        let ended = line(&Line::Ended { seconds: 3, failure: None });
        let began = line(&Line::Began { suite: "io drivers".to_owned() });
        fs::write(&log, format!("[ 0.1] boot\r\n{began}{}", &ended[..ended.len() / 2])).unwrap();
        assert!(console.read().is_empty());
        fs::write(&log, format!("[ 0.1] boot\r\n{began}{ended}")).unwrap();
        assert_eq!(console.read().len(), 1);
        assert!(console.read().is_empty());
    }
}
