//! Notices: an event is notified whenever any program has written to a file.
//!
//! ```text
//!   watch ─► inotify: IN_MODIFY ─► thread ─┬─ the kernel reports a write ─► the events of that file
//!                                          └─ each second ─► all events: what other hosts write is reported by no kernel of this one
//! ```
//!
//! The thread starts with the first watch and ends within a second of the last.
//!
//! Owns: the thread, the watches.
//! Does not own: what a listener looks at when it is notified. It may be notified without a reason.
//! Locks: `state`; no event is notified under it.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::open_file::OpenFile;
use crate::sync::event::Event;
use crate::sync::lock;
use crate::system::fork::ProcessMark;
use crate::system::signals;

/// Watches files for writes of any program.
#[derive(Clone, Default)]
pub struct Notices {
    state: Arc<Mutex<State>>,
}

/// A watch of a file, until it is dropped.
pub struct Notice {
    state: Arc<Mutex<State>>,
    number: u64,
    process: ProcessMark,
}

#[derive(Default)]
struct State {
    /// While the thread runs.
    kernel: Option<Kernel>,
    entries: Vec<Entry>,
    numbers: u64,
}

/// The inotify instance; `None` at the limit of a user's instances, 128 by default, or of a process's descriptors.
type Kernel = Option<Arc<OwnedFd>>;

struct Entry {
    number: u64,
    watch: Watch,
    event: Arc<Event>,
}

/// The kernel's watch of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// On its way: any number may be its own.
    Asked,
    Number(i32),
    /// The kernel reports nothing.
    Refused,
}

impl Notices {
    /// Notifies `event` after each write to the file that this kernel sees, and once a second.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(&self, file: &OpenFile, event: &Arc<Event>) -> io::Result<Notice> {
        let mut state = lock(&self.state);
        let kernel = match &state.kernel {
            Some(kernel) => kernel.clone(),
            None => {
                let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().map(Arc::new);
                let (shared, reading) = (self.state.clone(), kernel.clone());
                signals::spawn("headwater-notices", STACK_BYTES, move || run(&shared, reading.as_deref()))?;
                state.kernel.insert(kernel).clone()
            }
        };
        state.numbers += 1;
        let number = state.numbers;
        state.entries.push(Entry { number, watch: Watch::Asked, event: event.clone() });
        drop(state);
        let notice = Notice { state: self.state.clone(), number, process: ProcessMark::here() };
        // The kernel may ask a server first, so no lock is held. At the limits of instances and of watches, and without `/proc`, the file is
        // looked at once a second.
        let path = format!("/proc/self/fd/{}", file.buffered().as_raw_fd());
        let watch = kernel.and_then(|kernel| inotify::add_watch(&*kernel, path, WatchFlags::MODIFY).ok());
        if let Some(entry) = lock(&self.state).entries.iter_mut().find(|entry| entry.number == number) {
            entry.watch = watch.map_or(Watch::Refused, Watch::Number);
        }
        Ok(notice)
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // The lock may be held by a thread that a forked child does not have, and the watch is its parent's.
            return;
        }
        let mut state = lock(&self.state);
        let place = state.entries.iter().position(|entry| entry.number == self.number);
        let entry = state.entries.swap_remove(place.expect("each is removed once"));
        let is_other = |other: &Entry| other.watch != entry.watch && other.watch != Watch::Asked;
        let is_last = state.entries.iter().all(is_other);
        if let (Watch::Number(watch), true, Some(Some(kernel))) = (entry.watch, is_last, &state.kernel) {
            // It may have ended with the file.
            let _ = inotify::remove_watch(&**kernel, watch);
        }
    }
}

fn run(state: &Mutex<State>, kernel: Option<&OwnedFd>) {
    let mut ticked = Instant::now();
    loop {
        let mut descriptors: Vec<_> =
            kernel.map(|kernel| PollFd::new(kernel, PollFlags::IN)).into_iter().collect();
        let left = TICK.saturating_sub(ticked.elapsed()).try_into().expect("a second at most");
        // An error (EINTR) means that there may be nothing.
        let _ = poll(&mut descriptors, Some(&left));
        let is_tick = ticked.elapsed() >= TICK;
        if is_tick {
            ticked = Instant::now();
        }
        let written = kernel.map_or(Some(Vec::new()), written);
        let events: Vec<Arc<Event>> = {
            let mut state = lock(state);
            if state.entries.is_empty() {
                state.kernel = None;
                return;
            }
            let is_due = |entry: &&Entry| match (&written, entry.watch) {
                _ if is_tick => true,
                (Some(written), Watch::Number(watch)) => written.contains(&watch),
                (Some(_), Watch::Asked | Watch::Refused) => false,
                (None, _) => true,
            };
            state.entries.iter().filter(is_due).map(|entry| entry.event.clone()).collect()
        };
        for event in events.iter() {
            event.notify(usize::MAX);
        }
    }
}

/// The watches that the kernel has reported, or some of many; `None` if it may have lost some.
fn written(kernel: &OwnedFd) -> Option<Vec<i32>> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let (mut reader, mut written) = (inotify::Reader::new(kernel, &mut buffer), Vec::new());
    for nth in 0_u32.. {
        if nth >= TOGETHER_MAX && reader.is_buffer_empty() {
            break;
        }
        match reader.next() {
            Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => return None,
            Ok(event) if written.last() == Some(&event.wd()) => {}
            Ok(event) => written.push(event.wd()),
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    Some(written)
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notices({} watches)", lock(&self.state).entries.len())
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notice({})", self.number)
    }
}

/// As long as a program may take to see what another host has written.
const TICK: Duration = Duration::from_secs(1);

/// Writes after which the thread looks at the clock again: programs may write faster than it reads.
const TOGETHER_MAX: u32 = 1000;

const BUFFER_BYTES: usize = 4096;

/// It may run wakers.
const STACK_BYTES: usize = 512 << 10;

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::fs;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;

    use super::*;
    use crate::file::{Access, DirectIo};

    /// Goal: a file that this kernel reports no write of is looked at once a second, also while another is written all the time.
    #[test]
    fn quiet_files_are_looked_at_beside_busy_ones() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, b"x").unwrap();
            OpenFile::open(&path, DirectIo::Off, Access::Read).unwrap()
        };
        let (quiet, busy, notices) = (open("quiet"), open("busy"), Notices::default());
        let [of_quiet, of_busy] = [(); 2].map(|()| Arc::new(Event::new()));
        let _watches =
            [(&quiet, &of_quiet), (&busy, &of_busy)].map(|(file, event)| notices.watch(file, event).unwrap());
        let listener = of_quiet.listen();
        let is_seen = thread::scope(|scope| {
            let (ends, ended) = channel::<()>();
            let path = directory.path().join("busy");
            scope.spawn(move || {
                while ended.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
                    fs::write(&path, b"y").unwrap();
                }
            });
            let is_seen = listener.wait_timeout(Duration::from_secs(20));
            drop(ends);
            is_seen
        });
        assert!(is_seen, "no look within 20 seconds");
    }
}
