//! Guest: shows that polled I/O works, on a machine that may have no device that polls.
//!
//! ```text
//!   host:   kernel ─┐
//!           this program, its libraries, the modules ─► initramfs ─┴─► qemu (emulated processor, emulated NVMe)
//!   guest:  /init = this program ─► mounts, modules ─► checks ─► console: a line of JSON each ─► power off
//!   host:   console log ─► table
//! ```
//!
//! `nvme.poll_queues` gives an NVMe disk queues without an interrupt, which is what `IORING_SETUP_IOPOLL` needs and what
//! hardly any virtual disk has; QEMU's emulated one does. What counts is that the right bytes arrive and that no interrupts
//! do. Processor time and latency of a request are reported as well: they are of an emulated machine, where processors and
//! disk share the host's, and tell only in which direction polling changes them.
//!
//! ```sh
//! headwater-bench guest                                        # fetches Debian's kernel with apt-get, once
//! headwater-bench guest --kernel vmlinuz --modules /lib/modules/6.1.0-44-amd64
//! ```
//!
//! Where QEMU or a kernel is missing it says so and counts as skipped, unless `--require`.
//!
//! Owns: the order of things on the host, the table.
//! Does not own: what is checked (checks, cost), what happens in the guest besides (init).

mod apt;
mod checks;
mod cost;
mod disk;
pub(crate) mod init;
pub(crate) mod initramfs;
mod interrupts;
pub(crate) mod kernel;
mod modules;
pub(crate) mod process;
pub(crate) mod qemu;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_measure::standard;

use crate::folder::Folder;
pub(crate) use crate::tools::about;
use crate::tools::{THIS_PROGRAM, print};

use checks::Check;
pub(crate) use init::{is_init, run as run_init};
use initramfs::Archive;
use kernel::Kernel;

/// Options of `guest`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kernel image (`vmlinuz`) to boot. By default Debian's is fetched with apt-get.
    #[arg(long, requires = "modules")]
    kernel: Option<PathBuf>,
    /// Folder with that kernel's modules, searched with all below it.
    #[arg(long, requires = "kernel")]
    modules: Option<PathBuf>,
    /// Where the fetched kernel is kept, and the consoles of guests that failed. By default `headwater-guest` in the user's cache.
    #[arg(long)]
    cache_dir: Option<PathBuf>,
    /// Seconds the guest may take. Without hardware support it boots in about twenty.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Fail where something is missing, instead of skipping.
    #[arg(long)]
    require: bool,
}

/// Why there is no result.
pub(crate) enum Halt {
    /// Something that this machine lacks, and how to mend that.
    Missing(String),
    Failed(io::Error),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Halt {
        Halt::Failed(error)
    }
}

/// # Errors
/// When a check fails or the guest does not answer; with `--require` also when something is missing.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    run_with(options.require, || attempt(options))
}

/// Boots a guest, where that is possible. `required`: it is an error where it is not.
pub(crate) fn run_with(required: bool, boot: impl FnOnce() -> Result<(), Halt>) -> io::Result<()> {
    standard::end_with_reader();
    let architecture = match cfg!(target_arch = "x86_64") {
        true => Ok(()),
        false => Err(Halt::Missing("the guest has this program's architecture, which is not x86-64".into())),
    };
    match architecture.and_then(|()| qemu::find().map(drop)).and_then(|()| boot()) {
        Ok(()) => Ok(()),
        Err(Halt::Missing(reason)) if !required => print(&format!("skipped: {reason}\n")),
        Err(Halt::Missing(reason)) => Err(io::Error::other(reason)),
        Err(Halt::Failed(error)) => Err(error),
    }
}

fn attempt(options: &Options) -> Result<(), Halt> {
    let cache = cache_folder(options.cache_dir.as_deref())?;
    fs::create_dir_all(&cache).map_err(|error| about(&cache, error))?;
    let kernel = match (&options.kernel, &options.modules) {
        (Some(vmlinuz), Some(folder)) => Kernel::given(vmlinuz, folder, &[DRIVER])?,
        _ => Kernel::fetched(&cache, &[DRIVER])?,
    };
    let folder = Folder::create(&cache)?;
    let console_log = folder.path().join(CONSOLE_LOG);
    let judged = boot(&kernel, folder.path(), &console_log, Duration::from_secs(options.timeout))?;
    Ok(judged.map_err(|reason| with_console(&reason, &console_log, &kept_log(&cache, "guest")))?)
}

/// Boots the guest and judges what it reported.
fn boot(
    kernel: &Kernel,
    folder: &Path,
    console_log: &Path,
    timeout: Duration,
) -> Result<Result<(), String>, Halt> {
    let (initramfs, image) = (folder.join("initramfs"), folder.join("disk"));
    let machine = qemu::Machine {
        vmlinuz: &kernel.vmlinuz,
        initramfs: &initramfs,
        disk: qemu::Disk::Nvme(&image),
        memory_mib: MEMORY_MIB,
        parameters: "",
        console_log,
        timeout,
    };
    write_initramfs(kernel, &initramfs)?;
    disk::write_image(&image)?;
    let ended = machine.run()?;
    // There is none if QEMU did not start.
    let console = fs::read(console_log).unwrap_or_default();
    let said = init::reported(&String::from_utf8_lossy(&console));
    print_table(&said.checks)?;
    Ok(match ended {
        _ if said.is_complete => judge(&said.checks),
        qemu::Ended::InTime(status) => Err(format!("the guest ended ({status}) before all checks were done")),
        qemu::Ended::TooLate => {
            Err(format!("the guest did not finish in {} s; --timeout grants more", timeout.as_secs()))
        }
    })
}

/// This program as `/init`, and the modules beside it.
pub(crate) fn write_initramfs(kernel: &Kernel, path: &Path) -> Result<(), Halt> {
    let init = path.with_extension("init");
    fs::copy(THIS_PROGRAM, &init)?;
    process::strip(&init)?;
    let mut archive = Archive::new();
    archive.add_console();
    ["proc", "sys", "dev"].into_iter().for_each(|folder| archive.add_folder(folder));
    archive.add_program("init", &init)?;
    fs::remove_file(&init)?;
    for (place, module) in kernel.modules.iter().enumerate() {
        archive.add_file(&format!("modules/{place:02}-{}.ko", module.name), 0o644, &module.image);
    }
    fs::write(path, archive.finish())?;
    Ok(())
}

fn print_table(checks: &[Check]) -> io::Result<()> {
    for Check { name, ok, detail } in checks {
        let verdict = if *ok { "ok" } else { "FAILED" };
        print(&format!("{name:<46} {verdict:<7} {detail}\n"))?;
    }
    Ok(())
}

fn judge(checks: &[Check]) -> Result<(), String> {
    match checks.iter().filter(|check| !check.ok).count() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} checks failed", checks.len())),
    }
}

/// Where kernels are kept.
pub(crate) fn cache_folder(given: Option<&Path>) -> Result<PathBuf, Halt> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let in_cache = || variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let folder = given.map(Path::to_owned).or_else(|| in_cache().map(|cache| cache.join("headwater-guest")));
    let missing = || Halt::Missing("there is no HOME to keep a cache in; name a --cache-dir".into());
    // apt runs in folders of its own.
    Ok(std::path::absolute(folder.ok_or_else(missing)?)?)
}

/// Where the console's log goes when a run fails: its folder vanishes with it.
pub(crate) fn kept_log(cache: &Path, run: &str) -> PathBuf {
    cache.join(format!("{run}-{}.log", std::process::id()))
}

/// The reason, with the place of what the guest said, which is kept.
pub(crate) fn with_console(reason: &str, console_log: &Path, kept: &Path) -> io::Error {
    match fs::rename(console_log, kept) {
        Ok(()) => io::Error::other(format!("{reason}; the guest's console is in {}", kept.display())),
        // QEMU said why on standard error.
        Err(_) => io::Error::other(format!("{reason}; the guest's console said nothing")),
    }
}

/// In the folder of a run.
pub(crate) const CONSOLE_LOG: &str = "console.log";

/// The driver of NVMe disks.
const DRIVER: &str = "nvme";

const MEMORY_MIB: u32 = 512;
