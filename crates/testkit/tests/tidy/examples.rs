//! Examples: each public method of the engine's API is called in an example that users read.
//!
//! ```text
//!   pub fn name ─┬─ its doc has an example, or names a method of the same name as what it does
//!                ├─ an example of its file calls it
//!                ├─ no other type has the name, and any example calls it: docs, guide, READMEs, programs
//!                └─ such an example has Type::name
//! ```
//!
//! Owns: what counts as an example of a method.
//! Does not own: whether examples work, which `cargo test --doc` checks.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{Finding, SourceFile};

/// Methods without an example among `sources`, those of the API; `others` is what has examples beside their docs.
pub(crate) fn check(sources: &[SourceFile], others: &str) -> Vec<Finding> {
    let in_docs: Vec<String> = sources.iter().map(|file| examples(&file.text)).collect();
    let anywhere = format!("{}{others}", in_docs.concat());
    let methods: Vec<Vec<Method<'_>>> = sources.iter().map(|file| methods(&file.text)).collect();
    let mut owners: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for method in methods.iter().flatten() {
        owners.entry(method.name).or_default().insert(method.owner);
    }
    let mut findings = Vec::new();
    for ((file, here), methods) in sources.iter().zip(&in_docs).zip(&methods) {
        for Method { owner, name, line, doc } in methods {
            let is_shown = doc.iter().any(|line| line.contains("```") || refers(line, name))
                || calls(here, name)
                || (owners[name].len() == 1 && calls(&anywhere, name))
                || calls(&anywhere, &format!("{owner}::{name}"));
            if !is_shown {
                let message = format!("no example calls `{owner}::{name}`; add one to its doc");
                findings.push(Finding::new(&file.path, *line, message));
            }
        }
    }
    findings
}

struct Method<'a> {
    /// The type of its block; empty for a free function.
    owner: &'a str,
    name: &'a str,
    line: usize,
    doc: Vec<&'a str>,
}

/// The public functions of a file, without those that rustdoc hides or only the project's own tests have.
fn methods(text: &str) -> Vec<Method<'_>> {
    let text = text.split("\n#[cfg(test)]").next().unwrap_or(text);
    let (mut found, mut doc, mut owner) = (Vec::new(), Vec::new(), "");
    for (line, content) in (1..).zip(text.lines()) {
        let code = content.trim_start();
        if code.starts_with("///") || code.starts_with("#[") {
            doc.push(code);
            continue;
        }
        if content.starts_with("impl") {
            owner = implemented(content);
        } else if content == "}" {
            owner = "";
        }
        let is_hidden = || doc.iter().any(|line| line.contains("doc(hidden)") || line.contains("\"faults\""));
        if let Some(name) = function_name(code).filter(|_| !is_hidden()) {
            found.push(Method { owner, name, line, doc: std::mem::take(&mut doc) });
        }
        doc.clear();
    }
    found
}

/// The type of `impl<T> Local<T> {`.
fn implemented(head: &str) -> &str {
    let head = head.strip_prefix("impl").unwrap_or(head);
    let head = head.split_once('>').filter(|_| head.starts_with('<')).map_or(head, |(_, rest)| rest);
    let head = head.split(" for ").last().unwrap_or(head).trim_start();
    head.split(|letter: char| !is_name(letter)).next().unwrap_or(head)
}

/// The name of `pub async fn name(`; none in a macro, where it is a variable.
fn function_name(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("pub ")?;
    let rest = ["const ", "async "].iter().fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    let name = rest.strip_prefix("fn ")?.split(|letter: char| !is_name(letter)).next()?;
    (!name.is_empty()).then_some(name)
}

/// The code of the examples in docs.
fn examples(text: &str) -> String {
    let (mut code, mut is_code) = (String::new(), false);
    for line in text.lines().map(str::trim_start) {
        let Some(content) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_code = false;
            continue;
        };
        if content.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            code.extend([content, "\n"]);
        }
    }
    code
}

/// Whether a line of docs links to a method of this name, of another type.
fn refers(doc: &str, name: &str) -> bool {
    doc.contains(&format!("::{name}`]"))
}

/// Whether a method is called by this name, or `Type::name` stands there; not a longer name, and no word of prose.
fn calls(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        let is_begun = match before {
            Some('.' | ':') => true,
            _ => name.contains("::") && !before.is_some_and(is_name),
        };
        is_begun && !after.is_some_and(is_name)
    })
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str, others: &str) -> usize {
        check(&[SourceFile { path: "a.rs".to_owned(), text: text.to_owned() }], others).len()
    }

    #[test]
    fn methods_without_an_example_are_found() {
        let bare = "impl<T> Tank<T> {\n    /// Fills it.\n    pub async fn fill(&self) {}\n}\n";
        assert_eq!(check_text(bare, ""), 1);
        assert_eq!(check_text(bare, "To fill a tank: tank.filler(); refill(); self_fill()"), 1);
        assert_eq!(check_text(bare, "tank.fill().await"), 0);
        for doc in ["    /// ```\n    /// tank();\n    /// ```\n", "    /// As [`Pool::fill`].\n"] {
            let own = format!("impl Tank {{\n{doc}    pub fn fill(&self) {{}}\n}}\n");
            assert_eq!(check_text(&own, ""), 0, "{doc}");
        }
        let private = "impl Tank {\n    fn a() {}\n    pub(crate) fn b() {}\n    #[doc(hidden)]\n    pub fn c() {}\n}\n";
        assert_eq!(check_text(private, ""), 0);
        assert_eq!(check_text("/// Opens.\npub fn open() {}\n", ""), 1);
    }

    #[test]
    fn a_name_of_two_types_takes_an_example_of_each() {
        let file = |owner: &str| SourceFile {
            path: format!("{owner}.rs"),
            text: format!("impl {owner} {{\n    pub fn len(&self) {{}}\n}}\n"),
        };
        let files = ["Tank", "Pool"].map(file);
        assert_eq!(check(&files, "tank.len()").len(), 2);
        assert_eq!(check(&files, "`Tank::len`").len(), 1);
        assert_eq!(check(&files, "Tank::len, Pool::len").len(), 0);
    }
}
