//! DataFusion over headwater: `cargo run --release --example datafusion -- FILE.parquet "select count(*) from data"`.

#![forbid(unsafe_code)]

use std::sync::Arc;

use datafusion::prelude::{ParquetReadOptions, SessionContext};
use headwater::Engine;
use headwater_object_store::v0_13::HeadwaterFileSystem;
use url::Url;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, query] = &arguments[..] else { return Err("a file and a query, please".into()) };
    // One engine for all stores of the process, with at most 1 GiB.
    let engine = Engine::builder().memory(1 << 30).build()?;
    let store = Arc::new(HeadwaterFileSystem::new().with_engine(&engine));

    let context = SessionContext::new();
    context.register_object_store(&Url::parse("file://")?, store);
    context.register_parquet("data", file, ParquetReadOptions::default()).await?;
    context.sql(query).await?.show().await?;
    Ok(())
}
