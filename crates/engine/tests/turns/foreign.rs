//! Foreign: the stranger's program, compiled once, and a process of it that does what a test says.
//!
//! ```text
//!   rustc stranger.rs ─► target/tmp/turns-stranger ─► Stranger::tell ─► pipe ─► done ─► tell returns
//! ```
//!
//! Owns: compiling, the process, its pipes.
//! Does not own: what the commands do (stranger).

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, id};
use std::sync::OnceLock;

/// A process that changes one file at a time. It ends when this is dropped.
pub(crate) struct Stranger {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Stranger {
    pub(crate) fn new() -> Stranger {
        let mut command = Command::new(program());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, answers) = (child.stdin.take(), child.stdout.take().unwrap());
        Stranger { child, commands, answers: BufReader::new(answers) }
    }

    /// One that changes this file.
    pub(crate) fn on(path: &Path) -> Stranger {
        let mut stranger = Stranger::new();
        stranger.turn_to(path);
        stranger
    }

    pub(crate) fn turn_to(&mut self, path: &Path) {
        self.tell(&format!("file {}", path.display()));
    }

    /// Has it do something, and waits until that is done. What it answers, the command says.
    ///
    /// # Panics
    /// When it fails.
    pub(crate) fn tell(&mut self, command: &str) -> u64 {
        self.begin(command);
        self.finish()
    }

    /// Has it begin, without waiting.
    pub(crate) fn begin(&mut self, command: &str) {
        writeln!(self.commands.as_mut().expect("it has not ended"), "{command}").unwrap();
    }

    /// Waits for what was begun.
    ///
    /// # Panics
    /// When that failed.
    pub(crate) fn finish(&mut self) -> u64 {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let number = answer.strip_prefix("ok ").and_then(|number| number.trim().parse().ok());
        number.unwrap_or_else(|| panic!("the stranger says {answer:?}"))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // At the end of its input it returns.
        drop(self.commands.take());
        let _ = self.child.wait();
    }
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(compile)
}

/// In cargo's directory for the files of tests, where the next run replaces it. A rename, so that two runs do not meet.
fn compile() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/turns/stranger.rs");
    let (own, program) = (directory.join(format!("stranger-{}", id())), directory.join("turns-stranger"));
    std::fs::create_dir_all(directory).unwrap();
    let mut rustc = Command::new(rustc());
    rustc.args(["--edition", "2024", "-O", "--crate-name", "stranger", "-o"]).arg(&own).arg(source);
    let output = rustc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&own, &program).unwrap();
    program
}

/// The compiler that cargo names, else the one beside cargo, else the one of the path.
fn rustc() -> PathBuf {
    if let Some(named) = env::var_os("RUSTC") {
        return named.into();
    }
    let beside = env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name("rustc"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| "rustc".into())
}
