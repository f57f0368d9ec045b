//! Init: this program as process 1 of the guest, and what it says on the console.
//!
//! ```text
//!   mount proc, sysfs, devtmpfs ─► load modules ─► wait for the disk ─► checks, a line each ─► END ─► power off
//! ```
//!
//! Owns: bringing the guest up and down, the lines that host and guest share.
//! Does not own: the checks.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::MountFlags;
use rustix::system::RebootCommand;

use super::about;
use super::checks::{self, Check};

/// What the console said so far.
pub(crate) struct Reported {
    pub(crate) checks: Vec<Check>,
    /// Whether all checks were made.
    pub(crate) is_complete: bool,
}

/// Reads a console's log. What is not ours, such as messages of the kernel, is passed over.
pub(crate) fn reported(console: &str) -> Reported {
    let lines = console.lines().filter_map(|line| line.split_once(MARKER).map(|(_, ours)| ours.trim()));
    let (ends, rest): (Vec<&str>, Vec<&str>) = lines.partition(|line| *line == END);
    let checks = rest.into_iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Reported { checks, is_complete: !ends.is_empty() }
}

/// Whether this process is the first of a guest.
pub(crate) fn is_init() -> bool {
    rustix::process::getpid().is_init() && std::env::args_os().next().is_some_and(|name| name == "/init")
}

/// Brings the guest up, runs the checks, powers off. A panic in here ends the guest as well.
pub(crate) fn run() {
    if let Err(error) = bring_up(Path::new(checks::DISK)) {
        print_on_console(&format!("bringing up the guest: {error}"));
    } else {
        checks::run(|check| say(&serde_json::to_string(check).expect("strings make JSON")));
        say(END);
    }
    power_off();
}

/// Mounts the kernel's file systems, loads the modules, starts the clock and waits for the disk.
pub(crate) fn bring_up(disk: &Path) -> io::Result<()> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        rustix::mount::mount(kind, place, kind, MountFlags::empty(), None::<&CStr>)
            .map_err(|error| about(Path::new(place), error.into()))?;
    }
    thread::spawn(|| {
        thread::sleep(time_limit());
        print_on_console("the guest's time is up");
        power_off();
    });
    load_modules()?;
    let started = Instant::now();
    while !disk.exists() {
        if started.elapsed() > DISK_LIMIT {
            return Err(about(disk, io::ErrorKind::TimedOut.into()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    // From now on only emergencies, so that no message of the kernel lands in a line of ours.
    fs::write("/proc/sys/kernel/printk", "1")
}

/// In the order of their file names. The command line's parameters are for what is part of the kernel; modules get
/// theirs from the loader.
fn load_modules() -> io::Result<()> {
    let Ok(folder) = fs::read_dir("/modules") else { return Ok(()) };
    let mut files: Vec<_> = folder.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    for file in files {
        let is_driver = file.to_string_lossy().ends_with("-nvme.ko");
        let parameters = CString::new(if is_driver { NVME_PARAMETERS } else { "" })?;
        match rustix::system::finit_module(File::open(&file)?, &parameters, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(about(&file, error.into())),
        }
    }
    Ok(())
}

fn time_limit() -> Duration {
    let seconds = std::env::var(SECONDS_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(u64::MAX))
}

fn say(line: &str) {
    print_on_console(&format!("{MARKER}{line}"));
}

/// A console that takes nothing is no reason for process 1 to end, which would be a panic of the kernel.
pub(crate) fn print_on_console(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Does not return where it works.
pub(crate) fn power_off() {
    let _ = io::stdout().flush();
    // What is written is not yet sent: the console drops it when the power goes.
    let _ = rustix::termios::tcdrain(io::stdout());
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
}

/// What the driver of NVMe disks is told: two queues without an interrupt.
pub(crate) const NVME_PARAMETERS: &str = "poll_queues=2";

/// Environment variable with the guest's time limit.
pub(crate) const SECONDS_VARIABLE: &str = "HEADWATER_GUEST_SECONDS";

/// Begins a line of ours on the console.
const MARKER: &str = "headwater-guest: ";

/// The line after the last check.
const END: &str = "end";

/// The disk is there some milliseconds after its driver, on a slow host some seconds.
const DISK_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: our lines are found among the kernel's, with the console's line ends, and a guest that died in the midst
    /// is told from one that finished.
    #[test]
    fn lines_of_ours_are_read() {
        let check = r#"headwater-guest: {"name":"a","ok":true,"detail":"b"}"#;
        let console = format!("[    0.1] booting\r\n{check}\r\nsomething: else\r\n");
        let said = reported(&console);
        assert_eq!((said.checks.len(), said.is_complete), (1, false));
        assert!(said.checks[0].ok && said.checks[0].name == "a" && said.checks[0].detail == "b");
        let said = reported(&format!("{console}headwater-guest: {{\"na\r\nheadwater-guest: end\r\n"));
        assert_eq!((said.checks.len(), said.is_complete), (1, true));
    }
}
