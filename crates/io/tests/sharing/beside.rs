//! Beside: other processes that change files, and this test as a user without privileges.
//!
//! ```text
//!   Shell ── a line ─► sh ─ its builtin writes ─► answer: the system call has returned
//!   as_root_and_nobody ─► body here ─► same test in a child of uid 65534, in the same directories
//! ```
//!
//! Owns: starting them, and knowing when they are done.
//! Does not own: what is asserted.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use headwater_testkit::{scratch_dirs, skip};

/// A shell that runs one command after the other.
pub(crate) struct Shell {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Shell {
    pub(crate) fn new() -> Shell {
        let script = "while read -r line; do eval \"$line\" 2>&1; echo \"status $?\"; done";
        let (input, output) = (Stdio::piped(), Stdio::piped());
        let mut child = Command::new("sh").args(["-c", script]).stdin(input).stdout(output).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Shell { child, answers }
    }

    /// Runs the command to its end.
    pub(crate) fn run(&mut self, command: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{command}").unwrap();
        let (mut said, mut line) = (String::new(), String::new());
        while !line.starts_with("status ") {
            said.push_str(&line);
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "{command}: the shell has ended");
        }
        assert_eq!(line, "status 0\n", "{command}: {said}");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs `body` in an empty directory of every kind of file system, then does the same in a child of this test that has no
/// privileges.
pub(crate) fn as_root_and_nobody(test_name: &str, body: impl Fn(&str, &Path)) {
    if let Some(places) = env::var_os(PLACES) {
        let places: Vec<PathBuf> = env::split_paths(&places).collect();
        places.iter().for_each(|place| body(&format!("nobody, {}", place.display()), place));
        return println!("ran in {} places", places.len());
    }
    let directories = scratch_dirs();
    directories.iter().for_each(|(name, directory)| body(name, directory.path()));
    if !rustix::process::geteuid().is_root() {
        return skip("becoming another user needs root");
    }
    let places: Vec<PathBuf> = directories.iter().map(|(_, place)| place.path().join("nobody")).collect();
    for (place, (_, directory)) in places.iter().zip(&directories) {
        std::fs::create_dir(place).unwrap();
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(place, all.clone()).unwrap();
        std::fs::set_permissions(directory.path(), all).unwrap();
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test_name, "--nocapture"])
        .env(PLACES, env::join_paths(&places).unwrap())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let ran = format!("ran in {} places", places.len());
    assert!(output.status.success() && text.contains(&ran), "{test_name} as nobody: {output:?}");
}

/// Where the child without privileges works.
const PLACES: &str = "HEADWATER_SHARING_PLACES";

const NOBODY: u32 = 65534;
