//! Buffer: memory that begins where a measurement wants it to.

use headwater_core::units::PAGE_BYTES;

/// A part of `room` that begins at a page. All of it has been touched.
pub(crate) fn aligned(room: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    shifted(room, bytes, 0)
}

/// A part of `room` that begins `shift_bytes` behind the start of a page.
pub(crate) fn shifted(room: &mut Vec<u8>, bytes: usize, shift_bytes: usize) -> &mut [u8] {
    assert!(shift_bytes < PAGE_BYTES, "a shift stays within a page");
    room.clear();
    room.resize(bytes + 2 * PAGE_BYTES, 1);
    let start = room.as_ptr().align_offset(PAGE_BYTES) + shift_bytes;
    &mut room[start..start + bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: buffers begin where they are to, and are as long as asked for.
    #[test]
    fn buffers_are_placed() {
        for bytes in [1, 4096, 100_000] {
            let mut room = Vec::new();
            let buffer = aligned(&mut room, bytes);
            assert_eq!((buffer.len(), buffer.as_ptr().align_offset(4096)), (bytes, 0));
            let buffer = shifted(&mut room, bytes, 1);
            assert_eq!((buffer.len(), buffer.as_ptr().align_offset(4096)), (bytes, 4095));
        }
    }
}
