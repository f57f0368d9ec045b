//! Fuzzing: reads a list of sums as `scan --check` does, and checks that what was read can be written and read again.

use std::path::Path;

use clap::ValueEnum;

use super::digest::Algorithm;
use super::lines::{End, Line, Target, parse, sum_line, verdict_line};
use super::listed::Listed;

/// Reads the list at `path` as sums of each algorithm, and returns how many lines had the form.
///
/// # Panics
/// If a line that was read is written differently, or contains a control sequence for a terminal.
pub fn read_list(path: &Path) -> usize {
    let of = |algorithm: &Algorithm| {
        // Sums that prove to be of another algorithm are those of a file that is there.
        let Ok(mut listed) = Listed::new(&[path.to_owned()], Some(*algorithm)) else { return 0 };
        let sums = listed.by_ref().map(|(sum, path)| check(&sum, &path, *algorithm)).count();
        let unusable = listed.into_faults().unusable.len();
        assert!(sums > 0 || unusable > 0, "a list without sums is an error");
        sums
    };
    Algorithm::value_variants().iter().map(of).sum()
}

fn check(sum: &str, path: &Path, algorithm: Algorithm) {
    let line = sum_line(sum, path, End::LineFeed, Target::File);
    let line = line.strip_suffix(b"\n").expect("lines end with a line feed");
    assert!(!line.contains(&b'\n'), "a name does not end a line");
    for mut shown in
        [sum_line(sum, path, End::LineFeed, Target::Terminal), verdict_line(path, "OK", Target::Terminal)]
    {
        shown.pop();
        let text = String::from_utf8(shown).expect("a terminal gets text");
        assert!(!text.chars().any(char::is_control), "a name does not command a terminal: {text:?}");
    }
    let (sum, path) = (sum.to_owned(), path.to_owned());
    assert_eq!(parse(line, Some(algorithm)), Line::Sum { algorithm, is_tagged: false, sum, path });
}
