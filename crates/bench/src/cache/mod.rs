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
//! Does not own: rounds and verdicts (contest), how an arm uses its library (ours, peers, kernel), the loop (gets).

mod gets;
mod kernel;
mod keys;
mod ours;
mod peers;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use headwater_core::units::PAGE_BYTES;
use headwater_measure::{Limit, child};

use crate::contest::{self, Contest, Promise, own};
use crate::folder::Folder;
use crate::tools::{self, name_of};
use gets::{Gets, ORDERS};

/// Options of `cache`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Pages of 4 KiB in each cache: enough that processors do not cache them, 1 GiB.
    #[arg(long, default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(64..))]
    pages: u32,
    /// Seconds of each cell: keys in an order, a number of threads.
    #[arg(long, default_value_t = 1.0, value_parser = tools::seconds)]
    seconds: f64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Values {
    /// `bytes::Bytes`: the count of holders lies apart from the page.
    Bytes,
    /// `Arc<[u8]>`: it lies in front of the page, so that to hold a page is to touch it.
    Arc,
}

/// A cache, and what is got from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Arm {
    /// The loop and its keys alone.
    Nothing,
    /// headwater, a page in place (`File::peek`).
    HeadwaterPeek,
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
            Arm::HeadwaterPeek | Arm::Headwater8 | Arm::Headwater4k | Arm::HeadwaterMany => {
                tools::make_cold(file)
            }
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
    contest::begin(options.json.as_deref())?;
    let folder = Folder::create(&options.dir)?;
    folder.require_room(u64::from(options.pages) * PAGE_BYTES as u64)?;
    let (file, mut contest) = (folder.path().join("file"), Contest::default());
    make_file(&file, options)?;
    let path: &Path = &file;
    for arm in arms {
        contest.several(name_of(arm), move || {
            arm.prepare(path)?;
            let gets: Gets = child::result(&mut command(arm, path, options)?, None)?;
            let run = |(order, figures)| (format!("{}, {}", name_of(arm), name_of(order)), figures);
            Ok(gets.into_iter().map(run).collect())
        });
    }
    let Options { pages, values, seconds, .. } = options;
    let values = name_of(*values);
    contest
        .note(format!("{pages} pages of 4 KiB, libraries hold them as {values}; {seconds} s for each order"));
    contest.note("x2: two threads; scaling: their gets a second against those of one");
    contest.judge_each(ORDERS.map(|order| format!(", {}", name_of(order))));
    let outcome = contest.run("cache", options.rounds, PROMISES)?;
    let findings = outcome.report.findings();
    tools::print(&findings.text)?;
    contest::finish("cache", &[findings], &outcome.failed, options.json.as_deref())
}

const fn against(ours: &'static str, theirs: &'static str, at_least: f64) -> Promise {
    contest::ratio("cache", ours, theirs, "gets_per_cpu_s", Limit::AtLeast(at_least))
}

const PROMISES: &[Promise] = &[
    own("cache", "headwater-peek", "cpu_ns_per_get", Limit::AtMost(45.0)),
    against("headwater-peek", "quick-cache", 1.3),
    against("headwater-peek", "foyer-s3fifo", 6.0),
    against("headwater-peek", "foyer-lru", 6.0),
    against("headwater-peek", "moka", 15.0),
    own("cache", "headwater-peek", "scaling", Limit::AtLeast(1.8)),
    against("headwater8", "pread8", 12.0),
    against("headwater4k", "pread4k", 2.0),
    against("headwater-many", "pread4k", 2.4),
];

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let cells = match options.arm {
        Arm::Nothing => gets::measure(options, || |_| true),
        Arm::HeadwaterPeek => ours::peek(options),
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
    tools::print_json(&cells)
}

fn command(arm: Arm, file: &Path, options: &Options) -> io::Result<Command> {
    let mut command = Command::new(tools::this_program());
    command
        .args(["cache-arm", &name_of(arm), "--pages", &options.pages.to_string()])
        .args(["--seconds", &options.seconds.to_string(), "--values", &name_of(options.values), "--file"])
        .arg(file);
    Ok(command)
}

/// In each page its number, over and over.
fn make_file(path: &Path, options: &Options) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0; PAGE_BYTES * PAGES_AT_ONCE as usize];
    for first in (0..options.pages).step_by(PAGES_AT_ONCE as usize) {
        let pages = PAGES_AT_ONCE.min(options.pages - first);
        let block = &mut block[..PAGE_BYTES * pages as usize];
        for (page, bytes) in (first..).zip(block.as_chunks_mut::<PAGE_BYTES>().0) {
            fill_page(page, bytes);
        }
        file.write_all(block)?;
    }
    file.sync_all()
}

fn fill_page(page: u32, bytes: &mut [u8; PAGE_BYTES]) {
    bytes.as_chunks_mut().0.fill(u64::from(page).to_le_bytes());
}

/// Whether these are the first bytes of the page.
fn is_page(page: u32, bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|word| u64::from_le_bytes(*word) == u64::from(page))
}

const PAGES_AT_ONCE: u32 = 256;
