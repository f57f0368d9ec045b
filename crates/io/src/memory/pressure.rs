//! Pressure: how much more memory this process can take before its cgroup or the system runs out.
//!
//! ```text
//!   /proc/self/cgroup, mountinfo ─► memory cgroup and its ancestors ─┐
//!   /proc/meminfo ─► the system ─────────────────────────────────────┴─► headroom: of the tightest of them
//!   memory.pressure, /proc/pressure/memory ─► stalling?
//! ```
//!
//! Direct I/O into memory of its own takes a cache out of the kernel's reach: the kernel cannot reclaim such pages when
//! other programs need memory, and kills a process instead. So the cache has to check by itself, often and in time.
//!
//! Clean pages of files, which the kernel can drop at once, count as free. The memory controller may be in cgroups of version 1
//! or 2, so both are searched. A limit that cannot be found, as in a container that hides it, limits nothing.
//!
//! Owns: the descriptors of these files.
//! Does not own: the reaction (the arena refuses to grow, the engine evicts).
//! Locks: none. A check costs one system call for each file, 15 to 25 µs together with one level of cgroups.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Knows where to look. Opens the files on the first look, so that a process that ends before pays nothing: to close a
/// trigger of PSI alone takes the kernel some 10 ms. The cgroup is the one that the process is in then.
#[derive(Debug)]
pub struct Pressure {
    root: PathBuf,
    limits: OnceLock<Limited>,
    stalls: OnceLock<[Stalls; 2]>,
}

/// What limits the memory of this process.
#[derive(Debug)]
struct Limited {
    /// From the inside out.
    cgroups: Box<[Cgroup]>,
    /// The directory of the first.
    directory: Option<PathBuf>,
    meminfo: Option<Kept>,
}

/// How much memory can still be taken, where that is least beside what should stay free there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headroom {
    /// Bytes until the limit, with what the kernel can drop at once counted as free.
    pub free_bytes: u64,
    /// Bytes that should stay free: what others may take before the next look.
    pub reserve_bytes: u64,
    /// Whose limit that is.
    pub limit: MemoryLimit,
    /// What of `free_bytes` is memory of an arena that the kernel may take by itself.
    pub offered_bytes: u64,
}

/// What limits memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryLimit {
    /// The memory of the machine.
    System,
    /// A cgroup that the process is in, or an ancestor of it.
    Cgroup,
}

/// Whether threads wait for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// Not to speak of, or not known.
    No,
    /// More than a seventh of the time.
    Yes,
}

impl Headroom {
    /// Nothing is known, so nothing is short.
    pub const UNKNOWN: Headroom =
        Headroom { free_bytes: u64::MAX, reserve_bytes: 0, limit: MemoryLimit::System, offered_bytes: 0 };

    /// What there is beyond the reserve. Half of that may be memory on offer, which the kernel takes in time by itself; taking it costs
    /// the thread that needs it some time, so the other half stays unused.
    pub fn spare_bytes(&self) -> u64 {
        let beyond_unused = self.unused_bytes().saturating_sub(self.unused_bytes_min());
        self.free_bytes.saturating_sub(self.reserve_bytes).min(beyond_unused)
    }

    /// What is free and not on offer.
    pub fn unused_bytes(&self) -> u64 {
        self.free_bytes.saturating_sub(self.offered_bytes)
    }

    /// What should be free and not on offer: an eighth of a limit, where a quarter is the reserve.
    pub fn unused_bytes_min(&self) -> u64 {
        self.reserve_bytes / UNUSED_DIVISOR
    }

    /// What there is beyond the reserve; negative when the reserve is touched.
    fn surplus_bytes(&self) -> i128 {
        i128::from(self.free_bytes) - i128::from(self.reserve_bytes)
    }

    fn of(limit: MemoryLimit, limit_bytes: u64, free_bytes: u64) -> Headroom {
        let share_bytes = limit_bytes / RESERVE_DIVISOR;
        let reserve_bytes = share_bytes.clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
        Headroom { free_bytes, reserve_bytes, limit, offered_bytes: 0 }
    }
}

/// All memory of the machine, bytes. One system call.
pub fn system_memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    #[allow(clippy::useless_conversion, reason = "32 bits on some machines")]
    u64::from(system.totalram).saturating_mul(u64::from(system.mem_unit))
}

impl Pressure {
    /// The memory of this process. What is not found is not known; there is no error.
    pub fn new() -> Pressure {
        Pressure::at(Path::new("/"))
    }

    /// As [`Pressure::new`], with all paths below this root: for tests.
    pub fn at(root: &Path) -> Pressure {
        Pressure { root: root.to_owned(), limits: OnceLock::new(), stalls: OnceLock::new() }
    }

    /// The headroom now, of whichever of the system and the cgroups has least beyond its reserve.
    pub fn headroom(&self) -> Headroom {
        self.headroom_beside(0, 0)
    }

    /// As [`Pressure::headroom`], for a process of whose memory `offered_bytes` are on offer to the kernel, which counts them as free; and
    /// of which it counts `misplaced_bytes` as free that are not.
    pub fn headroom_beside(&self, offered_bytes: u64, misplaced_bytes: u64) -> Headroom {
        let lazy = Lazy { offered_bytes, misplaced_bytes };
        let least = self.headrooms(lazy).min_by_key(Headroom::surplus_bytes).unwrap_or(Headroom::UNKNOWN);
        Headroom { offered_bytes: offered_bytes.min(least.free_bytes), ..least }
    }

    /// Bytes until the nearest limit; `u64::MAX` if nothing is known.
    pub fn headroom_bytes(&self) -> u64 {
        self.headrooms(Lazy::default()).map(|headroom| headroom.free_bytes).min().unwrap_or(u64::MAX)
    }

    /// Whether threads of this cgroup lose time to waiting for memory, or those of a system that is short of it. (A
    /// system has stalls also when only some other cgroup is at its limit, which is none of our business.)
    pub fn is_stalling(&self) -> Stall {
        let system = self.system_headroom(Lazy::default()).unwrap_or(Headroom::UNKNOWN);
        let system_is_scarce = system.free_bytes / SCARCE_RESERVES < system.reserve_bytes;
        // Both are asked, as that takes back what their triggers have said.
        let [cgroup, system] = self.stalls().each_ref().map(Stalls::now);
        if cgroup || system && system_is_scarce { Stall::Yes } else { Stall::No }
    }

    fn headrooms(&self, lazy: Lazy) -> impl Iterator<Item = Headroom> {
        let cgroups = self.limits().cgroups.iter().filter_map(move |cgroup| cgroup.headroom(lazy));
        cgroups.chain(self.system_headroom(lazy))
    }

    fn limits(&self) -> &Limited {
        self.limits.get_or_init(|| {
            let (cgroups, directory) = find_cgroups(&self.root);
            Limited { cgroups, directory, meminfo: Kept::open(&self.root.join("proc/meminfo")) }
        })
    }

    /// Of the cgroup, and of the system.
    fn stalls(&self) -> &[Stalls; 2] {
        self.stalls.get_or_init(|| {
            let directory = self.limits().directory.as_ref();
            let cgroup = directory.map(|directory| Stalls::open(&directory.join("memory.pressure")));
            [cgroup.unwrap_or_default(), Stalls::open(&self.root.join("proc/pressure/memory"))]
        })
    }

    fn system_headroom(&self, lazy: Lazy) -> Option<Headroom> {
        self.limits().meminfo.as_ref()?.text(|text| {
            let bytes = |key| Some(value_of(text, key)? * 1024);
            let file_bytes = ["Active(file):", "Inactive(file):"].iter().filter_map(|key| bytes(key)).sum();
            let free_bytes = bytes("MemAvailable:")?.saturating_sub(lazy.miscounted_bytes(file_bytes));
            Some(Headroom::of(MemoryLimit::System, bytes("MemTotal:")?, free_bytes))
        })?
    }
}

impl Default for Pressure {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory of this process that the kernel may take, or takes for such.
#[derive(Clone, Copy, Default)]
struct Lazy {
    offered_bytes: u64,
    misplaced_bytes: u64,
}

impl Lazy {
    /// What of as many bytes that the kernel counts as pages of files it could not take. It may have noticed some of what is misplaced, and
    /// counts that no longer.
    fn miscounted_bytes(self, file_bytes: u64) -> u64 {
        self.misplaced_bytes.min(file_bytes.saturating_sub(self.offered_bytes))
    }
}

/// One cgroup that the process is in, directly or not.
#[derive(Debug)]
struct Cgroup {
    /// The hard limit, and where there is one the limit above which the kernel throttles.
    limits: Vec<Kept>,
    usage: Kept,
    stat: Option<Kept>,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Version {
    fn limit_files(self) -> &'static [&'static str] {
        match self {
            Version::One => &["memory.limit_in_bytes"],
            Version::Two => &["memory.max", "memory.high"],
        }
    }

    fn usage_file(self) -> &'static str {
        match self {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        }
    }

    /// Keys of `memory.stat`: pages of files, and those of them that must be written first.
    fn file_pages(self) -> ([&'static str; 2], [&'static str; 2]) {
        match self {
            // Without the prefix they leave out the cgroups below.
            Version::One => {
                (["total_inactive_file", "total_active_file"], ["total_dirty", "total_writeback"])
            }
            Version::Two => (["inactive_file", "active_file"], ["file_dirty", "file_writeback"]),
        }
    }

    /// Whether this line of mountinfo, from the type of the file system on, is where these cgroups are mounted.
    fn is_mounted(self, kind: &str, options: &str) -> bool {
        match self {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
            Version::Two => kind == "cgroup2",
        }
    }

    /// The path in a line of `/proc/self/cgroup`, if the line is about this.
    fn path_in(self, line: &str) -> Option<&str> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match self {
            Version::One => controllers.split(',').any(|controller| controller == "memory"),
            Version::Two => controllers.is_empty(),
        };
        is_it.then_some(path)
    }
}

impl Cgroup {
    /// `None` if the directory has no such controller: the root of a hierarchy has no limit to look at.
    fn open(directory: &Path, version: Version) -> Option<Cgroup> {
        let limits: Vec<Kept> =
            version.limit_files().iter().filter_map(|name| Kept::open(&directory.join(name))).collect();
        if limits.is_empty() {
            return None;
        }
        let usage = Kept::open(&directory.join(version.usage_file()))?;
        Some(Cgroup { limits, usage, stat: Kept::open(&directory.join("memory.stat")), version })
    }

    /// `None` without a limit.
    fn headroom(&self, lazy: Lazy) -> Option<Headroom> {
        let limit_bytes = self.limits.iter().filter_map(|file| file.text(limit_bytes)?).min()?;
        let used_bytes: u64 = self.usage.text(|text| text.trim().parse().ok())??;
        let file_bytes = self.stat.as_ref().and_then(|stat| stat.text(|text| self.file_bytes(text)));
        let file_bytes = file_bytes.unwrap_or(0);
        let kept_bytes = used_bytes.saturating_sub(file_bytes - lazy.miscounted_bytes(file_bytes));
        Some(Headroom::of(MemoryLimit::Cgroup, limit_bytes, limit_bytes.saturating_sub(kept_bytes)))
    }

    /// Clean pages of files, which the kernel drops on demand.
    fn file_bytes(&self, stat: &str) -> u64 {
        let sum = |keys: [&str; 2]| keys.iter().filter_map(|key| value_of(stat, key)).sum::<u64>();
        let (pages, to_be_written) = self.version.file_pages();
        sum(pages).saturating_sub(sum(to_be_written))
    }
}

/// The cgroup of this process and its ancestors as far as they can be seen, from the inside out; and the directory of the
/// first.
fn find_cgroups(root: &Path) -> (Box<[Cgroup]>, Option<PathBuf>) {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let (memberships, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    for version in [Version::Two, Version::One] {
        let Some(path) = memberships.lines().find_map(|line| version.path_in(line)) else { continue };
        for (mounted_path, mount_point) in mounts.lines().filter_map(|line| mount_in(line, version)) {
            let top = root.join(mount_point.trim_start_matches('/'));
            let below = Path::new(path).strip_prefix(mounted_path).unwrap_or(Path::new(""));
            let directory = top.join(below);
            let levels = directory.ancestors().take_while(|level| level.starts_with(&top));
            let cgroups: Box<[Cgroup]> = levels.filter_map(|level| Cgroup::open(level, version)).collect();
            if !cgroups.is_empty() {
                return (cgroups, Some(directory));
            }
        }
    }
    (Box::default(), None)
}

/// From a line of mountinfo: which part of the hierarchy is mounted, and where (`proc_pid_mountinfo(5)`).
fn mount_in(line: &str, version: Version) -> Option<(&str, &str)> {
    let (place, file_system) = line.split_once(" - ")?;
    let (mut place, mut file_system) = (place.split(' '), file_system.split(' '));
    let (mounted_path, mount_point) = (place.nth(3)?, place.next()?);
    let (kind, options) = (file_system.next()?, file_system.nth(1).unwrap_or_default());
    version.is_mounted(kind, options).then_some((mounted_path, mount_point))
}

/// `None` for none: `max`, or in version 1 a number that no machine has.
fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT_BYTES)
}

/// The number behind a key at the beginning of a line.
fn value_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Stalls of a cgroup or of the system, by PSI (Linux's `Documentation/accounting/psi.rst`).
#[derive(Debug, Default)]
struct Stalls {
    /// Becomes readable when threads have lost that much time within a second or two.
    trigger: Option<File>,
    average: Option<Kept>,
}

impl Stalls {
    fn open(path: &Path) -> Stalls {
        let trigger = TRIGGERS.iter().find_map(|text| open_trigger(path, text).ok());
        Stalls { trigger, average: Kept::open(path) }
    }

    fn now(&self) -> bool {
        let triggered = self.trigger.as_ref().is_some_and(|trigger| {
            let mut descriptors = [PollFd::new(trigger, PollFlags::PRI)];
            poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
                && is_stall(descriptors[0].revents())
        });
        triggered || self.average.as_ref().and_then(|file| file.text(some_percent)?) >= Some(STALL_PERCENT)
    }
}

/// Whether a trigger reports a stall. That of a cgroup that was removed reports both, for ever.
fn is_stall(events: PollFlags) -> bool {
    events.contains(PollFlags::PRI) && !events.contains(PollFlags::ERR)
}

fn open_trigger(path: &Path, text: &str) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    if !rustix::fs::fstatfs(&file).is_ok_and(|system| TRIGGER_FILE_SYSTEMS.contains(&system.f_type)) {
        // An ordinary file would be written to.
        return Err(io::ErrorKind::Unsupported.into());
    }
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// `avg10` of the line `some`, whole percent.
fn some_percent(text: &str) -> Option<u32> {
    let (_, average) = text.lines().find(|line| line.starts_with("some "))?.split_once("avg10=")?;
    average.split('.').next()?.parse().ok()
}

/// A file that is read again and again. Files of procfs and cgroupfs are made anew by a read from their beginning.
#[derive(Debug)]
struct Kept(File);

impl Kept {
    fn open(path: &Path) -> Option<Kept> {
        File::open(path).ok().map(Kept)
    }

    /// The current contents; `None` if the file can no longer be read, as of a cgroup that was removed.
    fn text<R>(&self, read: impl FnOnce(&str) -> R) -> Option<R> {
        let mut buffer = [0; TEXT_BYTES_MAX];
        let length = self.0.read_at(&mut buffer, 0).ok()?;
        std::str::from_utf8(&buffer[..length]).ok().map(read)
    }
}

/// The share of a limit that is to stay free: a quarter, which a burst of 100 MiB in a cgroup of 256 MiB needed to survive on a
/// machine with four runnable threads for each processor.
const RESERVE_DIVISOR: u64 = 4;

/// The part of the reserve that is not on offer, 1 of this many.
const UNUSED_DIVISOR: u64 = 2;

/// The least that stays free. One thread that touches new memory takes 1 to 4 GB/s: this lasts it for 4 to 16 ms.
const RESERVE_BYTES_MIN: u64 = 16 << 20;

/// Large limits need no larger share: this lasts one thread for 128 ms at the least, and several for tens.
const RESERVE_BYTES_MAX: u64 = 512 << 20;

/// A system with less free memory than this many reserves is short of memory.
const SCARCE_RESERVES: u64 = 4;

/// Version 1 expresses "no limit" as the largest multiple of a page below 2^63.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// 150 ms of a second; without privileges only windows of two seconds are granted (Linux 6.6).
const TRIGGERS: [&str; 2] = ["some 150000 1000000\0", "some 300000 2000000\0"];

/// The same as the triggers say, averaged over ten seconds, for kernels that grant none.
const STALL_PERCENT: u32 = 15;

/// `PROC_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of <linux/magic.h>.
const TRIGGER_FILE_SYSTEMS: [rustix::fs::FsWord; 2] = [0x9fa0, 0x6367_7270];

/// `memory.stat` and `meminfo` have 1.5 to 3 KiB.
const TEXT_BYTES_MAX: usize = 8192;

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use super::*;
    use headwater_testkit::ScratchDir;

    fn cgroup_has(free_bytes: u64, reserve_bytes: u64) -> Headroom {
        Headroom { free_bytes, reserve_bytes, limit: MemoryLimit::Cgroup, offered_bytes: 0 }
    }

    /// Files below a root of its own.
    struct Sample(ScratchDir);

    impl Sample {
        fn new(files: &[(&str, &str)]) -> Sample {
            let sample = Sample(ScratchDir::on_target().unwrap());
            files.iter().for_each(|(path, text)| sample.write(path, text));
            sample
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn pressure(&self) -> Pressure {
            Pressure::at(self.0.path())
        }
    }

    const MIB: u64 = 1 << 20;

    const MOUNTS: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    /// Goal: the trigger of a cgroup that was removed is no stall.
    #[test]
    fn a_removed_trigger_is_no_stall() {
        assert!(
            is_stall(PollFlags::PRI)
                && !is_stall(PollFlags::PRI | PollFlags::ERR)
                && !is_stall(PollFlags::empty())
        );
    }

    /// Goal: version 1 beside an empty version 2: the inner cgroup's limit, less what is used but for clean file pages.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn version_1_is_found_beside_an_empty_version_2() {
        let sample = Sample::new(&[
            ("proc/self/cgroup", "5:cpu:/x\n4:memory:/outer/inner\n0::/\n"),
            ("proc/self/mountinfo", MOUNTS),
            ("sys/fs/cgroup/unified/cgroup.procs", "1\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
            ("sys/fs/cgroup/memory/outer/inner/memory.limit_in_bytes", "268435456\n"),
            ("sys/fs/cgroup/memory/outer/inner/memory.usage_in_bytes", "209715200\n"),
            (
                "sys/fs/cgroup/memory/outer/inner/memory.stat",
                "inactive_file 1\nactive_file 1\ntotal_dirty 1048576\ntotal_writeback 1048576\n\
                 total_inactive_file 10485760\ntotal_active_file 2097152\n",
            ),
        ]);
        let headroom = sample.pressure().headroom();
        assert_eq!(headroom, cgroup_has((56 + 10) * MIB, 64 * MIB));
    }

    /// Goal: memory on offer counts as free, but not as unused; what came back from an offer does not, as long as the kernel counts it
    /// among pages of files. Method: 40 MiB of these, of which 16 are on offer; 8, and 80, came back.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn what_is_on_offer_is_free_and_not_unused() {
        let directory = "sys/fs/cgroup/job";
        let sample = Sample::new(&[
            ("proc/self/cgroup", "0::/job\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            (&format!("{directory}/memory.max"), "268435456\n"),
            (&format!("{directory}/memory.current"), "209715200\n"),
            (&format!("{directory}/memory.stat"), "inactive_file 41943040\nactive_file 0\n"),
        ]);
        let look = |misplaced| sample.pressure().headroom_beside(16 * MIB, misplaced);
        let mib = |headroom: Headroom| [headroom.free_bytes, headroom.unused_bytes(), headroom.spare_bytes()];
        assert_eq!(mib(look(0)), [96 * MIB, 80 * MIB, 32 * MIB]);
        assert_eq!(mib(look(8 * MIB)), [88 * MIB, 72 * MIB, 24 * MIB]);
        assert_eq!(
            mib(look(80 * MIB)),
            [72 * MIB, 56 * MIB, 8 * MIB],
            "what is on offer is there all the same"
        );
        let tight = sample.pressure().headroom_beside(40 * MIB, 0);
        assert_eq!(mib(tight), [96 * MIB, 56 * MIB, 24 * MIB], "an eighth of the limit is not on offer");
    }

    /// Goal: nothing is opened before the first look, so that a process that never looks pays nothing.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn files_are_opened_by_the_first_look() {
        let sample = Sample::new(&[]);
        let pressure = sample.pressure();
        sample.write("proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\n");
        assert_eq!(pressure.headroom_bytes(), 2048 * MIB);
    }

    /// Goal: version 2, where the ancestor is what is tight, and `memory.high` counts as a limit; later changes are seen.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn the_tightest_of_version_2_counts() {
        let inner = "sys/fs/cgroup/outer/inner";
        let sample = Sample::new(&[
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"),
            ("sys/fs/cgroup/outer/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/outer/memory.high", "536870912\n"),
            ("sys/fs/cgroup/outer/memory.current", "524288000\n"),
            (&format!("{inner}/memory.max"), "max\n"),
            (&format!("{inner}/memory.high"), "max\n"),
            (&format!("{inner}/memory.current"), "1048576\n"),
            ("proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   33554432 kB\n"),
        ]);
        let pressure = sample.pressure();
        assert_eq!(pressure.headroom(), cgroup_has(12 * MIB, 128 * MIB));
        sample.write(&format!("{inner}/memory.max"), "2097152\n");
        assert_eq!(pressure.headroom_bytes(), MIB);
        sample.write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 4 kB\n");
        let system = Headroom { limit: MemoryLimit::System, ..cgroup_has(4096, 512 * MIB) };
        assert_eq!(pressure.headroom(), system);
    }

    /// Goal: in a container that mounts only its own part of the hierarchy, the path is that below the part.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_part_of_the_hierarchy_is_enough() {
        let sample = Sample::new(&[
            ("proc/self/cgroup", "4:memory:/docker/abc/job\n"),
            (
                "proc/self/mountinfo",
                "9 1 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1048576\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4096\n"),
        ]);
        assert_eq!(sample.pressure().headroom_bytes(), MIB - 4096);
    }

    /// Goal: missing files, and files in an unknown format, do not count as a shortage.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn without_knowledge_there_is_no_limit() {
        let sample = Sample::new(&[]);
        assert_eq!(sample.pressure().headroom(), Headroom::UNKNOWN);
        assert_eq!(sample.pressure().is_stalling(), Stall::No);
        sample.write("proc/meminfo", "nonsense");
        sample.write("proc/self/cgroup", "nonsense\n4:memory\n");
        sample.write("proc/self/mountinfo", "nonsense - \n");
        assert_eq!(sample.pressure().headroom_bytes(), u64::MAX);
    }

    /// Goal: the system's stalls count where memory is scarce, and not where it is not.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn stalls_elsewhere_do_not_count() {
        let stalls =
            |percent| format!("some avg10={percent} avg60=0.00 avg300=0.00 total=0\nfull avg10=99.00\n");
        let sample = Sample::new(&[("proc/pressure/memory", &stalls("15.20"))]);
        for (available, expected) in [("1000 kB", Stall::Yes), ("7000000 kB", Stall::No)] {
            sample.write("proc/meminfo", &format!("MemTotal: 8000000 kB\nMemAvailable: {available}\n"));
            assert_eq!(sample.pressure().is_stalling(), expected);
        }
        sample.write("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 1000 kB\n");
        sample.write("proc/pressure/memory", &stalls("14.99"));
        assert_eq!(sample.pressure().is_stalling(), Stall::No);
        let text = std::fs::read_to_string(sample.0.path().join("proc/pressure/memory")).unwrap();
        assert_eq!(text, stalls("14.99"), "no trigger is written to an ordinary file");
    }

    /// Goal: on the system itself something is found, and plausible.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn this_system_has_memory() {
        let headroom = Pressure::new().headroom();
        assert!(headroom.free_bytes > 0 && headroom.reserve_bytes <= RESERVE_BYTES_MAX);
        assert_ne!(headroom, Headroom::UNKNOWN, "procfs says how much memory there is");
    }
}
