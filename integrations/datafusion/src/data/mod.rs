//! Data: a folder of TPC-H tables as Parquet files, and the file that says what is in it.
//!
//! ```text
//!   folder/tpch.json                 scale, files and rows of each table; written last
//!   folder/lineitem/0.parquet, …     a folder for each table, one file or several
//! ```
//!
//! Owns: the layout of the folder, what is written in its description.
//! Does not own: rows (`generate`), reading (`session`).

mod generate;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

pub use generate::{Compression, Layout, generate};

/// What is in a folder.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Data {
    /// 1 is a gigabyte as TPC counts it.
    pub scale: f64,
    /// How the columns are compressed.
    pub compression: Compression,
    /// In the order of [`TABLES`].
    pub tables: Vec<Table>,
    #[serde(skip)]
    folder: PathBuf,
}

/// A table of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// `lineitem`.
    pub name: String,
    /// How many files hold it.
    pub files: usize,
    /// Of all files.
    pub rows: u64,
    /// Of all files.
    pub bytes: u64,
}

/// All tables, the small ones first.
pub const TABLES: [&str; 8] =
    ["nation", "region", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

impl Data {
    /// What `generate` wrote into a folder.
    ///
    /// # Errors
    /// [`Error::NoData`] where it did not, or where files are missing since.
    pub fn open(folder: &Path) -> Result<Data> {
        let no_data = |reason: String| Error::NoData { folder: folder.to_owned(), reason };
        let folder_there = fs::canonicalize(folder).map_err(|error| no_data(error.to_string()))?;
        let path = folder_there.join(DESCRIPTION);
        let text = fs::read_to_string(&path).map_err(|error| no_data(format!("{DESCRIPTION}: {error}")))?;
        let data: Data =
            serde_json::from_str(&text).map_err(|error| no_data(format!("{DESCRIPTION}: {error}")))?;
        let data = Data { folder: folder_there, ..data };
        for file in data.files() {
            fs::metadata(&file).map_err(|error| no_data(format!("{}: {error}", file.display())))?;
        }
        Ok(data)
    }

    /// Where it is, from the root.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a table.
    pub fn table_folder(&self, table: &str) -> PathBuf {
        self.folder.join(table)
    }

    /// The files of all tables.
    pub fn files(&self) -> Vec<PathBuf> {
        let of_table = |table: &Table| {
            (0..table.files).map(|number| file(&self.folder, &table.name, number)).collect::<Vec<_>>()
        };
        self.tables.iter().flat_map(of_table).collect()
    }

    /// Of all files.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    /// Drops all files from the kernel's page cache, after their content has reached the device.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn make_cold(&self) -> Result<()> {
        for path in self.files() {
            let file = fs::File::open(&path).map_err(Error::file(&path))?;
            let dropped = rustix::fs::fsync(&file)
                .and_then(|()| rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed));
            dropped.map_err(|errno| Error::file(&path)(errno.into()))?;
        }
        Ok(())
    }
}

fn file(folder: &Path, table: &str, number: usize) -> PathBuf {
    folder.join(table).join(format!("{number}.parquet"))
}

const DESCRIPTION: &str = "tpch.json";
