//! Async reader: a cursor with readahead for tasks on any runtime, and a stream of shared frames.
//!
//! Owns: the cursor.
//! Does not own: an executor; wakers are called from the thread that sees the completion.
//! Invariants: I4 dropping a future or reader between polls frees nothing that the device still uses.
//! Blocking: polls never wait for the device; `SeekFrom::End` asks a server for the length of its file.

use std::fmt;
use std::io::{self, SeekFrom};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek};

use crate::api::cursor::Cursor;
use crate::api::file::File;

/// Reads a file from a position onwards: `AsyncRead + AsyncBufRead + AsyncSeek` of the `futures` crate, and those of tokio with the
/// feature `tokio`. `Send`; works on every executor; may be dropped at any moment.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![1; 10_000])?;
/// use futures_util::io::AsyncReadExt;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut contents = Vec::new();
/// headwater::File::open(&path)?.async_reader().read_to_end(&mut contents).await?;
/// assert_eq!(contents.len(), 10_000);
/// # std::io::Result::Ok(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncReader {
    cursor: Cursor,
}

impl File {
    /// A cursor at byte 0 for sequential reading in async tasks, on any runtime.
    pub fn async_reader(&self) -> AsyncReader {
        AsyncReader::at(Cursor::new(&self.contents, None))
    }

    /// The file from byte 0 to its end as a stream of [`bytes::Bytes`] that share the frames.
    pub fn stream(&self) -> ByteStream {
        self.async_reader().into_stream()
    }
}

impl AsyncReader {
    pub(crate) fn at(cursor: Cursor) -> AsyncReader {
        AsyncReader { cursor }
    }

    /// As [`Reader::starting_at`](crate::Reader::starting_at).
    #[must_use]
    pub fn starting_at(mut self, offset_bytes: u64) -> AsyncReader {
        self.cursor.start_at(offset_bytes);
        self
    }

    /// The file, as of [`Reader::into_inner`](crate::Reader::into_inner).
    pub fn into_inner(self) -> File {
        File { contents: self.cursor.contents() }
    }

    /// The rest of the file as [`Bytes`].
    pub fn into_stream(self) -> ByteStream {
        ByteStream { cursor: Some(self.cursor) }
    }
}

impl AsyncRead for AsyncReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let chunk = ready!(self.as_mut().poll_fill_buf(context))?;
        let length = chunk.len().min(buffer.len());
        buffer[..length].copy_from_slice(&chunk[..length]);
        self.consume(length);
        Poll::Ready(Ok(length))
    }
}

impl AsyncBufRead for AsyncReader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let cursor = &mut self.get_mut().cursor;
        ready!(cursor.poll_fill(context))?;
        Poll::Ready(Ok(cursor.chunk()))
    }

    /// # Panics
    /// If `bytes` is more than `poll_fill_buf` showed.
    fn consume(mut self: Pin<&mut Self>, bytes: usize) {
        self.cursor.consume(bytes);
    }
}

impl AsyncSeek for AsyncReader {
    fn poll_seek(mut self: Pin<&mut Self>, _: &mut Context<'_>, target: SeekFrom) -> Poll<io::Result<u64>> {
        Poll::Ready(self.cursor.seek(target).map_err(io::Error::from))
    }
}

/// The traits of tokio, with the meaning of those of `futures`.
#[cfg(feature = "tokio")]
mod tokio_traits {
    use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, ReadBuf};

    use super::*;

    impl AsyncRead for AsyncReader {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            ready!(self.cursor.poll_fill(context))?;
            let chunk = self.cursor.chunk();
            let length = chunk.len().min(buffer.remaining());
            buffer.put_slice(&chunk[..length]);
            self.cursor.consume(length);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncBufRead for AsyncReader {
        fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            futures_io::AsyncBufRead::poll_fill_buf(self, context)
        }

        fn consume(self: Pin<&mut Self>, bytes: usize) {
            futures_io::AsyncBufRead::consume(self, bytes);
        }
    }

    impl AsyncSeek for AsyncReader {
        fn start_seek(mut self: Pin<&mut Self>, target: SeekFrom) -> io::Result<()> {
            self.cursor.seek(target)?;
            Ok(())
        }

        fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
            Poll::Ready(Ok(self.cursor.position_bytes()))
        }
    }
}

impl fmt::Debug for AsyncReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cursor.show("AsyncReader", f)
    }
}

/// A file as a `Stream` of [`Bytes`] in order, each of up to a few MiB (a file in memory comes in one piece). They share the
/// engine's frames; once lent frames hold half of the memory budget, further items are copies. Ends at the end of the file or
/// after the first error.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![1; 10_000])?;
/// use futures_util::TryStreamExt;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let parts: Vec<bytes::Bytes> = headwater::File::open(&path)?.stream().try_collect().await?;
/// assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 10_000);
/// # std::io::Result::Ok(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ByteStream {
    /// `None` once the stream has ended.
    cursor: Option<Cursor>,
}

impl Stream for ByteStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some(cursor) = &mut self.cursor else { return Poll::Ready(None) };
        let item = match ready!(cursor.poll_fill(context)) {
            Ok(()) => cursor.take_chunk().map(Ok),
            Err(error) => Some(Err(error.into())),
        };
        if !matches!(item, Some(Ok(_))) {
            self.cursor = None;
        }
        Poll::Ready(item)
    }
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cursor {
            Some(cursor) => cursor.show("ByteStream", f),
            None => f.write_str("ByteStream(ended)"),
        }
    }
}

// As an engine.
impl UnwindSafe for AsyncReader {}

impl RefUnwindSafe for AsyncReader {}

impl UnwindSafe for ByteStream {}

impl RefUnwindSafe for ByteStream {}
