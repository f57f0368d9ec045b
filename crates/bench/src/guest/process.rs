//! Process: a child that is watched, with a line that shows how long it has been running, and tools that run to their end.
//!
//! Owns: waiting for them, within limits.
//! Does not own: what they are started for.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use super::Halt;

/// What a watched child did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    Runs(Duration),
    Ended,
}

/// Waits for the child; `None` when it took longer than `limit` and was killed. Calls `tick` meanwhile, and once afterwards.
pub(crate) fn watch(
    mut child: Child,
    limit: Duration,
    mut tick: impl FnMut(Tick) -> io::Result<()>,
) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
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
        tick(Tick::Runs(elapsed))?;
        thread::sleep(PAUSE);
    };
    tick(Tick::Ended)?;
    Ok(status)
}

/// Shows title and seconds on a terminal, and takes them away at the end.
pub(crate) fn ticker(title: &str) -> impl FnMut(Tick) -> io::Result<()> {
    let (mut shown_seconds, shows) = (0, io::stderr().is_terminal());
    move |tick| match tick {
        Tick::Runs(elapsed) if shows && elapsed.as_secs() > shown_seconds => {
            shown_seconds = elapsed.as_secs();
            write!(io::stderr(), "\r{title}: {shown_seconds} s")
        }
        Tick::Ended if shown_seconds > 0 => {
            write!(io::stderr(), "\r{:width$}\r", "", width = title.len() + 12)
        }
        _ => Ok(()),
    }
}

/// Runs a tool to its end.
pub(crate) fn succeeds(command: &mut Command) -> Result<(), Halt> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| missing(&error, &name, "install it"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{name}: {said}")).into())
}

/// Tools that make file systems are not in everybody's path.
pub(crate) fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Takes the debug information out of a program, which is most of it. Where there is no `strip` it stays.
pub(crate) fn strip(program: &Path) -> Result<(), Halt> {
    match find_tool("strip") {
        Some(strip) => succeeds(Command::new(strip).arg("--strip-debug").arg(program)),
        None => Ok(()),
    }
}

/// What it means that a program did not start.
pub(crate) fn missing(error: &io::Error, program: &str, how_to_mend: &str) -> Halt {
    Halt::Missing(format!("{program} does not start ({error}): {how_to_mend}"))
}

/// Short against anything that is waited for here.
const PAUSE: Duration = Duration::from_millis(50);
