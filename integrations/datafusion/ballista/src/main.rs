//! headwater-ballista: the command.
//!
//! Owns: what is printed.
//! Does not own: what can be typed (`args`), what is done (the library).

#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use datafusion::arrow::util::pretty::pretty_format_batches;
use headwater_ballista::args::{self, Action, Command, Target};
use headwater_ballista::client::Client;
use headwater_ballista::cluster::{Cluster, Setup};
use headwater_ballista::measure::{alone, answer, run};
use headwater_ballista::stop::Stop;
use headwater_ballista::{Error, Result, executor, scheduler};
use headwater_datafusion::block_on;
use headwater_datafusion::data::Data;
use headwater_datafusion::queries::Query;
use headwater_measure::{report, result_file};
use tokio::time::sleep;

fn main() -> ExitCode {
    env_logger::init();
    match block_on(act(&Command::parse().action)).flatten() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("headwater-ballista: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn act(action: &Action) -> Result<ExitCode> {
    let done = match action {
        Action::Cluster(arguments) => cluster(arguments).await,
        Action::Query(arguments) => query(arguments).await,
        Action::Check(arguments) => check(arguments).await,
        Action::Run(arguments) => return measure(arguments).await,
        Action::Scheduler(arguments) => {
            scheduler::serve(arguments, |address| print(&format!("{address}\n"))).await
        }
        Action::Executor(arguments) => {
            executor::serve(arguments, |address| print(&format!("{address}\n"))).await
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Until a signal, or until nothing is left.
async fn cluster(arguments: &args::Cluster) -> Result<()> {
    let mut stop = Stop::new()?;
    let program = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    let (store, port, shape) = (arguments.store, arguments.port, arguments.shape.clone());
    let mut cluster = stop.or(Cluster::start(Setup { program, store, port, shape })).await?;
    let (count, address) = (cluster.executors().len(), cluster.address());
    print(&format!(
        "scheduler {address}, process {}\n{count} executors over {}, processes {:?}\nCtrl-C stops all of it\n",
        cluster.scheduler(),
        store.name(),
        cluster.executors()
    ))?;
    while !cluster.executors().is_empty() {
        tokio::select! {
            () = stop.come() => return Ok(()),
            () = sleep(WATCH) => {}
        }
        for (name, status) in cluster.take_ended()? {
            eprintln!("headwater-ballista: {name} has ended: {status}");
        }
    }
    Err(Error::Other("no executor is left".to_owned()))
}

async fn client(target: &Target) -> Result<(Client, Data)> {
    let data = Data::open(&target.folder)?;
    let limit = Duration::from_secs(target.limit);
    Ok((Client::connect(&target.scheduler, &data, limit).await?, data))
}

async fn query(arguments: &args::Query) -> Result<()> {
    let (client, _) = client(&arguments.target).await?;
    let query = Query { name: "query".to_owned(), sql: arguments.sql.clone() };
    let batches = client.run(&query).await?;
    let rows =
        pretty_format_batches(&batches).map_err(|error| Error::other("the rows have no text")(&error))?;
    print(&format!("{rows}\n"))
}

async fn check(arguments: &args::Check) -> Result<()> {
    let (client, data) = client(&arguments.target).await?;
    let queries = Query::list(&arguments.queries).map_err(Error::Other)?;
    let mut answers = alone(&data, &queries).await?;
    for query in &queries {
        let began = Instant::now();
        let batches = client.run(query).await?;
        let seconds = began.elapsed().as_secs_f64();
        let answer = answer(&batches)?;
        let rows = answer.rows();
        answers.check(query, "the cluster", answer)?;
        print(&format!("{:<9} {rows:>9} rows {seconds:>9.3} s\n", query.name))?;
    }
    print(&format!("{}\n", answers.sentence("one process and the cluster", |_| true)))
}

async fn measure(arguments: &args::Run) -> Result<ExitCode> {
    for path in [&arguments.json, &arguments.html].into_iter().flatten() {
        result_file::check(path).map_err(Error::file(path))?;
    }
    let (findings, is_whole) = run(arguments).await?;
    print(&findings.text)?;
    let findings = [findings];
    write(arguments.json.as_deref(), || report::json(&findings))?;
    write(arguments.html.as_deref(), || report::html(&findings))?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, text()).map_err(Error::file(path))
}

/// At once, for a parent that waits for it. A reader that has gone is no error.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::file("standard output")(error)),
        _ => Ok(()),
    }
}

/// How soon it is said that an executor has ended.
const WATCH: Duration = Duration::from_millis(200);
