//! The crate parquet alone over headwater: `cargo run --release --example parquet -- FILE.parquet`.

#![forbid(unsafe_code)]

use futures_util::TryStreamExt;
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("a file, please")?;
    let file = headwater::File::open(path)?;
    let mut batches = ParquetRecordBatchStreamBuilder::new(file.async_reader()).await?.build()?;
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
    }
    println!("{rows} rows");
    Ok(())
}
