//! Cache: gets of a cached page from headwater, from cache libraries and from the kernel's page cache.
//!
//! Question: What does a get cost, and does a second thread help?
//!
//! ```text
//!   rounds × arms, each in a process of its own (cache-arm) ─► fill, all there? ─► keys × threads ─► medians ─► table
//!                                                                                       ─► ratios against bars
//! ```
//!
//! Owns: the arms, the file that some of them read, what is promised of which arm against which.
//! Does not own: how an arm uses its library (ours, peers, kernel), the loop (gets).

mod gets;
mod kernel;
mod keys;
mod ours;
mod peers;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use headwater_core::units::PAGE_BYTES;
use headwater_measure::rounds::interleave;
use headwater_measure::{Better, Column, Limit, Metric, Promise, Row, Table, Verdict, Whose, child};
use serde::Serialize;
use serde_json::json;
use tempfile::NamedTempFile;

use crate::tools::{self, name_of};
use gets::{Cell, ORDERS, THREADS};
use keys::Order;

/// Options of `cache`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Pages of 4 KiB in each cache: enough that processors do not cache them, 1 GiB.
    #[arg(long, default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(64..))]
    pages: u32,
    /// Seconds of each cell: keys in an order, a number of threads.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Where to make the file that headwater and the kernel cache. It is removed in the end.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// What the cache libraries hold pages as. The default is what they are faster with.
    #[arg(long, default_value = "bytes")]
    values: Values,
    /// Only these arms.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Arm>,
    /// Write the results to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One arm, in a process of its own.
#[derive(clap::Args, Clone)]
pub(crate) struct ArmOptions {
    arm: Arm,
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    pages: u32,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    values: Values,
}

/// How a user of a cache library shares a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Values {
    /// `bytes::Bytes`: the count of holders lies apart from the page.
    Bytes,
    /// `Arc<[u8]>`: it lies in front of the page, so that to hold a page is to touch it.
    Arc,
}

/// A cache, and what is got from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Arm {
    /// The loop and its keys alone.
    Nothing,
    /// headwater, finding a page and pinning it.
    HeadwaterPin,
    /// headwater, 8 bytes of a page.
    Headwater8,
    /// headwater, a copy of a page.
    Headwater4k,
    /// headwater, copies of 16 pages in one call.
    HeadwaterMany,
    /// `quick_cache::sync::Cache`.
    QuickCache,
    /// `foyer_memory::Cache` with S3-FIFO.
    FoyerS3fifo,
    /// `foyer_memory::Cache` with LRU, its default.
    FoyerLru,
    /// `moka::sync::Cache`.
    Moka,
    /// `pread` of 8 bytes from the kernel's page cache.
    Pread8,
    /// `pread` of a page from there.
    Pread4k,
    /// The kernel's page cache mapped, 8 bytes.
    Mmap8,
    /// The same, a copy of a page.
    Mmap4k,
}

impl Arm {
    /// What the kernel's page cache has to hold of the file before.
    fn prepare(self, file: &Path) -> io::Result<()> {
        match self {
            Arm::Headwater8 | Arm::Headwater4k | Arm::HeadwaterMany => tools::make_cold(file),
            Arm::Pread8 | Arm::Pread4k | Arm::Mmap8 | Arm::Mmap4k => {
                // The first pass brings the pages in, the second marks them as used.
                tools::make_warm(file)?;
                tools::make_warm(file)
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let arms: Vec<Arm> = match &options.only[..] {
        [] => Arm::value_variants().to_vec(),
        only => only.to_vec(),
    };
    let file = make_file(options)?;
    let samples = interleave(&arms, options.rounds, |&arm| {
        arm.prepare(file.path())?;
        Ok::<Vec<Cell>, io::Error>(child::result(&mut command(arm, file.path(), options)?, None)?)
    })?;
    let rows = rows(&arms, &samples);
    print(options, &rows)?;
    let verdicts = verdicts(&rows);
    verdicts.iter().try_for_each(Verdict::print)?;
    let Some(path) = &options.json else { return Ok(()) };
    let report = json!({
        "suite": "cache", "pages": options.pages, "values": options.values, "seconds": options.seconds,
        "rounds": options.rounds, "lines": rows, "verdicts": verdicts,
    });
    std::fs::write(path, format!("{report:#}\n"))
}

/// For each order of keys all arms, by one thread and by two.
fn rows(arms: &[Arm], samples: &[Vec<Vec<Cell>>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for order in ORDERS {
        for (&arm, rounds) in arms.iter().zip(samples) {
            let [alone, mut both] = THREADS.map(|threads| row(arm, order, threads, rounds));
            both.add_ratio("scaling", "gets_per_s", alone.value("gets_per_s"));
            rows.extend([alone.metric(Metric::only("scaling", Some(1.0))), both]);
        }
    }
    rows
}

fn row(arm: Arm, order: Order, threads: u32, rounds: &[Vec<Cell>]) -> Row {
    let cells = || rounds.iter().flatten().filter(|cell| cell.order == order && cell.threads == threads);
    let whose = if name_of(arm).starts_with("headwater") { Whose::Headwater } else { Whose::Peer };
    let cpu = cells().map(|cell| cell.cpu_s * 1e9 / cell.gets as f64);
    let per_cpu_s = cells().map(|cell| cell.gets as f64 / cell.cpu_s);
    Row::new(whose, name_of(arm))
        .label("arm", name_of(arm))
        .label("order", name_of(order))
        .label("threads", threads)
        .metric(Metric::new("cpu_ns_per_get", "ns", Better::Lower, cpu))
        .metric(Metric::new("gets_per_cpu_s", "gets/CPU s", Better::Higher, per_cpu_s))
        // By the clock on the wall, of all threads.
        .metric(Metric::new("gets_per_s", "gets/s", Better::Higher, cells().map(|cell| cell.gets_per_s)))
}

fn find(rows: &[Row], arm: Arm, order: Order, threads: u32) -> Option<&Row> {
    rows.iter().find(|row| {
        row.is(&[("arm", &name_of(arm)), ("order", &name_of(order))])
            && row.number("threads") == u64::from(threads)
    })
}

fn print(options: &Options, rows: &[Row]) -> io::Result<()> {
    for order in ORDERS {
        let of_two = |head: &'static str, metric: &'static str, factor: f64, places: usize| {
            Column::new(head, move |row| {
                let is_it = |other: &&Row| {
                    other.is(&[("arm", row.text("arm")), ("order", row.text("order"))])
                        && other.number("threads") == 2
                };
                let value = rows.iter().find(is_it).and_then(|row| row.value(metric));
                headwater_measure::table::shown(value.map(|value| value * factor), places)
            })
        };
        let columns = [
            Column::names("arm"),
            Column::value("CPU ns", "cpu_ns_per_get", 1),
            Column::scaled("M gets/s", "gets_per_s", 1e-6, 3),
            of_two("CPU ns x2", "cpu_ns_per_get", 1.0, 1),
            of_two("M gets/s x2", "gets_per_s", 1e-6, 3),
            of_two("scaling", "scaling", 1.0, 2),
        ];
        let of_order = rows.iter().filter(|row| row.text("order") == name_of(order));
        let table = Table::of("", &columns, of_order.filter(|row| row.number("threads") == 1));
        let Options { pages, values, seconds, rounds, .. } = options;
        writeln!(
            io::stdout(),
            "\n{} keys over {pages} pages of 4 KiB, libraries hold them as {}; {seconds} s x {rounds} rounds, medians\n{table}",
            name_of(order),
            name_of(*values),
        )?;
    }
    Ok(())
}

/// Of those promises whose arms have run.
fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let of = |order| PROMISES.iter().filter_map(move |promise| verdict(rows, promise, order));
    ORDERS.into_iter().flat_map(of).collect()
}

fn verdict(rows: &[Row], promise: &Promise<Arm>, order: Order) -> Option<Verdict> {
    let threads = if promise.figure == "scaling" { 2 } else { 1 };
    let measured = promise.measured(|arm, figure| find(rows, arm, order, threads)?.value(figure))?;
    let (ours, keys) = (name_of(promise.ours), name_of(order));
    let title = match (promise.theirs, promise.figure) {
        (Some(theirs), _) => format!("{ours} : {}, {keys}, gets per CPU second", name_of(theirs)),
        (None, "scaling") => format!("{ours}, {keys}: 2 threads : 1"),
        (None, _) => format!("{ours}, {keys}: ns of CPU a get"),
    };
    Some(Verdict::new(title, measured, promise.limit))
}

const fn against(ours: Arm, theirs: Arm, at_least: f64) -> Promise<Arm> {
    Promise { ours, theirs: Some(theirs), figure: "gets_per_cpu_s", limit: Some(Limit::AtLeast(at_least)) }
}

const fn own(ours: Arm, figure: &'static str, limit: Limit) -> Promise<Arm> {
    Promise { ours, theirs: None, figure, limit: Some(limit) }
}

const PROMISES: [Promise<Arm>; 9] = [
    own(Arm::HeadwaterPin, "cpu_ns_per_get", Limit::AtMost(45.0)),
    against(Arm::HeadwaterPin, Arm::QuickCache, 1.3),
    against(Arm::HeadwaterPin, Arm::FoyerS3fifo, 6.0),
    against(Arm::HeadwaterPin, Arm::FoyerLru, 6.0),
    against(Arm::HeadwaterPin, Arm::Moka, 15.0),
    own(Arm::HeadwaterPin, "scaling", Limit::AtLeast(1.8)),
    against(Arm::Headwater8, Arm::Pread8, 12.0),
    against(Arm::Headwater4k, Arm::Pread4k, 2.0),
    against(Arm::HeadwaterMany, Arm::Pread4k, 2.4),
];

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let cells = match options.arm {
        Arm::Nothing => gets::measure(options, || |_| true),
        Arm::HeadwaterPin => ours::pin(options),
        Arm::Headwater8 => ours::read(options, 8),
        Arm::Headwater4k => ours::read(options, PAGE_BYTES),
        Arm::HeadwaterMany => ours::read_many(options),
        peer @ (Arm::QuickCache | Arm::FoyerS3fifo | Arm::FoyerLru | Arm::Moka) => match options.values {
            Values::Bytes => peers::measure::<Bytes>(options, peer),
            Values::Arc => peers::measure::<Arc<[u8]>>(options, peer),
        },
        Arm::Pread8 => kernel::pread(options, 8),
        Arm::Pread4k => kernel::pread(options, PAGE_BYTES),
        Arm::Mmap8 => kernel::mmap(options, 8),
        Arm::Mmap4k => kernel::mmap(options, PAGE_BYTES),
    }?;
    println!("{}", serde_json::to_string(&cells)?);
    Ok(())
}

fn command(arm: Arm, file: &Path, options: &Options) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["cache-arm", &name_of(arm), "--pages", &options.pages.to_string()])
        .args(["--seconds", &options.seconds.to_string(), "--values", &name_of(options.values), "--file"])
        .arg(file);
    Ok(command)
}

/// In each page its number, over and over.
fn make_file(options: &Options) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(&options.dir)?;
    let mut block = vec![0; PAGE_BYTES * PAGES_AT_ONCE as usize];
    for first in (0..options.pages).step_by(PAGES_AT_ONCE as usize) {
        let pages = PAGES_AT_ONCE.min(options.pages - first);
        let block = &mut block[..PAGE_BYTES * pages as usize];
        for (page, bytes) in (first..).zip(block.as_chunks_mut::<PAGE_BYTES>().0) {
            fill_page(page, bytes);
        }
        file.write_all(block)?;
    }
    file.as_file().sync_all()?;
    Ok(file)
}

fn fill_page(page: u32, bytes: &mut [u8; PAGE_BYTES]) {
    bytes.as_chunks_mut().0.fill(u64::from(page).to_le_bytes());
}

/// Whether these are the first bytes of the page.
fn is_page(page: u32, bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|word| u64::from_le_bytes(*word) == u64::from(page))
}

const PAGES_AT_ONCE: u32 = 256;
