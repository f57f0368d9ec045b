//! Client: a session that has a cluster execute its queries.
//!
//! It reads the footers of tables itself, through `LocalFileSystem`, and their rows never.
//!
//! Owns: how long is waited for an answer.
//! Does not own: tables (`headwater-datafusion`), plans and results on their way (`ballista`).

use std::time::Duration;

use ballista::prelude::SessionContextExt;
use datafusion::arrow::array::RecordBatch;
use datafusion::prelude::SessionContext;
use headwater_datafusion::data::Data;
use headwater_datafusion::queries::Query;
use headwater_datafusion::session::Session;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::executor::host_and_port;
use crate::{Error, Result};

/// Tables of a folder, as a cluster has them.
pub struct Client {
    session: Session,
    limit: Duration,
}

impl Client {
    /// All tables of the data. A query that takes longer than the limit is given up.
    ///
    /// # Errors
    /// When there is no scheduler at the address, or a table cannot be read.
    pub async fn connect(scheduler: &str, data: &Data, limit: Duration) -> Result<Client> {
        let there = TcpStream::connect(host_and_port(scheduler)?).await;
        there.map_err(|error| Error::Other(format!("no scheduler at {scheduler}: {error}")))?;
        let context = SessionContext::remote(&format!("df://{scheduler}")).await;
        let context = context.map_err(Error::query("setting up the client"))?;
        Ok(Client { session: Session::over(context, data).await?, limit })
    }

    /// Runs a query to its end.
    ///
    /// # Errors
    /// What the cluster says; that it says nothing for too long.
    pub async fn run(&self, query: &Query) -> Result<Vec<RecordBatch>> {
        let late = |_| Error::Other(format!("{}: no answer within {} s", query.name, self.limit.as_secs()));
        timeout(self.limit, self.session.run(query)).await.map_err(late)?
    }

    /// For queries of one's own, without a limit.
    pub fn context(&self) -> &SessionContext {
        self.session.context()
    }
}
