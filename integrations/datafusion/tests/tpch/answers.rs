//! Answers: that every store gives the same, cold and warm.
//!
//! Owns: the comparisons.
//! Does not own: what counts as the same (`answer`).

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, collect};
use headwater_datafusion::answer::Answer;
use headwater_datafusion::data::{Compression, Layout, generate};
use headwater_datafusion::queries::{EXTRA, Query};
use headwater_datafusion::session::{Session, Settings};
use headwater_datafusion::stores::{Counting, Waits};

use crate::{data, folder, run, stores};

async fn ask(session: &Session, query: &Query) -> Answer {
    let batches = session.run(query).await.unwrap_or_else(|error| panic!("{error}"));
    Answer::of(&batches).unwrap()
}

fn all_queries() -> Vec<Query> {
    let extra = EXTRA.iter().map(|(name, _)| Query::named(name).unwrap());
    Query::all().into_iter().chain(extra).collect()
}

/// Goal: every query has the same rows over every store, from the device and again from its cache.
/// Method: `LocalFileSystem` is asked first; a query that finds nothing anywhere would prove little, so most have to find rows.
#[test]
fn all_stores_give_the_same() {
    let (mut expected, mut with_rows) = (Vec::new(), 0);
    for (name, store) in stores() {
        run(async {
            let session = Session::open(data(), store, &Settings::default()).await.unwrap();
            for (index, query) in all_queries().iter().enumerate() {
                for state in ["cold", "warm"] {
                    if state == "cold" {
                        data().make_cold().unwrap();
                    }
                    let answer = ask(&session, query).await;
                    if expected.len() == index {
                        with_rows += usize::from(answer.rows() > 0);
                        expected.push(answer);
                        continue;
                    }
                    let difference = expected[index].difference(&answer);
                    assert_eq!(difference, None, "{} over {name}, {state}", query.name);
                }
            }
        });
    }
    assert!(with_rows > 20, "only {with_rows} queries have found rows");
}

/// Goal: a table in several files without compression is the same table, over every store.
#[test]
fn tables_may_be_several_files() {
    let folder = folder();
    let layout = Layout { files: 3, row_group_rows: 1000, compression: Compression::None };
    let split = generate(folder.path(), crate::SCALE, layout).unwrap();
    assert_eq!(split.files().len(), 2 + 6 * 3);
    let rows = |data: &headwater_datafusion::data::Data| {
        data.tables.iter().map(|table| table.rows).collect::<Vec<_>>()
    };
    assert_eq!(rows(&split), rows(data()));
    for (name, store) in stores() {
        run(async {
            let whole = Session::open(data(), store.clone(), &Settings::default()).await.unwrap();
            let split = Session::open(&split, store, &Settings::default()).await.unwrap();
            for query in ["1", "13", "18", "all"].map(|name| Query::named(name).unwrap()) {
                let difference = ask(&whole, &query).await.difference(&ask(&split, &query).await);
                assert_eq!(difference, None, "{} over {name}", query.name);
            }
        });
    }
}

/// Goal: a bounded pool makes a sort spill, and its rows are the same over every store.
#[test]
fn queries_that_spill_give_the_same() {
    let spill = folder();
    let mut expected: Option<Answer> = None;
    for (name, store) in stores() {
        let settings =
            Settings { pool: Some(16 << 20), spill: Some(spill.path().to_owned()), partitions: Some(1) };
        let answer = run(async {
            let session = Session::open(data(), store, &settings).await.unwrap();
            let sort = "select * from lineitem order by l_comment, l_orderkey, l_linenumber";
            let plan = session.context().sql(sort).await.unwrap().create_physical_plan().await.unwrap();
            let batches = collect(plan.clone(), session.context().task_ctx()).await.unwrap();
            assert!(spills(plan.as_ref()) > 0, "over {name}");
            Answer::of(&batches).unwrap()
        });
        match &expected {
            Some(expected) => assert_eq!(expected.difference(&answer), None, "over {name}"),
            None => expected = Some(answer),
        }
    }
}

fn spills(plan: &dyn ExecutionPlan) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.spill_count()).unwrap_or(0);
    own + plan.children().into_iter().map(|child| spills(child.as_ref())).sum::<usize>()
}

/// Goal: the counting store sees what a query reads, and not more than the table has.
#[test]
fn reads_are_counted() {
    let bytes = data().tables.iter().find(|table| table.name == "lineitem").unwrap().bytes;
    for (name, store) in stores() {
        let waits = Waits::default();
        let (waited, returned) = run(async {
            let store = Arc::new(Counting::new(store, waits.clone()));
            let session = Session::open(data(), store, &Settings::default()).await.unwrap();
            waits.take();
            ask(&session, &Query::named("columns").unwrap()).await;
            waits.take()
        });
        assert!(
            !waited.is_zero() && returned > 0 && returned < bytes / 4,
            "{name}: {waited:?}, {returned} of {bytes}"
        );
    }
}
