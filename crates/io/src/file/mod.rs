//! File: open files, their metadata, and the detection of changes by other processes.
//!
//! ```text
//!   append  once  writing  lease  watch  notices, remap        operations on a file besides transfers
//!      └─────┴───────┴──────┴──────┴──────┘
//!                 open_file                    its descriptors, and what the kernel's page cache holds of it
//!      ┌─────┬───────┼──────┬──────────┐
//!   access direct  status  kernel_cache  file_system, polling, descriptor, clock
//!                               copied_runs
//!   identity  mapped                           of paths and mappings, on their own
//! ```
//!
//! Arrows point down only.

mod access;
mod append;
mod clock;
mod copied_runs;
mod descriptor;
mod direct;
mod file_system;
mod identity;
mod kernel_cache;
mod lease;
mod mapped;
mod notices;
mod once;
mod open_file;
mod polling;
mod remap;
mod status;
mod watch;
mod writing;

pub use access::{Access, Creation, DirectIo, Given, Opening, Route};
pub use append::{AppendFile, Appended};
pub use clock::{coarse_clock, coarse_tick};
pub use descriptor::close_parked;
pub use direct::DirectAlignment;
pub(crate) use direct::PageBuffer;
pub use file_system::FileSystem;
pub use identity::{device_number, file_system_uuid};
pub use kernel_cache::{Residency, WarmFiles, resident_pages};
pub use lease::{Lease, LeaseOwner, LeaseState, LeaseWatch};
pub use mapped::{MapAdvice, MappedFile};
pub use notices::{Notice, Notices};
pub use once::{SeenFile, WholeFile};
pub use open_file::{OpenFile, Opened, SharedDescriptor};
pub use polling::device_polls;
pub use remap::Stretch;
pub use status::{FileKey, FileKind, FileStamp, StampTrust};
pub use watch::{ChangeWatch, Watched};
pub use writing::Allocated;
