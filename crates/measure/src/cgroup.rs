//! Cgroup: a limit of memory for one measurement, the kernel's page cache for it included.
//!
//! ```text
//!   below this process's own cgroup: mkdir ─► limit, no swap ─► the child enters ─► peak ─► rmdir, by a guard if this process ends
//! ```
//
// Owns: where cgroups are found (versions 1 and 2), the directory, its limit, its removal.
// Does not own: what runs in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use os_display::Quotable;

/// A cgroup with a limit of memory and without swap, removed by its guard: when both are dropped, or this process is killed.
pub struct MemoryCgroup<Guard> {
    path: PathBuf,
    version: Version,
    #[expect(dead_code, reason = "its drop removes the directory")]
    guard: Guard,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl<Guard> MemoryCgroup<Guard> {
    /// A cgroup that nothing is in yet, below the one that this process is in, whose limits go on to hold. `guard` makes what
    /// removes a directory.
    ///
    /// # Errors
    /// Why there is none, as a fragment for the user.
    pub fn new(
        limit_bytes: u64,
        guard: impl FnOnce(PathBuf) -> std::io::Result<Guard>,
    ) -> Result<MemoryCgroup<Guard>, String> {
        let (parent, version) = own_cgroup()?;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("headwater-bench-{}-{number}", process::id()));
        let failed = |error: std::io::Error| {
            format!("no cgroup can be made in {}: {error}; root or a delegated one may", parent.maybe_quote())
        };
        // First, so that there is no moment in which the directory is there and its guard is not.
        let guard = guard(path.clone()).map_err(failed)?;
        fs::create_dir(&path).map_err(failed)?;
        let cgroup = MemoryCgroup { path, version, guard };
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

    /// For [`enter`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The most that was ever charged to it: what its processes had, and what the page cache held because of them. `None`
    /// where the kernel does not keep it (version 2 before Linux 5.19).
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }

    /// How many processes the kernel killed in it, because it had no memory to give.
    pub fn kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }

    fn set(&self, file: &str, value: u64) -> Result<(), String> {
        let path = self.path.join(file);
        fs::write(&path, value.to_string()).map_err(|error| format!("{}: {error}", path.maybe_quote()))
    }
}

/// Moves this process into a cgroup. Memory that it has taken already counts where it was taken.
///
/// # Errors
/// What writing to `cgroup.procs` reports.
pub fn enter(cgroup: &Path) -> std::io::Result<()> {
    fs::write(cgroup.join("cgroup.procs"), process::id().to_string())
}

/// The directory of this process's cgroup that has the memory controller for children.
fn own_cgroup() -> Result<(PathBuf, Version), String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (memberships, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
    let found = [Version::Two, Version::One].into_iter().find_map(|version| {
        let directory = directory(version, &memberships, &mounts)?;
        let children = read(&directory.join("cgroup.subtree_control").to_string_lossy());
        let has_memory =
            version == Version::One || children.split_whitespace().any(|controller| controller == "memory");
        has_memory.then_some((directory, version))
    });
    found.ok_or_else(|| "this process's cgroup has no memory controller for others below it".to_owned())
}

/// From `proc_pid_cgroup(5)` and `proc_pid_mountinfo(5)`.
fn directory(version: Version, memberships: &str, mounts: &str) -> Option<PathBuf> {
    let is_memory = |names: &str| names.split(',').any(|name| name == "memory");
    let path = memberships.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_wanted = match version {
            Version::One => is_memory(names),
            Version::Two => number == "0",
        };
        is_wanted.then_some(path)
    })?;
    let (point, root) = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let (mut kind, mut place) = (kind.split(' '), place.split(' ').skip(3));
        let is_wanted = match version {
            Version::One => kind.next() == Some("cgroup") && kind.nth(1).is_some_and(is_memory),
            Version::Two => kind.next() == Some("cgroup2"),
        };
        let (root, point) = (place.next()?, place.next()?);
        is_wanted.then_some((point, root))
    })?;
    // In a container the mount shows only a part of the hierarchy.
    let below = path.strip_prefix(root).unwrap_or(path);
    Some(Path::new(point).join(below.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the directory is found in both versions, and in a container that shows its own part only.
    #[test]
    fn directories_are_found() {
        let memberships = "5:cpu:/\n4:memory:/a/b\n0::/c\n";
        let mounts = "\
            31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let of = |version| directory(version, memberships, mounts);
        assert_eq!(of(Version::One), Some(PathBuf::from("/sys/fs/cgroup/memory/a/b")));
        assert_eq!(of(Version::Two), Some(PathBuf::from("/sys/fs/cgroup/unified/c")));
        let mounts = "35 31 0:32 /a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let inside = directory(Version::One, memberships, mounts);
        assert_eq!(inside, Some(PathBuf::from("/sys/fs/cgroup/memory/b")));
        assert_eq!(directory(Version::Two, memberships, mounts), None);
    }
}
