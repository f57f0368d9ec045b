//! Reads: the file that arms read in small pieces, and what a read took.
//!
//! Owns: the file and its opening, where the next read goes, the figures of reads.
//! Does not own: how an arm reads (ours).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_measure::Figures;
use headwater_testkit::Rng;

use crate::folder::Folder;

use super::{ArmOptions, BATCHES, IOPS, Work};

/// The file, which vanishes with this.
pub(super) struct File {
    path: PathBuf,
    _folder: Folder,
}

impl File {
    pub(super) fn make(directory: &Path) -> io::Result<File> {
        let folder = Folder::create(directory)?;
        let path = folder.path().join("reads");
        let mut file = fs::File::create(&path)?;
        let mebibyte = vec![0x68; 1 << 20];
        for _ in 0..LENGTH_BYTES >> 20 {
            file.write_all(&mebibyte)?;
        }
        file.sync_all()?;
        Ok(File { path, _folder: folder })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The file as the caller opens it for this work.
pub(super) fn open(path: &Path, work: Work) -> io::Result<fs::File> {
    let flags = if work == Work::Direct { rustix::fs::OFlags::DIRECT.bits() as i32 } else { 0 };
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Where reads go.
pub(super) struct Offsets(Rng);

impl Offsets {
    pub(super) fn new() -> Offsets {
        Offsets(Rng::new(1))
    }

    pub(super) fn next(&mut self, work: Work) -> u64 {
        // What is cached fits into the processor's caches, so that the copy does not hide the rest.
        let length_bytes = if work == Work::Cached { CACHED_BYTES } else { LENGTH_BYTES };
        self.0.below(length_bytes / READ_BYTES as u64) * READ_BYTES as u64
    }
}

/// What an arm reports of reads: `figures` of batches with reads a second, and processor time of each, the kernel thread's included.
pub(super) fn figures(options: &ArmOptions, figures: &Figures, time: Duration) -> Figures {
    let reads = (figures.get(BATCHES) * f64::from(options.batch)).max(1.0);
    let each_us = time.as_secs_f64() * 1e6 / reads;
    figures.clone().with(IOPS, reads / options.seconds).with("cpu_us", each_us)
}

/// Of this process; threads that the kernel started for it count.
pub(super) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A buffer as direct reads want it.
#[repr(align(4096))]
pub(super) struct Page([u8; READ_BYTES]);

impl Page {
    pub(super) fn new() -> Box<Page> {
        Box::new(Page([0; READ_BYTES]))
    }
}

/// A page that a call is given.
pub(super) struct Buffer(pub(super) Box<Page>);

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}

pub(super) const READ_BYTES: usize = 4096;
const LENGTH_BYTES: u64 = 64 << 20;
const CACHED_BYTES: u64 = 256 << 10;
