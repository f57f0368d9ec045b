//! headwater-bench: measures headwater against its peers in the same run, arms interleaved, medians reported.
//!
//! ```text
//!   bars ─► suites of `headwater bench`, arms in processes of their own, fio, cat, … ─► rows ─► ratios against bars
//!   nop  ─► the same for the ring alone, against other io_uring libraries
//!   cache ─► the same for a get of a cached page, against cache libraries and the kernel
//!   log ─► the same for durable appends, against a mutex and std
//!   peers ─► the same for whole kinds of work, against the libraries that read files
//!   store ─► the same for objects, against `LocalFileSystem` of object_store
//!   examples ─► the same for the example programs of the library, against their forms in std
//!   amplify ─► the same for 512 bytes at random, with the bytes that the device reads for them
//!   windows ─► the same for loads at random from windows larger than memory
//!   figures ─► all of these, and suites of `headwater bench` ─► docs/benchmarks.md, and the table and the picture of the README
//!   guest ─► this program in a virtual machine whose disk polls ─► a table of checks
//!   old-kernel ─► the tests of the workspace in a virtual machine with a kernel of another age ─► a table of suites
//! ```
//!
//! Development only: it needs fio, and for some rows GNU cat, uutils and root; what is missing is skipped and said.
//! `guest` and `old-kernel` need QEMU and a kernel, which they fetch.
//!
//! Owns: the command line.
//! Does not own: what is compared (bars, nop, cache, write, log, peers, store, examples, amplify, windows), the documents (figures), how arms run (arms, nop, cache,
//! write, log, peers, store, amplify, windows, guest, old_kernel), their files (folder), the tools around them (tools), rounds and verdicts (contest), children and rows
//! (`headwater-measure`).

// Not forbidden: nop/raw.rs fills the queue of a peer, for which there is no safe call.
#![deny(unsafe_code)]
// `println!` and `eprintln!` panic where the stream is full, and lose what is printed where it is closed: `tools::print` and
// `tools::complain` do neither.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod amplify;
mod arms;
mod bars;
mod cache;
mod contest;
mod examples;
mod figures;
mod folder;
mod guest;
mod log;
mod nop;
mod old_kernel;
mod pages;
mod peers;
mod setup;
mod store;
mod tools;
mod windows;
mod write;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use headwater_measure::standard;

/// Measures headwater against its peers on a file of yours.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the comparisons that headwater promises to win, and prints ratio and bar for each.
    Bars(setup::Options),
    /// Compares the ring with other io_uring libraries: batches of requests that do nothing.
    Nop(nop::Options),
    /// Runs one arm of `nop` in this process and prints a line of JSON.
    #[command(hide = true)]
    NopArm(nop::ArmOptions),
    /// Compares the cache with other caches: gets of pages that are there.
    Cache(cache::Options),
    /// Runs one arm of `cache` in this process and prints a line of JSON.
    #[command(hide = true)]
    CacheArm(cache::ArmOptions),
    /// Compares durable appends with the lines of std that one writes for them.
    Log(log::Options),
    /// Runs one arm of `log` in this process and prints a line of JSON.
    #[command(hide = true)]
    LogArm(log::ArmOptions),
    /// Compares headwater with other libraries that read files, on the same work in the same run.
    Peers(peers::Options),
    /// Runs one arm of `peers` in this process and prints a line of JSON.
    #[command(hide = true)]
    PeersArm(peers::ArmOptions),
    /// Reads 512 bytes at random in every way there is, and shows what the device read for them.
    Amplify(amplify::Options),
    /// Runs one arm of `amplify` in this process and prints a line of JSON.
    #[command(hide = true)]
    AmplifyArm(amplify::ArmOptions),
    /// Loads eight bytes at random from windows over a file of four times the memory, beside mmap.
    Windows(windows::Options),
    /// Runs one arm of `windows` in this process and prints a line of JSON.
    #[command(hide = true)]
    WindowsArm(windows::ArmOptions),
    /// Compares gets of objects with those of LocalFileSystem of the crate object_store.
    Store(store::Options),
    /// Runs one arm of `store` in this process and prints a line of JSON.
    #[command(hide = true)]
    StoreArm(store::ArmOptions),
    /// Runs the example programs of the library by turns with their forms in std.
    Examples(examples::Options),
    /// Reads the first page of a file, with headwater or std, and ends; used by `bars`.
    #[command(hide = true)]
    OnePage(bars::ShortArm),
    /// Runs one arm of the groups `default` of `bars` in this process and prints a line of JSON.
    #[command(hide = true)]
    DefaultArm(bars::DefaultArm),
    /// Runs one arm of the group `write` of `bars` in this process and prints a line of JSON.
    #[command(hide = true)]
    WriteArm(write::ArmOptions),
    /// Runs all comparisons and writes docs/benchmarks.md, and the table and the picture of the README.
    Figures(figures::Options),
    /// Boots a virtual machine with an NVMe disk that polls, and checks polled I/O there.
    Guest(guest::Options),
    /// Boots a virtual machine with the kernel of a release of Debian, and runs tests there.
    OldKernel(old_kernel::Options),
    /// Runs the tests that the disk of such a machine holds, and prints lines of JSON.
    #[command(hide = true)]
    OldKernelSuites,
    /// Waits for the end of a run, and removes its files.
    #[command(name = folder::COMMAND, hide = true)]
    FolderGuard { path: PathBuf },
    /// Waits for the end of a run, and puts the kernel's readahead back.
    #[command(name = bars::READAHEAD_GUARD, hide = true)]
    ReadaheadGuard { setting: PathBuf, before: String },
    /// Becomes another program, which ends with the process that started this one.
    #[command(name = guest::process::COMMAND, hide = true)]
    Bound {
        parent: u32,
        #[arg(last = true, required = true)]
        line: Vec<OsString>,
    },
    /// Runs one arm in this process and prints a line of JSON; used by the others.
    #[command(hide = true)]
    Arm {
        /// Name of the arm.
        name: arms::Arm,
        /// File to read.
        file: PathBuf,
        /// Memory budget of the engine, MiB.
        #[arg(long, default_value_t = 32)]
        memory_mib: u64,
        /// Time limit of random arms, seconds.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// Largest request of a scan, KiB; with it `--distance-kib`.
        #[arg(long, requires = "distance_kib")]
        size_kib: Option<u64>,
        /// How far a scan reads ahead, KiB.
        #[arg(long, requires = "size_kib")]
        distance_kib: Option<u64>,
        /// Folder of files that are to be hot in the engine's cache before.
        #[arg(long)]
        hot: Option<PathBuf>,
    },
}

impl Command {
    /// Checks before the work that results can be printed, where it prints some. An arm prints them to the process that started it.
    fn check_output(&self) -> io::Result<()> {
        match self {
            Command::FolderGuard { .. } | Command::ReadaheadGuard { .. } | Command::Bound { .. } => Ok(()),
            Command::Figures(options) if options.prints_nothing() => Ok(()),
            arm if arm.is_arm() => Ok(()),
            _ => tools::check_output(),
        }
    }

    /// Whether it does a part of the work of another process of this command, which alone has a use for it.
    fn is_arm(&self) -> bool {
        matches!(
            self,
            Command::NopArm(_)
                | Command::CacheArm(_)
                | Command::LogArm(_)
                | Command::PeersArm(_)
                | Command::AmplifyArm(_)
                | Command::WindowsArm(_)
                | Command::StoreArm(_)
                | Command::OnePage(_)
                | Command::DefaultArm(_)
                | Command::WriteArm(_)
                | Command::Arm { .. }
        )
    }
}

fn main() -> ExitCode {
    if guest::is_init() {
        if old_kernel::is_asked_for() {
            old_kernel::run_init()
        } else {
            guest::run_init()
        }
        return ExitCode::SUCCESS;
    }
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) => return print_help(&error),
    };
    if command.is_arm() {
        tools::end_with_parent();
    }
    match command.check_output().and_then(|()| run(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if standard::reader_has_gone() => ExitCode::from(standard::READER_GONE),
        Err(error) => {
            tools::complain(error);
            ExitCode::FAILURE
        }
    }
}

/// Prints help on standard output, or on standard error what is wrong with the command line.
fn print_help(error: &clap::Error) -> ExitCode {
    let code = ExitCode::from(error.exit_code() as u8);
    let checked = if error.use_stderr() { Ok(()) } else { tools::check_output() };
    match checked.and_then(|()| error.print().map_err(tools::unwritten)) {
        Err(failure) if !error.use_stderr() && failure.kind() != io::ErrorKind::BrokenPipe => {
            tools::complain(failure);
            ExitCode::FAILURE
        }
        _ => code,
    }
}

fn run(command: Command) -> io::Result<()> {
    match command {
        Command::Bars(options) => bars::run(&options),
        Command::Nop(options) => nop::run(&options),
        Command::NopArm(options) => nop::run_arm(&options),
        Command::Cache(options) => cache::run(&options),
        Command::CacheArm(options) => cache::run_arm(&options),
        Command::Log(options) => log::run(&options),
        Command::LogArm(options) => log::run_arm(&options),
        Command::Peers(options) => peers::run(&options),
        Command::PeersArm(options) => peers::run_arm(&options),
        Command::Amplify(options) => amplify::run(&options),
        Command::AmplifyArm(options) => amplify::run_arm(&options),
        Command::Windows(options) => windows::run(&options),
        Command::WindowsArm(options) => windows::run_arm(&options),
        Command::Store(options) => store::run(&options),
        Command::StoreArm(options) => store::run_arm(&options),
        Command::Examples(options) => examples::run(&options),
        Command::OnePage(options) => bars::run_short(&options),
        Command::DefaultArm(options) => bars::run_default(&options),
        Command::WriteArm(options) => write::run_arm(&options),
        Command::Figures(options) => figures::run(&options),
        Command::Guest(options) => guest::run(&options),
        Command::OldKernel(options) => old_kernel::run(&options),
        Command::FolderGuard { path } => folder::guard(&path),
        Command::ReadaheadGuard { setting, before } => bars::guard_readahead(&setting, &before),
        Command::Bound { parent, line } => guest::process::become_bound(parent, &line),
        Command::OldKernelSuites => old_kernel::run_suites(),
        Command::Arm { name, file, memory_mib, seconds, size_kib, distance_kib, hot } => {
            let readahead = size_kib.zip(distance_kib);
            arms::run(name, &file, &arms::Settings { memory_mib, seconds, readahead, hot })
        }
    }
}
