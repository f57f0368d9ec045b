//! Local files: what a `File` returns that could be taken to another thread, a `Local<File>` returns so that it cannot.
//!
//! A local file has the methods of `File` by `Deref`; those that return a future or a part are in the list of `api/local.rs`.
//!
//! Owns: which methods have to be in that list.
//! Does not own: their signatures, which the compiler checks.

use crate::repository::{Finding, SourceFile};

/// `sources` are those of the engine.
pub(crate) fn check(sources: &[SourceFile]) -> Vec<Finding> {
    let list = sources.iter().find(|file| file.path.ends_with("api/local.rs"));
    let list = list.and_then(|file| file.text.split_once("\nstay_in_thread! {")).map_or("", |(_, list)| list);
    let missing = sources.iter().flat_map(|file| parts(file).filter(|(name, _)| !has(list, name)));
    missing.map(|(_, finding)| finding).collect()
}

fn has(list: &str, name: &str) -> bool {
    list.lines().any(|line| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
}

/// The public methods of `File` in a file that return a future or a part, each with what is wrong if the list has none of its name.
fn parts(file: &SourceFile) -> impl Iterator<Item = (String, Finding)> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut is_in_file = false;
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        is_in_file = (is_in_file && *line != "}") || *line == "impl File {";
        let Some(rest) = line.strip_prefix("    pub fn ").filter(|_| is_in_file) else { continue };
        let signature: String = lines[index..].iter().take_while(|line| !line.is_empty()).copied().collect();
        let signature = signature.split(" {").next().unwrap_or_default();
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        let returned =
            signature.split_once("-> ").map_or("", |(_, returned)| returned).replace("std::fs::File", "");
        let words = || returned.split(|letter: char| !letter.is_alphanumeric());
        if signature.contains("&self") && words().any(|word| PARTS.contains(&word)) {
            let message =
                format!("`{name}` can leave the thread of a `Local<File>`; name it in `stay_in_thread!`");
            found.push((name.to_owned(), Finding::new(&file.path, index + 1, message)));
        }
    }
    found.into_iter()
}

/// Futures, and what keeps a file and uses its engine.
const PARTS: [&str; 9] = [
    "Future",
    "File",
    "Reader",
    "AsyncReader",
    "ByteStream",
    "Writer",
    "AsyncWriter",
    "SharedView",
    "EvictionListener",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn what_is_not_in_the_list_is_found() {
        let methods = "impl File {\n    pub fn open(path: &Path) -> Result<File> {\n    }\n\n    pub fn len(&self) -> Result<u64> {\n    }\n\n    \
                       pub fn read_async(\n        &self,\n    ) -> impl Future<Output = ()> + Send {\n    }\n\n    \
                       pub fn reader(&self) -> Reader {\n    }\n}\n";
        let list = file("src/api/local.rs", "\nstay_in_thread! {\n    read_async() -> ();\n}\n");
        let findings = check(&[file("src/api/file.rs", methods), list]);
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [13]);
    }
}
