//! Section: what a suite tells the report page, without a word of HTML.
//!
//! ```text
//!   suite ─► Section ─┬─ question, answer            what was asked, and one sentence with its figures
//!                     ├─ figures: bars, tables, …    what came out
//!                     └─ methods, facts, notes       how it was taken, on what
//! ```
//
// Owns: the shapes in which results reach the page.
// Does not own: the measurements (suites), how it looks (`page`).

use crate::row::{Better, Row, Whose};

/// A suite's part of the report page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Stable, for links: `scan`.
    pub id: &'static str,
    /// `Cold sequential read`.
    pub title: String,
    /// What the suite answers, as a user would ask it.
    pub question: String,
    /// One sentence with figures.
    pub answer: String,
    /// What the whole page answers, where this suite decides that; empty elsewhere.
    pub headline: String,
    /// In the order of the page.
    pub figures: Vec<Figure>,
    /// How they were taken.
    pub methods: Vec<Method>,
    /// Of the machine, the file and the run: a name and a value each.
    pub facts: Vec<(String, String)>,
    /// What a reader has to know beside that: rows skipped and why, pages that stayed warm.
    pub notes: Vec<String>,
}

/// Something drawn, or a table.
#[derive(Clone, Debug)]
pub enum Figure {
    /// One value of each row.
    Bars(Bars),
    /// All values of each row.
    Table(Table),
    /// A value for each pair of two settings.
    HeatMap(HeatMap),
    /// Latencies.
    Curves(Curves),
    /// A value over a setting that grows.
    Lines(Lines),
}

/// A bar for each way of doing the same.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Without unit.
    pub caption: String,
    /// `MiB/s`.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

impl Bars {
    /// A bar for each row that has the metric.
    pub fn of<'a>(caption: impl Into<String>, metric: &str, rows: impl IntoIterator<Item = &'a Row>) -> Bars {
        Bars::labelled(caption, metric, rows, |row| row.name.clone())
    }

    /// The same with other words beside the bars than the names of the rows.
    pub fn labelled<'a>(
        caption: impl Into<String>,
        metric: &str,
        rows: impl IntoIterator<Item = &'a Row>,
        label: impl Fn(&Row) -> String,
    ) -> Bars {
        let mut bars = Bars { caption: caption.into(), unit: "", better: Better::Higher, bars: Vec::new() };
        for row in rows {
            let Some((value, of)) = row.value(metric).zip(row.find(metric)) else { continue };
            (bars.unit, bars.better) = (of.unit, of.better);
            let (label, note) = (label(row), row.remark.clone());
            let spread = row.spread(metric).unwrap_or((value, value));
            bars.bars.push(Bar { label, value, spread, whose: row.whose, note });
        }
        bars
    }
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What is beside it.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// Lowest and highest of the rounds; equal to the value where there was one round.
    pub spread: (f64, f64),
    /// Its colour and pattern.
    pub whose: Whose,
    /// `first 64 MiB only`; empty where nothing is to be said.
    pub note: String,
}

/// Rows of values that are already words.
#[derive(Clone, Debug)]
pub struct Table {
    /// Of the page; the head of the first column is that of the text.
    pub caption: String,
    /// The first one names the rows.
    pub columns: Vec<String>,
    /// Columns that the text leaves out where the terminal is too narrow, in the order in which they go.
    pub minor: Vec<usize>,
    /// As many cells as there are columns.
    pub rows: Vec<(Whose, Vec<String>)>,
    /// Where it is shown.
    pub media: Media,
}

/// Where a table is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Media {
    /// In the text and on the page.
    Both,
    /// On the page alone.
    Page,
    /// In the text alone.
    Text,
}

/// A value for each pair of two settings.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// Without unit.
    pub caption: String,
    /// `MiB/s`.
    pub unit: &'static str,
    /// `requests in flight`, and the settings from left to right.
    pub across: (String, Vec<String>),
    /// `request size`, and the settings from top to bottom.
    pub down: (String, Vec<String>),
    /// A row for each setting from top to bottom; `None` where nothing was measured.
    pub cells: Vec<Vec<Option<f64>>>,
    /// The row and the column of the one that is recommended.
    pub chosen: Option<(usize, usize)>,
}

/// Latencies over percentiles.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Without unit.
    pub caption: String,
    /// `µs`.
    pub unit: &'static str,
    /// In the order of the key.
    pub curves: Vec<Curve>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In the key.
    pub label: String,
    /// Its colour in the key.
    pub whose: Whose,
    /// Share of the operations, 0 to 1, rising; and how long those take at most.
    pub points: Vec<(f64, f64)>,
}

/// A value over a setting that grows step by step.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Without unit.
    pub caption: String,
    /// `GiB/s`.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// `size of the buffer`, and its steps from left to right.
    pub across: (String, Vec<String>),
    /// In the order of the key.
    pub lines: Vec<Line>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the key.
    pub label: String,
    /// Its colour in the key.
    pub whose: Whose,
    /// A value for each step, with the lowest and the highest of the rounds; `None` where nothing was measured.
    pub points: Vec<Option<(f64, (f64, f64))>>,
}

/// How figures were taken.
#[derive(Clone, Debug)]
pub struct Method {
    /// Which rows.
    pub what: String,
    /// In whole sentences.
    pub how: String,
    /// The line of fio that does the same, where there is one.
    pub fio: Option<String>,
}

impl Method {
    /// How something was taken.
    pub fn new(what: impl Into<String>, how: impl Into<String>) -> Method {
        Method { what: what.into(), how: how.into(), fio: None }
    }

    /// With the line of fio that does the same.
    #[must_use]
    pub fn fio(self, line: impl Into<String>) -> Method {
        Method { fio: Some(line.into()), ..self }
    }
}

/// What was said in passing as a sentence: with a capital and a full stop. Names keep their small letters.
pub fn sentence(text: &str) -> String {
    let is_name = ["headwater", "mmap", "pread"].iter().any(|name| text.starts_with(name));
    let mut letters = text.trim_end_matches('.').chars();
    match letters.next() {
        None => String::new(),
        Some(first) if is_name => format!("{first}{}.", letters.as_str()),
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        assert_eq!(sentence("time was up"), "Time was up.");
        assert_eq!(sentence("headwater reads."), "headwater reads.");
        assert_eq!(sentence(""), "");
    }
}
