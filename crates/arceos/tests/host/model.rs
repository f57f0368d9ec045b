//! Model: a file as a vector of bytes, and random operations on it and on the cached file alike.
//!
//! Owns: the operations, and that both agree after each.
//! Does not own: how many, and on which caches.

mod mapped;

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use headwater_arceos::{Advice, FileBackend, PageIndex, SyncScope};
use headwater_testkit::Rng;

use crate::address_space::Mapping;
use crate::kernel::Host;
use crate::node::{Node, PAGE};
use crate::rig::{File, Rig};

/// One file, reached through the cache and past it, and what must be in it.
pub(crate) struct Actor<'a> {
    rig: &'a Rig,
    node: Arc<Node>,
    file: Option<File>,
    mappings: Vec<Mapping>,
    bytes: Vec<u8>,
    length_max: u64,
    rng: Rng,
    /// The last operations, for whoever looks at a failure.
    log: VecDeque<String>,
}

impl<'a> Actor<'a> {
    pub(crate) fn new(rig: &'a Rig, node: Arc<Node>, length_max: u64, seed: u64) -> Self {
        let (file, bytes) = (Some(rig.open(&node)), node.bytes());
        let (mappings, rng, log) = (Vec::new(), Rng::new(seed), VecDeque::new());
        Self { rig, node, file, mappings, bytes, length_max, rng, log }
    }

    /// One operation.
    pub(crate) fn step(&mut self) {
        if !self.mappings.is_empty() && self.rng.chance(1, 2) {
            return self.mapped_step();
        }
        match self.rng.below(100) {
            0..30 => self.read(),
            30..55 => self.write(),
            55..65 => self.append(),
            65..72 => self.set_len(),
            72..76 => self.sync(),
            76..84 => self.with_page(),
            84..92 => self.with_page_or_insert(),
            92..96 => self.mark_dirty(),
            96..98 => self.reopen(),
            _ => self.advise(),
        }
    }

    /// All is written, and the node has it.
    pub(crate) fn finish(mut self) {
        self.sync();
        let expected = self.bytes.clone();
        let found = self.read_bytes(0, self.bytes.len() + 10);
        assert!(found == expected, "the whole file differs; {}", self.described());
        self.mappings.clear();
        drop(self.file.take());
        assert!(self.node.is(&self.bytes), "the node differs at the end; {}", self.described());
    }

    fn read(&mut self) {
        let (offset, length) = (self.offset(), self.length());
        self.note(format!("read {length} at {offset}"));
        let found = self.read_bytes(offset, length);
        let start = (offset as usize).min(self.bytes.len());
        let expected = &self.bytes[start..(start + length).min(self.bytes.len())];
        let wrong = expected.iter().zip(&found).position(|(a, b)| a != b);
        assert!(wrong.is_none(), "byte {:?} differs; {}", wrong.map(|at| at + start), self.described());
        assert_eq!(expected.len(), found.len(), "the length differs; {}", self.described());
    }

    fn write(&mut self) {
        let offset = self.offset();
        let length = self.length().min((self.length_max - offset) as usize);
        self.note(format!("write {length} at {offset}"));
        let bytes = self.random(length);
        assert_eq!(self.handle().write_at(&bytes, offset), Ok(length), "{}", self.described());
        self.write_model(&bytes, offset);
    }

    fn append(&mut self) {
        let end = self.bytes.len() as u64;
        let length = self.length().min((self.length_max - end) as usize);
        self.note(format!("append {length}"));
        let bytes = self.random(length);
        assert_eq!(self.handle().append(&bytes), Ok((length, end + length as u64)), "{}", self.described());
        self.write_model(&bytes, end);
    }

    fn set_len(&mut self) {
        let length = match self.rng.below(4) {
            0 => self.rng.below(self.length_max + 1),
            1 => self.rng.below(self.length_max / PAGE + 1) * PAGE,
            _ => (self.bytes.len() as u64).saturating_sub(self.rng.below(10_000)),
        };
        self.note(format!("set_len {length}"));
        assert_eq!(self.file().set_len(length), Ok(()), "{}", self.described());
        self.bytes.resize(length as usize, 0);
    }

    fn sync(&mut self) {
        self.note("sync".to_owned());
        let synced = match self.rng.below(3) {
            0 => self.rig.cache.sync(),
            _ => self.file().sync(SyncScope::Data),
        };
        assert_eq!(synced, Ok(()), "{}", self.described());
        let stays = self.file().in_memory();
        assert!(stays || self.node.is(&self.bytes), "the node differs after sync; {}", self.described());
    }

    fn with_page(&mut self) {
        let page = self.rng.below(self.length_max / PAGE);
        self.note(format!("with_page {page}"));
        let expected = self.page(page);
        let is_same = self.file().with_page(PageIndex::new(page), |found| {
            // What is beyond the end may be there: as nothing, unless a program stored to it.
            found.is_none_or(|found| found[..expected.len()] == expected)
        });
        assert!(is_same, "the page differs; {}", self.described());
    }

    fn with_page_or_insert(&mut self) {
        let page = self.rng.below(self.length_max / PAGE);
        self.note(format!("with_page_or_insert {page}"));
        let expected = self.page(page);
        let is_within = page * PAGE < self.bytes.len() as u64;
        let found = self
            .file()
            .with_page_or_insert(PageIndex::new(page), |found| found[..expected.len()] == expected);
        assert_eq!(found.ok(), is_within.then_some(true), "{}", self.described());
    }

    fn mark_dirty(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let page = self.rng.below((self.bytes.len() as u64).div_ceil(PAGE));
        self.note(format!("mark_dirty {page}"));
        assert_eq!(self.file().mark_dirty(PageIndex::new(page)), Ok(()), "{}", self.described());
    }

    /// Without a sync: what is dirty keeps the file.
    fn reopen(&mut self) {
        self.note("reopen".to_owned());
        let was_mapped = !self.mappings.is_empty();
        self.mappings.clear();
        drop(self.file.take());
        self.file = Some(self.rig.open(&self.node));
        if was_mapped {
            self.map();
        }
        assert_eq!(self.file().len(), self.bytes.len() as u64, "{}", self.described());
    }

    fn advise(&mut self) {
        let advice = [Advice::Normal, Advice::Sequential, Advice::Random][self.rng.below(3) as usize];
        self.note(format!("advise {advice:?}"));
        self.file().advise(advice);
    }

    /// Through the cache, or past it.
    fn handle(&mut self) -> FileBackend<Host> {
        let file = self.file().clone();
        match self.rng.below(4) {
            0 => FileBackend::Direct(file),
            _ => FileBackend::Cached(file),
        }
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("open between operations")
    }

    fn read_bytes(&mut self, offset: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0xa5; length];
        let read = self.handle().read_at(&mut buffer, offset);
        buffer.truncate(read.unwrap_or_else(|error| panic!("{error}; {}", self.described())));
        buffer
    }

    fn write_model(&mut self, bytes: &[u8], offset: u64) {
        if !bytes.is_empty() {
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[start..end].copy_from_slice(bytes);
        }
    }

    fn page(&self, page: u64) -> Vec<u8> {
        let start = ((page * PAGE) as usize).min(self.bytes.len());
        let mut bytes = self.bytes[start..(start + 4096).min(self.bytes.len())].to_vec();
        if self.mappings.is_empty() {
            bytes.resize(4096, 0);
        }
        bytes
    }

    /// Anywhere, often where the last page ends, sometimes beyond.
    fn offset(&mut self) -> u64 {
        let end = self.bytes.len() as u64;
        let offset = match self.rng.below(6) {
            0 => end.saturating_sub(self.rng.below(5000)),
            1 => end + self.rng.below(9000),
            2 => self.rng.below(self.length_max / PAGE) * PAGE,
            _ => self.rng.below(end + 1),
        };
        offset.min(self.length_max)
    }

    fn length(&mut self) -> usize {
        let most = [1, 100, 4096, 5000, 20_000, 70_000, 400_000][self.rng.below(7) as usize];
        match self.rng.below(4) {
            0 => 4096 * (1 + most / 4096),
            _ => self.rng.below(most as u64 + 1) as usize,
        }
    }

    fn random(&mut self, length: usize) -> Vec<u8> {
        let seed = self.rng.next_u64();
        let mut bytes = vec![0; length];
        headwater_testkit::Pattern::new(seed).fill(0, &mut bytes);
        bytes
    }

    fn note(&mut self, operation: String) {
        self.log.push_back(operation);
        if self.log.len() > LOGGED {
            self.log.pop_front();
        }
    }

    fn described(&self) -> String {
        let mut text = format!("the file has {} bytes; the last operations:", self.bytes.len());
        for operation in &self.log {
            let _ = write!(text, "\n    {operation}");
        }
        text
    }
}

const LOGGED: usize = 30;
