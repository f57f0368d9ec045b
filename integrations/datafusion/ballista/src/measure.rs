//! Measure: queries × stores in turn, each store below a cluster of its own.
//!
//! ```text
//!   one process, LocalFileSystem ─► expected answers
//!   round ─► query × store ─┬─ warm: its cluster ─► run once ─► run and measured, a few times ─┬─► answer == expected
//!                           └─ cold: a new cluster ─► files dropped ─► run and measured once ──┴─► figures ─► report
//! ```
//!
//! What is measured is from the statement to its last row, planning in client and scheduler included; registering the tables is before.
//!
//! Owns: the order, what belongs to the measured time.
//! Does not own: clusters (`cluster`), how answers are compared and figures shown (`headwater-datafusion`).

use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use headwater_datafusion::answer::Answer;
use headwater_datafusion::answers::Answers;
use headwater_datafusion::args::State;
use headwater_datafusion::data::Data;
use headwater_datafusion::queries::Query;
use headwater_datafusion::session::{Session, Settings};
use headwater_datafusion::stores::Kind;
use headwater_datafusion::tables::{self, Way};
use headwater_measure::rounds::{bar, order, words};
use headwater_measure::{Figures, Findings, Meter, Report, Section, Skipped};
use object_store::local::LocalFileSystem;
use serde_json::json;

use crate::args::Run;
use crate::client::Client;
use crate::cluster::{Cluster, Setup};
use crate::stop::Stop;
use crate::{Error, Result};

/// Runs what the arguments name, and returns the report and whether every run came to its end.
///
/// # Errors
/// [`Error::NoData`] without data, [`Error::Answer`] when an answer is not that of one process; when a cluster does not start, or the
/// command is stopped.
pub async fn run(arguments: &Run) -> Result<(Findings, bool)> {
    let mut stop = Stop::new()?;
    stop.or(rounds(arguments)).await
}

async fn rounds(arguments: &Run) -> Result<(Findings, bool)> {
    let data = Data::open(&arguments.folder)?;
    let queries = Query::list(&arguments.queries).map_err(Error::Other)?;
    let mut answers = alone(&data, &queries).await?;
    let stores = &arguments.stores;
    let of_query =
        |query: &Query| stores.iter().map(|&store| Way::new(query.clone(), store)).collect::<Vec<_>>();
    let mut ways: Vec<Way> = queries.iter().flat_map(of_query).collect();
    let mut clusters = Clusters { arguments, data: &data, kept: Vec::new() };
    let bar = bar(u64::from(arguments.rounds) * ways.len() as u64);
    for round in 0..arguments.rounds {
        for index in order(ways.len(), round) {
            let way = &mut ways[index];
            bar.set_message(format!("{} over {}", way.query.name, way.store.name()));
            bar.tick();
            step(way, &mut clusters, &mut answers).await?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let is_whole = ways.iter().all(|way| way.failure.is_none());
    Ok((report(arguments, &data, &ways, &answers).findings(), is_whole))
}

/// The answers of DataFusion in this process, over `LocalFileSystem`.
///
/// # Errors
/// The first that there is not.
pub async fn alone(data: &Data, queries: &[Query]) -> Result<Answers> {
    let session =
        Session::open(data, std::sync::Arc::new(LocalFileSystem::new()), &Settings::default()).await?;
    let mut answers = Answers::of(data);
    for query in queries {
        answers.check(query, "one process", answer(&session.run(query).await?)?)?;
    }
    Ok(answers)
}

/// The rows of an answer.
///
/// # Errors
/// For types that have no text.
pub fn answer(batches: &[RecordBatch]) -> Result<Answer> {
    Answer::of(batches).map_err(|error| Error::other("an answer has no text")(&error))
}

/// Runs the query of a way once. A way with a query that has failed is not run again; the other ways go on.
async fn step(way: &mut Way, clusters: &mut Clusters<'_>, answers: &mut Answers) -> Result<()> {
    if way.failure.is_some() {
        return Ok(());
    }
    let runs = match clusters.arguments.state() {
        State::Cold => {
            let (cluster, client) = clusters.start(way.store).await?;
            clusters.data.make_cold()?;
            sample(&cluster, &client, way, answers).await.map(|run| vec![run])
        }
        State::Warm => {
            let (cluster, client) = clusters.kept(way.store).await?;
            warm(cluster, client, way, answers).await
        }
    };
    match runs {
        Ok(runs) => way.samples.push(Figures::median(&runs)),
        Err(error @ Error::Answer { .. }) => return Err(error),
        Err(error) => way.failure = Some(error.to_string()),
    }
    Ok(())
}

async fn warm(cluster: &Cluster, client: &Client, way: &Way, answers: &mut Answers) -> Result<Vec<Figures>> {
    client.run(&way.query).await?;
    let mut runs = Vec::new();
    for _ in 0..WARM_RUNS {
        runs.push(sample(cluster, client, way, answers).await?);
    }
    Ok(runs)
}

async fn sample(cluster: &Cluster, client: &Client, way: &Way, answers: &mut Answers) -> Result<Figures> {
    let before = cluster.costs()?;
    let meter = Meter::start();
    let batches = client.run(&way.query).await?;
    let (seconds, own_cpu) = (meter.seconds(), meter.cpu_seconds());
    let costs = cluster.costs()?.since(before);
    answers.check(&way.query, &format!("Ballista over {}", way.store.name()), answer(&batches)?)?;
    Ok(Figures::from([
        ("seconds", seconds),
        ("cpu_seconds", own_cpu + costs.cpu_seconds),
        ("read_mib", costs.read_bytes as f64 / MIB),
        ("peak_mib", costs.peak_kib as f64 / 1024.0),
    ]))
}

/// Clusters as the arguments have them.
struct Clusters<'a> {
    arguments: &'a Run,
    data: &'a Data,
    /// One for each store that was asked for.
    kept: Vec<(Kind, Cluster, Client)>,
}

impl Clusters<'_> {
    async fn start(&self, store: Kind) -> Result<(Cluster, Client)> {
        let program = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
        let cluster =
            Cluster::start(Setup { program, store, port: 0, shape: self.arguments.shape.clone() }).await?;
        let client = Client::connect(cluster.address(), self.data, LIMIT).await?;
        Ok((cluster, client))
    }

    /// The same one each time.
    async fn kept(&mut self, store: Kind) -> Result<(&Cluster, &Client)> {
        let index = match self.kept.iter().position(|kept| kept.0 == store) {
            Some(index) => index,
            None => {
                let (cluster, client) = self.start(store).await?;
                self.kept.push((store, cluster, client));
                self.kept.len() - 1
            }
        };
        let (_, cluster, client) = &self.kept[index];
        Ok((cluster, client))
    }
}

fn report(arguments: &Run, data: &Data, ways: &[Way], answers: &Answers) -> Report {
    let state = match arguments.state() {
        State::Cold => "cold",
        State::Warm => "warm",
    };
    let failed = ways.iter().filter_map(|way| {
        let reason = way.failure.as_ref()?;
        Some(Skipped::new(&*way.query.name, format!("{} over {}", way.query.name, way.store.name()), reason))
    });
    let executors = arguments.shape.executors;
    let head = format!(
        "TPC-H at scale {}, {} MiB of Parquet, on Ballista with {executors} executors, {state}, {}",
        data.scale,
        data.bytes() >> 20,
        words(arguments.rounds)
    );
    let section = Section {
        id: "ballista",
        title: head.clone(),
        question: "What does a cluster gain whose executors read through headwater?".to_owned(),
        answer: answers
            .sentence("one process and the clusters over all stores", |query| tables::is_whole(ways, query)),
        figures: tables::all(ways, &arguments.stores),
        ..Section::default()
    };
    let limits = &arguments.shape.limits;
    let fields = vec![
        ("scale", json!(data.scale)),
        ("data_bytes", json!(data.bytes())),
        ("state", json!(state)),
        ("rounds", json!(arguments.rounds)),
        ("executors", json!(executors)),
        ("memory_bytes", json!(limits.memory.map(|size| size.0))),
        ("pool_bytes", json!(limits.pool.map(|size| size.0))),
    ];
    let rows = ways.iter().map(Way::row).collect();
    Report { section, fields, rows, skipped: failed.collect(), head: vec![head], ..Report::default() }
}

/// Enough for a median that one disturbance does not move.
const WARM_RUNS: usize = 3;

/// No query of TPC-H takes so long that it is worth measuring here.
const LIMIT: Duration = Duration::from_secs(600);

const MIB: f64 = (1 << 20) as f64;
