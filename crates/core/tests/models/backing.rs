//! Backing: bytes in memory as a file, against the slice itself.

use headwater_core::backing::{Backing, Form, InMemory};
use proptest::prelude::*;

/// A byte that the tests' files do not have.
const UNTOUCHED: u8 = 0xee;

fn read(bytes: &[u8], length: usize, offset_bytes: u64) -> (usize, Vec<u8>) {
    let mut buffer = vec![UNTOUCHED; length];
    let Ok(count) = InMemory::new(bytes).read_at(&mut buffer, offset_bytes);
    (count, buffer)
}

proptest! {
    /// Goal: a read gives the bytes from its offset on, as many as there are, and touches no more of the buffer. Method: the
    /// slice from there on.
    #[test]
    fn reads_are_slices(
        bytes in prop::collection::vec(0..UNTOUCHED, 0..40),
        length in 0..50usize,
        offset in 0..50usize,
    ) {
        let rest = bytes.get(offset..).unwrap_or_default();
        let expected = &rest[..length.min(rest.len())];
        let (count, buffer) = read(&bytes, length, offset as u64);
        prop_assert_eq!(&buffer[..count], expected);
        prop_assert!(buffer[count..].iter().all(|byte| *byte == UNTOUCHED));
    }
}

/// Goal: nothing is read at the end, beyond it, and where no `usize` or no sum reaches. Method: each of these, of an empty
/// file too.
#[test]
fn nothing_is_beyond_the_end() {
    for bytes in [&[][..], &[7], &[1, 2, 3, 4]] {
        let end = bytes.len() as u64;
        for offset in [end, end + 1, 1 << 32, 1 << 63, u64::MAX - 3, u64::MAX] {
            assert_eq!(read(bytes, 4, offset), (0, vec![UNTOUCHED; 4]), "at {offset}");
        }
    }
}

/// Goal: a read that ends where the file ends is whole, one that asks for more is short, one for nothing is nothing.
/// Method: by hand.
#[test]
fn the_end_is_exact() {
    let bytes = [1, 2, 3, 4];
    assert_eq!(read(&bytes, 4, 0), (4, vec![1, 2, 3, 4]));
    assert_eq!(read(&bytes, 1, 3), (1, vec![4]));
    assert_eq!(read(&bytes, 2, 3), (1, vec![4, UNTOUCHED]));
    assert_eq!(read(&bytes, 0, 0), (0, vec![]));
    assert_eq!(read(&bytes, 0, u64::MAX), (0, vec![]));
}

/// Goal: whatever is bytes is a file, with its length. Method: an array, a slice and a vector.
#[test]
fn all_kinds_of_bytes_have_a_length() {
    assert_eq!(InMemory::new([0; 5]).length_bytes(), Ok(Some(5)));
    assert_eq!(InMemory::new(&[][..]).length_bytes(), Ok(Some(0)));
    let owned = InMemory::new(vec![1, 2]);
    assert_eq!((owned.length_bytes(), owned.form()), (Ok(Some(2)), Form::InMemory));
    assert_eq!(owned.bytes(), &[1, 2]);
}
