//! Prose: the text of a help below its options, folded for a terminal or a man page.
//!
//! ```text
//!   lines at the left edge ─► a paragraph, in lines that fit
//!   "  command    remark"  ─► the remark goes on below itself, or below the command where there is no room beside it
//! ```
//!
//! Owns: where such text may be broken: a command by itself never is, so that it can be copied.
//! Does not own: the texts (each command), the width.

use headwater_measure::{folded, hanging};

/// A part of a text.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Block<'a> {
    /// The words of adjacent lines at the left edge.
    Paragraph(String),
    /// Adjacent lines that are indented.
    Lines(Vec<&'a str>),
    /// Between two blocks.
    Empty,
}

/// The parts of a text.
pub(crate) fn blocks<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Block<'a>> {
    let mut blocks = Vec::new();
    for line in lines {
        match blocks.last_mut() {
            _ if line.is_empty() => blocks.push(Block::Empty),
            Some(Block::Lines(lines)) if line.starts_with(' ') => lines.push(line),
            Some(Block::Paragraph(text)) if !line.starts_with(' ') => {
                text.push(' ');
                text.push_str(line);
            }
            _ if line.starts_with(' ') => blocks.push(Block::Lines(vec![line])),
            _ => blocks.push(Block::Paragraph(line.to_owned())),
        }
    }
    blocks
}

/// The text in lines of `width` columns at most, but for commands and words that are longer.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    let of_block = |block: Block<'_>| match block {
        Block::Paragraph(text) => folded(&text, width),
        Block::Lines(lines) => lines.into_iter().flat_map(|line| aside(line, width)).collect(),
        Block::Empty => vec![String::new()],
    };
    blocks(text.lines()).into_iter().flat_map(of_block).collect::<Vec<_>>().join("\n")
}

/// An indented line: a command, or a term, and what is said of it behind two spaces or more.
pub(crate) fn aside(line: &str, width: usize) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let Some(gap) = line[indent..].find("  ").map(|gap| gap + indent) else { return vec![line.to_owned()] };
    let (term, remark) = (&line[..gap], line[gap..].trim_start());
    let label = &line[..line.len() - remark.len()];
    if label.chars().count() + REMARK_COLUMNS_MIN <= width {
        return hanging(label, remark, Some(width));
    }
    let below = hanging(&" ".repeat(indent + 4), remark, Some(width));
    [term.to_owned()].into_iter().chain(below).collect()
}

/// Of a remark beside its command; a narrower one is harder to read than one below it.
const REMARK_COLUMNS_MIN: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: paragraphs are filled, remarks hang, go below where there is no room, and commands stay whole.
    #[test]
    fn text_fits() {
        let text = "Examples:\n  a command     does this and that and more\n  a command that is itself longer than the line is\n\nA note of\n\
            two lines.\n  term  its meaning";
        let narrow = "Examples:\n  a command     does this and that and\n                more\n  \
            a command that is itself longer than the line is\n\nA note of two lines.\n  term  its meaning";
        assert_eq!(fitted(text, 41), narrow);
        assert_eq!(
            aside("  a long command of its own  does this and that", 36),
            ["  a long command of its own", "      does this and that"]
        );
        assert_eq!(fitted(text, 80).lines().count(), 6, "{}", fitted(text, 80));
    }
}
