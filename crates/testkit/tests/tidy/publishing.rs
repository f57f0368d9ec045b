//! Publishing: a crate is either published, and its manifest says what a registry shows, or it says that it is not.
//!
//! Owns: which keys a manifest has to have.
//! Does not own: their values, which cargo and the registry check.

use crate::repository::Finding;

pub(crate) fn check(path: &str, manifest: &str) -> Vec<Finding> {
    let package = manifest.split_once("[package]\n").map_or("", |(_, rest)| rest);
    let package = package.split("\n[").next().unwrap_or(package);
    let has = |key: &str| {
        package.lines().any(|line| line.starts_with(key) && line[key.len()..].starts_with([' ', '.']))
    };
    if has("publish") {
        return Vec::new();
    }
    let missing = KEYS.iter().filter(|key| !has(key));
    let message = |key| format!("`{key}` is missing; add it, or `publish = false`");
    missing.map(|key| Finding::new(path, 1, message(key))).collect()
}

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
}
