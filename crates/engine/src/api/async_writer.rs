//! Async writer: a cursor for writing in tasks on any runtime, with a buffer for small writes.
//!
//! ```text
//!   poll_write ─┬─ it fits ─► buffer ─► full, flush, seek, close ─► a write under way ─► the engine's memory
//!               └─ a write is under way ─► poll it first
//! ```
//!
//! Owns: a position, bytes that the engine does not have yet.
//! Does not own: the write itself; see positional writes.
//! Invariants: bytes that were accepted stay in the buffer or under way until the engine has them, also after an error.

use std::fmt;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Builder, Thread};

use bytes::Bytes;
use futures_io::{AsyncSeek, AsyncWrite};
use futures_sink::Sink;
use headwater_io::without_signals;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::api::writer::{note_unwritten, take_report};
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::OFFSET_BYTES_MAX;
use crate::engine::writes::Writes;
use crate::inode::Inode;

/// Writes a file from a position onwards: `AsyncWrite + AsyncSeek` of the `futures` crate, those of tokio with the feature `tokio`, and
/// a `Sink` of [`Bytes`]. `Send`; works on every executor. It gathers small writes by itself.
///
/// Written bytes are in the engine's memory, and visible to its readers, after a flush, a seek or the close, and with each
/// full buffer of 64 KiB; in the file after
/// [`AsyncWriter::sync`], or some seconds after they came to the engine's memory. After an error the bytes that could not be written
/// stay, and the next call tries again. Flush or close it before it is dropped: the drop hands over what is left, and if that has to
/// wait, for memory, for the rest of a page or for a task that changes the file's length, a thread goes on with it (on a
/// [`LocalEngine`](crate::LocalEngine) the drop blocks). An error is then reported by the next write or sync of the file.
///
/// On a file that was opened with [`OpenOptions::append`](crate::OpenOptions::append) it appends, wherever it stands, as a
/// [`Writer`](crate::Writer) does: the bytes of one `poll_write`, and of one item of the `Sink`, lie together.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("lines");
/// use futures_util::AsyncWriteExt;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut writer = headwater::File::create(&path)?.async_writer();
/// for number in 0..1000 {
///     writer.write_all(format!("{number}\n").as_bytes()).await?;
/// }
/// writer.sync().await?;
/// # std::io::Result::Ok(())
/// # })?;
/// assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncWriter {
    file: File,
    /// Where the buffer begins, behind what is under way.
    position_bytes: u64,
    buffer: Vec<u8>,
    under_way: Option<UnderWay>,
}

/// Bytes on their way into the engine's memory.
struct UnderWay {
    bytes: Bytes,
    offset_bytes: u64,
    write: Pin<Box<dyn Future<Output = Result<Put>> + Send>>,
}

/// Bytes that the engine has got.
struct Put {
    end_bytes: u64,
    length_bytes: usize,
}

impl File {
    /// A cursor at byte 0 for writing in async tasks, on any runtime.
    pub fn async_writer(&self) -> AsyncWriter {
        AsyncWriter { file: self.clone(), position_bytes: 0, buffer: Vec::new(), under_way: None }
    }
}

impl AsyncWriter {
    /// As [`Writer::starting_at`](crate::Writer::starting_at).
    ///
    /// # Panics
    /// If it holds bytes.
    #[must_use]
    pub fn starting_at(mut self, offset_bytes: u64) -> AsyncWriter {
        assert!(self.buffer.is_empty() && self.under_way.is_none(), "the writer has begun; seek it");
        self.position_bytes = offset_bytes;
        self
    }

    /// Hands over what the buffer holds, then as [`File::sync_data_async`].
    ///
    /// # Errors
    /// As [`File::write_all_at_async`] and [`File::sync_data_async`].
    pub async fn sync(&mut self) -> Result<()> {
        std::future::poll_fn(|context| self.poll_hand_over(context)).await?;
        self.file.sync_data_async().await
    }

    /// Hands over what the buffer holds, and returns the file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use futures_util::AsyncWriteExt;
    /// let mut writer = headwater::File::create(&path)?.async_writer().starting_at(4);
    /// writer.write_all(b"four").await?;
    /// let file = writer.into_inner().await?;
    /// assert_eq!(file.view_async(0, 8).await?, b"\0\0\0\0four");
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::write_all_at_async`]. The bytes are given up then; a flush before it keeps them.
    pub async fn into_inner(mut self) -> Result<File> {
        let written = std::future::poll_fn(|context| self.poll_hand_over(context)).await;
        // Reported here, not by the drop as well.
        (self.under_way, self.buffer) = (None, Vec::new());
        written.map(|()| self.file.clone())
    }

    /// The position of the next byte.
    fn end_bytes(&self) -> u64 {
        self.position_bytes + self.buffer.len() as u64
    }

    /// Gives bytes to the engine.
    fn begin(&mut self, bytes: Bytes) {
        let offset_bytes = self.position_bytes;
        self.position_bytes += bytes.len() as u64;
        self.give(bytes, offset_bytes);
    }

    fn give(&mut self, bytes: Bytes, offset_bytes: u64) {
        let write = Box::pin(self.file.clone().put_async(bytes.clone(), offset_bytes));
        self.under_way = Some(UnderWay { bytes, offset_bytes, write });
    }

    /// Ready when nothing is under way. After an error the bytes that are not written are, anew.
    fn poll_under_way(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while let Some(under_way) = &mut self.under_way {
            let result = ready!(under_way.write.as_mut().poll(context));
            let (mut bytes, mut offset_bytes) = (under_way.bytes.clone(), under_way.offset_bytes);
            self.under_way = None;
            match result {
                Ok(put) => {
                    bytes = bytes.slice(put.length_bytes..);
                    offset_bytes = put.end_bytes;
                    // Of appended bytes, only the kernel knew where they would lie.
                    self.position_bytes = offset_bytes + bytes.len() as u64;
                    if !bytes.is_empty() {
                        self.give(bytes, offset_bytes);
                    }
                }
                Err(error) => {
                    self.give(bytes, offset_bytes);
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the engine has everything.
    fn poll_hand_over(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_under_way(context))?;
        if !self.buffer.is_empty() {
            let bytes = std::mem::take(&mut self.buffer).into();
            self.begin(bytes);
            ready!(self.poll_under_way(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the buffer has room for this many bytes, or is empty.
    fn poll_room(&mut self, context: &mut Context<'_>, length: usize) -> Poll<Result<()>> {
        if self.buffer.is_empty() || self.buffer.len() + length <= BUFFER_BYTES {
            return Poll::Ready(Ok(()));
        }
        self.poll_hand_over(context)
    }

    /// The first bytes are refused at once if they cannot be written there.
    fn check(&self, length: usize) -> Result<()> {
        if !self.buffer.is_empty() {
            return Ok(());
        }
        self.file.check_put(self.position_bytes, length)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        ready!(self.poll_room(context, bytes.len()))?;
        self.check(bytes.len())?;
        // What is appended stays together.
        let accepted = if self.file.appends() { bytes.len() } else { bytes.len().min(BUFFER_BYTES) };
        if self.buffer.is_empty() {
            self.buffer.reserve_exact(BUFFER_BYTES);
        }
        self.buffer.extend_from_slice(&bytes[..accepted]);
        Poll::Ready(Ok(accepted))
    }

    /// The position that a seek leads to; all is handed over.
    fn target_bytes(&self, target: SeekFrom) -> Result<u64> {
        let position_bytes = match target {
            SeekFrom::Start(offset_bytes) => Some(offset_bytes),
            SeekFrom::Current(delta) => self.position_bytes.checked_add_signed(delta),
            SeekFrom::End(delta) => self.file.len()?.checked_add_signed(delta),
        };
        position_bytes.filter(|&bytes| bytes <= OFFSET_BYTES_MAX).ok_or_else(|| {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "position is negative or above 2^63 - 1");
            Error::at(Operation::Seek, self.file.path(), self.position_bytes, error)
        })
    }

    fn poll_move(&mut self, context: &mut Context<'_>, target: SeekFrom) -> Poll<Result<u64>> {
        ready!(self.poll_hand_over(context))?;
        self.position_bytes = self.target_bytes(target)?;
        Poll::Ready(Ok(self.position_bytes))
    }
}

impl AsyncWrite for AsyncWriter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_accept(context, bytes).map_err(io::Error::from)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_hand_over(context).map_err(io::Error::from)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, context)
    }
}

impl AsyncSeek for AsyncWriter {
    fn poll_seek(self: Pin<&mut Self>, context: &mut Context<'_>, target: SeekFrom) -> Poll<io::Result<u64>> {
        self.get_mut().poll_move(context, target).map_err(io::Error::from)
    }
}

impl Sink<Bytes> for AsyncWriter {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let writer = self.get_mut();
        if writer.buffer.len() < BUFFER_BYTES && writer.under_way.is_none() {
            return Poll::Ready(Ok(()));
        }
        writer.poll_hand_over(context)
    }

    fn start_send(self: Pin<&mut Self>, bytes: Bytes) -> Result<()> {
        let writer = self.get_mut();
        writer.check(bytes.len())?;
        // A flush that was given up may have left a write under way.
        if bytes.len() < BUFFER_BYTES || !writer.buffer.is_empty() || writer.under_way.is_some() {
            writer.buffer.extend_from_slice(&bytes);
        } else {
            writer.begin(bytes);
        }
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.get_mut().poll_hand_over(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.get_mut().poll_hand_over(context)
    }
}

/// The traits of tokio, with the meaning of those of `futures`.
#[cfg(feature = "tokio")]
mod tokio_traits {
    use tokio::io::{AsyncSeek, AsyncWrite};

    use super::*;

    impl AsyncWrite for AsyncWriter {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            futures_io::AsyncWrite::poll_write(self, context, bytes)
        }

        fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            futures_io::AsyncWrite::poll_flush(self, context)
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            futures_io::AsyncWrite::poll_close(self, context)
        }
    }

    impl AsyncSeek for AsyncWriter {
        /// What was written is handed over by `poll_complete`; tokio seeks a file that is busy only after that.
        fn start_seek(self: Pin<&mut Self>, target: SeekFrom) -> io::Result<()> {
            let writer = self.get_mut();
            if writer.under_way.is_some() || !writer.buffer.is_empty() {
                return Err(io::Error::other("flush the writer before a seek"));
            }
            writer.position_bytes = writer.target_bytes(target)?;
            Ok(())
        }

        fn poll_complete(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
            let writer = self.get_mut();
            ready!(writer.poll_hand_over(context))?;
            Poll::Ready(Ok(writer.position_bytes))
        }
    }
}

impl Drop for AsyncWriter {
    fn drop(&mut self) {
        let Contents::Stored(source) = &self.file.contents else { return };
        // A forked child has a copy of the buffer, which its parent writes.
        if source.shared().driver.is_forked() {
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let left = self.under_way.take().map(|under_way| (under_way.bytes, under_way.offset_bytes));
        let pieces = left.into_iter().chain([(buffer.into(), self.position_bytes)]);
        let pieces: Vec<(Bytes, u64)> = pieces.filter(|(bytes, _)| !bytes.is_empty()).collect();
        if pieces.is_empty() {
            return;
        }
        let file = self.file.clone();
        if !source.shared().background.is_present() {
            // This thread is the one that completes requests.
            for (bytes, offset_bytes) in pieces {
                let taken = take_report(&file, offset_bytes, bytes.len());
                let written = match file.appends() {
                    true => file.append(&bytes).map(drop),
                    false => file.write_all_at(&bytes, offset_bytes),
                };
                note_unwritten(&file, taken, written.err());
            }
            return;
        }
        let late = Late::begin(&file, pieces.iter().map(|(bytes, _)| bytes.len()).sum());
        // What holds the file back may be a task of this thread.
        let mut writing = Box::pin(async move {
            for (bytes, offset_bytes) in pieces {
                let taken = take_report(&file, offset_bytes, bytes.len());
                let written = match file.appends() {
                    true => file.append_async(bytes).await.map(drop),
                    false => file.write_all_at_async(bytes, offset_bytes).await,
                };
                note_unwritten(&file, taken, written.err());
            }
        });
        if writing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            go_on(Box::pin(async move {
                writing.await;
                drop(late);
            }));
        }
    }
}

impl File {
    /// Writes all bytes of a writer at its position, or appends some of them. If it is dropped before it is ready, no bytes are appended.
    async fn put_async(self, bytes: Bytes, position_bytes: u64) -> Result<Put> {
        let source = self.writable(Operation::Write)?;
        if source.appender.is_some() {
            let appended = source.append_some_async(&bytes).await?;
            return Ok(Put { end_bytes: appended.end_bytes(), length_bytes: appended.length_bytes });
        }
        self.write_slice_async(&bytes, position_bytes).await?;
        Ok(Put { end_bytes: position_bytes + bytes.len() as u64, length_bytes: bytes.len() })
    }
}

/// Has an exit of the process wait for what a dropped writer held, until dropped.
struct Late {
    file: File,
    length: usize,
}

impl Late {
    fn begin(file: &File, length: usize) -> Late {
        let late = Late { file: file.clone(), length };
        if let Some((writes, inode)) = late.parts() {
            writes.begin_late(inode, length);
        }
        late
    }

    fn parts(&self) -> Option<(&Writes, &Arc<Inode>)> {
        let Contents::Stored(source) = &self.file.contents else { return None };
        source.known().map(|inode| (&source.shared().cache.writes, inode))
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        if let Some((writes, inode)) = self.parts() {
            writes.end_late(inode, self.length);
        }
    }
}

/// Ends a write in a thread of its own; in this one if there is none.
fn go_on(writing: Pin<Box<dyn Future<Output = ()> + Send>>) {
    let (give, take) = channel();
    let run = move || take.recv().into_iter().for_each(end);
    let builder = Builder::new().name("headwater-writer".into());
    if without_signals(|| builder.spawn(run)).is_ok() {
        give.send(writing).expect("it receives once");
    } else {
        end(writing);
    }
}

fn end(mut writing: Pin<Box<dyn Future<Output = ()> + Send>>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    while writing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl fmt::Debug for AsyncWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncWriter").field("position", &self.end_bytes()).field("file", &self.file).finish()
    }
}

/// As the one of [`Writer`](crate::Writer).
const BUFFER_BYTES: usize = 64 << 10;

// As an engine. A write under way that has panicked panics again when it is polled.
impl UnwindSafe for AsyncWriter {}

impl RefUnwindSafe for AsyncWriter {}
