//! Table: rows as columns of words, and their text, which fits the terminal.
//!
//! ```text
//!   rows × columns ─► cells ─► widths ─► too wide for the terminal? the columns that are left go below, beside the names again
//! ```
//
// Owns: what a cell shows, alignment, the width of the terminal.
// Does not own: which columns a suite has, the table as HTML (`page`).

use std::fmt;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

use crate::row::Row;
use crate::section::{Media, Table};

/// A column: its head, and what it shows of a row.
pub struct Column<'a> {
    head: String,
    cell: Box<dyn Fn(&Row) -> String + 'a>,
}

impl<'a> Column<'a> {
    /// Whatever is to be shown of a row.
    pub fn new(head: impl Into<String>, cell: impl Fn(&Row) -> String + 'a) -> Column<'a> {
        Column { head: head.into(), cell: Box::new(cell) }
    }

    /// The names of the rows.
    pub fn names(head: impl Into<String>) -> Column<'a> {
        Column::new(head, |row| row.name.clone())
    }

    /// What counts of a metric, with this number of places.
    pub fn value(head: impl Into<String>, metric: &'static str, places: usize) -> Column<'a> {
        Column::scaled(head, metric, 1.0, places)
    }

    /// The same times a factor: in another unit.
    pub fn scaled(head: impl Into<String>, metric: &'static str, factor: f64, places: usize) -> Column<'a> {
        Column::new(head, move |row| shown(row.value(metric).map(|value| value * factor), places))
    }

    /// A share as per cent.
    pub fn percent(head: impl Into<String>, metric: &'static str) -> Column<'a> {
        Column::scaled(head, metric, 100.0, 1)
    }

    /// The lowest and the highest sample.
    pub fn spread(metric: &'static str, places: usize) -> Column<'a> {
        Column::new("min – max", move |row| match row.spread(metric) {
            Some((low, high)) => format!("{low:.places$}\u{a0}–\u{a0}{high:.places$}"),
            None => "-".to_owned(),
        })
    }
}

/// With this number of places; a dash for nothing.
pub fn shown(value: Option<f64>, places: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.places$}"))
}

impl Table {
    /// A row of the table for each row.
    pub fn of<'a>(
        caption: impl Into<String>,
        columns: &[Column<'_>],
        rows: impl IntoIterator<Item = &'a Row>,
    ) -> Table {
        let cells = |row: &Row| columns.iter().map(|column| (column.cell)(row)).collect();
        Table {
            caption: caption.into(),
            columns: columns.iter().map(|column| column.head.clone()).collect(),
            rows: rows.into_iter().map(|row| (row.whose, cells(row))).collect(),
            media: Media::Both,
        }
    }

    /// As lines that are no longer than `width` as far as that is possible: names to the left, all else to the right.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let all: Vec<&[String]> =
            [&self.columns[..]].into_iter().chain(self.rows.iter().map(|(_, cells)| &cells[..])).collect();
        let widest = |column: usize| all.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(widest).collect();
        let mut lines = Vec::new();
        for part in parts(&widths, width.unwrap_or(usize::MAX)) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let line = |cells: &&[String]| {
                let rest = part.clone().map(|column| format!("  {:>1$}", cells[column], widths[column]));
                let line = format!("{:<1$}", cells[0], widths[0]) + &rest.collect::<String>();
                line.trim_end().to_owned()
            };
            lines.extend(all.iter().map(line));
        }
        lines
    }
}

impl fmt::Display for Table {
    /// As lines that fit the terminal, each with its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines(terminal_width()).iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Which columns go beside the first, and which below.
fn parts(widths: &[usize], width: usize) -> Vec<std::ops::Range<usize>> {
    let (mut parts, mut start, mut used) = (Vec::new(), 1, widths.first().copied().unwrap_or(0));
    for (column, needed) in widths.iter().enumerate().skip(1).map(|(column, wide)| (column, wide + 2)) {
        if used + needed > width && column > start {
            parts.push(start..column);
            (start, used) = (column, widths[0]);
        }
        used += needed;
    }
    parts.push(start..widths.len().max(start));
    parts
}

/// Of standard output; `None` where it is no terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let output = io::stdout();
    let size = output.is_terminal().then(|| tcgetwinsize(output).ok()).flatten()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Better, Metric, Whose};

    fn table() -> Table {
        let metric = |name, samples: &[f64]| Metric::new(name, "", Better::Higher, samples.iter().copied());
        let row = |name: &str| {
            Row::new(Whose::Peer, name).metric(metric("a", &[1.0, 3.0])).metric(metric("b", &[]))
        };
        let columns = [
            Column::names("way"),
            Column::value("a", "a", 1),
            Column::spread("a", 0),
            Column::percent("%", "a"),
            Column::value("b", "b", 0),
        ];
        Table::of("It", &columns, &[row("std"), row("headwater")])
    }

    #[test]
    fn columns_are_aligned() {
        let lines = ["way          a  min – max      %  b", "std        2.0      1 – 3  200.0  -"];
        let found: Vec<String> = table().lines(None).iter().map(|line| line.replace('\u{a0}', " ")).collect();
        assert_eq!(found[..2], lines);
        assert_eq!(found[2].split_whitespace().next(), Some("headwater"));
    }

    /// Goal: no line is wider than the terminal, every column is there, and a terminal too narrow for a column does no harm.
    #[test]
    fn wide_tables_go_on_below() {
        let lines = table().lines(Some(28));
        assert!(lines.iter().all(|line| line.chars().count() <= 28), "{lines:?}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("headwater")).count(), 2, "{lines:?}");
        assert!(lines.iter().any(|line| line.ends_with('b')), "{lines:?}");
        assert_eq!(table().lines(Some(1)).iter().filter(|line| line.starts_with("std")).count(), 4);
    }
}
