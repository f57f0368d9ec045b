//! Clusters on this machine: their answers, processes that are killed in the middle of a query, and the command.
//!
//! Owns: the data that all tests read, how clusters are set up.
//! Does not own: what is tested (see the modules).

#![forbid(unsafe_code)]

mod answers;
mod command;
mod failures;

use std::future::Future;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Parser;
use headwater_ballista::args::{Action, Command};
use headwater_ballista::client::Client;
use headwater_ballista::cluster::{Cluster, Setup};
use headwater_datafusion::data::{Compression, Data, Layout, generate};
use headwater_datafusion::stores::Kind;
use tempfile::TempDir;

/// The 22 queries at this scale have rows, but for four.
const SCALE: f64 = 0.01;

/// Several files, so that all executors have some, and several row groups in the larger ones.
const LAYOUT: Layout = Layout { files: 4, row_group_rows: 8192, compression: Compression::Snappy };

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

/// A cluster with the command's defaults and these options.
async fn cluster(store: Kind, options: &[&str]) -> Cluster {
    let command = [&["headwater-ballista", "cluster", "--memory", "64M", "--pool", "1G"], options].concat();
    let Action::Cluster(arguments) = Command::parse_from(command).action else {
        unreachable!("it is a cluster")
    };
    let setup = Setup { program: program().into(), store, port: 0, shape: arguments.shape };
    Cluster::start(setup).await.unwrap()
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_headwater-ballista")
}

async fn client(cluster: &Cluster) -> Client {
    Client::connect(cluster.address(), data(), HANGS).await.unwrap()
}

/// What takes longer hangs, even in a debug build on a busy machine.
const HANGS: Duration = Duration::from_secs(180);

/// Runs a future as the command does.
fn run<T>(future: impl Future<Output = T>) -> T {
    headwater_datafusion::block_on(future).unwrap()
}
