//! Node: a file of a file system in memory, with faults, gates and a log of what was asked of it.
//!
//! ```text
//!   read_at ─► log ─► gate (before) ─► fault? ─► bytes ─► gate (after) ─► log
//! ```
//!
//! Owns: the bytes, which calls fail, park or fall short, and what is recorded.
//! Does not own: what is cached of it.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use axfs_ng_vfs::{
    DeviceId, DirEntry, FileNodeOps, FilesystemOps, Metadata, MetadataUpdate, NodeFlags, NodeOps,
    NodePermission, NodeType, StatFs, VfsError, VfsResult,
};
use axpoll::{IoEvents, Pollable, SharedRegistrationSink};

/// A file system, known by its address.
pub(crate) struct FileSystem {
    name: &'static str,
}

/// A file.
pub(crate) struct Node {
    file_system: Arc<FileSystem>,
    inode: u64,
    flags: NodeFlags,
    kind: NodeType,
    state: Mutex<State>,
}

/// What goes wrong.
#[derive(Clone, Default, Debug)]
pub(crate) struct Faults {
    /// Each of so many reads brings half of what was asked for; none if 0.
    pub(crate) short_every: u64,
    /// Each of so many calls is interrupted before it does anything.
    pub(crate) interrupted_every: u64,
    /// Reads that touch this range fail.
    pub(crate) reads: Range<u64>,
    /// Each of so many reads fails.
    pub(crate) reads_every: u64,
    /// Writes that touch this range fail.
    pub(crate) writes: Range<u64>,
    /// Each of so many writes fails.
    pub(crate) writes_every: u64,
    /// Each of so many syncs fails.
    pub(crate) syncs_every: u64,
    /// No file grows beyond this; 0 for no limit.
    pub(crate) capacity_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    Append,
    SetLen,
    Sync,
}

/// A call of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// When a gate stops a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// Before bytes are copied.
    Before,
    /// After that: what a read brings is as it was when it began.
    After,
}

/// Calls of one kind that touch a range stop here until it is open.
pub(crate) struct Gate {
    kind: Kind,
    moment: Moment,
    range: Range<u64>,
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    faults: Faults,
    gates: Vec<Arc<Gate>>,
    calls: Vec<Call>,
    counted: BTreeMap<&'static str, u64>,
    reading: BTreeMap<u64, u32>,
    readers: usize,
    readers_max: usize,
    /// Pages that were being read twice at the same time.
    doubled: Vec<u64>,
}

impl FileSystem {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name })
    }
}

impl Node {
    /// A regular file with these bytes.
    pub(crate) fn new(file_system: &Arc<FileSystem>, inode: u64, bytes: Vec<u8>) -> Arc<Self> {
        Self::special(file_system, inode, bytes, NodeFlags::empty(), NodeType::RegularFile)
    }

    pub(crate) fn special(
        file_system: &Arc<FileSystem>,
        inode: u64,
        bytes: Vec<u8>,
        flags: NodeFlags,
        kind: NodeType,
    ) -> Arc<Self> {
        let state = Mutex::new(State { bytes, ..State::default() });
        Arc::new(Self { file_system: file_system.clone(), inode, flags, kind, state })
    }

    /// Its bytes now.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// Whether its bytes are these.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        self.state().bytes == bytes
    }

    /// The node makes up more bytes.
    pub(crate) fn append_quietly(&self, bytes: &[u8]) {
        self.state().bytes.extend_from_slice(bytes);
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Calls that touch the range stop until [`Gate::open`].
    pub(crate) fn gate(&self, kind: Kind, moment: Moment, range: Range<u64>) -> Arc<Gate> {
        let (state, changed) = (Mutex::new((false, 0)), Condvar::new());
        let gate = Arc::new(Gate { kind, moment, range, state, changed });
        self.state().gates.push(gate.clone());
        gate
    }

    /// The calls so far, which are forgotten.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    /// The calls so far of one kind.
    pub(crate) fn calls(&self, kind: Kind) -> Vec<Call> {
        self.state().calls.iter().filter(|call| call.kind == kind).copied().collect()
    }

    /// Pages that were being read twice at the same time.
    pub(crate) fn doubled(&self) -> Vec<u64> {
        self.state().doubled.clone()
    }

    /// The most reads that were under way at the same time.
    pub(crate) fn readers_max(&self) -> usize {
        self.state().readers_max
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn pass(&self, kind: Kind, moment: Moment, touched: &Range<u64>) {
        let stops =
            |gate: &&Arc<Gate>| gate.kind == kind && gate.moment == moment && overlap(&gate.range, touched);
        let gates: Vec<Arc<Gate>> = self.state().gates.iter().filter(stops).cloned().collect();
        gates.iter().for_each(|gate| gate.pass());
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> VfsResult<usize> {
        let touched = offset..offset + buffer.len() as u64;
        self.pass(Kind::Read, Moment::Before, &touched);
        let mut state = self.state();
        state.interrupt()?;
        let faults = state.faults.clone();
        if overlap(&faults.reads, &touched) || state.is_turn("read", faults.reads_every) {
            return Err(VfsError::Io);
        }
        let start = (offset as usize).min(state.bytes.len());
        let mut length = buffer.len().min(state.bytes.len() - start);
        if length > 1 && state.is_turn("short", faults.short_every) {
            length /= 2;
        }
        buffer[..length].copy_from_slice(&state.bytes[start..start + length]);
        drop(state);
        self.pass(Kind::Read, Moment::After, &touched);
        Ok(length)
    }
}

impl State {
    fn is_turn(&mut self, what: &'static str, every: u64) -> bool {
        let count = self.counted.entry(what).or_default();
        *count += 1;
        every > 0 && count.is_multiple_of(every)
    }

    fn interrupt(&mut self) -> VfsResult<()> {
        let every = self.faults.interrupted_every;
        if self.is_turn("interrupted", every) { Err(VfsError::Interrupted) } else { Ok(()) }
    }

    fn log(&mut self, kind: Kind, offset: u64, length: u64) {
        self.calls.push(Call { kind, offset, length });
    }

    fn begin_read(&mut self, pages: Range<u64>) {
        self.readers += 1;
        self.readers_max = self.readers_max.max(self.readers);
        for page in pages {
            let readers = self.reading.entry(page).or_default();
            *readers += 1;
            if *readers > 1 {
                self.doubled.push(page);
            }
        }
    }

    fn end_read(&mut self, pages: Range<u64>) {
        self.readers -= 1;
        for page in pages {
            *self.reading.get_mut(&page).expect("begun before") -= 1;
        }
    }

    fn fits(&self, length: u64) -> bool {
        let capacity_bytes = self.faults.capacity_bytes;
        capacity_bytes == 0 || length <= capacity_bytes
    }
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        while !state.0 {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Waits until so many calls have come.
    pub(crate) fn await_arrivals(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        while state.1 < count {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// How many calls have come.
    pub(crate) fn arrivals(&self) -> usize {
        self.state.lock().unwrap().1
    }

    /// Lets all go on, those that come later too.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

fn pages(touched: &Range<u64>) -> Range<u64> {
    touched.start / PAGE..touched.end.div_ceil(PAGE)
}

impl FileNodeOps for Node {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> VfsResult<usize> {
        let touched = offset..offset + buffer.len() as u64;
        let mut state = self.state();
        state.log(Kind::Read, offset, buffer.len() as u64);
        state.begin_read(pages(&touched));
        drop(state);
        let result = self.read(buffer, offset);
        self.state().end_read(pages(&touched));
        result
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> VfsResult<usize> {
        let touched = offset..offset + buffer.len() as u64;
        self.state().log(Kind::Write, offset, buffer.len() as u64);
        self.pass(Kind::Write, Moment::Before, &touched);
        let mut state = self.state();
        state.interrupt()?;
        let faults = state.faults.clone();
        if overlap(&faults.writes, &touched) || state.is_turn("write", faults.writes_every) {
            return Err(VfsError::Io);
        }
        if !state.fits(touched.end.max(state.bytes.len() as u64)) {
            return Err(VfsError::StorageFull);
        }
        let length = state.bytes.len().max(touched.end as usize);
        state.bytes.resize(length, 0);
        state.bytes[offset as usize..touched.end as usize].copy_from_slice(buffer);
        drop(state);
        self.pass(Kind::Write, Moment::After, &touched);
        Ok(buffer.len())
    }

    fn append(&self, buffer: &[u8]) -> VfsResult<(usize, u64)> {
        let mut state = self.state();
        let offset = state.bytes.len() as u64;
        state.log(Kind::Append, offset, buffer.len() as u64);
        state.bytes.extend_from_slice(buffer);
        Ok((buffer.len(), state.bytes.len() as u64))
    }

    fn set_len(&self, length: u64) -> VfsResult<()> {
        let mut state = self.state();
        state.log(Kind::SetLen, 0, length);
        if length > state.bytes.len() as u64 && !state.fits(length) {
            return Err(VfsError::StorageFull);
        }
        state.bytes.resize(length as usize, 0);
        Ok(())
    }
}

impl NodeOps for Node {
    fn inode(&self) -> u64 {
        self.inode
    }

    fn metadata(&self) -> VfsResult<Metadata> {
        let size = self.state().bytes.len() as u64;
        Ok(Metadata {
            device: 0,
            inode: self.inode,
            nlink: 1,
            mode: NodePermission::default(),
            node_type: self.kind,
            uid: 0,
            gid: 0,
            size,
            block_size: PAGE,
            blocks: size.div_ceil(512),
            rdev: DeviceId::default(),
            atime: Duration::ZERO,
            mtime: Duration::ZERO,
            ctime: Duration::ZERO,
        })
    }

    fn update_metadata(&self, _update: MetadataUpdate) -> VfsResult<()> {
        Err(VfsError::OperationNotSupported)
    }

    fn filesystem(&self) -> &dyn FilesystemOps {
        &*self.file_system
    }

    fn sync(&self, data_only: bool) -> VfsResult<()> {
        self.state().log(Kind::Sync, u64::from(data_only), 0);
        self.pass(Kind::Sync, Moment::Before, &(0..u64::MAX));
        let mut state = self.state();
        let every = state.faults.syncs_every;
        if state.is_turn("sync", every) { Err(VfsError::Io) } else { Ok(()) }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn flags(&self) -> NodeFlags {
        self.flags
    }
}

impl Pollable for Node {
    fn poll(&self) -> IoEvents {
        IoEvents::IN | IoEvents::OUT
    }

    unsafe fn register_shared(&self, _sink: &mut dyn SharedRegistrationSink, _events: IoEvents) {}
}

impl FilesystemOps for FileSystem {
    fn name(&self) -> &str {
        self.name
    }

    fn root_dir(&self) -> DirEntry {
        unreachable!("the cache does not walk directories")
    }

    fn stat(&self) -> VfsResult<StatFs> {
        Err(VfsError::OperationNotSupported)
    }
}

pub(crate) const PAGE: u64 = 4096;
