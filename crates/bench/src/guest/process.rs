//! Process: a child that is watched, with a line that shows how long it has been running.

use std::io::{self, IsTerminal, Write};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use super::Halt;

/// Waits for the child; `None` when it took longer than `limit` and was killed. Shows the seconds on a terminal.
pub(crate) fn watch(title: &str, mut child: Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let (started, shows) = (Instant::now(), io::stderr().is_terminal());
    let mut shown_seconds = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        let elapsed = started.elapsed();
        if elapsed > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        if shows && elapsed.as_secs() > shown_seconds {
            shown_seconds = elapsed.as_secs();
            write!(io::stderr(), "\r{title}: {shown_seconds} s")?;
        }
        thread::sleep(PAUSE);
    };
    if shown_seconds > 0 {
        write!(io::stderr(), "\r{:width$}\r", "", width = title.len() + 12)?;
    }
    Ok(status)
}

/// What it means that a program did not start.
pub(crate) fn missing(error: &io::Error, program: &str, how_to_mend: &str) -> Halt {
    Halt::Missing(format!("{program} does not start ({error}): {how_to_mend}"))
}

/// Short against anything that is waited for here.
const PAUSE: Duration = Duration::from_millis(50);
