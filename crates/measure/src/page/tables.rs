//! Tables: rows of words, and heat maps, which are tables with shaded cells.
//!
//! Owns: their markup, how dark a cell is.
//! Does not own: colours (`style.css`).

use maud::{Markup, html};

use super::{figure, whose_class};
use crate::row::Whose;
use crate::section::{HeatMap, Table};

/// On a narrow screen the rows are folded: each cell stands below its head. The roles say still what they are.
pub(super) fn table(table: &Table, id: &str) -> Markup {
    let is_many = table.columns.len() > FEW_COLUMNS;
    html! {
        (scrolling(id, html! {
            table .folding .many[is_many] role="table" {
                caption id={ (id) "-caption" } { span .words { (table.caption) } }
                thead role="rowgroup" {
                    tr role="row" {
                        @for (index, column) in table.columns.iter().enumerate() {
                            th scope="col" role="columnheader" .of-numbers[is_of_numbers(table, index)] { (column) }
                        }
                    }
                }
                tbody role="rowgroup" {
                    @for (whose, cells) in &table.rows { (row(*whose, cells, &table.columns)) }
                }
            }
        }))
    }
}

fn row(whose: Whose, cells: &[String], heads: &[String]) -> Markup {
    let (name, values) = cells.split_first().map_or(("", cells), |(name, values)| (name.as_str(), values));
    html! {
        tr .(whose_class(whose)) role="row" {
            th scope="row" role="rowheader" {
                (name)
                @if whose == Whose::Limit { " " span .tag { "limit" } }
            }
            @for (value, head) in values.iter().zip(heads.iter().skip(1)) {
                td .number[is_number(value)] role="cell" data-head=(head) { (value) }
            }
        }
    }
}

pub(super) fn heat_map(map: &HeatMap, id: &str) -> Markup {
    let (across, settings_across) = &map.across;
    let (down, settings_down) = &map.down;
    let values = || map.cells.iter().flatten().flatten().copied().filter(|value| value.is_finite());
    let full = values().fold(0.0, f64::max);
    let has_gaps = map.cells.iter().flatten().any(Option::is_none);
    html! {
        (scrolling(id, html! {
            table .heat {
                caption id={ (id) "-caption" } {
                    span .words {
                        (map.caption) ", " (map.unit)
                        span .better {
                            " – the stronger the shade the more" @if has_gaps { "; ·\u{a0}was not measured" }
                        }
                    }
                }
                thead {
                    tr {
                        th scope="col" rowspan="2" { (down) }
                        th scope="colgroup" colspan=(settings_across.len()) { (across) }
                    }
                    tr { @for setting in settings_across { th scope="col" { (setting) } } }
                }
                tbody {
                    @for (index, (setting, cells)) in settings_down.iter().zip(&map.cells).enumerate() {
                        tr {
                            th scope="row" { (setting) }
                            @for (column, cell) in cells.iter().enumerate() {
                                (shaded(*cell, full, map.chosen == Some((index, column))))
                            }
                        }
                    }
                }
            }
        }))
    }
}

fn shaded(value: Option<f64>, full: f64, is_chosen: bool) -> Markup {
    let share = value.map_or(0.0, |value| if full > 0.0 { (value / full).clamp(0.0, 1.0) } else { 0.0 });
    html! {
        td .number .chosen[is_chosen] style={ "--share:" (format!("{share:.3}")) } {
            @match value {
                Some(value) => (figure(value)),
                None => span .remark { "·" },
            }
            @if is_chosen { " " span .tag { "chosen" } }
        }
    }
}

/// Wide tables move by themselves, by keys too, and the page stays where it is.
fn scrolling(id: &str, table: Markup) -> Markup {
    html! {
        div .scroll id=(id) role="region" tabindex="0" aria-labelledby={ (id) "-caption" } { (table) }
    }
}

/// As many columns as a tablet shows beside each other.
const FEW_COLUMNS: usize = 7;

/// Whether the head of a column stands above figures: to their right edge.
fn is_of_numbers(table: &Table, column: usize) -> bool {
    let cells = || table.rows.iter().filter_map(|(_, cells)| cells.get(column));
    column > 0 && cells().next().is_some() && cells().all(|cell| cell.is_empty() || is_number(cell))
}

/// Figures stand one below the other.
fn is_number(text: &str) -> bool {
    let first = text.trim_start_matches(['-', '+', '×', ' ']).chars().next();
    text == "-" || text == "–" || first.is_some_and(|letter| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Media;

    /// Goal: shading follows the value, the chosen cell is named, and gaps are said.
    #[test]
    fn heat() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let map = HeatMap {
            caption: "Rate".to_owned(),
            unit: "MiB/s",
            across: ("in flight".to_owned(), words(&["1", "2"])),
            down: ("size".to_owned(), words(&["4 KiB", "1 MiB"])),
            cells: vec![vec![Some(250.0), None], vec![Some(500.0), Some(1000.0)]],
            chosen: Some((1, 1)),
        };
        let text = heat_map(&map, "x").into_string();
        let parts = [
            "--share:0.250",
            "--share:0.500",
            "--share:1.000",
            "·\u{a0}was not measured",
            "1 MiB",
            "in flight",
        ];
        for part in parts {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.contains("1000 <span class=\"tag\">chosen</span>"), "{text}");
        assert_eq!(text.matches("chosen\"").count(), 1, "{text}");
    }

    /// Goal: a head stands above what is below it: words to the left, figures to the right.
    #[test]
    fn heads_stand_above_their_columns() {
        let row = |cells: [&str; 4]| (Whose::Peer, cells.map(str::to_owned).to_vec());
        let table = Table {
            caption: "Settings".to_owned(),
            columns: ["arm", "mode", "MiB/s", "spread"].map(str::to_owned).to_vec(),
            minor: Vec::new(),
            rows: vec![row(["a", "auto", "12", "3 %"]), row(["b", "direct", "-", ""])],
            media: Media::Both,
        };
        let text = super::table(&table, "x").into_string();
        let of_numbers = |head: &str| {
            text.contains(&format!("<th class=\"of-numbers\" scope=\"col\" role=\"columnheader\">{head}<"))
        };
        assert_eq!(["arm", "mode", "MiB/s", "spread"].map(of_numbers), [false, false, true, true], "{text}");
        // Where rows are folded, a cell says itself what its head is.
        assert!(text.contains("data-head=\"MiB/s\">12<"), "{text}");
    }

    #[test]
    fn numbers_are_told_from_words() {
        for number in ["1.5", "-", "-3", "× 2", "12 – 14"] {
            assert!(is_number(number), "{number}");
        }
        for word in ["", "dropped", "mmap 4"] {
            assert!(!is_number(word), "{word}");
        }
    }
}
