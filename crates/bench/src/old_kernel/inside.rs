//! Inside: this program in the guest, first as its init, then as what runs the suites.
//!
//! ```text
//!   init:   mounts, modules ─► the disk becomes the root ─► start itself again ─► reap whatever ends ─► power off
//!   suites: for each job: start ─► standard output, standard error ─► a line each ─► end, or killed when it takes too long
//! ```
//!
//! Owns: the guest's mounts, the jobs' processes.
//! Does not own: what the lines mean (report), what the jobs are (suites).

use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::MountFlags;
use rustix::process::{Pid, Signal, WaitOptions};

use super::image;
use super::report::{Line, Outcome};
use super::suites::Job;
use crate::guest::{about, init};
use crate::tools::THIS_PROGRAM;

/// Whether the init of this guest is to run suites.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Brings the guest up, has the suites run in a process of their own, powers off.
pub(crate) fn run_init() {
    if let Err(error) = bring_up().and_then(|()| run_worker()) {
        init::print_on_console(&format!("bringing up the guest: {error}"));
    }
    init::power_off();
}

fn bring_up() -> io::Result<()> {
    init::bring_up(Path::new(DISK))?;
    fs::create_dir_all(NEW_ROOT)?;
    mount("ext4", DISK, NEW_ROOT)?;
    rustix::process::chroot(NEW_ROOT)?;
    rustix::process::chdir("/")?;
    for (kind, place) in MOUNTS {
        fs::create_dir_all(place)
            .or_else(|error| if Path::new(place).exists() { Ok(()) } else { Err(error) })?;
        mount(kind, kind, place)?;
    }
    // Tests map far more than they use.
    fs::write("/proc/sys/vm/overcommit_memory", "1")?;
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")
}

fn mount(kind: &str, source: &str, place: &str) -> io::Result<()> {
    rustix::mount::mount(source, place, kind, MountFlags::empty(), None::<&CStr>)
        .map_err(|error| about(Path::new(place), error.into()))
}

/// The suites' processes leave orphans behind, which an init has to reap.
fn run_worker() -> io::Result<()> {
    let worker = Command::new(THIS_PROGRAM).arg("old-kernel-suites").env_remove(VARIABLE).spawn()?;
    let worker = Pid::from_child(&worker);
    while rustix::process::wait(WaitOptions::empty())?.is_none_or(|(ended, _)| ended != worker) {}
    Ok(())
}

/// Runs all jobs that the disk holds.
///
/// # Errors
/// When there are none.
pub(crate) fn run_suites() -> io::Result<()> {
    let jobs: Vec<Job> = serde_json::from_slice(&fs::read(image::JOBS)?)?;
    for job in jobs {
        say(&Line::Began { suite: job.suite.clone() });
        let started = Instant::now();
        let failure = run(&job).unwrap_or_else(|error| Some(error.to_string()));
        say(&Line::Ended { seconds: started.elapsed().as_secs(), failure });
    }
    say(&Line::AllDone);
    Ok(())
}

/// Runs a job to its end; returns how it failed.
fn run(job: &Job) -> io::Result<Option<String>> {
    let mut child = Command::new(&job.program)
        .args(&job.arguments)
        .env("PATH", "/usr/bin")
        .env("HOME", "/root")
        .env("RUSTC", image::COMPILER)
        .current_dir(&job.package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| about(&job.program, error))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let said = Mutex::new(VecDeque::new());
    let status = thread::scope(|scope| {
        scope.spawn(|| listen(output, &said));
        scope.spawn(|| listen(errors, &said));
        end(&mut child, SUITE_LIMIT)
    })?;
    let failure = match status {
        Some(status) if status.success() => return Ok(None),
        Some(status) => status.to_string(),
        None => format!("killed after {} s", SUITE_LIMIT.as_secs()),
    };
    said.into_inner().expect("no listener panics").into_iter().for_each(|text| say(&Line::Text(text)));
    Ok(Some(failure))
}

/// Waits for the job; `None` when it took too long and was killed with all that it started.
fn end(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    while started.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(50));
    }
    rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL)?;
    child.wait()?;
    Ok(None)
}

/// Passes on outcomes and skips at once, and keeps the last of all else.
fn listen(stream: Option<impl Read>, said: &Mutex<VecDeque<String>>) {
    let Some(stream) = stream else { return };
    let mut lines = BufReader::new(stream).split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        let line = String::from_utf8_lossy(&line).into_owned();
        match (Line::of_harness(&line), line.strip_prefix("skipped: ")) {
            (Some(Line::Test { outcome: Outcome::Ignored, .. }), _) => {}
            (Some(outcome), _) => say(&outcome),
            (None, Some(reason)) => say(&Line::Skipped { reason: reason.to_owned() }),
            (None, None) => keep(said, line),
        }
    }
}

fn keep(said: &Mutex<VecDeque<String>>, line: String) {
    let mut said = said.lock().expect("no listener panics");
    if said.len() == LINES_KEPT {
        said.pop_front();
    }
    said.push_back(line);
}

fn say(line: &Line) {
    let line = serde_json::to_string(line).expect("strings make JSON");
    // A console that fails cannot be told of.
    let _ = writeln!(io::stdout(), "{MARKER}{line}");
}

/// On the kernel's command line; what the kernel does not know becomes environment of its init.
pub(crate) const PARAMETER: &str = "HEADWATER_GUEST_SUITES=1";
const VARIABLE: &str = "HEADWATER_GUEST_SUITES";

/// Begins a line of ours on the console.
pub(crate) const MARKER: &str = "headwater-suites: ";

/// The first virtio disk.
const DISK: &str = "/dev/vda";

const NEW_ROOT: &str = "/disk";

/// In this order: what lies in another comes after it.
const MOUNTS: [(&str, &str); 6] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("cgroup2", "/sys/fs/cgroup"),
];

/// No suite takes a third of it on a machine that has time.
const SUITE_LIMIT: Duration = Duration::from_secs(900);

/// Of a suite that fails: enough for the panics of some tests.
const LINES_KEPT: usize = 400;
