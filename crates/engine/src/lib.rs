//! headwater: files at the speed of the device, from any thread and any async runtime.
//!
//! One cache in user space, for Linux, serves reads, writes and views without a copy. Direct I/O on io_uring fills it, with
//! readahead that adapts, and the next best method where the system or the file system allows no more; callers never align
//! anything. What the kernel's page cache already holds is copied from there, not read from the device again, and that cache stays
//! as it was.
//!
//! ```
//! use std::io::Read;
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("numbers.log");
//! # std::fs::write(&path, vec![7; 300_000])?;
//!
//! let file = headwater::File::open(&path)?;
//!
//! let mut header = [0; 16];
//! file.read_exact_at(&mut header, 0)?;
//!
//! let mut everything = Vec::new();
//! file.reader().read_to_end(&mut everything)?;
//! assert_eq!(everything.len() as u64, file.len()?);
//!
//! let log = headwater::File::create(dir.path().join("log"))?;
//! log.append(b"one line\n")?;
//! log.sync_data()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Three things to know
//!
//! - **Bytes that were not synced may be visible through this engine only.** They are visible through every handle of the same engine at
//!   once, to other programs after [`File::flush`], and on the device after [`File::sync_data`]. As with every cache in user space,
//!   killing the process loses what was not synced. Dropping the last handle of an engine writes it back, and so does an orderly
//!   exit, but for a [`LocalEngine`].
//! - **Memory needs no number.** An engine takes what nothing else needs, and gives it back when others need it;
//!   [`EngineBuilder::memory`] sets a ceiling, and [`Stats::memory`] says what bounds it now.
//! - **The name of a new file survives a power loss only after its directory is synced**: `std::fs::File::open(folder)?.sync_all()?`.
//!
//! # By task
//!
//! | to | call |
//! |---|---|
//! | read a big file once | [`File::reader`], whose `fill_buf` copies nothing; in tasks [`File::stream`] |
//! | read a small file whole | [`read`](fn@read), [`Engine::read`] |
//! | serve random reads | [`File::read_at`], many at once with [`File::read_many`]; in tasks [`File::read_at_async`] |
//! | look at bytes in place | [`File::peek`] within a page, [`File::view`] beyond it |
//! | append durably | [`File::append_durable`], [`File::append_durable_async`]: concurrent callers share a sync, and a write if opened with [`OpenOptions::append`] |
//! | write a file in order | [`File::writer`]; in tasks [`File::async_writer`] |
//! | share with mmap-like windows | [`File::map`]; in one piece of memory, [`File::map_contiguous`]; larger than memory, [`File::map_on_demand`] |
//! | append beside other programs | [`OpenOptions::append`] |
//! | see what other programs write | [`Coherence`], [`File::refresh`], [`File::wait_for_growth`], [`File::lock`] |
//! | use a file that is already open | `File::try_from`, [`OpenOptions::open_std`] |
//! | run a thread on each processor | [`LocalEngines`], or one [`LocalEngine`] in a thread of yours |
//! | watch a running engine | [`Engine::stats`], [`File::stats`], [`File::on_evicted`] |
//! | bring a cache of your own | [`ring`], the queue below by itself |
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | tasks on tokio wait for the ring by the runtime's own I/O instead of a thread; readers and writers have the traits of `tokio::io` |
//! | `metrics` | `Engine::record_metrics`, for the recorder that the program has installed |
//! | `testing` | `headwater::testing`: simulated devices and what else only tests and measurements need; not stable |
//! | `faults` | `testing::KernelFaults`, for tests of headwater itself; not stable |
//
//   File::read_at ─┬─ cached ─────► page in a frame ─► copy;  missing ─► readahead ─► requests ─► frames
//                  └─ not cached ─► kernel's page cache if resident ─► else direct, in this thread
//   File::write_at ──► page in a frame, dirty ─► written back in runs, early;  sync ─► all of it, then fdatasync
//   File::view ──────► pages pinned as they are;  File::map ─► the same pages, live
//   Reader / AsyncReader / ByteStream ─► ReadStream: readahead ─► requests in flight ─► frames, lent without a copy
//   Engine: one pool of frames and one queue for the whole process
//
// Owns: the public names of headwater.
// Does not own: policies (`headwater-core`), system calls (`headwater-io`).

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod api;
mod base;
mod engine;
mod inode;
mod load;
mod read;
mod write;

pub use api::async_reader::{AsyncReader, ByteStream};
pub use api::async_writer::AsyncWriter;
pub use api::builder::EngineBuilder;
pub use api::contiguous_view::ContiguousView;
pub use api::engine::{Info, Stats};
pub use api::eviction_listener::EvictionListener;
pub use api::file::File;
pub use api::local::{Local, LocalEngine};
pub use api::local_engines::LocalEngines;
pub use api::opened_as::OpenedAs;
pub use api::options::{Caching, OpenOptions};
pub use api::page_ref::PageRef;
pub use api::read_file::read;
pub use api::read_many::ManyRead;
pub use api::reader::Reader;
pub use api::reader_builder::ReaderBuilder;
pub use api::shared_view::SharedView;
pub use api::task::Task;
pub use api::view::View;
pub use api::writer::Writer;
pub use base::counters::{Counts, FileStats};
pub use base::error::{Error, Failure, Operation, Result};
pub use engine::Engine;
pub use engine::handle::IoMode;
pub use engine::profiles::Profiles;
pub use engine::reclaim::{Elasticity, MemoryBound, MemoryStats, Relief};
pub use engine::stats::{CacheStats, Latency};
pub use headwater_core::readahead::{Advice, ReadaheadLimits, ReadaheadPolicy};
pub use headwater_core::replacement::Policy as ReplacementPolicy;
pub use headwater_core::units::{ByteRange, PageRange};
pub use headwater_io::{ArenaStats, DriverKind, DriverStats, Polling, Residency, SubmissionPolling};
pub use inode::coherence::Coherence;

/// The queue below the engine by itself: requests in memory of their own, submitted from any thread, batched, awaited by threads
/// or by tasks on any executor, cancelled safely. For programs that bring their own cache.
///
/// With whatever descriptor and buffers the program has, a system call is one line; see [`Call`](ring::Call):
///
/// ```
/// use headwater::ring::{Call, Driver, DriverOptions};
/// # let dir = tempfile::tempdir()?;
/// # let file = std::fs::File::create(dir.path().join("data"))?;
/// let driver = Driver::new(&DriverOptions::default())?;
/// let written = driver.call(Call::pwritev(file, vec!["head", "water"], 0)).wait(); // or `.await`
/// assert_eq!(written.result?, 9);
/// let (file, buffers) = written.given;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In memory that the rings know already, an [`Arena`](ring::Arena):
///
/// ```
/// use std::sync::Arc;
/// use headwater::ring::{
///     Access, Arena, DirectIo, Driver, DriverOptions, OpenFile, Direction, Route, Transfer, Urgency,
/// };
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![7; 8192])?;
/// let (driver, arena) = (Driver::new(&DriverOptions::default())?, Arena::new(4 << 20)?);
/// let file = Arc::new(OpenFile::open(&path, DirectIo::Off, Access::Read)?);
/// let read = |page: u64| Transfer {
///     direction: Direction::Read,
///     file: file.clone(),
///     route: Route::Buffered,
///     offset_bytes: page * 4096,
///     length_bytes: 4096,
///     extents: arena.allocate_run(4096, Urgency::Demand).expect("the arena is empty"),
/// };
/// let mut plug = driver.plug();
/// let (first, second) = (plug.submit(read(0), Urgency::Demand)?, plug.submit(read(1), Urgency::Demand)?);
/// drop(plug); // one system call for both
/// assert_eq!(first.wait().extents[0][0], 7);
/// assert_eq!(second.wait().result?, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod ring {
    pub use headwater_io::{
        Access, Arena, Attributes, Batch, Call, CallOutput, Calling, Completion, DirectAlignment, DirectIo,
        Direction, Driver, DriverInfo, DriverOptions, Extent, Extents, FileKind, Finished, LocalDriver,
        OpenFile, Plug, Rejected, Request, Returned, RingOperations, Route, Transfer, Urgency,
    };
}

/// For tests, measurements and `headwater tune`, beyond reading and writing files: a simulated device and its faults, `mmap`,
/// counts of the kernel, stored profiles. With the feature `testing`; nothing here is stable.
#[cfg(feature = "testing")]
pub mod testing {
    pub use headwater_core::limits::Limits;
    pub use headwater_core::units::PageIndex;
    #[cfg(feature = "faults")]
    pub use headwater_io::KernelFaults;
    pub use headwater_io::{
        DeviceEvent, EndedChild, FaultOn, FaultRange, Headroom, MapAdvice, MappedFile, Pressure, SimControl,
        SimOptions, children_cpu_time, device_polls, resident_pages, uring_refusal, wait_for_child,
    };

    pub use crate::engine::profiles;
}

/// The examples of both READMEs and the guide, compiled and run.
#[cfg(doctest)]
pub mod guide {
    #[doc = include_str!("../../../docs/guide/async.md")]
    pub struct Async;
    #[doc = include_str!("../../../docs/guide/commands.md")]
    pub struct Commands;
    #[doc = include_str!("../README.md")]
    pub struct Crate;
    #[doc = include_str!("../../../docs/guide/introduction.md")]
    pub struct Introduction;
    #[doc = include_str!("../../../docs/guide/memory.md")]
    pub struct Memory;
    #[doc = include_str!("../../../docs/guide/reading.md")]
    pub struct Reading;
    #[doc = include_str!("../../../README.md")]
    pub struct Readme;
    #[doc = include_str!("../../../docs/guide/ring.md")]
    pub struct Ring;
    #[doc = include_str!("../../../docs/guide/sharing.md")]
    pub struct Sharing;
    #[doc = include_str!("../../../docs/guide/troubleshooting.md")]
    pub struct Troubleshooting;
    #[doc = include_str!("../../../docs/guide/writing.md")]
    pub struct Writing;
}
