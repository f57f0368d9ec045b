//! Old kernel: runs the tests that depend on the kernel on a kernel of another age, in a virtual machine.
//!
//! ```text
//!   host:   cargo test --no-run ─► test binaries, tools, libraries ─► image of a disk ─┐
//!           Debian's kernel of a release, this program ─► initramfs ─────────────────┴─► qemu (emulated processor)
//!   guest:  /init = this program ─► mounts, modules ─► chroot to the disk ─► each suite ─► console: lines of JSON ─► power off
//!   host:   console log ─► a line for each suite as it ends; failed tests, skips ─► verdict
//! ```
//!
//! ```sh
//! headwater-bench old-kernel 6.1
//! headwater-bench old-kernel 5.10 --only sharing
//! ```
//!
//! Where QEMU, a tool or the kernel is missing it says so and counts as skipped, unless `--require`.
//!
//! Owns: the order of things on the host, the verdict.
//! Does not own: which tests run (suites), what is on the disk (image), what happens in the guest (inside).

mod binaries;
mod console;
mod image;
mod inside;
mod report;
mod suites;

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use crate::folder::Folder;
use crate::guest::{self, Halt, about, kernel::Kernel, qemu};
use console::Console;
pub(crate) use inside::{is_asked_for, run_init, run_suites};
use report::Report;
use suites::{Choice, Extent};

/// Options of `old-kernel`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Version of the kernel: 5.10, 6.1 or 6.12.
    #[arg(default_value = "6.1")]
    version: String,
    /// Only suites whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Only tests whose name contains this; may be given several times.
    #[arg(long)]
    test: Vec<String>,
    /// Only the suites that depend on the kernel most: about half of the time.
    #[arg(long)]
    short: bool,
    /// Where the fetched kernel is kept, and the consoles of guests that failed. By default `headwater-guest` in the user's cache.
    #[arg(long)]
    cache_dir: Option<PathBuf>,
    /// Seconds the guest may take.
    #[arg(long, default_value_t = 2400)]
    timeout: u64,
    /// Fail where something is missing, instead of skipping.
    #[arg(long)]
    require: bool,
}

/// # Errors
/// When there is no such kernel, a test fails or the guest does not finish; with `--require` also when something is missing.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let release = release_with(&options.version)?;
    guest::run_with(options.require, || attempt(options, release))
}

fn attempt(options: &Options, release: &str) -> Result<(), Halt> {
    let cache = guest::cache_folder(options.cache_dir.as_deref())?;
    fs::create_dir_all(&cache).map_err(|error| about(&cache, error))?;
    let kernel = Kernel::of_release(&cache, release, MODULES)?;
    let extent = if options.short { Extent::Short } else { Extent::Full };
    let choice = Choice { suite: options.only.as_deref(), tests: &options.test, extent };
    let jobs = suites::jobs(&binaries::build()?, &choice)?;
    let folder = Folder::create(&cache)?;
    let image = image::make(folder.path(), &jobs)?;
    let console_log = folder.path().join(guest::CONSOLE_LOG);
    let kept = guest::kept_log(&cache, &format!("old-kernel-{}", options.version));
    let judged = boot(options, &kernel, &image, &console_log)?;
    Ok(judged.map_err(|reason| guest::with_console(&reason, &console_log, &kept))?)
}

fn release_with(version: &str) -> io::Result<&'static str> {
    let release = RELEASES.iter().find(|(kernel, _)| *kernel == version);
    let known = || RELEASES.map(|(kernel, _)| kernel).join(", ");
    let reason = || format!("no release of Debian has Linux {version}; there are {}", known());
    release.map(|(_, release)| *release).ok_or_else(|| io::Error::other(reason()))
}

/// Boots the guest with this image, and judges what it reported.
fn boot(
    options: &Options,
    kernel: &Kernel,
    image: &Path,
    console_log: &Path,
) -> Result<Result<(), String>, Halt> {
    let initramfs = image.with_file_name("initramfs");
    guest::write_initramfs(kernel, &initramfs)?;
    let machine = qemu::Machine {
        vmlinuz: &kernel.vmlinuz,
        initramfs: &initramfs,
        disk: qemu::Disk::Virtio(image),
        memory_mib: MEMORY_MIB,
        parameters: &format!("{} {}", inside::PARAMETER, SETTINGS),
        console_log,
        timeout: Duration::from_secs(options.timeout),
    };
    let mut console = Console::new(console_log);
    let ended = machine.run_watched(|tick| console.follow(tick))?;
    let report: Report = console.into_report();
    let verdict = match ended {
        qemu::Ended::TooLate => {
            Err(format!("the guest did not finish in {} s; --timeout grants more", options.timeout))
        }
        qemu::Ended::InTime(status) if !report.is_complete() => {
            Err(format!("the guest ended ({status}) before all suites were done"))
        }
        qemu::Ended::InTime(_) => report.verdict(),
    };
    report.print(&options.version)?;
    Ok(verdict)
}

/// Kernels of Debian's releases: 11, 12 and 13. There is no 5.15.
const RELEASES: [(&str, &str); 3] = [("5.10", "bullseye"), ("6.1", "bookworm"), ("6.12", "trixie")];

/// The disk, the file systems of the tests with the checksums they use, and a device that logs writes.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "crc32c_generic",
    "ext4",
    "xfs",
    "btrfs",
    "loop",
    "overlay",
    "dm_log_writes",
];

/// Enough for the tests with caches of a GiB.
const MEMORY_MIB: u32 = 2560;

/// A clock that goes right on a busy host, where the kernel mistakes the speed of the processor's own; and no guards against others on
/// the machine, which an emulated processor need not have.
const SETTINGS: &str = "clocksource=hpet mitigations=off nokaslr";
