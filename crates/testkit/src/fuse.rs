//! FUSE: a file system that a thread of the test serves, and may stop to serve.
//!
//! ```text
//!   FuseMount ─ mount ─► /dev/fuse ─► the server's thread ─┬─ answers from files in memory
//!                                                        └─ silent: keeps requests until it is to answer again
//! ```
//!
//! One directory of files. The protocol is that of <linux/fuse.h>, version 7.31: what newer kernels add they leave out for it.
//!
//! Owns: the server.
//! Does not own: the mount point, and its removal (`mounts`).

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::Skip;
use crate::mounts::MountDir;

/// A mounted file system, served by a thread of this process. Dropped, it answers what it has kept, and is unmounted.
#[derive(Debug)]
pub struct FuseMount {
    directory: MountDir,
    served: Arc<Mutex<Served>>,
    guard: Child,
}

#[derive(Debug)]
struct Served {
    device: File,
    /// How long the kernel may take attributes and names for right.
    valid: Duration,
    is_silent: bool,
    /// Bytes that are still written before nothing is answered any more.
    silent_after_bytes: Option<usize>,
    kept: Vec<Vec<u8>>,
    refuses_flushes: bool,
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
}

#[derive(Debug)]
struct Node {
    name: String,
    contents: Vec<u8>,
    /// In nanoseconds; grows with each change.
    modified: u64,
}

impl FuseMount {
    /// An empty file system, of which the kernel keeps names and attributes for as long as `valid`.
    ///
    /// # Errors
    /// [`Skip`] when the process is not root, or the kernel refuses.
    pub fn new(valid: Duration) -> Result<FuseMount, Skip> {
        let directory = MountDir::new()?;
        let refused = |error: &dyn std::fmt::Display| Skip(format!("FUSE: {error}"));
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.map_err(|error| refused(&error))?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options).expect("no zeros");
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        mount("headwater", directory.mount_point(), "fuse", flags, options.as_c_str())
            .map_err(|error| refused(&error))?;
        let guard = guard(directory.mount_point()).map_err(|error| refused(&error))?;
        let requests = device.try_clone().map_err(|error| refused(&error))?;
        let served = Arc::new(Mutex::new(Served {
            device,
            valid,
            is_silent: false,
            silent_after_bytes: None,
            kept: Vec::new(),
            refuses_flushes: false,
            nodes: BTreeMap::new(),
            next_node: ROOT + 1,
        }));
        let shared = served.clone();
        thread::spawn(move || serve(&requests, &shared));
        Ok(FuseMount { directory, served, guard })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.mount_point()
    }

    /// Makes a file, or changes its contents without the kernel's knowledge, as another machine would. Returns its path.
    pub fn put(&self, name: &str, contents: &[u8]) -> PathBuf {
        let mut served = self.served();
        let node = served.find(name).unwrap_or_else(|| served.make(name));
        served.change(node, |old| *old = contents.to_vec());
        self.path().join(name)
    }

    /// What a file has.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let served = self.served();
        let node = served.find(name).expect("the file is there");
        served.nodes[&node].contents.clone()
    }

    /// Nothing is answered from now on.
    pub fn fall_silent(&self) {
        self.served().is_silent = true;
    }

    /// Nothing is answered any more once this many bytes have been written from now on.
    pub fn fall_silent_after(&self, written_bytes: usize) {
        self.served().silent_after_bytes = Some(written_bytes);
    }

    /// From now on `close(2)` reports `EACCES`.
    pub fn refuse_flushes(&self) {
        self.served().refuses_flushes = true;
    }

    /// Whether requests are kept.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.served().is_silent
    }

    /// Requests that wait for an answer.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.served().kept.len()
    }

    /// What was asked meanwhile is answered, and what is asked from now on.
    pub fn answer(&self) {
        let mut served = self.served();
        (served.is_silent, served.silent_after_bytes) = (false, None);
        for request in std::mem::take(&mut served.kept) {
            served.answer(&request);
        }
    }

    fn served(&self) -> MutexGuard<'_, Served> {
        locked(&self.served)
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        self.answer();
        // The kernel answers for a server that is gone: with errors, and at once.
        let _ = unmount(self.path(), UnmountFlags::DETACH);
        let _ = self.guard.kill().and_then(|()| self.guard.wait());
    }
}

/// A process that is killed while its threads wait for a file system that it serves itself would never end: its guard has the kernel
/// answer in its place.
fn guard(mount_point: &Path) -> std::io::Result<Child> {
    // A process that cannot end shows in several ways; no test lasts five minutes.
    let script = "count=0; while [ $count -lt 1500 ] && grep -q '^State:.[RSDt]' /proc/$0/status; \
                  do sleep 0.2; count=$((count + 1)); done; umount -f \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(process::id().to_string()).arg(mount_point);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn locked(served: &Mutex<Served>) -> MutexGuard<'_, Served> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until the file system is unmounted.
fn serve(mut requests: &File, served: &Mutex<Served>) {
    let mut buffer = vec![0; REQUEST_BYTES_MAX];
    loop {
        match requests.read(&mut buffer) {
            Ok(length) => {
                let mut served = locked(served);
                let request = &buffer[..length];
                if served.is_silent && !matches!(opcode(request), FORGET | BATCH_FORGET | INTERRUPT) {
                    served.kept.push(request.to_vec());
                } else {
                    served.answer(request);
                }
            }
            Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => return,
            Err(_) => {}
        }
    }
}

impl Served {
    fn find(&self, name: &str) -> Option<u64> {
        self.nodes.iter().find(|(_, node)| node.name == name).map(|(number, _)| *number)
    }

    fn make(&mut self, name: &str) -> u64 {
        let number = self.next_node;
        self.next_node += 1;
        self.nodes.insert(number, Node { name: name.to_owned(), contents: Vec::new(), modified: 0 });
        number
    }

    fn change(&mut self, node: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let node = self.nodes.get_mut(&node).expect("the file is there");
        change(&mut node.contents);
        node.modified += 20_000_000;
    }

    fn answer(&mut self, request: &[u8]) {
        let answered = match opcode(request) {
            FORGET | BATCH_FORGET | INTERRUPT => return,
            _ => self.reply(request),
        };
        let (error, body) = match answered {
            Ok(body) => (0, body),
            Err(error) => (-error.raw_os_error(), Vec::new()),
        };
        let mut reply = Reply::default();
        reply.number(OUT_HEADER_BYTES as u32 + body.len() as u32).number(error as u32).long(long(request, 8));
        reply.0.extend_from_slice(&body);
        // The request may have been given up.
        let _ = (&self.device).write_all(&reply.0);
    }

    fn reply(&mut self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        let (node, arguments) = (long(request, 16), &request[IN_HEADER_BYTES..]);
        let name = || String::from_utf8_lossy(arguments.split(|&byte| byte == 0).next().unwrap_or_default());
        let mut reply = Reply::default();
        match opcode(request) {
            INIT => {
                reply.number(7).number(31).number(1 << 20).number(ASYNC_READ | BIG_WRITES);
                // Requests in the background, at most and before it counts as congested; bytes of a write; granularity of times.
                reply.number(1000 | 750 << 16).number(WRITE_BYTES_MAX).number(1).0.resize(64, 0);
            }
            LOOKUP => {
                let node = self.find(&name()).ok_or(Errno::NOENT)?;
                self.entry(&mut reply, node);
            }
            CREATE => {
                let name = String::from_utf8_lossy(&arguments[16..]).trim_end_matches('\0').to_owned();
                let node = self.find(&name).unwrap_or_else(|| self.make(&name));
                self.entry(&mut reply, node);
                reply.long(0).long(0);
            }
            GETATTR => self.attributes(&mut reply, node),
            SETATTR => {
                if arguments[0] & SETS_SIZE != 0 {
                    let length = long(arguments, 16) as usize;
                    self.change(node, |contents| contents.resize(length, 0));
                }
                self.attributes(&mut reply, node);
            }
            OPEN | OPENDIR => _ = reply.long(0).long(0),
            READ => {
                let contents = &self.nodes.get(&node).ok_or(Errno::NOENT)?.contents;
                let start = contents.len().min(long(arguments, 8) as usize);
                let end = contents.len().min(start + number(arguments, 16) as usize);
                reply.0.extend_from_slice(&contents[start..end]);
            }
            WRITE => {
                let (start, length) = (long(arguments, 8) as usize, number(arguments, 16) as usize);
                let bytes = &arguments[WRITE_IN_BYTES..][..length];
                self.change(node, |contents| {
                    contents.resize(contents.len().max(start + length), 0);
                    contents[start..start + length].copy_from_slice(bytes);
                });
                reply.number(length as u32).number(0);
                self.silent_after_bytes = self.silent_after_bytes.map(|left| left.saturating_sub(length));
                self.is_silent |= self.silent_after_bytes == Some(0);
            }
            FLUSH if self.refuses_flushes => return Err(Errno::ACCESS),
            RELEASE | RELEASEDIR | FSYNC | FLUSH | ACCESS | DESTROY => {}
            READDIR => {}
            _ => return Err(Errno::NOSYS),
        }
        Ok(reply.0)
    }

    fn entry(&self, reply: &mut Reply, node: u64) {
        let (seconds, nanos) = (self.valid.as_secs(), self.valid.subsec_nanos());
        reply.long(node).long(0).long(seconds).long(seconds).number(nanos).number(nanos);
        self.attribute(reply, node);
    }

    fn attributes(&self, reply: &mut Reply, node: u64) {
        reply.long(self.valid.as_secs()).number(self.valid.subsec_nanos()).number(0);
        self.attribute(reply, node);
    }

    fn attribute(&self, reply: &mut Reply, number: u64) {
        let (length, modified) =
            self.nodes.get(&number).map_or((0, 0), |node| (node.contents.len() as u64, node.modified));
        let mode = if number == ROOT { 0o40_755 } else { 0o100_644 };
        let (seconds, nanos) = (modified / 1_000_000_000, (modified % 1_000_000_000) as u32);
        reply.long(number).long(length).long(length.div_ceil(512)).long(seconds).long(seconds).long(seconds);
        reply.number(nanos).number(nanos).number(nanos);
        reply.number(mode).number(1).number(0).number(0).number(0).number(4096).number(0);
    }
}

/// The bytes of an answer.
#[derive(Default)]
struct Reply(Vec<u8>);

impl Reply {
    fn number(&mut self, number: u32) -> &mut Reply {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    fn long(&mut self, number: u64) -> &mut Reply {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }
}

fn opcode(request: &[u8]) -> u32 {
    number(request, 4)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

const ROOT: u64 = 1;
const IN_HEADER_BYTES: usize = 40;
const OUT_HEADER_BYTES: usize = 16;
const WRITE_IN_BYTES: usize = 40;
const WRITE_BYTES_MAX: u32 = 1 << 20;
const REQUEST_BYTES_MAX: usize = (1 << 20) + 65_536;

const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const SETS_SIZE: u8 = 1 << 3;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const ACCESS: u32 = 34;
const CREATE: u32 = 35;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::lack;

    /// Goal: files are read and written as elsewhere; a silent server answers nothing until it does again. Method: std.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn files_are_served() {
        let mount = match FuseMount::new(Duration::from_secs(60)) {
            Ok(mount) => mount,
            Err(reason) => return lack(reason),
        };
        let path = mount.put("here", b"contents");
        assert_eq!(fs::read(&path).unwrap(), b"contents");
        let other = mount.path().join("new");
        fs::write(&other, vec![7; 300_000]).unwrap();
        assert_eq!(mount.contents("new"), vec![7; 300_000]);
        assert_eq!(fs::metadata(&other).unwrap().len(), 300_000);
        mount.fall_silent();
        let (give, take) = channel();
        let reading = thread::spawn(move || {
            give.send(()).unwrap();
            fs::File::open(other).unwrap().set_len(5).unwrap_err()
        });
        take.recv().unwrap();
        while mount.kept() == 0 {
            thread::yield_now();
        }
        assert!(!reading.is_finished());
        mount.answer();
        assert_eq!(reading.join().unwrap().raw_os_error(), Some(22), "it was opened for reading");
    }
}
