//! Session: DataFusion with the tables of a folder, over one store.
//!
//! ```text
//!   register_object_store(file://) ─► register_parquet for each table ─► sql ─► collect
//! ```
//!
//! Owns: how a session is set up: DataFusion's defaults, but for memory where it is bounded.
//! Does not own: stores, queries.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use object_store::ObjectStore;
use url::Url;

use crate::data::{Data, TABLES};
use crate::queries::Query;
use crate::{Error, Result};

/// What differs from DataFusion's defaults.
#[derive(Clone, Default, Debug)]
pub struct Settings {
    /// Bytes of DataFusion's memory pool, which spills beyond; without, it is not bounded.
    pub pool: Option<u64>,
    /// Where it spills; the folder for temporary files without.
    pub spill: Option<PathBuf>,
    /// How many partitions a query is cut into; one for each processor without.
    pub partitions: Option<usize>,
}

/// Tables that can be asked.
pub struct Session {
    context: SessionContext,
}

impl Session {
    /// All tables of the data, read through the store.
    ///
    /// # Errors
    /// [`Error::Query`] with the name of a table that cannot be read.
    pub async fn open(data: &Data, store: Arc<dyn ObjectStore>, settings: &Settings) -> Result<Session> {
        let context = context(settings).map_err(Error::query("setting up DataFusion"))?;
        let files = Url::parse("file://").map_err(|error| Error::other("file://")(&error))?;
        context.register_object_store(&files, store);
        Session::over(context, data).await
    }

    /// All tables of the data, in a context that reads them as it is set up to.
    ///
    /// # Errors
    /// As [`open`](Session::open).
    pub async fn over(context: SessionContext, data: &Data) -> Result<Session> {
        for table in TABLES {
            // With a slash at its end it is a folder.
            let folder = format!("{}/", data.table_folder(table).display());
            let registered = context.register_parquet(table, folder, ParquetReadOptions::default()).await;
            registered.map_err(Error::query(format!("table {table}")))?;
        }
        Ok(Session { context })
    }

    /// Runs a query to its end.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub async fn run(&self, query: &Query) -> Result<Vec<RecordBatch>> {
        let frame = self.context.sql(&query.sql).await.map_err(Error::query(&*query.name))?;
        frame.collect().await.map_err(Error::query(&*query.name))
    }

    /// For queries of one's own.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }
}

fn context(settings: &Settings) -> datafusion::error::Result<SessionContext> {
    let mut config = SessionConfig::new();
    if let Some(partitions) = settings.partitions {
        config = config.with_target_partitions(partitions);
    }
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = settings.pool {
        runtime = runtime
            .with_memory_pool(Arc::new(FairSpillPool::new(usize::try_from(bytes).unwrap_or(usize::MAX))));
    }
    if let Some(folder) = &settings.spill {
        let mode = DiskManagerMode::Directories(vec![folder.clone()]);
        runtime = runtime.with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode));
    }
    Ok(SessionContext::new_with_config_rt(config, runtime.build_arc()?))
}
