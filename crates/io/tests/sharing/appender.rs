//! Appender: a program of its own, which knows only the standard library and appends lines to a file. Tests compile it with `rustc`.
//!
//! Arguments: the file, the number of the writer, how many lines. A line is the writer, the line's number, and as many letters as
//! `length` says, so that a reader can tell whether it is whole.

use std::fs::OpenOptions;
use std::io::Write;

pub(crate) fn line(writer: u64, number: u64) -> Vec<u8> {
    let letter = b'a' + ((writer + number) % 26) as u8;
    let mut line = format!("{writer} {number} ").into_bytes();
    line.resize(line.len() + length(writer, number), letter);
    line.push(b'\n');
    line
}

/// Mostly short, now and then several pages.
fn length(writer: u64, number: u64) -> usize {
    let random = (writer.wrapping_mul(1_000_003) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    if random.is_multiple_of(100) { random as usize / 100 % 20_000 } else { random as usize / 100 % 200 }
}

#[allow(dead_code)] // the test uses the lines alone
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments[place].parse::<u64>().unwrap();
    let mut file = OpenOptions::new().append(true).open(&arguments[0]).unwrap();
    for line_number in 0..number(2) {
        // One system call each.
        let line = line(number(1), line_number);
        assert_eq!(file.write(&line).unwrap(), line.len());
    }
}
