//! Doctor: what this machine allows, what follows from it, and how to mend what is missing.
//!
//! ```text
//!   kernel: rings, locked memory, watches, windows … ─┐
//!   path: direct I/O, file system, device, profile  ──┴─► facts ─► text | JSON
//! ```
//!
//! Owns: arguments, the words on the screen, the JSON.
//! Does not own: how a fact is found out (machine, place).

mod machine;
mod place;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use headwater_measure::{hanging, terminal_width};
use os_display::Quotable;
use serde::Serialize;

use crate::shared::complain::exit_code_of;
use crate::shared::json_path;
use crate::shared::output::JsonArguments;

#[derive(Args, Debug)]
pub(crate) struct DoctorArguments {
    /// A file, a block device, or a directory, in which a file without a name is made for a moment.
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    #[command(flatten)]
    json: JsonArguments,
}

pub(crate) fn run(arguments: &DoctorArguments) -> ExitCode {
    exit_code_of(examine(arguments))
}

fn examine(arguments: &DoctorArguments) -> Result<ExitCode, String> {
    let (json, path) = (arguments.json.to(), &arguments.path);
    json.beside([path])?.check_printed()?;
    let place = place::facts(path)?;
    let facts = Facts { path: path.clone(), machine: machine::facts(), place };
    let words = || {
        let place = format!("at {}", path.maybe_quote());
        let text =
            [("this machine", &facts.machine), (&place, &facts.place)].map(|(head, facts)| text(head, facts));
        text.join("\n")
    };
    json.give(words, &facts)?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Facts {
    #[serde(flatten, serialize_with = "json_path::as_path")]
    path: PathBuf,
    machine: Vec<Fact>,
    place: Vec<Fact>,
}

/// One thing that was looked at.
#[derive(Serialize)]
struct Fact {
    name: &'static str,
    verdict: Verdict,
    /// What is the case.
    found: String,
    /// What headwater does about it, where not all is well or this is not plain.
    follows: Option<String>,
    /// How to change it, where that is possible.
    mend: Option<String>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    /// It works, less well.
    Limited,
    Missing,
}

impl Fact {
    fn good(name: &'static str, found: impl Into<String>) -> Fact {
        Fact { name, verdict: Verdict::Good, found: found.into(), follows: None, mend: None }
    }

    fn limited(name: &'static str, found: impl Into<String>, follows: &str) -> Fact {
        Fact { verdict: Verdict::Limited, follows: Some(follows.to_owned()), ..Fact::good(name, found) }
    }

    fn missing(name: &'static str, found: impl Into<String>, follows: &str) -> Fact {
        Fact { verdict: Verdict::Missing, ..Fact::limited(name, found, follows) }
    }

    /// What follows where all is well.
    fn so(self, follows: impl Into<String>) -> Fact {
        Fact { follows: Some(follows.into()), ..self }
    }

    fn mended_by(self, mend: impl Into<String>) -> Fact {
        Fact { mend: Some(mend.into()), ..self }
    }

    fn lines(&self) -> Vec<String> {
        let verdict = match self.verdict {
            Verdict::Good => "good",
            Verdict::Limited => "limited",
            Verdict::Missing => "missing",
        };
        let parts = [Some(&self.found), self.follows.as_ref(), self.mend.as_ref()]
            .into_iter()
            .zip(["", "", "mend: "]);
        let width = terminal_width().unwrap_or(COLUMNS_DEFAULT);
        let mut head = format!("  {verdict:<9}{:<13}", self.name);
        let mut lines = Vec::new();
        for (part, label) in parts.filter_map(|(part, label)| Some((part?, label))) {
            lines.extend(hanging(&head, &format!("{label}{part}"), Some(width)));
            head = " ".repeat(head.chars().count());
        }
        lines
    }
}

fn text(head: &str, facts: &[Fact]) -> String {
    let lines = facts.iter().flat_map(Fact::lines).map(|line| line + "\n");
    format!("{head}\n{}", lines.collect::<String>())
}

/// Where there is no terminal.
const COLUMNS_DEFAULT: usize = 80;

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater doctor                              this machine, and the current directory
  headwater doctor /mnt/nvme                    another disk
  headwater doctor --json big.img               for programs";
