//! Cp sparse: holes that a copy makes, keeps or fills, and links to nothing, as GNU cp has them.
//!
//! Owns: which pages of a copy have blocks, files with very many holes.
//! Does not own: holes of the source in ordinary copies (cp).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use headwater_testkit::{Pattern, ScratchDir, make_cold, scratch_dirs};

use crate::{assert_one_line, headwater, run, text, utf8};

const PATTERN: Pattern = Pattern::new(71);

const PAGE: usize = 4096;

/// A file without holes in which `data` pages of the pattern and `zeros` pages take turns, to its end. Returns the bytes of the pattern.
fn write_stripes(path: &Path, data: usize, zeros: usize, length: usize) -> u64 {
    let mut bytes = vec![0; length];
    PATTERN.fill(0, &mut bytes);
    for stripe in bytes.chunks_mut((data + zeros) * PAGE).filter(|stripe| stripe.len() > data * PAGE) {
        stripe[data * PAGE..].fill(0);
    }
    fs::write(path, &bytes).unwrap();
    bytes.chunks((data + zeros) * PAGE).map(|stripe| stripe.len().min(data * PAGE) as u64).sum()
}

fn copy(options: &[&str], from: &Path, to: &Path) {
    let output = run(&[&["cp"], options, &[utf8(from), utf8(to)]].concat());
    assert!(output.status.success(), "{options:?}: {}", text(&output.stderr));
}

/// What the file takes up once it is written.
fn allocated_bytes(path: &Path) -> u64 {
    File::open(path).unwrap().sync_all().unwrap();
    fs::metadata(path).unwrap().blocks() * 512
}

/// Goal: with --sparse=always pages of zeros get no blocks, with the others they do, and bytes are the same, wherever zeros are and however
/// they are copied. Method: against GNU cp, on every file system.
#[test]
fn zeros_become_holes_as_gnu_makes_them() {
    for (kind, scratch) in scratch_dirs() {
        let [from, ours, theirs] = ["from", "ours", "theirs"].map(|name| scratch.path().join(name));
        for (data, zeros, length) in [
            (1, 1, 5 * PAGE),
            (3, 5, (4 << 20) + 777),
            (256, 256, 9 << 20),
            (0, 1, (3 << 20) + 5),
            (1, 0, 2 << 20),
        ] {
            let data_bytes = write_stripes(&from, data, zeros, length);
            let assert_copied = |options: &[&str], source: &Path, wanted_bytes: u64| {
                copy(options, source, &ours);
                assert!(
                    fs::read(&ours).unwrap() == fs::read(&from).unwrap(),
                    "{kind}, {data}:{zeros}, {options:?}"
                );
                let ours = allocated_bytes(&ours);
                let differs = ours.abs_diff(wanted_bytes) > SLACK_BYTES;
                assert!(!differs, "{kind}, {data}:{zeros}, {options:?}: {ours} for {wanted_bytes}");
            };
            for options in [&[][..], &["--sync"], &["--sync", "--driver", "threads"], &["--verify"]] {
                make_cold(&File::open(&from).unwrap()).unwrap();
                assert_copied(&[&["--sparse=always"], options].concat(), &from, data_bytes);
            }
            let gnu = Command::new("cp")
                .args(["--sparse=always", "--reflink=never"])
                .args([&from, &theirs])
                .status();
            assert!(gnu.unwrap().success());
            // XFS keeps some blocks ready behind what was written.
            assert!(allocated_bytes(&theirs) + SLACK_BYTES >= data_bytes, "{kind}, {data}:{zeros}");
            // Its holes are filled, and stay, and stay where they are looked for as well.
            assert_copied(&["--sparse=never", "--reflink=never"], &theirs, length as u64);
            assert_copied(&["--sparse=auto", "--reflink=never"], &theirs, data_bytes);
            assert_copied(&["--sparse=always"], &theirs, data_bytes);
        }
    }
}

/// File systems allocate up to 64 KiB at once, and count what describes the extents.
const SLACK_BYTES: u64 = 128 << 10;

/// Goal: blocks cannot be shared and have other holes, so asking for both is an error, and nothing is made; also where there is nothing
/// to share.
#[test]
fn shared_blocks_have_the_holes_of_the_source() {
    let scratch = ScratchDir::on_target().unwrap();
    let [from, to] = ["from", "to"].map(|name| scratch.path().join(name));
    File::create(&from).unwrap();
    for sparse in ["--sparse=always", "--sparse=never"] {
        let output = run(&["cp", sparse, "--reflink=always", utf8(&from), utf8(&to)]);
        assert_one_line(&output, "goes with --sparse=auto alone");
        assert!(!to.exists());
    }
}

/// Goal: a file of a tebibyte that is all hole, and one with ten thousand holes, are copied in about as many steps as they have data.
/// Method: both, with the bytes compared.
#[test]
fn many_holes_and_large_ones() {
    let scratch = ScratchDir::on_target().unwrap();
    let [from, to] = ["from", "to"].map(|name| scratch.path().join(name));
    let file = File::create(&from).unwrap();
    file.set_len(1 << 40).unwrap();
    copy(&["--reflink=never"], &from, &to);
    assert_eq!((fs::metadata(&to).unwrap().len(), allocated_bytes(&to)), (1 << 40, 0));
    file.set_len(0).unwrap();
    for hole in 0..10_000 {
        file.write_all_at(&[1 + (hole % 251) as u8; PAGE], hole * 2 * PAGE as u64).unwrap();
    }
    for options in [&["--reflink=never"][..], &["--sync"], &["--sparse=always"]] {
        make_cold(&file).unwrap();
        copy(options, &from, &to);
        assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap(), "{options:?}");
        let [ours, theirs] = [&to, &from].map(|path| allocated_bytes(path));
        assert!(ours <= theirs + theirs / 50, "{options:?}: {ours} of {theirs}");
    }
}

/// Goal: no file is made where a symbolic link leads to nothing, not even with --force, but for POSIXLY_CORRECT. Method: GNU cp beside it,
/// with links by way of another and of a directory.
#[test]
fn dangling_links_are_not_written_through() {
    for program in ["headwater", "cp"] {
        let scratch = ScratchDir::on_target().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::write(path("from"), "from").unwrap();
        fs::create_dir(path("place")).unwrap();
        symlink("place/missing", path("first")).unwrap();
        symlink("first", path("dangling")).unwrap();
        let copy = |options: &[&str], posix: bool| {
            let mut command = match program {
                "headwater" => headwater(),
                gnu => Command::new(gnu),
            };
            command.args((program == "headwater").then_some("cp")).args(options);
            command.args([path("from"), path("dangling")]).env_remove("POSIXLY_CORRECT");
            command.envs(posix.then_some(("POSIXLY_CORRECT", "1"))).output().unwrap()
        };
        for options in [&[][..], &["-f"], &["-r"], &["-p"]] {
            let output = copy(options, false);
            assert_eq!(output.status.code(), Some(1), "{program} {options:?}");
            let said = text(&output.stderr);
            assert!(said.contains("through "), "{program}: {said}");
            assert!(!path("place/missing").exists(), "{program} {options:?}");
        }
        let output = copy(&[], true);
        assert!(output.status.success(), "{program}: {}", text(&output.stderr));
        assert_eq!(fs::read(path("place/missing")).unwrap(), b"from");
        assert!(fs::symlink_metadata(path("dangling")).unwrap().is_symlink());
    }
}
