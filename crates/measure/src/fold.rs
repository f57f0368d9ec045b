//! Fold: sentences in lines that fit the terminal.
//!
//! Owns: where a line ends, how far the lines after it stand to the right.
//! Does not own: tables (`table`), the width of the terminal (`table`), commands, which stay in one line so that they can be copied.

/// The words of a text in lines of `columns` characters at most. A word that is longer stands alone.
pub fn folded(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            // Of several spaces, those at the end of a line go.
            Some(_) if word.is_empty() => {}
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A text behind its label, and its further lines below it. In one line without a `width`: then no terminal breaks it.
pub fn hanging(label: &str, text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![format!("{label}{text}")] };
    let indent = label.chars().count();
    let columns = width.saturating_sub(indent).max(COLUMNS_MIN);
    let head = |(index, line): (usize, String)| match index {
        0 => format!("{label}{line}"),
        _ => format!("{:indent$}{line}", ""),
    };
    folded(text, columns).into_iter().enumerate().map(head).collect()
}

/// A narrower column breaks words anyway.
const COLUMNS_MIN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines fit, no word is lost, a word longer than a line stands alone, and spaces stay but for those where a line ends.
    #[test]
    fn lines_fit() {
        let text = "one two three four five";
        assert_eq!(folded(text, 9), ["one two", "three", "four five"]);
        assert_eq!(folded("a longest b", 3), ["a", "longest", "b"]);
        assert_eq!(folded("", 3), [""]);
        assert_eq!(folded("a   b    c", 5), ["a   b", "c"]);
    }

    /// Goal: further lines stand below the text, a terminal that is too narrow does no harm, and without one nothing is folded.
    #[test]
    fn labels_hang() {
        let text = "words and more words that take several lines";
        let lines = hanging("note: ", text, Some(28));
        assert_eq!(lines, ["note: words and more words", "      that take several", "      lines"]);
        assert_eq!(hanging("note: ", text, Some(1)).len(), 3);
        assert_eq!(hanging("note: ", text, None), [format!("note: {text}")]);
    }
}
