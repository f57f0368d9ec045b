//! API: what users hold.
//!
//! Owns: files, readers, writers, views, the builder, how an engine ends.
//! Does not own: how bytes are found and kept (the rooms below).

pub(crate) mod advice;
pub(crate) mod async_reader;
pub(crate) mod async_writer;
pub(crate) mod builder;
pub(crate) mod contents;
pub(crate) mod contiguous_view;
pub(crate) mod copy_range;
pub(crate) mod cursor;
pub(crate) mod ending;
pub(crate) mod engine;
pub(crate) mod eviction_listener;
pub(crate) mod file;
pub(crate) mod growth;
pub(crate) mod local;
pub(crate) mod local_engines;
pub(crate) mod memory_file;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod opened_as;
pub(crate) mod options;
pub(crate) mod page_ref;
pub(crate) mod read_at;
pub(crate) mod read_file;
pub(crate) mod read_many;
pub(crate) mod reader;
pub(crate) mod reader_builder;
pub(crate) mod shared_view;
pub(crate) mod standard;
pub(crate) mod task;
pub(crate) mod task_queue;
pub(crate) mod upcalls;
pub(crate) mod view;
pub(crate) mod write_at;
pub(crate) mod writer;
