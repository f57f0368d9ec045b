//! headwater-object-store: local files as an object store that reads through the headwater file cache.
//!
//! ```text
//!   get_opts ───► open (kept) ─► conditions, range ─► stream: views of 1 MiB, read ahead ─► Bytes that share frames
//!   get_ranges ─► open (kept) ─► sorted, merged ─► all in flight at once ─► Bytes, copied where they would pin much
//!   head ───────► statx, the file is not opened for reading
//!   put, copy, rename, list, delete ─► LocalFileSystem of the same version of object_store
//! ```
//!
//! [`v0_13::HeadwaterFileSystem`] and [`v0_14::HeadwaterFileSystem`] take the place of `LocalFileSystem` of `object_store` 0.13 and
//! 0.14, one for each feature of this crate (`object-store-0-13`, which is the default, and `object-store-0-14`). Query engines,
//! table formats and databases that read through `object_store` then read with direct I/O, share one bounded cache, and wait for
//! the device without a thread for each read.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use headwater_object_store::v0_13::{HeadwaterFileSystem, object_store::{ObjectStoreExt, path::Path}};
//! # let dir = tempfile::tempdir()?;
//! let store = HeadwaterFileSystem::new_with_prefix(dir.path())?;
//! store.put(&Path::from("numbers"), vec![7; 300_000].into()).await?;
//! let some = store.get_range(&Path::from("numbers"), 1000..2000).await?;
//! assert_eq!(some, vec![7; 1000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is read goes into the cache of the engine: [`headwater::Engine::global`], or the one that `with_engine` names. All stores
//! of a process should share one engine, so that one bound holds for the memory of all. A get sees every change that was made
//! before it began, by this store or by other programs, as far as the times of the file show it.
//
// Owns: what readers see of objects.
// Does not own: the cache (`headwater`), all that writes or lists (`object_store`).

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(any(feature = "object-store-0-13", feature = "object-store-0-14")))]
compile_error!(
    "turn on the feature of your version of object_store: object-store-0-13, object-store-0-14 or both"
);

mod ahead;
mod failure;
mod filesystem;
mod object;
mod open_files;
mod opening;
mod ranges;
mod status;
mod store;
mod stream;

/// For `object_store` 0.13.
#[cfg(feature = "object-store-0-13")]
pub mod v0_13 {
    crate::filesystem::file_system!(object_store_0_13, quote: "", {});
}

/// For `object_store` 0.14.
#[cfg(feature = "object-store-0-14")]
pub mod v0_14 {
    crate::filesystem::file_system!(object_store_0_14, quote: "\"", { extensions: Default::default() });

    impl HeadwaterFileSystem {
        /// Whether files and folders are synced after writes, as `LocalFileSystem::with_fsync`.
        pub fn with_fsync(mut self, fsync: bool) -> Self {
            self.local = self.local.with_fsync(fsync);
            self
        }
    }
}

/// The examples of the page on query engines, compiled.
#[cfg(all(doctest, feature = "object-store-0-13"))]
#[doc = include_str!("../../../docs/guide/query-engines.md")]
pub struct QueryEngines;
