//! Publishing: a crate is either published, and its manifest says what a registry shows, or it says that it is not. A package holds
//! sources, examples, README and licences alone, and its README links to nothing that a registry lacks.
//!
//! Owns: which keys a manifest has to have, what a package may hold and its README link to.
//! Does not own: the values of keys, which cargo and the registry check.

use std::path::Path;
use std::process::Command;

use crate::links;
use crate::repository::Finding;

pub(crate) fn check(path: &str, manifest: &str) -> Vec<Finding> {
    if !is_published(manifest) {
        return Vec::new();
    }
    let missing = KEYS.iter().filter(|key| !has(manifest, key));
    let message = |key| format!("`{key}` is missing; add it, or `publish = false`");
    missing.map(|key| Finding::new(path, 1, message(key))).collect()
}

pub(crate) fn is_published(manifest: &str) -> bool {
    !has(manifest, "publish")
}

/// Whether a package has this key.
fn has(manifest: &str, key: &str) -> bool {
    let package = manifest.split_once("[package]\n").map_or("", |(_, rest)| rest);
    let package = package.split("\n[").next().unwrap_or(package);
    package.lines().any(|line| line.starts_with(key) && line[key.len()..].starts_with([' ', '.']))
}

/// The files of a crate's package, as cargo makes it.
///
/// # Panics
/// With cargo's words if it makes none.
pub(crate) fn packed(manifest_path: &Path) -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["package", "--list", "--offline", "--allow-dirty", "--manifest-path"]).arg(manifest_path);
    let output = command.output().expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// What does not belong into a package, and what it lacks.
pub(crate) fn check_packed(path: &str, files: &[String]) -> Vec<Finding> {
    let may_be = |file: &&String| {
        FOLDERS.iter().any(|folder| file.starts_with(folder)) || FILES.contains(&file.as_str())
    };
    let foreign = files.iter().filter(|file| !may_be(file));
    let foreign = foreign.map(|file| format!("`{file}` is in the package; leave it out by `include`"));
    let missing = NEEDED.iter().filter(|needed| files.iter().all(|file| file != *needed));
    let missing = missing.map(|needed| format!("the package lacks `{needed}`; add it to the crate's folder"));
    foreign.chain(missing).map(|message| Finding::new(path, 1, message)).collect()
}

/// Links of a package's README to what is not in it: a registry shows the README by itself.
pub(crate) fn check_readme(path: &str, text: &str, files: &[String]) -> Vec<Finding> {
    let is_there = |target: &str| {
        let file = target.split('#').next().unwrap_or(target);
        target.contains("://") || file.is_empty() || files.iter().any(|packed| packed == file)
    };
    let dead = links::links(text).filter(|(_, target)| !is_there(target));
    let message = |target| format!("`{target}` is not in the package; link to docs.rs or crates.io");
    dead.map(|(line, target)| Finding::new(path, line, message(target))).collect()
}

const FOLDERS: [&str; 2] = ["src/", "examples/"];

const NEEDED: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Those, and what cargo adds.
const FILES: [&str; 7] = [
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "Cargo.toml",
    "Cargo.toml.orig",
    "Cargo.lock",
    ".cargo_vcs_info.json",
];

const KEYS: [&str; 9] = [
    "description",
    "license",
    "repository",
    "documentation",
    "readme",
    "include",
    "keywords",
    "categories",
    "rust-version",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_are_found() {
        let all: String = KEYS.iter().map(|key| format!("{key}.workspace = true\n")).collect();
        assert_eq!(check("Cargo.toml", &format!("[package]\n{all}")), Vec::new());
        assert_eq!(check("Cargo.toml", "[package]\nname = \"a\"\npublish = false\n"), Vec::new());
        let keywords = all.replace("keywords", "keywords-of-mine");
        assert_eq!(check("Cargo.toml", &format!("[package]\n{keywords}")).len(), 1);
        assert_eq!(check("Cargo.toml", "[workspace]\n\n[package]\npublish = false\n"), Vec::new());
        assert_eq!(
            check("Cargo.toml", &format!("[package]\nname = \"a\"\n[features]\n{all}")).len(),
            KEYS.len()
        );
    }

    #[test]
    fn what_does_not_belong_into_a_package_is_found() {
        let files = |more: &[&str]| -> Vec<String> {
            let all = FILES.iter().chain(&["src/lib.rs", "src/page.css", "examples/follow.rs"]).chain(more);
            all.map(|&file| file.to_owned()).collect()
        };
        assert_eq!(check_packed("a", &files(&[])), Vec::new());
        for foreign in ["tests/reading.rs", "notes.md", "srcs/lib.rs", "README.md.orig", "target/src/lib.rs"]
        {
            assert_eq!(check_packed("a", &files(&[foreign])).len(), 1, "{foreign}");
        }
        let without: Vec<_> = files(&[]).into_iter().filter(|file| file != "LICENSE-MIT").collect();
        assert_eq!(check_packed("a", &without).len(), 1);
    }

    #[test]
    fn links_that_a_registry_lacks_are_found() {
        let files = ["README.md", "examples/follow.rs"].map(str::to_owned);
        let fine = "[a](https://docs.rs/a) [b](examples/follow.rs) [c](#headings)\n```\n[d](nowhere)\n```\n";
        assert_eq!(check_readme("README.md", fine, &files), Vec::new());
        for dead in ["docs/guide/reading.md", "../README.md", "CHANGELOG.md#fixed", "picture.svg"] {
            assert_eq!(check_readme("README.md", &format!("![text]({dead})"), &files).len(), 1, "{dead}");
        }
    }
}
