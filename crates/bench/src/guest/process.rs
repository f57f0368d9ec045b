//! Process: a child that is watched, with a line that shows how long it has been running, and tools that run to their end.
//!
//! ```text
//!   bound ─► this program, started again ─► it asks for SIGKILL at the end of its parent ─► it becomes the program (execve)
//! ```
//!
//! Owns: waiting for children, within limits, and that none of them outlives this process.
//! Does not own: what they are started for.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use headwater_measure::standard;

use super::Halt;
use crate::tools::{self, THIS_PROGRAM};

/// The same command as a process that ends when this one does, even if this one is killed. Its standard streams are still to be set.
///
/// # Errors
/// `NotFound` if there is no such program.
pub(crate) fn bound(command: &Command) -> io::Result<Command> {
    let program = command.get_program();
    find_tool(program).ok_or(io::ErrorKind::NotFound)?;
    let mut bound = Command::new(THIS_PROGRAM);
    bound.arg(COMMAND).arg(std::process::id().to_string()).arg("--").arg(program).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    Ok(bound)
}

/// Of the command line; not for people.
pub(crate) const COMMAND: &str = "bound";

/// Becomes the program of `line`, which ends with `parent`.
///
/// # Errors
/// Why the program does not start, or that the parent has ended before.
pub(crate) fn become_bound(parent: u32, line: &[OsString]) -> io::Result<()> {
    tools::end_with_parent();
    if std::os::unix::process::parent_id() != parent {
        return Err(io::Error::other("the process that started this one has ended"));
    }
    let (program, arguments) = line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let error = Command::new(program).args(arguments).exec();
    Err(super::about(Path::new(program), error))
}

/// What a watched child did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    Runs(Duration),
    Ended,
}

/// Waits for the child; `None` when it took longer than `limit` and was killed. Calls `tick` meanwhile, and once afterwards.
///
/// # Errors
/// What `tick` reports, or that the run ends with its reader, which has gone; then the child was killed as well.
pub(crate) fn watch(
    child: Child,
    limit: Duration,
    mut tick: impl FnMut(Tick) -> io::Result<()>,
) -> io::Result<Option<ExitStatus>> {
    let (mut child, started) = (Watched(child), Instant::now());
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break Some(status);
        }
        let elapsed = started.elapsed();
        if elapsed > limit {
            drop(child);
            break None;
        }
        standard::check_reader()?;
        tick(Tick::Runs(elapsed))?;
        thread::sleep(PAUSE);
    };
    tick(Tick::Ended)?;
    Ok(status)
}

/// A child that ends with its handle.
struct Watched(Child);

impl Drop for Watched {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
    let output = bound(command).and_then(|mut command| command.output());
    let output = output.map_err(|error| missing(&error, &name, "install it"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{name}: {said}")).into())
}

/// Tools that make file systems are not in everybody's path.
pub(crate) fn find_tool(name: impl AsRef<Path>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name.as_ref())).find(|file| file.is_file())
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
