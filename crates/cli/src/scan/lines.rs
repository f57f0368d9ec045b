//! Lines: sums and names as GNU's tools write and read them.
//!
//! ```text
//!   HASH, two blanks, NAME      \HASH, two blanks, NAME with \\ \n \r in place of backslash, line feed, carriage return
//! ```
//!
//! On a terminal, a name with other control characters, or with bytes that are not UTF-8, is quoted for a shell instead, as `ls`
//! does: such a line is for people only.
//!
//! Owns: the form of a line, and of a name within one.
//! Does not own: reading and writing lines.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use os_display::Quotable;

use super::digest::Algorithm;

/// How lines end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    LineFeed,
    /// Names are written as they are.
    Zero,
}

/// What lines are written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// A file or pipe: names must be the same when they are read again.
    File,
    /// A terminal: names must not contain control sequences.
    Terminal,
}

/// The line of a sum, its end included.
pub(super) fn sum_line(sum: &str, path: &Path, end: End, target: Target) -> Vec<u8> {
    let (mark, name) = match (end, target) {
        (End::Zero, Target::File) => ("", path.as_os_str().as_bytes().to_vec()),
        (End::LineFeed, _) | (End::Zero, Target::Terminal) => shown(path, target),
    };
    let last: &[u8] = if end == End::Zero { b"\0" } else { b"\n" };
    [mark.as_bytes(), sum.as_bytes(), b"  ", &name, last].concat()
}

/// The line of a verified file: `NAME: OK`, or another verdict.
pub(super) fn verdict_line(path: &Path, verdict: &str, target: Target) -> Vec<u8> {
    let (mark, name) = shown(path, target);
    [mark.as_bytes(), &name, b": ", verdict.as_bytes(), b"\n"].concat()
}

/// A name as a line shows it, and the mark at the start of the line, which says whether the name is escaped.
fn shown(path: &Path, target: Target) -> (&'static str, Vec<u8>) {
    let bytes = path.as_os_str().as_bytes();
    let is_harmless = |character: char| !character.is_control() || matches!(character, '\n' | '\r');
    if target == Target::Terminal && !path.to_str().is_some_and(|name| name.chars().all(is_harmless)) {
        return ("", path.quote().to_string().into_bytes());
    }
    if !bytes.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r')) {
        return ("", bytes.to_vec());
    }
    let escaped = bytes.iter().flat_map(|byte| match byte {
        b'\\' => b"\\\\".to_vec(),
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        other => vec![*other],
    });
    ("\\", escaped.collect())
}

/// The sum and the name of a line without its end; `None` if it has another form.
pub(super) fn parse(line: &[u8], algorithm: Algorithm) -> Option<(String, PathBuf)> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (is_escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (sum, rest) = line.split_at_checked(algorithm.digits())?;
    // The second blank is a `*` where the file was read as "binary", which makes no difference here.
    let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    if name.is_empty() || !sum.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let name = if is_escaped { unescape(name)? } else { name.to_vec() };
    let sum = String::from_utf8(sum.to_ascii_lowercase()).expect("hexadecimal digits are ASCII");
    Some((sum, OsString::from_vec(name).into()))
}

fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = name.iter();
    let mut plain = Vec::with_capacity(name.len());
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    const SUM: &str = "0123abcd";

    /// Goal: what is written is read again, for every kind of name.
    #[test]
    fn names_survive_a_round_trip() {
        let names: [&[u8]; 7] =
            [b"plain", b" *odd ", b"back\\slash", b"line\nfeed\r", b"\xff\xfe", b"\\n", b"\x1b]0;x\x07\n"];
        for name in names {
            let path = Path::new(OsStr::from_bytes(name));
            let line = sum_line(SUM, path, End::LineFeed, Target::File);
            let line = line.strip_suffix(b"\n").unwrap();
            assert!(!line.contains(&b'\n'));
            assert_eq!(parse(line, Algorithm::Crc32c), Some((SUM.to_owned(), path.to_owned())));
        }
    }

    #[test]
    fn lines_have_their_form() {
        let line = |name, end| sum_line(SUM, Path::new(name), end, Target::File);
        assert_eq!(line("a b", End::LineFeed), b"0123abcd  a b\n");
        assert_eq!(line("a\nb", End::LineFeed), b"\\0123abcd  a\\nb\n");
        assert_eq!(line("a\nb", End::Zero), b"0123abcd  a\nb\0");
        assert_eq!(verdict_line(Path::new("a\\b"), "OK", Target::File), b"\\a\\\\b: OK\n");
    }

    /// Goal: a name sends no control sequence to a terminal; names without control characters are written as in a file.
    #[test]
    fn lines_on_a_terminal() {
        let names: [&[u8]; 5] = [b"\x1b]0;x\x07\n", b"\x9b2J", "\u{9b}2J".as_bytes(), b"\x7f", b"a\tb"];
        for name in names {
            let path = Path::new(OsStr::from_bytes(name));
            for end in [End::LineFeed, End::Zero] {
                for mut line in
                    [sum_line(SUM, path, end, Target::Terminal), verdict_line(path, "OK", Target::Terminal)]
                {
                    line.pop();
                    let text = String::from_utf8(line).unwrap();
                    assert!(!text.chars().any(char::is_control), "{text:?}");
                    assert!(text.contains('\''), "{text}");
                }
            }
        }
        for name in ["plain", "a b", "a\\b", "a\nb", "\u{e4}"] {
            let line = |target| sum_line(SUM, Path::new(name), End::LineFeed, target);
            assert_eq!(line(Target::Terminal), line(Target::File));
        }
    }

    /// Goal: variants that other tools write are read, and what has another form is not.
    #[test]
    fn other_forms() {
        let named =
            |line: &[u8]| parse(line, Algorithm::Crc32c).map(|(sum, path)| (sum, path.into_os_string()));
        assert_eq!(named(b"0123ABCD *a"), Some((SUM.to_owned(), "a".into())));
        assert_eq!(named(b"0123abcd  a\r"), Some((SUM.to_owned(), "a".into())));
        let bad: [&[u8]; 7] = [
            b"",
            b"0123abcd",
            b"0123abcd  ",
            b"0123abcd a",
            b"0123abcg  a",
            b"0123abcd0  a",
            b"\\0123abcd  a\\x",
        ];
        for line in bad {
            assert_eq!(named(line), None, "{line:?}");
        }
    }
}
