//! Fuzzing: reads a list of sums as `scan --check` does, and checks that what was read can be written and read again.

use std::path::Path;

use clap::ValueEnum;

use super::digest::Algorithm;
use super::jobs::Listed;
use super::lines::{End, Target, parse, sum_line, verdict_line};

/// Reads the list at `path` as sums of each algorithm, and returns how many lines had the form.
///
/// # Panics
/// If a line that was read is written differently, or contains a control sequence for a terminal.
pub fn read_list(path: &Path) -> usize {
    let of = |algorithm: &Algorithm| {
        let mut listed = Listed { sums: Vec::new(), malformed_lines: 0, failed_lists: 0 };
        let added = listed.add(path, *algorithm);
        assert_eq!(
            added.is_err(),
            listed.sums.is_empty(),
            "a list without sums is an error, and no other is"
        );
        listed.sums.iter().for_each(|(sum, path)| check(sum, path, *algorithm));
        listed.sums.len()
    };
    Algorithm::value_variants().iter().map(of).sum()
}

fn check(sum: &str, path: &Path, algorithm: Algorithm) {
    let line = sum_line(sum, path, End::LineFeed, Target::File);
    let line = line.strip_suffix(b"\n").expect("lines end with a line feed");
    assert!(!line.contains(&b'\n'), "a name does not end a line");
    assert_eq!(parse(line, algorithm), Some((sum.to_owned(), path.to_owned())));
    for mut shown in
        [sum_line(sum, path, End::LineFeed, Target::Terminal), verdict_line(path, "OK", Target::Terminal)]
    {
        shown.pop();
        let text = String::from_utf8(shown).expect("a terminal gets text");
        assert!(!text.chars().any(char::is_control), "a name does not command a terminal: {text:?}");
    }
}
