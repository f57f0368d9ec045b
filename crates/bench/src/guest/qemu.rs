//! QEMU: the machine that a guest runs on.
//!
//! Owns: its command line, its end.
//! Does not own: what it boots.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::process::Tick;
use super::{Halt, init, process};

/// An x86-64 with two processors, a disk and a serial console that is kept in a file.
pub(crate) struct Machine<'a> {
    pub(crate) vmlinuz: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) disk: Disk<'a>,
    pub(crate) memory_mib: u32,
    /// Added to the kernel's command line.
    pub(crate) parameters: &'a str,
    pub(crate) console_log: &'a Path,
    pub(crate) timeout: Duration,
}

/// The image of a disk, by what the guest takes it for.
#[derive(Clone, Copy)]
pub(crate) enum Disk<'a> {
    /// Read only.
    Nvme(&'a Path),
    /// Written to, and of no use after a crash of the host.
    Virtio(&'a Path),
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
    /// Runs the guest to its end, showing the seconds.
    pub(crate) fn run(&self) -> io::Result<Ended> {
        self.run_watched(process::ticker("guest"))
    }

    /// The same, with `tick` called all the time. The guest ends with this process.
    pub(crate) fn run_watched(&self, tick: impl FnMut(Tick) -> io::Result<()>) -> io::Result<Ended> {
        let mut qemu = Command::new(PROGRAM);
        qemu.args(MACHINE);
        qemu.arg("-kernel").arg(self.vmlinuz).arg("-initrd").arg(self.initramfs);
        qemu.args(["-append", &self.kernel_command_line()]);
        qemu.args(["-m", &self.memory_mib.to_string()]);
        let (drive, path, device) = match self.disk {
            Disk::Nvme(path) => ("readonly=on,", path, "nvme,drive=disk,serial=headwater"),
            Disk::Virtio(path) => ("cache=unsafe,discard=unmap,", path, "virtio-blk-pci,drive=disk"),
        };
        qemu.arg("-drive").arg(option(&format!("if=none,id=disk,format=raw,{drive}file="), path));
        qemu.args(["-device", device]);
        qemu.arg("-serial").arg(option("file:", self.console_log));
        let child = process::bound(&qemu)?.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let status = process::watch(child, self.timeout, tick)?;
        Ok(status.map_or(Ended::TooLate, Ended::InTime))
    }

    /// A panic ends the machine. The kernel passes unknown parameters to `/init` as environment: the time limit is for the case that
    /// no process is left to kill the machine.
    fn kernel_command_line(&self) -> String {
        let seconds = self.timeout.as_secs();
        let (nvme, limit) = (init::NVME_PARAMETERS, init::SECONDS_VARIABLE);
        format!("console=ttyS0 panic=-1 nvme.{nvme} {limit}={seconds} {}", self.parameters)
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
];
