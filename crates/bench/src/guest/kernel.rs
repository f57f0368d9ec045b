//! Kernel: the image to boot and the modules that a guest needs, given by hand or Debian's.
//!
//! ```text
//!   apt-cache show linux-image-amd64 ─► linux-image-6.x.y-amd64 ─► apt-get download ─► dpkg-deb -x
//!     ─► cache/linux-image-6.x.y-amd64/{vmlinuz, modules/}          9 MB of 400
//! ```
//!
//! Owns: the cache of fetched kernels.
//! Does not own: which modules depend on which (modules), where apt gets its packages from (apt).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::{Apt, INSTEAD, succeeds};
use super::modules::{self, Module};
use super::{Halt, about, process};
use crate::folder::Folder;

pub(crate) struct Kernel {
    pub(crate) vmlinuz: PathBuf,
    /// In the order of loading.
    pub(crate) modules: Vec<Module>,
}

impl Kernel {
    /// # Errors
    /// [`Halt::Missing`] where `modules` lacks one of `wanted`.
    pub(crate) fn given(vmlinuz: &Path, modules: &Path, wanted: &[&str]) -> Result<Kernel, Halt> {
        fs::metadata(vmlinuz).map_err(|error| about(vmlinuz, error))?;
        Ok(Kernel { vmlinuz: vmlinuz.to_owned(), modules: modules::with_dependencies(modules, wanted)? })
    }

    /// The kernel that this machine's Debian has now, from the cache if it has been fetched before.
    pub(crate) fn fetched(cache: &Path, wanted: &[&str]) -> Result<Kernel, Halt> {
        let package = current_package(&Apt::of_machine())?;
        let folder = cache.join(&package);
        if !folder.exists() {
            fetch_into(&folder, &Apt::of_machine(), &package, wanted)?;
        }
        Kernel::given(&folder.join(VMLINUZ), &folder.join(MODULES), wanted)
    }

    /// The kernel of a release of Debian, from the cache if it has been fetched with these modules before.
    pub(crate) fn of_release(cache: &Path, release: &str, wanted: &[&str]) -> Result<Kernel, Halt> {
        let folder = cache.join(format!("linux-image-{release}"));
        let cached = || Kernel::given(&folder.join(VMLINUZ), &folder.join(MODULES), wanted);
        if let Ok(kernel) = cached() {
            return Ok(kernel);
        }
        let apt = Apt::of_release(cache, release)?;
        let package = current_package(&apt)?;
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| about(&folder, error))?;
        }
        fetch_into(&folder, &apt, &package, wanted)?;
        cached()
    }
}

/// The package with the kernel that Debian's `linux-image-amd64` stands for now.
fn current_package(apt: &Apt) -> Result<String, Halt> {
    let output = apt.command("apt-cache").args(["show", "--no-all-versions", META_PACKAGE]).output();
    let shown = output.map_err(|error| process::missing(&error, "apt-cache", INSTEAD))?.stdout;
    let shown = String::from_utf8_lossy(&shown);
    let package = depended(&shown).map(str::to_owned);
    package.ok_or_else(|| {
        Halt::Missing(format!("apt knows no {META_PACKAGE}: run apt-get update on Debian, or {INSTEAD}"))
    })
}

/// What the first `Depends:` of a package's description names first.
fn depended(shown: &str) -> Option<&str> {
    let value = shown.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let name = value.split([' ', ',']).next()?;
    name.starts_with("linux-image-").then_some(name)
}

/// Makes the folder, with what is needed of the package; nothing is left of what fails.
fn fetch_into(folder: &Path, apt: &Apt, package: &str, wanted: &[&str]) -> Result<(), Halt> {
    let partial = Folder::beside(folder)?;
    fetch(apt, package, partial.path(), wanted)?;
    Ok(fs::rename(partial.path().join(KEPT), folder).map_err(|error| about(folder, error))?)
}

/// Downloads and unpacks the package in the folder `partial`, and leaves what is needed of it in `partial/KEPT`.
fn fetch(apt: &Apt, package: &str, partial: &Path, wanted: &[&str]) -> Result<(), Halt> {
    let mut download = apt.command("apt-get");
    download.args(["download", "-q", package]).current_dir(partial);
    if !succeeds(&format!("fetching {package}"), &mut download)? {
        let text = format!("apt-get download {package} failed: try after apt-get update, or {INSTEAD}");
        return Err(Halt::Missing(text));
    }
    let archive = find(partial, |name| name.ends_with(".deb"))?;
    let unpacked = partial.join("unpacked");
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").args([&archive, &unpacked]);
    if !succeeds(&format!("unpacking {package}"), &mut unpack)? {
        return Err(Halt::Failed(about(&archive, io::Error::other("dpkg-deb -x failed"))));
    }
    keep(&unpacked, &partial.join(KEPT), wanted)
}

fn keep(unpacked: &Path, kept: &Path, wanted: &[&str]) -> Result<(), Halt> {
    let folder = kept.join(MODULES);
    fs::create_dir_all(&folder)?;
    let vmlinuz = find(&unpacked.join("boot"), |name| name.starts_with("vmlinuz"))?;
    fs::rename(vmlinuz, kept.join(VMLINUZ))?;
    let modules = find(&unpacked.join("lib/modules"), |_| true)
        .or_else(|_| find(&unpacked.join("usr/lib/modules"), |_| true))?;
    for module in modules::with_dependencies(&modules, wanted)? {
        fs::write(folder.join(format!("{}.ko", module.name)), &module.image)?;
    }
    let (builtin, kept) = (modules.join(modules::BUILTIN), folder.join(modules::BUILTIN));
    fs::copy(&builtin, kept).map_err(|error| about(&builtin, error))?;
    Ok(())
}

fn find(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> io::Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|error| about(folder, error))?;
    let mut paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let found = paths.find(|path| path.file_name().and_then(OsStr::to_str).is_some_and(&is_wanted));
    found.ok_or_else(|| about(folder, io::Error::other("what the package should hold is not there")))
}

const META_PACKAGE: &str = "linux-image-amd64";

/// Names in the cache.
const KEPT: &str = "kept";
const VMLINUZ: &str = "vmlinuz";
const MODULES: &str = "modules";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the kernel's package is found in the description of the package that depends on it.
    #[test]
    fn the_package_is_read_from_the_description() {
        let shown = "Package: linux-image-amd64\nVersion: 6.1.1-1\n\
                     Depends: linux-image-6.1.0-56-amd64 (= 6.1.1-1), other\nDescription: Linux\n";
        assert_eq!(depended(shown), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(depended("Depends: linux-image-6.1.0-amd64\n"), Some("linux-image-6.1.0-amd64"));
        assert_eq!(depended("Package: linux-image-amd64\n"), None);
        assert_eq!(depended("Depends: something\n"), None);
    }
}
