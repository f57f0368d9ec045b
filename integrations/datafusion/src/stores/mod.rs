//! Stores: the object stores that are compared, each below a store that counts.
//!
//! ```text
//!   DataFusion ─► Counting ─┬─ local: LocalFileSystem, as DataFusion has it
//!                           ├─ direct: the same, but reads with O_DIRECT and nothing is kept
//!                           └─ headwater: HeadwaterFileSystem
//! ```
//!
//! Owns: which stores there are.
//! Does not own: what they do (`direct`, `counting`, the crates they come from).

mod counting;
mod direct;

use std::sync::Arc;

use headwater::{DriverKind, Engine};
use headwater_object_store::v0_13::HeadwaterFileSystem;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

use crate::{Error, Result};

pub use counting::{Counting, Waits};
pub use direct::DirectFileSystem;

/// A store that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, clap::ValueEnum)]
pub enum Kind {
    /// `LocalFileSystem` of the crate object_store, through the kernel's page cache: DataFusion's default.
    Local,
    /// The same with direct reads in blocking threads, and without a cache.
    Direct,
    /// `HeadwaterFileSystem`.
    Headwater,
}

impl Kind {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Local => "local",
            Kind::Direct => "direct",
            Kind::Headwater => "headwater",
        }
    }

    /// A new store of the kind. `memory` bounds headwater's engine; without, it takes what nothing else needs.
    ///
    /// # Errors
    /// When there can be no engine.
    pub fn build(self, memory: Option<u64>, driver: DriverKind) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.build_with_engine(memory, driver)?.0)
    }

    /// As [`build`](Kind::build), with the engine that headwater's store reads with.
    ///
    /// # Errors
    /// As [`build`](Kind::build).
    pub fn build_with_engine(
        self,
        memory: Option<u64>,
        driver: DriverKind,
    ) -> Result<(Arc<dyn ObjectStore>, Option<Engine>)> {
        Ok(match self {
            Kind::Local => (Arc::new(LocalFileSystem::new()), None),
            Kind::Direct => (Arc::new(DirectFileSystem::new()), None),
            Kind::Headwater => {
                let builder = Engine::builder().driver(driver);
                let builder = match memory {
                    Some(bytes) => builder.memory(bytes),
                    None => builder,
                };
                let engine = builder.build().map_err(|error| Error::other("building an engine")(&error))?;
                (Arc::new(HeadwaterFileSystem::new().with_engine(&engine)), Some(engine))
            }
        })
    }
}
