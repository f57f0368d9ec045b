//! Links: what a document links to exists, heading included, and a page of the guide links to other pages of it alone.
//!
//! ```text
//!   [text](path#heading) ─┬─ https:// ──► not followed
//!                         ├─ path ──────► a file of the repository; within the guide, a page that its summary lists
//!                         └─ #heading ──► a heading of that document, as GitHub and mdBook name it
//! ```
//!
//! Owns: which links are dead.
//! Does not own: which documents there are (repository).

use std::path::{Component, Path, PathBuf};

use crate::repository::Finding;

/// The book: its pages are read in the repository and as a book, which has nothing else of the repository.
pub(crate) const GUIDE: &str = "docs/guide/";

/// Dead links of these documents, each with its path from the root of the repository; `exists` says what else is there.
pub(crate) fn check(documents: &[(String, String)], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let summary = documents.iter().find(|(path, _)| path == SUMMARY).map_or("", |(_, text)| text);
    let pages: Vec<String> = links(summary).map(|(_, target)| format!("{GUIDE}{target}")).collect();
    let mut findings = Vec::new();
    for (path, text) in documents {
        if path.starts_with(GUIDE) && path != SUMMARY && !pages.contains(path) {
            findings.push(Finding::new(path, 1, "SUMMARY.md does not list this page; add it"));
        }
        for (line, target) in links(text).filter(|(_, target)| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { joined(path, file) };
            let reason = match documents.iter().find(|(known, _)| *known == file) {
                _ if !exists(&file) => "does not exist; mend the link",
                _ if path.starts_with(GUIDE) && !pages.contains(&file) => {
                    "is no page of the guide, which is read without the repository; name the file without a link"
                }
                Some((_, text)) if !heading.is_empty() && !headings(text).any(|name| name == heading) => {
                    "has no such heading; mend the link"
                }
                _ => continue,
            };
            findings.push(Finding::new(path, line, format!("`{target}` {reason}")));
        }
    }
    findings
}

/// The targets of the links in a document, with their lines; not what stands in code.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(line, content)| {
        let parts = content.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        parts.map(move |(target, _)| (line, target))
    })
}

/// Headings in the form in which links name them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let heads = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    heads.map(|head| {
        let kept = head.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|&letter| letter.is_alphanumeric() || " -_".contains(letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    })
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The target of a link in a document, from the root of the repository.
fn joined(document: &str, target: &str) -> String {
    let mut path = PathBuf::new();
    let folder = Path::new(document).parent().unwrap_or(Path::new(""));
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            part => path.push(part),
        }
    }
    path.to_string_lossy().into_owned()
}

const SUMMARY: &str = "docs/guide/SUMMARY.md";

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(documents: &[(&str, &str)]) -> usize {
        let documents: Vec<_> =
            documents.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let exists = |path: &str| path == "src/a.rs" || documents.iter().any(|(known, _)| known == path);
        check(&documents, exists).len()
    }

    #[test]
    fn links_to_nothing_are_found() {
        assert_eq!(
            dead(&[("a.md", "[b](docs/b.md), [c](src/a.rs), [d](https://d)"), ("docs/b.md", "[a](../a.md)")]),
            0
        );
        assert_eq!(dead(&[("a.md", "[b](b.md)")]), 1);
        assert_eq!(dead(&[("docs/b.md", "[a](a.md)\n```\n[a](x.md)\n```\n"), ("a.md", "")]), 1);
    }

    #[test]
    fn links_to_missing_headings_are_found() {
        let page = "## What `it` is, exactly\n```sh\n# no heading\n```\n";
        assert_eq!(dead(&[("a.md", page), ("b.md", "[a](a.md#what-it-is-exactly)")]), 0);
        assert_eq!(dead(&[("a.md", page), ("b.md", "[a](a.md#no-heading)")]), 1);
        assert_eq!(dead(&[("a.md", "[here](#there)")]), 1);
    }

    #[test]
    fn the_guide_stays_within_its_pages() {
        let summary = (SUMMARY, "- [A](a.md)\n");
        assert_eq!(
            dead(&[summary, ("docs/guide/a.md", "[again](a.md)"), ("r.md", "[a](docs/guide/a.md)")]),
            0
        );
        assert_eq!(dead(&[summary, ("docs/guide/a.md", "[out](../../r.md)"), ("r.md", "")]), 1);
        assert_eq!(dead(&[summary, ("docs/guide/a.md", ""), ("docs/guide/unlisted.md", "")]), 1);
    }
}
