//! Figures: all comparisons in one command, and the documents that show them.
//!
//! ```text
//!   bars, nop, cache, log, store, examples, peers, amplify, windows, suites of `headwater bench` ─► a chapter each ─► docs/benchmarks.json ─► docs/benchmarks.md
//!                                                                                                       └─► the table in README.md, and its picture, docs/figures.svg
//! ```
//!
//! A chapter is stored as soon as it is measured, with date, commit and machine of its own: an interrupted run loses the chapter
//! it was at, and `--only` replaces the chapters that it names.
//!
//! Owns: which chapters there are and what they run, the JSON file.
//! Does not own: what a chapter compares (bars, nop, cache, log, store, examples, peers, amplify, windows, the
//! command's suites), how it is shown (markdown, picture).

mod markdown;
mod picture;

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_measure::Machine;
use headwater_testkit::Pattern;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contest;
use crate::folder::Folder;
use crate::tools::{self, about, check_static};

/// Options of `figures`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where files are made, on the device to measure.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Length of the file that most comparisons read, in MiB; it is read warm as well, so it should fit in memory. With less than
    /// 8192 the comparisons that write are smaller in proportion.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(64..=tools::MIB_MAX))]
    mib: u64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each way that reads at random places.
    #[arg(long, default_value_t = 2.0, value_parser = tools::seconds)]
    seconds: f64,
    /// Only these chapters; the others keep what was measured before.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Measure nothing, and write the documents anew from the stored results.
    #[arg(long, conflicts_with = "only")]
    render: bool,
    /// The headwater command; the library's example programs are in the folder `examples` beside it.
    #[arg(long, default_value = "target/release/headwater")]
    headwater: PathBuf,
    /// The folder of README.md and docs.
    #[arg(long, default_value = ".")]
    root: PathBuf,
}

impl Options {
    pub(crate) fn prints_nothing(&self) -> bool {
        self.render
    }
}

/// All that was measured.
#[derive(Default, Serialize, Deserialize)]
struct Figures {
    chapters: Vec<Chapter>,
}

/// What one command measured.
#[derive(Serialize, Deserialize)]
struct Chapter {
    id: String,
    command: String,
    date: String,
    commit: String,
    machine: String,
    /// As the command's `--json` has it.
    results: Value,
}

/// A chapter: its name, whether the command `headwater` measures it instead of this program, and the arguments.
type Source = (&'static str, bool, fn(&Options, &Path) -> Vec<String>);

/// In the order of the document.
const SOURCES: [Source; 15] = [
    ("bars", false, |options, file| {
        let [shrink, rounds] =
            [8192 / options.mib.min(8192), u64::from(options.rounds)].map(|number| number.to_string());
        let [file, seconds] = [file.display().to_string(), options.seconds.to_string()];
        let headwater = options.headwater.display().to_string();
        let mut arguments =
            words(["bars", "--file", &file, "--rounds", &rounds, "--seconds", &seconds, "--shrink", &shrink]);
        arguments.extend(words(["--headwater", &headwater]));
        arguments
    }),
    ("peers", false, |options, file| {
        let [file, dir] = [file.display(), options.dir.display()].map(|path| path.to_string());
        let [rounds, seconds] = [options.rounds.to_string(), options.seconds.to_string()];
        words(["peers", "--file", &file, "--dir", &dir, "--rounds", &rounds, "--seconds", &seconds])
    }),
    ("nop", false, |options, _| words(["nop", "--seconds", "1", "--rounds", &options.rounds.to_string()])),
    ("cache", false, |options, _| {
        let dir = options.dir.display().to_string();
        words(["cache", "--dir", &dir, "--seconds", "0.4", "--rounds", &options.rounds.to_string()])
    }),
    ("log", false, |options, _| {
        let dir = options.dir.display().to_string();
        words(["log", "--dir", &dir, "--rounds", &options.rounds.to_string()])
    }),
    ("store", false, |options, _| {
        let dir = options.dir.display().to_string();
        let mib = options.mib.min(1024);
        let [rounds, objects, mib] =
            [u64::from(options.rounds), 10_000 * mib / 1024, mib].map(|number| number.to_string());
        words(["store", "--dir", &dir, "--rounds", &rounds, "--mib", &mib, "--objects", &objects])
    }),
    ("examples", false, |options, _| {
        let programs = options.headwater.with_file_name("examples");
        let [dir, programs] = [&options.dir, &programs].map(|path| path.display().to_string());
        let [shrink, rounds] =
            [4096 / options.mib.min(4096), u64::from(options.rounds)].map(|number| number.to_string());
        words(["examples", "--dir", &dir, "--programs", &programs, "--rounds", &rounds, "--shrink", &shrink])
    }),
    ("amplify", false, |options, _| {
        let dir = options.dir.display().to_string();
        words(["amplify", "--dir", &dir, "--rounds", &options.rounds.to_string()])
    }),
    ("windows", false, |options, _| {
        let dir = options.dir.display().to_string();
        words(["windows", "--dir", &dir, "--rounds", &options.rounds.to_string()])
    }),
    // From one small read at a time to few large ones without a copy.
    ("scan", true, |options, file| {
        let mut arguments = suite("scan", options, file);
        arguments.extend(words(["--only", "step-4k-1,step-4k-ahead,step-4k-ahead-lent,step-512k-5"]));
        arguments
    }),
    ("alignment", true, |options, _| {
        let dir = options.dir.display().to_string();
        words(["bench", "alignment", "--dir", &dir, "--rounds", &options.rounds.to_string()])
    }),
    ("readahead", true, |options, file| suite("readahead", options, file)),
    ("random", true, |options, file| suite("random", options, file)),
    ("ubc", true, |options, file| suite("ubc", options, file)),
    ("cat", true, |options, _| {
        let dir = options.dir.display().to_string();
        words(["bench", "cat", "--dir", &dir, "--rounds", &options.rounds.to_string()])
    }),
];

fn words<const COUNT: usize>(words: [&str; COUNT]) -> Vec<String> {
    words.map(str::to_owned).into()
}

fn suite(name: &str, options: &Options, file: &Path) -> Vec<String> {
    let [file, rounds] = [file.display().to_string(), options.rounds.to_string()];
    words(["bench", name, "--file", &file, "--rounds", &rounds])
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let mut figures = Figures::load(&options.root)?;
    if options.render {
        return figures.store(&options.root);
    }
    let chosen = chosen(&options.only)?;
    // What cannot be written after an hour is found out now.
    figures.store(&options.root)?;
    check_static(&options.headwater)?;
    // Before a chapter changes the documents.
    let commit = told("git", &["describe", "--always", "--dirty"]);
    let folder = Folder::create(&options.dir)?;
    folder.require_room(options.mib << 20)?;
    let file = folder.path().join("file");
    Pattern::new(1).write_file(&file, options.mib << 20)?;
    let mut failed = Vec::new();
    for (number, source) in chosen.iter().enumerate() {
        tools::print(&format!("== {} ({} of {})\n", source.0, number + 1, chosen.len()))?;
        match measure(source, options, (&file, folder.path()), &commit) {
            Ok(chapter) => figures.put(chapter),
            Err(error) => failed.push(format!("{}: {error}", source.0)),
        }
        figures.store(&options.root)?;
    }
    if failed.is_empty() { Ok(()) } else { Err(io::Error::other(failed.join("; "))) }
}

fn chosen(only: &[String]) -> io::Result<Vec<&'static Source>> {
    contest::chosen(&SOURCES, |(id, ..)| id, only, contest::is_name)
}

/// Runs the command of a chapter, which prints its progress and its tables. A command that missed a row has written its results all
/// the same.
fn measure(
    source: &Source,
    options: &Options,
    (file, folder): (&Path, &Path),
    commit: &str,
) -> io::Result<Chapter> {
    let &(id, by_command, arguments) = source;
    let program = if by_command { options.headwater.clone() } else { tools::this_program() };
    let json = folder.join(format!("{id}.json"));
    let arguments = arguments(options, file);
    let status =
        Command::new(&program).args(&arguments).arg(format!("--json={}", json.display())).status()?;
    let results = std::fs::read(&json)
        .map_err(|error| io::Error::new(error.kind(), format!("no results ({status}): {error}")))?;
    let results = serde_json::from_slice(&results)?;
    markdown::check(&results)
        .map_err(|error| io::Error::other(format!("results in another form: {error}")))?;
    let name = if by_command { "headwater" } else { "headwater-bench" };
    let command = format!("{name} {}", arguments.join(" "));
    Ok(Chapter {
        id: id.to_owned(),
        command: command.replace(&*file.to_string_lossy(), "FILE"),
        date: told("date", &["+%Y-%m-%d"]),
        commit: commit.to_owned(),
        machine: machine(&options.dir),
        results,
    })
}

fn machine(dir: &Path) -> String {
    let dir = dir.display().to_string();
    let place = told("findmnt", &["-no", "FSTYPE,SOURCE", "--target", &dir]);
    let place = place.split_whitespace().collect::<Vec<_>>().join(" on ");
    [Machine::here().words(), place]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// What a program of the system prints; empty where it is missing.
fn told(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Figures {
    fn load(root: &Path) -> io::Result<Figures> {
        match std::fs::read(root.join(STORE)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Figures::default()),
            Err(error) => Err(error),
        }
    }

    /// In place of the chapter of that name, in the order of the document.
    fn put(&mut self, chapter: Chapter) {
        self.chapters.retain(|known| known.id != chapter.id);
        self.chapters.push(chapter);
        let place = |chapter: &Chapter| SOURCES.iter().position(|(id, ..)| *id == chapter.id);
        self.chapters.sort_by_key(place);
    }

    /// What was measured first, and each file in the place of the old one once it is whole.
    fn store(&self, root: &Path) -> io::Result<()> {
        let write = |name: &str, text: String| {
            let path = root.join(name);
            replace(&path, &text).map_err(|error| about(&path, error))
        };
        write(STORE, serde_json::to_string_pretty(self)? + "\n")?;
        let path = root.join("README.md");
        let readme = std::fs::read_to_string(&path).map_err(|error| about(&path, error))?;
        let readme = markdown::readme(&readme, self).map_err(io::Error::other)?;
        write(DOCUMENT, markdown::document(self))?;
        write(PICTURE, picture::picture(self))?;
        write("README.md", readme)
    }
}

/// Puts a file in the place of the one at a path, or of the one that a link there leads to, with its permissions.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let permissions = path.metadata().map_or(Permissions::from_mode(0o644), |old| old.permissions());
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(&path)?;
    Ok(())
}

const STORE: &str = "docs/benchmarks.json";
const DOCUMENT: &str = "docs/benchmarks.md";
const PICTURE: &str = "docs/figures.svg";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the documents show what was measured, and nothing else. Method: rendering the stored results again changes nothing.
    #[test]
    fn documents_are_rendered() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let figures = Figures::load(&root).unwrap();
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
        assert_eq!(read(DOCUMENT), markdown::document(&figures));
        assert_eq!(read(PICTURE), picture::picture(&figures));
        let readme = read("README.md");
        assert_eq!(readme, markdown::readme(&readme, &figures).unwrap());
    }

    /// Goal: the program that is given is the one that is measured. Method: the arguments of the chapter that runs this program, which
    /// has a default of its own.
    #[test]
    fn the_given_program_is_measured() {
        use clap::{Args, FromArgMatches};
        let command = Options::augment_args(clap::Command::new("figures"));
        let matches = command.get_matches_from(["figures", "--headwater", "/opt/headwater"]);
        let options = Options::from_arg_matches(&matches).unwrap();
        let arguments = SOURCES[0].2(&options, Path::new("file"));
        assert!(
            arguments.windows(2).any(|words| words == ["--headwater", "/opt/headwater"]),
            "{arguments:?}"
        );
    }

    /// Goal: a chapter replaces the one of its name, and all stand in the order of the document.
    #[test]
    fn chapters_replace_their_like() {
        let chapter = |id: &str, commit: &str| Chapter {
            id: id.to_owned(),
            command: String::new(),
            date: String::new(),
            commit: commit.to_owned(),
            machine: String::new(),
            results: Value::Null,
        };
        let mut figures = Figures::default();
        for (id, commit) in [("nop", "1"), ("bars", "1"), ("nop", "2")] {
            figures.put(chapter(id, commit));
        }
        let found: Vec<_> = figures.chapters.iter().map(|chapter| (&*chapter.id, &*chapter.commit)).collect();
        assert_eq!(found, [("bars", "1"), ("nop", "2")]);
        assert!(chosen(&["nothing".to_owned()]).is_err());
        assert_eq!(chosen(&[]).unwrap().len(), SOURCES.len());
    }
}
