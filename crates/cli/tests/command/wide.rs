//! Wide: that tables fit narrow terminals, and lose nothing with `--wide` or where there is no terminal.

use std::fs;

use headwater_testkit::ScratchDir;

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
    paragraphs[1..paragraphs.len() - 1].iter().flat_map(|text| text.lines()).map(str::to_owned).collect()
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
        for columns in ["60", "80", "100"] {
            let lines = tables(arguments, Some(columns));
            assert!(widest(&lines) <= columns.parse().unwrap(), "{arguments:?} in {columns}: {lines:#?}");
            assert!(contains(&lines, kept), "{kept} in {lines:#?}");
        }
        let narrow = tables(arguments, Some("60"));
        assert_eq!(
            contains(&narrow, "(not shown here: "),
            !left_out.is_empty() || contains(&narrow, "--wide")
        );
        for whole in [tables(arguments, None), tables(&[arguments, &["--wide"]].concat(), Some("60"))] {
            assert!(contains(&whole, left_out) && !contains(&whole, "--wide"), "{whole:#?}");
        }
    }
}

/// Goal: at 60 and 80 columns sentences fold at the width of the terminal, at 200 they use it, and without a terminal nothing is folded;
/// only paths and commands to copy are longer. Method: what a cold scan, stat, doctor and tune say.
#[test]
fn sentences_fold() {
    let scratch = ScratchDir::on_target().unwrap();
    let (place, file) = (utf8(scratch.path()), scratch.path().join("file"));
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let commands: [&[&str]; 5] = [
        &["stat", utf8(&file)],
        &["stat", "--memory"],
        &["doctor", place],
        &["tune", "--dry-run", "--seconds", "1", place],
        &["bench", "scan", "--size", "1M", "--rounds", "1", "--dir", place],
    ];
    for arguments in commands {
        let lines = |columns: Option<&str>| -> Vec<String> {
            let mut command = headwater();
            command.args(arguments).env_remove("COLUMNS");
            columns.map(|columns| command.env("COLUMNS", columns));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            let is_to_copy = |line: &&str| line.contains("fio --name") || line.contains(place);
            text(&output.stdout).lines().filter(|line| !is_to_copy(line)).map(str::to_owned).collect()
        };
        for columns in [60, 80, 200] {
            let found = lines(Some(&columns.to_string()));
            assert!(widest(&found) <= columns, "{arguments:?} in {columns}: {found:#?}");
        }
        assert!(widest(&lines(Some("60"))) > 40, "{arguments:?}");
        assert!(lines(Some("200")).len() <= lines(Some("60")).len(), "{arguments:?}");
    }
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
