//! Tools: arms that run outside of this program, and the page cache's state around them.
//!
//! Owns: starting child processes, reading fio's report, making a file cold or warm.
//! Does not own: what is compared with what (bars).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headwater::ByteRange;
use headwater::testing::resident_pages;

use clap::ValueEnum;
use headwater_measure::{Figures, standard};
use serde::Serialize;

/// As it is written on a command line.
pub(crate) fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is hidden").get_name().to_owned()
}

/// Has this process end when the one that started it does: killed, that one cannot end it.
pub(crate) fn end_with_parent() {
    // Only what runs on in vain depends on it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// The error with the file it is about.
pub(crate) fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// # Errors
/// That there is nothing to read at random places under this path.
pub(crate) fn check_file(path: &Path) -> io::Result<()> {
    let metadata = path.metadata().map_err(|error| about(path, error))?;
    match metadata.file_type() {
        kind if kind.is_file() && metadata.len() > 0 || kind.is_block_device() => Ok(()),
        kind if kind.is_file() => Err(about(path, io::Error::other("it is empty"))),
        _ => Err(about(path, io::Error::other("it is neither a file nor a block device"))),
    }
}

/// Prints results.
///
/// # Errors
/// What writing reports, with where that was; that the run ends with its reader, which has gone.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match standard::print(text).map_err(unwritten) {
        Err(error) if HAS_FILE.load(Ordering::Relaxed) => drop(UNPRINTED.set(error.to_string())),
        printed => printed?,
    }
    Ok(standard::check_reader()?)
}

/// From now on an error of [`print()`] is kept for [`unprinted`]: a file takes the results all the same.
pub(crate) fn has_file() {
    HAS_FILE.store(true, Ordering::Relaxed);
}

/// The first error that was kept.
pub(crate) fn unprinted() -> Option<String> {
    UNPRINTED.get().cloned()
}

static HAS_FILE: AtomicBool = AtomicBool::new(false);
static UNPRINTED: OnceLock<String> = OnceLock::new();

/// Prints what an arm has measured, for the process that started it.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_json(measured: &impl Serialize) -> io::Result<()> {
    print(&format!("{}\n", serde_json::to_string(measured)?))
}

/// Checks before the work that results can be printed.
///
/// # Errors
/// What standard output reports, with its name.
pub(crate) fn check_output() -> io::Result<()> {
    standard::output().map(drop).map_err(unwritten)
}

/// The error of standard output, with its name.
pub(crate) fn unwritten(error: io::Error) -> io::Error {
    about(Path::new("standard output"), error)
}

/// Prints a line on standard error. One that is closed or full is no reason to stop.
pub(crate) fn complain(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "headwater-bench: {text}");
}

/// Seconds of a command line.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds.ok_or_else(|| format!("it must be from {} to {} seconds", SECONDS.start(), SECONDS.end()))
}

/// From a few requests to a day.
const SECONDS: RangeInclusive<f64> = 0.001..=86_400.0;

/// Of a file: 1 PiB.
pub(crate) const MIB_MAX: u64 = 1 << 30;

/// This program as it runs: another one may have taken its place on disk.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The same as any process may start it that this one starts, such as strace.
pub(crate) fn this_program() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}

/// Runs fio with `arguments` on the file, read-only, and returns what its JSON says.
pub(crate) fn fio(file: &Path, arguments: &[String]) -> io::Result<Figures> {
    let output = fio_command(file, arguments).stderr(Stdio::null()).output()?;
    fio_figures(&output.stdout)
}

/// The same with arguments that make it write to the file.
pub(crate) fn fio_writing(file: &Path, arguments: &[&str]) -> io::Result<Figures> {
    let output = fio_on(file).args(arguments).stderr(Stdio::null()).output()?;
    fio_figures(&output.stdout)
}

pub(crate) fn fio_command(file: &Path, arguments: &[String]) -> Command {
    let mut command = fio_on(file);
    command.arg("--readonly").args(arguments);
    command
}

fn fio_on(file: &Path) -> Command {
    let mut command = Command::new("fio");
    command
        .args(["--name=headwater", "--ioengine=io_uring", "--direct=1", "--output-format=json"])
        // Of several files the names are separated by colons.
        .arg(format!("--filename={}", file.display().to_string().replace(':', "\\:")));
    command
}

/// What fio's report says: of its writes if it made any, else of its reads.
pub(crate) fn fio_figures(stdout: &[u8]) -> io::Result<Figures> {
    let text = String::from_utf8_lossy(stdout);
    let start = text.find('{').ok_or_else(|| io::Error::other("fio printed no JSON"))?;
    let report: serde_json::Value = serde_json::from_str(&text[start..])?;
    let job = &report["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
    let of = if number(&job["write"]["bw"]) > 0.0 { &job["write"] } else { &job["read"] };
    let (mib_per_s, requests) = (number(&of["bw"]) / 1024.0, number(&of["total_ios"]));
    let run_s = number(&of["runtime"]) / 1000.0;
    let cpu_s = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0 * run_s;
    if mib_per_s == 0.0 {
        return Err(io::Error::other(
            "fio moved nothing; --mem=mmaphuge needs vm.nr_hugepages of at least 80 (160 MiB)",
        ));
    }
    Ok(figures(mib_per_s * run_s, requests, run_s, cpu_s).with("mib_per_s", mib_per_s))
}

/// The figures of a run that moved `mib` MiB in `requests` requests.
pub(crate) fn figures(mib: f64, requests: f64, elapsed_s: f64, cpu_s: f64) -> Figures {
    Figures::from([
        ("mib_per_s", mib / elapsed_s),
        ("iops", requests / elapsed_s),
        ("requests", requests),
        ("elapsed_s", elapsed_s),
        ("cpu_s", cpu_s),
        ("cpu_s_per_gib", cpu_s / mib * 1024.0),
        ("cpu_us", cpu_s * 1e6 / requests),
    ])
}

/// Runs a shell command that reads the file once and reports its rate. `words` are its `$1` and so on.
pub(crate) fn shell(command: &str, words: &[&OsStr], length_bytes: u64) -> io::Result<Figures> {
    let start = Instant::now();
    let mut shell = Command::new("sh");
    let status = shell.args(["-c", command, "sh"]).args(words).stdin(Stdio::null()).status()?;
    let elapsed_s = start.elapsed().as_secs_f64();
    if !status.success() {
        return Err(io::Error::other(format!("{command}: {status}")));
    }
    let mib_per_s = length_bytes as f64 / f64::from(1 << 20) / elapsed_s;
    Ok(Figures::from([("mib_per_s", mib_per_s), ("elapsed_s", elapsed_s)]))
}

/// An error if the program loads libraries when it starts: a third of a millisecond that the published one does not take.
pub(crate) fn check_static(program: &Path) -> io::Result<()> {
    // The dynamic linker lists the libraries instead of running the program; a program without one ignores the variable.
    let output = Command::new(program).arg("--version").env("LD_TRACE_LOADED_OBJECTS", "1").output()?;
    if !String::from_utf8_lossy(&output.stdout).contains(".so") {
        return Ok(());
    }
    let program = program.display();
    Err(io::Error::other(format!(
        "{program} is linked dynamically: `just program` makes it as it is published"
    )))
}

/// Drops the file from the kernel's page cache. Never `drop_caches`, which falsifies the next run on virtual machines
/// that hand free memory back to the host.
pub(crate) fn make_cold(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    rustix::fs::fsync(&file)?;
    // Pages in the hands of a process that just ended go a moment later.
    for _ in 0..COLD_ATTEMPTS_MAX {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let whole = ByteRange::new(0, file.metadata()?.len());
        if resident_pages(file.as_fd(), whole).is_none_or(|pages| pages == 0) {
            break;
        }
        std::thread::sleep(COLD_PAUSE);
    }
    Ok(())
}

const COLD_ATTEMPTS_MAX: u32 = 10;
const COLD_PAUSE: Duration = Duration::from_millis(20);

/// Reads the file into the kernel's page cache.
pub(crate) fn make_warm(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Reads its first page.
pub(crate) fn make_warm_page(path: &Path) -> io::Result<()> {
    File::open(path)?.read_exact(&mut [0; 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no seconds that make a clock overflow, or a row without a request.
    #[test]
    fn seconds_are_a_time() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for none in ["0", "-1", "nan", "inf", "1e9", "", "a"] {
            assert!(seconds(none).is_err_and(|error| error.contains("0.001 to 86400")), "{none}");
        }
    }

    /// Goal: fio does not take a file with a colon in its name for several. Method: the words for it.
    #[test]
    fn fio_gets_one_file() {
        let command = fio_command(Path::new("/mnt/run:2/file"), &[]);
        assert!(command.get_args().any(|word| word == "--filename=/mnt/run\\:2/file"), "{command:?}");
    }

    /// Goal: a program that is not the published one is not measured in its place.
    /// Method: this test, which cargo links dynamically; then a program that is not there.
    #[test]
    fn dynamic_programs_are_known() {
        let error = check_static(&std::env::current_exe().unwrap()).unwrap_err();
        assert!(error.to_string().contains("just program"), "{error}");
        assert!(check_static(Path::new("/nowhere/headwater")).is_err());
    }
}
