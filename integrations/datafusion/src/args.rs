//! Arguments: what can be typed, and what is wrong with it.
//!
//! Owns: the command line.
//! Does not own: what commands do.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::data::Compression;
use crate::stores::Kind;

/// TPC-H on DataFusion over the stores that it can read local files with.
#[derive(Parser)]
#[command(name = "headwater-tpch", version, max_term_width = 100)]
#[command(after_help = "Examples:
  headwater-tpch generate --scale 1 --folder sf1
  headwater-tpch run --folder sf1 --cold
  headwater-tpch run --folder sf1 --warm --stores local,headwater --queries 1,6,columns --rounds 9
  headwater-tpch run --folder sf1 --cold --cgroup 256M --pool 128M --json figures.json")]
pub struct Command {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do.
#[derive(Subcommand)]
pub enum Action {
    /// Write the tables as Parquet files.
    Generate(Generate),
    /// Run queries over several stores in turn, compare their answers, and tell what they took.
    Run(Run),
    /// Run one query over one store, and print what it took as JSON.
    #[command(hide = true)]
    One(One),
}

/// Options of `generate`.
#[derive(Args)]
pub struct Generate {
    /// Size of the data: 1 is 6 million lines of orders, 309 MiB with Snappy.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Folder for the tables; what it holds of them is replaced.
    #[arg(long)]
    pub folder: PathBuf,
    /// Files of each table.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub files: u32,
    /// Rows of a row group at the most; the default is that of DataFusion and parquet.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub row_group: u32,
    /// Compression of the columns.
    #[arg(long, value_enum, default_value_t)]
    pub compression: Compression,
}

/// Options of `run`.
#[derive(Args)]
pub struct Run {
    /// Folder that `generate` has written.
    #[arg(long)]
    pub folder: PathBuf,
    /// Stores to compare.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Local, Kind::Direct, Kind::Headwater])]
    pub stores: Vec<Kind>,
    /// Queries: numbers of TPC-H, or count, columns, comments, selective, all. The 22 without.
    #[arg(long, value_delimiter = ',')]
    pub queries: Vec<String>,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Files are not in the kernel's page cache, and headwater's cache is new, before each query. The default.
    #[arg(long, conflicts_with = "warm")]
    pub cold: bool,
    /// The same process has run the same query before.
    #[arg(long)]
    pub warm: bool,
    /// With `--cold`: the process has run the same query before, as one that serves queries has, so that its memory is in use already; then
    /// nothing of the files is in any cache.
    #[arg(long, conflicts_with = "warm")]
    pub after_a_run: bool,
    /// Bound of headwater's memory, like 512M; without, it takes what nothing else needs.
    #[arg(long)]
    pub memory: Option<Size>,
    /// Bound of DataFusion's memory pool, beyond which it spills, for all stores; without, there is none.
    #[arg(long)]
    pub pool: Option<Size>,
    /// Folder to spill into; that for temporary files without.
    #[arg(long)]
    pub spill: Option<PathBuf>,
    /// Each query runs in a cgroup with this much memory, the page cache for it included. Needs root or a delegated cgroup.
    #[arg(long)]
    pub cgroup: Option<Size>,
    /// Write all figures to this file as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Write them to this file as a page of HTML.
    #[arg(long)]
    pub html: Option<PathBuf>,
}

impl Run {
    /// What the caches hold before a query.
    pub fn state(&self) -> State {
        if self.warm { State::Warm } else { State::Cold }
    }
}

/// What the caches hold before a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum State {
    /// Nothing of the files.
    Cold,
    /// What the same query has read.
    Warm,
}

/// One query over one store, in a process of its own.
#[derive(Args, Clone, Debug)]
pub struct One {
    /// The store.
    #[arg(long, value_enum)]
    pub store: Kind,
    /// The query.
    #[arg(long)]
    pub query: String,
    /// The data.
    #[arg(long)]
    pub folder: PathBuf,
    /// How often to measure after a first run; without, once and cold.
    #[arg(long)]
    pub warm_runs: Option<u32>,
    /// As of `run`.
    #[arg(long)]
    pub after_a_run: bool,
    /// As of `run`.
    #[arg(long)]
    pub memory: Option<Size>,
    /// As of `run`.
    #[arg(long)]
    pub pool: Option<Size>,
    /// As of `run`.
    #[arg(long)]
    pub spill: Option<PathBuf>,
    /// The cgroup to enter.
    #[arg(long)]
    pub enter: Option<PathBuf>,
}

/// A number of bytes: `4M`, `512K`, `1G`, or without a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let shift = match unit.trim_end_matches("iB").to_ascii_uppercase().as_str() {
            "" => Some(0),
            "K" => Some(10),
            "M" => Some(20),
            "G" => Some(30),
            _ => None,
        };
        let bytes =
            shift.zip(digits.parse::<u64>().ok()).and_then(|(shift, count)| count.checked_mul(1 << shift));
        bytes
            .filter(|&bytes| bytes > 0)
            .map(Size)
            .ok_or_else(|| format!("{text:?} is no size; write it like 64M or 1G"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            ["7", "4K", "64MiB", "1g"].map(|text| text.parse()),
            [7, 4 << 10, 64 << 20, 1 << 30].map(|size| Ok(Size(size)))
        );
        for text in ["", "M", "4X", "0", "-1", "99999999999G"] {
            assert!(text.parse::<Size>().unwrap_err().contains("is no size"), "{text}");
        }
    }
}
