//! Positional writes: into the cache, and from there to the file.
//!
//! Owns: the interface.
//! Does not own: writeback.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::cache::DirtyToo;
use headwater_core::frame::PAGES_MAX;
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use headwater_io::{Access, AppendFile, Dropped, Extents, FileKind, RejectReason, Route, SyncScope};

use crate::api::file::{Contents, File};
use crate::base::error::{Error, Operation, Result};
use crate::base::listeners::defer;
use crate::engine::handle::{READABLE_BYTES_MAX, Source};
use crate::inode::dirty::{State, TurnGuard};
use crate::inode::page_write::PageWrite;
use crate::inode::{ALL_PAGES, Inode};
use crate::write::cached::Place;
use crate::write::put_pages::Put;

impl File {
    /// Writes `bytes` at `offset_bytes`, as `std::os::unix::fs::FileExt::write_at` does; needs no alignment. A write beyond
    /// the end makes the file longer, with zeros in between. Returns the bytes written. The bytes can be read at once by
    /// everybody who uses the same engine, by others after [`File::sync_data`]; unless synced, they are lost if the process
    /// is killed. May block: for pages that are written in part, and while too much is unwritten.
    ///
    /// # Errors
    /// `PermissionDenied` when the file is not open for writing; `InvalidInput` or `FileTooLarge` for offsets that files do
    /// not have, and `InvalidInput` if the file was opened with [`OpenOptions::append`](crate::OpenOptions::append); `StorageFull` when the
    /// device has no room for it; what the device reports, with path and offset, if no byte was written. A write-back of earlier
    /// bytes that has failed is reported once to each handle, by the next write or sync; those bytes are kept, and tried again.
    pub fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        self.writable(Operation::Write)?.write_at(bytes, offset_bytes)
    }

    /// Writes all of `bytes` at `offset_bytes`.
    ///
    /// # Errors
    /// As [`File::write_at`]; some of the bytes may be written then.
    pub fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write_at(&bytes[done..], offset_bytes + done as u64)?;
        }
        Ok(())
    }

    /// Writes all of `bytes` at the end of the file, and says where that was. Appends through any handle of the same engine
    /// never overlap.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.writable(Operation::Write)?.append(bytes)
    }

    /// Cuts the file, or makes it longer with zeros that take no room. Blocks.
    ///
    /// # Errors
    /// `PermissionDenied` when the file is not open for writing; what `ftruncate(2)` reports.
    pub fn set_len(&self, length_bytes: u64) -> Result<()> {
        self.writable(Operation::SetLength)?.set_len(length_bytes)
    }

    /// Returns when all that was written before, through whatever handle of the same engine, is in the file for other programs to see.
    /// It may be lost with power; [`File::sync_data`] prevents that. Blocks for the device, but not for its `fdatasync(2)`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("lines");
    /// let file = headwater::File::create(&path)?;
    /// file.append(b"for another program\n")?;
    /// assert!(!file.is_clean());
    /// file.flush()?;
    /// assert!(file.is_clean());
    /// assert_eq!(std::fs::read(&path)?, b"for another program\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What the device reports, once to each handle. After a failed `fdatasync(2)` of the file every later call fails as well: what
    /// is on the device is not known any more.
    pub fn flush(&self) -> Result<()> {
        match &self.contents {
            Contents::Stored(source) => source.flush(),
            Contents::Memory(_) => Ok(()),
        }
    }

    /// Whether the file has all that was written through this engine, as [`File::flush`] leaves it. Says nothing of a loss of power. No
    /// system call; `true` in a forked child, which has none of it.
    pub fn is_clean(&self) -> bool {
        match &self.contents {
            Contents::Stored(source) if !source.shared().driver.is_forked() => {
                source.known().is_none_or(|inode| !inode.unwritten.may_lack())
            }
            Contents::Stored(_) | Contents::Memory(_) => true,
        }
    }

    /// Returns when all that was written before, through whatever handle of the same engine, survives a loss of power: data,
    /// and the length if it changed. Blocks. Callers at the same time share one `fdatasync(2)`.
    ///
    /// # Errors
    /// What the device reports, once to each handle. After a failed `fdatasync(2)` of the file every later call fails as well: what
    /// is on the device is not known any more.
    pub fn sync_data(&self) -> Result<()> {
        self.sync(SyncScope::Data)
    }

    /// As [`File::sync_data`], with times and permissions.
    ///
    /// # Errors
    /// As there.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(SyncScope::All)
    }

    /// As [`File::write_all_at`], for tasks on any executor. May be dropped at any moment; some of the bytes may be written
    /// then.
    ///
    /// # Errors
    /// As there.
    pub fn write_all_at_async(
        &self,
        bytes: impl Into<Bytes>,
        offset_bytes: u64,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (file, bytes) = (self.clone(), bytes.into());
        async move {
            let source = file.writable(Operation::Write)?;
            let mut done = 0;
            while done < bytes.len() {
                done += source.write_at_async(&bytes[done..], offset_bytes + done as u64).await?;
            }
            Ok(())
        }
    }

    /// As [`File::append`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn append_async(
        &self,
        bytes: impl Into<Bytes>,
    ) -> impl Future<Output = Result<u64>> + Send + 'static {
        let (file, bytes) = (self.clone(), bytes.into());
        async move { file.writable(Operation::Write)?.append_async(&bytes).await }
    }

    /// As [`File::set_len`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn set_len_async(&self, length_bytes: u64) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.writable(Operation::SetLength)?.set_len_async(length_bytes).await }
    }

    /// As [`File::flush`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn flush_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move {
            match &file.contents {
                Contents::Stored(source) => source.flush_async().await,
                Contents::Memory(_) => Ok(()),
            }
        }
    }

    /// As [`File::sync_data`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn sync_data_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.sync_async(SyncScope::Data).await }
    }

    /// As [`File::sync_all`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn sync_all_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.sync_async(SyncScope::All).await }
    }

    /// Nothing is to be done for bytes in memory.
    fn sync(&self, scope: SyncScope) -> Result<()> {
        match &self.contents {
            Contents::Stored(source) => source.sync(scope),
            Contents::Memory(_) => Ok(()),
        }
    }

    async fn sync_async(&self, scope: SyncScope) -> Result<()> {
        match &self.contents {
            Contents::Stored(source) => source.sync_async(scope).await,
            Contents::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn writable(&self, operation: Operation) -> Result<&Arc<Source>> {
        let refused = || {
            let error = io::Error::new(io::ErrorKind::PermissionDenied, "the file is not open for writing");
            Error::on_file(operation, self.path(), error)
        };
        match &self.contents {
            Contents::Stored(source) if source.access == Access::ReadWrite => Ok(source),
            _ => Err(refused()),
        }
    }
}

impl Source {
    fn write_at(self: &Arc<Self>, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        self.check_positioned(offset_bytes)?;
        self.check_write(offset_bytes, bytes.len())?;
        match self.known() {
            Some(inode) => Ok(self.write_cached(inode, bytes, Place::At(offset_bytes))?.bytes),
            None => self.write_through(bytes, offset_bytes),
        }
    }

    async fn write_at_async(self: &Arc<Self>, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        self.check_positioned(offset_bytes)?;
        self.check_write(offset_bytes, bytes.len())?;
        match self.known() {
            Some(inode) => Ok(self.write_cached_async(inode, bytes, Place::At(offset_bytes)).await?.bytes),
            None => self.write_through(bytes, offset_bytes),
        }
    }

    /// What has no positions or no pages: devices that are not blocks.
    fn write_through(&self, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        let written = self.shared().driver.write_blocking(&self.open, Route::Buffered, bytes, offset_bytes);
        written.map_err(|error| self.error(Operation::Write, offset_bytes, error))
    }

    fn append(self: &Arc<Self>, bytes: &[u8]) -> Result<u64> {
        self.check_write(0, bytes.len())?;
        let Some(inode) = self.known() else { return Err(self.no_end()) };
        if let Some(appender) = &self.appender {
            // What this engine has still to write, by other handles, is older.
            self.shared().put_pages(inode, ALL_PAGES, Put::Sync);
            let turn = inode.unwritten.turn.take();
            return self.append_by_kernel(inode, appender, bytes, &turn);
        }
        let turn = inode.unwritten.turn.take();
        let end_bytes = self.end_bytes(inode)?;
        self.check_end(end_bytes, bytes.len())?;
        let accepted = self.write_cached(inode, bytes, Place::End(end_bytes, turn))?;
        accepted.stopped_by.map_or(Ok(end_bytes), Err)
    }

    async fn append_async(self: &Arc<Self>, bytes: &[u8]) -> Result<u64> {
        self.check_write(0, bytes.len())?;
        let Some(inode) = self.known() else { return Err(self.no_end()) };
        if let Some(appender) = &self.appender {
            self.shared().flush_async(inode).await;
            let turn = inode.unwritten.turn.take_async(&self.shared().driver).await;
            return self.append_by_kernel(inode, appender, bytes, &turn);
        }
        let turn = inode.unwritten.turn.take_async(&self.shared().driver).await;
        let end_bytes = self.end_bytes(inode)?;
        self.check_end(end_bytes, bytes.len())?;
        let accepted = self.write_cached_async(inode, bytes, Place::End(end_bytes, turn)).await?;
        accepted.stopped_by.map_or(Ok(end_bytes), Err)
    }

    /// Appends where the kernel says that the file ends. Blocks for the copy into the kernel's page cache.
    fn append_by_kernel(
        &self,
        inode: &Arc<Inode>,
        appender: &AppendFile,
        bytes: &[u8],
        _turn: &TurnGuard<'_>,
    ) -> Result<u64> {
        if let Some(error) = inode.unwritten.failing() {
            return Err(self.error(Operation::Write, inode.length_bytes(), error));
        }
        let mut dropped = Vec::new();
        inode.begin_changes(&self.open, 1);
        let appended = appender.append(bytes);
        if let Ok(appended) = &appended {
            let written = ByteRange::at(appended.offset_bytes, appended.length_bytes as u64);
            let mut device_length = inode.unwritten.device_length();
            *device_length = written.end.max(*device_length);
            drop(device_length);
            inode.unwritten.change(self.shared().cache.writes.dirty(), |_| {
                inode.pages.invalidate(PageRange::covering(written), DirtyToo::No, |page| dropped.push(page));
                inode.grow(written.end);
                inode.unwritten.note_written();
                inode.unwritten.note_change();
            });
        }
        inode.end_changes(&self.open, 1);
        inode.on_dropped(&dropped);
        let appended = appended.map_err(|error| self.error(Operation::Write, inode.length_bytes(), error))?;
        if appended.length_bytes < bytes.len() {
            let end_bytes = appended.offset_bytes + appended.length_bytes as u64;
            return Err(self.error(Operation::Write, end_bytes, io::ErrorKind::StorageFull.into()));
        }
        Ok(appended.offset_bytes)
    }

    /// Where the file ends: as it is now, unless bytes that this engine has not written yet lie at its end.
    fn end_bytes(&self, inode: &Arc<Inode>) -> Result<u64> {
        let device_bytes = *inode.unwritten.device_length();
        let is_own = inode.length_bytes() > device_bytes;
        let looked = if is_own { self.revalidate(inode) } else { self.glance_at_origin(inode) };
        looked.map(|()| inode.length_bytes()).map_err(|error| self.length_error(error))
    }

    fn no_end(&self) -> Error {
        let error = io::Error::new(io::ErrorKind::NotSeekable, "a device without a length has no end");
        Error::on_file(Operation::Write, self.path(), error)
    }

    /// A file that is open for appending has no other place to write to.
    fn check_positioned(&self, offset_bytes: u64) -> Result<()> {
        if self.appender.is_none() {
            return Ok(());
        }
        let text = "the file is open for appending; open it without to write at a position";
        Err(self.error(Operation::Write, offset_bytes, io::Error::new(io::ErrorKind::InvalidInput, text)))
    }

    fn check_write(&self, offset_bytes: u64, length: usize) -> Result<()> {
        if self.shared().driver.is_forked() {
            return Err(self.error(Operation::Write, offset_bytes, RejectReason::Forked.into()));
        }
        self.check_conflicts(Operation::Write)?;
        let failure = self.known().and_then(|inode| inode.unwritten.report_write(&self.told_failures));
        if let Some(error) = failure {
            return Err(self.error(Operation::Write, offset_bytes, error));
        }
        self.check_end(offset_bytes, length)
    }

    /// Whether a file can be so long.
    fn check_end(&self, offset_bytes: u64, length: usize) -> Result<()> {
        let end_bytes = offset_bytes.checked_add(length as u64);
        let error = match end_bytes {
            None => io::Error::new(io::ErrorKind::InvalidInput, "offsets of files end at 2^63 - 1"),
            Some(end_bytes) if end_bytes > WRITABLE_BYTES_MAX => io::ErrorKind::FileTooLarge.into(),
            Some(end_bytes)
                if self.open.kind() == FileKind::BlockDevice && end_bytes > self.length_bytes()? =>
            {
                io::ErrorKind::StorageFull.into()
            }
            Some(_) => return Ok(()),
        };
        Err(self.error(Operation::Write, offset_bytes, error))
    }

    fn set_len(self: &Arc<Self>, length_bytes: u64) -> Result<()> {
        let Some(inode) = self.check_set_len(length_bytes)? else { return Ok(()) };
        let cut = Cut::new(self, inode, inode.unwritten.turn.take(), length_bytes)?;
        while let Some(write) = cut.in_the_way() {
            self.shared().cache.writes.wait(&write);
        }
        loop {
            match self.shared().frames_for_write(inode, PageCount::new(1)) {
                Ok((spare, _)) => return cut.finish(spare),
                Err(room) => room.wait(self.shared()).map_err(|error| cut.error(error))?,
            }
        }
    }

    async fn set_len_async(self: &Arc<Self>, length_bytes: u64) -> Result<()> {
        let Some(inode) = self.check_set_len(length_bytes)? else { return Ok(()) };
        let turn = inode.unwritten.turn.take_async(&self.shared().driver).await;
        let cut = Cut::new(self, inode, turn, length_bytes)?;
        while let Some(write) = cut.in_the_way() {
            self.shared().cache.writes.ready(&write).await;
        }
        loop {
            match self.shared().frames_for_write(inode, PageCount::new(1)) {
                Ok((spare, _)) => return cut.finish(spare),
                Err(room) => room.ready(self.shared()).await.map_err(|error| cut.error(error))?,
            }
        }
    }

    /// The file, if there is a length to be set.
    fn check_set_len(&self, length_bytes: u64) -> Result<Option<&Arc<Inode>>> {
        self.check_process_for(Operation::SetLength)?;
        self.check_conflicts(Operation::SetLength)?;
        let refused = |error| Err(Error::on_file(Operation::SetLength, self.path(), error));
        if self.open.kind() != FileKind::Regular {
            let text = "only regular files have a length that can be set";
            return refused(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if length_bytes > WRITABLE_BYTES_MAX {
            return refused(io::ErrorKind::FileTooLarge.into());
        }
        Ok(self.known())
    }
}

/// A change of the length. Dropped early, nothing has changed.
struct Cut<'a> {
    source: &'a Source,
    inode: &'a Arc<Inode>,
    length_bytes: u64,
    /// Nothing else changes the length meanwhile.
    turn: TurnGuard<'a>,
}

impl<'a> Cut<'a> {
    /// From here on nothing is begun to be written from the page on in which the file will end.
    fn new(
        source: &'a Source,
        inode: &'a Arc<Inode>,
        turn: TurnGuard<'a>,
        length_bytes: u64,
    ) -> Result<Cut<'a>> {
        source.end_bytes(inode)?;
        let mut state = inode.unwritten.lock();
        // Under the lock: an exit that takes the turn away lifts the barrier after that.
        if turn.holds() {
            state.barrier = Some(PageIndex::containing(length_bytes));
        }
        drop(state);
        Ok(Cut { source, inode, length_bytes, turn })
    }

    /// A write in flight behind the new end, which would make the file longer again if it came after the cut.
    fn in_the_way(&self) -> Option<Arc<PageWrite>> {
        let state = self.inode.unwritten.lock();
        let barrier = PageIndex::containing(self.length_bytes);
        state.in_flight.values().find(|write| write.pages().end > barrier).cloned()
    }

    fn error(&self, error: io::Error) -> Error {
        Error::on_file(Operation::SetLength, self.source.path(), error)
    }

    /// `spare` is for the last page, should somebody have it pinned. Listeners are called when the turn is given up: they may
    /// use the file.
    fn finish(self, spare: Extents) -> Result<()> {
        let deferral = defer();
        let finished = self.finish_with_turn(spare);
        drop(self);
        drop(deferral);
        finished
    }

    fn finish_with_turn(&self, spare: Extents) -> Result<()> {
        let inode = self.inode;
        // The pages that are cut off leave before the look after the change could take them for those of others.
        inode.begin_changes(&self.source.open, 1);
        let finished = self.cut(spare);
        inode.end_changes(&self.source.open, 1);
        let dropped = finished.map_err(|error| self.error(error))?;
        inode.on_dropped(&dropped);
        Ok(())
    }

    /// Cuts the file on the device, or makes it longer, and then in the cache.
    fn cut(&self, spare: Extents) -> io::Result<Vec<Dropped>> {
        let (inode, shared) = (self.inode, self.source.shared());
        if !self.turn.make_firm() {
            return Err(io::Error::other("the process ends, and writes what the file has"));
        }
        {
            let mut device_length = inode.unwritten.device_length();
            let (driver, file) = (&shared.driver, &self.source.open);
            if self.length_bytes > *device_length && self.length_bytes > file.length_bytes()? {
                // What others append meanwhile stays.
                driver.extend_blocking(file, self.length_bytes)?;
            } else {
                driver.set_len_blocking(file, self.length_bytes)?;
            }
            *device_length = self.length_bytes;
        }
        let mut dropped = Vec::new();
        inode.unwritten.change(shared.cache.writes.dirty(), |state| {
            let before_bytes = inode.length_bytes();
            let is_cut = self.length_bytes < before_bytes;
            // Nobody sees what was beyond an end.
            let changed =
                ByteRange::new(before_bytes.min(self.length_bytes), before_bytes.max(self.length_bytes));
            inode.unwritten.windows.zero(changed);
            inode.set_length(self.length_bytes);
            if is_cut {
                self.drop_rest(state, spare, &mut dropped);
            }
            inode.unwritten.note_written();
            inode.unwritten.note_change();
            if state.dirty.is_empty() {
                shared.cache.writes.forget(inode);
            }
        });
        Ok(dropped)
    }

    /// Takes out what lies behind the end. Under the lock of the state.
    fn drop_rest(&self, state: &mut State, spare: Extents, dropped: &mut Vec<Dropped>) {
        let end = PageRange::covering(ByteRange::new(0, self.length_bytes)).end;
        let rest = PageRange::new(end, PageIndex::MAX);
        state.dirty.forget(rest);
        self.inode.pages.invalidate(rest, DirtyToo::Yes, |page| dropped.push(page));
        let last = PageIndex::containing(self.length_bytes);
        if last == end {
            return;
        }
        let last_page = PageRange::new(last, end);
        state.dirty.forget_behind(last, (self.length_bytes - last.start_bytes()) as u32);
        if state.dirty.first_unwritten(last_page).is_none() {
            // All that was changed in the last page is cut off. It is read again.
            self.inode.pages.invalidate(last_page, DirtyToo::Yes, |page| dropped.push(page));
            return;
        }
        // What lies behind the end in the last page is zeros. The device has made them so; a page as it has it is read again.
        self.inode.pages.invalidate(last_page, DirtyToo::No, |page| dropped.push(page));
        self.inode.zero_tail(last, (self.length_bytes - last.start_bytes()) as u32, spare);
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        if self.turn.make_firm() {
            self.inode.unwritten.lock().barrier = None;
        }
    }
}

/// Where writing ends in any file: what frames can number.
const WRITABLE_BYTES_MAX: u64 = if READABLE_BYTES_MAX < PAGES_MAX * PAGE_SIZE_BYTES {
    READABLE_BYTES_MAX
} else {
    PAGES_MAX * PAGE_SIZE_BYTES
};
