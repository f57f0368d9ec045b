//! Executor: Ballista's, with one store for all sessions of the process.
//!
//! ```text
//!   session ─► RuntimeEnv ─┐
//!   session ─► RuntimeEnv ─┴─► one registry ─► file:// ─► one store ─► one cache
//! ```
//!
//! Ballista asks for a `RuntimeEnv` for every session. It gets the same one each time, so that what one query has read is there for the
//! next one of any client, and the memory of the cache is bounded once.
//!
//! Owns: the store, ports, the folder for shuffles.
//! Does not own: tasks (`ballista-executor`), stores (`headwater-datafusion`).

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use headwater::DriverKind;
use object_store::ObjectStore;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::args::Executor;
use crate::stop::end_with_standard_input;
use crate::{Error, Result};

/// Executes tasks until a signal comes, and then those that it has. Once it is known to the scheduler and listens, `ready` gets host and
/// port.
///
/// # Errors
/// When the scheduler or the store cannot be had, or a port is taken.
pub async fn serve(options: &Executor, ready: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let work = work_folder(options)?;
    if options.lifeline {
        end_with_standard_input(Some(work.path().to_owned()));
    }
    let store = options.store.build(options.limits.memory.map(|size| size.0), DriverKind::Auto)?;
    let config = config(options, runtime(store, work.path())?, work.path())?;
    let reachable = if options.listen.is_unspecified() { LOOPBACK } else { options.listen };
    let address = SocketAddr::new(reachable, config.port);
    let announced = async {
        listens(address).await;
        match ready(&address.to_string()) {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    tokio::select! {
        served = start_executor_process(Arc::new(config)) => served.map_err(|error| {
            Error::Other(format!("executor of the scheduler at {}: {error}", options.scheduler))
        }),
        error = announced => Err(error),
    }
}

fn work_folder(options: &Executor) -> Result<TempDir> {
    let parent = options.work.clone().unwrap_or_else(std::env::temp_dir);
    tempfile::Builder::new().prefix("headwater-executor-").tempdir_in(&parent).map_err(Error::file(parent))
}

/// What every session gets.
fn runtime(store: Arc<dyn ObjectStore>, spill: &Path) -> Result<Arc<RuntimeEnv>> {
    let mode = DiskManagerMode::Directories(vec![spill.to_owned()]);
    let builder =
        RuntimeEnvBuilder::new().with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode));
    let runtime = builder.build_arc().map_err(Error::query("setting up DataFusion"))?;
    runtime.register_object_store(ObjectStoreUrl::local_filesystem().as_ref(), store);
    Ok(runtime)
}

fn config(options: &Executor, runtime: Arc<RuntimeEnv>, work: &Path) -> Result<ExecutorProcessConfig> {
    let (scheduler_host, scheduler_port) = host_and_port(&options.scheduler)?;
    let [port, grpc_port] = ports(options)?;
    let default = ExecutorProcessConfig::default();
    Ok(ExecutorProcessConfig {
        bind_host: options.listen.to_string(),
        external_host: options.advertise.clone(),
        port,
        grpc_port,
        scheduler_host,
        scheduler_port,
        vcores: options.limits.cores.map_or(default.vcores, |cores| cores as usize),
        work_dir: Some(work.display().to_string()),
        executor_heartbeat_interval_seconds: options.heartbeat,
        memory_pool_size: options.limits.pool.map(|size| size.0),
        memory_pool_fraction: default.memory_pool_fraction / f64::from(options.executors),
        override_runtime_producer: Some(Arc::new(move |_| Ok(runtime.clone()))),
        ..default
    })
}

/// Of `HOST:PORT`.
pub(crate) fn host_and_port(address: &str) -> Result<(String, u16)> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    let is_named = |(host, _): &(String, u16)| !host.is_empty();
    parts
        .filter(is_named)
        .ok_or_else(|| Error::Other(format!("{address:?} is no scheduler; write it like localhost:50050")))
}

/// Ballista takes numbers, not sockets. So a port is chosen by binding it, and free again for a moment.
fn ports(options: &Executor) -> Result<[u16; 2]> {
    let bound = [options.port, options.task_port].map(|port| TcpListener::bind((options.listen, port)));
    let port = |(bound, wanted): (std::io::Result<TcpListener>, u16)| {
        let port = bound.and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        port.map_err(|error| {
            Error::Other(format!("executor: cannot listen at {}, port {wanted}: {error}", options.listen))
        })
    };
    let [first, second] = bound;
    // Both are held until both are known, so they differ.
    let (first, second) = (port((first, options.port))?, port((second, options.task_port))?);
    Ok([first.0, second.0])
}

/// Until a process listens there. The executor does so last, after the scheduler knows it.
async fn listens(address: SocketAddr) {
    while TcpStream::connect(address).await.is_err() {
        sleep(POLL).await;
    }
}

const POLL: Duration = Duration::from_millis(20);

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Action, Command};

    fn executor(arguments: &[&str]) -> Executor {
        let all = [&["headwater-ballista", "executor", "--scheduler", "localhost:50050"], arguments].concat();
        match Command::parse_from(all).action {
            Action::Executor(options) => options,
            _ => unreachable!("it is an executor"),
        }
    }

    #[test]
    fn schedulers_have_a_host_and_a_port() {
        assert_eq!(host_and_port("node-1:50050").unwrap(), ("node-1".to_owned(), 50050));
        for wrong in ["node-1", ":50050", "node-1:x", "node-1:70000"] {
            assert!(
                host_and_port(wrong).unwrap_err().to_string().contains("like localhost:50050"),
                "{wrong}"
            );
        }
    }

    /// Goal: every session gets the same store, which is the only way that they share a cache.
    #[test]
    fn all_sessions_have_one_store() {
        let options = executor(&["--memory", "16M"]);
        let work = work_folder(&options).unwrap();
        let store = options.store.build(Some(16 << 20), DriverKind::Auto).unwrap();
        let config = config(&options, runtime(store.clone(), work.path()).unwrap(), work.path()).unwrap();
        let producer = config.override_runtime_producer.unwrap();
        for _ in 0..2 {
            let runtime = producer(&Default::default()).unwrap();
            let found = runtime.object_store(ObjectStoreUrl::local_filesystem()).unwrap();
            assert!(Arc::ptr_eq(&found, &store));
        }
    }

    /// Goal: the executors of a machine have the part of its memory together that one of them has alone.
    #[test]
    fn executors_share_the_memory() {
        let fraction = |arguments: &[&str]| {
            let options = executor(arguments);
            let work = work_folder(&options).unwrap();
            let store = options.store.build(Some(16 << 20), DriverKind::Auto).unwrap();
            config(&options, runtime(store, work.path()).unwrap(), work.path()).unwrap().memory_pool_fraction
        };
        assert_eq!(fraction(&["--executors", "4"]) * 4.0, fraction(&[]));
    }

    #[test]
    fn free_ports_differ_and_taken_ones_are_named() {
        let [first, second] = ports(&executor(&[])).unwrap();
        assert!(first != second && first > 0 && second > 0);
        let taken = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let error = ports(&executor(&["--port", &port])).unwrap_err().to_string();
        assert!(error.contains(&format!("port {port}")), "{error}");
    }
}
