//! Cat lines: numbers, squeezed lines and visible bytes, as GNU cat shows them.
//!
//! Owns: the options that look at the bytes.
//! Does not own: bytes that stay as they are (cat).

use std::fs;
use std::process::Command;

use headwater_testkit::{Rng, ScratchDir, skip, with_seed};

use crate::{headwater, run, text, utf8};

/// Goal: every mixture of options writes what GNU cat writes, across the ends of files and buffers. Method: random files of line
/// feeds, returns, tabs, letters and bytes that do not print; random options.
#[test]
fn as_gnu_cat_shows_them() {
    let version = Command::new("cat").arg("--version").output();
    if !version.is_ok_and(|output| text(&output.stdout).contains("GNU coreutils")) {
        return skip("no GNU cat to compare with");
    }
    let scratch = ScratchDir::on_target().unwrap();
    with_seed("cat_lines::as_gnu_cat_shows_them", |seed| {
        let mut rng = Rng::new(seed);
        for _ in 0..60 {
            let files: Vec<String> = (0..1 + rng.below(3))
                .map(|number| {
                    let path = scratch.path().join(format!("file{number}"));
                    fs::write(&path, contents(&mut rng)).unwrap();
                    utf8(&path).to_owned()
                })
                .collect();
            let options = OPTIONS.into_iter().filter(|_| rng.chance(1, 5)).collect::<Vec<_>>();
            let theirs = Command::new("cat").args(&options).args(&files).output().unwrap();
            let ours = headwater().arg("cat").args(&options).args(&files).output().unwrap();
            assert!(ours.stdout == theirs.stdout, "{options:?} of {files:?}: {}", text(&ours.stdout));
            assert_eq!(ours.status.code(), theirs.status.code());
        }
    });
}

fn contents(rng: &mut Rng) -> Vec<u8> {
    // Mostly short; some longer than the buffer.
    let length = if rng.chance(1, 12) { 300 << 10 } else { rng.below(200) };
    let draw = |rng: &mut Rng| match rng.below(8) {
        0..=2 => b'\n',
        3 => b'\r',
        4 => b'\t',
        5 => b'a',
        _ => rng.below(256) as u8,
    };
    (0..length).map(|_| draw(rng)).collect()
}

const OPTIONS: [&str; 14] = [
    "-n",
    "--number",
    "-b",
    "--number-nonblank",
    "-s",
    "--squeeze-blank",
    "-E",
    "--show-ends",
    "-T",
    "-v",
    "-A",
    "-e",
    "-t",
    "-u",
];

/// Goal: numbers go on from file to file, standard input among them, and a missing file in between does not stop them.
#[test]
fn numbers_go_on() {
    let scratch = ScratchDir::on_target().unwrap();
    let [one, two] = ["one", "two"].map(|name| {
        let path = scratch.path().join(name);
        fs::write(&path, format!("{name}\n\n")).unwrap();
        utf8(&path).to_owned()
    });
    let output = run(&["cat", "-nA", &one, "/nowhere", &two]);
    assert_eq!(text(&output.stdout), "     1\tone$\n     2\t$\n     3\ttwo$\n     4\t$\n");
    assert_eq!(output.status.code(), Some(1));
}
