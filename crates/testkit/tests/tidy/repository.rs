//! Repository: its crates, its source files and its tracked text files, and what a finding looks like.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    /// What is wrong and, after a semicolon, how to mend it.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A file of Rust; its path is relative to the root of the repository.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A member of the workspace, or of another one: what a member shows itself with, the fuzz targets, DataFusion and Ballista.
pub(crate) struct Crate {
    /// Its directory, from the root of the repository.
    pub(crate) folder: String,
    pub(crate) manifest: String,
}

impl Crate {
    pub(crate) fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }

    pub(crate) fn sources(&self) -> Vec<SourceFile> {
        self.read(&self.path().join("src"))
    }

    /// Without those of a [`DEMO`] or [`BALLISTA`] in it, which is a crate by itself.
    pub(crate) fn all_sources(&self) -> Vec<SourceFile> {
        let inner = [format!("{}/{DEMO}/", self.folder), format!("{BALLISTA}/")];
        let is_own =
            |file: &SourceFile| !inner.iter().any(|inner| !self.is_in(inner) && file.path.starts_with(inner));
        self.read(&self.path()).into_iter().filter(is_own).collect()
    }

    fn is_in(&self, folder: &str) -> bool {
        format!("{}/", self.folder).starts_with(folder)
    }

    fn path(&self) -> PathBuf {
        root().join(&self.folder)
    }

    fn read(&self, directory: &Path) -> Vec<SourceFile> {
        let rust = |path: &PathBuf| path.extension() == Some(OsStr::new("rs"));
        let source = |path: PathBuf| {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            SourceFile { path: relative(&path), text }
        };
        files_below(directory).into_iter().filter(rust).map(source).collect()
    }
}

/// All crates, in the order of their folders' names.
pub(crate) fn crates() -> Vec<Crate> {
    let entries = fs::read_dir(root().join("crates")).expect("the workspace has crates");
    let folders =
        entries.filter_map(|entry| Some(format!("crates/{}", entry.ok()?.file_name().to_string_lossy())));
    let with_demos = folders.flat_map(|folder| [format!("{folder}/{DEMO}"), folder]);
    let mut crates: Vec<Crate> = with_demos
        .chain([FUZZ, DATAFUSION, BALLISTA].map(str::to_owned))
        .filter_map(|folder| {
            let manifest = root().join(&folder).join("Cargo.toml");
            Some(Crate { manifest: fs::read_to_string(manifest).ok()?, folder })
        })
        .collect();
    crates.sort_by(|left, right| left.folder.cmp(&right.folder));
    crates
}

/// Where a crate has a program that cannot be of the workspace: for another target, with another toolchain.
const DEMO: &str = "demo";

/// Where the fuzz targets are, which need the nightly toolchain.
const FUZZ: &str = "fuzz";

/// Where DataFusion reads through headwater, which brings more packages than all the rest.
const DATAFUSION: &str = "integrations/datafusion";

/// Where a cluster does, in the workspace of DataFusion.
const BALLISTA: &str = "integrations/datafusion/ballista";

/// Path of every file that git tracks or would, of every file where there is no git.
pub(crate) fn tracked_paths() -> Vec<String> {
    let listed = git_files().unwrap_or_else(|| files_below(&root()));
    listed.iter().map(|path| relative(path)).collect()
}

/// Path and text of every file that git tracks or would, of every file where there is no git, that is text.
pub(crate) fn tracked_text_files() -> Vec<(String, String)> {
    let listed = git_files().unwrap_or_else(|| files_below(&root()));
    listed.into_iter().filter_map(|path| Some((relative(&path), fs::read_to_string(&path).ok()?))).collect()
}

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies in crates/testkit").to_owned()
}

fn git_files() -> Option<Vec<PathBuf>> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let output = command.output().ok().filter(|output| output.status.success())?;
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(names.split_terminator('\0').map(|name| root().join(name)).collect())
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let skipped = ["target", ".git"].iter().any(|name| entry.file_name() == *name);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !skipped => files.extend(files_below(&path)),
            Ok(kind) if kind.is_file() => files.push(path),
            _ => {}
        }
    }
    files.sort();
    files
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned()
}
