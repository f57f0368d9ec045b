//! Shown: lines numbered, squeezed, and with bytes that do not print made visible, as the options of `cat` have been for decades.
//!
//! Owns: the state that goes on from file to file: the number of the line, empty lines before this one, a carriage return that may
//! precede an end.
//! Does not own: reading, writing.

use clap::Args;

/// How lines are shown. With none of these `cat` moves bytes without looking at them.
#[derive(Args, Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// Number all lines.
    #[arg(short, long)]
    number: bool,
    /// Number lines that are not empty; overrides --number.
    #[arg(short = 'b', long)]
    number_nonblank: bool,
    /// Of several empty lines in a row, write one.
    #[arg(short, long)]
    squeeze_blank: bool,
    /// Write $ at the end of each line, and ^M for a carriage return before it.
    #[arg(short = 'E', long)]
    show_ends: bool,
    /// Write ^I for each tab.
    #[arg(short = 'T', long)]
    show_tabs: bool,
    /// Write ^ and M- for bytes that do not print, other than line feed and tab.
    #[arg(short = 'v', long)]
    show_nonprinting: bool,
    /// As -vET.
    #[arg(short = 'A', long)]
    show_all: bool,
    /// As -vE.
    #[arg(short = 'e')]
    ends_and_nonprinting: bool,
    /// As -vT.
    #[arg(short = 't')]
    tabs_and_nonprinting: bool,
    /// Ignored: output is never held back.
    #[arg(short = 'u')]
    unbuffered: bool,
}

impl Shown {
    /// The writer of these lines; `None` if bytes stay as they are.
    pub(super) fn lines(self) -> Option<Lines> {
        let lines = Lines {
            numbers: match self {
                Shown { number_nonblank: true, .. } => Numbers::NotEmpty,
                Shown { number: true, .. } => Numbers::All,
                _ => Numbers::None,
            },
            squeezes: self.squeeze_blank,
            ends: self.show_ends || self.show_all || self.ends_and_nonprinting,
            tabs: self.show_tabs || self.show_all || self.tabs_and_nonprinting,
            nonprinting: self.show_nonprinting
                || self.show_all
                || self.ends_and_nonprinting
                || self.tabs_and_nonprinting,
            number: 0,
            is_at_start: true,
            empty_before: 0,
            holds_return: false,
        };
        let is_plain = lines.numbers == Numbers::None
            && !(lines.squeezes || lines.ends || lines.tabs || lines.nonprinting);
        (!is_plain).then_some(lines)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    None,
    All,
    NotEmpty,
}

/// Lines on their way to the output.
pub(super) struct Lines {
    numbers: Numbers,
    squeezes: bool,
    ends: bool,
    tabs: bool,
    nonprinting: bool,
    /// Of the last numbered line.
    number: u64,
    /// Whether the next byte begins a line.
    is_at_start: bool,
    /// Empty lines directly before this one.
    empty_before: u64,
    /// A carriage return that is shown only if a line feed follows.
    holds_return: bool,
}

impl Lines {
    /// Appends what is shown of these bytes to `shown`.
    pub(super) fn show(&mut self, bytes: &[u8], shown: &mut Vec<u8>) {
        for &byte in bytes {
            if std::mem::take(&mut self.holds_return) {
                if byte == b'\n' {
                    shown.extend_from_slice(b"^M");
                } else {
                    shown.push(b'\r');
                }
            }
            match byte {
                b'\n' => self.end_line(shown),
                _ => self.show_byte(byte, shown),
            }
        }
    }

    /// Appends what was held back, at the end of all input.
    pub(super) fn finish(&mut self, shown: &mut Vec<u8>) {
        if std::mem::take(&mut self.holds_return) {
            shown.push(b'\r');
        }
    }

    fn end_line(&mut self, shown: &mut Vec<u8>) {
        if self.is_at_start {
            self.empty_before += 1;
            if self.squeezes && self.empty_before > 1 {
                return;
            }
            if self.numbers == Numbers::All {
                self.show_number(shown);
            }
        }
        if self.ends {
            shown.push(b'$');
        }
        shown.push(b'\n');
        self.is_at_start = true;
    }

    fn show_byte(&mut self, byte: u8, shown: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_at_start) {
            self.empty_before = 0;
            if self.numbers != Numbers::None {
                self.show_number(shown);
            }
        }
        match byte {
            b'\t' if self.tabs => shown.extend_from_slice(b"^I"),
            b'\r' if self.ends && !self.nonprinting => self.holds_return = true,
            b'\t' => shown.push(byte),
            _ if self.nonprinting => show_nonprinting(byte, shown),
            _ => shown.push(byte),
        }
    }

    fn show_number(&mut self, shown: &mut Vec<u8>) {
        self.number += 1;
        shown.extend_from_slice(format!("{:6}\t", self.number).as_bytes());
    }
}

fn show_nonprinting(byte: u8, shown: &mut Vec<u8>) {
    let low = byte & 0x7F;
    if byte >= 0x80 {
        shown.extend_from_slice(b"M-");
    }
    match low {
        0..0x20 => shown.extend_from_slice(&[b'^', low + 0x40]),
        0x7F => shown.extend_from_slice(b"^?"),
        _ => shown.push(low),
    }
}
