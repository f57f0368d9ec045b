//! The crate parquet over an object of headwater's store, whose ranges are read together:
//! `cargo run --release --example parquet_object -- FILE.parquet`.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt, TryStreamExt};
use headwater_object_store::v0_13::HeadwaterFileSystem;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

/// How parquet reads an object: `ParquetObjectReader` of the crate does the same, but is deprecated.
struct Object(HeadwaterFileSystem, Path);

fn error(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for Object {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.0.get_range(&self.1, range).map_err(error).boxed()
    }

    /// All ranges of a row group at once: this is what headwater reads together.
    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move { self.0.get_ranges(&self.1, &ranges).await.map_err(error) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let size = self.0.head(&self.1).await.map_err(error)?.size;
            let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
            Ok(Arc::new(reader.load_and_finish(self, size).await?))
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("a file, please")?;
    let object = Object(HeadwaterFileSystem::new(), Path::from_filesystem_path(&file)?);
    let mut batches = ParquetRecordBatchStreamBuilder::new(object).await?.build()?;
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
    }
    println!("{rows} rows");
    Ok(())
}
