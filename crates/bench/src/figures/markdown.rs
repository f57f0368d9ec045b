//! Markdown: stored results as a document, and the table of the README.
//!
//! Owns: which columns a table has, how a number is written, what the README shows.
//! Does not own: what was measured (figures).

use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Chapter, Figures};

/// The results of a suite, as its JSON has them.
#[derive(Deserialize)]
struct Suite {
    suite: String,
    #[serde(default)]
    rows: Vec<Map<String, Value>>,
    /// Rows with reasons, or the reason why the whole suite could not run.
    #[serde(default)]
    skipped: Value,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    answer: String,
    #[serde(default)]
    verdicts: Vec<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    title: String,
    measured: f64,
    bar: Option<Bar>,
    is_met: bool,
    is_close: bool,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

/// All chapters, each with the command, the machine, the day and the commit of its figures.
pub(super) fn document(figures: &Figures) -> String {
    let mut text = String::from(
        "# Benchmarks\n\n`just figures` measures all of this and writes this page; nothing in it is written by hand. Each table was \
         measured in one run, the ways interleaved; a value is the median of its rounds, the spread is that of its first column. Met or \
         missed \"by less than the spread\" is a limit that lies where the ratio lies with 95 %, by the ratios of the rounds, and that not \
         all rounds are beyond: other rounds may decide otherwise. Trust the ratios: the machine is shared.\n",
    );
    for chapter in &figures.chapters {
        let Chapter { id, command, date, commit, machine, .. } = chapter;
        let _ = write!(text, "\n## {id}\n\n`{command}`, {date}, commit {commit}; {machine}.\n");
        suites_of(chapter).iter().for_each(|suite| text += &suite.text());
    }
    text
}

fn suites_of(chapter: &Chapter) -> Vec<Suite> {
    suites(&chapter.results).expect("results are stored only in this form")
}

/// Whether results have the form that can be rendered.
pub(super) fn check(results: &Value) -> serde_json::Result<()> {
    suites(results).map(drop)
}

fn suites(results: &Value) -> serde_json::Result<Vec<Suite>> {
    let all = results.get("suites").unwrap_or(results).clone();
    let mut suites: Vec<Suite> =
        serde_json::from_value(if all.is_array() { all } else { Value::Array(vec![all]) })?;
    suites.iter_mut().for_each(|suite| suite.rows = suite.rows.drain(..).flat_map(cells_of).collect());
    Ok(suites)
}

/// A row for each of a row's cells, which tell the ways apart; of a row without cells, itself.
fn cells_of(mut row: Map<String, Value>) -> Vec<Map<String, Value>> {
    let Some(Value::Array(cells)) = row.remove("cells") else { return vec![row] };
    let cells =
        cells.into_iter().filter_map(|cell| if let Value::Object(cell) = cell { Some(cell) } else { None });
    cells.map(|cell| row.clone().into_iter().chain(cell).collect()).collect()
}

impl Suite {
    fn text(&self) -> String {
        let mut text = format!("\n### {}\n", self.suite);
        if !self.rows.is_empty() {
            text += "\n";
            text += &self.table();
        }
        if !self.answer.is_empty() {
            let _ = write!(text, "\n{}\n", self.answer);
        }
        let lines = self.verdicts.iter().map(Verdict::line).chain(self.reasons());
        let lines: Vec<String> = lines.chain(self.notes.iter().cloned()).collect();
        if !lines.is_empty() {
            text += "\n";
        }
        lines.iter().for_each(|line| text += &format!("- {line}\n"));
        text
    }

    /// Why rows are missing.
    fn reasons(&self) -> Vec<String> {
        let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        match &self.skipped {
            Value::Array(rows) => rows
                .iter()
                .map(|row| format!("skipped {}: {}", text(row, "name"), text(row, "reason")))
                .collect(),
            Value::String(reason) => vec![format!("skipped: {reason}")],
            _ => Vec::new(),
        }
    }

    fn table(&self) -> String {
        let (labels, metrics) = (self.labels(), self.metrics());
        let mut heads = labels.clone();
        heads.extend(metrics.iter().map(|(_, unit)| unit.clone()));
        let spread_at = labels.len() + 1;
        heads.insert(spread_at.min(heads.len()), "spread".to_owned());
        let mut text = line(&heads) + &line(&vec!["---".to_owned(); heads.len()]);
        for row in &self.rows {
            let mut cells: Vec<String> = labels.iter().map(|label| shown(row.get(label))).collect();
            cells.extend(metrics.iter().map(|(metric, _)| shown(row.get(metric))));
            let spread = metrics.iter().find_map(|(metric, _)| spread(row, metric));
            cells.insert(spread_at.min(cells.len()), spread.unwrap_or_default());
            text += &line(&cells);
        }
        text
    }

    /// The texts that tell the rows from each other: the name, if the rows have one, behind what tells rows of the same name apart.
    fn labels(&self) -> Vec<String> {
        let is_name = |label: &str| label == "name";
        let texts = self.rows.iter().flat_map(|row| row.iter().filter(|(_, value)| value.is_string()));
        let mut labels: Vec<String> = Vec::new();
        for (label, _) in texts.filter(|(label, _)| *label != "id") {
            if !labels.contains(label) && (is_name(label) || self.tells_apart(label)) {
                labels.push(label.clone());
            }
        }
        labels.sort_by_key(|label| is_name(label));
        labels
    }

    /// Whether rows of the same name, or of none, differ in this label.
    fn tells_apart(&self, label: &str) -> bool {
        let differ = |one: &Map<String, Value>, other: &Map<String, Value>| {
            one.get("name") == other.get("name") && one.get(label) != other.get(label)
        };
        self.rows.iter().enumerate().any(|(at, one)| self.rows[..at].iter().any(|other| differ(one, other)))
    }

    /// Metrics with samples, by name and unit, in the order of the rows that have them first.
    fn metrics(&self) -> Vec<(String, String)> {
        let mut metrics: Vec<(String, String)> = Vec::new();
        let sampled = self.rows.iter().filter_map(|row| row.get("metrics")?.as_array()).flatten();
        for metric in sampled {
            let text = |field: &str| metric[field].as_str().unwrap_or_default().to_owned();
            let (name, unit) = (text("name"), text("unit"));
            if !metrics.iter().any(|(known, _)| *known == name) {
                let head = if unit.is_empty() { name.replace('_', " ") } else { unit };
                metrics.push((name, head));
            }
        }
        metrics
    }
}

impl Verdict {
    fn line(&self) -> String {
        let measured = number(self.measured);
        let verdict = match (self.is_met, self.is_close) {
            (true, false) => "met",
            (true, true) => "met by less than the spread",
            (false, true) => "missed by less than the spread",
            (false, false) => "missed",
        };
        let title = &self.title;
        match self.bar {
            None => format!("{title}: {measured}"),
            Some(Bar::AtLeast(limit)) => format!("{title}: **{measured}**, at least {limit}: {verdict}"),
            Some(Bar::AtMost(limit)) => format!("{title}: **{measured}**, at most {limit}: {verdict}"),
        }
    }
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
}

fn shown(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.as_f64().map_or(String::new(), number),
        None => String::new(),
    }
}

/// With three digits that count, or all before the point.
pub(super) fn number(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

/// How far the samples of a metric range, in per cent of their median.
fn spread(row: &Map<String, Value>, metric: &str) -> Option<String> {
    let value = |name: &str| row.get(name)?.as_f64();
    let (low, high) = (value(&format!("{metric}_min"))?, value(&format!("{metric}_max"))?);
    Some(format!("{:.0} %", (high - low) / value(metric)? * 100.0))
}

/// The README with its table written anew.
///
/// # Errors
/// If it has no place for the table.
pub(super) fn readme(readme: &str, figures: &Figures) -> Result<String, &'static str> {
    let missing = "README.md has no lines with the marks of the table of figures";
    let (before, rest) = readme.split_once(BEGIN).ok_or(missing)?;
    let (_, after) = rest.split_once(END).ok_or(missing)?;
    Ok(format!("{before}{BEGIN}\n{}{END}{after}", table(figures)))
}

const BEGIN: &str = "<!-- figures: begin -->";
const END: &str = "<!-- figures: end -->";

fn table(figures: &Figures) -> String {
    let heads = ["what, against what", "ratio"].map(str::to_owned);
    let mut text = line(&heads) + &line(&["---", "---"].map(str::to_owned));
    for (words, ratio) in highlights(figures) {
        text += &line(&[words.to_owned(), number(ratio)]);
    }
    text
}

/// The ratios that the README shows and were measured, with their words.
pub(super) fn highlights(figures: &Figures) -> Vec<(&'static str, f64)> {
    let all: Vec<Suite> = figures.chapters.iter().flat_map(suites_of).collect();
    let ratio = |suite: &str, start: &str| {
        let verdicts = all.iter().filter(|known| known.suite == suite).flat_map(|suite| &suite.verdicts);
        let metric = |verdict: &Verdict| verdict.title.rsplit_once(", ").map(|(_, metric)| metric.to_owned());
        let mut named = verdicts.filter(|verdict| verdict.title.starts_with(start)).peekable();
        let first = metric(named.peek()?);
        // Of several rivals the best.
        named
            .filter(|verdict| metric(verdict) == first)
            .map(|verdict| verdict.measured)
            .min_by(f64::total_cmp)
    };
    HIGHLIGHTS.iter().filter_map(|&(words, suite, start)| Some((words, ratio(suite, start)?))).collect()
}

/// What the README shows: words, and the suite and the beginning of the title of the ratio.
const HIGHLIGHTS: [(&str, &str, &str); 6] = [
    ("a cold scan, against the best of fio's settings (direct, huge pages)", "scan", "headwater-tuned : fio"),
    (
        "a cold scan, against std (128 KiB reads, readahead 128 KiB)",
        "scan",
        "128K, headwater-tuned : 128K, buffered-128k",
    ),
    (
        "4 KiB at random, 32 in flight from one tokio thread, against fio",
        "ring",
        "headwater, tokio, current thread : fio",
    ),
    ("`headwater cat` of a cold file, against GNU cat", "cat", "cold-cat7 : cold-gnu"),
    ("`headwater cp` and a sync, against GNU cp and a sync", "write-copy", "headwater cp and sync : GNU cp"),
    ("all kinds of work, against the best library at each, geometric mean", "mean", ""),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures() -> Figures {
        let row = |name: &str, rate: f64| {
            json!({"name": name, "mib_per_s": rate, "mib_per_s_min": rate - 1.0, "mib_per_s_max": rate + 1.0,
                   "metrics": [{"name": "mib_per_s", "unit": "MiB/s", "better": "higher", "samples": [rate]}]})
        };
        let verdict = json!({"title": "headwater-tuned : fio 1M, MiB/s", "measured": 1.0625, "bar": {"at_least": 0.95},
                             "is_met": true, "is_close": true});
        let suite = json!({"schema": 1, "suite": "scan", "rows": [row("a|b", 2000.0), row("fio", 12.5)],
                           "skipped": [{"id": "", "name": "x", "reason": "missing"}], "notes": ["warm"], "verdicts": [verdict]});
        let results = json!({"schema": 1, "suite": "bars", "suites": [suite]});
        let [id, command, date, commit, machine] =
            ["bars", "headwater-bench bars", "2026-01-31", "abc", "Linux"].map(str::to_owned);
        Figures { chapters: vec![Chapter { id, command, date, commit, machine, results }] }
    }

    /// Goal: rows, spreads, ratios and reasons are all there, and a name cannot break the table.
    #[test]
    fn chapters_as_text() {
        let text = document(&figures());
        let expected = "\n## bars\n\n`headwater-bench bars`, 2026-01-31, commit abc; Linux.\n\n### scan\n\n\
            | name | MiB/s | spread |\n| --- | --- | --- |\n| a\\|b | 2000 | 0 % |\n| fio | 12.5 | 16 % |\n\n\
            - headwater-tuned : fio 1M, MiB/s: **1.06**, at least 0.95: met by less than the spread\n- skipped x: missing\n- warm\n";
        assert!(text.ends_with(expected), "{text}");
    }

    /// Goal: the figures of a table of ways are there.
    #[test]
    fn cells_are_rows() {
        let cell = |way: &str, rate: f64| json!({"way": way, "gb_per_s": rate, "metrics": [{"name": "gb_per_s", "unit": "GB/s", "samples": [rate]}]});
        let row = json!({"id": "raw", "name": "raw file", "cells": [cell("mmap", 2.0), cell("view", 3.0)]});
        let suite: Vec<Suite> = suites(&json!({"suite": "ubc", "rows": [row]})).unwrap();
        let expected = "| way | name | GB/s | spread |\n| --- | --- | --- | --- |\n| mmap | raw file | 2.00 |  |\n| view | raw file | 3.00 |  |\n";
        assert_eq!(suite[0].table(), expected);
    }

    /// Goal: rows of one name can be told apart. Method: two files read in two ways; a label that all rows share is not shown.
    #[test]
    fn rows_of_one_name_are_told_apart() {
        let row = |state: &str, name: &str| json!({"id": format!("{state}-{name}"), "name": name, "state": state, "kind": "step"});
        let rows = [row("warm", "std"), row("warm", "mmap"), row("cold", "std"), row("cold", "mmap")];
        let suite: Suite = serde_json::from_value(json!({"suite": "cat", "rows": rows})).unwrap();
        assert_eq!(suite.labels(), ["state", "name"]);
        let suite: Suite = serde_json::from_value(json!({"suite": "cat", "rows": &rows[..2]})).unwrap();
        assert_eq!(suite.labels(), ["name"]);
    }

    /// Goal: the README's table has the ratios that were measured, between its marks, and a README without marks is left alone.
    #[test]
    fn the_readme_is_spliced() {
        let before = format!("# It\n{BEGIN}\n12 ducks\n{END}\nmore\n");
        let after = readme(&before, &figures()).unwrap();
        assert!(after.starts_with("# It\n") && after.ends_with("\nmore\n") && !after.contains("ducks"));
        assert!(after.contains("huge pages) | 1.06 |"), "{after}");
        assert_eq!(readme(&after, &figures()).unwrap(), after);
        assert!(readme("# It\n", &figures()).is_err());
    }
}
