//! Wide: that tables fit narrow terminals, and lose nothing with `--wide` or where there is no terminal.

use std::fs;

use headwater::testing::uring_refusal;
use headwater_testkit::{ScratchDir, skip};

use crate::{headwater, text, utf8};

/// The lines of a command's tables, in a terminal of this width.
fn tables(arguments: &[&str], columns: Option<&str>) -> Vec<String> {
    let mut command = headwater();
    command.args(arguments);
    match columns {
        Some(columns) => command.env("COLUMNS", columns),
        None => command.env_remove("COLUMNS"),
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    // Paragraphs of several lines: the tables, and what is said of the machine before and of the results after them.
    let paragraphs: Vec<&str> = lines.split("\n\n").collect();
    let lines = paragraphs[1..paragraphs.len() - 1].iter().flat_map(|text| text.lines());
    // A command to copy is one line in any terminal.
    lines.filter(|line| !line.starts_with("the device's limit: ")).map(str::to_owned).collect()
}

fn widest(lines: &[String]) -> usize {
    lines.iter().map(|line| line.chars().count()).max().unwrap_or(0)
}

fn contains(lines: &[String], words: &str) -> bool {
    lines.iter().any(|line| line.contains(words))
}

/// Goal: at 60, 80 and 100 columns no line of a table is longer, the most important column is there, and what is left out is named.
#[test]
fn tables_of_suites_fit() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = utf8(scratch.path());
    let suites: [(&[&str], &str, &str); 4] = [
        (
            &["bench", "cat", "--size", "1M", "--warm", "1M", "--rounds", "2", "--dir", place],
            "× GNU cat",
            "in cache %",
        ),
        (&["bench", "scan", "--size", "4M", "--rounds", "2", "--dir", place], "× buffered", "peak MiB"),
        (
            &["bench", "alignment", "--size", "1M", "--ops", "2", "--rounds", "1", "--dir", place],
            "O_DIRECT",
            "",
        ),
        (
            &["tune", "memory", "--size", "1M", "--to", "2K", "--rounds", "2", "--dir", place],
            "headwater",
            "min – max",
        ),
    ];
    for (arguments, kept, left_out) in suites {
        assert_fits(arguments, kept, left_out);
    }
}

/// Goal: the same of the suites that read again and again, and of those with a column for each way. Method: a file of 1 MiB, a round.
#[test]
fn tables_with_many_columns_fit() {
    let scratch = ScratchDir::on_target().unwrap();
    let (place, file) = (utf8(scratch.path()), scratch.path().join("file"));
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let file = utf8(&file);
    let suites: [(&[&str], &str, &str); 4] = [
        (&["bench", "cache", "--file", file, "--rounds", "1", "--seconds", "0.01"], "× pread", "scaling"),
        (
            &["bench", "random", "--file", file, "--memory", "64M", "--rounds", "1", "--seconds", "0.01"],
            "× buffered",
            "own %",
        ),
        (
            &["bench", "readahead", "--file", file, "--places", "10", "--rounds", "1"],
            "adaptive : kernel",
            "device",
        ),
        (
            &["bench", "ubc", "--size", "1M", "--rounds", "1", "--dir", place],
            "headwater",
            "page cache before",
        ),
    ];
    for (arguments, kept, left_out) in suites {
        assert_fits(arguments, kept, left_out);
    }
    match uring_refusal() {
        Some(reason) => skip(reason),
        None => assert_fits(&["bench", "nop", "--seconds", "0.01"], "batches/s", "p99.9999"),
    }
}

/// The column `kept` is there in any width, `left_out` only where there is room for it or `--wide` asks for it.
#[track_caller]
fn assert_fits(arguments: &[&str], kept: &str, left_out: &str) {
    for columns in ["60", "80", "100"] {
        let lines = tables(arguments, Some(columns));
        assert!(widest(&lines) <= columns.parse().unwrap(), "{arguments:?} in {columns}: {lines:#?}");
        assert!(contains(&lines, kept), "{kept} in {lines:#?}");
    }
    let narrow = tables(arguments, Some("60"));
    assert_eq!(contains(&narrow, "(not shown here: "), !left_out.is_empty() || contains(&narrow, "--wide"));
    for whole in [tables(arguments, None), tables(&[arguments, &["--wide"]].concat(), Some("60"))] {
        assert!(contains(&whole, left_out) && !contains(&whole, "--wide"), "{whole:#?}");
    }
}

/// Goal: at 60 columns sentences fold at the width of the terminal, at 200 they use it, and without a terminal nothing is folded;
/// only paths and commands to copy are longer, and these are whole in any terminal. Method: what all suites, stat, doctor and tune say.
#[test]
fn sentences_fold() {
    let scratch = ScratchDir::on_target().unwrap();
    let (place, file) = (utf8(scratch.path()), scratch.path().join("file"));
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let commands: [&[&str]; 12] = [
        &["stat", utf8(&file)],
        &["stat", "--memory"],
        &["doctor", place],
        &["tune", "--dry-run", "--seconds", "1", place],
        &["bench", "scan", "--size", "1M", "--rounds", "1", "--dir", place],
        &["bench", "cat", "--size", "1M", "--warm", "1M", "--rounds", "1", "--dir", place],
        &["bench", "alignment", "--size", "1M", "--ops", "2", "--rounds", "1", "--dir", place],
        &["bench", "cache", "--file", utf8(&file), "--rounds", "1", "--seconds", "0.01"],
        &["bench", "random", "--file", utf8(&file), "--memory=64M", "--rounds", "1", "--seconds", "0.01"],
        &["bench", "readahead", "--file", utf8(&file), "--places", "10", "--rounds", "1"],
        &["bench", "ubc", "--size", "1M", "--rounds", "1", "--dir", place],
        &["bench", "nop", "--seconds", "0.01"],
    ];
    let has_uring = uring_refusal().is_none();
    for arguments in commands.into_iter().filter(|arguments| has_uring || arguments[1] != "nop") {
        let (to_copy, narrow) = sentences(arguments, Some("60"), place);
        let (whole_to_copy, _) = sentences(arguments, None, place);
        // Which setting of tune they repeat is another in each run.
        let words = |lines: &[String]| lines.iter().map(|line| line.split(' ').count()).collect::<Vec<_>>();
        assert_eq!(words(&to_copy), words(&whole_to_copy), "{to_copy:#?} of {arguments:?}");
        let (_, wide) = sentences(arguments, Some("200"), place);
        for (columns, found) in [(60, &narrow), (200, &wide)] {
            assert!(widest(found) <= columns, "{arguments:?} in {columns}: {found:#?}");
        }
        assert!(widest(&narrow) > 40, "{arguments:?}");
        assert!(wide.len() <= narrow.len(), "{arguments:?}");
    }
}

/// What a command says in a terminal of this width: the commands of fio, and all other lines but those with the place.
fn sentences(arguments: &[&str], columns: Option<&str>, place: &str) -> (Vec<String>, Vec<String>) {
    let mut command = headwater();
    command.args(arguments).env_remove("COLUMNS");
    columns.map(|columns| command.env("COLUMNS", columns));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    let (to_copy, others): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.contains("fio --name"));
    (to_copy, others.into_iter().filter(|line| !line.contains(place)).collect())
}

/// Goal: the same of a replay, whose columns are all numbers.
#[test]
fn tables_of_replays_fit() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace.csv");
    fs::write(&trace, "time,obj_id,size,op\n0,1,4096,r\n1,2,4096,r\n").unwrap();
    let replay = ["trace", "replay", utf8(&trace), "--cache", "1M"];
    let run = |columns: Option<&str>, more: &[&str]| {
        let mut command = headwater();
        command.args(replay).args(more).env_remove("COLUMNS");
        columns.map(|columns| command.env("COLUMNS", columns));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let narrow = run(Some("60"), &[]);
    assert!(widest(&narrow) <= 60 && contains(&narrow, "miss ratio"), "{narrow:#?}");
    assert!(contains(&narrow, "(not shown here: requests"), "{narrow:#?}");
    for whole in [run(None, &[]), run(Some("60"), &["--wide"]), run(Some("200"), &[])] {
        assert!(contains(&whole, "unused") && !contains(&whole, "not shown"), "{whole:#?}");
    }
}
