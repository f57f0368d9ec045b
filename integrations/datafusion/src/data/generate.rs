//! Generate: the rows of `tpchgen` as Parquet files.
//!
//! ```text
//!   table ─► files ─► generator of a part ─► batches ─► writer ─► synced ─► described
//! ```
//!
//! Owns: which part of a table a file holds, how it is encoded, progress.
//! Does not own: rows (`tpchgen-arrow`), the format (`parquet`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use datafusion::arrow::record_batch::RecordBatchReader;
use headwater_measure::rounds;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use super::{DESCRIPTION, Data, TABLES, Table, file};
use crate::{Error, Result};

/// How tables are cut and encoded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Layout {
    /// Files of each table, but `nation` and `region`, which have one.
    pub files: usize,
    /// Rows of a row group at the most.
    pub row_group_rows: usize,
    /// Of the columns.
    pub compression: Compression,
}

/// How columns are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    None,
    /// As `tpchgen-cli` does.
    #[default]
    Snappy,
}

/// Writes all tables into a folder, in place of what it held of them.
///
/// # Errors
/// [`Error::File`] where the folder cannot be written, or has other files where tables are to be; [`Error::Other`] for a scale that has no
/// rows.
pub fn generate(folder: &Path, scale: f64, layout: Layout) -> Result<Data> {
    if !(scale.is_finite() && (SCALE_MIN..=SCALE_MAX).contains(&scale)) {
        return Err(Error::Other(format!("the scale is {scale}; it can be {SCALE_MIN} to {SCALE_MAX}")));
    }
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    // All of them before one is removed.
    let old = TABLES.map(|name| files_of(&folder.join(name))).into_iter().collect::<Result<Vec<_>>>()?;
    let description = folder.join(DESCRIPTION);
    match fs::remove_file(&description) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::file(&description)(error));
        }
        _ => {}
    }
    for path in old.concat() {
        fs::remove_file(&path).map_err(Error::file(&path))?;
    }
    let mut tables = Vec::new();
    for name in TABLES {
        tables.push(table(folder, name, scale, layout)?);
    }
    let data = Data { scale, compression: layout.compression, tables, folder: folder.to_owned() };
    let text = serde_json::to_string_pretty(&data).map_err(|error| Error::other(DESCRIPTION)(&error))?;
    fs::write(&description, text).map_err(Error::file(&description))?;
    Data::open(folder)
}

/// The files of a table, if there are any, of an interrupted run as well.
///
/// # Errors
/// [`Error::File`] where the folder of the table has other files.
fn files_of(table: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(table) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::file(table))?,
    };
    let own = |path: &PathBuf| {
        let number = path.file_name()?.to_str()?.strip_suffix(".parquet")?;
        number.parse::<usize>().ok().filter(|_| path.is_file())
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::file(table))?.path();
        if own(&path).is_none() {
            let text = "it is no file of a table, and would be removed; give another --folder";
            return Err(Error::file(&path)(std::io::Error::other(text)));
        }
        files.push(path);
    }
    Ok(files)
}

fn table(folder: &Path, name: &str, scale: f64, layout: Layout) -> Result<Table> {
    let own = folder.join(name);
    fs::create_dir_all(&own).map_err(Error::file(&own))?;
    let files = if ["nation", "region"].contains(&name) { 1 } else { layout.files };
    let bar = rounds::bar((files * PARTS) as u64);
    bar.set_message(name.to_owned());
    let mut table = Table { name: name.to_owned(), files, rows: 0, bytes: 0 };
    for number in 0..files {
        let path = file(folder, name, number);
        let parts = if ["nation", "region"].contains(&name) { 1 } else { PARTS };
        let sources = (0..parts).map(|part| {
            bar.inc(1);
            source(name, scale, number * parts + part + 1, files * parts)
        });
        table.rows += write(&path, sources, layout)?;
        table.bytes += fs::metadata(&path).map_err(Error::file(&path))?.len();
    }
    bar.finish_and_clear();
    Ok(table)
}

/// Writes batches of one schema as a file, and returns how many rows they had.
fn write(path: &Path, sources: impl Iterator<Item = Source>, layout: Layout) -> Result<u64> {
    let failed = |error: parquet::errors::ParquetError| Error::other(&path.display().to_string())(&error);
    let mut file = File::create(path).map_err(Error::file(path))?;
    let mut sources = sources.peekable();
    let Some(first) = sources.peek() else { return Ok(0) };
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(layout.row_group_rows))
        .set_compression(layout.compression.of_parquet())
        .build();
    let mut writer = ArrowWriter::try_new(&mut file, first.schema(), Some(properties)).map_err(failed)?;
    let mut rows = 0;
    for batch in sources.flatten() {
        let batch = batch.map_err(|error| Error::other("generating rows")(&error))?;
        rows += batch.num_rows() as u64;
        writer.write(&batch).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    file.sync_all().map_err(Error::file(path))?;
    Ok(rows)
}

type Source = Box<dyn RecordBatchReader>;

/// One of `parts` parts of a table, counted from 1.
fn source(table: &str, scale: f64, part: usize, parts: usize) -> Source {
    let (part, parts) = (part as i32, parts as i32);
    match table {
        "nation" => Box::new(NationArrow::new(NationGenerator::new(scale, part, parts))),
        "region" => Box::new(RegionArrow::new(RegionGenerator::new(scale, part, parts))),
        "supplier" => Box::new(SupplierArrow::new(SupplierGenerator::new(scale, part, parts))),
        "customer" => Box::new(CustomerArrow::new(CustomerGenerator::new(scale, part, parts))),
        "part" => Box::new(PartArrow::new(PartGenerator::new(scale, part, parts))),
        "partsupp" => Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, part, parts))),
        "orders" => Box::new(OrderArrow::new(OrderGenerator::new(scale, part, parts))),
        _ => Box::new(LineItemArrow::new(LineItemGenerator::new(scale, part, parts))),
    }
}

impl Compression {
    fn of_parquet(self) -> parquet::basic::Compression {
        match self {
            Compression::None => parquet::basic::Compression::UNCOMPRESSED,
            Compression::Snappy => parquet::basic::Compression::SNAPPY,
        }
    }
}

/// Steps of progress in a file.
const PARTS: usize = 10;

/// Of less, some tables have no rows.
const SCALE_MIN: f64 = 0.001;

/// Keys beyond are no longer those of the specification.
const SCALE_MAX: f64 = 100_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nothing is removed that `generate` has not made, and it starts again where a run was interrupted. Method: a file beside those
    /// of a table, with the tables that come before it; then the same folder without that file.
    #[test]
    fn only_tables_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let layout = Layout { files: 1, row_group_rows: 1 << 20, compression: Compression::None };
        for (table, name) in [("nation", "7.parquet"), ("orders", "7.parquet"), ("orders", "invoice.pdf")] {
            fs::create_dir_all(path(table)).unwrap();
            fs::write(path(table).join(name), "mine").unwrap();
        }
        let error = generate(folder.path(), SCALE_MIN, layout).unwrap_err().to_string();
        assert!(error.contains("invoice.pdf") && error.contains("--folder"), "{error}");
        assert!(path("nation/7.parquet").exists() && path("orders/invoice.pdf").exists());

        fs::remove_file(path("orders/invoice.pdf")).unwrap();
        generate(folder.path(), SCALE_MIN, layout).unwrap();
        assert!(!path("nation/7.parquet").exists() && path("orders/0.parquet").exists());
    }
}
