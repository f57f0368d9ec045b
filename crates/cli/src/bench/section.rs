//! Section: what a suite tells the report page, without a word of HTML.
//!
//! ```text
//!   suite ─► Section ─┬─ question, answer            what was asked, and one sentence with its figures
//!                     ├─ figures: bars, tables, …    what came out
//!                     └─ methods, facts, notes       how it was taken, on what
//! ```
//!
//! Owns: the shapes in which results reach the page.
//! Does not own: the measurements (suites), how it looks (`page`).

/// A suite's part of the report page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// Stable, for links: `scan`.
    pub(crate) id: &'static str,
    /// `Cold sequential read`.
    pub(crate) title: String,
    /// What the suite answers, as a user would ask it.
    pub(crate) question: String,
    /// One sentence with figures.
    pub(crate) answer: String,
    /// What the whole page answers, where this suite decides that; empty elsewhere.
    pub(crate) headline: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) methods: Vec<Method>,
    /// Of the machine, the file and the run: a name and a value each.
    pub(crate) facts: Vec<(String, String)>,
    /// What a reader has to know beside that: rows skipped and why, pages that stayed warm.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Figure {
    Bars(Bars),
    Table(Table),
    HeatMap(HeatMap),
    Curves(Curves),
}

/// A bar for each way of doing the same.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) caption: String,
    /// `MiB/s`.
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) bars: Vec<Bar>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Better {
    Higher,
    Lower,
}

#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// Lowest and highest of the rounds; equal to the value where there was one round.
    pub(crate) spread: (f64, f64),
    pub(crate) whose: Whose,
    /// `first 64 MiB only`; empty where nothing is to be said.
    pub(crate) note: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    Headwater,
    Peer,
    /// What the device, or the memory, can do at most.
    Limit,
}

/// Rows of values that are already words.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) caption: String,
    /// The first one names the rows.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<(Whose, Vec<String>)>,
}

/// A value for each pair of two settings.
#[derive(Clone, Debug)]
pub(crate) struct HeatMap {
    pub(crate) caption: String,
    pub(crate) unit: &'static str,
    /// `requests in flight`, and the settings from left to right.
    pub(crate) across: (String, Vec<String>),
    /// `request size`, and the settings from top to bottom.
    pub(crate) down: (String, Vec<String>),
    /// A row for each setting from top to bottom; `None` where nothing was measured.
    pub(crate) cells: Vec<Vec<Option<f64>>>,
    /// The row and the column of the one that is recommended.
    pub(crate) chosen: Option<(usize, usize)>,
}

/// Latencies over percentiles.
#[derive(Clone, Debug)]
pub(crate) struct Curves {
    pub(crate) caption: String,
    /// `µs`.
    pub(crate) unit: &'static str,
    pub(crate) curves: Vec<Curve>,
}

#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) label: String,
    pub(crate) whose: Whose,
    /// Share of the operations, 0 to 1, rising; and how long those take at most.
    pub(crate) points: Vec<(f64, f64)>,
}

/// How figures were taken.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    /// Which rows.
    pub(crate) what: String,
    pub(crate) how: String,
    /// The line of fio that does the same, where there is one.
    pub(crate) fio: Option<String>,
}

/// What was said in passing as a sentence: with a capital and a full stop. Names keep their small letters.
pub(crate) fn sentence(text: &str) -> String {
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
