//! Buffer: page-aligned memory for direct reads, in safe code.

use headwater_core::units::PAGE_SIZE_BYTES;

/// Memory that starts at a multiple of a page.
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// A buffer of `length` zero bytes. Pages that are never used take up no memory.
    pub(super) fn new(length: usize) -> Buffer {
        let memory = vec![0; length + PAGE_SIZE_BYTES as usize];
        let start = memory.as_ptr().align_offset(PAGE_SIZE_BYTES as usize);
        assert!(start <= PAGE_SIZE_BYTES as usize, "a byte can be brought to any alignment");
        Buffer { memory, start, length }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned() {
        for length in [1, 4096, 4097, 256 << 10] {
            let mut buffer = Buffer::new(length);
            assert_eq!(buffer.len(), length);
            assert_eq!(buffer.bytes().len(), length);
            assert!(buffer.bytes().as_ptr().addr().is_multiple_of(4096));
        }
    }
}
