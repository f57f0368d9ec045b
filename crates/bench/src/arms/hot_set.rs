//! Hot set: pages that are read again and again while the cache fills, to see what a scan leaves of them.
//!
//! ```text
//!   make ─► child: (each page at random ─► some filler) × 4 ─► filler until the cache is full ─► what is measured
//!                                                                     ─► each page again: which have to be read? ◄─┘
//! ```
//!
//! Owns: the files, what makes the set hot, the count of what is still there.
//! Does not own: what is measured in between (arms).

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::Path;

use headwater::{Advice, Caching, Engine, IoMode, OpenOptions};

use crate::folder::Folder;
use crate::pages::{AlignedBuffer, PAGE};
use crate::tools;

/// Files for a hot set, removed when dropped.
pub(crate) struct HotFiles {
    folder: Folder,
}

impl HotFiles {
    /// In a folder of their own next to `file`, so that they lie on the same device.
    pub(crate) fn beside(file: &Path) -> io::Result<HotFiles> {
        let files = HotFiles { folder: Folder::beside(file)? };
        let (hot, block) = (files.folder().join(HOT), vec![1; 1 << 20]);
        let mut writer = File::create(&hot)?;
        for _ in 0..HOT_BYTES >> 20 {
            writer.write_all(&block)?;
        }
        tools::make_cold(&hot)?;
        // A hole: it takes no room on the device, and its pages fill frames as others do.
        File::create(files.folder().join(FILLER))?.set_len(FILLER_BYTES)?;
        Ok(files)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A file whose pages are in the cache, and much in use.
pub(super) struct HotSet {
    file: headwater::File,
}

impl HotSet {
    /// Reads each page several times, with other pages in between, and fills the cache. All memory of frames is mapped
    /// then: the first touch of memory is dear on virtual machines, and says nothing about a scan.
    pub(super) fn heat(engine: &Engine, folder: &Path) -> io::Result<HotSet> {
        let open = |name| {
            let mut options = OpenOptions::new();
            options.engine(engine).io(IoMode::Direct).caching(Caching::On).open(folder.join(name))
        };
        let (set, filler) = (HotSet { file: open(HOT)? }, open(FILLER)?);
        // Pages that are read ahead would be found by the count below although they had left.
        set.file.advise(Advice::Random, ..)?;
        let mut filled_bytes = 0;
        for _ in 0..TOUCHES {
            set.touch()?;
            fill(&filler, filled_bytes, FILLER_BYTES_BETWEEN)?;
            filled_bytes += FILLER_BYTES_BETWEEN;
        }
        fill(&filler, filled_bytes, FILLER_BYTES - filled_bytes)?;
        Ok(set)
    }

    /// The share of its pages that need not be read again. A page that has to be is a miss, and a hit as soon as it has
    /// arrived, so hits tell nothing.
    pub(super) fn resident_share(&self) -> io::Result<f64> {
        let absent = || {
            let counts = self.file.stats().counts;
            counts.misses + counts.bypassed
        };
        let before = absent();
        self.touch()?;
        Ok(1.0 - (absent() - before) as f64 / (HOT_BYTES / PAGE) as f64)
    }

    /// Reads each page once, in another order each time.
    fn touch(&self) -> io::Result<()> {
        let (order, mut memory) = (RandomState::new(), AlignedBuffer::of_a_page());
        let mut pages: Vec<u64> = (0..HOT_BYTES / PAGE).collect();
        pages.sort_by_cached_key(|page| order.hash_one(page));
        for page in pages {
            self.file.read_exact_at(memory.bytes(), page * PAGE)?;
        }
        Ok(())
    }
}

fn fill(filler: &headwater::File, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for offset_bytes in (offset_bytes..offset_bytes + length_bytes).step_by(buffer.len()) {
        filler.read_exact_at(&mut buffer, offset_bytes)?;
    }
    Ok(())
}

/// A quarter of the memory that the promise is made for.
const HOT_BYTES: u64 = 256 << 20;

/// As much as that memory: together with the hot set, more than the cache holds.
const FILLER_BYTES: u64 = 1 << 30;

/// More than the window of the replacement, in which references count as one; so little that the hot set is read for the
/// last time before anything has to leave.
const FILLER_BYTES_BETWEEN: u64 = 128 << 20;

/// The first brings a page in, a second one that comes later makes it hot; two are to spare.
const TOUCHES: u32 = 4;

const HOT: &str = "hot";

const FILLER: &str = "filler";
