//! Cp tree: directories with all that is in them, and the options of GNU cp that go with it.
//!
//! Owns: links, FIFOs, directories, what is left out, what is printed.
//! Does not own: contents of large files (cp).

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use headwater_testkit::{ScratchDir, scratch_dirs, skip};

use crate::{assert_one_line, copy_command, headwater, run, text, utf8};

/// Files of several sizes, an empty directory, links to a file, to a directory and to nothing, and a FIFO.
pub(crate) fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("a/b/empty")).unwrap();
    for (name, length) in [("a/one", 1), ("a/b/two", 70_000), ("a/b/large", 3 << 20), ("none", 0)] {
        fs::write(top.join(name), vec![7; length]).unwrap();
    }
    symlink("one", top.join("a/link")).unwrap();
    symlink("../../a", top.join("a/b/up")).unwrap();
    symlink("/nowhere", top.join("dangling")).unwrap();
    let fifo = top.join("a/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    fs::set_permissions(top.join("a/one"), Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(top.join("a/b"), Permissions::from_mode(0o750)).unwrap();
}

/// Kind, permissions, length and target of everything in a tree.
pub(crate) fn listing(top: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = vec![top.to_owned()];
    while let Some(path) = rest.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let (name, kind) = (path.strip_prefix(top).unwrap().display(), metadata.file_type());
        let length = if kind.is_file() { metadata.len() } else { 0 };
        let target = fs::read_link(&path).unwrap_or_default();
        lines.push(format!("{name} {:o} {length} {target:?} {}", metadata.mode(), kind.is_fifo()));
        if kind.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    lines.sort();
    lines
}

/// Goal: a directory is not copied into itself by another name of it.
#[test]
fn not_into_itself_through_a_mount() {
    let scratch = ScratchDir::on_target().unwrap();
    let [this, other] = ["this", "other"].map(|name| scratch.path().join(name));
    [&this, &other].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    fs::write(this.join("file"), "1").unwrap();
    match Command::new("mount").arg("--bind").args([&this, &other]).status() {
        Ok(status) if status.success() => {}
        refused => return skip(format!("no bind mounts: {refused:?}")),
    }
    let output = run(&["cp", "-r", utf8(&other), utf8(&this)]);
    assert!(Command::new("umount").arg(&other).status().unwrap().success());
    assert_one_line(&output, "lies in it");
    assert_eq!(fs::read_dir(&this).unwrap().count(), 1);
}

/// Goal: a tree is copied as it is, on every file system, into a new directory and over one that is there.
#[test]
fn trees_are_copied_as_they_are() {
    for (kind, scratch) in scratch_dirs() {
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        make_tree(&from);
        let copy = |into: &Path| {
            let output = run(&["cp", "-r", utf8(&from), utf8(into)]);
            assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
        };
        copy(&to);
        assert_eq!(listing(&to), listing(&from), "{kind}");
        assert_eq!(fs::read(to.join("a/b/large")).unwrap(), vec![7; 3 << 20]);
        for _ in 0..2 {
            copy(&to);
            assert_eq!(listing(&to.join("from")), listing(&from), "{kind}");
        }
    }
}

/// Goal: with -p times are those of the source, of directories too, whatever was copied into them.
#[test]
fn times_are_preserved() {
    let scratch = ScratchDir::on_target().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    make_tree(&from);
    let before = SystemTime::now() - Duration::from_secs(100_000);
    for name in ["a/one", "a/b", "a", ""] {
        fs::File::open(from.join(name)).unwrap().set_modified(before).unwrap();
    }
    assert!(run(&["cp", "-rp", utf8(&from), utf8(&to)]).status.success());
    for name in ["a/one", "a/b", "a", ""] {
        let [ours, theirs] = [&from, &to].map(|top| fs::metadata(top.join(name)).unwrap());
        assert_eq!((ours.mtime(), ours.mtime_nsec()), (theirs.mtime(), theirs.mtime_nsec()), "{name:?}");
        assert_eq!((ours.uid(), ours.gid(), ours.mode()), (theirs.uid(), theirs.gid(), theirs.mode()));
    }
}

/// For each name of a tree that is no directory, the first name of the same file; times as well, if they are asked for.
fn same_files(top: &Path, with_times: bool) -> Vec<String> {
    let mut first = HashMap::new();
    let mut lines = Vec::new();
    let mut names: Vec<String> =
        listing(top).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    names.sort();
    for name in names {
        let metadata = fs::symlink_metadata(top.join(&name)).unwrap();
        if metadata.is_dir() {
            continue;
        }
        let same = first.entry(metadata.ino()).or_insert_with(|| name.clone());
        let time = if with_times { metadata.mtime_nsec() } else { 0 };
        lines.push(format!("{name} is {same} {} {time}", metadata.nlink()));
    }
    lines
}

/// Goal: hard links are kept when and as GNU cp keeps them, among files, symbolic links and FIFOs, within a tree and among several sources,
/// and also when the copy is made again. Method: both commands with the same options.
#[test]
fn hard_links_are_kept_as_gnu_does() {
    let scratch = ScratchDir::on_target().unwrap();
    let from = scratch.path().join("from");
    make_tree(&from);
    for (old, new) in [
        ("a/one", "a/b/one too"),
        ("a/one", "one"),
        ("a/fifo", "fifo"),
        ("a/link", "link_too"),
        ("a/b/large", "large"),
    ] {
        fs::hard_link(from.join(old), from.join(new.replace(' ', "_"))).unwrap();
    }
    symlink("one", from.join("to_one")).unwrap();
    let outside = scratch.path().join("outside");
    fs::hard_link(from.join("none"), &outside).unwrap();
    let sources = ["one", "to_one", "a/b/one_too", "link_too", "a/link", "none"].map(|name| from.join(name));
    let tree = vec![utf8(&from)];
    let several: Vec<&str> = sources.iter().map(|path| utf8(path)).collect();
    for (options, sources) in [
        (&["-r"][..], &tree),
        (&["-rp"], &tree),
        (&["-a"], &tree),
        (&["-rd"], &tree),
        (&["-r", "--preserve=links"], &tree),
        (&["-r", "--preserve=mode,timestamps"], &tree),
        (&["-r", "--preserve=all"], &tree),
        (&["-pr", "--preserve=links"], &tree),
        (&["-r"], &several[..1].to_vec()),
        (&["-r", "--preserve=links"], &several[..2].to_vec()),
        (&["--preserve=links"], &several[..2].to_vec()),
        (&["-d"], &several[..2].to_vec()),
        (&["-a"], &several[3..].to_vec()),
        (&["-d"], &several[1..3].to_vec()),
    ] {
        let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.path().join(name));
        for round in 0..2 {
            for (command, into) in [(env!("CARGO_BIN_EXE_headwater"), &ours), ("cp", &theirs)] {
                fs::create_dir_all(into).unwrap();
                let mut command = Command::new(command);
                if into == &ours {
                    command.arg("cp");
                    // Files with several names are replaced only if that is asked for, or if these names are kept.
                    command.args((round > 0).then_some("--force"));
                }
                let output = command.args(options).args(sources).arg(into).output().unwrap();
                assert!(output.status.success(), "{options:?} {sources:?}: {}", text(&output.stderr));
            }
            assert_eq!(listing(&ours), listing(&theirs), "{options:?} {sources:?}");
            let keeps_times =
                options.iter().any(|option| option.contains(['a', 'p']) && !option.contains("links"));
            let [ours, theirs] = [&ours, &theirs].map(|top| same_files(top, keeps_times));
            assert_eq!(ours, theirs, "{options:?} {sources:?}, round {round}");
        }
        for top in [ours, theirs] {
            fs::remove_dir_all(top).unwrap();
        }
    }
    assert_eq!(fs::metadata(&outside).unwrap().nlink(), 2, "no other names are made");
    // Two sources with one name.
    let into = scratch.path().join("into");
    fs::create_dir(&into).unwrap();
    symlink("other", from.join("link")).unwrap();
    let output = run(&["cp", "-a", utf8(&from.join("a/link")), utf8(&from.join("link")), utf8(&into)]);
    assert_one_line(&output, "was just made of another source");
    assert_eq!(fs::read_link(into.join("link")).unwrap(), Path::new("one"));
}

/// Goal: a copy with hard links is made again without --force, as its files have the several names that they should have.
#[test]
fn archives_are_made_again() {
    let scratch = ScratchDir::on_target().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    make_tree(&from);
    fs::hard_link(from.join("a/one"), from.join("one")).unwrap();
    fs::create_dir(&to).unwrap();
    for contents in ["first", "second"] {
        fs::write(from.join("one"), contents).unwrap();
        let output = run(&["cp", "-a", utf8(&from), utf8(&to)]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(fs::read(to.join("from/a/one")).unwrap(), contents.as_bytes());
        assert_eq!(same_files(&to.join("from"), true), same_files(&from, true));
    }
}

/// Goal: a directory is not copied into itself, its parts that can be copied are when others cannot, and without -r the error says what
/// to do.
#[test]
fn trees_that_cannot_be_copied() {
    let scratch = ScratchDir::on_target().unwrap();
    let from = scratch.path().join("from");
    make_tree(&from);
    assert_one_line(&run(&["cp", utf8(&from), utf8(&scratch.path().join("to"))]), "-r");
    let inside = run(&["cp", "-r", utf8(&from), utf8(&from.join("copy"))]);
    assert_one_line(&inside, "lies in it");
    assert!(!from.join("copy").exists());
    assert_one_line(&run(&["cp", "-r", utf8(&from), utf8(&from)]), "lies in it");
    // A directory where a file is to be.
    let to = scratch.path().join("to");
    fs::create_dir_all(to.join("a/one")).unwrap();
    assert_one_line(&run(&["cp", "-r", utf8(&from.join("a")), utf8(&to)]), "a/one");
    assert_eq!(fs::read(to.join("a/b/two")).unwrap(), vec![7; 70_000]);
}

/// Goal: what is copied onto itself, or as a link onto what it leads to, is refused, and stays; another link is replaced, and nothing else
/// is left.
#[test]
fn nothing_is_replaced_by_itself() {
    let scratch = ScratchDir::on_target().unwrap();
    let top = scratch.path().join("top");
    make_tree(&top);
    let before = listing(&top);
    for (option, from, to) in [
        ("-d", "a/link", "a/one"),
        ("-df", "a/link", "a/one"),
        ("-P", "a/link", "a/link"),
        ("-P", "dangling", "dangling"),
        ("-a", "a/fifo", "a/fifo"),
    ] {
        let output = run(&["cp", option, utf8(&top.join(from)), utf8(&top.join(to))]);
        assert_one_line(&output, "is the same file");
        assert_eq!(listing(&top), before, "{option} {from} {to}");
    }
    assert!(run(&["cp", "-P", utf8(&top.join("a/link")), utf8(&top.join("dangling"))]).status.success());
    assert_eq!(fs::read_link(top.join("dangling")).unwrap(), Path::new("one"));
    assert_eq!(listing(&top).len(), before.len());
}

/// Goal: what is there stays if what was to take its place cannot be made. Method: a device, made
/// without the rights of root.
#[test]
fn what_cannot_be_made_replaces_nothing() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become somebody else");
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    let (binary, old) = (place.path().join("headwater"), place.path().join("old"));
    copy_command(&binary);
    fs::write(&old, "old").unwrap();
    let mut command = Command::new(&binary);
    let output = command.args(["cp", "-R", "/dev/null", utf8(&old)]).uid(65534).gid(65534).output().unwrap();
    assert_one_line(&output, "Operation not permitted");
    assert_eq!(fs::read(&old).unwrap(), b"old");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

/// Goal: -n leaves what is there, and -v prints each copy, in the words of GNU cp.
#[test]
fn what_is_there_and_what_is_printed() {
    let scratch = ScratchDir::on_target().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    make_tree(&from);
    fs::create_dir_all(to.join("from/a")).unwrap();
    fs::write(to.join("from/a/one"), "mine").unwrap();
    fs::write(to.join("from/dangling"), "mine").unwrap();
    let output = run(&["cp", "-rnv", utf8(&from), utf8(&to)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in ["from/a/one", "from/dangling"] {
        assert_eq!(fs::read_to_string(to.join(name)).unwrap(), "mine");
    }
    let printed = text(&output.stdout);
    assert!(
        printed.contains(&format!(
            "'{}' -> '{}'\n",
            utf8(&from.join("a/b/two")),
            utf8(&to.join("from/a/b/two"))
        )),
        "{printed}"
    );
    for name in ["a/one", "dangling"] {
        assert!(!printed.contains(&format!("'{}' ->", utf8(&from.join(name)))), "{printed}");
    }
    let output = run(&["cp", "-rn", "--json", utf8(&from), utf8(&to)]);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let entries = results.as_array().unwrap();
    let of_link = entries.iter().find(|entry| entry["source"].as_str().unwrap().ends_with("dangling"));
    assert_eq!(of_link.unwrap()["skipped"], true, "{results}");
    let theirs = Command::new("cp").args(["-rv", utf8(&from), utf8(&scratch.path().join("gnu"))]).output();
    if let Ok(theirs) = theirs {
        let ours = run(&["cp", "-rv", utf8(&from), utf8(&scratch.path().join("ours"))]);
        let sorted = |bytes: &[u8], name: &str| {
            let text = text(bytes).replace(name, "copy");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ours.stdout, "/ours"), sorted(&theirs.stdout, "/gnu"));
        // Siblings stand in any order.
        for printed in [text(&ours.stdout), text(&theirs.stdout)] {
            let sources: Vec<&str> =
                printed.lines().map(|line| line.split('\'').nth(1).expect("a quoted source")).collect();
            for (index, source) in sources.iter().enumerate().skip(1) {
                let parent = utf8(Path::new(source).parent().unwrap());
                assert!(sources[..index].contains(&parent), "{source} before its directory: {printed}");
            }
        }
    }
}

/// Goal: a further name of a source has the contents of that source, also where another source has replaced the copy that was made first.
/// Method: two directories that are merged.
#[test]
fn a_copy_that_was_replaced_gets_no_further_names() {
    let scratch = ScratchDir::on_target().unwrap();
    let at = |name: &str| scratch.path().join(name);
    ["monday/d", "tuesday/d", "into"].iter().for_each(|name| fs::create_dir_all(at(name)).unwrap());
    fs::write(at("monday/d/a"), "one").unwrap();
    fs::hard_link(at("monday/d/a"), at("tuesday/d/b")).unwrap();
    fs::write(at("tuesday/d/a"), "two").unwrap();
    let output = run(&["cp", "-a", utf8(&at("monday/d")), utf8(&at("tuesday/d")), utf8(&at("into"))]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(at("into/d/a")).unwrap(), "two");
    assert_eq!(fs::read_to_string(at("into/d/b")).unwrap(), "one");
}

/// Goal: -n passes over what is there, and not over a directory without -r or a source that is missing. Method: the exit codes of both
/// commands.
#[test]
fn what_cannot_be_copied_is_said_with_n_too() {
    let scratch = ScratchDir::on_target().unwrap();
    let at = |name: &str| scratch.path().join(name);
    ["from", "to", "to/from"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    ["file", "to/file", "closed"].iter().for_each(|name| fs::write(at(name), *name).unwrap());
    fs::set_permissions(at("closed"), Permissions::from_mode(0o000)).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    for (line, said) in [
        (&["from/.", "to/"][..], Some("it is a directory; -r copies it")),
        (&["from", "to"], Some("it is a directory; -r copies it")),
        (&["-P", "from", "to/file"], Some("it is a directory; -r copies it")),
        (&["missing", "to/file"], Some("failed to open missing")),
        (&["dangling", "to/file"], Some("failed to open dangling")),
        (&["-P", "dangling", "to/file"], None),
        (&["closed", "to/file"], None),
        (&["/dev/null", "to/file"], None),
        (&["file", "to"], None),
    ] {
        let copied =
            |mut program: Command| program.arg("-n").args(line).current_dir(scratch.path()).output().unwrap();
        let mut ours = headwater();
        ours.arg("cp");
        let (ours, theirs) = (copied(ours), copied(Command::new("cp")));
        assert_eq!(ours.status.code(), theirs.status.code(), "{line:?}: {ours:?} {theirs:?}");
        match said {
            Some(said) => assert_one_line(&ours, said),
            None => assert_eq!(text(&ours.stderr), "", "{line:?}"),
        }
        assert_eq!(fs::read_to_string(at("to/file")).unwrap(), "to/file", "{line:?}");
    }
}

/// Goal: a new directory inherits its group as the directory around it says, unless permissions are kept; one that is given twice is copied
/// once. Method: both commands, directories with and without setgid, and the trees that they leave.
#[test]
fn directories_as_gnu_makes_them() {
    let scratch = ScratchDir::on_target().unwrap();
    let make = |name: &str, mode: u32| {
        fs::create_dir(scratch.path().join(name)).unwrap();
        fs::set_permissions(scratch.path().join(name), Permissions::from_mode(mode)).unwrap();
    };
    make("plain", 0o755);
    make("inheriting", 0o2775);
    fs::write(scratch.path().join("plain/file"), "file").unwrap();
    let cases = [("-r", 0o755), ("-r", 0o2775), ("-rp", 0o755), ("-a", 0o755)];
    for (index, (option, around)) in cases.into_iter().enumerate() {
        let copied = |mut program: Command, name: &str| {
            let to = format!("{name}-{index}");
            make(&to, around);
            program.args([option, "plain", "inheriting", "plain", &to]);
            program.current_dir(scratch.path()).env("LC_ALL", "C");
            (program.output().unwrap(), listing(&scratch.path().join(&to)))
        };
        let mut ours = headwater();
        ours.arg("cp");
        let (ours, ours_tree) = copied(ours, "ours");
        let (theirs, their_tree) = copied(Command::new("cp"), "theirs");
        assert_eq!(ours_tree, their_tree, "{option} into {around:o}");
        assert_eq!(ours.status.code(), theirs.status.code());
        assert!(text(&theirs.stderr).contains("more than once"), "{theirs:?}");
        assert_eq!(text(&ours.stderr), "headwater: plain is given more than once, and was copied once\n");
    }
    let file = scratch.path().join("other/plain");
    make("other", 0o755);
    fs::write(&file, "other").unwrap();
    make("to", 0o755);
    let [plain, to] = ["plain", "to"].map(|name| scratch.path().join(name));
    let refused = run(&["cp", "-r", utf8(&plain), utf8(&file), utf8(&to)]);
    assert_one_line(&refused, "/to/plain: it is a directory");
}

/// Goal: with permissions kept, a directory that has bits of its own beside those for reading, writing and searching gets them, and one that has none
/// keeps what the directory around it has given, as it does without permissions kept, for a user outside of that group too; setgid goes where
/// the owner was to be kept and could not be. A file is setuid for the owner of the source only, also where GNU cp lets it be for another.
/// Method: the modes that GNU cp 9.1 leaves, in a directory with setgid and one without; as root, and as a user that may not give files away.
#[test]
fn special_bits_as_gnu_keeps_them() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can make files of others");
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    let binary = place.path().join("headwater");
    copy_command(&binary);
    fs::create_dir(place.path().join("from")).unwrap();
    let names =
        [("plain", 0o755), ("setgid", 0o2755), ("sticky", 0o1777), ("file", 0o755), ("setuid", 0o6755)];
    for (name, mode) in names {
        let path = place.path().join("from").join(name);
        if name.starts_with('f') || name == "setuid" { fs::write(&path, "x") } else { fs::create_dir(&path) }
            .unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    let nobody = 65_534;
    for (index, (options, user, around, expected)) in [
        (&["-rp"][..], 0, 0o755, [0o755, 0o2755, 0o1777, 0o755, 0o6755]),
        (&["-rp"], 0, 0o2775, [0o2755, 0o2755, 0o1777, 0o755, 0o6755]),
        (&["-a"], 0, 0o2775, [0o2755, 0o2755, 0o1777, 0o755, 0o6755]),
        (&["-r", "--preserve=mode"], 0, 0o2775, [0o2755, 0o2755, 0o1777, 0o755, 0o755]),
        (&["-rp"], nobody, 0o755, [0o755, 0o755, 0o1777, 0o755, 0o755]),
        (&["-r"], nobody, 0o2775, [0o2755, 0o2755, 0o3755, 0o755, 0o755]),
        (&["-r", "--preserve=mode"], nobody, 0o755, [0o755, 0o2755, 0o1777, 0o755, 0o755]),
    ]
    .into_iter()
    .enumerate()
    {
        let to = place.path().join(format!("to-{index}"));
        fs::create_dir(&to).unwrap();
        // Of a group that the user is not in, if it is to be inherited.
        let group = if around > 0o777 { 7 } else { user };
        std::os::unix::fs::chown(&to, Some(user), Some(group)).unwrap();
        fs::set_permissions(&to, Permissions::from_mode(around)).unwrap();
        let mut command = Command::new(&binary);
        command.arg("cp").args(options).args(names.map(|(name, _)| format!("from/{name}"))).arg(&to);
        let output = command.current_dir(place.path()).uid(user).gid(user).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mode = |(name, _): (&str, u32)| fs::metadata(to.join(name)).unwrap().mode() & 0o7777;
        let octal = |mode| format!("{mode:o}");
        assert_eq!(
            names.map(|name| octal(mode(name))),
            expected.map(octal),
            "{options:?} as {user} into {around:o}"
        );
    }
}

/// Goal: of an option that is given twice the last counts, -n holds beside -f, and -f replaces a link that leads to itself.
#[test]
fn options_as_gnu_takes_them() {
    let scratch = ScratchDir::on_target().unwrap();
    let [from, to, looped] = ["from", "to", "looped"].map(|name| scratch.path().join(name));
    fs::write(&from, "from").unwrap();
    fs::write(&to, "to").unwrap();
    let copied = |options: &[&str], to: &Path| run(&[&["cp"], options, &[utf8(&from), utf8(to)]].concat());
    for options in [["-n", "-f"], ["-f", "-n"]] {
        assert!(copied(&options, &to).status.success());
        assert_eq!(fs::read(&to).unwrap(), b"to", "{options:?}");
    }
    assert!(copied(&["--reflink=always", "-v", "-v", "--reflink=auto"], &to).status.success());
    assert_eq!(fs::read(&to).unwrap(), b"from");
    symlink("looped", &looped).unwrap();
    assert_one_line(&copied(&[], &looped), "leads nowhere");
    assert!(copied(&["-f"], &looped).status.success());
    assert!(fs::symlink_metadata(&looped).unwrap().is_file());
    assert_eq!(fs::read(&looped).unwrap(), b"from");
}

/// Goal: the value of an option that may go without one stands behind `=`; a word that follows is a path, as for GNU cp; values may be
/// shortened to what no other value begins with. Method: a source with the name of a value of the option, by both commands.
#[test]
fn values_as_gnu_takes_them() {
    let scratch = ScratchDir::on_target().unwrap();
    fs::write(scratch.path().join("never"), "from").unwrap();
    let whole = [&["--reflink"][..], &["--reflink=auto"], &["--preserve"], &["--sparse", "never"]];
    let shortened = [&["--reflink=n"][..], &["--sparse=alw"], &["--sparse", "n"], &["--preserve=mo,time"]];
    for options in whole.into_iter().chain(shortened) {
        let copied = |mut program: Command, to: &str| {
            let output =
                program.args(options).args(["never", to]).current_dir(scratch.path()).output().unwrap();
            // What could not be copied leaves an empty file behind, or none.
            (output, fs::read(scratch.path().join(to)).unwrap_or_default())
        };
        let ours = || {
            let mut command = headwater();
            command.arg("cp");
            command
        };
        let (ours, ours_copy) = copied(ours(), "ours");
        let (theirs, their_copy) = copied(Command::new("cp"), "theirs");
        assert_eq!(
            (ours.status.code(), ours_copy),
            (theirs.status.code(), their_copy),
            "{options:?} {ours:?}"
        );
    }
    assert_one_line(&run(&["cp", "--reflink=", "a", "b"]), "--reflink");
    assert_one_line(&run(&["cp", "--reflink=often", "a", "b"]), "often");
    assert_one_line(&run(&["cp", "--sparse=a", "a", "b"]), "'a' for '--sparse <WHEN>'");
}

/// Goal: what GNU cp takes is taken: options between paths, shortened ones, `folder/.` as what is in the folder, streams, a source that is
/// given twice, files of two directories with one name. Method: both commands, and the trees that they leave.
#[test]
fn sources_as_gnu_takes_them() {
    let scratch = ScratchDir::on_target().unwrap();
    make_tree(&scratch.path().join("from"));
    fs::create_dir_all(scratch.path().join("other/a")).unwrap();
    fs::write(scratch.path().join("other/a/one"), "another").unwrap();
    // GNU cp keeps the mode of a file that it overwrites.
    fs::set_permissions(scratch.path().join("other/a/one"), Permissions::from_mode(0o751)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(scratch.path().join("from/a/socket"));
    for line in [
        &["from/none", "-p", "into"][..],
        &["-r", "from/.", "into"],
        &["--recurs", "from/a/../.", "--preserve=mode", "into"],
        &["-r", "from/a", "other/a", "into"],
        &["-r", "from/a", "from/a/", "into"],
        &["from/none", "./from/none", "into"],
        &["/dev/null", "into/empty"],
        &["/dev/stdin", "into/given"],
        &["from/a/one", "/sys/kernel/uevent_seqnum", "into"],
    ] {
        let listings = [env!("CARGO_BIN_EXE_headwater"), "cp"].map(|program| {
            let into = scratch.path().join("into");
            fs::create_dir(&into).unwrap();
            let mut command = Command::new(program);
            command.args((program != "cp").then_some("cp")).args(line).current_dir(scratch.path());
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            // It is not read by all of them.
            let _ = child.stdin.take().unwrap().write_all(&[5; 200_000]);
            assert!(child.wait().unwrap().success(), "{program} {line:?}");
            let contents = fs::read(into.join("a/one")).ok();
            let listing = listing(&into);
            fs::remove_dir_all(&into).unwrap();
            (listing, contents)
        });
        assert_eq!(listings[0], listings[1], "{line:?}");
    }
    drop(socket);
}

/// Goal: a tree is not copied through a link to a directory that lies where one of its directories goes.
#[test]
fn links_to_directories_lead_nowhere() {
    let scratch = ScratchDir::on_target().unwrap();
    let [from, to, outside] = ["from", "to", "outside"].map(|name| scratch.path().join(name));
    make_tree(&from);
    for directory in [&to, &outside] {
        fs::create_dir(directory).unwrap();
    }
    symlink(&outside, to.join("a")).unwrap();
    assert_one_line(&run(&["cp", "-r", &format!("{}/.", utf8(&from)), utf8(&to)]), "it is not a directory");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(to.join("none").exists(), "the rest is copied");
    // What is named as the destination may be one.
    let output = run(&["cp", "-r", utf8(&from.join("a/b")), utf8(&to.join("a"))]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(outside.join("b/two").exists());
}
