//! Local: an engine that stays in one thread, and the files, readers and futures that stay with it.
//!
//! ```text
//!   one processor, one thread, one LocalEngine: block_on ─► your futures ─► read_at_async … ─► ring of this thread
//! ```
//!
//! Owns: keeping the parts of a local engine in their thread (`!Send`).
//! Does not own: reading and writing, which are the same as for any [`File`]; the traits of parts (traits).

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::path::Path;
use std::rc::Rc;
use std::thread;

use bytes::Bytes;
use headwater_core::units::PageRange;
use headwater_io::LocalDriver;

use crate::api::async_reader::{AsyncReader, ByteStream};
use crate::api::async_writer::AsyncWriter;
use crate::api::builder::EngineBuilder;
use crate::api::engine::{Info, Stats};
use crate::api::eviction_listener::EvictionListener;
use crate::api::file::File;
use crate::api::options::OpenOptions;
use crate::api::reader::Reader;
use crate::api::reader_builder::ReaderBuilder;
use crate::api::shared_view::SharedView;
use crate::api::task::Task;
use crate::api::task_queue::TaskQueue;
use crate::api::view::View;
use crate::api::writer::Writer;
use crate::base::error::{Error, Result};
use crate::engine::Engine;
use crate::engine::background::Presence;
use crate::engine::handle::IoMode;

mod traits;

/// An engine for one thread, for programs with a thread on each processor. The kernel completes its requests when this thread
/// asks for completions (`IORING_SETUP_DEFER_TASKRUN`), without interrupting it, and processors share nothing but [`Bytes`] that
/// the program sends. Built by [`EngineBuilder::local`](crate::EngineBuilder::local).
///
/// [`LocalEngines`](crate::LocalEngines) has one for each processor, with the threads.
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
    /// Dropped first: the futures may hold files and reads.
    tasks: TaskQueue,
    engine: Engine,
    driver: LocalDriver,
}

impl EngineBuilder {
    /// Builds an engine for this thread alone; see [`LocalEngine`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abc")?;
    /// let engine = headwater::Engine::builder().local()?;
    /// let file = engine.open(&path)?;
    /// let bytes = engine.block_on(file.read_at_async(0, 3))?;
    /// assert_eq!(&bytes[..], b"abc");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A program that forbids itself io_uring (seccomp) does so before: what this thread has in flight on its ring would not end.
    ///
    /// # Errors
    /// As [`EngineBuilder::build`]; also when no descriptors are left.
    pub fn local(self) -> Result<LocalEngine> {
        let driver = LocalDriver::new(&self.driver_options()?).map_err(Error::build)?;
        let engine = self.build_with(Presence::Absent, || Ok(driver.driver().clone()))?;
        Ok(LocalEngine { tasks: TaskQueue::new(driver.waker()), engine, driver })
    }
}

impl LocalEngine {
    /// Opens a file as [`OpenOptions::open`] does, in [`IoMode::Auto`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Local<File>> {
        self.open_as(path, IoMode::Auto)
    }

    /// Opens a file in the given mode.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, vec![7; 100_000])?;
    /// use futures_util::AsyncReadExt;
    /// use headwater::{Engine, IoMode, Local, Reader};
    /// let engine = Engine::builder().memory(8 << 20).local()?;
    /// let file = engine.open_as(&path, IoMode::Buffered)?;
    /// let mut reader = Local::<Reader>::builder(&file).request_bytes(64 << 10).build_async()?;
    /// let mut bytes = Vec::new();
    /// engine.block_on(reader.read_to_end(&mut bytes))?;
    /// assert_eq!(bytes.len(), 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_as(&self, path: impl AsRef<Path>, mode: IoMode) -> Result<Local<File>> {
        let file = OpenOptions::new().io(mode).engine(&self.engine).open(path)?;
        Ok(Local::new(file))
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
    pub fn open_with(&self, options: &OpenOptions, path: impl AsRef<Path>) -> Result<Local<File>> {
        let file = options.clone().engine(&self.engine).open(path)?;
        Ok(Local::new(file))
    }

    /// Runs a future to completion, and the engine's requests and spawned futures meanwhile. The future may also wait for anything
    /// else.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.driver.block_on(self.tasks.beside(future))
    }

    /// Has [`LocalEngine::block_on`] run a future beside its own, from now on and in this thread. What is not over when that
    /// returns goes on in the next call, and is dropped with the engine. A future that holds the engine itself, as an `Rc`, keeps it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abcdef")?;
    /// let engine = headwater::Engine::builder().local()?;
    /// let file = engine.open(&path)?;
    /// let last = engine.spawn(file.read_at_async(3, 3));
    /// let first = engine.block_on(file.read_at_async(0, 3))?;
    /// let last = engine.block_on(last)?;
    /// assert_eq!((&first[..], &last[..]), (&b"abc"[..], &b"def"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn<F: Future + 'static>(&self, future: F) -> Task<F::Output> {
        let (task, running) = Task::new(thread::current().id());
        self.tasks.push(running.run(future));
        task
    }

    pub(crate) fn tasks(&self) -> &TaskQueue {
        &self.tasks
    }

    /// As [`Engine::info`].
    pub fn info(&self) -> Info {
        self.engine.info()
    }

    /// As [`Engine::stats`].
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

/// Methods of [`File`] that return a future, or a part that uses the engine, with one that cannot leave the thread. All others are
/// `File`'s own, by `Deref`.
macro_rules! stay_in_thread {
    (
        futures { $($future:ident($($input:ident: $kind:ty),*) -> $output:ty;)* }
        parts { $($part:ident($($argument:ident: $type:ty),*) -> $whole:ty;)* }
        parts_or_errors { $($fallible:ident($($range:ident: $bounds:ty),*) -> $window:ty;)* }
    ) => {
        /// A file of a [`LocalEngine`], with all methods of [`File`]. Their futures, and readers, writers and windows of it, stay in the thread
        /// as well.
        ///
        /// ```
        /// let engine = headwater::Engine::builder().local()?;
        /// let file = engine.open("/proc/self/status")?;
        /// assert!(file.path().is_absolute());
        /// let first = engine.block_on(file.read_at_async(0, 5))?;
        /// assert_eq!(first, &b"Name:"[..]);
        /// # Ok::<(), headwater::Error>(())
        /// ```
        ///
        /// `Deref` lends the [`File`]. Its clones can be moved to other threads; methods that submit requests to the engine's ring panic there.
        impl Local<File> {
            $(
                #[doc = concat!("As [`File::", stringify!($future), "`], for this thread.")]
                ///
                /// # Errors
                #[doc = concat!("As [`File::", stringify!($future), "`].")]
                pub fn $future(&self, $($input: $kind),*) -> impl Future<Output = Result<$output>> + 'static {
                    stay(self.inner.$future($($input),*))
                }
            )*
            $(
                #[doc = concat!("As [`File::", stringify!($part), "`], for this thread.")]
                pub fn $part(&self, $($argument: $type),*) -> Local<$whole> {
                    Local::new(self.inner.$part($($argument),*))
                }
            )*
            $(
                #[doc = concat!("As [`File::", stringify!($fallible), "`], for this thread.")]
                ///
                /// # Errors
                #[doc = concat!("As [`File::", stringify!($fallible), "`].")]
                pub fn $fallible(&self, $($range: $bounds),*) -> Result<Local<$window>> {
                    self.inner.$fallible($($range),*).map(Local::new)
                }
            )*
        }
    };
}

stay_in_thread! {
    futures {
        read_at_async(offset_bytes: u64, length: usize) -> Bytes;
        read_exact_at_async(offset_bytes: u64, length: usize) -> Bytes;
        view_async(offset_bytes: u64, length: usize) -> View;
        write_all_at_async(bytes: impl Into<Bytes>, offset_bytes: u64) -> ();
        append_async(bytes: impl Into<Bytes>) -> u64;
        append_durable_async(bytes: impl Into<Bytes>) -> u64;
        set_len_async(length_bytes: u64) -> ();
        punch_hole_async(range: impl RangeBounds<u64> + Send + Sync + 'static) -> ();
        copy_range_to_async(range: impl RangeBounds<u64>, target: &File, at_bytes: u64) -> u64;
        flush_async() -> ();
        sync_data_async() -> ();
        sync_all_async() -> ();
        wait_for_growth_async(known_bytes: u64) -> u64;
    }
    parts {
        reader() -> Reader;
        async_reader() -> AsyncReader;
        stream() -> ByteStream;
        writer() -> Writer;
        async_writer() -> AsyncWriter;
        on_evicted(listener: impl Fn(PageRange) + Send + Sync + 'static) -> EvictionListener;
    }
    parts_or_errors {
        try_clone() -> File;
        map(range: impl RangeBounds<u64>) -> SharedView;
        map_contiguous(range: impl RangeBounds<u64>) -> SharedView;
        map_on_demand(range: impl RangeBounds<u64>, memory_bytes: u64) -> SharedView;
    }
}

/// Methods that consume a part of an engine, which `Deref` does not lend.
macro_rules! consume_in_thread {
    ($($part:ident { $($method:ident($($input:ident: $kind:ty),*) -> $whole:ty;)* })*) => {
        $(impl Local<$part> {
            $(
                #[doc = concat!("As [`", stringify!($part), "::", stringify!($method), "`], also in what it panics at, for this thread.")]
                #[must_use]
                pub fn $method(self, $($input: $kind),*) -> Local<$whole> {
                    Local::new(self.inner.$method($($input),*))
                }
            )*
        })*
    };
}

impl Local<Reader> {
    /// As [`Reader::builder`], for this thread.
    ///
    /// ```
    /// # use std::io::Read;
    /// use headwater::{Local, Reader};
    /// let engine = headwater::Engine::builder().local()?;
    /// let file = engine.open("/proc/version")?;
    /// let mut text = String::new();
    /// Local::<Reader>::builder(&file).request_bytes(64 << 10).build()?.read_to_string(&mut text)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(file: &Local<File>) -> Local<ReaderBuilder<'_>> {
        Local::new(Reader::builder(&file.inner))
    }
}

impl<'a> Local<ReaderBuilder<'a>> {
    /// As [`ReaderBuilder::request_bytes`].
    #[must_use]
    pub fn request_bytes(self, request_bytes: u64) -> Local<ReaderBuilder<'a>> {
        Local::new(self.inner.request_bytes(request_bytes))
    }

    /// As [`ReaderBuilder::ahead_bytes`].
    #[must_use]
    pub fn ahead_bytes(self, ahead_bytes: u64) -> Local<ReaderBuilder<'a>> {
        Local::new(self.inner.ahead_bytes(ahead_bytes))
    }

    /// As [`ReaderBuilder::build`], for this thread.
    ///
    /// # Errors
    /// As [`ReaderBuilder::build`].
    pub fn build(self) -> Result<Local<Reader>> {
        self.inner.build().map(Local::new)
    }

    /// As [`ReaderBuilder::build_async`], for this thread.
    ///
    /// # Errors
    /// As [`ReaderBuilder::build_async`].
    pub fn build_async(self) -> Result<Local<AsyncReader>> {
        self.inner.build_async().map(Local::new)
    }
}

consume_in_thread! {
    Reader {
        starting_at(offset_bytes: u64) -> Reader;
        into_inner() -> File;
    }
    AsyncReader {
        starting_at(offset_bytes: u64) -> AsyncReader;
        into_inner() -> File;
        into_stream() -> ByteStream;
    }
    Writer {
        starting_at(offset_bytes: u64) -> Writer;
    }
    AsyncWriter {
        starting_at(offset_bytes: u64) -> AsyncWriter;
    }
}

impl Local<Writer> {
    /// As [`Writer::into_inner`], for this thread.
    ///
    /// # Errors
    /// As [`Writer::into_inner`].
    pub fn into_inner(self) -> Result<Local<File>> {
        self.inner.into_inner().map(Local::new)
    }
}

impl Local<AsyncWriter> {
    /// As [`AsyncWriter::into_inner`], for this thread.
    ///
    /// # Errors
    /// As [`AsyncWriter::into_inner`].
    pub async fn into_inner(self) -> Result<Local<File>> {
        self.inner.into_inner().await.map(Local::new)
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
