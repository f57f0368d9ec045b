//! Rig: engines, runtimes, folders.

use headwater::testing::uring_refusal;
use headwater::{DriverKind, Engine};
use headwater_testkit::{ScratchDir, watched, with_uring};

/// A small engine on each driver of this machine, so that pages are evicted.
pub(crate) fn engines() -> Vec<Engine> {
    engines_of(16 << 20)
}

/// The same with this memory.
pub(crate) fn engines_of(memory_bytes: u64) -> Vec<Engine> {
    let drivers = with_uring([DriverKind::Threads], DriverKind::Uring, uring_refusal());
    drivers
        .into_iter()
        .map(|driver| Engine::builder().memory(memory_bytes).driver(driver).build().unwrap())
        .collect()
}

/// Runs a future on a tokio runtime of two threads, with an end to what hangs.
pub(crate) fn run<T>(what: &str, future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    watched(what, || runtime.block_on(future))
}

/// A folder on the device the project is built on.
pub(crate) fn folder() -> ScratchDir {
    ScratchDir::on_target().unwrap()
}

/// The kind of an error of a version of `object_store`: what programs decide by.
macro_rules! kind {
    ($error:expr, $object_store:path) => {{
        use $object_store as version;
        match $error {
            version::Error::NotFound { .. } => "not found",
            version::Error::AlreadyExists { .. } => "already exists",
            version::Error::Precondition { .. } => "precondition",
            version::Error::NotModified { .. } => "not modified",
            version::Error::Generic { .. } => "generic",
            version::Error::InvalidPath { .. } => "invalid path",
            _ => "other",
        }
    }};
}

pub(crate) use kind;
