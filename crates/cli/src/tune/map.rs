//! Map: rates by request size and depth, as a map of characters.
//!
//! Owns: shades, marks, colours, and whether they are used.
//! Does not own: the text around it (`words`).

use std::io::IsTerminal;

use super::report::Grid;
use crate::shared::units::readable;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// The style of standard output: colours on a terminal, unless `NO_COLOR` (no-color.org) asks for none.
    pub(super) fn of_output() -> Style {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !is_unwanted { Style::Coloured } else { Style::Plain }
    }
}

/// A line for each size; columns are depths; dots where nothing was measured; brackets around the choice. What is wider than `width`
/// characters goes on below.
pub(super) fn map(grid: &Grid, style: Style, width: Option<usize>) -> Vec<String> {
    let fitting = width.map_or(grid.depths.len(), |width| width.saturating_sub(HEAD_COLUMNS) / CELL_COLUMNS);
    let columns: Vec<usize> = (0..grid.depths.len()).collect();
    columns.chunks(fitting.max(1)).flat_map(|columns| part(grid, style, columns)).collect()
}

/// These columns.
fn part(grid: &Grid, style: Style, columns: &[usize]) -> Vec<String> {
    let rows = grid.rows();
    let highest = rows.iter().flatten().flatten().copied().fold(0.0, f64::max);
    let depths: String = columns.iter().map(|&column| format!("{:>7}    ", grid.depths[column])).collect();
    let mut lines = vec![format!("  {:>9}{}", "", depths.trim_end())];
    for (row, (size, rates)) in grid.sizes_bytes.iter().zip(&rows).enumerate() {
        let cell = |&column: &usize| {
            let is_chosen = grid.chosen_at() == Some((row, column));
            cell_text(rates[column], highest, if is_chosen { ("[", "]") } else { (" ", " ") }, style)
        };
        let cells: String = columns.iter().map(cell).collect();
        lines.push(format!("  {:>9}{}", readable(*size), cells.trim_end()));
    }
    lines
}

/// Of the size, and the space before it.
const HEAD_COLUMNS: usize = 11;

const CELL_COLUMNS: usize = 11;

/// A cell, eleven columns wide.
fn cell_text(rate: Option<f64>, highest: f64, (open, close): (&str, &str), style: Style) -> String {
    let Some(rate) = rate else { return format!("{open}   {:>5}{close} ", "·") };
    let shade = shade(if highest > 0.0 { rate / highest } else { 0.0 });
    let shown = shade.character.to_string().repeat(2);
    let shown = match style {
        Style::Plain => shown,
        Style::Coloured => format!("\x1b[38;5;{}m{shown}\x1b[0m", shade.colour),
    };
    format!("{open}{shown} {:>5}{close} ", short(rate))
}

/// A rate in five characters at most.
fn short(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shade {
    pub(super) character: char,
    /// One of the 256 colours of terminals.
    colour: u8,
}

/// The shade of a share of the highest rate.
pub(super) fn shade(share: f64) -> Shade {
    let shades = [(0.97, '█', 46), (0.8, '▓', 112), (0.5, '▒', 178), (0.2, '░', 172)];
    let reached = shades.into_iter().find(|(least, ..)| share >= *least);
    let (_, character, colour) = reached.unwrap_or((0.0, '∙', 160));
    Shade { character, colour }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Choice, Rate};
    use super::super::setting::Setting;
    use super::*;

    fn grid() -> Grid {
        let rate = |size_bytes, depth, mib_per_s| Rate {
            setting: Setting { size_bytes, depth },
            mib_per_s,
            requests_per_s: 1.0,
            measurements: 1,
        };
        let setting = Setting { size_bytes: 8192, depth: 2 };
        Grid {
            order: None,
            sizes_bytes: vec![4096, 8192],
            depths: vec![1, 2],
            ends_at_memory: false,
            cells: vec![rate(4096, 1, 5.0), rate(8192, 1, 60.0), rate(8192, 2, 100.0)],
            chosen: Choice {
                setting,
                queue_bytes: 16_384,
                mib_per_s: 100.0,
                mib_per_s_min: 100.0,
                mib_per_s_max: 100.0,
                requests_per_s: 1.0,
                share_of_best: 1.0,
                fio: String::new(),
            },
            best: setting,
        }
    }

    /// Goal: every cell in its place, unmeasured ones as dots, the choice in brackets, no codes without colours.
    #[test]
    fn cells_are_where_they_belong() {
        let lines = map(&grid(), Style::Plain, None);
        let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["1", "2"]);
        assert_eq!(words[1], ["4", "KiB", "∙∙", "5.0", "·"]);
        assert_eq!(words[2], ["8", "KiB", "▒▒", "60", "[██", "100]"]);
        assert!(!lines.concat().contains('\x1b'));
        let narrow = map(&grid(), Style::Plain, Some(30));
        let heads: Vec<&str> = narrow.iter().map(|line| line.trim()).collect();
        assert_eq!((narrow.len(), heads[0], heads[3]), (6, "1", "2"), "the second depth goes on below");
        assert!(narrow.iter().all(|line| line.chars().count() <= 30), "{narrow:?}");
        assert!(map(&grid(), Style::Coloured, None).concat().contains("\x1b[38;5;46m██\x1b[0m"));
    }
}
