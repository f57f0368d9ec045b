//! Ours: headwater's cache, filled by reading the file once.
//!
//! Owns: filling the cache, the arms.
//! Does not own: the measured loop (`gets`), the promises.

use std::hint::black_box;
use std::io;

use headwater::{Engine, File, ManyRead, OpenOptions};

use super::gets::{self, Gets};
use super::{ArmOptions, PAGE_BYTES, is_page};

/// Pages in place, which nothing reads: what a library's get gives.
pub(super) fn peek(options: &ArmOptions) -> io::Result<Gets> {
    let file = cached_file(options)?;
    gets::measure(options, || {
        let file = &file;
        move |page| {
            file.peek(u64::from(page) * PAGE_BYTES as u64)
                .is_ok_and(|page| black_box(page.len()) == PAGE_BYTES)
        }
    })
}

/// Copies of pages, 16 of them in one call.
pub(super) fn read_many(options: &ArmOptions) -> io::Result<Gets> {
    let file = cached_file(options)?;
    gets::measure(options, || {
        let (file, mut buffers, mut asked) =
            (&file, vec![0; TOGETHER * PAGE_BYTES], Vec::with_capacity(TOGETHER));
        move |page| {
            asked.push(page);
            if asked.len() < TOGETHER {
                return true;
            }
            let places = asked.drain(..).zip(buffers.as_chunks_mut::<PAGE_BYTES>().0);
            let mut pages = [0; TOGETHER];
            let mut reads: Vec<ManyRead<'_>> = Vec::with_capacity(TOGETHER);
            for (place, (page, buffer)) in places.enumerate() {
                pages[place] = page;
                reads.push(ManyRead::new(u64::from(page) * PAGE_BYTES as u64, buffer));
            }
            let done = file.read_many(&mut reads).is_ok();
            done && reads.iter().zip(pages).all(|(read, page)| is_page(page, read.buffer))
        }
    })
}

/// The first `bytes` of each page by `read_at`.
pub(super) fn read(options: &ArmOptions, bytes: usize) -> io::Result<Gets> {
    let file = cached_file(options)?;
    gets::measure(options, || {
        let (file, mut buffer) = (&file, vec![0; bytes]);
        move |page| {
            let read = file.read_at(&mut buffer, u64::from(page) * PAGE_BYTES as u64);
            read.is_ok_and(|length| length == bytes) && is_page(page, &buffer)
        }
    })
}

fn cached_file(options: &ArmOptions) -> io::Result<File> {
    let length_bytes = u64::from(options.pages) * PAGE_BYTES as u64;
    let memory_bytes = (length_bytes + length_bytes / 4).max(MEMORY_BYTES_MIN);
    let engine = Engine::builder().memory(memory_bytes).build()?;
    let file = OpenOptions::new().engine(&engine).open(&options.file)?;
    // The first pass brings the pages in; then each is marked as used as often as is counted.
    for _ in 0..1 + USES_COUNTED {
        fill(&file, length_bytes)?;
    }
    Ok(file)
}

fn fill(file: &File, length_bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; FILL_BYTES];
    for offset_bytes in (0..length_bytes).step_by(FILL_BYTES) {
        let length = (length_bytes - offset_bytes).min(FILL_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..length], offset_bytes)?;
    }
    Ok(())
}

/// Uses of a page that headwater's replacement tells apart.
const USES_COUNTED: usize = 3;

/// Reads in one call.
const TOGETHER: usize = 16;

const FILL_BYTES: usize = 1 << 20;

/// A quarter more than a few pages is not much.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
