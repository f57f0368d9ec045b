//! Peer: another process that writes to a file when it is told to.
//!
//! ```text
//!   Peer::tell("write 3 17") ─► socket ─► child: open, write, close ─► "done" ─► tell returns
//! ```
//!
//! Owns: the child, what it is told, and the pages that it writes.
//! Does not own: what is read of them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;

use headwater_testkit::spawn_self_with_env;
use rustix::fs::OFlags;

/// The process, and the way to it. It ends when this is dropped.
pub(crate) struct Peer {
    child: Child,
    answers: BufReader<UnixStream>,
}

/// In the child, does what the parent says, to the end. In the parent, says so.
pub(crate) fn in_peer() -> bool {
    let Ok(task) = std::env::var(CHILD) else { return false };
    let (socket, path) = task.split_once('\n').unwrap();
    obey(UnixStream::connect(socket).unwrap(), Path::new(path));
    true
}

impl Peer {
    /// Starts it: `test_name` calls [`in_peer`] first. The directory is for the socket.
    pub(crate) fn new(test_name: &str, directory: &Path, file: &Path) -> Peer {
        let socket = directory.join("socket");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let task = format!("{}\n{}", socket.display(), file.display());
        let child = spawn_self_with_env(test_name, CHILD, &task);
        let (stream, _) = listener.accept().unwrap();
        Peer { child, answers: BufReader::new(stream) }
    }

    /// Has it open the file, write a page and close the file.
    pub(crate) fn write(&mut self, page: u64, version: u64) {
        self.tell(&format!("write {page} {version}"));
    }

    /// Has it do something, and waits until that is done.
    pub(crate) fn tell(&mut self, command: &str) {
        assert_eq!(self.ask(command), "done", "{command}");
    }

    /// Whether it can open the file for writing without waiting for anybody.
    pub(crate) fn is_free_to_write(&mut self) -> bool {
        match self.ask("try").as_str() {
            "done" => true,
            "would block" => false,
            answer => panic!("the peer says {answer:?}"),
        }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.answers.get_mut(), "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has seen.
        let _ = self.answers.get_mut().shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

fn obey(mut stream: UnixStream, path: &Path) {
    let commands = BufReader::new(stream.try_clone().unwrap()).lines();
    let (mut held, path) = (None, path.to_owned());
    for command in commands.map_while(Result::ok) {
        let answer = match carry_out(&command, &path, &mut held) {
            Ok(()) => "done".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => "would block".to_owned(),
            Err(error) => error.to_string(),
        };
        if writeln!(stream, "{answer}").is_err() {
            return;
        }
    }
}

fn carry_out(command: &str, path: &PathBuf, held: &mut Option<File>) -> io::Result<()> {
    let words: Vec<_> = command.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let writable = || OpenOptions::new().write(true).open(path);
    match words[0] {
        "write" => writable()?.write_all_at(&contents(number(2)), number(1) * 4096),
        "hold" => writable().map(|file| *held = Some(file)),
        "put" => held.as_ref().unwrap().write_all_at(&contents(number(2)), number(1) * 4096),
        "release" => {
            *held = None;
            Ok(())
        }
        "length" => writable()?.set_len(number(1)),
        "empty" => OpenOptions::new().write(true).truncate(true).open(path).map(drop),
        "read" => std::fs::read(path).map(drop),
        "try" => {
            let flags = OFlags::NONBLOCK.bits() as i32;
            OpenOptions::new().write(true).custom_flags(flags).open(path).map(drop)
        }
        _ => panic!("nobody knows {command:?}"),
    }
}

/// A page of this version.
pub(crate) fn contents(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(512)
}

const CHILD: &str = "HEADWATER_COHERENCE_PEER";
