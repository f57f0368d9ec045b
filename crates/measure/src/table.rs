//! Table: rows as columns of words, and their text, which fits the terminal.
//!
//! ```text
//!   rows × columns ─► cells ─► widths ─► too wide for the terminal? columns that say least are left out, or all that do not fit
//!                                        go below, beside the names again
//! ```
//
// Owns: what a cell shows, alignment, the width of the terminal.
// Does not own: which columns a suite has, the table as HTML (`page`).

use std::fmt;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

use crate::fold::folded;
use crate::row::Row;
use crate::section::{Media, Table};

/// A column: its head, and what it shows of a row.
pub struct Column<'a> {
    head: String,
    /// Of those that may be left out, the lowest goes first.
    minor: Option<u8>,
    cell: Box<dyn Fn(&Row) -> String + 'a>,
}

impl<'a> Column<'a> {
    /// Whatever is to be shown of a row.
    pub fn new(head: impl Into<String>, cell: impl Fn(&Row) -> String + 'a) -> Column<'a> {
        Column { head: head.into(), minor: None, cell: Box::new(cell) }
    }

    /// A column that is left out of the text where the terminal is too narrow; that of the lowest rank first.
    #[must_use]
    pub fn minor(self, rank: u8) -> Column<'a> {
        Column { minor: Some(rank), ..self }
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
        let ranked = columns.iter().enumerate().filter_map(|(index, column)| Some((column.minor?, index)));
        let mut ranked: Vec<(u8, usize)> = ranked.collect();
        ranked.sort_unstable();
        Table {
            caption: caption.into(),
            minor: ranked.into_iter().map(|(_, index)| index).collect(),
            columns: columns.iter().map(|column| column.head.clone()).collect(),
            rows: rows.into_iter().map(|row| (row.whose, cells(row))).collect(),
            media: Media::Both,
        }
    }

    /// As text that fits the terminal, each line with its end.
    pub fn text(&self, shown: Shown) -> String {
        self.lines(terminal_width(), shown).iter().map(|line| line.clone() + "\n").collect()
    }

    /// As lines that are no longer than `width` as far as that is possible: names to the left, all else to the right.
    pub(crate) fn lines(&self, width: Option<usize>, shown: Shown) -> Vec<String> {
        let all: Vec<&[String]> =
            [&self.columns[..]].into_iter().chain(self.rows.iter().map(|(_, cells)| &cells[..])).collect();
        let widest = |column: usize| all.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(widest).collect();
        let width = width.unwrap_or(usize::MAX);
        let gone = if shown == Shown::All { Vec::new() } else { self.gone(&widths, width) };
        let kept: Vec<usize> = (0..widths.len()).filter(|column| !gone.contains(column)).collect();
        let kept_widths: Vec<usize> = kept.iter().map(|&column| widths[column]).collect();
        let mut lines = Vec::new();
        for part in parts(&kept_widths, width) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let line = |cells: &&[String]| {
                let rest = kept[part.clone()].iter();
                let rest = rest.map(|&column| format!("  {:>1$}", cells[column], widths[column]));
                let line = format!("{:<1$}", cells[0], widths[0]) + &rest.collect::<String>();
                line.trim_end().to_owned()
            };
            lines.extend(all.iter().map(line));
        }
        lines.extend(self.left_out(&gone, width));
        lines
    }

    /// The columns that go so that the others fit, those that say least first.
    fn gone(&self, widths: &[usize], width: usize) -> Vec<usize> {
        let all: usize = widths.iter().sum::<usize>() + SPACE * widths.len().saturating_sub(1);
        let (mut gone, mut needed) = (Vec::new(), all);
        for &column in self.minor.iter().filter(|column| **column < widths.len()) {
            if needed <= width {
                break;
            }
            needed -= widths[column] + SPACE;
            gone.push(column);
        }
        gone
    }

    /// Which columns are not there, in lines that fit.
    fn left_out(&self, gone: &[usize], width: usize) -> Vec<String> {
        let mut names: Vec<&str> = Vec::new();
        for (index, name) in self.columns.iter().enumerate() {
            let name = if name.is_empty() { "remarks" } else { name };
            if gone.contains(&index) && !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Vec::new();
        }
        folded(&format!("(not shown here: {}; --wide shows all)", names.join(", ")), width)
    }
}

impl fmt::Display for Table {
    /// As lines that fit the terminal, each with its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(Shown::Fitting))
    }
}

/// Which columns of a table its text has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Those that fit the terminal, by importance.
    Fitting,
    /// All: what does not fit goes on below.
    All,
}

/// Which columns go beside the first, and which below.
fn parts(widths: &[usize], width: usize) -> Vec<std::ops::Range<usize>> {
    let (mut parts, mut start, mut used) = (Vec::new(), 1, widths.first().copied().unwrap_or(0));
    for (column, needed) in widths.iter().enumerate().skip(1).map(|(column, wide)| (column, wide + SPACE)) {
        if used + needed > width && column > start {
            parts.push(start..column);
            (start, used) = (column, widths[0]);
        }
        used += needed;
    }
    parts.push(start..widths.len().max(start));
    parts
}

/// Between two columns.
const SPACE: usize = 2;

/// Of standard output; `None` where it is no terminal. `COLUMNS` says otherwise, as for `ls` and `ps`.
pub fn terminal_width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    if let Some(columns) = columns.filter(|columns| *columns > 0) {
        return Some(columns);
    }
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
        let found: Vec<String> =
            table().lines(None, Shown::Fitting).iter().map(|line| line.replace('\u{a0}', " ")).collect();
        assert_eq!(found[..2], lines);
        assert_eq!(found[2].split_whitespace().next(), Some("headwater"));
    }

    /// Goal: no line is wider than the terminal, every column is there, and a terminal too narrow for a column does no harm.
    #[test]
    fn wide_tables_go_on_below() {
        let lines = table().lines(Some(28), Shown::All);
        assert!(lines.iter().all(|line| line.chars().count() <= 28), "{lines:?}");
        assert_eq!(lines.iter().filter(|line| line.starts_with("headwater")).count(), 2, "{lines:?}");
        assert!(lines.iter().any(|line| line.ends_with('b')), "{lines:?}");
        assert_eq!(
            table().lines(Some(1), Shown::All).iter().filter(|line| line.starts_with("std")).count(),
            4
        );
    }

    /// Goal: what says least goes first, only as far as needed, and is named; what is left goes on below where even that is too wide.
    #[test]
    fn minor_columns_are_left_out() {
        let table = Table { minor: vec![3, 2], ..table() };
        let lines = |width| table.lines(Some(width), Shown::Fitting);
        assert_eq!(lines(40)[..3], table.lines(None, Shown::All)[..3], "all of it fits");
        assert!(lines(30)[0].contains("min – max") && !lines(30)[0].contains('%'), "{:?}", lines(30));
        assert_eq!(lines(30)[3..], ["(not shown here: %; --wide", "shows all)"]);
        let narrow = lines(20);
        assert!(narrow[0].ends_with('b') && !narrow[0].contains("min"), "{narrow:?}");
        assert!(narrow.iter().all(|line| line.chars().count() <= 20), "{narrow:?}");
        assert_eq!(narrow[3..].join(" "), "(not shown here: min – max, %; --wide shows all)");
        assert_eq!(lines(12).iter().filter(|line| line.starts_with("std")).count(), 2, "{:?}", lines(12));
    }
}
