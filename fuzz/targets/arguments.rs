//! Arguments: whatever is typed is answered with a command, help or one line about what is wrong.

#![no_main]
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use headwater_cli::fuzzing::{Answer, answer_to, vocabulary};
use libfuzzer_sys::fuzz_target;

static VOCABULARY: LazyLock<Vec<String>> = LazyLock::new(vocabulary);

/// A word of a command line.
#[derive(Arbitrary, Debug)]
enum Word<'a> {
    /// A command, an option or a value that there is.
    Known(u16),
    /// `--option=value`, with both of them known.
    Set(u16, u16),
    /// `--option=value`, with any value.
    SetTo(u16, &'a [u8]),
    Other(&'a [u8]),
}

impl Word<'_> {
    fn text(&self) -> Vec<u8> {
        let known = |number: &u16| VOCABULARY[usize::from(*number) % VOCABULARY.len()].as_bytes();
        let mut text = match self {
            Word::Known(number) => known(number).to_vec(),
            Word::Set(option, value) => [known(option), b"=", known(value)].concat(),
            Word::SetTo(option, value) => [known(option), b"=", value].concat(),
            Word::Other(text) => text.to_vec(),
        };
        // The kernel ends a word at a zero byte.
        text.retain(|&byte| byte != 0);
        text
    }
}

fuzz_target!(|words: Vec<Word<'_>>| {
    let words = words.iter().map(|word| OsString::from_vec(word.text()));
    let line: Vec<OsString> = [OsString::from("headwater")].into_iter().chain(words).collect();
    if let Answer::Usage(text) = answer_to(&line) {
        assert!(text.len() > " (see --help)".len() && !text.contains('\n'), "an error is one line: {text:?}");
    }
});
