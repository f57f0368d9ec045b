//! Arguments: what can be typed.
//!
//! Owns: the command line.
//! Does not own: what commands do.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use headwater_datafusion::args::{Size, State};
use headwater_datafusion::stores::Kind;

/// A cluster of Ballista with executors that read through headwater.
#[derive(Parser)]
#[command(name = "headwater-ballista", version, max_term_width = 100)]
#[command(after_help = "Examples, with data that headwater-tpch generate has written:
  headwater-ballista cluster --executors 2 --memory 512M
  headwater-ballista query --scheduler 127.0.0.1:50050 --folder sf1 \"select count(*) from lineitem\"
  headwater-ballista check --scheduler 127.0.0.1:50050 --folder sf1
  headwater-ballista run --folder sf1 --warm --rounds 5")]
pub struct Command {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do.
#[derive(Subcommand)]
pub enum Action {
    /// Start a scheduler and executors on this machine, and stop them at Ctrl-C.
    Cluster(Cluster),
    /// Ask a cluster, and print the rows.
    Query(Query),
    /// Ask a cluster the queries of TPC-H, and hold its answers against those of one process over LocalFileSystem.
    Check(Check),
    /// Start clusters over several stores in turn, compare their answers, and tell what they took.
    Run(Run),
    /// Run a scheduler, for a cluster of several machines.
    Scheduler(Scheduler),
    /// Run an executor, for a cluster of several machines.
    Executor(Executor),
}

/// Options of `cluster`.
#[derive(Args)]
pub struct Cluster {
    /// Store that the executors read with.
    #[arg(long, value_enum, default_value_t = Kind::Headwater)]
    pub store: Kind,
    /// Port of the scheduler; a free one without.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// What it consists of.
    #[command(flatten)]
    pub shape: Shape,
}

/// What a cluster on this machine consists of.
#[derive(Args, Clone, Debug)]
pub struct Shape {
    /// Processes that execute tasks.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub executors: u32,
    /// Seconds without a sign of life after which the scheduler gives the tasks of an executor to others.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub patience: u64,
    /// Folder for what executors send each other; that for temporary files without.
    #[arg(long)]
    pub work: Option<PathBuf>,
    /// What each executor may take.
    #[command(flatten)]
    pub limits: Limits,
}

/// What an executor may take.
#[derive(Args, Clone, Debug)]
pub struct Limits {
    /// Tasks at a time; without, the processors are divided among the executors of this command.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: Option<u32>,
    /// Bound of headwater's memory in each executor, like 512M; without, it takes what nothing else needs.
    #[arg(long)]
    pub memory: Option<Size>,
    /// Bound of DataFusion's memory pool in each executor, divided among its tasks; without, 70 % of the machine's memory is divided among the
    /// executors of this command.
    #[arg(long)]
    pub pool: Option<Size>,
}

/// Which cluster is asked about which data.
#[derive(Args)]
pub struct Target {
    /// Host and port of the scheduler.
    #[arg(long)]
    pub scheduler: String,
    /// Folder that `headwater-tpch generate` has written; the scheduler and the executors see it under the same path.
    #[arg(long)]
    pub folder: PathBuf,
    /// Seconds after which a query is given up.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
}

/// Options of `query`.
#[derive(Args)]
pub struct Query {
    /// Whom to ask.
    #[command(flatten)]
    pub target: Target,
    /// A statement of SQL.
    pub sql: String,
}

/// Options of `check`.
#[derive(Args)]
pub struct Check {
    /// Whom to ask.
    #[command(flatten)]
    pub target: Target,
    /// Queries, as those of `headwater-tpch run`; the 22 without.
    #[arg(long, value_delimiter = ',')]
    pub queries: Vec<String>,
}

/// Options of `run`.
#[derive(Args)]
pub struct Run {
    /// Folder that `headwater-tpch generate` has written.
    #[arg(long)]
    pub folder: PathBuf,
    /// Stores to compare, in the executors.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Local, Kind::Headwater])]
    pub stores: Vec<Kind>,
    /// Queries, as those of `headwater-tpch run`; the 22 without.
    #[arg(long, value_delimiter = ',')]
    pub queries: Vec<String>,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Files are not in the kernel's page cache, and the executors are new, before each query. The default.
    #[arg(long, conflicts_with = "warm")]
    pub cold: bool,
    /// The same executors have run the same query before.
    #[arg(long)]
    pub warm: bool,
    /// What the clusters consist of.
    #[command(flatten)]
    pub shape: Shape,
    /// Write all figures to this file as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Write them to this file as a page of HTML.
    #[arg(long)]
    pub html: Option<PathBuf>,
}

impl Run {
    /// What the caches hold before a query.
    pub fn state(&self) -> State {
        if self.warm { State::Warm } else { State::Cold }
    }
}

/// Options of `scheduler`.
#[derive(Args, Clone, Debug)]
pub struct Scheduler {
    /// Address to listen at; port 0 is a free one.
    #[arg(long, default_value_t = SocketAddr::new(LOOPBACK, 50050))]
    pub listen: SocketAddr,
    /// Name or address that executors reach this machine by; that to listen at without.
    #[arg(long)]
    pub advertise: Option<String>,
    /// Seconds without a sign of life after which the tasks of an executor are given to others.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub patience: u64,
    /// End with the process that holds the other end of standard input.
    #[arg(long, hide = true)]
    pub lifeline: bool,
}

/// Options of `executor`.
#[derive(Args, Clone, Debug)]
pub struct Executor {
    /// Host and port of the scheduler.
    #[arg(long)]
    pub scheduler: String,
    /// Address to listen at.
    #[arg(long, default_value_t = LOOPBACK)]
    pub listen: IpAddr,
    /// Name or address that others reach this machine by; without, that which the scheduler sees it at.
    #[arg(long)]
    pub advertise: Option<String>,
    /// Port for shuffles and results; a free one without.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Port for tasks; a free one without.
    #[arg(long, default_value_t = 0)]
    pub task_port: u16,
    /// Seconds between signs of life, a few of which fit into the patience of the scheduler.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub heartbeat: u64,
    /// Store to read with.
    #[arg(long, value_enum, default_value_t = Kind::Headwater)]
    pub store: Kind,
    /// Folder for shuffles and spilled rows; that for temporary files without.
    #[arg(long)]
    pub work: Option<PathBuf>,
    /// What it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// Executors that share the machine's memory where there is no bound of the pool.
    #[arg(long, hide = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub executors: u32,
    /// End with the process that holds the other end of standard input.
    #[arg(long, hide = true)]
    pub lifeline: bool,
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Command::command().debug_assert();
    }
}
