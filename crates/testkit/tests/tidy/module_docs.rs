//! Module docs: every module says what it is, and a larger one what it owns.

use crate::repository::Finding;

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.lines().next().is_some_and(is_title) {
        let message = "no title; begin the file with `//! Title: a sentence that says what this is.`";
        findings.push(Finding::new(path, 1, message));
    }
    if text.lines().count() > LINES_WITHOUT_OWNERSHIP {
        findings.extend(OWNERSHIP.into_iter().filter(|line| !doc_says(text, line)).map(|line| {
            let message =
                format!("a module of more than {LINES_WITHOUT_OWNERSHIP} lines; add `{line} …` to its doc");
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

/// Whether the text stands in the module doc as a sentence of its own: `Owns:` is not found in `Disowns:`.
fn doc_says(text: &str, wanted: &str) -> bool {
    let doc = text.lines().take_while(|line| line.starts_with("//!"));
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
        let body = "// code\n".repeat(80);
        let long = |doc: &str| check("a.rs", &format!("//! A: b.\n//!\n{doc}\n{body}")).len();
        assert_eq!(long(""), 2);
        assert_eq!(long("//! Owns: a."), 1);
        assert_eq!(long("//! Owns: a.\n//! Does not own: b."), 0);
        assert_eq!(long("//! Owns: a.      Does not own: b."), 0);
        assert_eq!(long("// Owns: a.\n// Does not own: b."), 2);
    }
}
