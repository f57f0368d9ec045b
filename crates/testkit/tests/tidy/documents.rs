//! Documents: files that are no part of the project, words that belong to a machine or its tools, words that hide what acts, and
//! ARCHITECTURE.md's list of dependencies.

use crate::edges::{dependencies, package_name};
use crate::repository::Finding;

/// Names of tools that write text, and of directories of the machine it was written on.
pub(crate) fn check_words(path: &str, text: &str) -> Vec<Finding> {
    let foreign = foreign_words();
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(text.lines().map(str::to_lowercase)) {
        findings.extend(foreign.iter().filter(|word| content.contains(*word)).map(|word| {
            Finding::new(path, line, format!("`{word}` is no part of the project; take it out"))
        }));
    }
    findings
}

/// Files that are no part of the project: what is at the root is listed here, and temporary folders are nowhere.
pub(crate) fn check_place(path: &str) -> Option<Finding> {
    let (first, _) = path.split_once('/').unwrap_or((path, ""));
    let is_stray = !ROOT.contains(&first) || path.split('/').any(|part| part.starts_with(".tmp"));
    is_stray.then(|| {
        let message = "no part of the project, as far as the list of the root goes; remove it, and mend what has left it";
        Finding::new(path, 1, message)
    })
}

const ROOT: [&str; 19] = [
    ".ci",
    ".gitattributes",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "crates",
    "deny.toml",
    "docs",
    "fuzz",
    "integrations",
    "justfile",
    "rustfmt.toml",
];

/// Words in docs behind which the reader, the kernel or the caller hides: a stranger cannot tell which of them is meant.
pub(crate) fn check_docs(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(text.lines().map(str::trim_start)) {
        if !content.starts_with("///") && !content.starts_with("//!") {
            continue;
        }
        let words: Vec<String> =
            content.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase).collect();
        let hidden = HIDING.iter().filter(|hiding| {
            let hiding: Vec<&str> = hiding.split(' ').collect();
            words.windows(hiding.len()).any(|part| part.iter().zip(&hiding).all(|(one, other)| one == other))
        });
        findings
            .extend(hidden.map(|word| {
                Finding::new(path, line, format!("`{word}` in a doc; name the thing that acts"))
            }));
    }
    findings
}

const HIDING: [&str; 10] =
    ["who", "whoever", "somebody", "nobody", "he", "him", "his", "so much", "so many", "as was wished"];

/// Every crate, and each of its dependencies in backticks: a reader has to find why it is there.
pub(crate) fn check_architecture(architecture: &str, manifest: &str) -> Vec<Finding> {
    let name = package_name(manifest);
    let mut findings = Vec::new();
    if !has_word(architecture, &name) {
        let message = format!("the crate `{name}` is missing; say what it holds");
        findings.push(Finding::new(ARCHITECTURE, 1, message));
    }
    let unexplained = dependencies(manifest)
        .into_iter()
        .filter(|dependency| !architecture.contains(&format!("`{}`", dependency.name)));
    findings.extend(unexplained.map(|dependency| {
        let message = format!("`{}`, a dependency of `{name}`, is missing; give its reason", dependency.name);
        Finding::new(ARCHITECTURE, 1, message)
    }));
    findings
}

/// Names that the library exports, in its root and in the module `ring`, and no page of the guide has; and whether there are more of them
/// than [`PUBLIC_NAMES_MAX`]. `testing` is for the project's own tests and measurements.
pub(crate) fn check_shown(root: &str, guide: &str) -> Vec<Finding> {
    let ring = root.split_once("\npub mod ring {").and_then(|(_, rest)| rest.split_once("\n}"));
    let names: Vec<String> = exported(root, "\npub use ")
        .chain(ring.into_iter().flat_map(|(body, _)| exported(body, "\n    pub use ")))
        .collect();
    let finding = |message| Finding::new("crates/engine/src/lib.rs", 1, message);
    let hidden = names.iter().filter(|name| !has_word(guide, name)).map(|name| {
        finding(format!("`{name}` is in no page of docs/guide; show what it is for, or do not export it"))
    });
    let count = names.len();
    let too_many = (count > PUBLIC_NAMES_MAX).then(|| {
        finding(format!("{count} public names, more than {PUBLIC_NAMES_MAX}; fold some, or drop them"))
    });
    hidden.chain(too_many).collect()
}

/// The names behind each `start` of an export.
fn exported<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = String> + 'a {
    let exports = text.split(start).skip(1).filter_map(|rest| rest.split_once(';'));
    let names = exports.flat_map(|(path, _)| {
        let last =
            path.split_once('{').map_or_else(|| path.rsplit("::").next().unwrap_or(path), |(_, list)| list);
        last.split([',', '}']).map(|name| name.rsplit(" as ").next().unwrap_or(name).trim().to_owned())
    });
    names.filter(|name| !name.is_empty())
}

/// A newcomer needs some 60 to read, write and watch; the rest is the queue by itself.
const PUBLIC_NAMES_MAX: usize = 80;

/// Lines that rustdoc hides in an example: a forge shows them as text, and a newcomer copies them.
pub(crate) fn check_examples(path: &str, text: &str) -> Vec<Finding> {
    let (mut findings, mut in_rust) = (Vec::new(), false);
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(language) = content.strip_prefix("```") {
            in_rust = language.starts_with("rust");
        } else if in_rust && (content == "#" || content.starts_with("# ")) {
            findings.push(Finding::new(path, line, "a hidden line of an example; show it".to_owned()));
        }
    }
    findings
}

/// Put together from halves, so that this file does not hold them.
fn foreign_words() -> Vec<String> {
    let halves = [
        ("cla", "ude"),
        ("anthr", "opic"),
        ("ai ag", "ent"),
        ("chat", "gpt"),
        ("copi", "lot"),
        ("language mod", "el"),
        ("/wo", "rk/"),
        ("/ro", "ot/"),
    ];
    halves.map(|(first, second)| format!("{first}{second}")).to_vec()
}

/// Whether the word stands there and is no part of a longer name: `headwater` is not in `headwater-io`.
fn has_word(text: &str, word: &str) -> bool {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    text.split(|letter| !is_name(letter)).any(|found| found == word)
}

const ARCHITECTURE: &str = "ARCHITECTURE.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_are_found_in_any_case() {
        for word in foreign_words() {
            let text = format!("first line\nsee {} here\n", word.to_uppercase());
            let findings = check_words("a.md", &text);
            assert_eq!(findings.len(), 1, "{word}");
            assert_eq!(findings[0].line, 2);
        }
        assert_eq!(check_words("a.md", "a framework/test and an agent of change"), Vec::new());
    }

    #[test]
    fn stray_files_are_found() {
        for path in [".tmpjvGEX8/reads", "reads", "crates/io/.tmpX/file", "target/x"] {
            assert!(check_place(path).is_some(), "{path}");
        }
        for path in ["README.md", "crates/io/src/lib.rs", ".ci/run"] {
            assert_eq!(check_place(path), None);
        }
    }

    #[test]
    fn hidden_lines_of_examples_are_found() {
        let text =
            "# Title\n```sh\n# shell\n```\n```rust,no_run\n#[test]\n# hidden\nshown();\n```\n# After\n";
        let lines: Vec<usize> = check_examples("a.md", text).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [7]);
    }

    #[test]
    fn words_that_hide_what_acts_are_found_in_docs() {
        for text in ["/// Who reads waits.", "    //! Frames for whoever needs them.", "/// Counts so many."]
        {
            assert_eq!(check_docs("a.rs", text).len(), 1, "{text}");
        }
        for text in ["// who", "/// The whole", "/// so  the many", "let who = 1; // he"] {
            assert_eq!(check_docs("a.rs", text), Vec::new(), "{text}");
        }
    }

    #[test]
    fn names_that_the_guide_lacks_are_found() {
        let root = "\npub use a::File;\npub use b::{Info, Stats};\npub use c::Policy as Order;\npub mod d {\n    pub use e::Deep;\n}\n";
        assert_eq!(check_shown(root, "`File`, `Info`, Stats::memory and Order"), Vec::new());
        assert_eq!(check_shown(root, "`Files`, Policy").len(), 4);
        let ring = "\npub use a::File;\npub mod ring {\n    pub use b::{\n        Call, Plug,\n    };\n}\n";
        assert_eq!(check_shown(ring, "`File`, `Call` and `Plug`"), Vec::new());
        assert_eq!(check_shown(ring, "`File` and `Call`").len(), 1);
    }

    #[test]
    fn more_public_names_than_the_bound_are_found() {
        let root = |count: usize| {
            let names: Vec<String> = (1..count).map(|number| format!("N{number}")).collect();
            let list = names.join(", ");
            (format!("\npub use a::{{{list}}};\npub mod ring {{\n    pub use b::Deep;\n}}\n"), list + " Deep")
        };
        let (most, guide) = root(PUBLIC_NAMES_MAX);
        assert_eq!(check_shown(&most, &guide), Vec::new());
        let (one_more, guide) = root(PUBLIC_NAMES_MAX + 1);
        assert_eq!(check_shown(&one_more, &guide).len(), 1);
    }

    #[test]
    fn missing_crates_and_dependencies_are_found() {
        let manifest = "[package]\nname = \"headwater\"\n[dependencies]\nbytes = \"1\"\n[dev-dependencies]\ntokio = \"1\"\n";
        assert_eq!(check_architecture("headwater-io reads bytes", manifest).len(), 2);
        assert_eq!(check_architecture("headwater: `bytes` because", manifest), Vec::new());
    }
}
