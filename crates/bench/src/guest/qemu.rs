//! QEMU: the machine that the guest runs on.
//!
//! Owns: its command line, its end.
//! Does not own: what it boots.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::{Halt, init, process};

/// An x86-64 with two processors, an NVMe disk and a serial console that is kept in a file.
pub(crate) struct Machine<'a> {
    pub(crate) vmlinuz: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) disk: &'a Path,
    pub(crate) console_log: &'a Path,
    pub(crate) timeout: Duration,
}

pub(crate) enum Ended {
    /// The guest powered off, or QEMU failed.
    InTime(ExitStatus),
    /// It was killed.
    TooLate,
}

/// Whether QEMU is there.
pub(crate) fn find() -> Result<(), Halt> {
    let version = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).status();
    let mend = "apt-get install qemu-system-x86";
    version.map(drop).map_err(|error| process::missing(&error, PROGRAM, mend))
}

impl Machine<'_> {
    /// Runs the guest to its end. It stays in our process group, so that Ctrl-C ends it too.
    pub(crate) fn run(&self) -> io::Result<Ended> {
        let mut qemu = Command::new(PROGRAM);
        qemu.args(MACHINE);
        qemu.arg("-kernel").arg(self.vmlinuz).arg("-initrd").arg(self.initramfs);
        qemu.args(["-append", &self.kernel_command_line()]);
        qemu.arg("-drive").arg(option("if=none,id=disk,format=raw,readonly=on,file=", self.disk));
        qemu.arg("-serial").arg(option("file:", self.console_log));
        let child = qemu.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let status = process::watch("guest", child, self.timeout)?;
        Ok(status.map_or(Ended::TooLate, Ended::InTime))
    }

    /// A panic ends the machine. What the kernel does not know it hands to `/init` as environment: the time limit is
    /// for the case that nobody is left to kill the machine.
    fn kernel_command_line(&self) -> String {
        let seconds = self.timeout.as_secs();
        format!("console=ttyS0 panic=-1 nvme.{} {}={seconds}", init::NVME_PARAMETERS, init::SECONDS_VARIABLE)
    }
}

/// QEMU separates options by commas; one that belongs to a path is doubled.
fn option(option: &str, path: &Path) -> String {
    format!("{option}{}", path.display().to_string().replace(',', ",,"))
}

const PROGRAM: &str = "qemu-system-x86_64";

/// Two processors, so that submitting, polling and completing overlap.
const MACHINE: &[&str] = &[
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
    "-machine",
    "q35",
    "-accel",
    "tcg",
    "-smp",
    "2",
    "-m",
    "512",
    "-device",
    "nvme,drive=disk,serial=headwater",
];
