//! Uncached: reading around the cache, blocking into the caller's buffer and asynchronous into a frame.
//!
//! ```text
//!   page cache of the kernel (RWF_NOWAIT) ─┬─ all there ─► done
//!                                          └─ rest ─┬─ small ─► pread in this thread, through a frame if unaligned
//!                                                   └─ large ─► read stream: runs in flight at once, copied in order
//!   asynchronous: one request into one frame, lent as Bytes; large ones are assembled
//! ```
//!
//! Owns: reads around the cache.
//! Does not own: which files are read around the cache (handle), streams.
//! Invariants: I4 memory of the caller is given to the kernel only during blocking calls.
//! Hot path: resident: 1 system call, 1 copy, no allocation. Direct and aligned: 1 more system call, no copy in user space.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use headwater_core::plan::Run;
use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{Extent, Extents, Finished, Route, Transfer, Urgency};

use crate::base::error::Result;
use crate::engine::frames;
use crate::engine::handle::Source;
use crate::engine::shortage::Shortage;
use crate::inode::windows::Window;
use crate::read::stream::ReadStream;

impl Source {
    /// Copies resident bytes from the kernel's page cache, and reads the rest from the device.
    pub(crate) fn read_uncached(self: &Arc<Self>, buffer: &mut [u8], range: ByteRange) -> Result<usize> {
        let mut done = 0;
        if !buffer.is_empty()
            && let Some(resident_bytes) = self.read_if_resident(buffer, range.start)?
        {
            done = resident_bytes;
            if done == buffer.len() || range.start + done as u64 >= self.length_bytes()? {
                return Ok(done);
            }
        }
        let rest = ByteRange::new(range.start + done as u64, range.end);
        match self.read_device(&mut buffer[done..], rest) {
            Ok(read_bytes) => Ok(done + read_bytes),
            Err(_) if done > 0 => Ok(done),
            Err(error) => Err(error),
        }
    }

    /// As [`Source::read_device`], for a task.
    pub(crate) async fn read_device_async(self: &Arc<Self>, range: ByteRange) -> Result<Bytes> {
        if let Some(window) = self.window_for(range) {
            let mut bytes = BytesMut::zeroed(range.len() as usize);
            let read_bytes = self.read_window(&window, &mut bytes, range)?;
            bytes.truncate(read_bytes);
            return Ok(bytes.freeze());
        }
        let device_range = self.offset_alignment().expand(range);
        match self.allocate_async(device_range.len()).await {
            Some(extent) => self.read_frame(range, device_range, extent).await,
            None => self.assemble(range).await,
        }
    }

    /// As [`Source::read_device`], up to the end of the range or of the file: fewer bytes never hide an error behind them.
    pub(crate) fn read_device_whole(self: &Arc<Self>, buffer: &mut [u8], range: ByteRange) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = ByteRange::new(range.start + done as u64, range.end);
            match self.read_device(&mut buffer[done..], rest)? {
                0 => break,
                read_bytes => done += read_bytes,
            }
        }
        Ok(done)
    }

    /// As [`Source::read_device_whole`], for a task.
    pub(crate) async fn read_device_whole_async(self: &Arc<Self>, range: ByteRange) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let rest = ByteRange::new(range.start + bytes.len() as u64, range.end);
            let read = self.read_device_async(rest).await?;
            bytes.extend_from_slice(&read);
            if read.is_empty() || bytes.len() as u64 == range.len() {
                return Ok(bytes);
            }
        }
    }

    /// Reads around the cache, perhaps fewer bytes, before an error or the end of the file. Blocks.
    pub(crate) fn read_device(self: &Arc<Self>, buffer: &mut [u8], range: ByteRange) -> Result<usize> {
        if range.is_empty() {
            return Ok(0);
        }
        if let Some(window) = self.window_for(range) {
            return self.read_window(&window, buffer, range);
        }
        if range.len() > IN_THREAD_BYTES_MAX {
            return self.read_large(buffer, range);
        }
        match self.open.direct() {
            Some(direct) if !is_aligned(direct.memory, direct.offset, buffer, range) => {
                let device_range = direct.offset.expand(range);
                match self.try_allocate(device_range.len()) {
                    Some(mut extent) => self.read_through(buffer, range, device_range, &mut extent),
                    None => {
                        // This thread may itself hold the frames, so it does not wait for them.
                        let alignment = direct.memory.get() as usize;
                        let mut memory = vec![0; device_range.len() as usize + alignment];
                        let start = memory.as_ptr().align_offset(alignment);
                        self.read_through(buffer, range, device_range, &mut memory[start..])
                    }
                }
            }
            _ => self
                .shared()
                .driver
                .read_blocking(&self.open, self.device_route(), buffer, range.start)
                .map_err(|error| self.read_error(range.start, error)),
        }
    }

    fn read_large(self: &Arc<Self>, buffer: &mut [u8], range: ByteRange) -> Result<usize> {
        let mut stream = ReadStream::whole(self, range);
        let mut done = 0;
        loop {
            match stream.fill_blocking() {
                Ok([]) => return Ok(done),
                Ok(chunk) => {
                    let length = chunk.len();
                    buffer[done..done + length].copy_from_slice(chunk);
                    stream.consume(length);
                    done += length;
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    /// Up to the end that the file has by then: what is stored in a window beyond the end is not in the file, and a truncate may have
    /// moved the end since the range was chosen.
    fn read_window(&self, window: &Window, buffer: &mut [u8], range: ByteRange) -> Result<usize> {
        window.read(buffer, range.start).map_err(|error| self.read_error(range.start, error))?;
        Ok(range.clip(self.length_bytes()?).len() as usize)
    }

    /// The window that has all of the range, and so is read instead of the device.
    fn window_for(&self, range: ByteRange) -> Option<Arc<Window>> {
        self.known()?.dirty.windows.covering(range)
    }

    async fn assemble(self: &Arc<Self>, range: ByteRange) -> Result<Bytes> {
        let mut stream = ReadStream::whole(self, range);
        let known_bytes = range.clip(self.length_bytes()?).len();
        let mut assembled = Vec::new();
        assembled
            .try_reserve_exact(known_bytes as usize)
            .map_err(|_| self.read_error(range.start, io::ErrorKind::OutOfMemory.into()))?;
        loop {
            match std::future::poll_fn(|context| stream.poll_fill(context)).await {
                Ok(()) if stream.chunk().is_empty() => return Ok(assembled.into()),
                Ok(()) => {
                    let chunk = stream.chunk();
                    let length = chunk.len();
                    assembled.extend_from_slice(chunk);
                    stream.consume(length);
                }
                Err(_) if !assembled.is_empty() => return Ok(assembled.into()),
                Err(error) => return Err(error),
            }
        }
    }

    /// One aligned read into other memory, from which the wanted part is copied. If it stops before the wanted part, a bad block lies
    /// there or the file ends: the kernel's page cache says which.
    fn read_through(
        &self,
        buffer: &mut [u8],
        range: ByteRange,
        device_range: ByteRange,
        memory: &mut [u8],
    ) -> Result<usize> {
        let target = &mut memory[..device_range.len() as usize];
        let read_bytes = self
            .shared()
            .driver
            .read_blocking(&self.open, Route::Direct, target, device_range.start)
            .map_err(|error| self.read_error(range.start, error))?;
        let used = delivered(device_range, range, read_bytes);
        if used.is_empty() {
            let read = self.shared().driver.read_blocking(&self.open, Route::Buffered, buffer, range.start);
            return read.map_err(|error| self.read_error(range.start, error));
        }
        buffer[..used.len()].copy_from_slice(&memory[used.clone()]);
        Ok(used.len())
    }

    async fn read_frame(
        &self,
        range: ByteRange,
        device_range: ByteRange,
        mut extent: Extent,
    ) -> Result<Bytes> {
        let resident = self.read_if_resident(&mut extent[..range.len() as usize], range.start)?;
        if let Some(read_bytes) = resident {
            let whole = read_bytes as u64 == range.len();
            if whole || range.start + read_bytes as u64 >= self.length_bytes()? {
                return Ok(self.lend(extent, 0..read_bytes));
            }
        }
        let Finished { mut extents, result, stopped_by, .. } = self.transfer(device_range, extent).await?;
        let read_bytes = result.map_err(|error| self.read_error(range.start, error))?;
        let used = delivered(device_range, range, read_bytes);
        if let Some(error) = stopped_by.filter(|_| used.is_empty()) {
            return Err(self.read_error(range.start, error));
        }
        let extent = extents.pop().expect("the request had one extent");
        Ok(self.lend(extent, used))
    }

    pub(crate) async fn transfer(&self, range: ByteRange, extent: Extent) -> Result<Finished> {
        let request = Transfer {
            direction: headwater_io::Direction::Read,
            file: self.open.clone(),
            route: self.device_route(),
            offset_bytes: range.start,
            length_bytes: range.len() as usize,
            extents: Extents::from_iter([extent]),
        };
        let submitted = self.shared().driver.submit(request, Urgency::Demand);
        let mut completion = submitted.map_err(|rejected| self.read_error(range.start, rejected.into()))?;
        Ok(std::future::poll_fn(|context| completion.poll(context)).await)
    }

    /// A frame if one is free, without waiting: a caller that waits for contiguous memory may be holding the frames itself.
    fn try_allocate(&self, bytes: u64) -> Option<Extent> {
        let fits = bytes <= FRAME_BYTES_MAX;
        fits.then(|| frames::allocate(self.shared(), bytes as usize, Urgency::Readahead)).flatten()
    }

    /// Waits for one page; a larger frame only if it is free, else `None`.
    async fn allocate_async(&self, bytes: u64) -> Option<Extent> {
        if bytes > PAGE_SIZE_BYTES {
            return self.try_allocate(bytes);
        }
        let shared = self.shared();
        loop {
            if let Some(extent) = frames::allocate(shared, bytes as usize, Urgency::Demand) {
                return Some(extent);
            }
            let shortage = Shortage::listen(shared);
            if let Some(extent) = frames::allocate(shared, bytes as usize, Urgency::Demand) {
                return Some(extent);
            }
            shortage.begin(shared).await;
        }
    }
}

fn is_aligned(memory: Alignment, offset: Alignment, buffer: &[u8], range: ByteRange) -> bool {
    memory.is_aligned(buffer.as_ptr() as u64)
        && offset.is_aligned(range.start)
        && offset.is_aligned(range.end)
}

/// The place in the memory of `device_range` of the part of `range` that was read.
fn delivered(device_range: ByteRange, range: ByteRange, read_bytes: usize) -> Range<usize> {
    let valid = Run { range: device_range, wanted: range }.delivered(read_bytes as u64);
    let start = (valid.start - device_range.start) as usize;
    start..start + valid.len() as usize
}

/// Up to this size a `pread` in the calling thread is as fast as several requests in flight, and cheaper.
const IN_THREAD_BYTES_MAX: u64 = 256 << 10;

/// The largest frame.
const FRAME_BYTES_MAX: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use headwater_core::readahead::{Purpose, ReadIds};
    use headwater_core::units::{PAGE_BYTES, PageIndex, PageRange};
    use headwater_io::{Direction, DriverKind, Loading, SimOptions};
    use headwater_testkit::{block_on, watched};

    use super::*;
    use crate::api::contents::Contents;
    use crate::engine::Shared;
    use crate::engine::loads::Load;
    use crate::{Caching, Engine, File, OpenOptions};

    /// Goal: a read whose range was chosen before a truncate gets nothing that a window has stored beyond the new end. Method: the part
    /// of such a read that comes after the truncate.
    #[test]
    fn what_windows_store_beyond_the_end_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::builder().memory(16 << 20).driver(DriverKind::Threads).build().unwrap();
        let mut options = OpenOptions::new();
        let file = options
            .engine(&engine)
            .caching(Caching::On)
            .write(true)
            .create(true)
            .open(directory.path().join("file"));
        let file = file.unwrap();
        // The kernel may track no writes here.
        let Ok(view) = file.map_contiguous(ByteRange::new(0, 20_000)) else {
            return headwater_testkit::skip("windows");
        };
        view.as_cells().unwrap().iter().for_each(|cell| cell.store(7, Ordering::Relaxed));
        let Contents::Stored(source) = &file.contents else { panic!("it is a file") };
        let (mut buffer, range) = ([0; 10], ByteRange::new(15_000, 15_010));
        assert_eq!(source.read_device(&mut buffer, range).unwrap(), 0);
        assert!(block_on(source.read_device_async(range)).unwrap().is_empty());
        file.set_len(15_004).unwrap();
        assert_eq!(source.read_device(&mut buffer, range).unwrap(), 4);
    }

    /// An engine on a simulated device with a file of 64 pages, and the file.
    fn simulated(directory: &Path) -> (Engine, File) {
        let device = SimOptions {
            short_per_mille: 0,
            transient_per_mille: 0,
            delay_steps_max: 0,
            repolls: false,
            ..SimOptions::hostile(5)
        };
        let driver = DriverKind::Sim(device);
        let engine = Engine::builder().memory(4 << 20).driver(driver).build().unwrap();
        std::fs::write(directory.join("file"), vec![7; 64 * PAGE_BYTES]).unwrap();
        let mut options = OpenOptions::new();
        let file = options.engine(&engine).caching(Caching::On).open(directory.join("file")).unwrap();
        (engine, file)
    }

    /// All memory that reads around the cache may have.
    fn rest_of(shared: &Shared) -> Vec<Extent> {
        let all = std::iter::from_fn(|| shared.arena.allocate(PAGE_BYTES, Urgency::Demand));
        let mut rest: Vec<_> = all.collect();
        rest.truncate(rest.len() - frames::CACHE_BYTES_MIN / PAGE_BYTES);
        rest
    }

    /// Goal: a reader that finds all memory taken, some of it by a load that has arrived and that nothing waits for, ends that load, and
    /// has its memory then. Method: a page read ahead; all else is taken.
    #[test]
    fn a_reader_without_memory_ends_a_load_that_nothing_awaits() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, file) = simulated(directory.path());
        let Contents::Stored(source) = &file.contents else { panic!("it is a file") };
        let loads = &engine.shared.cache.loads;
        let load = begin_load(source);
        submit(source, load);
        let rest = rest_of(&engine.shared);
        let found = watched("a reader", || block_on(source.allocate_async(PAGE_SIZE_BYTES)));
        assert!(found.is_some() && loads.len() == 0, "{loads:?}");
        drop((found, rest));
    }

    /// Goal: the same while the load is not submitted yet: the reader sleeps, is woken when the load is under way, and ends it. Method:
    /// polls, one by one.
    #[test]
    fn a_reader_without_memory_waits_for_a_load_to_be_submitted() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, file) = simulated(directory.path());
        let Contents::Stored(source) = &file.contents else { panic!("it is a file") };
        let load = begin_load(source);
        let rest = rest_of(&engine.shared);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut reader = Box::pin(source.allocate_async(PAGE_SIZE_BYTES));
        let mut poll = || reader.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending() && poll().is_pending(), "there is memory");
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
        submit(source, load);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "the reader is not told of the request");
        assert!(matches!(poll(), Poll::Ready(Some(_))), "the load has arrived");
        assert_eq!(engine.shared.cache.loads.len(), 0);
        drop(rest);
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A load of the first page that has its memory, and no request yet.
    fn begin_load(source: &Source) -> (Arc<Load>, Loading, Extents) {
        let (shared, inode) = (source.shared(), source.known().unwrap());
        let load = shared.cache.loads.begin(inode, ReadIds::new(), Purpose::Ahead);
        let extents = shared.arena.allocate_run(PAGE_BYTES, Urgency::Demand).unwrap();
        let pages = PageRange::new(PageIndex::new(0), PageIndex::new(1));
        let loading = inode.pages.begin_load(pages, &extents, load.id(), pages.start).unwrap();
        (load, loading, extents)
    }

    fn submit(source: &Source, (load, loading, extents): (Arc<Load>, Loading, Extents)) {
        let read = Transfer {
            direction: Direction::Read,
            file: source.open().clone(),
            route: source.device_route(),
            offset_bytes: 0,
            length_bytes: PAGE_BYTES,
            extents,
        };
        let completion = source.shared().driver.submit(read, Urgency::Demand).unwrap();
        load.under_way(completion, loading);
    }
}
