//! Rooms: imports between the files of a crate: no circles, and between rooms down only.
//!
//! ```text
//!   files ─► imports (`crate::`, `super::`, child modules) ─► circles?
//!                                                          └► arrows: to a room further down the list?
//! ```
//!
//! A room is a folder of `src`, with the file of the same name; the other files of `src` together are one. The root of a crate
//! (`lib.rs`, `main.rs`) may import everything, and is imported for what it declares itself. A module and the files that it is split into
//! are one concept: that these import it is no circle. Test code may import what it likes.
//!
//! Owns: what counts as an import, the order of the rooms.
//! Does not own: edges between crates (edges).

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, UseTree};

use crate::repository::{Finding, SourceFile};
use crate::shape::is_test;

/// Crates with an order: rooms that stand here import only rooms that stand behind them.
const ORDER: [(&str, &[&str]); 2] = [
    ("crates/engine", &["api", "write", "read", "load", "engine", "inode", "base"]),
    ("crates/io", &["driver", "backend", "request", "file", "memory", "sync", "system"]),
];

/// `files` are those below `src` of a crate.
pub(crate) fn check(folder: &str, files: &[SourceFile]) -> Vec<Finding> {
    let graph = Graph::of(folder, files);
    let order = ORDER.iter().find(|(known, _)| *known == folder).map_or(&[][..], |(_, rooms)| rooms);
    let mut findings = graph.arrows_up(order);
    findings.extend(graph.circles());
    findings
}

/// The imports between the files of a crate, by the paths of their modules; the root's is empty.
struct Graph<'a> {
    paths: BTreeMap<Vec<String>, &'a str>,
    imports: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
}

impl<'a> Graph<'a> {
    fn of(folder: &str, files: &'a [SourceFile]) -> Graph<'a> {
        let parsed: Vec<_> = files
            .iter()
            .filter_map(|file| {
                Some((module_path(folder, &file.path), &*file.path, syn::parse_file(&file.text).ok()?))
            })
            .collect();
        let tests: Vec<Vec<String>> =
            parsed.iter().flat_map(|(path, _, file)| test_modules(path, file)).collect();
        let is_test_code = |path: &[String]| tests.iter().any(|test| path.starts_with(test));
        let product: Vec<_> = parsed.iter().filter(|(path, ..)| !is_test_code(path)).collect();
        let paths: BTreeMap<_, _> = product.iter().map(|(path, name, _)| (path.clone(), *name)).collect();
        let imports = product.iter().map(|(path, _, file)| {
            let mut found =
                Imports { inside: path.clone(), children: children(file), found: BTreeSet::new() };
            found.visit_file(file);
            let known = |import: &Vec<String>| file_of(&paths, import);
            (
                path.clone(),
                found.found.iter().filter_map(known).filter(|import| !path.starts_with(import)).collect(),
            )
        });
        Graph { imports: imports.collect(), paths }
    }

    fn arrows_up(&self, order: &[&str]) -> Vec<Finding> {
        let place =
            |path: &[String]| order.iter().position(|room| path.first().is_some_and(|first| first == room));
        let mut findings = Vec::new();
        for (path, imports) in &self.imports {
            for import in imports {
                if let (Some(from), Some(to)) = (place(path), place(import))
                    && to < from
                {
                    let message = format!(
                        "imports `{}`, and `{}` lies above `{}`; move down what both need",
                        import.join("::"),
                        order[to],
                        order[from]
                    );
                    findings.push(Finding::new(self.paths[path], 1, message));
                }
            }
        }
        findings
    }

    fn circles(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut seen: BTreeSet<&Vec<String>> = BTreeSet::new();
        for path in self.imports.keys() {
            if seen.contains(path) {
                continue;
            }
            let reached = self.reached_from(path);
            let circle: Vec<_> =
                reached.iter().copied().filter(|other| self.reached_from(other).contains(path)).collect();
            seen.extend(circle.iter().copied());
            if circle.len() > 1 {
                let names: Vec<_> = circle.iter().map(|other| other.join("::")).collect();
                let message = format!("imports itself by way of {}; cut one of the arrows", names.join(", "));
                findings.push(Finding::new(self.paths[path], 1, message));
            }
        }
        findings
    }

    /// All that a file imports, directly or not.
    fn reached_from<'g>(&'g self, start: &Vec<String>) -> BTreeSet<&'g Vec<String>> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&Vec<String>> = self.imports.get(start).into_iter().flatten().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(&self.imports[next]);
            }
        }
        reached
    }
}

/// `crates/a/src/b/c.rs` is `b::c`, `…/b/mod.rs` is `b`.
fn module_path(folder: &str, path: &str) -> Vec<String> {
    let inner = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix("/src/")).unwrap_or(path);
    let names: Vec<String> = inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    match names.last().map(String::as_str) {
        Some("mod") => names[..names.len() - 1].to_vec(),
        Some("lib" | "main") if names.len() == 1 => Vec::new(),
        _ => names,
    }
}

/// The file that declares what a path names, the deepest there is.
fn file_of(paths: &BTreeMap<Vec<String>, &str>, import: &[String]) -> Option<Vec<String>> {
    (0..=import.len()).rev().map(|length| import[..length].to_vec()).find(|prefix| paths.contains_key(prefix))
}

fn children(file: &syn::File) -> BTreeSet<String> {
    modules_without_body(file).map(|module| module.ident.to_string()).collect()
}

fn test_modules(path: &[String], file: &syn::File) -> Vec<Vec<String>> {
    let tests = modules_without_body(file).filter(|module| is_test(&module.attrs));
    tests.map(|module| [path, &[module.ident.to_string()]].concat()).collect()
}

fn modules_without_body(file: &syn::File) -> impl Iterator<Item = &syn::ItemMod> {
    file.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    })
}

/// Collects the paths that a file names, from the root of its crate.
struct Imports {
    inside: Vec<String>,
    children: BTreeSet<String>,
    found: BTreeSet<Vec<String>>,
}

impl Imports {
    fn add(&mut self, names: &[String]) {
        let mut base = self.inside.clone();
        let mut rest = names;
        match rest.first().map(String::as_str) {
            Some("crate") => (base, rest) = (Vec::new(), &rest[1..]),
            Some("self" | "super") => {
                while let Some("self" | "super") = rest.first().map(String::as_str) {
                    if rest[0] == "super" {
                        base.pop();
                    }
                    rest = &rest[1..];
                }
            }
            Some(first) if names.len() > 1 && self.children.contains(first) => {}
            _ => return,
        }
        self.found.insert([base, rest.to_vec()].concat());
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
            UseTree::Name(name) if name.ident == "self" => self.add(before),
            UseTree::Name(name) => self.add(&with(&name.ident)),
            UseTree::Rename(rename) => self.add(&with(&rename.ident)),
            UseTree::Glob(_) => self.add(before),
        }
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        if item.content.is_some() {
            self.inside.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.inside.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: format!("crates/engine/src/{path}"),
            text: (*text).to_owned(),
        };
        let files: Vec<SourceFile> = files.iter().map(file).collect();
        check("crates/engine", &files).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn arrows_up_are_found() {
        for text in
            ["use crate::api::file::A;", "use crate::{api::file, base};", "fn f() { crate::api::file::g() }"]
        {
            let found = messages(&[("api/file.rs", ""), ("base/a.rs", text)]);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].starts_with("crates/engine/src/base/a.rs:1: imports `api::file"), "{found:?}");
        }
        assert_eq!(messages(&[("api/file.rs", "use crate::base::a::B;"), ("base/a.rs", "")]), [""; 0]);
    }

    #[test]
    fn circles_are_found() {
        let circle = |count: usize| {
            let name = |at: usize| format!("base/f{}.rs", at % count);
            let text = |at: usize| format!("use super::f{}::A;", (at + 1) % count);
            let files: Vec<_> = (0..count).map(|at| (name(at), text(at))).collect();
            messages(&files.iter().map(|(name, text)| (&**name, &**text)).collect::<Vec<_>>()).len()
        };
        assert_eq!([circle(2), circle(3), circle(9)], [1, 1, 1]);
        let across = [("x/a.rs", "use crate::y::b::C;"), ("y/b.rs", "use crate::x::a::D;")];
        assert_eq!(messages(&across).len(), 1, "of two rooms");
        let flat = [("a.rs", "use crate::b::C;"), ("b.rs", "use crate::a::D;")];
        assert_eq!(messages(&flat).len(), 1, "of files without a folder");
        let parts: Vec<String> = ('a'..'f').map(|name| format!("x/{name}.rs")).collect();
        let parent = (
            "x/mod.rs",
            "mod a; mod b; mod c; mod d; mod e; use a::B; use b::C; use c::D; use d::E; use e::F;",
        );
        let family: Vec<_> = parts.iter().map(|name| (&**name, "use super::C;")).chain([parent]).collect();
        assert_eq!(messages(&family), [""; 0], "a module and its parts");
    }

    #[test]
    fn tests_import_what_they_like() {
        let inline = "#[cfg(test)] mod tests { use crate::api::file::A; }";
        assert_eq!(messages(&[("api/file.rs", ""), ("base/a.rs", inline)]), [""; 0]);
        let apart = [
            ("api/file.rs", ""),
            ("base/a.rs", "#[cfg(test)] mod t;"),
            ("base/a/t.rs", "use crate::api::file::A;"),
        ];
        assert_eq!(messages(&apart), [""; 0]);
    }
}
