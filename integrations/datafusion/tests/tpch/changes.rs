//! Changes: files that others cut or take away while a query reads them.
//!
//! Owns: the changes, and which outcomes are right.
//! Does not own: stores.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use futures_util::StreamExt;
use headwater_datafusion::data::{Data, generate};
use headwater_datafusion::session::{Session, Settings};
use object_store::ObjectStore;

use crate::{LAYOUT, SCALE, folder, run, stores};

/// The rows of a scan of `lineitem`, to whose file something happens after the first of them.
async fn scan(
    data: &Data,
    store: Arc<dyn ObjectStore>,
    change: impl FnOnce(&Path),
) -> Result<usize, DataFusionError> {
    let settings = Settings { partitions: Some(1), ..Settings::default() };
    let session = Session::open(data, store, &settings).await.unwrap();
    data.make_cold().unwrap();
    let frame = session.context().sql("select * from lineitem").await?;
    let mut stream = frame.execute_stream().await?;
    let mut rows = stream.next().await.unwrap()?.num_rows();
    assert!(rows < 20_000, "the first batch is only a part");
    change(&data.table_folder("lineitem").join("0.parquet"));
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows();
    }
    Ok(rows)
}

/// Goal: a file that is truncated in the middle of a query is an error, over headwater one that names it, and never fewer rows.
#[test]
fn a_truncated_file_is_an_error() {
    for (name, store) in stores() {
        let folder = folder();
        let data = generate(folder.path(), SCALE, LAYOUT).unwrap();
        let cut = |path: &Path| {
            let file = File::options().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 3).unwrap();
        };
        match run(scan(&data, store, cut)) {
            Ok(rows) => panic!("{rows} rows over {name}"),
            Err(error) => {
                let is_named = error.to_string().contains("0.parquet");
                assert!(is_named || !name.starts_with("headwater"), "{name}: {error}");
            }
        }
    }
}

/// Goal: a file that is deleted in the middle of a query is read to its end, or an error that names it.
#[test]
fn a_deleted_file_is_an_error_or_read_to_its_end() {
    for (name, store) in stores() {
        let folder = folder();
        let data = generate(folder.path(), SCALE, LAYOUT).unwrap();
        let all = data.tables.iter().find(|table| table.name == "lineitem").unwrap().rows;
        match run(scan(&data, store, |path| fs::remove_file(path).unwrap())) {
            Ok(rows) => assert_eq!(rows as u64, all, "over {name}"),
            Err(error) => assert!(error.to_string().contains("0.parquet"), "{name}: {error}"),
        }
    }
}
