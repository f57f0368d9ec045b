//! Folders: what a run leaves of its files and processes when it is killed or fails, virtual machines included, and what the next one does with that.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Goal: a run that a signal ends leaves no files, and no process that works on. Method: each signal that ends a run in practice, SIGKILL among them, as soon as the
/// run has its file.
#[test]
fn a_run_that_is_killed_leaves_nothing() {
    for signal in ending_signals() {
        let place = tempfile::tempdir().unwrap();
        let mut child = long_run(place.path());
        wait_for("its file", || has_file(place.path()));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success(), "{signal:?} ends it");
        wait_for("the removal", || folders(place.path()).is_empty());
        wait_for("the end of its arm", || processes_of(place.path()).is_empty());
    }
}

/// Goal: what a run could not remove, since its guard was killed as well, the next run in the same place removes; it leaves alone what a
/// run that still lives has, what another program has, and what has no lock by design. Method: two long runs, of which one is killed with
/// its guard, a short one, and folders with names like theirs.
#[test]
fn the_next_run_removes_what_dead_ones_left() {
    let place = tempfile::tempdir().unwrap();
    let mut dead = long_run(place.path());
    wait_for("its file", || has_file(place.path()));
    let left = folders(place.path());
    let mut living = long_run(place.path());
    wait_for("the file of both", || folders(place.path()).len() == 2 && has_file(place.path()));
    for guard in guards_of(&dead) {
        kill_process(guard, Signal::KILL).unwrap();
    }
    kill_process(Pid::from_child(&dead), Signal::KILL).unwrap();
    dead.wait().unwrap();
    assert!(left[0].exists(), "there is something to remove");
    let others = ["headwater-bench-notes", "headwater-bench-abc123", "headwater-bench-notes.files"];
    for name in others {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }

    let next = run(place.path(), "0.02").args(["--rounds", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(next.status.success(), "{said}");
    assert!(said.contains(left[0].file_name().unwrap().to_str().unwrap()), "it says what it removes: {said}");
    assert!(!left[0].exists(), "{said}");
    let here = folders(place.path());
    assert_eq!(here.len(), 1 + others.len(), "{here:?}");
    assert!(others.iter().all(|name| here.contains(&place.path().join(name))), "{here:?}");
    let file_of_living = here.iter().find(|folder| !others.iter().any(|name| folder.ends_with(name)));
    assert!(file_of_living.is_some_and(|folder| folder != &left[0]), "{here:?}");

    kill_process(Pid::from_child(&living), Signal::TERM).unwrap();
    living.wait().unwrap();
    wait_for("the removal", || folders(place.path()).len() == others.len());
}

/// Goal: a run that is killed leaves no cgroup. Method: a signal once an arm is in one.
#[test]
fn a_run_that_is_killed_leaves_no_cgroup() {
    if let Err(reason) = headwater_testkit::MemoryCgroup::new(64 << 20) {
        return headwater_testkit::skip(reason);
    }
    for signal in ending_signals() {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-bench"));
        command.args(["windows", "--mib", "16", "--seconds", "60", "--dir"]).arg(place.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut cgroup = None;
        wait_for("its cgroup", || {
            cgroup = processes_of(place.path()).iter().find_map(|process| cgroup_of(process));
            cgroup.is_some()
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        let cgroup = cgroup.unwrap();
        wait_for("the removal", || !cgroup.exists());
        wait_for("that of its files", || folders(place.path()).is_empty());
    }
}

/// What the command line of an arm says.
fn cgroup_of(process: &Path) -> Option<PathBuf> {
    let command = std::fs::read_to_string(process.join("cmdline")).ok()?;
    command.split('\0').skip_while(|word| *word != "--cgroup").nth(1).map(PathBuf::from)
}

/// Goal: a run that is killed puts the kernel's readahead back, and none takes what another has set for what was before. Method: a signal
/// while a program in the place of headwater finds the readahead changed, and a second run at that time.
#[test]
fn a_run_that_is_killed_puts_readahead_back() {
    let host = Host::new();
    let file = host.place.path().join("file");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let device = rustix::fs::stat(&file).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let settings = ["queue/read_ahead_kb", "../queue/read_ahead_kb"].map(|name| device.join(name));
    let Some(setting) = settings.into_iter().find(|setting| setting.exists()) else {
        return headwater_testkit::skip("no disk below the files of tests");
    };
    let before = std::fs::read_to_string(&setting).unwrap();
    if before.trim() == "128" || std::fs::write(&setting, &before).is_err() {
        return headwater_testkit::skip("the readahead is that of the row, or cannot be set");
    }
    // The first that finds it changed.
    let stays = "[ \"$(cat \"$SETTING\")\" = 128 ] && mkdir \"$place/stays\" || exit 1\nexec sleep 20";
    host.stand_in("headwater", stays);
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-bench"));
        command
            .args(["bars", "--only", "scan", "--rounds", "1", "--file"])
            .arg(&file)
            .env("SETTING", &setting);
        command.arg("--headwater").arg(host.place.path().join("bin/headwater"));
        command
    };
    let mut child = run().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the row", || host.place.path().join("stays").exists());
    let second = run().output().unwrap();
    let text = String::from_utf8_lossy(&second.stdout);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    let is_back = || std::fs::read_to_string(&setting).unwrap() == before;
    let started = Instant::now();
    while !is_back() && started.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(PAUSE);
    }
    let was_back = is_back();
    // Whatever it was, the machine is as before.
    std::fs::write(&setting, &before).unwrap();
    assert!(was_back, "it is put back");
    assert!(text.contains("another run has changed"), "{text}");
}

/// Goal: a run goes on when its program is built again. Method: another name of the program, which goes while an arm runs.
#[test]
fn a_run_whose_program_is_replaced_goes_on() {
    let place = headwater_testkit::ScratchDir::on_target().unwrap();
    let (program, files) = (place.path().join("program"), place.path().join("files"));
    std::fs::create_dir(&files).unwrap();
    std::fs::hard_link(env!("CARGO_BIN_EXE_headwater-bench"), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["log", "--only", "writer", "--rounds", "2", "--seconds", "0.1", "--dir"]).arg(&files);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("its file", || has_file(&files));
    std::fs::remove_file(&program).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Goal: a virtual machine ends with the command that started it, and its disk and initramfs vanish. Method: each signal that ends a run in
/// practice, with a program in the place of QEMU that never ends.
#[test]
fn a_guest_that_is_killed_leaves_nothing() {
    for signal in ending_signals() {
        let host = Host::new();
        host.stand_in(QEMU, &format!("{ANSWERS_VERSION}{STAYS}"));
        assert_vanishes(&host, host.guest(), signal);
    }
}

/// Goal: the same while a kernel is fetched, while the disk of `old-kernel` is made, and while its guest runs. Method: programs in the place
/// of apt's, of cargo, of mkfs.ext4 and of QEMU, of which one never ends.
#[test]
fn what_leads_to_a_guest_leaves_nothing() {
    let host = Host::new();
    host.stand_in(QEMU, ANSWERS_VERSION);
    host.stand_in("apt-cache", "echo 'Depends: linux-image-1-amd64'");
    host.stand_in("apt-get", &format!("echo part > linux.deb{STAYS}"));
    assert_vanishes(&host, host.command("guest"), Signal::TERM);

    for (stays, signal) in [("cargo", Signal::KILL), ("mkfs.ext4", Signal::TERM), (QEMU, Signal::KILL)] {
        let host = Host::new();
        host.stand_in(QEMU, ANSWERS_VERSION);
        host.prepare_old_kernel();
        host.stand_in(stays, &format!("{}{STAYS}", if stays == QEMU { ANSWERS_VERSION } else { "" }));
        assert_vanishes(&host, host.old_kernel(), signal);
    }
}

/// Goal: a machine does not run on when its command fails, and nothing is left of it either. Method: a standard output that is full when the
/// first suite ends.
#[test]
fn a_guest_ends_with_a_command_that_fails() {
    let host = Host::new();
    let suite = r#"printf 'headwater-suites: {"Began":{"suite":"a"}}\nheadwater-suites: {"Ended":{"seconds":1,"failure":null}}\n' > "$console""#;
    host.prepare_old_kernel();
    host.stand_in(QEMU, &format!("{ANSWERS_VERSION}{FINDS_CONSOLE}\n{suite}{STAYS}"));
    let mut command = host.old_kernel();
    command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    wait_for("the end of all", || processes_of(host.place.path()).is_empty());
    assert_eq!(host.cached(), host.kernels());
}

/// Goal: a machine does not run on when nothing reads what its command prints, and nothing is left of it. Method: a pipe without a reader, and
/// a program in the place of QEMU that never ends.
#[test]
fn a_guest_ends_with_its_reader() {
    let host = Host::new();
    host.prepare_old_kernel();
    host.stand_in(QEMU, &format!("{ANSWERS_VERSION}{STAYS}"));
    for mut command in [host.guest(), host.old_kernel()] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.args(["--timeout", "5"]).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        wait_for("the end of all", || processes_of(host.place.path()).is_empty());
        assert_eq!(host.cached(), host.kernels());
    }
}

/// Goal: of a guest that fails the console's log is left alone, and the error says where; of one that succeeds, nothing. Method: programs in
/// the place of QEMU that write to the console and end.
#[test]
fn a_guest_that_fails_leaves_its_console() {
    let check = r#"headwater-guest: {"name":"a","ok":true,"detail":"b"}"#;
    for (ending, left) in [("headwater-guest: end", 0), ("Kernel panic", 1)] {
        let host = Host::new();
        let console = format!("printf '%s\\n' '{check}' '{ending}' > \"$console\"");
        host.stand_in(QEMU, &format!("{ANSWERS_VERSION}{FINDS_CONSOLE}\n{console}"));
        let output = host.guest().output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), left == 0, "{said}");
        let cached = host.cached();
        assert_eq!(cached.len(), left, "{cached:?}");
        for log in cached {
            assert!(said.contains(log.to_str().unwrap()), "{log:?} in {said}");
            assert!(std::fs::read_to_string(log).unwrap().contains(ending));
        }
    }
}

/// Goal: a cache that is named by a relative path is the same for all programs, and keeps what is fetched. Method: programs in the place of apt's
/// that look for it; the tests cannot be built.
#[test]
fn a_kernel_is_fetched_into_a_relative_cache() {
    if !Path::new("/usr/share/keyrings/debian-archive-keyring.gpg").exists() {
        return headwater_testkit::skip("there are no keys of Debian's");
    }
    let host = Host::new();
    let find =
        "for option; do case $option in Dir::State::Lists=*) [ -d \"${option#*=}\" ] || exit 1; esac; done";
    host.stand_in(QEMU, ANSWERS_VERSION);
    host.stand_in("apt-cache", "echo 'Depends: linux-image-1-amd64'");
    host.stand_in("apt-get", &format!("{find}\n: > linux.deb"));
    let modules = "$3/lib/modules/1";
    let unpack = format!(
        "mkdir -p $3/boot {modules}; : > $3/boot/vmlinuz-1; echo '{BUILTIN}' > {modules}/modules.builtin"
    );
    host.stand_in("dpkg-deb", &unpack);
    host.stand_in("cargo", "exit 1");
    let mut command = host.command("old-kernel");
    let output = command.current_dir(host.place.path()).args(["--cache-dir", "cache"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cargo did not build the tests"),
        "{said}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let cache = host.place.path().join("cache");
    assert!(cache.join("linux-image-bookworm/vmlinuz").exists(), "{said}");
    assert_eq!(folders(&cache).len(), 2, "the kernel and apt's lists: {:?}", folders(&cache));
}

/// Those that end a run in practice. A shell that starts this in the background has it ignore some of them, and so what it starts.
fn ending_signals() -> impl Iterator<Item = Signal> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let ignored = u64::from_str_radix(mask, 16).unwrap();
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::KILL];
    signals.into_iter().filter(move |signal| ignored >> (signal.as_raw() - 1) & 1 == 0)
}

/// A run that appends to a file for minutes.
fn long_run(place: &Path) -> Child {
    let child = run(place, "60").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.unwrap()
}

fn run(place: &Path, seconds: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-bench"));
    command.args(["log", "--only", "log-1", "--seconds", seconds, "--dir"]).arg(place);
    command
}

fn folders(place: &Path) -> Vec<PathBuf> {
    place.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Whether there is something in all of them.
fn has_file(place: &Path) -> bool {
    let folders = folders(place);
    let is_used = |folder: &PathBuf| folder.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    !folders.is_empty() && folders.iter().all(is_used)
}

/// Those that were started with a path in this folder and have not ended.
fn processes_of(place: &Path) -> Vec<PathBuf> {
    let place = place.to_str().unwrap();
    let is_meant = |process: &PathBuf| {
        let command = std::fs::read_to_string(process.join("cmdline"));
        command.is_ok_and(|command| command.contains(place))
    };
    Path::new("/proc").read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(is_meant).collect()
}

/// The processes that wait for the end of this one.
fn guards_of(parent: &Child) -> Vec<Pid> {
    let parent = format!("PPid:\t{}\n", parent.id());
    let is_guard = |process: &PathBuf| {
        let read = |name| std::fs::read_to_string(process.join(name)).unwrap_or_default();
        read("status").contains(&parent) && read("cmdline").contains("folder-guard")
    };
    let processes = Path::new("/proc").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let pid = |process: PathBuf| Pid::from_raw(process.file_name()?.to_str()?.parse().ok()?);
    let guards: Vec<Pid> = processes.filter(is_guard).filter_map(pid).collect();
    assert!(guards.iter().all(|&guard| test_kill_process(guard).is_ok()), "they run");
    guards
}

#[track_caller]
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_there() {
        assert!(started.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(PAUSE);
    }
}

/// Kills the command once its stand-in stays: no file of its run and no process of it is there any more.
fn assert_vanishes(host: &Host, mut command: Command, signal: Signal) {
    let before = host.kernels();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for("what never ends", || host.place.path().join("stays").exists());
    kill_process(Pid::from_child(&child), signal).unwrap();
    assert!(!child.wait().unwrap().success(), "{signal:?} ends it");
    wait_for("the removal", || host.cached() == before);
    wait_for("the end of all", || processes_of(host.place.path()).is_empty());
}

/// A place with a cache, and programs that take the place of those that a guest needs.
struct Host {
    place: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let host = Host { place: tempfile::tempdir().unwrap() };
        for folder in ["bin", "cache", "modules", "io/src"] {
            std::fs::create_dir_all(host.place.path().join(folder)).unwrap();
        }
        host.write("modules/modules.builtin", BUILTIN);
        host.write("vmlinuz", "");
        let fifo = host.place.path().join("never");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        // This program with debug information takes seconds to be stripped and copied.
        host.stand_in("strip", ": > \"$2\"");
        host.stand_in("ldd", "");
        host
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.place.path().join(name), text).unwrap();
    }

    /// A program that is found before the one of this name. Its place is in `$place`.
    fn stand_in(&self, name: &str, script: &str) {
        let path = self.place.path().join("bin").join(name);
        let place = self.place.path().display();
        std::fs::write(&path, format!("#!/bin/sh\nplace='{place}'\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// All that `old-kernel` takes but QEMU: a kernel in the cache, the tests of a package, tools.
    fn prepare_old_kernel(&self) {
        std::fs::create_dir_all(self.place.path().join("cache/linux-image-bookworm/modules")).unwrap();
        self.write("cache/linux-image-bookworm/vmlinuz", "");
        self.write("cache/linux-image-bookworm/modules/modules.builtin", BUILTIN);
        let artifact = serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": self.place.path().join("io/Cargo.toml"),
            "target": { "kind": ["lib"], "name": "headwater_io" },
            "profile": { "test": true },
            "executable": self.place.path().join("vmlinuz"),
        });
        self.stand_in("cargo", &format!("echo '{artifact}'"));
        // Some of them are not everywhere; none is started.
        for tool in ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "losetup", "fallocate"] {
            self.stand_in(tool, "");
        }
    }

    fn guest(&self) -> Command {
        let mut command = self.command("guest");
        command.arg("--kernel").arg(self.place.path().join("vmlinuz"));
        command.arg("--modules").arg(self.place.path().join("modules"));
        command.arg("--cache-dir").arg(self.place.path().join("cache"));
        command
    }

    fn old_kernel(&self) -> Command {
        let mut command = self.command("old-kernel");
        command.args(["--only", "io lib", "--cache-dir"]).arg(self.place.path().join("cache"));
        command
    }

    fn command(&self, name: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-bench"));
        command.args([name, "--require"]).env("CARGO", self.place.path().join("bin/cargo"));
        command.env("XDG_CACHE_HOME", self.place.path().join("caches"));
        command.env("PATH", format!("{}:{path}", self.place.path().join("bin").display()));
        command
    }

    /// What is in the caches, those that are named and those that are not.
    fn cached(&self) -> Vec<PathBuf> {
        let caches = ["cache", "caches/headwater-guest"].map(|cache| self.place.path().join(cache));
        caches.iter().filter(|cache| cache.exists()).flat_map(|cache| folders(cache)).collect()
    }

    /// What stays in them.
    fn kernels(&self) -> Vec<PathBuf> {
        let is_kernel = |path: &PathBuf| path.ends_with("linux-image-bookworm");
        self.cached().into_iter().filter(is_kernel).collect()
    }
}

const QEMU: &str = "qemu-system-x86_64";

const ANSWERS_VERSION: &str = "[ \"$1\" = --version ] && exit 0";

/// The file for the console is what QEMU's last option has.
const FINDS_CONSOLE: &str = "\nfor console; do :; done; console=${console#file:}";

/// Nothing is ever written there. A shell that waits for it has no child.
const STAYS: &str = "\n: > \"$place/stays\"\n: < \"$place/never\"";

/// All modules that guests need.
const BUILTIN: &str = "kernel/nvme.ko\nkernel/virtio_pci.ko\nkernel/virtio_blk.ko\nkernel/crc32c_generic.ko\nkernel/ext4.ko\n\
                       kernel/xfs.ko\nkernel/btrfs.ko\nkernel/loop.ko\nkernel/overlay.ko\nkernel/dm_log_writes.ko\n";

/// A busy machine may take long to start a process.
const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(5);
