//! Ways: the seven cats and everybody else, as commands.
//!
//! Owns: which there are on this machine, their names, how they are started.
//! Does not own: what the steps do (`steps`).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::steps::{Step, buffer_bytes};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::name_of;
use crate::shared::target::Target;
use crate::shared::units::readable;

/// All ways in the order of the table, and those that are not here.
pub(super) struct Ways {
    pub(super) all: Vec<Way>,
    /// A name and a reason each.
    pub(super) absent: Vec<(&'static str, &'static str)>,
}

pub(super) struct Way {
    /// For the JSON.
    pub(super) id: &'static str,
    pub(super) name: String,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Ways {
    /// # Errors
    /// What is reported of this program, or of the file.
    pub(super) fn here(target: &Target, best_bytes: usize) -> io::Result<Ways> {
        let ourselves = std::env::current_exe()?;
        let block_bytes = File::open(target.input_path())?.metadata()?.blksize();
        let step = |step: Step| {
            let bytes = buffer_bytes(step, block_bytes, best_bytes);
            let arguments =
                ["bench-row", "--suite", &name_of(RowSuite::Cat), "--row", step.id(), "--limit-ms", "0"];
            let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
            arguments.extend(["--places".to_owned(), bytes.to_string()]);
            arguments.extend(["--bytes".to_owned(), step.slice_bytes().to_string()]);
            Way { id: step.id(), name: name(step, bytes), program: ourselves.clone(), arguments }
        };
        let mut all: Vec<Way> = Step::SIX.into_iter().map(step).collect();
        all.push(Way {
            id: HEADWATER_ID,
            name: "cat7: headwater cat".to_owned(),
            program: ourselves.clone(),
            arguments: vec!["cat".to_owned(), "-".to_owned()],
        });
        let mut absent = Vec::new();
        match found(&[&["/bin/cat"], &["cat"], &["gcat"], &["gnucat"]], |said| said.contains("GNU coreutils"))
        {
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
        all.extend(Step::OTHERS.into_iter().map(step));
        Ok(Ways { all, absent })
    }
}

impl Way {
    /// With the file, from its start, as standard input: it may have no name.
    ///
    /// # Errors
    /// What opening the file reports.
    pub(super) fn command(&self, target: &Target) -> io::Result<Command> {
        // Opened again each time, because a position belongs to what was opened.
        let input = File::open(target.input_path())?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(input).stderr(Stdio::inherit());
        Ok(command)
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

fn program(id: &'static str, name: String, command: &[&str]) -> Way {
    let arguments = command[1..].iter().map(|&word| word.to_owned()).collect();
    Way { id, name, program: PathBuf::from(command[0]), arguments }
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

/// A fifth of a second at a byte at a time.
pub(super) const SLICE_BYTES: u64 = 256 << 10;
