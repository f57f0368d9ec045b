//! Failures: an executor, all of them, or the scheduler is killed while a query runs.
//!
//! A query then has the right answer or ends with an error that says something. It never has other rows, and never hangs.
//!
//! Owns: the moments.
//! Does not own: how Ballista recovers.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use headwater_ballista::Error;
use headwater_ballista::cluster::Cluster;
use headwater_ballista::measure::{alone, answer};
use headwater_datafusion::queries::Query;
use headwater_datafusion::stores::Kind;
use tokio::time::{sleep, timeout};

use crate::{HANGS, client, cluster, data, run};

/// The scheduler misses an executor soon.
const IMPATIENT: [&str; 2] = ["--patience", "4"];

/// When an executor is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Before it has done anything.
    Submitted,
    /// It has begun to write what others are to read.
    Writing,
    /// A later stage has begun, which reads what others have written.
    Reading,
}

/// Goal: whichever stage a query is in, an executor may go; and the cluster answers the same query once it has another one.
#[test]
fn an_executor_may_go_in_the_middle_of_a_query() {
    let queries = ["1", "9", "21"].map(|name| Query::named(name).unwrap());
    run(async {
        let mut answers = alone(data(), &queries).await.unwrap();
        let mut cluster = cluster(Kind::Headwater, &IMPATIENT).await;
        let mut kills_under_way = 0;
        for query in &queries {
            for moment in [Moment::Submitted, Moment::Writing, Moment::Reading] {
                let client = client(&cluster).await;
                let is_done = Cell::new(false);
                let asked = client.run(query).inspect(|_| is_done.set(true));
                let killed =
                    kill_at(&mut cluster, moment).inspect(|()| kills_under_way += i32::from(!is_done.get()));
                let (outcome, ()) = tokio::join!(asked, killed);
                let case = format!("{} killed at {moment:?}", query.name);
                match outcome {
                    Ok(batches) => answers.check(query, &case, answer(&batches).unwrap()).unwrap(),
                    Err(error) => assert_clear(&error, &case),
                }
                cluster.add_executor().await.unwrap();
                let again = client.run(query).await.unwrap_or_else(|error| panic!("after {case}: {error}"));
                answers.check(query, &format!("after {case}"), answer(&again).unwrap()).unwrap();
            }
        }
        let kills = queries.len() as i32 * 3;
        assert!(
            kills_under_way > kills / 2,
            "{kills_under_way} of {kills} kills were in the middle of a query"
        );
    });
}

/// Kills the first executor at the moment, or when the query may have passed it.
async fn kill_at(cluster: &mut Cluster, moment: Moment) {
    let stages = match moment {
        Moment::Submitted => 0,
        Moment::Writing => 1,
        Moment::Reading => 2,
    };
    let before = stages_below(cluster.work());
    let come = async {
        while stages_below(cluster.work()) < before + stages {
            sleep(Duration::from_millis(1)).await;
        }
    };
    // A query of one stage never has a second one.
    let _ = timeout(Duration::from_secs(20), come).await;
    cluster.kill_executor(0);
}

/// How many stages have written something, of all jobs and executors: `executor/job/stage`.
fn stages_below(work: &Path) -> usize {
    let entries = |path: &Path| -> Vec<_> {
        let read = fs::read_dir(path).into_iter().flatten().flatten();
        read.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let jobs = entries(work).into_iter().flat_map(|executor| entries(&executor));
    jobs.map(|job| entries(&job).len()).sum()
}

/// Goal: rows that come from an executor that is killed after the first of them are an error, not fewer rows.
#[test]
fn an_executor_may_go_while_rows_come_from_it() {
    let all = data().tables.iter().find(|table| table.name == "lineitem").unwrap().rows;
    run(async {
        for index in [0, 1] {
            let mut cluster = cluster(Kind::Headwater, &IMPATIENT).await;
            let client = client(&cluster).await;
            let frame = client.context().sql("select * from lineitem").await.unwrap();
            let scan = async {
                let mut stream = frame.execute_stream().await?;
                let mut rows = stream.next().await.unwrap()?.num_rows();
                cluster.kill_executor(index);
                while let Some(batch) = stream.next().await {
                    rows += batch?.num_rows();
                }
                Ok::<usize, datafusion::error::DataFusionError>(rows)
            };
            match timeout(HANGS, scan).await.expect("it ends") {
                Ok(rows) => assert_eq!(rows as u64, all, "executor {index}"),
                Err(error) => {
                    println!("rows from executor {index}: {error}");
                    assert!(error.to_string().len() > 10, "executor {index}: {error}");
                }
            }
        }
    });
}

/// Goal: without any executor, and without a scheduler, a query ends with an error.
#[test]
fn without_executors_or_scheduler_a_query_is_an_error() {
    let query = Query::named("9").unwrap();
    run(async {
        for what in ["executors", "scheduler"] {
            let mut cluster = cluster(Kind::Headwater, &IMPATIENT).await;
            let client = client(&cluster).await;
            let killed = async {
                kill_at(&mut cluster, Moment::Writing).await;
                match what {
                    "executors" => cluster.kill_executor(0),
                    _ => cluster.kill_scheduler(),
                }
            };
            let (outcome, ()) = tokio::join!(client.run(&query), killed);
            assert_clear(&outcome.expect_err(what), what);
        }
    });
}

/// An error of the cluster, and not that it said nothing.
fn assert_clear(error: &Error, case: &str) {
    let words = error.to_string();
    println!("{case}: {words}");
    assert!(words.len() > 10 && !words.contains("no answer within"), "{case}: {words}");
}
