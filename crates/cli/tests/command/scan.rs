//! Scan: every sum, every name, every page that cannot be read, and a page cache that is left as it was.
//!
//! Owns: lines against the standard tools and in both directions, order, what is refused and how that is said.
//! Does not own: speed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use headwater_testkit::{Pattern, ScratchDir, lack, make_cold, scratch_dirs, skip};
use serde_json::Value;

use crate::{assert_one_line, headwater, run, text, to_json, utf8};

const PATTERN: Pattern = Pattern::new(41);

/// Around pages, around the buffer of small files, and long enough for readahead.
const LENGTHS: [u64; 10] =
    [0, 1, 4095, 4096, 4097, 70_000, 256 << 10, (256 << 10) + 1, (3 << 20) + 777, (9 << 20) + 4096];

fn scratch() -> ScratchDir {
    ScratchDir::on_target().unwrap()
}

/// A tree of files whose names are in order, with those that have to be escaped.
fn make_tree(scratch: &Path) -> PathBuf {
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("b/deep")).unwrap();
    for (index, length) in LENGTHS.into_iter().enumerate() {
        PATTERN.write_file(tree.join(format!("a{index:02}")), length).unwrap();
        PATTERN.write_file(tree.join(format!("b/deep/{index:02}")), length / 2).unwrap();
    }
    for name in ["c back\\slash", "c line\nfeed", "c return\r", "  c blanks "] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::hard_link(tree.join("a03"), tree.join("d hard link")).unwrap();
    symlink("a00", tree.join("e link")).unwrap();
    symlink("..", tree.join("e loop")).unwrap();
    tree
}

fn files_in(tree: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(tree).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(|entry| entry.file_name());
    let files = entries.into_iter().flat_map(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files_in(&entry.path()),
        kind if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    });
    files.collect()
}

fn cool(tree: &Path) {
    files_in(tree).iter().for_each(|path| make_cold(&File::open(path).unwrap()).unwrap());
}

fn stdout(output: Output) -> Vec<u8> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "neither complaints nor a bar without a terminal");
    output.stdout
}

fn is_installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        lack(format!("{tool} is not installed"));
    }
    found
}

fn with_input(command: &mut Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// Goal: the standard tools print the same lines, byte by byte, and each side verifies the other's. Method: a cold tree with
/// odd names; one thread and several, one file at a time and many.
#[test]
fn lines_are_those_of_the_standard_tools() {
    let scratch = scratch();
    let tree = make_tree(scratch.path());
    for (algorithm, tool) in [("sha256", "sha256sum"), ("blake3", "b3sum"), ("xxh3", "xxh128sum")] {
        if !is_installed(tool) {
            continue;
        }
        let theirs = Command::new(tool).args(files_in(&tree)).output().unwrap();
        if text(&theirs.stdout).contains('\r') {
            lack(format!("{tool} is of the releases that do not escape carriage returns"));
            continue;
        }
        for options in [&[][..], &["--threads", "1", "--queue-depth", "1"], &["--driver", "threads"]] {
            cool(&tree);
            let arguments = [&["scan", "--hash", algorithm], options, &[utf8(&tree)]].concat();
            let ours = stdout(run(&arguments));
            assert_eq!(text(&ours), text(&theirs.stdout), "{tool} {options:?}");
            let verified = with_input(Command::new(tool).arg("-c"), &ours);
            assert!(verified.status.success(), "{tool}: {}", text(&verified.stderr));
        }
        let mut check = headwater();
        let verified = with_input(check.args(["scan", "--check", "--hash", algorithm, "-"]), &theirs.stdout);
        let verdicts = text(&stdout(verified));
        assert_eq!(verdicts.lines().count(), files_in(&tree).len());
        assert!(verdicts.lines().all(|line| line.ends_with(": OK")), "{verdicts}");
    }
}

/// Goal: every algorithm verifies its own lines, also of memory so little that everything is read ahead.
#[test]
fn sums_verify_themselves() {
    let scratch = scratch();
    let tree = make_tree(scratch.path());
    for algorithm in ["blake3", "sha256", "xxh3", "crc32c"] {
        let sums = stdout(run(&["scan", "--hash", algorithm, utf8(&tree)]));
        let options = ["scan", "--check", "--quiet", "--hash", algorithm, "--memory", "3M", "-"];
        assert_eq!(text(&stdout(with_input(headwater().args(options), &sums))), "", "{algorithm}");
    }
}

/// Goal: what has changed, is missing or has no form is told, each in its place, with exit code 1.
#[test]
fn failures_of_a_check_are_told() {
    let scratch = scratch();
    let at = |name: &str| scratch.path().join(name);
    for name in ["good", "changed", "gone"] {
        fs::write(at(name), name).unwrap();
    }
    let names = ["good", "changed", "gone"].map(at);
    let arguments: Vec<&str> =
        ["scan", "--hash", "blake3"].into_iter().chain(names.iter().map(|p| utf8(p))).collect();
    let mut sums = stdout(run(&arguments));
    sums.extend_from_slice(b"this is no line of a sum\n");
    fs::write(at("sums"), sums).unwrap();
    fs::write(at("changed"), "CHANGED").unwrap();
    fs::remove_file(at("gone")).unwrap();
    let output = run(&["scan", "--check", utf8(&at("sums"))]);
    assert_eq!(output.status.code(), Some(1));
    let [good, changed, gone] = names.each_ref().map(|path| utf8(path));
    let verdicts = format!("{good}: OK\n{changed}: FAILED\n{gone}: FAILED open or read\n");
    assert_eq!(text(&output.stdout), verdicts);
    let said = text(&output.stderr);
    for part in ["failed to open", "1 line has", "1 listed file could", "1 sum does NOT agree"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let quiet = run(&["scan", "--check", "--quiet", utf8(&at("sums"))]);
    assert_eq!(text(&quiet.stdout), verdicts.split_once('\n').unwrap().1);
    let status = run(&["scan", "--check", "--status", utf8(&at("sums"))]);
    assert_eq!((status.status.code(), text(&status.stdout)), (Some(1), String::new()));
    let other = run(&["scan", "--check", "--hash", "crc32c", utf8(&at("good"))]);
    assert_one_line(&other, "no line with a sum of CRC-32C");
    assert_eq!(other.status.code(), Some(1));
}

/// Goal: a list of an algorithm whose sums are as long is told as such, and not as files that have changed.
#[test]
fn a_list_of_another_algorithm_is_no_alarm() {
    let scratch = scratch();
    let (file, list) = (scratch.path().join("file"), scratch.path().join("sums"));
    fs::write(&file, "contents").unwrap();
    for (of, by, name) in [("sha256", "blake3", "SHA-256"), ("blake3", "sha256", "BLAKE3")] {
        fs::write(&list, stdout(run(&["scan", "--hash", of, utf8(&file)]))).unwrap();
        let output = run(&["scan", "--check", "--hash", by, utf8(&list)]);
        assert_one_line(&output, &format!("the sums are of {name}"));
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
        assert!(run(&["scan", "--check", "--hash", of, utf8(&list)]).status.success());
        let found = run(&["scan", "--check", utf8(&list)]);
        assert!(found.status.success(), "without --hash the sums say it: {}", text(&found.stderr));
    }
    for (of, by, name) in
        [("crc32c", "blake3", "CRC-32C (--hash crc32c)"), ("xxh3", "sha256", "XXH3 (--hash xxh3)")]
    {
        fs::write(&list, stdout(run(&["scan", "--hash", of, utf8(&file)]))).unwrap();
        assert_one_line(&run(&["scan", "--check", "--hash", by, utf8(&list)]), &format!("but of {name}"));
    }
    fs::write(&list, format!("MD5 ({}) = 98bf7d8c15784f0a3d63204441e1e2aa\n", utf8(&file))).unwrap();
    assert_one_line(&run(&["scan", "--check", utf8(&list)]), "but of MD5");
    fs::write(&list, format!("98bf7d8c15784f0a3d63204441e1e2aa  {}\n", utf8(&file))).unwrap();
    let untagged = run(&["scan", "--check", utf8(&list)]);
    assert!(text(&untagged.stderr).contains("another algorithm than XXH3"), "{}", text(&untagged.stderr));
}

/// Goal: a list without tags or `--hash` is verified by the algorithm that it is of, whatever is there of its first files. Method: lists of
/// both algorithms with as many digits: of a large file alone; of many files of which the first are missing, or have changed; of standard
/// input; and the JSON, which has the sums of that algorithm alone.
#[test]
fn the_algorithm_shows_when_a_file_agrees() {
    let scratch = scratch();
    let names: Vec<String> = (0..40).map(|index| format!("{index:02}")).collect();
    let check = |options: &[&str]| {
        let command = &mut headwater();
        with_input(
            command.args(["scan", "--check"]).args(options).arg("sums").current_dir(scratch.path()),
            b"in",
        )
    };
    for algorithm in ["sha256", "blake3"] {
        let sums = |names: &[&str]| {
            let command = &mut headwater();
            let command = command.args(["scan", "--hash", algorithm]).args(names).current_dir(scratch.path());
            fs::write(scratch.path().join("sums"), stdout(with_input(command, b"in"))).unwrap();
        };
        PATTERN.write_file(scratch.path().join("large"), 70_000_000).unwrap();
        for (name, said) in [("large", "large: OK\n"), ("-", "-: OK\n")] {
            sums(&[name]);
            assert_eq!(text(&stdout(check(&[]))), said, "{algorithm}");
        }
        for (is_missing, verdict) in [(true, "FAILED open or read"), (false, "FAILED")] {
            names.iter().for_each(|name| fs::write(scratch.path().join(name), name).unwrap());
            sums(&names.iter().map(String::as_str).collect::<Vec<_>>());
            for name in &names[..20] {
                let path = scratch.path().join(name);
                if is_missing { fs::remove_file(path) } else { fs::write(path, "changed") }.unwrap();
            }
            let said = text(&check(&[]).stdout);
            let expected = names.iter().enumerate().map(|(index, name)| {
                let verdict = if index < 20 { verdict } else { "OK" };
                format!("{name}: {verdict}\n")
            });
            assert_eq!(said, expected.collect::<String>(), "{algorithm}");
        }
        let document: Value = serde_json::from_slice(&check(&["--json"]).stdout).unwrap();
        assert_eq!(document["algorithm"], if algorithm == "sha256" { "SHA-256" } else { "BLAKE3" });
        let changed = text(&stdout(
            headwater()
                .args(["scan", "--hash", algorithm, "00"])
                .current_dir(scratch.path())
                .output()
                .unwrap(),
        ));
        assert_eq!(changed, format!("{}  00\n", document["files"][0]["sum"].as_str().unwrap()));
    }
    // A file that agrees with neither has changed, or is of an algorithm of others; both are named.
    fs::write(scratch.path().join("sums"), format!("{}  large\n", "0".repeat(64))).unwrap();
    let none = check(&[]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(1), "large: FAILED\n"));
    let said = text(&none.stderr);
    assert!(said.contains("than BLAKE3 or SHA-256") && said.contains("BLAKE2"), "{said}");
    let said = text(&check(&["--hash", "blake3"]).stderr);
    assert!(said.contains("than BLAKE3 or SHA-256"), "both were looked at: {said}");
}

/// Goal: the lines that the standard tools print with `--tag` are verified, and a changed file is found by them. Method: every name
/// that the tool escapes, with `--hash` and without; tags of two algorithms in one list.
#[test]
fn lines_with_tags_are_read() {
    let scratch = scratch();
    let tree = make_tree(scratch.path());
    fs::write(tree.join("f (1) = 2"), "parentheses").unwrap();
    for (tool, options, algorithm) in [
        ("sha256sum", &["--tag"][..], "sha256"),
        ("cksum", &["-a", "sha256"], "sha256"),
        ("openssl", &["dgst", "-sha256"], "sha256"),
        ("b3sum", &["--tag"], "blake3"),
        ("xxh128sum", &["--tag"], "xxh3"),
    ] {
        if !is_installed(tool) && tool != "openssl" {
            continue;
        }
        // Of these tools, not all escape names.
        let mut files = files_in(&tree);
        files.retain(|file| !utf8(file).contains(['\n', '\r', '\\']) || tool.starts_with("sha"));
        let Ok(theirs) = Command::new(tool).args(options).args(&files).output() else { continue };
        if !theirs.status.success() {
            lack(format!("{tool} has no {options:?}"));
            continue;
        }
        let list = scratch.path().join("sums");
        fs::write(&list, &theirs.stdout).unwrap();
        for arguments in [&["--hash", algorithm][..], &[]] {
            let verdicts = text(&stdout(run(&[&["scan", "--check"], arguments, &[utf8(&list)]].concat())));
            assert_eq!(verdicts.lines().count(), files.len(), "{tool}: {verdicts}");
        }
        let first = text(&theirs.stdout).lines().next().unwrap().to_owned();
        fs::write(&list, first).unwrap();
        let other = if algorithm == "sha256" { "blake3" } else { "sha256" };
        let refused = run(&["scan", "--check", "--hash", other, utf8(&list)]);
        assert_one_line(&refused, &format!("--hash {algorithm}"));
        let contents = fs::read(&files[0]).unwrap();
        fs::write(&files[0], "changed").unwrap();
        let changed = run(&["scan", "--check", utf8(&list)]);
        assert_eq!(
            text(&changed.stdout),
            format!("{}: FAILED\n", utf8(&files[0])),
            "{}",
            text(&changed.stderr)
        );
        fs::write(&files[0], contents).unwrap();
    }
}

/// Goal: a list is verified while it is read, and is not held in memory. Method: a pipe that is written to only after the verdict of the
/// lines before it was read; a list larger than the memory that the process may have.
#[test]
fn lists_of_any_length_are_streamed() {
    let scratch = scratch();
    let file = scratch.path().join("file");
    fs::write(&file, "contents").unwrap();
    let line = stdout(run(&["scan", "--hash", "blake3", utf8(&file)]));
    let mut child = headwater()
        .args(["scan", "--check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut list, mut verdicts) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let writing = std::thread::spawn(move || {
        let part = line.repeat((64 << 10) / line.len());
        for _ in 0..PARTS_OF_LIST {
            list.write_all(&part).unwrap();
        }
        PARTS_OF_LIST * ((64 << 10) / line.len())
    });
    // Most of the verdicts are read before the list ends: it does not fit into the pipe.
    let mut said = Vec::new();
    let mut part = [0; 1 << 16];
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    loop {
        let of_status =
            |text: String| text.lines().find_map(|line| line.strip_prefix("VmHWM:").map(str::to_owned));
        let peak = fs::read_to_string(&status).ok().and_then(of_status);
        let peak = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
        peak_kib = peak_kib.max(peak.unwrap_or(0));
        match verdicts.read(&mut part).unwrap() {
            0 => break,
            read_bytes => said.extend_from_slice(&part[..read_bytes]),
        }
    }
    let lines = writing.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(text(&said).lines().filter(|line| line.ends_with(": OK")).count(), lines);
    assert!(peak_kib > 0 && peak_kib < 48 << 10, "{peak_kib} KiB for a list of 16 MiB");
}

/// Of 64 KiB each.
const PARTS_OF_LIST: usize = 256;

/// Goal: a list that never ends is refused.
#[test]
fn a_list_without_end_is_refused() {
    let output = run(&["scan", "--check", "/dev/zero"]);
    assert_one_line(&output, "no line of a sum is as long");
    assert_eq!(output.status.code(), Some(1));
}

/// Goal: what was cached stays so, what was not does not come in. Method: a file that is cached, and one that is not, of each size;
/// every file system that reads directly. A kernel that reclaims memory takes pages by itself, so each is tried three times.
#[test]
fn the_page_cache_stays_as_it_is() {
    for (name, scratch) in scratch_dirs() {
        if name == "tmpfs" {
            continue;
        }
        let (warm, cold) = (scratch.path().join("warm"), scratch.path().join("cold"));
        let pages = || [&warm, &cold].map(|path| resident_pages(path));
        for length in [30_000_u64, 200_000, (7 << 20) + 5] {
            let expected = [Some(length.div_ceil(4096)), Some(0)];
            let arranged = || {
                for path in [&warm, &cold] {
                    PATTERN.write_file(path, length).unwrap();
                    make_cold(&File::open(path).unwrap()).unwrap();
                }
                File::open(&warm).unwrap().read_to_end(&mut Vec::new()).unwrap();
                pages() == expected
            };
            if !(0..3).any(|_| arranged()) {
                skip(format!("{name}: its page cache cannot be arranged: {:?}", pages()));
                continue;
            }
            for options in [&[][..], &["--hash", "xxh3"], &["--hash", "blake3"]] {
                let stays = || {
                    stdout(run(&[&["scan"], options, &[utf8(scratch.path())]].concat()));
                    pages() == expected
                };
                let is_kept = stays() || (0..2).any(|_| arranged() && stays());
                assert!(is_kept, "{name} {length} {options:?}: {:?}, not {expected:?}", pages());
            }
        }
    }
}

fn resident_pages(path: &Path) -> Option<u64> {
    let output = run(&["stat", "--json", utf8(path)]);
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    facts[0]["resident_pages"].as_u64()
}

/// Goal: without a hash the summary counts all, in words and in JSON, and skips what it says.
#[test]
fn a_scrub_counts() {
    let scratch = scratch();
    let tree = make_tree(scratch.path());
    let bytes: u64 = files_in(&tree).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    let json = scratch.path().join("out.json");
    let said = text(&stdout(run(&["scan", &to_json(utf8(&json)), utf8(&tree)])));
    assert!(said.contains(&format!("({bytes} bytes)")) && said.contains("unreadable  nothing"), "{said}");
    assert!(said.contains("skipped     2 symbolic links"), "{said}");
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(document["summary"]["bytes"], bytes);
    let files = document["files"].as_array().unwrap();
    assert_eq!(files.len(), files_in(&tree).len());
    assert_eq!(files.iter().map(|file| file["bytes"].as_u64().unwrap()).sum::<u64>(), bytes);
}

/// Goal: JSON in place of text holds the sums, and nothing else is printed.
#[test]
fn json_holds_sums() {
    let scratch = scratch();
    let path = scratch.path().join("file");
    fs::write(&path, "123456789").unwrap();
    let document = stdout(run(&["scan", "--hash", "crc32c", "--json", utf8(&path)]));
    let document: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["files"][0]["sum"], "e3069283");
    assert_eq!(document["algorithm"], "CRC-32C");
}

/// Goal: missing and special files are told in one line each, those beside them are read.
#[test]
fn what_cannot_be_read_is_told() {
    let scratch = scratch();
    let at = |name: &str| scratch.path().join(name);
    fs::write(at("file"), "123456789").unwrap();
    let fifo = at("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    for (path, named) in
        [(at("missing"), "No such file"), (fifo, "neither a file"), ("/dev/null".into(), "neither")]
    {
        let output = run(&["scan", "--hash", "crc32c", utf8(&path), utf8(&at("file"))]);
        assert_one_line(&output, named);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stdout), format!("e3069283  {}\n", utf8(&at("file"))));
    }
    let tree = run(&["scan", "--hash", "crc32c", utf8(scratch.path())]);
    assert_eq!(text(&stdout(tree)).lines().count(), 1, "special files in trees are skipped");
    assert_one_line(&run(&["scan"]), "PATH");
    assert_one_line(&run(&["scan", "--quiet", utf8(&at("file"))]), "--check");
    assert_one_line(&run(&["scan", "--hash", "md5", utf8(&at("file"))]), "md5");
    assert_one_line(&run(&["scan", "--threads", "0", utf8(&at("file"))]), "1024");
}

/// Goal: standard input, files without a length, and names that are no UTF-8.
#[test]
fn odd_inputs() {
    let scratch = scratch();
    let output = with_input(headwater().args(["scan", "--hash", "crc32c", "-"]), b"123456789");
    assert_eq!(text(&stdout(output)), "e3069283  -\n");
    let version = fs::read("/proc/version").unwrap();
    let piped = with_input(headwater().args(["scan", "--hash", "sha256", "-"]), &version);
    let sum = text(&stdout(piped)).replace("  -\n", "");
    assert_eq!(
        text(&stdout(run(&["scan", "--hash", "sha256", "/proc/version"]))),
        format!("{sum}  /proc/version\n")
    );
    // It says that it has a page.
    let number = Path::new("/sys/devices/system/cpu/possible");
    if let Ok(contents) = fs::read(number) {
        let path = utf8(number);
        let piped = with_input(headwater().args(["scan", "--hash", "sha256", "-"]), &contents);
        let sum = text(&stdout(piped)).replace("  -\n", "");
        assert_eq!(text(&stdout(run(&["scan", "--hash", "sha256", path]))), format!("{sum}  {path}\n"));
        let said = text(&stdout(run(&["scan", path])));
        assert!(said.contains(&format!("({} bytes)", contents.len())), "{said}");
    }
    let name = OsStr::from_bytes(b"\xff\n");
    fs::write(scratch.path().join(name), "123456789").unwrap();
    let mut command = headwater();
    let output =
        command.current_dir(scratch.path()).args(["scan", "-z", "--hash", "crc32c"]).arg(name).output();
    assert_eq!(stdout(output.unwrap()), b"e3069283  \xff\n\0");
}

/// Goal: lines come in order and whole, however many files are read; a reader that goes away is no failure.
#[test]
fn many_files_keep_their_order() {
    let scratch = scratch();
    for index in 0..2000_u64 {
        PATTERN.write_file(scratch.path().join(format!("{index:05}")), index * 37 % 9000).unwrap();
    }
    let lines = text(&stdout(run(&["scan", "--hash", "xxh3", utf8(scratch.path())])));
    let names: Vec<&str> = lines.lines().map(|line| line.rsplit('/').next().unwrap()).collect();
    let expected: Vec<String> = (0..2000).map(|index| format!("{index:05}")).collect();
    assert_eq!(names, expected);
    let command = format!(
        "'{}' scan --hash xxh3 '{}' | head -n 1",
        env!("CARGO_BIN_EXE_headwater"),
        utf8(scratch.path())
    );
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout).lines().count(), 1);
}

/// A block device of which only the first part can be read: the file below it was cut.
struct CutDevice(String);

impl CutDevice {
    fn new(image: &Path, length: u64, readable: u64) -> Option<CutDevice> {
        PATTERN.write_file(image, length).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        match output {
            Ok(output) if output.status.success() => {
                File::options().write(true).open(image).unwrap().set_len(readable).unwrap();
                Some(CutDevice(text(&output.stdout).trim().to_owned()))
            }
            other => {
                skip(format!("no loop device: {other:?}"));
                None
            }
        }
    }
}

impl Drop for CutDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// Goal: exactly what cannot be read is named, everything else is read, and with a hash the file has no line. Method: a
/// block device whose file was cut.
#[test]
fn unreadable_extents_are_located() {
    let scratch = scratch();
    let (length, readable) = (8 << 20, (5 << 20) + 3 * 4096);
    let Some(device) = CutDevice::new(&scratch.path().join("image"), length, readable) else { return };
    let json = scratch.path().join("out.json");
    let output = run(&["scan", &to_json(utf8(&json)), &device.0]);
    let unreadable = length - readable;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(document["summary"]["unreadable_bytes"], unreadable, "{said}");
    assert_eq!(document["summary"]["bytes"], readable);
    // In the words of the C library that this is linked with.
    let reason = std::io::Error::from_raw_os_error(5).to_string().replace(" (os error 5)", "");
    assert!(said.contains(&format!("at offset {readable}: {reason}")), "{said}");
    let hashed = run(&["scan", "--hash", "blake3", &device.0]);
    assert_one_line(&hashed, &format!("at byte {readable}"));
    assert!(hashed.stdout.is_empty());
}

/// Goal: a list of another algorithm than the one that is asked for is called so, in place of files that do not agree, also where the
/// first lines do not show it. Method: more lines than are looked at first whose files are missing, before one of a file that is there.
#[test]
fn lists_of_another_algorithm_are_known() {
    let scratch = scratch();
    let (file, list) = (scratch.path().join("file"), scratch.path().join("list"));
    fs::write(&file, "contents").unwrap();
    let line = stdout(run(&["scan", "--hash", "blake3", utf8(&file)]));
    let missing = (0..100).map(|number| format!("{}  /nowhere/{number}\n", "0".repeat(64)));
    fs::write(&list, [missing.collect::<String>().into_bytes(), line].concat()).unwrap();
    let output = run(&["scan", "--check", "--hash", "sha256", utf8(&list)]);
    let said = text(&output.stderr);
    assert!(
        said.ends_with("the sums are of BLAKE3, not of SHA-256: check them with --hash blake3\n"),
        "{said}"
    );
    assert!(!text(&output.stdout).contains("FAILED\n"), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(1));
}

/// Goal: JSON in a file is written, and failures are told by the exit code, although nothing reads the lines or they do not fit; without a
/// file the scan ends with its reader. Method: more lines than are written at once, and a list of which one does not agree.
#[test]
fn json_is_written_without_a_reader() {
    let scratch = scratch();
    let (tree, json, list) =
        (scratch.path().join("tree"), scratch.path().join("json"), scratch.path().join("list"));
    fs::create_dir(&tree).unwrap();
    (0..200).for_each(|number| fs::write(tree.join(format!("{number:03}")), "contents").unwrap());
    let sums = stdout(run(&["scan", "--hash", "sha256", utf8(&tree)]));
    fs::write(&list, text(&sums).replacen(|digit: char| digit != '0', "0", 1)).unwrap();
    let unread = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        headwater().args(arguments).stdout(writer).output().unwrap()
    };
    let files = || {
        let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        fs::remove_file(&json).unwrap();
        document["files"].as_array().unwrap().len()
    };
    let hash = ["scan", "--hash", "sha256", utf8(&tree)];
    let to_json = to_json(utf8(&json));
    assert!(unread(&[&hash[..], &[&to_json]].concat()).status.success());
    assert_eq!(files(), 200);
    let output = unread(&["scan", "--check", "--hash", "sha256", &to_json, utf8(&list)]);
    assert_eq!((output.status.code(), files()), (Some(1), 200));
    let output = unread(&hash);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(141), String::new()));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = headwater().args(hash).arg(&to_json).stdout(full).output().unwrap();
    assert_one_line(&output, "failed to write to standard output: No space left");
    assert_eq!(files(), 200);
}
