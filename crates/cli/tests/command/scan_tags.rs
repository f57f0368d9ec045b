//! Scan tags: lists in which some sums have a tag and others have none.
//!
//! Owns: the algorithm of such lists.
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
