//! Cat: every byte, whatever is cached and wherever it goes.
//!
//! Owns: contents against the pattern, order, exit codes.
//! Does not own: speed.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use headwater::ByteRange;
use headwater::ring::{Access, DirectIo, OpenFile};
use headwater_testkit::{Pattern, ScratchDir, kernel_readahead_bytes, lack, make_cold, scratch_dirs};

use crate::{assert_one_line, copy_command, headwater, run, text, utf8};

const PATTERN: Pattern = Pattern::new(21);

const LENGTHS: [u64; 10] =
    [0, 1, 4095, 4096, 4097, (128 << 10) + 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (5 << 20) + 777];

const MODES: [&str; 3] = ["auto", "direct", "buffered"];

#[derive(Clone, Copy, Debug)]
enum Cached {
    All,
    Nothing,
    EverySecondQuarter,
}

#[derive(Clone, Copy, Debug)]
enum Into {
    Pipe,
    File,
    Appended,
}

fn prepare(path: &Path, length_bytes: u64, cached: Cached) {
    PATTERN.write_file(path, length_bytes).unwrap();
    let file = File::open(path).unwrap();
    let mut all = Vec::new();
    match cached {
        Cached::All => drop((&file).read_to_end(&mut all).unwrap()),
        Cached::Nothing => make_cold(&file).unwrap(),
        Cached::EverySecondQuarter => {
            make_cold(&file).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
            let quarter_bytes = length_bytes / 4;
            for quarter in [0, 2] {
                let mut part = vec![0; quarter_bytes as usize];
                file.read_exact_at(&mut part, quarter * quarter_bytes).unwrap();
            }
        }
    }
}

/// What arrives, with `before` in front of it where the output already had contents.
fn copy(command: &mut Command, into: Into, scratch: &Path) -> Vec<u8> {
    let target = scratch.join("out");
    fs::write(&target, "before").unwrap();
    let stdout = match into {
        Into::Pipe => Stdio::piped(),
        Into::File => File::create(&target).unwrap().into(),
        Into::Appended => OpenOptions::new().append(true).open(&target).unwrap().into(),
    };
    let output = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    match into {
        Into::Pipe => output.stdout,
        Into::File => fs::read(&target).unwrap(),
        Into::Appended => fs::read(&target).unwrap().split_off("before".len()),
    }
}

fn assert_copies(scratch: &Path, modes: &[&str], environment: Option<(&str, &str)>, lengths: &[u64]) {
    let path = scratch.join("in");
    for &length in lengths {
        for cached in [Cached::All, Cached::Nothing, Cached::EverySecondQuarter] {
            for &mode in modes {
                for into in [Into::Pipe, Into::File, Into::Appended] {
                    prepare(&path, length, cached);
                    let mut command = headwater();
                    command.args(["cat", "--io", mode]).arg(&path).envs(environment);
                    let arrived = copy(&mut command, into, scratch);
                    let case = format!("{length} bytes, {cached:?}, {mode}, {into:?}");
                    assert_eq!(arrived.len() as u64, length, "{case}");
                    assert_eq!(PATTERN.mismatch(0, &arrived), None, "{case}");
                }
            }
        }
    }
}

fn scratch() -> ScratchDir {
    ScratchDir::on_target().unwrap()
}

fn file_in(scratch: &ScratchDir, name: &str, contents: &[u8]) -> PathBuf {
    let path = scratch.path().join(name);
    fs::write(&path, contents).unwrap();
    path
}

/// Goal: exact bytes. Method: lengths around every boundary × modes × what is cached × kinds of output.
#[test]
fn bytes_are_exact() {
    assert_copies(scratch().path(), &MODES, None, &LENGTHS);
}

/// Goal: a file of which another program has read the beginning does not come through the page cache for that. Method: what the kernel
/// has of it afterwards.
#[test]
fn the_page_cache_keeps_what_it_had() {
    const LENGTH_BYTES: u64 = 60_000_000;
    const AHEAD_BYTES_MAX: u64 = 16 << 20;
    let scratch = scratch();
    let path = scratch.path().join("in");
    prepare(&path, LENGTH_BYTES, Cached::Nothing);
    let open = OpenFile::open(&path, DirectIo::Off, Access::Read).unwrap();
    let kernel_pages = || open.resident_pages(ByteRange::new(0, LENGTH_BYTES));
    if kernel_pages().is_none() {
        return lack("the kernel has no cachestat (before Linux 6.5)");
    }
    if kernel_readahead_bytes(&path).is_none_or(|bytes| bytes > AHEAD_BYTES_MAX) {
        return lack("a kernel that reads at most 16 MiB ahead");
    }
    File::open(&path).unwrap().read_exact(&mut vec![0; 1_000_000]).unwrap();
    let before = kernel_pages().unwrap();
    let arrived = copy(headwater().arg("cat").arg(&path), Into::Pipe, scratch.path());
    assert_eq!((arrived.len() as u64, PATTERN.mismatch(0, &arrived)), (LENGTH_BYTES, None));
    // Others may make the kernel drop pages.
    let more = kernel_pages().unwrap().saturating_sub(before);
    assert!(more <= AHEAD_BYTES_MAX / 4096, "{more} pages more than {before}");
}

/// Goal: the same on every file system there is; tmpfs has no direct I/O.
#[test]
fn bytes_are_exact_on_every_file_system() {
    for (name, scratch) in scratch_dirs() {
        let modes = if name == "tmpfs" { &["auto", "buffered"][..] } else { &MODES[..] };
        assert_copies(scratch.path(), modes, None, &[4097, (5 << 20) + 777]);
    }
}

/// Goal: exact bytes without a ring.
#[test]
fn bytes_are_exact_with_threads() {
    let threads = Some(("HEADWATER_DRIVER", "threads"));
    assert_copies(scratch().path(), &["auto", "direct"], threads, &[4097, (5 << 20) + 777]);
}

/// Goal: what many windows are asked about arrives whole. Method: 48 MiB, 1 to 5 MiB cached and not, in turn.
#[test]
fn a_patchwork_is_exact() {
    let scratch = scratch();
    let path = scratch.path().join("in");
    let length_bytes: u64 = 48 << 20;
    prepare(&path, length_bytes, Cached::Nothing);
    let file = File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let (mut start_bytes, mut step) = (0, 1);
    while start_bytes < length_bytes {
        let mut part = vec![0; (step << 20) - 4096];
        let read_bytes = file.read_at(&mut part, start_bytes).unwrap();
        start_bytes += 2 * read_bytes as u64 + 4096;
        step = step % 5 + 1;
    }
    let arrived = copy(headwater().arg("cat").arg(&path), Into::Pipe, scratch.path());
    assert_eq!(arrived.len() as u64, length_bytes);
    assert_eq!(PATTERN.mismatch(0, &arrived), None);
}

#[test]
fn to_dev_null() {
    let scratch = scratch();
    let path = scratch.path().join("in");
    for cached in [Cached::All, Cached::Nothing, Cached::EverySecondQuarter] {
        prepare(&path, 3 << 20, cached);
        let status = headwater().arg("cat").arg(&path).stdout(Stdio::null()).status().unwrap();
        assert!(status.success());
    }
}

/// Goal: several files and standard input, in order.
#[test]
fn files_and_standard_input_in_order() {
    let scratch = scratch();
    let (first, last) = (file_in(&scratch, "a", b"first "), file_in(&scratch, "b", b"last"));
    let mut child = headwater()
        .args(["cat", utf8(&first), "-", utf8(&last)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"middle ").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "first middle last");
}

/// Goal: standard input that is a file goes on where it stands, and stands at its end afterwards.
#[test]
fn standard_input_may_be_a_file() {
    use std::io::{Seek, SeekFrom};
    let scratch = scratch();
    for length in [1000, 3 << 20] {
        let path = scratch.path().join("in");
        prepare(&path, length, Cached::Nothing);
        let mut file = File::open(&path).unwrap();
        file.seek(SeekFrom::Start(100)).unwrap();
        let output = headwater().arg("cat").stdin(file.try_clone().unwrap()).output().unwrap();
        assert_eq!(output.stdout.len() as u64, length - 100);
        assert_eq!(PATTERN.mismatch(100, &output.stdout), None);
        assert_eq!(file.stream_position().unwrap(), length);
    }
}

#[test]
fn a_missing_file_does_not_stop_the_others() {
    let scratch = scratch();
    let (first, last) = (file_in(&scratch, "a", b"first "), file_in(&scratch, "b", b"last"));
    let output = run(&["cat", utf8(&first), "/nowhere/at/all", utf8(&last)]);
    assert_eq!(text(&output.stdout), "first last");
    assert_one_line(&output, "failed to open /nowhere/at/all: No such file");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_directory_is_an_error() {
    let scratch = scratch();
    for mode in MODES {
        let output = run(&["cat", "--io", mode, utf8(scratch.path())]);
        assert_one_line(&output, "Is a directory");
    }
}

/// Goal: a file one may not read is an error. Method: as nobody, which only root can become.
#[test]
fn no_permission_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    // Where nobody can reach both: the directory of the build may be closed to others.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (binary, secret) = (place.path().join("headwater"), place.path().join("secret"));
    copy_command(&binary);
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = Command::new(binary);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.arg("cat").arg(&secret).output().unwrap();
    assert_one_line(&output, "Permission denied");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_fifo_is_streamed() {
    let scratch = scratch();
    let path = scratch.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let mut bytes = vec![0; 300_000];
    PATTERN.fill(0, &mut bytes);
    std::thread::scope(|scope| {
        // More than the two pipes hold, so somebody has to write while the output is read.
        scope.spawn(|| File::options().write(true).open(&path).unwrap().write_all(&bytes).unwrap());
        let output = headwater().arg("cat").arg(&path).output().unwrap();
        assert!(output.stdout == bytes);
    });
}

/// Goal: endless devices work, and a reader that goes away ends cat quietly.
#[test]
fn a_broken_pipe_ends_quietly() {
    let scratch = scratch();
    let big = scratch.path().join("in");
    prepare(&big, 8 << 20, Cached::Nothing);
    for (path, mode) in
        [("/dev/zero", "auto"), (utf8(&big), "auto"), (utf8(&big), "direct"), (utf8(&big), "buffered")]
    {
        let mut child = headwater()
            .args(["cat", "--io", mode, path])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut head = vec![0; 100_000];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut head).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{path}");
        assert_eq!(output.status.code(), Some(141), "{path}: as a shell shows SIGPIPE");
    }
}

/// Goal: a device that is full is an error of the output, said once.
#[test]
fn a_full_device_is_an_error() {
    let scratch = scratch();
    let path = scratch.path().join("in");
    for (length, cached) in [(10, Cached::All), (3 << 20, Cached::All), (3 << 20, Cached::Nothing)] {
        prepare(&path, length, cached);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = headwater().arg("cat").arg(&path).arg(&path).stdout(full).output().unwrap();
        assert_one_line(&output, "failed to write to standard output: No space left");
    }
}

/// Goal: files that say they are empty and are not.
#[test]
fn proc_files_have_contents() {
    for mode in MODES {
        let output = run(&["cat", "--io", mode, "/proc/self/status", "/proc/version"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with("Name:\theadwater"));
        assert!(text(&output.stdout).ends_with(&fs::read_to_string("/proc/version").unwrap()));
    }
}

/// Goal: a file is not appended to itself for ever.
#[test]
fn output_that_is_input_is_refused() {
    let scratch = scratch();
    for length in [10, 3 << 20] {
        let path = scratch.path().join("in");
        prepare(&path, length, Cached::All);
        let append = OpenOptions::new().append(true).open(&path).unwrap();
        let output = headwater().arg("cat").arg(&path).stdout(append).output().unwrap();
        assert_one_line(&output, "input file is output file");
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
    }
}
