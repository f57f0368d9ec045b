//! Growth: waiting until a file is longer, for programs that follow a log.
//!
//! ```text
//!   listen ─► check the file ─┬─ longer, or shorter ─► its length
//!      ▲                      └─ as before ─► wait ◄── a write by this engine · a write that the kernel reports · a second
//!      └────────────────────────────────────────┘
//! ```
//!
//! Owns: the loop.
//! Does not own: what notifies it (write, notices of `headwater-io`).

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_io::{FileKind, Notice};

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::base::shared_completion::Notified;
use crate::engine::handle::Source;
use crate::inode::Inode;

impl File {
    /// Blocks until the file's length is not `known_bytes` any more, and returns the length: a greater one after a write by any
    /// program, a smaller one after a truncate. After `timeout` returns `known_bytes`. The thread sleeps meanwhile: other programs'
    /// writes are reported by the kernel; those of other machines on a network file system, and those that the kernel does not report
    /// because the user's limit of inotify instances is reached, are seen within a second.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("log");
    /// let log = headwater::File::create(&path)?;
    /// let follower = log.clone();
    /// let following = std::thread::spawn(move || {
    ///     let end_bytes = follower.wait_for_growth(0, None)?;
    ///     follower.view(0, end_bytes as usize)
    /// });
    /// log.append(b"a line\n")?;
    /// assert_eq!(following.join().expect("no panic")?, b"a line\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` for a file in memory, and for devices; what `statx(2)` reports; when the thread that listens cannot be started.
    pub fn wait_for_growth(&self, known_bytes: u64, timeout: Option<Duration>) -> Result<u64> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let following = self.follow()?;
        loop {
            let listener = following.inode.lengthened.listen();
            let length_bytes = self.look_at_length()?;
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match left {
                _ if length_bytes != known_bytes => return Ok(length_bytes),
                Some(Duration::ZERO) => return Ok(known_bytes),
                Some(left) => drop(listener.wait_timeout(left)),
                None => listener.wait(),
            }
        }
    }

    /// As [`File::wait_for_growth`] without a limit, for tasks on any executor. May be dropped at any moment.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let log = headwater::File::create(&path)?;
    /// let (growth, append) = (log.wait_for_growth_async(0), log.append_async("a line\n"));
    /// assert_eq!(futures_util::future::try_join(growth, append).await?, (7, 0));
    /// # headwater::Result::Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::wait_for_growth`].
    pub fn wait_for_growth_async(
        &self,
        known_bytes: u64,
    ) -> impl Future<Output = Result<u64>> + Send + 'static {
        let file = self.clone();
        async move {
            let following = file.follow()?;
            loop {
                let driver = &following.source.shared().driver;
                let listener = Notified { listener: Some(following.inode.lengthened.listen()), driver };
                let length_bytes = file.look_at_length()?;
                if length_bytes != known_bytes {
                    return Ok(length_bytes);
                }
                listener.await;
            }
        }
    }

    fn follow(&self) -> Result<Following> {
        let unsupported = || {
            let error = io::Error::new(io::ErrorKind::Unsupported, "it cannot grow");
            Error::on_file(Operation::Length, self.path(), error)
        };
        let Contents::Stored(source) = &self.contents else { return Err(unsupported()) };
        source.check_process_for(Operation::Length)?;
        let may_grow = source.open.kind() == FileKind::Regular;
        let inode = source.known().filter(|_| may_grow).ok_or_else(unsupported)?;
        let notice = source.shared().notices.watch(&source.open, &inode.lengthened);
        let notice = notice.map_err(|error| Error::on_file(Operation::Length, self.path(), error))?;
        Ok(Following { source: source.clone(), inode: inode.clone(), _notice: notice })
    }

    /// The length, which the next reads of this file go by.
    fn look_at_length(&self) -> Result<u64> {
        self.refresh()?;
        self.len()
    }
}

/// A file whose length is watched.
struct Following {
    source: Arc<Source>,
    inode: Arc<Inode>,
    _notice: Notice,
}
