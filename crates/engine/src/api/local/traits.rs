//! Traits: what a part of a local engine has of the traits for reading, writing and streams is what the part has.
//!
//! Owns: handing each call on.
//! Does not own: what it does.

use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};
use futures_sink::Sink;

use super::Local;

impl<T: Read> Read for Local<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

impl<T: BufRead> BufRead for Local<T> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.inner.consume(amount);
    }
}

impl<T: Write> Write for Local<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Seek> Seek for Local<T> {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        self.inner.seek(target)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        self.inner.stream_position()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Local<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncBufRead + Unpin> AsyncBufRead for Local<T> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().inner).poll_fill_buf(context)
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        Pin::new(&mut self.inner).consume(amount);
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Local<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(context)
    }
}

impl<T: AsyncSeek + Unpin> AsyncSeek for Local<T> {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.inner).poll_seek(context, target)
    }
}

impl<T: Stream + Unpin> Stream for Local<T> {
    type Item = T::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T::Item>> {
        Pin::new(&mut self.inner).poll_next(context)
    }
}

impl<Item, T: Sink<Item> + Unpin> Sink<Item> for Local<T> {
    type Error = T::Error;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        Pin::new(&mut self.inner).poll_ready(context)
    }

    fn start_send(mut self: Pin<&mut Self>, item: Item) -> Result<(), T::Error> {
        Pin::new(&mut self.inner).start_send(item)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        Pin::new(&mut self.inner).poll_close(context)
    }
}

/// The traits of tokio.
#[cfg(feature = "tokio")]
mod tokio_traits {
    use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

    use super::{Context, Local, Pin, Poll, SeekFrom, io};

    impl<T: AsyncRead + Unpin> AsyncRead for Local<T> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_read(context, buffer)
        }
    }

    impl<T: AsyncBufRead + Unpin> AsyncBufRead for Local<T> {
        fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            Pin::new(&mut self.get_mut().inner).poll_fill_buf(context)
        }

        fn consume(mut self: Pin<&mut Self>, amount: usize) {
            Pin::new(&mut self.inner).consume(amount);
        }
    }

    impl<T: AsyncWrite + Unpin> AsyncWrite for Local<T> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.inner).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(context)
        }
    }

    impl<T: AsyncSeek + Unpin> AsyncSeek for Local<T> {
        fn start_seek(mut self: Pin<&mut Self>, target: SeekFrom) -> io::Result<()> {
            Pin::new(&mut self.inner).start_seek(target)
        }

        fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
            Pin::new(&mut self.inner).poll_complete(context)
        }
    }
}
