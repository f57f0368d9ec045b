//! Copy: every byte, every hole, and nothing but the old file or the whole new one.
//!
//! Owns: contents against the pattern, what is refused and how that is said, what is left behind.
//! Does not own: speed.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use headwater::ByteRange;
use headwater::testing::resident_pages;
use headwater_testkit::{
    FileSystem, LoopMount, PATIENCE, Pattern, ScratchDir, forbid_nameless_files, make_cold,
    run_self_with_env, scratch_dirs, skip, small_tmpfs, tmpfs,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{assert_one_line, copy_command, headwater, run, text, utf8};

const PATTERN: Pattern = Pattern::new(33);

const LENGTHS: [u64; 9] =
    [0, 1, 4095, 4096, (1 << 20) - 1, (1 << 20) + 1, (2 << 20) + 512, 5 << 20, (37 << 20) + 777];

pub(crate) fn scratch() -> ScratchDir {
    ScratchDir::on_target().unwrap()
}

pub(crate) fn copy(arguments: &[&str]) -> String {
    let output = run(&[&["cp"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    text(&output.stdout)
}

fn assert_pattern(path: &Path, length: u64) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, length, "{}", path.display());
    assert_eq!(PATTERN.mismatch(0, &bytes), None, "{}", path.display());
}

pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "lost+found");
    names.sort();
    names
}

/// A file of the pattern, and a place for its copy.
pub(crate) fn paths(scratch: &ScratchDir, length: u64) -> (PathBuf, PathBuf) {
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    PATTERN.write_file(&from, length).unwrap();
    (from, to)
}

/// Goal: exact bytes. Method: lengths around every boundary × warm and cold × new and old destination × drivers.
#[test]
fn bytes_are_exact() {
    let scratch = scratch();
    for length in LENGTHS {
        let (from, to) = paths(&scratch, length);
        for options in [&[][..], &["--driver", "threads"], &["--queue-depth", "1"], &["--sparse", "never"]] {
            // Written by the kernel when it likes, and directly.
            for sync in [&[][..], &["--sync"]] {
                make_cold(&File::open(&from).unwrap()).unwrap();
                copy(&[options, sync, &[utf8(&from), utf8(&to)]].concat());
                assert_pattern(&to, length);
            }
        }
        fs::read(&from).unwrap();
        copy(&["--sync", utf8(&from), utf8(&to)]);
        assert_pattern(&to, length);
    }
    assert_eq!(names_in(scratch.path()), ["from", "to"]);
}

/// Goal: a small copy is left to the kernel, one that is synced is not, and neither brings the source into the page cache. Method: the
/// pages that are there afterwards.
#[test]
fn a_small_copy_is_left_to_the_kernel() {
    let (scratch, length) = (scratch(), 5 << 20);
    let (from, to) = paths(&scratch, length);
    let pages = |path: &Path| resident_pages(File::open(path).unwrap().as_fd(), ByteRange::new(0, length));
    if rustix::system::sysinfo().freeram < 100 << 20 || pages(&from).is_none() {
        return skip("too little free memory, or none of the kernel's counts");
    }
    for (sync, wanted) in [(&[][..], length / 4096), (&["--sync"], 0)] {
        make_cold(&File::open(&from).unwrap()).unwrap();
        copy(&[sync, &[utf8(&from), utf8(&to)]].concat());
        assert_eq!((pages(&from), pages(&to)), (Some(0), Some(wanted)), "{sync:?}");
    }
}

/// Goal: the same on every file system there is, from and to itself and the default one; verified where asked.
#[test]
fn bytes_are_exact_on_every_file_system() {
    let other = scratch();
    for (name, scratch) in scratch_dirs() {
        let length = (5 << 20) + 777;
        let (from, to) = paths(&scratch, length);
        for reflink in ["auto", "never"] {
            make_cold(&File::open(&from).unwrap()).unwrap();
            let said = copy(&[&format!("--reflink={reflink}"), "--verify", "--sync", utf8(&from), utf8(&to)]);
            assert_pattern(&to, length);
            let memory = name == "tmpfs";
            let from_where = if memory { "no direct I/O" } else { "from their devices" };
            assert!(said.contains("5.0 MiB agree with") && said.contains(from_where), "{name}: {said}");
        }
        let away = other.path().join("away");
        copy(&[utf8(&from), utf8(&away)]);
        assert_pattern(&away, length);
        copy(&[utf8(&away), utf8(&to)]);
        assert_pattern(&to, length);
        assert_eq!(names_in(scratch.path()), ["from", "to"], "{name}");
    }
}

/// Goal: holes stay holes, wherever they are, and are written out if asked. Method: blocks counted, source and copy.
#[test]
fn holes_stay_holes() {
    const MIB: u64 = 1 << 20;
    let layouts: [&[(u64, u64)]; 5] = [
        &[(4 * MIB, MIB)],
        &[(0, MIB), (8 * MIB, MIB + 4096), (15 * MIB, 4096)],
        &[(0, 4096), (64 << 10, 4096), (5 * MIB, 8192)],
        &[(16 * MIB + 700, 77)],
        &[],
    ];
    let length = 16 * MIB + 777;
    for (name, scratch) in scratch_dirs() {
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        for layout in layouts {
            let file = File::create(&from).unwrap();
            file.set_len(length).unwrap();
            for &(offset, bytes) in layout {
                let mut part = vec![0; bytes as usize];
                PATTERN.fill(offset, &mut part);
                file.write_all_at(&part, offset).unwrap();
            }
            make_cold(&file).unwrap();
            let allocated =
                |path: &Path| File::open(path).and_then(|file| file.sync_all()).map(|()| blocks(path));
            for reflink in ["never", "auto"] {
                copy(&[&format!("--reflink={reflink}"), utf8(&from), utf8(&to)]);
                assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap(), "{name}, {layout:?}");
                let (ours, theirs) = (allocated(&to).unwrap(), allocated(&from).unwrap());
                assert!(ours <= theirs + SLACK_BLOCKS, "{name}, {layout:?}: {ours} blocks of {theirs}");
            }
            copy(&["--sparse", "never", utf8(&from), utf8(&to)]);
            assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap(), "{name}, {layout:?}");
            assert!(allocated(&to).unwrap() * 512 >= length, "{name}, {layout:?}");
        }
    }
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks()
}

/// File systems allocate up to 64 KiB at once, and count what describes the extents.
const SLACK_BLOCKS: u64 = 256;

#[test]
fn into_a_directory() {
    let scratch = scratch();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
    PATTERN.write_file(&one, 1000).unwrap();
    PATTERN.write_file(&two, 3 << 20).unwrap();
    copy(&[utf8(&one), utf8(&two), utf8(&place)]);
    assert_pattern(&place.join("one"), 1000);
    assert_pattern(&place.join("two"), 3 << 20);
    assert_eq!(names_in(&place), ["one", "two"]);
    let again = run(&["cp", utf8(&one), utf8(&place.join("one")), utf8(&place)]);
    assert_one_line(&again, "is the same file");
    let other = scratch.path().join("other");
    fs::create_dir(&other).unwrap();
    let twice = run(&["cp", utf8(&one), utf8(&place.join("one")), utf8(&other)]);
    assert_one_line(&twice, "was just made of another source");
    assert_pattern(&other.join("one"), 1000);
}

/// Goal: permissions always, times if asked, no rights of others ever.
#[test]
fn permissions_and_times() {
    let scratch = scratch();
    let (from, to) = paths(&scratch, 5000);
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_007);
    File::options().write(true).open(&from).unwrap().set_modified(then).unwrap();
    for mode in [0o640, 0o755, 0o600, 0o4755] {
        fs::set_permissions(&from, fs::Permissions::from_mode(mode)).unwrap();
        copy(&[utf8(&from), utf8(&to)]);
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, mode & 0o777);
    }
    assert_ne!(fs::metadata(&to).unwrap().modified().unwrap(), then);
    copy(&["--preserve", utf8(&from), utf8(&to)]);
    assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), then);
    // The setuid bit is kept where the copy has the same owner, as here.
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o4755);
    copy(&["--preserve=timestamps", utf8(&from), utf8(&to)]);
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), then);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&from, Some(12345), None).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o4755)).unwrap();
        copy(&["--preserve=mode", utf8(&from), utf8(&to)]);
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o755);
        copy(&["-a", utf8(&from), utf8(&to)]);
        let copied = fs::metadata(&to).unwrap();
        assert_eq!((copied.uid(), copied.mode() & 0o7777), (12345, 0o4755));
    }
}

/// Goal: the process's mask takes permissions as it does from every new file; with --preserve it does not, and extended attributes go
/// with the copy.
#[test]
fn the_mask_and_extended_attributes() {
    let scratch = scratch();
    let (from, to) = paths(&scratch, 5000);
    fs::set_permissions(&from, fs::Permissions::from_mode(0o775)).unwrap();
    let value = [b"value", &[b'x'; 300][..]].concat();
    let is_kept =
        rustix::fs::setxattr(&from, "user.headwater", &value, rustix::fs::XattrFlags::empty()).is_ok();
    let extended = || {
        let mut found = [0; 1000];
        rustix::fs::getxattr(&to, "user.headwater", &mut found).ok().map(|length| found[..length].to_vec())
    };
    let masked = |options: &[&str]| {
        let script = "umask 027; exec \"$0\" cp \"$@\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_headwater")]).args(options);
        assert!(shell.args([&from, &to]).status().unwrap().success());
        fs::metadata(&to).unwrap().mode() & 0o7777
    };
    assert_eq!((masked(&[]), extended()), (0o750, None));
    assert_eq!(masked(&["--preserve"]), 0o775);
    if !is_kept {
        return skip("no extended attributes here");
    }
    assert_eq!(extended(), Some(value));
}

/// Goal: blocks are shared where they can be, and an error where they must be and cannot.
#[test]
fn reflinks() {
    let mount = match LoopMount::new(FileSystem::Btrfs, 200 << 20) {
        Ok(mount) => mount,
        Err(reason) => return skip(reason),
    };
    let (from, to) = (mount.path().join("from"), mount.path().join("to"));
    // Twice that does not fit, so it is shared or it fails.
    let length = 80 << 20;
    PATTERN.write_file(&from, length).unwrap();
    for _ in 0..3 {
        copy(&["--reflink=always", utf8(&from), utf8(&to)]);
        copy(&[utf8(&from), utf8(&mount.path().join("another"))]);
    }
    assert_pattern(&to, length);
    let scratch = scratch();
    let away = scratch.path().join("away");
    let refused = run(&["cp", "--reflink=always", utf8(&from), utf8(&away)]);
    assert_one_line(&refused, "its blocks cannot be shared with the source");
    assert!(names_in(scratch.path()).is_empty());
}

#[test]
fn what_cannot_be_copied_gets_one_line() {
    let scratch = scratch();
    let (from, to) = paths(&scratch, 100);
    let (folder, fifo) = (scratch.path().join("folder"), scratch.path().join("fifo"));
    fs::create_dir_all(folder.join("from")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let (link, nowhere) = (scratch.path().join("link"), scratch.path().join("no/where"));
    std::os::unix::fs::symlink("missing", &link).unwrap();
    let trailing = format!("{}/", utf8(&to));
    let (from, fifo, folder) = (utf8(&from), utf8(&fifo), utf8(&folder));
    let cases: [(&[&str], &str); 11] = [
        (&[from], "a destination has to follow"),
        (&["/nowhere", "to"], "failed to open /nowhere: No such file"),
        (&[folder, "to"], "it is a directory"),
        (&[from, from], "is the same file"),
        (&[from, folder], "failed to replace"),
        (&[from, fifo], "it is a FIFO or socket"),
        (&[from, "/dev/null"], "it is a device"),
        (&[from, utf8(&nowhere)], "no: No such file"),
        (&[from, &trailing], "there is no such directory"),
        (&[from, utf8(&link)], "a symbolic link that leads nowhere"),
        (&[from, from, utf8(&to)], "it is not a directory"),
    ];
    for (arguments, named) in cases {
        assert_one_line(&run(&[&["cp"], arguments].concat()), named);
    }
    assert_eq!(names_in(scratch.path()), ["fifo", "folder", "from", "link"]);
}

/// Goal: a link is followed, further names keep the old contents only by force.
#[test]
fn links() {
    let scratch = scratch();
    let (from, to) = paths(&scratch, 3 << 20);
    let (link, name) = (scratch.path().join("link"), scratch.path().join("name"));
    fs::write(&to, "old").unwrap();
    std::os::unix::fs::symlink("to", &link).unwrap();
    copy(&[utf8(&from), utf8(&link)]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_pattern(&to, 3 << 20);
    fs::write(&to, "old").unwrap();
    fs::hard_link(&to, &name).unwrap();
    assert_one_line(&run(&["cp", utf8(&from), utf8(&to)]), "it is one of 2 names of a file");
    copy(&["--force", utf8(&from), utf8(&to)]);
    assert_pattern(&to, 3 << 20);
    assert_eq!(fs::read(&name).unwrap(), b"old");
}

/// Goal: what one may not write or read is refused, and replaced only by force. Method: as nobody, which only root can
/// become.
#[test]
fn rights() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become somebody else");
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let binary = place.path().join("headwater");
    copy_command(&binary);
    let (from, to, closed) =
        (place.path().join("from"), place.path().join("to"), place.path().join("closed"));
    PATTERN.write_file(&from, 5000).unwrap();
    fs::write(&to, "old").unwrap();
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o444)).unwrap();
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new(&binary);
        command.arg("cp").args(arguments).uid(65534).gid(65534).output().unwrap()
    };
    assert_one_line(&nobody(&[utf8(&from), utf8(&to)]), "it is write-protected; --force replaces it");
    assert_eq!(fs::read(&to).unwrap(), b"old");
    let output = nobody(&["--force", utf8(&from), utf8(&to)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_pattern(&to, 5000);
    assert_one_line(&nobody(&[utf8(&from), utf8(&closed)]), "Permission denied");
    fs::set_permissions(&from, fs::Permissions::from_mode(0o000)).unwrap();
    assert_one_line(&nobody(&[utf8(&from), utf8(&place.path().join("x"))]), "Permission denied");
    assert_eq!(names_in(place.path()), ["closed", "from", "headwater", "to"]);
}

/// Goal: a full file system leaves the old destination and nothing else, and how much is missing is said.
#[test]
fn no_room() {
    for kind in [FileSystem::Ext4, FileSystem::Btrfs, FileSystem::Xfs] {
        assert_no_room(kind);
    }
}

fn assert_no_room(kind: FileSystem) {
    let mount = match LoopMount::new(kind, 16 << 20) {
        Ok(mount) => mount,
        Err(reason) => return skip(reason),
    };
    let scratch = scratch();
    let (from, _) = paths(&scratch, kind.size_bytes_min().max(16 << 20) + (8 << 20));
    let (old, new) = (mount.path().join("old"), mount.path().join("new"));
    fs::write(&old, "old").unwrap();
    for target in [&old, &new] {
        let output = run(&["cp", utf8(&from), utf8(target)]);
        assert_one_line(&output, "no space left in ");
        // What the copy itself had taken when it failed is not missing: more than the file system has, but not all of the file.
        let [needed, free, missing] = sizes(&text(&output.stderr));
        assert_eq!(needed, fs::metadata(&from).unwrap().len(), "{}", text(&output.stderr));
        let size = kind.size_bytes_min().max(16 << 20);
        assert!((size / 4..=size).contains(&free), "{free} of {size} bytes: {}", text(&output.stderr));
        assert!(missing.abs_diff(needed - free) <= needed / 50, "{}", text(&output.stderr));
    }
    assert_eq!(fs::read(&old).unwrap(), b"old");
    assert_eq!(names_in(mount.path()), ["old"], "{kind:?}");
    // What was taken for it is free again.
    PATTERN.write_file(&new, 1 << 20).unwrap();
}

/// The three sizes of "… are needed, … are free, … are missing", in bytes.
fn sizes(text: &str) -> [u64; 3] {
    [" are needed", " are free", " are missing"].map(|what| {
        let words: Vec<&str> = text.split(what).next().unwrap().rsplitn(3, ' ').collect();
        let (unit, number) = (words[0], words[1].trim_start_matches([':', ',']));
        let unit_bytes = match unit {
            "MiB" => 1_u64 << 20,
            "KiB" => 1 << 10,
            _ => panic!("{unit} in {text}"),
        };
        (number.parse::<f64>().unwrap() * unit_bytes as f64) as u64
    })
}

/// Goal: a small file of which the file system has room for a part is not half a copy. Method: a file that is short enough to be
/// written by one system call, which writes as many pages as there are.
#[test]
fn room_for_a_part() {
    let small = match small_tmpfs(100 << 10) {
        Ok(small) => small,
        Err(reason) => return skip(reason),
    };
    let scratch = scratch();
    let (from, _) = paths(&scratch, 200_000);
    let output = run(&["cp", utf8(&from), utf8(&small.path().join("to"))]);
    assert_one_line(&output, "no space left in ");
    assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0);
}

/// Goal: interrupted, it leaves the old destination or the whole new one. Method: a signal as soon as the file without a
/// name is open.
#[test]
fn interrupted() {
    assert_interruptible(Meanwhile::Nameless);
}

/// Goal: the same where files need names: copies are whole, and neither errors nor signals leave anything. Method: this
/// test again, in a child that may make none without.
#[test]
fn without_nameless_files() {
    const CHILD: &str = "HEADWATER_CP_NAMED";
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("cp::without_nameless_files", CHILD, "1");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    forbid_nameless_files();
    let scratch = scratch();
    let (from, to) = paths(&scratch, (5 << 20) + 777);
    for _ in 0..2 {
        copy(&["--sync", "--verify", utf8(&from), utf8(&to)]);
        assert_pattern(&to, (5 << 20) + 777);
    }
    assert_eq!(names_in(scratch.path()), ["from", "to"]);
    // A name that looks as an option does.
    fs::create_dir(scratch.path().join("-d")).unwrap();
    let output =
        headwater().args(["cp", "--", "from", "-d/to"]).current_dir(scratch.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_pattern(&scratch.path().join("-d/to"), (5 << 20) + 777);
    assert_interruptible(Meanwhile::Named);
    assert_no_room(FileSystem::Ext4);
}

/// What the copy is called before it is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    Nameless,
    Named,
}

fn assert_interruptible(meanwhile: Meanwhile) {
    let scratch = scratch();
    let place = scratch.path().join("place");
    fs::create_dir(&place).unwrap();
    let (from, to) = (scratch.path().join("from"), place.join("to"));
    let length = 1 << 30;
    File::create(&from).unwrap().set_len(length).unwrap();
    for signal in [Signal::INT, Signal::KILL] {
        fs::write(&to, "old").unwrap();
        let arguments = ["cp", "--sparse", "never", utf8(&from), utf8(&to)];
        let mut child = headwater().args(arguments).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while !writes_in(&place, child.id()) && child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < PATIENCE);
        }
        let seen = names_in(&place);
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&child), signal);
        let ended = child.wait().unwrap();
        // What has a name is removed by another process.
        while names_in(&place) != ["to"] {
            assert!(started.elapsed() < PATIENCE, "{:?}", names_in(&place));
        }
        let is_named = seen.iter().any(|name| name.starts_with(".to.headwater-"));
        assert!(ended.success() || is_named == (meanwhile == Meanwhile::Named), "{meanwhile:?}: {seen:?}");
        let expected = if ended.success() { length } else { 3 };
        assert_eq!(fs::metadata(&to).unwrap().len(), expected);
    }
}

/// Whether the data itself is on its way: the file has been opened a second time, for direct I/O.
fn writes_in(place: &Path, process: u32) -> bool {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.starts_with(place)).count() > 1
}

/// Goal: a file with a name goes with the process that made it, unless that says otherwise.
#[test]
fn the_guard_removes_what_is_unfinished() {
    let scratch = scratch();
    let path = scratch.path().join("unfinished");
    for word in [&b""[..], b"."] {
        fs::write(&path, "half").unwrap();
        let mut guard =
            headwater().args(["cp-guard", "--"]).arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut guard.stdin.take().unwrap(), word).unwrap();
        assert!(guard.wait().unwrap().success());
        assert_eq!(path.exists(), !word.is_empty());
    }
}

/// Goal: the guard starts also where the command was replaced by another version while it ran. Method: a copy of the command that waits for
/// what it copies when its file goes.
#[test]
fn the_guard_is_of_the_command_that_runs() {
    const CHILD: &str = "HEADWATER_CP_REPLACED";
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("cp::the_guard_is_of_the_command_that_runs", CHILD, "1");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    forbid_nameless_files();
    let scratch = scratch();
    let (binary, fifo) = (scratch.path().join("headwater"), scratch.path().join("fifo"));
    copy_command(&binary);
    let running = binary.canonicalize().unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let mut child = Command::new(&binary)
        .args(["cp", "fifo", "to"])
        .current_dir(scratch.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|program| program == running) {
        assert!(started.elapsed() < PATIENCE);
    }
    fs::remove_file(&binary).unwrap();
    fs::write(&fifo, "contents").unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert_eq!(fs::read(scratch.path().join("to")).unwrap(), b"contents");
    assert_eq!(names_in(scratch.path()), ["fifo", "to"]);
}

/// Goal: files that say they are empty and are not; a block device to its end.
#[test]
fn other_sources() {
    let scratch = scratch();
    let to = scratch.path().join("to");
    copy(&["/proc/version", utf8(&to)]);
    assert_eq!(fs::read(&to).unwrap(), fs::read("/proc/version").unwrap());
    let image = scratch.path().join("image");
    let length = (3 << 20) + 512;
    PATTERN.write_file(&image, length).unwrap();
    let attached = Command::new("losetup").args(["--find", "--show", utf8(&image)]).output();
    let device = match attached {
        Ok(output) if output.status.success() => text(&output.stdout).trim().to_owned(),
        _ => return skip("no loop devices"),
    };
    let output = run(&["cp", &device, utf8(&to)]);
    assert!(Command::new("losetup").args(["--detach", &device]).status().unwrap().success());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_pattern(&to, length);
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o600);
}

/// Goal: what lies in memory is copied through the kernel, and no room is said there too.
#[test]
fn in_memory() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let (from, to) = paths(&scratch, (9 << 20) + 5);
    copy(&[utf8(&from), utf8(&to)]);
    assert_pattern(&to, (9 << 20) + 5);
    assert_eq!(names_in(scratch.path()), ["from", "to"]);
}
