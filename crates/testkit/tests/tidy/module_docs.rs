//! Module docs: every module says what it is, and a larger one what it owns, which users of a published crate do not read.

use crate::repository::{Finding, SourceFile};

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.lines().next().is_some_and(is_title) {
        let message = "no title; begin the file with `//! Title: a sentence that says what this is.`";
        findings.push(Finding::new(path, 1, message));
    }
    if text.lines().count() > LINES_WITHOUT_OWNERSHIP {
        findings.extend(OWNERSHIP.into_iter().filter(|line| !doc_says(text, line)).map(|line| {
            let message =
                format!("a module of more than {LINES_WITHOUT_OWNERSHIP} lines; add `{line} …` to its doc, or below it as a comment");
            Finding::new(path, 1, message)
        }));
    }
    findings
}

/// `//! Title: sentence.`
fn is_title(line: &str) -> bool {
    let parts = line.strip_prefix("//! ").and_then(|doc| doc.split_once(": "));
    parts.is_some_and(|(title, sentence)| !title.is_empty() && sentence.len() > 1 && sentence.ends_with('.'))
}

/// The root of a published crate and its public modules: what they own is for this repository, and stands below the doc.
pub(crate) fn check_rendered(root: &SourceFile, others: &[SourceFile]) -> Vec<Finding> {
    let folder = root.path.trim_end_matches("lib.rs");
    let public = root.text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let paths: Vec<String> = public
        .flat_map(|name| [format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")])
        .chain([root.path.clone()])
        .collect();
    let rendered = others.iter().filter(|file| paths.contains(&file.path));
    rendered.flat_map(|file| check_rendered_doc(&file.path, &file.text)).collect()
}

fn check_rendered_doc(path: &str, text: &str) -> Vec<Finding> {
    let doc = (1..).zip(text.lines()).take_while(|(_, line)| line.starts_with("//!"));
    let notes = doc.filter(|(_, line)| OWNERSHIP.iter().any(|note| line.contains(note)));
    let message = "users read this doc; move the note below it, as a comment with `//`";
    notes.map(|(line, _)| Finding::new(path, line, message)).collect()
}

/// Whether the text stands in the module doc, or in the comment right below it, as a sentence of its own: `Owns:` is not found in
/// `Disowns:`.
fn doc_says(text: &str, wanted: &str) -> bool {
    let doc = text.lines().take_while(|line| line.starts_with("//"));
    let mut places = doc.flat_map(|line| line.match_indices(wanted).map(move |(at, _)| &line[..at]));
    places.any(|before| before.ends_with(' '))
}

/// A module this short shows what it owns.
const LINES_WITHOUT_OWNERSHIP: usize = 80;

const OWNERSHIP: [&str; 2] = ["Owns:", "Does not own:"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_titles_are_found() {
        for text in
            ["", "use a;\n", "//! Title without a colon.\n", "//! Title: no full stop\n", "// Title: a.\n"]
        {
            assert_eq!(check("a.rs", text).len(), 1, "{text}");
        }
        assert_eq!(check("a.rs", "//! Page table: which page is where.\n"), Vec::new());
    }

    #[test]
    fn missing_ownership_is_found_in_long_modules() {
        let body = "use code;\n".repeat(80);
        let long = |doc: &str| check("a.rs", &format!("//! A: b.\n//!\n{doc}\n{body}")).len();
        assert_eq!(long(""), 2);
        assert_eq!(long("//! Owns: a."), 1);
        assert_eq!(long("//! Owns: a.\n//! Does not own: b."), 0);
        assert_eq!(long("//! Owns: a.      Does not own: b."), 0);
        assert_eq!(long("//\n// Owns: a.\n// Does not own: b."), 0);
        assert_eq!(long("\n// Owns: a.\n// Does not own: b."), 2);
    }

    #[test]
    fn notes_in_docs_that_users_read_are_found() {
        let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), text: text.to_owned() };
        let root =
            |doc: &str| file("a/src/lib.rs", &format!("//! A: b.\n{doc}\npub mod open;\nmod hidden;\n"));
        let found = |doc: &str, others: &[(&str, &str)]| {
            let others = others.iter().map(|(path, doc)| file(path, &format!("//! C: d.\n{doc}\n")));
            check_rendered(&root(doc), &others.chain([root(doc)]).collect::<Vec<_>>()).len()
        };
        assert_eq!(found("//! Owns: a.", &[]), 1);
        assert_eq!(found("//\n// Owns: a.", &[]), 0);
        assert_eq!(found("", &[("a/src/open.rs", "//! Owns: a.  Does not own: b.")]), 1);
        assert_eq!(found("", &[("a/src/open/mod.rs", "//! Owns: a.\n//! Does not own: b.")]), 2);
        assert_eq!(
            found("", &[("a/src/hidden.rs", "//! Owns: a."), ("a/src/open/deep.rs", "//! Owns: a.")]),
            0
        );
    }
}
