//! Positional reads: blocking into the caller's buffer, asynchronous into a frame.
//!
//! ```text
//!   read_at ─┬─ in memory ─────────► copied
//!            ├─ cached ────────────► a few bytes: glance, else through the cache (`cached`)
//!            ├─ character device ──► pread
//!            └─ else ─► page cache (RWF_NOWAIT) ─┬─ all there ─► done
//!                                                └─ rest ─┬─ small ─► pread in this thread, through a frame if unaligned
//!                                                         └─ large ─► read stream: runs in flight at once, copied in order
//!   read_at_async ─► the same ways; without the cache one request into one frame, lent as Bytes; large ones are assembled
//! ```
//!
//! Owns: the choice between these, and reading without the cache.
//! Does not own: the cache (cached), readahead (a positional read around the cache starts none).
//! Invariants: I4 memory of the caller goes to the kernel only inside blocking calls.
//! Hot path: cached: see `cached`. Resident: 1 syscall, 1 copy, no allocation. Direct and aligned: 1 more syscall, no copy by
//! us.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use headwater_core::backing::{Backing, Form};
use headwater_core::plan::Run;
use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{Extent, Extents, Finished, Glanced, Route, Transfer, Urgency};

use crate::api::file::{Contents, File};
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::{OFFSET_BYTES_MAX, READABLE_BYTES_MAX, Source};
use crate::inode::windows::Window;
use crate::read::stream::ReadStream;

impl File {
    /// Reads at `offset_bytes` into `buffer`, as `std::os::unix::fs::FileExt::read_at` does, and fills it unless the
    /// file ends before. Returns the bytes read; 0 at or beyond the end. Blocks; needs no alignment. What `buffer` holds behind the
    /// bytes read is unspecified: the file may be cut while the device delivers.
    ///
    /// # Errors
    /// What the device reports, with path and offset, if no byte was read.
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        match &self.contents {
            Contents::Stored(source) if source.glance(buffer, offset_bytes) == Glanced::Copied => {
                Ok(buffer.len())
            }
            Contents::Stored(source) => source.read_at(buffer, offset_bytes),
            Contents::Memory(memory) => memory.read_at(buffer, offset_bytes),
        }
    }

    /// Fills `buffer` from `offset_bytes` on, as `std::os::unix::fs::FileExt::read_exact_at` does. Blocks.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before, else as [`File::read_at`]. The buffer's contents are then unspecified.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset_bytes + done as u64)? {
                0 => return Err(self.ended_early(offset_bytes + done as u64)),
                read_bytes => done += read_bytes,
            }
        }
        Ok(())
    }

    /// Reads up to `length` bytes at `offset_bytes`; fewer only where the file ends. The bytes share an engine's frame
    /// up to 2 MiB; beyond that, or when there is no frame of that size, they are assembled in memory of their own. The
    /// bytes of a file in memory are shared, however many. The future is `Send`, runs on any executor and may be dropped
    /// at any moment.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at_async(
        &self,
        offset_bytes: u64,
        length: usize,
    ) -> impl Future<Output = Result<Bytes>> + Send + 'static + use<> {
        let file = self.clone();
        async move {
            match &file.contents {
                Contents::Stored(source) => source.read_at_async(offset_bytes, length).await,
                Contents::Memory(memory) => memory.slice(offset_bytes, length),
            }
        }
    }

    /// Reads exactly `length` bytes at `offset_bytes`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before, else as [`File::read_at`].
    pub fn read_exact_at_async(
        &self,
        offset_bytes: u64,
        length: usize,
    ) -> impl Future<Output = Result<Bytes>> + Send + 'static + use<> {
        let (file, reading) = (self.clone(), self.read_at_async(offset_bytes, length));
        async move {
            let bytes = reading.await?;
            if bytes.len() == length {
                return Ok(bytes);
            }
            // The file ended, or the device failed there: asking for the rest tells which.
            let mut assembled = BytesMut::from(bytes);
            while assembled.len() < length {
                let (end_bytes, left) = (offset_bytes + assembled.len() as u64, length - assembled.len());
                let rest = file.read_at_async(end_bytes, left).await?;
                if rest.is_empty() {
                    return Err(file.ended_early(end_bytes));
                }
                assembled.extend_from_slice(&rest);
            }
            Ok(assembled.freeze())
        }
    }

    pub(crate) fn ended_early(&self, offset_bytes: u64) -> Error {
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends here");
        Error::at(Operation::Read, self.path(), offset_bytes, error)
    }
}

impl Source {
    /// All of it, if it is a few bytes of a cached page that is much in use.
    #[inline]
    fn glance(&self, buffer: &mut [u8], offset_bytes: u64) -> Glanced {
        match &self.inode {
            Some(inode) => inode.glance(buffer, offset_bytes, self.revalidate_after),
            None => Glanced::Not,
        }
    }

    fn read_at(self: &Arc<Self>, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        self.check_process(offset_bytes)?;
        let range = addressable(self.path(), offset_bytes, buffer.len())?;
        let buffer = &mut buffer[..range.len() as usize];
        match (self.inode_for(range), self.open.form()) {
            (Some(inode), _) => {
                let read_bytes = self.read_cached(inode, buffer, range)?;
                inode.after_read(ByteRange::at(range.start, read_bytes as u64));
                Ok(read_bytes)
            }
            (None, Form::Direct | Form::InMemory) => {
                let read = Backing::read_at(&*self.open, buffer, range.start);
                read.map_err(|error| self.read_error(range.start, error))
            }
            (None, Form::Cached) => self.read_uncached(buffer, range),
        }
    }

    /// What the kernel's page cache holds comes from there, the rest from the device.
    fn read_uncached(self: &Arc<Self>, buffer: &mut [u8], range: ByteRange) -> Result<usize> {
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

    async fn read_at_async(self: &Arc<Self>, offset_bytes: u64, length: usize) -> Result<Bytes> {
        self.check_process(offset_bytes)?;
        let range = addressable(self.path(), offset_bytes, length)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let Some(inode) = self.inode_for(range) else { return self.read_device_async(range).await };
        let bytes = self.read_cached_async(inode, range).await?;
        inode.after_read(ByteRange::at(range.start, bytes.len() as u64));
        Ok(bytes)
    }

    /// Reads without the cache.
    pub(crate) async fn read_device_async(self: &Arc<Self>, range: ByteRange) -> Result<Bytes> {
        if let Some(window) = self.window_for(range) {
            let mut bytes = BytesMut::zeroed(range.len() as usize);
            let read = window.read(&mut bytes, range.start);
            return read.map(|()| bytes.freeze()).map_err(|error| self.read_error(range.start, error));
        }
        let device_range = self.offset_alignment().expand(range);
        match self.allocate_async(device_range.len()).await {
            Some(extent) => self.read_frame(range, device_range, extent).await,
            None => self.assemble(range).await,
        }
    }

    /// Reads without the cache. Blocks.
    pub(crate) fn read_device(self: &Arc<Self>, buffer: &mut [u8], range: ByteRange) -> Result<usize> {
        if range.is_empty() {
            return Ok(0);
        }
        if let Some(window) = self.window_for(range) {
            let read = window.read(buffer, range.start).map(|()| buffer.len());
            return read.map_err(|error| self.read_error(range.start, error));
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
                        // This thread may be the one that holds the frames: it does not wait for them.
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

    /// The window that has the bytes in the device's place.
    fn window_for(&self, range: ByteRange) -> Option<Arc<Window>> {
        self.known()?.unwritten.windows.covering(range)
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

    /// One aligned read into other memory, and the wanted part of it copied out.
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
                return Ok(self.engine.lend(extent, 0..read_bytes));
            }
        }
        let Finished { mut extents, result, .. } = self.transfer(device_range, extent).await?;
        let read_bytes = result.map_err(|error| self.read_error(range.start, error))?;
        let used = delivered(device_range, range, read_bytes);
        let extent = extents.pop().expect("the request had one extent");
        Ok(self.engine.lend(extent, used))
    }

    async fn transfer(&self, range: ByteRange, extent: Extent) -> Result<Finished> {
        let request = Transfer {
            operation: headwater_io::Operation::Read,
            file: self.open.clone(),
            route: self.device_route(),
            offset_bytes: range.start,
            length_bytes: range.len() as usize,
            extents: Extents::from_iter([extent]),
        };
        let submitted = self.shared().driver.submit(request, Urgency::Demand);
        let mut completion =
            submitted.map_err(|rejected| self.read_error(range.start, rejected.reason.into()))?;
        Ok(std::future::poll_fn(|context| completion.poll(context)).await)
    }

    /// A frame if it is there, not waited for: a caller that waits for contiguous memory may wait for frames that it keeps itself.
    fn try_allocate(&self, bytes: u64) -> Option<Extent> {
        let fits = bytes <= FRAME_BYTES_MAX;
        fits.then(|| self.shared().allocate(bytes as usize, Urgency::Readahead)).flatten()
    }

    /// Waits for a page; `None` when more is asked for and not there.
    async fn allocate_async(&self, bytes: u64) -> Option<Extent> {
        if bytes > PAGE_SIZE_BYTES {
            return self.try_allocate(bytes);
        }
        let shared = self.shared();
        loop {
            if let Some(extent) = shared.allocate(bytes as usize, Urgency::Demand) {
                return Some(extent);
            }
            let freed = shared.arena.freed();
            if let Some(extent) = shared.allocate(bytes as usize, Urgency::Demand) {
                return Some(extent);
            }
            shared.room_to_read(freed).await;
        }
    }
}

/// The bytes asked for, cut at the largest offset that files have.
pub(crate) fn addressable(path: &Path, offset_bytes: u64, length: usize) -> Result<ByteRange> {
    if offset_bytes > OFFSET_BYTES_MAX {
        let text = "offsets of files end at 2^63 - 1";
        let error = io::Error::new(io::ErrorKind::InvalidInput, text);
        return Err(Error::at(Operation::Read, path, offset_bytes, error));
    }
    let end_bytes = offset_bytes.saturating_add(length as u64).min(READABLE_BYTES_MAX);
    Ok(ByteRange::new(offset_bytes, end_bytes.max(offset_bytes)))
}

fn is_aligned(memory: Alignment, offset: Alignment, buffer: &[u8], range: ByteRange) -> bool {
    memory.is_aligned(buffer.as_ptr() as u64)
        && offset.is_aligned(range.start)
        && offset.is_aligned(range.end)
}

/// Which bytes of the memory of `device_range` are the part of `range` that was read.
fn delivered(device_range: ByteRange, range: ByteRange, read_bytes: usize) -> Range<usize> {
    let valid = Run { range: device_range, wanted: range }.delivered(read_bytes as u64);
    let start = (valid.start - device_range.start) as usize;
    start..start + valid.len() as usize
}

/// Up to here one `pread` in the calling thread is as fast as several requests in flight, and cheaper.
const IN_THREAD_BYTES_MAX: u64 = 256 << 10;

/// The largest frame.
const FRAME_BYTES_MAX: u64 = 2 << 20;
