//! Machine: what the kernel grants this process, whatever the file.
//!
//! Owns: which facts there are, their words, how to mend them.
//! Does not own: how they are shown.

use std::fs;

use headwater::testing::uring_refusal;
use headwater::{Engine, MemoryBound};
use headwater_io::{ChangeWatch, DemandMemory, live_support};
use rustix::process::{Resource, getrlimit};

use super::Fact;
use crate::shared::units::readable;

pub(super) fn facts() -> Vec<Fact> {
    vec![rings(), locked_memory(), descriptors(), huge_pages(), memory(), watches(), leases(), windows()]
}

fn rings() -> Fact {
    let Some(refusal) = uring_refusal() else {
        return Fact::good("io_uring", "the kernel grants rings: requests take no thread each");
    };
    let fact = Fact::missing(
        "io_uring",
        format!("refused: {refusal}"),
        "headwater uses threads instead: the same results, more processor time for each request",
    );
    let disabled = number("/proc/sys/kernel/io_uring_disabled");
    let is_filtered = !matches!(status("Seccomp").as_deref(), None | Some("0"));
    match disabled {
        Some(1 | 2) => fact.mended_by("sysctl kernel.io_uring_disabled=0"),
        _ if is_filtered => fact.mended_by(
            "a filter of system calls forbids it, as container runtimes do: allow io_uring_setup, io_uring_enter and \
             io_uring_register in its profile",
        ),
        _ => fact.mended_by("Linux 5.11 or newer, with CONFIG_IO_URING"),
    }
}

fn locked_memory() -> Fact {
    match getrlimit(Resource::Memlock).current {
        None => Fact::good("memlock", "without limit"),
        Some(bytes) if bytes >= MEMLOCK_BYTES_ENOUGH => {
            Fact::good("memlock", format!("{} may be locked", readable(bytes)))
        }
        Some(_) if may_lock_all() => Fact::good("memlock", "this process may lock as much as it likes"),
        Some(bytes) => Fact::limited(
            "memlock",
            format!("{} may be locked", readable(bytes)),
            "larger caches are not registered with the kernel, which then looks up their pages for each request",
        )
        .mended_by("ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit of the service"),
    }
}

fn descriptors() -> Fact {
    match getrlimit(Resource::Nofile).current {
        Some(count) if count < DESCRIPTORS_ENOUGH => Fact::limited(
            "descriptors",
            format!("{count} files may be open"),
            "an open file takes up to two, so half as many files",
        )
        .mended_by("ulimit -n 65536, or LimitNOFILE= in the unit of the service"),
        Some(count) => Fact::good("descriptors", format!("{count} files may be open")),
        None => Fact::good("descriptors", "without limit"),
    }
}

fn huge_pages() -> Fact {
    let modes = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = modes.split_whitespace().find_map(|mode| mode.strip_prefix('[')?.strip_suffix(']'));
    match mode {
        Some(mode @ ("always" | "madvise")) => Fact::good("huge pages", format!("given on request ({mode})")),
        other => Fact::limited(
            "huge pages",
            other.map_or("the kernel has none".to_owned(), |mode| format!("off ({mode})")),
            "the memory of a cache is mapped in small pages: hits in large caches take longer",
        )
        .mended_by("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
    }
}

fn memory() -> Fact {
    let engine = match Engine::builder().build() {
        Ok(engine) => engine,
        Err(error) => {
            return Fact::missing("memory", format!("failed to {error}"), "no engine can be built")
                .mended_by("what the error names: memory, descriptors or address space (ulimit -v)");
        }
    };
    let memory = engine.stats().memory;
    let found = format!("an engine could have {} now", readable(memory.possible_bytes));
    match memory.bound {
        MemoryBound::Cgroup => Fact::limited(
            "memory",
            format!("{found}, in a cgroup that bounds it"),
            "the cache is as large as the cgroup allows, and gives memory back before the kernel ends a process",
        )
        .mended_by("memory.max of the cgroup, or the limit of the container"),
        _ => Fact::good("memory", found),
    }
}

fn watches() -> Fact {
    match ChangeWatch::new() {
        Ok(_) => Fact::good("watches", "the kernel tells which program changes a file"),
        Err(error) => Fact::limited(
            "watches",
            format!("fanotify is refused: {error}"),
            "nothing proves which changes of a file are headwater's own: what was cached is read again after each write-back",
        )
        .mended_by("Linux 5.13 or newer; in a container, allow fanotify_init and fanotify_mark"),
    }
}

fn leases() -> Fact {
    match number("/proc/sys/fs/leases-enable") {
        Some(1) => Fact::good("leases", "granted on files of one's own"),
        _ => Fact::limited(
            "leases",
            "the kernel grants none",
            "Coherence::Leased stays exact, but each read asks the kernel for the file's length and times",
        )
        .mended_by("sysctl fs.leases-enable=1"),
    }
}

fn windows() -> Fact {
    match (live_support(), DemandMemory::new(1)) {
        (Ok(()), Ok(_)) => Fact::good("windows", "File::map_contiguous and File::map_on_demand work"),
        (Err(error), Ok(_)) => Fact::limited(
            "windows",
            error.to_string(),
            "File::map_contiguous is refused; File::map_on_demand, File::map and its calls work",
        )
        .mended_by("Linux 6.8 or newer, and userfaultfd for this user (vm.unprivileged_userfaultfd)"),
        (_, Err(error)) => Fact::limited(
            "windows",
            error.to_string(),
            "File::map_contiguous and File::map_on_demand are refused; File::map and its calls work",
        )
        .mended_by("Linux 5.11 or newer for File::map_on_demand, 6.8 for both, and a sandbox that permits userfaultfd"),
    }
}

/// Whether the process has `CAP_IPC_LOCK`.
fn may_lock_all() -> bool {
    let bits = status("CapEff").and_then(|bits| u64::from_str_radix(&bits, 16).ok());
    bits.is_some_and(|bits| bits & 1 << CAP_IPC_LOCK != 0)
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A line of `/proc/self/status`.
fn status(name: &str) -> Option<String> {
    let lines = fs::read_to_string("/proc/self/status").ok()?;
    let line = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// Of `linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;

/// A cache of this size can be registered whole.
const MEMLOCK_BYTES_ENOUGH: u64 = 1 << 30;

/// Twice the 1024 of a login.
const DESCRIPTORS_ENOUGH: u64 = 2048;
