//! Ways: the seven cats and everybody else, as commands.
//!
//! Owns: which there are on this machine, their names, how they are started, what is said of those that do.
//! Does not own: what the steps do (`steps`).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};

use super::also::Also;
use super::steps::{SLICE_BYTES, Step, buffer_bytes};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::name_of;
use crate::shared::target::Target;
use crate::shared::this_program::THIS_PROGRAM;
use crate::shared::units::readable;

/// All ways in the order of the table, and those that are not here.
pub(super) struct Ways {
    pub(super) all: Vec<Way>,
    /// A name and a reason each.
    pub(super) absent: Vec<(&'static str, &'static str)>,
}

pub(super) struct Way {
    /// For the JSON.
    pub(super) id: String,
    pub(super) name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// A command of the user's, which may write what it likes. Its arguments follow from the file.
    pub(super) also: Option<Also>,
    /// Why it has no row.
    pub(super) failure: Option<String>,
}

/// A way that is about to be started, and what takes in its standard error.
pub(super) struct Ready {
    pub(super) command: Command,
    complaints: File,
}

impl Ways {
    /// # Errors
    /// What is reported of this program, or of the file.
    pub(super) fn here(target: &Target, best_bytes: usize, also: &[Also]) -> io::Result<Ways> {
        let ourselves = PathBuf::from(THIS_PROGRAM);
        let block_bytes = File::open(target.input_path())?.metadata()?.blksize();
        let step = |step: Step| {
            let bytes = buffer_bytes(step, block_bytes, best_bytes);
            let arguments =
                ["bench-row", "--suite", &name_of(RowSuite::Cat), "--row", step.id(), "--limit-ms", "0"];
            let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
            arguments.extend(["--places".to_owned(), bytes.to_string()]);
            arguments.extend(["--bytes".to_owned(), step.slice_bytes().to_string()]);
            way(step.id(), name(step, bytes), ourselves.clone(), arguments)
        };
        let mut all: Vec<Way> = Step::SIX.into_iter().map(step).collect();
        all.push(way(HEADWATER_ID, "cat7: headwater cat".to_owned(), ourselves.clone(), ["cat", "-"]));
        let mut absent = Vec::new();
        // GNU dd calls itself `dd (coreutils)`.
        let is_gnu = |said: &str| said.contains("Free Software Foundation");
        match found(&[&["/bin/cat"], &["cat"], &["gcat"], &["gnucat"]], is_gnu) {
            Some((command, version)) => all.push(program(GNU_ID, format!("GNU cat {version}"), &command)),
            None => absent.push(("GNU cat", "no cat here says that it is GNU's")),
        }
        let is_uutils = |said: &str| !said.contains("GNU");
        match found(&[&["uu-cat"], &["coreutils", "cat"]], is_uutils) {
            Some((command, version)) => {
                all.push(program("uutils", format!("uutils cat {version}"), &command))
            }
            None => absent.push(("uutils cat", "neither `coreutils cat` nor `uu-cat` is installed")),
        }
        match found(&[&["dd"], &["gdd"], &["gnudd"]], is_gnu) {
            Some((command, version)) => {
                let command = [&command[..], &["bs=1M", "status=none"]].concat();
                all.push(program("dd", format!("dd bs=1M {version}"), &command));
            }
            None => absent.push(("dd", "no dd here says that it is GNU's")),
        }
        match found(&[&["cp"], &["gcp"], &["gnucp"]], is_gnu) {
            Some((command, version)) => {
                let command = [&command[..], &["/dev/stdin", "/dev/stdout"]].concat();
                all.push(program("cp", format!("cp {version}"), &command));
            }
            None => absent.push(("cp", "no cp here says that it is GNU's")),
        }
        all.extend(Step::OTHERS.into_iter().map(step));
        all.extend(also.iter().enumerate().map(|(index, also)| Way {
            also: Some(also.clone()),
            ..way(&format!("also-{}", index + 1), also.text.clone(), also.program(), [""; 0])
        }));
        Ok(Ways { all, absent })
    }
}

impl Way {
    /// With the file, from its start, as standard input: it may have no name.
    ///
    /// # Errors
    /// What opening the file reports.
    pub(super) fn ready(&self, target: &Target) -> io::Result<Ready> {
        // Opened again each time, because a position belongs to what was opened.
        let input = File::open(target.input_path())?;
        let complaints = File::from(memfd_create("complaints", MemfdFlags::CLOEXEC)?);
        let mut command = Command::new(&self.program);
        if let Some(also) = &self.also {
            command.args(also.arguments(&target.path_for_others()?));
        }
        command.args(&self.arguments).stdin(input).stderr(complaints.try_clone()?);
        Ok(Ready { command, complaints })
    }

    pub(super) fn is_slice(&self) -> bool {
        self.id == Step::Byte.id()
    }

    pub(super) fn bytes_of(&self, target: &Target) -> u64 {
        if self.is_slice() { target.bytes.min(SLICE_BYTES) } else { target.bytes }
    }

    pub(super) fn is_headwater(&self) -> bool {
        self.id == HEADWATER_ID
    }

    /// One of the seven.
    pub(super) fn is_step(&self) -> bool {
        self.is_headwater() || Step::SIX.iter().any(|step| step.id() == self.id)
    }
}

impl Ready {
    /// What the process has ended with, if that is no success.
    ///
    /// # Errors
    /// Its exit code or signal, and the end of what it has written to standard error.
    pub(super) fn check(mut self, status: ExitStatus) -> io::Result<()> {
        if status.success() {
            return Ok(());
        }
        let mut said = Vec::new();
        let bytes = self.complaints.seek(SeekFrom::End(0))?;
        self.complaints.seek(SeekFrom::Start(bytes.saturating_sub(COMPLAINT_BYTES_MAX)))?;
        self.complaints.read_to_end(&mut said)?;
        let said = String::from_utf8_lossy(&said);
        let said = match said.trim() {
            "" => "it said nothing".to_owned(),
            said => format!("it said: {said}"),
        };
        Err(io::Error::other(format!("{}; {said}", ended(status))))
    }
}

/// `ended with exit code 3`, `ended by signal 9`.
fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => format!("ended: {status}"),
    }
}

fn way<W: Into<OsString>>(
    id: &str,
    name: String,
    program: impl Into<PathBuf>,
    arguments: impl IntoIterator<Item = W>,
) -> Way {
    let arguments = arguments.into_iter().map(Into::into).collect();
    Way { id: id.to_owned(), name, program: program.into(), arguments, also: None, failure: None }
}

fn program(id: &str, name: String, command: &[&str]) -> Way {
    way(id, name, command[0], &command[1..])
}

/// The first of some commands whose version says that it is the one wanted, and the version.
fn found(
    candidates: &[&[&'static str]],
    is_it: impl Fn(&str) -> bool,
) -> Option<(Vec<&'static str>, String)> {
    candidates.iter().find_map(|command| {
        let output =
            Command::new(command[0]).args(&command[1..]).arg("--version").stdin(Stdio::null()).output();
        let output = output.ok().filter(|output| output.status.success())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = said.lines().next()?.split_whitespace().next_back()?.to_owned();
        is_it(&said).then(|| (command.to_vec(), version))
    })
}

fn name(step: Step, bytes: usize) -> String {
    let size = readable(bytes as u64);
    match step {
        Step::Byte => format!("cat1: a byte at a time, {} only", readable(SLICE_BYTES)),
        Step::Page => format!("cat2: buffer of a page, {size}"),
        Step::Aligned => "cat3: aligned to a page".to_owned(),
        Step::Block => format!("cat4: lcm(page, st_blksize), {size}"),
        Step::Best => format!("cat5: as measured, {size}"),
        Step::Advised => "cat6: and FADV_SEQUENTIAL".to_owned(),
        Step::Sendfile => "sendfile".to_owned(),
        Step::Splice => "splice through a pipe".to_owned(),
    }
}

pub(super) const HEADWATER_ID: &str = "cat7";

/// The row that others are compared with.
pub(super) const GNU_ID: &str = "gnu";

/// What fits a terminal.
const COMPLAINT_BYTES_MAX: u64 = 1500;
