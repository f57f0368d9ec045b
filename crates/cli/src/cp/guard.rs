//! Guard: removes a file with a name, or a directory, when this process ends before it says otherwise, however it ends.
//!
//! ```text
//!   headwater cp ─ starts ─► guard ─ reads its standard input ─┬─ a byte ─► the file is complete, nothing to do
//!        └── the other end of that pipe ───────────────────────┴─ the end ─► remove the file
//! ```
//!
//! A process of its own, because this one may be killed, and a signal handler would need what safe Rust does not have.
//!
//! Owns: the process, the removal.
//! Does not own: what is removed, until then.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A file that is removed unless it is released.
pub(crate) struct Guard {
    path: PathBuf,
    process: Child,
}

impl Guard {
    /// The file may be made before or after.
    ///
    /// # Errors
    /// What starting a process reports; the file is removed then.
    pub(crate) fn over(path: PathBuf) -> io::Result<Guard> {
        let start = || -> io::Result<Child> {
            let mut command = Command::new(std::env::current_exe()?);
            // A group of its own does not hear Ctrl-C.
            command.arg("cp-guard").arg(&path).process_group(0);
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

    /// The file is complete, and has another name.
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

/// The guard's side.
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

/// A directory is a cgroup here: a process that has ended leaves it a moment later, one that has not may take long.
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

/// Longer than one measurement.
const CGROUP_LIMIT: Duration = Duration::from_secs(60);

const CGROUP_PAUSE: Duration = Duration::from_millis(2);
