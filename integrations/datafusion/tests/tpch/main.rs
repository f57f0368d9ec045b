//! TPC-H at a small scale: answers over every store, files that change while they are read, and the command.
//!
//! Owns: the data that all tests read, the stores they read it with.
//! Does not own: what is tested (see the modules).

#![forbid(unsafe_code)]

mod answers;
mod changes;
mod command;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use headwater::{DriverKind, Engine};
use headwater_datafusion::data::{Compression, Data, Layout, generate};
use headwater_datafusion::stores::Kind;
use object_store::ObjectStore;
use tempfile::TempDir;

/// The 22 queries at this scale have rows, but for four.
const SCALE: f64 = 0.01;

/// Several row groups in the larger tables, so that a query reads many times.
const LAYOUT: Layout = Layout { files: 1, row_group_rows: 8192, compression: Compression::Snappy };

/// What all tests read and none changes.
fn data() -> &'static Data {
    static DATA: OnceLock<(TempDir, Data)> = OnceLock::new();
    let made = || {
        let folder = folder();
        let data = generate(folder.path(), SCALE, LAYOUT).unwrap();
        (folder, data)
    };
    &DATA.get_or_init(made).1
}

/// A folder on the device the project is built on.
fn folder() -> TempDir {
    tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

/// New stores of all kinds, that of headwater with each driver of this machine and little memory.
fn stores() -> Vec<(String, Arc<dyn ObjectStore>)> {
    let plain = [Kind::Local, Kind::Direct].map(|kind| (kind.name().to_owned(), kind, DriverKind::Auto));
    let drivers = [("threads", DriverKind::Threads), ("uring", DriverKind::Uring)].into_iter().filter(
        |(name, driver)| {
            let refusal = Engine::builder().driver(driver.clone()).memory(MEMORY).build().err();
            if let Some(error) = &refusal {
                assert!(std::env::var_os("HEADWATER_MUST_NOT_SKIP").is_none(), "{name}: {error}");
                eprintln!("skipped: the driver {name}: {error}");
            }
            refusal.is_none()
        },
    );
    let ours = drivers.map(|(name, driver)| (format!("headwater with {name}"), Kind::Headwater, driver));
    let all = plain.into_iter().chain(ours);
    all.map(|(name, kind, driver)| (name, kind.build(Some(MEMORY), driver).unwrap())).collect()
}

/// Less than a query reads at once of more than one table, so that pages are evicted.
const MEMORY: u64 = 8 << 20;

/// Runs a future as the command does.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_stack_size(16 << 20).build().unwrap().block_on(future)
}
