//! Cluster: a scheduler and executors on this machine, each a process that ends with the cluster.
//!
//! ```text
//!   start ─► scheduler ─ ready, its port ─► executors ─ ready ─► Cluster ─ drop ─► kill, wait ─► folder removed
//! ```
//!
//! Children are in process groups of their own, so that Ctrl-C in a terminal is for their parent alone. Each has a pipe whose other end
//! the parent holds; when the parent is killed the pipe closes, and they end.
//!
//! Owns: the processes, the folder they work in.
//! Does not own: what they do (`scheduler`, `executor`).

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::available_parallelism;
use std::time::Duration;

use headwater_datafusion::stores::Kind;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use crate::args::Shape;
use crate::costs::Costs;
use crate::{Error, Result};

/// A scheduler and executors. Dropping it ends them.
pub struct Cluster {
    scheduler: Process,
    address: String,
    executors: Vec<Process>,
    setup: Setup,
    work: TempDir,
}

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The command `headwater-ballista`.
    pub program: PathBuf,
    /// The store of the executors.
    pub store: Kind,
    /// The port of the scheduler; 0 is a free one.
    pub port: u16,
    /// All else.
    pub shape: Shape,
}

impl Cluster {
    /// Starts it, and waits until all of it is ready. A future that is dropped meanwhile ends what has been started.
    ///
    /// # Errors
    /// Which process did not get ready, and why.
    pub async fn start(setup: Setup) -> Result<Cluster> {
        let parent = setup.shape.work.clone().unwrap_or_else(std::env::temp_dir);
        let work = tempfile::Builder::new().prefix("headwater-ballista-").tempdir_in(&parent);
        let work = work.map_err(Error::file(parent))?;
        let mut command = Command::new(&setup.program);
        command
            .args(["scheduler", "--lifeline", "--listen", &format!("127.0.0.1:{}", setup.port)])
            .args(["--patience", &setup.shape.patience.to_string()]);
        let (scheduler, address) = Process::start("scheduler".to_owned(), command).await?;
        let mut cluster = Cluster { scheduler, address, executors: Vec::new(), setup, work };
        for _ in 0..cluster.setup.shape.executors {
            cluster.add_executor().await?;
        }
        Ok(cluster)
    }

    /// Starts one more.
    ///
    /// # Errors
    /// Why it did not get ready.
    pub async fn add_executor(&mut self) -> Result<()> {
        let Setup { program, store, shape, .. } = &self.setup;
        let mut command = Command::new(program);
        let heartbeat = (shape.patience / HEARTBEATS).max(1);
        let processors = available_parallelism().map_or(1, usize::from) as u32;
        let cores = shape.limits.cores.unwrap_or_else(|| (processors / shape.executors).max(1));
        command
            .args(["executor", "--lifeline", "--scheduler", &self.address, "--store", store.name()])
            .args(["--heartbeat", &heartbeat.to_string(), "--cores", &cores.to_string()])
            .args(["--executors", &shape.executors.to_string()])
            .arg("--work")
            .arg(self.work.path());
        for (option, size) in [("--memory", shape.limits.memory), ("--pool", shape.limits.pool)] {
            command.args(size.map(|size| [option.to_owned(), size.0.to_string()]).into_iter().flatten());
        }
        let name = format!("executor {}", self.executors.len() + 1);
        let (process, _) = Process::start(name, command).await?;
        self.executors.push(process);
        Ok(())
    }

    /// Host and port of the scheduler.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Below it, executors keep what they send each other.
    pub fn work(&self) -> &Path {
        self.work.path()
    }

    /// The executors' numbers, as the system counts processes.
    pub fn executors(&self) -> Vec<u32> {
        self.executors.iter().map(|process| process.child.id()).collect()
    }

    /// That of the scheduler.
    pub fn scheduler(&self) -> u32 {
        self.scheduler.child.id()
    }

    /// Ends an executor as a machine ends that loses its power, and forgets it.
    pub fn kill_executor(&mut self, index: usize) {
        drop(self.executors.remove(index));
    }

    /// Ends the scheduler so.
    pub fn kill_scheduler(&mut self) {
        self.scheduler.kill();
    }

    /// The names of executors that have ended by themselves, which are forgotten, and how.
    ///
    /// # Errors
    /// When the scheduler has ended: nothing is left of the cluster then.
    pub fn take_ended(&mut self) -> Result<Vec<(String, ExitStatus)>> {
        if let Some(status) = self.scheduler.ended() {
            return Err(Error::Other(format!("the scheduler has ended: {status}")));
        }
        let mut ended = Vec::new();
        self.executors.retain_mut(|process| match process.ended() {
            Some(status) => {
                ended.push((process.name.clone(), status));
                false
            }
            None => true,
        });
        Ok(ended)
    }

    /// What all of its processes have cost so far.
    pub(crate) fn costs(&self) -> Result<Costs> {
        let processes = [&self.scheduler].into_iter().chain(&self.executors);
        processes.map(|process| Costs::of(process.child.id())).sum()
    }
}

/// A child that is killed when it is dropped.
struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts it, and waits for the line by which it says that it is ready.
    async fn start(name: String, mut command: Command) -> Result<(Process, String)> {
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(Error::file(command.get_program()))?;
        let mut process = Process { name, child };
        let failed =
            |name: &str, words: String| Error::Other(format!("the {name} did not get ready: {words}"));
        let stdout = process.child.stdout.take().expect("it is piped");
        let stdout =
            ChildStdout::from_std(stdout).map_err(|error| failed(&process.name, error.to_string()))?;
        let mut lines = BufReader::new(stdout).lines();
        match timeout(READY, lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok((process, line)),
            Ok(Ok(None)) => {
                // Its end of the pipe is closed, so it has ended or is about to.
                let status =
                    process.child.wait().map_err(|error| failed(&process.name, error.to_string()))?;
                Err(failed(&process.name, format!("{status}; what it said is above")))
            }
            Ok(Err(error)) => Err(failed(&process.name, error.to_string())),
            Err(_) => Err(failed(&process.name, format!("it said nothing for {} s", READY.as_secs()))),
        }
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn kill(&mut self) {
        // Both fail only if it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Signs of life that fit into the scheduler's patience.
const HEARTBEATS: u64 = 4;

/// Debug builds on a busy machine take a few seconds.
const READY: Duration = Duration::from_secs(60);
