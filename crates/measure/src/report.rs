//! Report: what a suite has found out, in the three forms in which it is read.
//!
//! ```text
//!   Report ─┬─ text: head, tables, what was skipped, notes, answer
//!           ├─ JSON: schema, suite, fields of the run, rows, what was skipped, notes
//!           └─ a section of the page
//! ```
//!
//! JSON of one suite is an object, of several `{"schema", "suite": "quick" or "bars", "suites": […]}`. Every suite has
//!
//! | field | what it is |
//! |---|---|
//! | `schema` | the version of this table: fields may be added to one, and none leaves or changes its meaning |
//! | `suite` | its id |
//! | `rows` | labels that tell a row from others (`id`, `name`, …), metrics by their names with what counts of all rounds (`null` where nothing was measured), for medians also `<name>_min` and `<name>_max`, and in `metrics` the samples of all rounds with unit and `better`: `higher` or `lower` |
//! | `skipped` | rows that could not be measured: `id`, `name` and `reason`; of a suite that could not run at all the reason alone |
//! | `failed` | of a suite that has failed, beside others that have not, the reason; it has no rows |
//! | `notes` | what limits the results |
//! | `answer` | the sentence of the text |
//!
//! beside the fields of its own run (`host`, `path`, `rounds`, …).
//
// Owns: the order of text and JSON, the schema.
// Does not own: figures and words (suites), the page (`page`).

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::fold::hanging;
use crate::page;
use crate::row::Row;
use crate::section::{Figure, Media, Section};
use crate::table::{Shown, terminal_width};

/// All that a suite has to say.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the page shows, and the text in part: tables, notes, the answer.
    pub section: Section,
    /// Of the run, for JSON, in their order.
    pub fields: Vec<(&'static str, Value)>,
    /// For JSON.
    pub rows: Vec<Row>,
    /// Rows that could not be measured.
    pub skipped: Vec<Skipped>,
    /// Lines above the tables.
    pub head: Vec<String>,
    /// Lines below the answer.
    pub tail: Vec<String>,
    /// Below all else: a command in each line, which is never folded, so that it can be copied.
    pub commands: Vec<String>,
}

/// A row that could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    id: String,
    name: String,
    reason: String,
}

impl Skipped {
    /// Why the row has no figures.
    pub fn new(id: impl Into<String>, name: impl Into<String>, reason: impl Into<String>) -> Skipped {
        Skipped { id: id.into(), name: name.into(), reason: reason.into() }
    }
}

impl Report {
    /// In all its forms.
    pub fn findings(mut self) -> Findings {
        let (text, wide_text, json) = (self.text(Shown::Fitting), self.text(Shown::All), self.json());
        let skipped = self.skipped.iter().map(|row| format!("skipped {}: {}", row.name, row.reason));
        self.section.notes.splice(0..0, skipped);
        Findings { text, wide_text, json, section: self.section }
    }

    fn text(&self, shown: Shown) -> String {
        let width = terminal_width();
        let folded = |label: &'static str, texts: &[String]| -> Vec<String> {
            texts.iter().flat_map(|text| hanging(label, text, width)).collect()
        };
        let mut lines = folded("", &self.head);
        for figure in &self.section.figures {
            if let Figure::Table(table) = figure
                && table.media != Media::Page
            {
                lines.push(String::new());
                lines.extend(table.lines(width, shown));
            }
        }
        lines.push(String::new());
        let skipped = self.skipped.iter().map(|row| format!("{}: {}", row.name, row.reason));
        lines.extend(folded("skipped ", &skipped.collect::<Vec<_>>()));
        lines.extend(folded("note: ", &self.section.notes));
        lines.extend(
            [&self.section.answer]
                .into_iter()
                .filter(|answer| !answer.is_empty())
                .flat_map(|answer| hanging("", answer, width)),
        );
        lines.extend(folded("", &self.tail));
        lines.extend(self.commands.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn json(&self) -> Value {
        let mut all = envelope(self.section.id);
        all.extend(self.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        all.insert("rows".to_owned(), json!(self.rows));
        all.insert("skipped".to_owned(), json!(self.skipped));
        all.insert("notes".to_owned(), json!(self.section.notes));
        all.insert("answer".to_owned(), json!(self.section.answer));
        Value::Object(all)
    }
}

fn envelope(suite: &str) -> Map<String, Value> {
    let fields = [("schema", json!(SCHEMA)), ("suite", json!(suite))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A suite's results: a table for people, JSON for programs, a section of the report page.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Lines, each with its end. Tables have the columns that fit the terminal.
    pub text: String,
    /// The same with all columns.
    wide_text: String,
    json: Value,
    section: Section,
}

impl Findings {
    /// Of results that have a form of their own.
    ///
    /// # Panics
    /// If the report cannot be JSON: with keys that are no texts.
    pub fn new(text: String, report: &impl Serialize, section: Section) -> Findings {
        let json = serde_json::to_value(report).expect("numbers and texts can be written");
        Findings { wide_text: text.clone(), text, json, section }
    }

    /// The text with these columns.
    pub fn text(&self, shown: Shown) -> &str {
        if shown == Shown::All { &self.wide_text } else { &self.text }
    }

    /// Of a suite that cannot run here: the reason, everywhere where its results would be.
    pub fn skipped(id: &'static str, title: &str, reason: &str) -> Findings {
        Findings::without_rows("skipped", id, title, reason)
    }

    /// The same of a suite that has failed.
    pub fn failed(id: &'static str, title: &str, reason: &str) -> Findings {
        Findings::without_rows("failed", id, title, reason)
    }

    fn without_rows(word: &str, id: &'static str, title: &str, reason: &str) -> Findings {
        let mut json = envelope(id);
        json.insert(word.to_owned(), json!(reason));
        let notes = vec![format!("{word}: {reason}")];
        let section = Section { id, title: title.to_owned(), notes, ..Section::default() };
        let text = format!("{word} {id}: {reason}\n");
        Findings { wide_text: text.clone(), text, json: Value::Object(json), section }
    }
}

/// One report as it is, several as those of the quick form.
pub fn json(findings: &[Findings]) -> String {
    match findings {
        [one] => format!("{:#}", one.json),
        several => json_as("quick", several),
    }
}

/// Several reports by a name that they have together.
pub fn json_as(name: &str, findings: &[Findings]) -> String {
    let mut all = envelope(name);
    let suites = findings.iter().map(|findings| findings.json.clone());
    all.insert("suites".to_owned(), suites.collect());
    format!("{:#}", Value::Object(all))
}

/// The question at the head of the page of these suites and its answer, for a terminal. Empty where no suite answers it.
pub fn headline(findings: &[Findings]) -> String {
    let answers = findings.iter().map(|findings| &findings.section.headline);
    let answer = answers.into_iter().find(|answer| !answer.is_empty());
    answer.map_or(String::new(), |answer| {
        let lines = hanging("", answer, terminal_width());
        format!("{}\n{}\n", page::QUESTION, lines.join("\n"))
    })
}

/// The page of these suites, with their JSON inside.
pub fn html(findings: &[Findings]) -> String {
    let sections: Vec<&Section> = findings.iter().map(|findings| &findings.section).collect();
    page::page(&sections, &json(findings))
}

/// Of the JSON. 1 is the first that has this field; what was written before differs from it by having none, and no `metrics`.
const SCHEMA: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Metric, Whose};
    use crate::section::Table;
    use crate::table::Column;

    /// Goal: text and JSON have all parts, in their order.
    #[test]
    fn parts_of_a_report() {
        let row = Row::new(Whose::Peer, "std").named().metric(Metric::only("it", Some(2.0)));
        let table = Table::of("It", &[Column::names("way"), Column::value("it", "it", 0)], [&row]);
        let hidden = Table { media: Media::Page, ..table.clone() };
        let report = Report {
            section: Section {
                id: "x",
                answer: "it is 2".to_owned(),
                figures: vec![Figure::Table(table), Figure::Table(hidden)],
                notes: vec!["warm".to_owned()],
                ..Section::default()
            },
            fields: vec![("rounds", json!(3))],
            rows: vec![row],
            skipped: vec![Skipped::new("a", "mmap", "no map")],
            head: vec!["head".to_owned()],
            tail: vec!["tail".to_owned()],
            commands: vec!["fio".to_owned()],
        };
        let findings = report.findings();
        let text = "head\n\nway  it\nstd   2\n\nskipped mmap: no map\nnote: warm\nit is 2\ntail\nfio\n";
        assert_eq!(findings.text, text);
        let expected = json!({
            "schema": 1, "suite": "x", "rounds": 3, "rows": [{"name": "std", "it": 2.0}],
            "skipped": [{"id": "a", "name": "mmap", "reason": "no map"}], "notes": ["warm"], "answer": "it is 2"
        });
        assert_eq!(findings.json, expected);
        assert_eq!(findings.section.notes, ["skipped mmap: no map", "warm"]);
    }

    /// Goal: a suite that cannot run, or has failed, says why in the table, in the JSON and on the page.
    #[test]
    fn suites_without_rows_say_why() {
        let findings = Findings::skipped("nop", "The ring", "a \"filter\" forbids it");
        assert_eq!(findings.text, "skipped nop: a \"filter\" forbids it\n");
        let expected = json!({"schema": 1, "suite": "nop", "skipped": "a \"filter\" forbids it"});
        assert_eq!(findings.json, expected);
        assert!(html(&[findings]).contains("Skipped: a &quot;filter&quot; forbids it."));
        let findings = Findings::failed("ubc", "Files", "no room");
        assert_eq!(findings.text, "failed ubc: no room\n");
        assert_eq!(findings.json, json!({"schema": 1, "suite": "ubc", "failed": "no room"}));
        assert!(html(&[findings]).contains("Failed: no room."));
    }

    /// Goal: one report stands by itself, several in a list, and both are JSON.
    #[test]
    fn reports_are_json() {
        let findings = || Findings::new(String::new(), &[1, 2], Section::default());
        let read = |findings: &[Findings]| -> Value { serde_json::from_str(&json(findings)).unwrap() };
        assert_eq!(read(&[findings()]), json!([1, 2]));
        assert_eq!(read(&[findings(), findings()])["suites"], json!([[1, 2], [1, 2]]));
    }
}
