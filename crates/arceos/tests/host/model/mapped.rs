//! Mapped: what programs do to a file that they have mapped, beside what is done to it by calls.
//!
//! Owns: loads, stores, calls whose buffer is a mapping of the file itself, giving pages back.
//! Does not own: the mappings (address space).

use std::time::Duration;

use axfs_ng_vfs::VfsError;
use headwater_arceos::{PageAccess, PageIndex, PageRange, PutPages, ShrinkScope};

use super::Actor;
use crate::address_space::Mapping;
use crate::node::PAGE;

impl Actor<'_> {
    /// Maps the file twice: alone, and with neighbours.
    pub(crate) fn mapped(mut self) -> Self {
        self.map();
        self
    }

    pub(super) fn map(&mut self) {
        self.mappings = [1, 16].map(|around| Mapping::new(self.file(), around)).into();
    }

    pub(super) fn mapped_step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.load(),
            30..60 => self.store(),
            60..75 => self.write_from_mapping(),
            75..80 => self.read_into_mapping(),
            80..90 => self.put_pages(),
            90..95 => self.fault_beyond(),
            _ => self.squeeze(),
        }
    }

    /// Asserts of the mappings what must hold while no other thread uses the cache.
    pub(crate) fn check(&self) {
        self.mappings.iter().for_each(Mapping::check);
    }

    fn mapping(&mut self) -> usize {
        self.rng.below(2) as usize
    }

    /// Part of the file.
    fn range(&mut self) -> (u64, usize) {
        let offset = self.rng.below(self.bytes.len() as u64 + 1);
        let length = self.length().min(LENGTH_MAX).min(self.bytes.len() - offset as usize);
        (offset, length)
    }

    fn load(&mut self) {
        let (mapping, (offset, length)) = (self.mapping(), self.range());
        self.note(format!("load {length} at {offset} of mapping {mapping}"));
        let found = self.loaded(mapping, offset, length);
        assert!(
            found == self.bytes[offset as usize..][..length],
            "loaded bytes differ; {}",
            self.described()
        );
    }

    fn loaded(&self, mapping: usize, offset: u64, length: usize) -> Vec<u8> {
        let mut found = vec![0xa5; length];
        assert_eq!(self.mappings[mapping].load(offset, &mut found), Ok(()), "{}", self.described());
        found
    }

    /// Sometimes behind the end, in the last page, where nothing is the file's.
    fn store(&mut self) {
        let (mapping, (offset, length)) = (self.mapping(), self.range());
        let behind = (self.bytes.len().next_multiple_of(PAGE as usize) - self.bytes.len()).min(LENGTH_MAX);
        self.note(format!(
            "store {length} at {offset} of mapping {mapping}, and perhaps {behind} behind the end"
        ));
        let bytes = self.random(length);
        assert_eq!(self.mappings[mapping].store(offset, &bytes), Ok(()), "{}", self.described());
        self.write_model(&bytes, offset);
        if self.rng.chance(1, 4) {
            let end = self.bytes.len() as u64;
            assert_eq!(
                self.mappings[mapping].store(end, &vec![0xee; behind]),
                Ok(()),
                "{}",
                self.described()
            );
        }
    }

    /// The system call copies from the mapping into a buffer of the kernel's, and writes that: often to the page it came from.
    fn write_from_mapping(&mut self) {
        let (mapping, (from, length)) = (self.mapping(), self.range());
        let to = (from + self.rng.below(3 * PAGE)).min(self.length_max - length as u64);
        self.note(format!("write {length} at {to} from {from} of mapping {mapping}"));
        for done in (0..length).step_by(BUFFER_BYTES) {
            let (from, to, length) = (from + done as u64, to + done as u64, BUFFER_BYTES.min(length - done));
            let buffer = self.loaded(mapping, from, length);
            assert!(
                buffer == self.bytes[from as usize..][..length],
                "loaded bytes differ; {}",
                self.described()
            );
            assert_eq!(self.handle().write_at(&buffer, to), Ok(length), "{}", self.described());
            self.write_model(&buffer, to);
        }
    }

    fn read_into_mapping(&mut self) {
        let (mapping, (from, length)) = (self.mapping(), self.range());
        let to = self.rng.below((self.bytes.len() - length) as u64 + 1);
        self.note(format!("read {length} at {from} to {to} of mapping {mapping}"));
        let buffer = self.read_bytes(from, length);
        assert_eq!(self.mappings[mapping].store(to, &buffer), Ok(()), "{}", self.described());
        self.write_model(&buffer, to);
    }

    fn put_pages(&mut self) {
        let first = self.rng.below(self.length_max / PAGE);
        let pages = PageRange::new(PageIndex::new(first), PageIndex::new(first + self.rng.below(40)));
        let put = [PutPages::WriteBack, PutPages::Free, PutPages::Discard][self.rng.below(3) as usize];
        self.note(format!("put {put:?} {pages:?}"));
        let stays = self.file().in_memory();
        if put == PutPages::Discard && !stays {
            // Then nothing is lost.
            self.sync();
        }
        assert_eq!(self.file().put_pages(pages, put), Ok(()), "{}", self.described());
        let at = |page: PageIndex| (page.start_bytes() as usize).min(self.bytes.len());
        let range = at(pages.start)..at(pages.end);
        match put {
            PutPages::Discard if stays => self.bytes[range].fill(0),
            _ if stays => {}
            _ => assert!(
                self.node.bytes()[range.clone()] == self.bytes[range],
                "not written; {}",
                self.described()
            ),
        }
    }

    fn fault_beyond(&mut self) {
        let page = (self.bytes.len() as u64).div_ceil(PAGE) + self.rng.below(20);
        let access = [PageAccess::Read, PageAccess::Write][self.rng.below(2) as usize];
        self.note(format!("{access:?} fault at page {page}, beyond the end"));
        let (mapping, expected) = (self.mapping(), Err(VfsError::InvalidInput));
        assert_eq!(self.mappings[mapping].fault(page, access), expected, "{}", self.described());
    }

    /// Memory goes back, and what is dirty is old enough to be written.
    fn squeeze(&mut self) {
        self.note("squeeze".to_owned());
        let scope = [ShrinkScope::Clean, ShrinkScope::All][self.rng.below(2) as usize];
        self.rig.cache.shrink(self.rng.below(8 << 20) as usize, scope);
        self.rig.dials.skip(Duration::from_secs(self.rng.below(40)));
        self.rig.cache.tend();
    }
}

/// Bytes that the kernel copies at once.
const BUFFER_BYTES: usize = 5000;

/// Each byte takes an instruction of the address space.
const LENGTH_MAX: usize = 30_000;
