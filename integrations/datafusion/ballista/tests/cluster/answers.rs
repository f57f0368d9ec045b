//! Answers: those of a cluster are those of one process, and what executors have read stays with them.
//!
//! Owns: which queries.
//! Does not own: what counts as the same answer (`headwater-datafusion`).

use std::fs;

use headwater_ballista::measure::{alone, answer};
use headwater_datafusion::queries::{EXTRA, Query};
use headwater_datafusion::stores::Kind;

use crate::{client, cluster, data, run};

/// Goal: all queries have the answers of DataFusion in one process over `LocalFileSystem`, and all executors have worked on them.
#[test]
fn every_answer_is_that_of_one_process() {
    let extra = EXTRA.map(|(name, _)| Query::named(name).unwrap());
    let queries = [Query::all(), extra.to_vec()].concat();
    run(async {
        let mut answers = alone(data(), &queries).await.unwrap();
        let cluster = cluster(Kind::Headwater, &[]).await;
        let client = client(&cluster).await;
        for query in &queries {
            let batches = client.run(query).await.unwrap();
            answers.check(query, "the cluster", answer(&batches).unwrap()).unwrap();
        }
        let folders = fs::read_dir(cluster.work()).unwrap();
        let jobs: Vec<usize> =
            folders.map(|folder| fs::read_dir(folder.unwrap().path()).unwrap().count()).collect();
        assert!(jobs.len() == 2 && jobs.iter().all(|&jobs| jobs > 5), "jobs of each executor: {jobs:?}");
    });
}

/// Goal: what one session has read is in the executor's cache for the next one; the kernel counts what the process reads, from
/// devices or from its page cache.
/// Method: the widest column of the largest table, in two sessions; over `LocalFileSystem` the second reads it again.
#[test]
fn sessions_of_an_executor_share_a_cache() {
    let query = Query::named("comments").unwrap();
    for (store, reads_again) in [(Kind::Headwater, false), (Kind::Local, true)] {
        let second = run(async {
            let cluster = cluster(store, &["--executors", "1"]).await;
            client(&cluster).await.run(&query).await.unwrap();
            let next = client(&cluster).await;
            let before = read_bytes(cluster.executors()[0]);
            next.run(&query).await.unwrap();
            read_bytes(cluster.executors()[0]) - before
        });
        assert_eq!(second > COLUMN_BYTES, reads_again, "{}: {second}", store.name());
    }
}

/// Less than the column of `comments` has in its files, and more than an executor reads besides: footers, its own shuffles, `/proc`.
const COLUMN_BYTES: u64 = 512 << 10;

/// `rchar` and `read_bytes` of `proc_pid_io(5)`.
fn read_bytes(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    let field =
        |name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap();
    field("rchar:") + field("read_bytes:")
}
