//! Model: the contents of a sparse file, page by page.
//!
//! Owns: the bytes and the length.
//! Does not own: what a call may do to them (actor, requests).

use std::collections::BTreeMap;
use std::ops::Range;

use headwater_core::units::PAGE_BYTES;

/// A file as it should be. Pages that are not there are zeros.
#[derive(Default, Debug)]
pub struct Model {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    /// Where the file ends.
    pub length_bytes: u64,
}

impl Model {
    /// Bytes that a read finds at an offset, of `length` at the most.
    pub fn read(&self, offset_bytes: u64, length: usize) -> Vec<u8> {
        let end_bytes = offset_bytes.saturating_add(length as u64).min(self.length_bytes);
        let mut bytes = vec![0; end_bytes.saturating_sub(offset_bytes) as usize];
        for (page, at, part) in pieces(offset_bytes, bytes.len()) {
            if let Some(contents) = self.pages.get(&page) {
                let length = part.len();
                bytes[part].copy_from_slice(&contents[at..at + length]);
            }
        }
        bytes
    }

    /// Writes bytes, and makes the file longer if they reach beyond its end.
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        for (page, at, part) in pieces(offset_bytes, bytes.len()) {
            let contents = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            contents[at..at + part.len()].copy_from_slice(&bytes[part]);
        }
        self.length_bytes = self.length_bytes.max(offset_bytes + bytes.len() as u64);
    }

    /// Makes the bytes of a range zeros, as far as the file reaches.
    pub fn zero(&mut self, range: Range<u64>) {
        let page_bytes = PAGE_BYTES as u64;
        for (page, contents) in self.pages.range_mut(range.start / page_bytes..) {
            let start = page * page_bytes;
            if start >= range.end {
                break;
            }
            let within = |offset_bytes: u64| offset_bytes.saturating_sub(start).min(page_bytes) as usize;
            contents[within(range.start)..within(range.end)].fill(0);
        }
    }

    /// Truncates the file, or makes it longer with zeros.
    pub fn set_len(&mut self, length_bytes: u64) {
        let (last, kept) = (length_bytes / PAGE_BYTES as u64, (length_bytes % PAGE_BYTES as u64) as usize);
        let mut behind = self.pages.split_off(&last);
        if let Some(mut page) = behind.remove(&last).filter(|_| kept > 0) {
            page[kept..].fill(0);
            self.pages.insert(last, page);
        }
        self.length_bytes = length_bytes;
    }

    /// The page at which nothing but zeros follows the first bytes of the file, which a truncate leaves.
    pub fn offsets(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().map(|page| page * PAGE_BYTES as u64)
    }
}

/// The pages of a range, where it begins in each, and which of its bytes lie there.
fn pieces(offset_bytes: u64, length: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < length).then(|| {
            let place = offset_bytes + done as u64;
            let at = (place % PAGE_BYTES as u64) as usize;
            let part = done..(done + PAGE_BYTES - at).min(length);
            done = part.end;
            (place / PAGE_BYTES as u64, at, part)
        })
    })
}
