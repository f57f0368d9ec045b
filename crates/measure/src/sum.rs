//! Sum: what a measured way does with bytes that it has read, so that none is faster for never touching them.
//!
//! Owns: one cheap sum over all bytes.
//! Does not own: whether the bytes are right.

/// All words of 8 bytes combined by exclusive or, and what is left of the last: the memory's speed, as processors combine several at once.
pub fn sum_of_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word));
    rest.iter().fold(words, |sum, &byte| sum.rotate_left(8) ^ u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every byte counts.
    #[test]
    fn each_byte_counts() {
        for length in [1, 8, 100] {
            let bytes = vec![3; length];
            for place in 0..length {
                let mut changed = bytes.clone();
                changed[place] = 4;
                assert_ne!(sum_of_words(&changed), sum_of_words(&bytes), "byte {place} of {length}");
            }
        }
    }
}
