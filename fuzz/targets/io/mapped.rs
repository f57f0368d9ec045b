//! Mapped: read-only mappings of a file, and what the kernel's page cache holds of it.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use arbitrary::Arbitrary;
use headwater_core::units::{ByteRange, PageIndex, PageRange};
use headwater_fuzz::bounds::Number;
use headwater_fuzz::guarded::{Guarded, Side};
use headwater_fuzz::memory_file::MemoryFile;
use headwater_io::{MapAdvice, MappedFile, resident_pages};

#[derive(Arbitrary, Debug)]
pub(crate) struct Case {
    file_length: u16,
    map_length: Number,
    advice: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Copy { offset: Number, length: u16, side: Side },
    Sum,
    Residency { start: Number, end: Number },
    Resident { start: Number, end: Number },
}

thread_local! {
    static PLACE: RefCell<(MemoryFile, Guarded)> = RefCell::new((MemoryFile::new(), Guarded::new(17)));
}

pub(crate) fn run(case: &Case) {
    PLACE.with_borrow_mut(|(file, guarded)| {
        let contents: Vec<u8> = (0..case.file_length).map(|at| at as u8 ^ (at >> 8) as u8 | 1).collect();
        file.with(&contents);
        let length = case.map_length.cheap(1 << 20);
        let advice =
            [MapAdvice::Normal, MapAdvice::Sequential, MapAdvice::Random][usize::from(case.advice) % 3];
        let mapped = match MappedFile::map(file.file.as_fd(), length, advice) {
            Ok(mapped) => mapped,
            Err(error) => return assert!(length == 0 || length > 1 << 40, "{length} bytes: {error}"),
        };
        // Beyond the last page of the file a mapping has no memory, which is the SIGBUS that its documentation speaks of.
        let is_readable = length <= u64::from(case.file_length).next_multiple_of(4096);
        for step in &case.steps {
            perform(step, &mapped, (&contents, length as usize), is_readable, (file, guarded));
        }
        let mut after = vec![0; contents.len()];
        file.file.read_exact_at(&mut after, 0).expect("it was written");
        assert!(after == contents, "a mapping for reading does not write");
    });
}

fn perform(
    step: &Step,
    mapped: &MappedFile,
    (contents, length): (&[u8], usize),
    is_readable: bool,
    (file, guarded): (&MemoryFile, &mut Guarded),
) {
    match *step {
        Step::Copy { offset, length: wanted, side } if is_readable => {
            let buffer = guarded.buffer(usize::from(wanted), side, FILL);
            let copied = mapped.copy_at(buffer, offset.get());
            let start = offset.get().min(length as u64) as usize;
            assert_eq!(copied, buffer.len().min(length - start));
            let expected = contents.iter().copied().chain(std::iter::repeat(0)).skip(start).take(copied);
            assert!(buffer[..copied].iter().copied().eq(expected), "{step:?}");
            assert!(buffer[copied..].iter().all(|&byte| byte == FILL), "{step:?}");
        }
        Step::Sum if is_readable => {
            let expected: u64 =
                (0..length).step_by(4096).map(|at| u64::from(*contents.get(at).unwrap_or(&0))).sum();
            assert_eq!(mapped.sum_of_pages(), expected);
        }
        Step::Copy { .. } | Step::Sum => {}
        Step::Residency { start, end } => {
            let page = |number: Number| PageIndex::new(number.below(1 << 52));
            let pages = PageRange { start: page(start), end: page(end) };
            if let Ok(pages) = mapped.residency(pages) {
                assert!(pages.len() <= length.div_ceil(4096), "{step:?}");
            }
        }
        Step::Resident { start, end } => {
            let range = ByteRange { start: start.get(), end: end.get() };
            let pages = resident_pages(file.file.as_fd(), range);
            let most = contents.len().div_ceil(4096) as u64;
            assert!(pages.is_none_or(|pages| pages <= most), "{step:?}: {pages:?}");
        }
    }
}

const FILL: u8 = 0;
