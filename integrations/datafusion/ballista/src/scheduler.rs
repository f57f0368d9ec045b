//! Scheduler: Ballista's, until a signal.
//!
//! It reads the footers of tables through `LocalFileSystem`, and nothing else.
//!
//! Owns: how it is set up.
//! Does not own: what it schedules (`ballista-scheduler`).

use std::sync::Arc;

use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::net::TcpListener;

use crate::args::Scheduler;
use crate::stop::{Stop, end_with_standard_input};
use crate::{Error, Result};

/// Serves until a signal comes. Once it listens, `ready` gets host and port.
///
/// # Errors
/// When the port is taken, or Ballista fails.
pub async fn serve(options: &Scheduler, ready: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    if options.lifeline {
        end_with_standard_input(None);
    }
    if options.listen.ip().is_unspecified() && options.advertise.is_none() {
        let words = "scheduler: at all addresses of this machine, it needs --advertise and the one that executors can reach";
        return Err(Error::Other(words.to_owned()));
    }
    let mut stop = Stop::new()?;
    let listening = TcpListener::bind(options.listen).await.and_then(|listener| {
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    });
    let (listener, port) = listening
        .map_err(|error| Error::Other(format!("scheduler: cannot listen at {}: {error}", options.listen)))?;
    let config = Arc::new(config(options, port));
    let address = config.scheduler_endpoint();
    let failed = |error| Error::Other(format!("scheduler: {error}"));
    let cluster = BallistaCluster::new_from_config(&config).await.map_err(failed)?;
    let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config);
    let scheduler = scheduler.await.map_err(failed)?;
    ready(&address)?;
    tokio::select! {
        served = start_grpc_service_with_listener(listener, scheduler) => served.map_err(failed),
        () = stop.come() => Ok(()),
    }
}

fn config(options: &Scheduler, port: u16) -> SchedulerConfig {
    let host = options.listen.ip().to_string();
    SchedulerConfig {
        external_host: options.advertise.clone().unwrap_or_else(|| host.clone()),
        bind_host: host,
        bind_port: port,
        // Tasks of one query on all executors, and not on the first that has cores.
        task_distribution: TaskDistributionPolicy::RoundRobin,
        executor_timeout_seconds: options.patience,
        expire_dead_executor_interval_seconds: 1,
        no_executors_grace_period_seconds: options.patience,
        ..SchedulerConfig::default()
    }
}
