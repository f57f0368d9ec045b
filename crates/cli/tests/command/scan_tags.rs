//! Scan tags: lists in which some sums have a tag and others have none, and lines of lists that are not verified.
//!
//! Owns: the algorithm of such lists; what such lines are for the result.
//! Does not own: all other lists (scan).

use std::fs;

use headwater_testkit::ScratchDir;

use crate::{run, text, utf8};

/// Goal: no sum is left out because the ones before it had no tag, wherever the first tag comes. Method: lists of which the file of the tagged
/// sum is another than it was; the files of the sums before it are there, or missing.
#[test]
fn a_tag_decides_for_the_sums_before_it() {
    let scratch = ScratchDir::on_target().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::write(at("whole"), "contents").unwrap();
    fs::write(at("broken"), "contents").unwrap();
    let line = text(&run(&["scan", "--hash", "sha256", utf8(&at("whole"))]).stdout);
    let sum = line.split(' ').next().unwrap();
    let tagged = |name: &str| format!("SHA256 ({}) = {sum}\n", utf8(&at(name)));
    fs::write(at("broken"), "broken").unwrap();
    let missing = |count: usize| format!("{sum}  /nowhere\n").repeat(count);
    for before in [line.clone(), missing(1), missing(100)] {
        fs::write(at("list"), format!("{before}{}{}", tagged("broken"), tagged("whole"))).unwrap();
        let output = run(&["scan", "--check", utf8(&at("list"))]);
        let (verdicts, said) = (text(&output.stdout), text(&output.stderr));
        assert!(verdicts.contains("broken: FAILED\n") && verdicts.contains("whole: OK\n"), "{verdicts}");
        assert!(!said.contains("another algorithm"), "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// Goal: a line that is no sum, or one of another algorithm, is warned of, and a failure where that is wanted, also where nothing is printed.
#[test]
fn lines_that_are_not_verified() {
    let scratch = ScratchDir::on_target().unwrap();
    let at = |name: &str| scratch.path().join(name);
    ["one", "two"].iter().for_each(|name| fs::write(at(name), name).unwrap());
    let (one, two) = (at("one"), at("two"));
    let sums = run(&["scan", "--hash", "sha256", utf8(&one), utf8(&two)]).stdout;
    let other = format!(
        "SHA256 ({}) = {}\nBLAKE3 ({}) = {}\n",
        utf8(&one),
        &text(&sums)[..64],
        utf8(&two),
        "0".repeat(64)
    );
    for (list, told) in [
        (sums[..sums.len() / 2 + 20].to_vec(), "1 line has another form"),
        (other.into_bytes(), "another algorithm"),
    ] {
        fs::write(at("sums"), list).unwrap();
        let (list, check) = (at("sums"), ["scan", "--check"]);
        let output = run(&[&check[..], &[utf8(&list)]].concat());
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(text(&output.stderr).contains(told), "{told}: {}", text(&output.stderr));
        for options in [&["--strict"][..], &["--strict", "--status"], &["--strict", "--quiet"]] {
            assert_eq!(
                run(&[&check[..], options, &[utf8(&list)]].concat()).status.code(),
                Some(1),
                "{told}, {options:?}"
            );
        }
    }
    fs::write(at("sums"), &sums).unwrap();
    assert!(run(&["scan", "--check", "--strict", utf8(&at("sums"))]).status.success());
}
