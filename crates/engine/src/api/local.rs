//! Local: an engine that stays in one thread, and the files, readers and futures that stay with it.
//!
//! ```text
//!   one processor, one thread, one LocalEngine: block_on ─► your futures ─► read_at_async … ─► ring of this thread
//! ```
//!
//! Owns: keeping the parts of a local engine in their thread (`!Send`).
//! Does not own: reading, which is the same as for any [`File`].

use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_io::{AsyncBufRead, AsyncRead};
use headwater_core::readahead::Advice;
use headwater_core::units::PageRange;
use headwater_io::LocalDriver;

use crate::api::async_reader::{AsyncReader, ByteStream};
use crate::api::engine::{Info, Stats};
use crate::api::eviction_listener::EvictionListener;
use crate::api::file::File;
use crate::api::options::OpenOptions;
use crate::api::reader::Reader;
use crate::api::shared_view::SharedView;
use crate::api::view::View;
use crate::api::writer::Writer;
use crate::base::counters::FileStats;
use crate::base::error::Result;
use crate::engine::Engine;
use crate::engine::handle::IoMode;

/// An engine for one thread, for programs with a thread on each processor. The kernel completes its requests when this thread
/// asks for completions (`IORING_SETUP_DEFER_TASKRUN`), without interrupting it, and processors share nothing but [`Bytes`] that
/// the program sends. Built by [`EngineBuilder::local`](crate::EngineBuilder::local).
///
/// Its futures run inside [`LocalEngine::block_on`], or with the feature `tokio` in a current-thread tokio runtime on this
/// thread. The engine, its files, readers and futures cannot leave the thread:
///
/// ```compile_fail,E0277
/// let engine = headwater::Engine::builder().local().unwrap();
/// std::thread::spawn(move || engine.info());
/// ```
///
/// ```compile_fail,E0277
/// # let engine = headwater::Engine::builder().local().unwrap();
/// let file = engine.open("/proc/version").unwrap();
/// std::thread::spawn(move || file.len());
/// ```
///
/// ```compile_fail,E0277
/// # let engine = headwater::Engine::builder().local().unwrap();
/// # let file = engine.open("/proc/version").unwrap();
/// let read = file.read_at_async(0, 10);
/// std::thread::spawn(move || drop(read));
/// ```
#[derive(Debug)]
pub struct LocalEngine {
    engine: Engine,
    driver: LocalDriver,
}

impl LocalEngine {
    pub(crate) fn new(engine: Engine, driver: LocalDriver) -> LocalEngine {
        LocalEngine { engine, driver }
    }

    /// Opens a file as [`OpenOptions::open`] does, in [`IoMode::Auto`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<LocalFile> {
        self.open_as(path, IoMode::Auto)
    }

    /// Opens a file in the given mode.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_as(&self, path: impl AsRef<Path>, mode: IoMode) -> Result<LocalFile> {
        let file = OpenOptions::new().io(mode).engine(&self.engine).open(path)?;
        Ok(LocalFile { file: Local::new(file) })
    }

    /// Opens a file with these options on this engine, whichever engine they name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let engine = headwater::Engine::builder().local()?;
    /// let file = engine.open_with(headwater::OpenOptions::new().write(true).create(true), dir.path().join("log"))?;
    /// engine.block_on(async {
    ///     file.append_async("first\n").await?;
    ///     file.sync_data_async().await
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_with(&self, options: &OpenOptions, path: impl AsRef<Path>) -> Result<LocalFile> {
        let file = options.clone().engine(&self.engine).open(path)?;
        Ok(LocalFile { file: Local::new(file) })
    }

    /// Runs a future to completion, and the engine's requests meanwhile. The future may also wait for anything else.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.driver.block_on(future)
    }

    /// Driver, limits, and why a requested feature is not in use.
    pub fn info(&self) -> Info {
        self.engine.info()
    }

    /// The gauges now.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

/// A file of a [`LocalEngine`]. The methods are those of [`File`].
#[derive(Clone, Debug)]
pub struct LocalFile {
    file: Local<File>,
}

impl LocalFile {
    /// As [`File::len`].
    ///
    /// # Errors
    /// As [`File::len`].
    #[allow(clippy::len_without_is_empty)] // A file of length 0 may have contents, in /proc.
    pub fn len(&self) -> Result<u64> {
        self.file.len()
    }

    /// As [`File::read_at`].
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        self.file.read_at(buffer, offset_bytes)
    }

    /// As [`File::read_exact_at`].
    ///
    /// # Errors
    /// As [`File::read_exact_at`].
    pub fn read_exact_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset_bytes)
    }

    /// As [`File::read_at_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::read_at_async`].
    pub fn read_at_async(
        &self,
        offset_bytes: u64,
        length: usize,
    ) -> impl Future<Output = Result<Bytes>> + 'static + use<> {
        stay(self.file.read_at_async(offset_bytes, length))
    }

    /// As [`File::read_exact_at_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::read_exact_at_async`].
    pub fn read_exact_at_async(
        &self,
        offset_bytes: u64,
        length: usize,
    ) -> impl Future<Output = Result<Bytes>> + 'static + use<> {
        stay(self.file.read_exact_at_async(offset_bytes, length))
    }

    /// As [`File::write_at`].
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        self.file.write_at(bytes, offset_bytes)
    }

    /// As [`File::write_all_at`].
    ///
    /// # Errors
    /// As [`File::write_all_at`].
    pub fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset_bytes)
    }

    /// As [`File::append`].
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.file.append(bytes)
    }

    /// As [`File::append_durable`].
    ///
    /// # Errors
    /// As [`File::append_durable`].
    pub fn append_durable(&self, bytes: &[u8]) -> Result<u64> {
        self.file.append_durable(bytes)
    }

    /// As [`File::set_len`].
    ///
    /// # Errors
    /// As [`File::set_len`].
    pub fn set_len(&self, length_bytes: u64) -> Result<()> {
        self.file.set_len(length_bytes)
    }

    /// As [`File::flush`].
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn flush(&self) -> Result<()> {
        self.file.flush()
    }

    /// As [`File::is_clean`].
    pub fn is_clean(&self) -> bool {
        self.file.is_clean()
    }

    /// As [`File::sync_data`].
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    /// As [`File::sync_all`].
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_all(&self) -> Result<()> {
        self.file.sync_all()
    }

    /// As [`File::write_all_at_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::write_all_at_async`].
    pub fn write_all_at_async(
        &self,
        bytes: impl Into<Bytes>,
        offset_bytes: u64,
    ) -> impl Future<Output = Result<()>> + 'static {
        stay(self.file.write_all_at_async(bytes.into(), offset_bytes))
    }

    /// As [`File::append_durable_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::append_durable_async`].
    pub fn append_durable_async(
        &self,
        bytes: impl Into<Bytes>,
    ) -> impl Future<Output = Result<u64>> + 'static {
        stay(self.file.append_durable_async(bytes.into()))
    }

    /// As [`File::append_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::append_async`].
    pub fn append_async(&self, bytes: impl Into<Bytes>) -> impl Future<Output = Result<u64>> + 'static {
        stay(self.file.append_async(bytes.into()))
    }

    /// As [`File::set_len_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::set_len_async`].
    pub fn set_len_async(&self, length_bytes: u64) -> impl Future<Output = Result<()>> + 'static {
        stay(self.file.set_len_async(length_bytes))
    }

    /// As [`File::flush_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::flush_async`].
    pub fn flush_async(&self) -> impl Future<Output = Result<()>> + 'static {
        stay(self.file.flush_async())
    }

    /// As [`File::sync_data_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::sync_data_async`].
    pub fn sync_data_async(&self) -> impl Future<Output = Result<()>> + 'static {
        stay(self.file.sync_data_async())
    }

    /// As [`File::sync_all_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::sync_all_async`].
    pub fn sync_all_async(&self) -> impl Future<Output = Result<()>> + 'static {
        stay(self.file.sync_all_async())
    }

    /// As [`File::view`].
    ///
    /// # Errors
    /// As [`File::view`].
    pub fn view(&self, offset_bytes: u64, length: usize) -> Result<View> {
        self.file.view(offset_bytes, length)
    }

    /// As [`File::view_async`], for this thread.
    ///
    /// # Errors
    /// As [`File::view_async`].
    pub fn view_async(
        &self,
        offset_bytes: u64,
        length: usize,
    ) -> impl Future<Output = Result<View>> + 'static + use<> {
        stay(self.file.view_async(offset_bytes, length))
    }

    /// As [`File::map`].
    ///
    /// # Errors
    /// As [`File::map`].
    pub fn map(&self, range: impl RangeBounds<u64>) -> Result<Local<SharedView>> {
        self.file.map(range).map(Local::new)
    }

    /// As [`File::map_contiguous`].
    ///
    /// # Errors
    /// As [`File::map_contiguous`].
    pub fn map_contiguous(&self, range: impl RangeBounds<u64>) -> Result<Local<SharedView>> {
        self.file.map_contiguous(range).map(Local::new)
    }

    /// As [`File::writer`].
    pub fn writer(&self) -> Local<Writer> {
        Local::new(self.file.writer())
    }

    /// As [`File::advise`].
    ///
    /// # Errors
    /// As [`File::advise`].
    pub fn advise(&self, advice: Advice, range: impl RangeBounds<u64>) -> Result<()> {
        self.file.advise(advice, range)
    }

    /// As [`File::on_evicted`].
    pub fn on_evicted(
        &self,
        listener: impl Fn(PageRange) + Send + Sync + 'static,
    ) -> Local<EvictionListener> {
        Local::new(self.file.on_evicted(listener))
    }

    /// As [`File::stats`].
    pub fn stats(&self) -> FileStats {
        self.file.stats()
    }

    /// As [`File::reader`].
    pub fn reader(&self) -> Local<Reader> {
        Local::new(self.file.reader())
    }

    /// As [`File::async_reader`].
    pub fn async_reader(&self) -> Local<AsyncReader> {
        Local::new(self.file.async_reader())
    }

    /// As [`File::stream`].
    pub fn stream(&self) -> Local<ByteStream> {
        Local::new(self.file.stream())
    }
}

/// Makes the future `!Send`.
async fn stay<F: Future>(future: F) -> F::Output {
    let here: PhantomData<Rc<()>> = PhantomData;
    let output = future.await;
    let _ = here;
    output
}

/// A part of a [`LocalEngine`], which cannot leave its thread.
#[derive(Clone, Debug)]
pub struct Local<T> {
    inner: T,
    not_send: PhantomData<Rc<()>>,
}

impl<T> Local<T> {
    fn new(inner: T) -> Local<T> {
        Local { inner, not_send: PhantomData }
    }
}

impl<T> Deref for Local<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Local<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

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

impl<T: Stream + Unpin> Stream for Local<T> {
    type Item = T::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T::Item>> {
        Pin::new(&mut self.inner).poll_next(context)
    }
}
