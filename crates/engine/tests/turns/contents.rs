//! Contents: bytes that follow from a seed, and records that say which they are; the stranger compiles this file too.

/// `length` bytes; another seed gives other bytes.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(state)
    });
    words.flat_map(u64::to_le_bytes).take(length).collect()
}

/// A line that says which it is: the writer's letter, its number, and as many letters as follow from both.
pub(crate) fn line(writer: char, number: u64) -> String {
    let length = mix(number ^ writer as u64) % 90;
    let filling: String = (0..length).map(|_| writer).collect();
    format!("{writer} {number} {filling}.\n")
}

/// A page in which every word is the same number.
pub(crate) fn numbered_page(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(512)
}

/// The output function of splitmix64.
fn mix(input: u64) -> u64 {
    let mixed = (input ^ (input >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
