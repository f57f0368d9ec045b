//! Units: sizes in bytes, as command lines and texts write them.
//!
//! Owns: parsing and printing of sizes.
//! Does not own: the range of sizes that an option takes.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A number of bytes. `4M`, `4MiB` and `4194304` are the same: all units are powers of 1024.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ByteSize(pub(crate) u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let trimmed = text.trim();
        let digits_end = trimmed.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at(digits_end);
        let shift = unit_shift(unit.trim()).filter(|_| !digits.is_empty());
        let shift = shift.ok_or_else(|| format!("{text:?} is no size; write it like 4M, 64MiB or 1G"))?;
        let count = digits.parse::<u64>().ok();
        let bytes = count.and_then(|count| count.checked_mul(1 << shift));
        bytes
            .filter(|&bytes| bytes <= i64::MAX as u64)
            .map(ByteSize)
            .ok_or_else(|| format!("{text} is more than the 8 EiB that a file or an address space can have"))
    }
}

impl fmt::Display for ByteSize {
    /// In the largest unit that keeps the number whole; the text parses to the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |shift: &u32| self.0 >= 1 << shift && self.0.trailing_zeros() >= *shift;
        match [60, 50, 40, 30, 20, 10].into_iter().find(fits) {
            Some(shift) => {
                write!(f, "{}{}", self.0 >> shift, ["K", "M", "G", "T", "P", "E"][shift as usize / 10 - 1])
            }
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

/// A size for people to read: `4 KiB`, `1.5 GiB`.
pub(crate) fn readable(bytes: u64) -> String {
    let exponent = (bytes.max(1).ilog2() / 10).min(6);
    let unit = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][exponent as usize];
    let value = bytes as f64 / (1_u64 << (10 * exponent)) as f64;
    if value.fract() == 0.0 { format!("{value} {unit}") } else { format!("{value:.1} {unit}") }
}

fn unit_shift(unit: &str) -> Option<u32> {
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        "p" | "pb" | "pib" => Some(50),
        "e" | "eb" | "eib" => Some(60),
        _ => None,
    }
}

pub(crate) const MIB: f64 = (1 << 20) as f64;
pub(crate) const GIB: f64 = (1 << 30) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the spellings of one size agree, and print as something that parses to it again.
    #[test]
    fn sizes_parse_and_print() {
        for text in ["4M", "4m", "4MiB", "4MB", "4096K", "4194304", " 4 M "] {
            assert_eq!(text.parse(), Ok(ByteSize(4 << 20)), "{text}");
        }
        for bytes in [0, 1, 1023, 1024, 1536, 4 << 20, 5 << 30, 1 << 40, 3 << 50, 7 << 60] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
        assert_eq!(ByteSize(32 << 20).to_string(), "32M");
    }

    /// Goal: whatever is no size is refused with one line.
    #[test]
    fn nonsense_is_refused() {
        for text in ["", "M", "-1", "1.5G", "4X", "8E", "1e9", "9999999T", "18446744073709551616", "0x10"] {
            let error = text.parse::<ByteSize>().unwrap_err();
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(readable(0), "0 bytes");
        assert_eq!(readable(4096), "4 KiB");
        assert_eq!(readable(3 << 29), "1.5 GiB");
        assert_eq!(readable(3 << 59), "1.5 EiB");
    }
}
