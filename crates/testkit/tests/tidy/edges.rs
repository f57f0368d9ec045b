//! Edges: which crate of the project may depend on which, read from the manifests.

use crate::repository::Finding;

/// The picture in ARCHITECTURE.md as a table: a crate, and the crates of ours that it may depend on outside of
/// its tests. `headwater-bench` is nobody's dependency, and `headwater-testkit` only that of the benchmarks.
const ALLOWED: [(&str, &[&str]); 14] = [
    ("headwater-core", &[]),
    ("headwater-io", &["headwater-core"]),
    ("headwater-kernel", &["headwater-core"]),
    ("headwater-arceos", &["headwater-kernel"]),
    ("headwater-arceos-demo", &["headwater-arceos"]),
    ("headwater", &["headwater-core", "headwater-io"]),
    ("headwater-object-store", &["headwater"]),
    ("headwater-measure", &[]),
    ("headwater-cli", &["headwater", "headwater-core", "headwater-io", "headwater-measure"]),
    ("headwater-testkit", &[]),
    (
        "headwater-bench",
        &[
            "headwater",
            "headwater-core",
            "headwater-io",
            "headwater-measure",
            "headwater-object-store",
            "headwater-testkit",
        ],
    ),
    ("headwater-datafusion", &["headwater", "headwater-measure", "headwater-object-store"]),
    ("headwater-ballista", &["headwater", "headwater-datafusion", "headwater-measure"]),
    ("headwater-fuzz", &["headwater", "headwater-cli", "headwater-core", "headwater-io"]),
];

pub(crate) fn check(path: &str, manifest: &str) -> Vec<Finding> {
    let name = package_name(manifest);
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        let message = format!("`{name}` is not in the table of edges; add its row here in edges.rs");
        return vec![Finding::new(path, 1, message)];
    };
    dependencies(manifest)
        .into_iter()
        .filter(|dependency| is_ours(&dependency.name) && !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| {
            let message = format!(
                "`{name}` must not depend on `{}`; move what both need down, or make it a dev-dependency",
                dependency.name
            );
            Finding::new(path, dependency.line, message)
        })
        .collect()
}

/// An entry of `[dependencies]`, `[build-dependencies]` or their forms for one target.
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) line: usize,
}

/// All dependencies that users of the crate get too. Reads the subset of TOML that manifests are written in.
pub(crate) fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut in_table = false;
    for (line, text) in (1..).zip(manifest.lines().map(str::trim)) {
        if let Some(header) = header(text) {
            in_table = TABLES.iter().any(|table| is_table(header, table));
            found.extend(table_of_one(header).map(|name| Dependency { name, line }));
        } else if in_table && let Some(name) = entry_name(text) {
            found.push(Dependency { name, line });
        }
    }
    found
}

pub(crate) fn package_name(manifest: &str) -> String {
    let package = manifest.lines().skip_while(|line| line.trim() != "[package]").skip(1);
    let mut keys = package.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once('='));
    let name = keys.find(|(key, _)| key.trim() == "name").map(|(_, value)| value.trim().trim_matches('"'));
    name.unwrap_or("(no name)").to_owned()
}

/// What stands between the brackets of a table's header.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.rsplit_once(']').map(|(header, _)| header)
}

/// `dependencies` and `target.'cfg(unix)'.dependencies`, for the table `dependencies`.
fn is_table(header: &str, table: &str) -> bool {
    header == table || header.starts_with("target.") && header.ends_with(&format!(".{table}"))
}

/// The name in `[dependencies.name]`, which declares a single dependency.
fn table_of_one(header: &str) -> Option<String> {
    let (table, name) = header.rsplit_once('.')?;
    TABLES.iter().any(|known| is_table(table, known)).then(|| name.trim_matches('"').to_owned())
}

/// The package that a line of a dependency table names: its key, unless it renames one.
fn entry_name(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
    let renamed = value.split_once("package = \"").and_then(|(_, rest)| rest.split('"').next());
    let key = key.split('.').next().unwrap_or(key).trim().trim_matches('"');
    Some(renamed.unwrap_or(key).to_owned())
}

fn is_ours(name: &str) -> bool {
    name == "headwater" || name.starts_with("headwater-")
}

/// Dev-dependencies are left out: nobody else builds them.
const TABLES: [&str; 2] = ["dependencies", "build-dependencies"];

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str = "[package]\nname = \"headwater\"\n";

    fn messages(manifest: &str) -> Vec<String> {
        check("Cargo.toml", manifest).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn edges_up_and_to_test_crates_are_found() {
        for line in ["headwater-cli = { workspace = true }", "headwater-testkit.workspace = true"] {
            let found = messages(&format!("{ENGINE}[dependencies]\n{line}\n"));
            assert_eq!(found.len(), 1, "{line}");
            assert!(found[0].starts_with("Cargo.toml:4: `headwater` must not depend on"), "{found:?}");
        }
    }

    #[test]
    fn every_form_of_declaration_is_seen() {
        let forms = [
            "[dependencies.headwater-cli]\nworkspace = true",
            "[target.'cfg(unix)'.dependencies]\nheadwater-cli = \"1\"",
            "[build-dependencies]\nheadwater-cli = \"1\"",
            "[dependencies]\ncli = { package = \"headwater-cli\", version = \"1\" }",
        ];
        for form in forms {
            assert_eq!(messages(&format!("{ENGINE}{form}\n")).len(), 1, "{form}");
        }
    }

    #[test]
    fn edges_down_foreign_crates_and_dev_dependencies_pass() {
        let manifest = "[dependencies]\nheadwater-io = \"1\"\nbytes = \"1\"\n# headwater-cli = \"1\"\n\
                        [dev-dependencies]\nheadwater-testkit = \"1\"\n[lints]\nworkspace = true\n";
        assert_eq!(messages(&format!("{ENGINE}{manifest}")), Vec::<String>::new());
    }

    #[test]
    fn kernels_do_not_reach_the_system() {
        let kernel = "[package]\nname = \"headwater-kernel\"\n[dependencies]\n";
        assert_eq!(messages(&format!("{kernel}headwater-core = \"1\"\n")), Vec::<String>::new());
        assert_eq!(messages(&format!("{kernel}headwater-io = \"1\"\n")).len(), 1);
        let adapter = "[package]\nname = \"headwater-arceos\"\n[dependencies]\n";
        assert_eq!(messages(&format!("{adapter}headwater-kernel = \"1\"\n")), Vec::<String>::new());
        assert_eq!(messages(&format!("{adapter}headwater-core = \"1\"\n")).len(), 1);
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        assert!(messages("[package]\nname = \"headwater-new\"\n")[0].contains("not in the table"));
    }
}
