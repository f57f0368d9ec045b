//! Guard: removes a file with a name when this process ends before it is complete, however it ends.
//!
//! ```text
//!   headwater cp ─ starts ─► guard ─ reads its standard input ─┬─ a byte ─► the file is complete, nothing to do
//!        └── the other end of that pipe ───────────────────────┴─ the end ─► remove the file
//! ```
//!
//! A process of its own, because this one may be killed, and a signal handler would need what safe Rust does not have.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// A file that is removed unless it is released.
pub(super) struct Guard {
    path: PathBuf,
    process: Child,
}

impl Guard {
    /// # Errors
    /// What starting a process reports; the file is removed then.
    pub(super) fn over(path: PathBuf) -> io::Result<Guard> {
        let start = || -> io::Result<Child> {
            let mut command = Command::new(std::env::current_exe()?);
            // A group of its own does not hear Ctrl-C.
            command.arg("cp-guard").arg(&path).process_group(0);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        match start() {
            Ok(process) => Ok(Guard { path, process }),
            Err(error) => {
                std::fs::remove_file(&path)?;
                Err(error)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
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
        Ok(0) | Err(_) => match std::fs::remove_file(path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
}
