//! Disk: the image that the guest reads, with contents that tell at which offset a byte belongs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Larger than any cache of the emulated disk, small enough to be written and compared in seconds.
pub(crate) const LENGTH_BYTES: u64 = 64 << 20;

pub(crate) fn write_image(path: &Path) -> io::Result<()> {
    let mut image = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for place in 0..LENGTH_BYTES / WORD_BYTES {
        image.write_all(&word(place))?;
    }
    image.flush()
}

/// The first `length_bytes` of the image, as a file of their own.
pub(crate) fn contents(length_bytes: u64) -> Vec<u8> {
    (0..length_bytes / WORD_BYTES).flat_map(word).collect()
}

/// Where `bytes`, read at `offset_bytes`, begin to differ from the image. Only whole words are compared.
///
/// # Errors
/// `InvalidData` naming the offset of the first difference.
pub(crate) fn compare(offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
    let first = offset_bytes / WORD_BYTES;
    let (words, torn) = bytes.as_chunks();
    let is_whole = offset_bytes.is_multiple_of(WORD_BYTES) && torn.is_empty();
    match (first..).zip(words).find(|(place, found)| **found != word(*place)) {
        None if is_whole => Ok(()),
        None => Err(invalid(format!("{} bytes at {offset_bytes} are not whole words", bytes.len()))),
        Some((place, _)) => Err(invalid(format!("wrong bytes at offset {}", place * WORD_BYTES))),
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// No two words of the image are equal, and none is zero.
fn word(place: u64) -> [u8; WORD_BYTES as usize] {
    headwater_testkit::mix(place.wrapping_add(1)).to_le_bytes()
}

const WORD_BYTES: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: bytes from another place, a flipped bit and a torn end are noticed.
    #[test]
    fn differences_are_found() {
        let mut contents = contents(8192);
        assert!(compare(0, &contents).is_ok());
        assert!(compare(4096, &contents[4096..]).is_ok());
        assert!(compare(4096, &contents[..4096]).is_err());
        assert!(compare(0, &contents[..4095]).is_err());
        contents[5000] ^= 1;
        assert!(compare(0, &contents).unwrap_err().to_string().ends_with("offset 5000"));
    }
}
