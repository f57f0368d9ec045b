//! Modules: a kernel module with all it depends on, in the order of loading.
//!
//! The dependencies are read from the modules themselves (`depends=` in their `.modinfo`): `modules.dep` says the same,
//! but is made by depmod when a kernel is installed and is not in its package.
//!
//! Owns: finding, unpacking, ordering.
//! Does not own: loading (init).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Halt, about};

/// A kernel module, not compressed.
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) image: Vec<u8>,
}

/// The modules `wanted` and what they depend on, dependencies first, without those that are part of the kernel.
pub(crate) fn with_dependencies(folder: &Path, wanted: &[&str]) -> Result<Vec<Module>, Halt> {
    let mut files = BTreeMap::new();
    collect(folder, &mut files).map_err(|error| about(folder, error))?;
    let builtin = fs::read_to_string(folder.join(BUILTIN)).unwrap_or_default();
    let is_builtin =
        |name: &str| builtin.lines().any(|line| canonical(line).ends_with(&format!("/{name}.ko")));
    if let Some(name) = wanted.iter().find(|name| !files.contains_key(**name) && !is_builtin(name)) {
        return Err(Halt::Missing(format!(
            "there is no {name}.ko below {}; see --modules",
            folder.display()
        )));
    }
    let modules: Vec<&str> = wanted.iter().copied().filter(|name| files.contains_key(*name)).collect();
    let mut images = BTreeMap::new();
    let order = load_order(&modules, &mut |name| {
        let file = files.get(name).ok_or_else(|| io::Error::other(format!("module {name} is missing")))?;
        let image = unpacked(file)?;
        let depends = depends(&image);
        images.insert(name.to_owned(), image);
        Ok(depends)
    })?;
    let take = |name: String| images.remove(&name).map(|image| Module { name, image });
    Ok(order.into_iter().filter_map(take).collect())
}

/// Names of all modules in and below a folder, and their files.
fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else if let Some((name, _)) = entry.file_name().to_str().and_then(|name| name.split_once(".ko")) {
            files.insert(canonical(name), entry.path());
        }
    }
    Ok(())
}

/// Visits dependencies before what needs them (depth first), each module once.
fn load_order(
    wanted: &[&str],
    depends: &mut impl FnMut(&str) -> io::Result<Vec<String>>,
) -> io::Result<Vec<String>> {
    fn visit(
        name: &str,
        depends: &mut impl FnMut(&str) -> io::Result<Vec<String>>,
        seen: &mut Vec<String>,
        order: &mut Vec<String>,
    ) -> io::Result<()> {
        if seen.iter().any(|seen| seen == name) {
            return Ok(());
        }
        seen.push(name.to_owned());
        for dependency in depends(name)? {
            visit(&dependency, depends, seen, order)?;
        }
        order.push(name.to_owned());
        Ok(())
    }
    let (mut seen, mut order) = (Vec::new(), Vec::new());
    for name in wanted {
        visit(name, depends, &mut seen, &mut order)?;
    }
    Ok(order)
}

/// The names behind `depends=`, an entry of the module's zero-terminated strings.
fn depends(image: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = image.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = image[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|name| !name.is_empty()).map(canonical).collect()
}

/// The kernel takes `-` and `_` in names of modules for the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn unpacked(file: &Path) -> Result<Vec<u8>, io::Error> {
    let tool = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(file).map_err(|error| about(file, error)),
    };
    let output = Command::new(tool).arg("-dc").arg(file).output();
    let output = output.map_err(|error| about(Path::new(tool), error))?;
    if !output.status.success() {
        return Err(about(file, io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())));
    }
    Ok(output.stdout)
}

/// Lists the modules that are part of the kernel.
pub(crate) const BUILTIN: &str = "modules.builtin";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: dependencies come before what needs them, shared ones once, and a circle ends.
    #[test]
    fn dependencies_load_first() {
        let table = [("a", "b,c"), ("b", "d"), ("c", "d,b"), ("d", ""), ("x", "y"), ("y", "x")];
        let mut depends = |name: &str| {
            let row = table.iter().find(|row| row.0 == name).ok_or(io::ErrorKind::NotFound)?;
            Ok(depends(format!("\0depends={}\0", row.1).as_bytes()))
        };
        assert_eq!(load_order(&["a"], &mut depends).unwrap(), ["d", "b", "c", "a"]);
        assert_eq!(load_order(&["d", "c", "b"], &mut depends).unwrap(), ["d", "b", "c"]);
        assert_eq!(load_order(&["x"], &mut depends).unwrap(), ["y", "x"]);
        assert!(load_order(&["z"], &mut depends).is_err());
    }

    /// Goal: the entry is found between others, names are made canonical, and its absence means none.
    #[test]
    fn dependencies_are_read_from_the_module() {
        let image = b"\x7fELF\0license=GPL\0softdepends=no\0depends=nvme-core,t10-pi\0retpoline=Y\0";
        assert_eq!(depends(image), ["nvme_core", "t10_pi"]);
        assert_eq!(depends(b"\0depends=\0name=a\0"), Vec::<String>::new());
        assert_eq!(depends(b"\0name=a\0"), Vec::<String>::new());
    }
}
