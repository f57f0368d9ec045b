//! Lines: sums and names as GNU's tools write and read them.
//!
//! ```text
//!   HASH, two blanks, NAME      \HASH, two blanks, NAME with \\ \n \r in place of backslash, line feed, carriage return
//!   TAG (NAME) = HASH           the form of the BSDs, which is only read
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

use clap::ValueEnum;
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

/// What a line of a list says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// A sum, in small letters, and the name of its file. Without a tag, `algorithm` is the first whose sums have that many digits.
    Sum {
        algorithm: Algorithm,
        is_tagged: bool,
        sum: String,
        path: PathBuf,
    },
    /// A sum of an algorithm that is not offered, by its tag.
    Unknown(String),
    Malformed,
}

/// Understands a line without its end: those of `sha256sum`, `b3sum` and `xxh128sum`, with `--tag` or without, and those of
/// `openssl dgst`. `algorithm` is that of sums without a tag; `None` if only their length says it.
pub(super) fn parse(line: &[u8], algorithm: Option<Algorithm>) -> Line {
    let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
    let (is_escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let Some((tag, sum, name)) = split_plain(line).or_else(|| split_tagged(line)) else {
        return Line::Malformed;
    };
    let name = if is_escaped { unescape(name) } else { Some(name.to_vec()) };
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Line::Malformed };
    let of_length = |algorithm: &Algorithm| algorithm.digits() == sum.len();
    let found = match tag {
        Some(tag) => match Algorithm::of_tag(tag) {
            Some(algorithm) => Some(algorithm).filter(of_length),
            None => return Line::Unknown(tag.to_owned()),
        },
        None => algorithm
            .filter(of_length)
            .or_else(|| Algorithm::value_variants().iter().copied().find(of_length)),
    };
    let Some(algorithm) = found else { return Line::Malformed };
    let sum = sum.to_ascii_lowercase();
    Line::Sum { algorithm, is_tagged: tag.is_some(), sum, path: OsString::from_vec(name).into() }
}

/// Tag, sum and name of a line `HASH  NAME`. The second blank is a `*` where the file was read as "binary", which makes no
/// difference here.
fn split_plain(line: &[u8]) -> Option<(Option<&str>, &str, &[u8])> {
    let (sum, rest) = line.split_at(line.iter().position(|byte| *byte == b' ')?);
    let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    Some((None, hexadecimal(sum)?, name))
}

/// The same of a line `TAG (NAME) = HASH`; `openssl dgst` leaves some of the blanks out.
fn split_tagged(line: &[u8]) -> Option<(Option<&str>, &str, &[u8])> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
    let tag = str::from_utf8(line[..open].trim_ascii_end()).ok()?;
    let is_of_tag = |letter: char| letter.is_ascii_alphanumeric() || "-_/".contains(letter);
    let sum = hexadecimal(line[close + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii())?;
    (!tag.is_empty() && tag.chars().all(is_of_tag)).then_some((Some(tag), sum, &line[open + 1..close]))
}

fn hexadecimal(sum: &[u8]) -> Option<&str> {
    let sum = str::from_utf8(sum).ok()?;
    (!sum.is_empty() && sum.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(sum)
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
            assert_eq!(
                parse(line, Some(Algorithm::Crc32c)),
                sum_of(Algorithm::Crc32c, false, path.as_os_str())
            );
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

    fn sum_of(algorithm: Algorithm, is_tagged: bool, name: &OsStr) -> Line {
        let sum = SUM.repeat(algorithm.digits() / SUM.len());
        Line::Sum { algorithm, is_tagged, sum, path: name.into() }
    }

    /// Goal: variants that other tools write are read, and what has another form is not.
    #[test]
    fn other_forms() {
        let plain = sum_of(Algorithm::Crc32c, false, "a".as_ref());
        for line in [&b"0123ABCD *a"[..], b"0123abcd  a\r", b" \t0123abcd  a"] {
            assert_eq!(parse(line, Some(Algorithm::Crc32c)), plain);
            assert_eq!(parse(line, None), plain);
        }
        let bad: [&[u8]; 12] = [
            b"",
            b"0123abcd",
            b"0123abcd  ",
            b"0123abcd a",
            b"0123abcg  a",
            b"0123abcd0  a",
            b"\\0123abcd  a\\x",
            b"SHA256 (a) = 0123abcd",
            b"CRC32C (a) 0123abcd",
            b"CRC32C (a = 0123abcd",
            b"CRC32C () = 0123abcd",
            b"(a) = 0123abcd",
        ];
        for line in bad {
            assert_eq!(parse(line, Some(Algorithm::Crc32c)), Line::Malformed, "{line:?}");
        }
    }

    /// Goal: a tag says the algorithm, whatever is expected, and the name may have any letters.
    #[test]
    fn tags() {
        let sum = SUM.repeat(8);
        let parse = |line: String| parse(line.as_bytes(), Some(Algorithm::Crc32c));
        for (tag, algorithm) in
            [("SHA256", Algorithm::Sha256), ("SHA2-256", Algorithm::Sha256), ("BLAKE3", Algorithm::Blake3)]
        {
            assert_eq!(parse(format!("{tag} (a) = b) = {sum}")), sum_of(algorithm, true, "a) = b".as_ref()));
            assert_eq!(parse(format!("{tag}(a)= {sum}")), sum_of(algorithm, true, "a".as_ref()));
            assert_eq!(parse(format!("\\{tag} (a\\nb) = {sum}")), sum_of(algorithm, true, "a\nb".as_ref()));
        }
        assert_eq!(parse(format!("MD5 (a) = {SUM}")), Line::Unknown("MD5".to_owned()));
    }
}
