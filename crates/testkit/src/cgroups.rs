//! Cgroups: a memory limit for one child process.
//!
//! Made below the cgroup that the test is in, so that whatever limits that one has go on to hold. Needs root, or a part of
//! the hierarchy that was delegated.
//!
//! Owns: the cgroup's directory and its removal.
//! Does not own: what runs in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::{PATIENCE, Skip};

/// A cgroup with a limit of memory and without swap, of version 1 or 2. Removed at drop.
#[derive(Debug)]
pub struct MemoryCgroup {
    directory: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl MemoryCgroup {
    /// A cgroup in which nothing is yet.
    ///
    /// # Errors
    /// [`Skip`] where there is no memory controller, or this process may not use it.
    pub fn new(limit_bytes: u64) -> Result<MemoryCgroup, Skip> {
        let (parent, version) = own_cgroup()?;
        remove_leftovers(&parent);
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("{PREFIX}{}-{number}", process::id()));
        fs::create_dir(&directory).map_err(|error| Skip(format!("{}: {error}", directory.display())))?;
        let cgroup = MemoryCgroup { directory, version };
        match version {
            Version::One => {
                cgroup.set("memory.swappiness", 0)?;
                cgroup.set("memory.limit_in_bytes", limit_bytes)?;
            }
            Version::Two => {
                cgroup.set("memory.max", limit_bytes)?;
                // Where the kernel has no swap at all there is no such file.
                let _ = cgroup.set("memory.swap.max", 0);
            }
        }
        Ok(cgroup)
    }

    /// Where it is, for the child to [`enter_cgroup`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// How many processes the kernel killed in it, because it had no memory to give.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.directory.join(file)).expect("the cgroup tells its kills");
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|kills| kills.parse().ok()).expect("there is a count of kills")
    }

    /// How often its limit was reached, so that something had to be reclaimed first.
    #[must_use]
    pub fn limit_hits(&self) -> u64 {
        let (file, prefix) = match self.version {
            Version::One => ("memory.failcnt", ""),
            Version::Two => ("memory.events", "max "),
        };
        let text = fs::read_to_string(self.directory.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix(prefix)?.parse().ok()).unwrap_or(0)
    }

    fn set(&self, file: &str, value: u64) -> Result<(), Skip> {
        let path = self.directory.join(file);
        fs::write(&path, value.to_string()).map_err(|error| Skip(format!("{}: {error}", path.display())))
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // A process that has ended leaves its cgroup a moment later.
        let deadline = Instant::now() + PATIENCE / 10;
        while fs::remove_dir(&self.directory).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Moves this process into a cgroup. Memory that it has taken already counts where it was taken.
///
/// # Panics
/// When that is refused.
pub fn enter_cgroup(cgroup: &Path) {
    fs::write(cgroup.join("cgroup.procs"), process::id().to_string()).expect("the process enters its cgroup");
}

/// The directory of this process's cgroup that has the memory controller for children.
fn own_cgroup() -> Result<(PathBuf, Version), Skip> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (memberships, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
    for (version, kind) in [(Version::Two, " - cgroup2 "), (Version::One, " - cgroup ")] {
        let is_member = |line: &&str| match version {
            Version::One => {
                line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == "memory"))
            }
            Version::Two => line.starts_with("0::"),
        };
        let Some(path) = memberships.lines().find(is_member).and_then(|line| line.splitn(3, ':').nth(2))
        else {
            continue;
        };
        let is_mount = |line: &&str| {
            line.contains(kind)
                && (version == Version::Two || line.rsplit([' ', ',']).any(|option| option == "memory"))
        };
        let Some(mount_point) = mounts.lines().find(is_mount).and_then(|line| line.split(' ').nth(4)) else {
            continue;
        };
        let directory = Path::new(mount_point).join(path.trim_start_matches('/'));
        let children = read(&directory.join("cgroup.subtree_control").to_string_lossy());
        if version == Version::One || children.split_whitespace().any(|name| name == "memory") {
            return Ok((directory, version));
        }
    }
    Err(Skip("no memory controller of cgroups for children".to_owned()))
}

/// Removes the cgroups of test processes that have died.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if owner.is_some_and(|owner: u32| !Path::new("/proc").join(owner.to_string()).exists()) {
            // Another process may have been faster, or somebody is still in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

const PREFIX: &str = "headwater-";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    /// Goal: a cgroup is made, entered by a child alone, and gone afterwards. Method: this test again, in a child.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_child_is_limited() {
        const CHILD: &str = "HEADWATER_TESTKIT_CGROUP";
        if let Some(path) = std::env::var_os(CHILD) {
            enter_cgroup(Path::new(&path));
            println!("entered {}", fs::read_to_string("/proc/self/cgroup").unwrap());
            return;
        }
        let cgroup = match MemoryCgroup::new(64 << 20) {
            Ok(cgroup) => cgroup,
            Err(reason) => return skip(reason),
        };
        let path = cgroup.path().to_owned();
        let output =
            crate::run_self_with_env("cgroups::tests::a_child_is_limited", CHILD, path.to_str().unwrap());
        let (text, name) =
            (String::from_utf8_lossy(&output.stdout), path.file_name().unwrap().to_str().unwrap());
        assert!(output.status.success() && text.contains(name), "{output:?}");
        assert_eq!(cgroup.kills(), 0);
        drop(cgroup);
        assert!(!path.exists());
    }
}
