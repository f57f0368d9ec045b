//! Guard: a child process that removes a file, or a directory, if this process ends without releasing it.
//!
//! ```text
//!   headwater cp ─ starts ─► guard ─ reads its standard input ─┬─ a byte ─► the file is complete, keep it
//!        └── the other end of that pipe ───────────────────────┴─ the end ─► remove the file
//! ```
//!
//! It is a process of its own because this one may be killed, and a signal handler would need unsafe code.
//!
//! Owns: the process, the removal.
//! Does not own: the contents of the file or directory.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::shared::this_program::THIS_PROGRAM;

/// A file that is removed unless it is released.
pub(crate) struct Guard {
    path: PathBuf,
    process: Child,
}

impl Guard {
    /// Starts the guard, before or after the file is created.
    ///
    /// # Errors
    /// What starting a process reports; the file is removed then.
    pub(crate) fn over(path: PathBuf) -> io::Result<Guard> {
        let start = || -> io::Result<Child> {
            let mut command = Command::new(THIS_PROGRAM);
            // A group of its own does not hear Ctrl-C.
            command.arg0("headwater").args(["cp-guard", "--"]).arg(&path).process_group(0);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        match start() {
            Ok(process) => Ok(Guard { path, process }),
            Err(error) => {
                remove(&path)?;
                Err(error)
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Releases the file, which is complete and has its final name.
    ///
    /// # Errors
    /// What the pipe reports.
    pub(super) fn release(mut self) -> io::Result<()> {
        let input = self.process.stdin.as_mut().expect("it was started with a pipe");
        input.write_all(b".")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // Not to be waited for means not to be there any more.
        let _ = self.process.wait();
    }
}

/// The child process: waits for the release or the end of its parent.
pub(crate) fn run(path: &Path) -> ExitCode {
    let mut word = [0];
    match io::stdin().read(&mut word) {
        Ok(1..) => ExitCode::SUCCESS,
        // Gone already is as good.
        Ok(0) | Err(_) => match remove(path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
}

/// Removes a cgroup, which is busy until its processes have left: an ended process leaves it a moment later, a running one may
/// take long.
fn remove(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        return std::fs::remove_file(path);
    }
    let deadline = Instant::now() + CGROUP_LIMIT;
    loop {
        match std::fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(EBUSY) && Instant::now() < deadline => {
                std::thread::sleep(CGROUP_PAUSE);
            }
            done => return done,
        }
    }
}

const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();

/// How long removal is tried: longer than one measurement.
const CGROUP_LIMIT: Duration = Duration::from_secs(60);

const CGROUP_PAUSE: Duration = Duration::from_millis(2);
