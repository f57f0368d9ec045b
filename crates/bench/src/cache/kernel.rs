//! Kernel: pages from the kernel's page cache, by system call and by mapping.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use headwater::testing::{MapAdvice, MappedFile};

use super::gets::{self, Gets};
use super::{ArmOptions, PAGE_BYTES, is_page};

/// The first `bytes` of each page.
pub(super) fn pread(options: &ArmOptions, bytes: usize) -> io::Result<Gets> {
    let file = File::open(&options.file)?;
    gets::measure(options, || {
        let (file, mut buffer) = (&file, vec![0; bytes]);
        move |page| {
            let read = file.read_at(&mut buffer, u64::from(page) * PAGE_BYTES as u64);
            read.is_ok_and(|length| length == bytes) && is_page(page, &buffer)
        }
    })
}

/// The same from a mapping whose pages have all been touched.
pub(super) fn mmap(options: &ArmOptions, bytes: usize) -> io::Result<Gets> {
    let file = File::open(&options.file)?;
    let length_bytes = u64::from(options.pages) * PAGE_BYTES as u64;
    let mapped = MappedFile::map(file.as_fd(), length_bytes, MapAdvice::Normal)?;
    std::hint::black_box(mapped.sum_of_pages());
    gets::measure(options, || {
        let (mapped, mut buffer) = (&mapped, vec![0; bytes]);
        move |page| {
            let length = mapped.copy_at(&mut buffer, u64::from(page) * PAGE_BYTES as u64);
            length == bytes && is_page(page, &buffer)
        }
    })
}
