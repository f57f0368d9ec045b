//! Window flush: writes live windows back to the file.
//!
//! ```text
//!   size lock ─► ask the kernel which pages were written ─► pieces of up to 1 MiB ─► copied into extents ─► written ─► next
//!                                                                                                         └─ failed ─► unsaved, noted
//! ```
//!
//! The size lock excludes truncates and other flushes of the windows: so a page is in one write at most, and no write extends the
//! file again after a truncate. A task may be dropped with a piece in flight, and so give up the lock: the next holder waits for that
//! piece before it begins (`stray`). A store to a page while it is copied or in flight is reported by the kernel the next time.
//!
//! Owns: the way from windows to the device.
//! Does not own: the list of windows, syncs.
//! Invariants: W4; I3, I7 as for pages; I11: no page outside of a window shares a stretch with a direct piece; I5 only the size lock is held while waiting; I10 nothing is written beyond the length.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_core::units::{
    Alignment, ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange,
};
use headwater_io::{Completion, Direction, Extents, Finished, OpenFile, Route, Transfer, Urgency};

use crate::base::listeners::calls_after;
use crate::base::shared_completion::HELD_UP;
use crate::engine::Shared;
use crate::inode::Inode;
use crate::inode::size_lock::SizeLockGuard;
use crate::inode::windows::{Stage, Stray, Window};
use crate::write::memory_wait;
use crate::write::memory_wait::MemoryWait;
use crate::write::stretches::{Claims, stretch_of};

/// The writeback of a file's windows, with its progress.
struct Flush<'a> {
    shared: &'a Shared,
    inode: &'a Inode,
    windows: Vec<Arc<Window>>,
    /// The piece in flight, of the last of the windows.
    piece: std::ops::Range<usize>,
    write: Option<InFlight>,
    outcome: io::Result<()>,
    /// Excludes truncates and other flushes of the windows.
    size_lock: &'a SizeLockGuard<'a>,
    /// Stretches that the windows share with pages of the cache.
    claims: Claims<'a>,
}

/// The write of a piece, and the file that it changes.
struct InFlight {
    file: Arc<OpenFile>,
    completion: Completion,
}

/// What to wait for.
enum FlushNext {
    Memory(MemoryWait),
    Write,
}

/// Writes back all stores to windows of a file so far, and waits. Failures are noted in its errseq.
pub(crate) fn flush(shared: &Shared, inode: &Arc<Inode>) {
    if !inode.dirty.windows.is_empty() {
        flush_and_close(shared, inode, &inode.dirty.size_lock.lock(), Duration::MAX);
    }
}

/// Writes the windows back; those without users end, as far as that succeeds. Waits for no piece longer than `patience`.
fn flush_and_close(shared: &Shared, inode: &Arc<Inode>, size_lock: &SizeLockGuard<'_>, patience: Duration) {
    let windows = inode.dirty.windows.all();
    let (orphans, used): (Vec<_>, Vec<_>) =
        windows.into_iter().partition(|window| window.unsaved().is_orphan);
    orphans.iter().for_each(|window| close_with(shared, inode, window, size_lock, patience));
    // A failure is noted in the errseq, for syncs to report.
    let _ = flush_with(shared, inode, used, size_lock, patience);
}

/// As [`flush`], for a task.
pub(crate) async fn flush_async(shared: &Shared, inode: &Inode) {
    if !inode.dirty.windows.is_empty() {
        calls_after(flush_locked_async(shared, inode)).await;
    }
}

async fn flush_locked_async(shared: &Shared, inode: &Inode) {
    let size_lock = inode.dirty.size_lock.lock_async(&shared.driver).await;
    stray_ready(shared, inode).await;
    let mut flush = Flush::new(shared, inode, inode.dirty.windows.all(), &size_lock);
    while let Some(next) = flush.step() {
        match next {
            FlushNext::Memory(wait) => flush.waited(wait.ready(shared).await),
            FlushNext::Write => {
                let finished = std::future::poll_fn(|context| {
                    let InFlight { completion, .. } = flush.write.as_mut().expect("it has just begun");
                    completion.poll(context)
                });
                let finished = finished.await;
                let InFlight { file, .. } = flush.write.take().expect("only a drop takes it");
                flush.complete(&file, finished);
            }
        }
    }
    drop(flush);
    if let Err(error) = size_lock.check() {
        inode.dirty.errseq.note(&error);
    }
}

/// Blocks until the piece that a dropped flush left in flight has arrived. The caller holds the size lock.
pub(crate) fn wait_for_stray(inode: &Inode) {
    if let Some(stray) = inode.dirty.windows.stray() {
        stray.completion.wait(|_| stray_arrived(inode, &stray));
    }
}

/// As [`wait_for_stray`], for a task. May be dropped at any moment.
pub(crate) async fn stray_ready(shared: &Shared, inode: &Inode) {
    if let Some(stray) = inode.dirty.windows.stray() {
        stray.completion.ready(&shared.driver, |_| stray_arrived(inode, &stray)).await;
    }
}

/// The piece stays unsaved, whatever became of it, and is written again.
fn stray_arrived(inode: &Inode, stray: &Stray) {
    inode.end_changes(&stray.file, 1);
    inode.dirty.windows.forget_stray();
    stray.completion.over();
}

/// Writes back windows that were not written back for [`WINDOW_AGE`]. Blocks for the device, as long as it answers within [`HELD_UP`]. Skips
/// files while their size lock is held, perhaps by a task that is not polled: a later call writes their windows.
pub(crate) fn flush_old(shared: &Shared) {
    let now = shared.driver.now();
    let is_old = |window: &Arc<Window>| now.saturating_duration_since(window.unsaved().asked) >= WINDOW_AGE;
    for inode in shared.cache.writes.dirty_files() {
        if inode.dirty.windows.all().iter().any(is_old)
            && let Some(size_lock) = inode.dirty.size_lock.try_lock()
            && !is_held_up(&inode)
        {
            flush_and_close(shared, &inode, &size_lock, HELD_UP);
        }
    }
}

/// Whether the piece that a flush has left in flight has not arrived. The caller holds the size lock.
fn is_held_up(inode: &Inode) -> bool {
    let Some(stray) = inode.dirty.windows.stray() else { return false };
    !stray.completion.take_arrived(|_| stray_arrived(inode, &stray))
}

/// As [`flush`], under a size lock that the caller holds, when the process exits.
pub(crate) fn flush_leaving(shared: &Shared, inode: &Arc<Inode>, size_lock: &SizeLockGuard<'_>) {
    let _ = flush_with(shared, inode, inode.dirty.windows.all(), size_lock, Duration::MAX);
}

/// Blocks. A piece that has not arrived after `patience` stays in flight, and the flush ends; so it does when it has waited as long for memory
/// since the last piece.
fn flush_with(
    shared: &Shared,
    inode: &Inode,
    windows: Vec<Arc<Window>>,
    size_lock: &SizeLockGuard<'_>,
    patience: Duration,
) -> io::Result<()> {
    if patience < Duration::MAX && is_held_up(inode) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    wait_for_stray(inode);
    let mut flush = Flush::new(shared, inode, windows, size_lock);
    let mut since = Instant::now();
    while let Some(next) = flush.step() {
        match next {
            FlushNext::Memory(wait) if patience < Duration::MAX => {
                if since.elapsed() >= patience {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                flush.waited(wait.wait_at_most(shared, patience));
            }
            FlushNext::Memory(wait) => flush.waited(wait.wait(shared)),
            FlushNext::Write => {
                let InFlight { file, completion } = flush.write.take().expect("it has just begun");
                let arrived = match patience {
                    Duration::MAX => Ok(completion.wait()),
                    limit => completion.wait_unless_interrupted(limit),
                };
                match arrived {
                    Ok(finished) => {
                        flush.complete(&file, finished);
                        since = Instant::now();
                    }
                    Err((completion, _)) => {
                        flush.write = Some(InFlight { file, completion });
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
    }
    std::mem::replace(&mut flush.outcome, Ok(()))
}

/// Ends a window without users: writes it back, and returns its pages to the cache. If that fails, the window stays, and the next
/// sync tries again. Blocks.
pub(crate) fn close(shared: &Shared, inode: &Arc<Inode>, window: &Arc<Window>) {
    close_with(shared, inode, window, &inode.dirty.size_lock.lock(), Duration::MAX);
}

fn close_with(
    shared: &Shared,
    inode: &Arc<Inode>,
    window: &Arc<Window>,
    size_lock: &SizeLockGuard<'_>,
    patience: Duration,
) {
    window.unsaved().is_orphan = true;
    // From here on writes to these pages wait for the size lock.
    inode.dirty.change(shared.cache.writes.dirty(), |_| window.set_stage(Stage::Closing));
    let flushed = flush_with(shared, inode, vec![window.clone()], size_lock, patience);
    inode.dirty.change(shared.cache.writes.dirty(), |state| {
        if flushed.is_err() {
            return window.set_stage(Stage::Live);
        }
        // Bytes read from the device before lack those of the window: a reader finds the window, or a new version.
        inode.dirty.note_written();
        inode.dirty.note_change();
        inode.dirty.windows.remove(window);
        if state.dirty.is_empty() {
            shared.cache.writes.forget(inode);
        }
    });
}

impl<'a> Flush<'a> {
    /// Asks the kernel which pages were written.
    fn new(
        shared: &'a Shared,
        inode: &'a Inode,
        windows: Vec<Arc<Window>>,
        size_lock: &'a SizeLockGuard<'a>,
    ) -> Flush<'a> {
        let mut outcome = Ok(());
        let windows: Vec<_> = windows.into_iter().filter(|window| window.stage() != Stage::Making).collect();
        for window in &windows {
            let mut written = Vec::new();
            if let Err(error) = window.memory.take_written(&mut written) {
                inode.dirty.errseq.note(&error);
                outcome = Err(error);
            }
            let mut unsaved = window.unsaved();
            unsaved.ranges.append(&mut written);
            unsaved.asked = shared.driver.now();
        }
        let claims = Claims::new(shared, inode);
        Flush { shared, inode, windows, piece: 0..0, write: None, outcome, size_lock, claims }
    }

    /// Begins the next write, and returns what to wait for. `None` when all is written, or one has failed.
    fn step(&mut self) -> Option<FlushNext> {
        while let Some(window) = self.windows.last().cloned() {
            if self.outcome.is_err() || !self.size_lock.holds() {
                return None;
            }
            let Some(range) = window.unsaved().ranges.last().cloned() else {
                self.windows.pop();
                continue;
            };
            let start_bytes = window.pages.start.start_bytes();
            let bytes = ByteRange::new(start_bytes + range.start as u64, start_bytes + range.end as u64);
            let bytes = bytes.clip(self.inode.length_bytes());
            if bytes.is_empty() {
                window.unsaved().ranges.pop();
                continue;
            }
            match self.begin(&window, bytes) {
                Ok(next) => return Some(next),
                Err(error) => self.failed(error),
            }
        }
        None
    }

    /// Begins to write the last part of a range: first, and separately, the bytes beyond its last whole block. Where pages of the cache
    /// lie in the same stretch, in the way that lets parts of them be written at the same time.
    fn begin(&mut self, window: &Window, bytes: ByteRange) -> io::Result<FlushNext> {
        let alignment =
            window.file.direct().map_or(Alignment::ONE, |direct| direct.offset.max(Alignment::PAGE));
        let whole_end = alignment.down(bytes.end);
        let (mut part, mut route) = match window.file.direct() {
            Some(_) if whole_end == bytes.end => (bytes, Route::Direct),
            Some(_) => (ByteRange::new(whole_end.max(bytes.start), bytes.end), Route::Buffered),
            None => (bytes, Route::Buffered),
        };
        part.start = part
            .start
            .max(part.end.saturating_sub(PIECE_BYTES).next_multiple_of(PAGE_SIZE_BYTES).min(part.end));
        let stretch = stretch_of(PageRange::new(PageIndex::containing(part.end - 1), PageIndex::MAX));
        part.start = part.start.max(stretch.bytes().start);
        if stretch.start < window.pages.start || window.pages.end < stretch.end {
            route = Route::Buffered;
            self.claims.add(&[stretch]);
            if let Some(write) = self.claims.in_the_way() {
                return Ok(FlushNext::Memory(MemoryWait::Write(write)));
            }
        }
        let pages = PageCount::covering(part.len());
        let (mut extents, pages) = match memory_wait::frames_for_write(self.shared, self.inode, pages) {
            Ok(found) => found,
            Err(wait) => return Ok(FlushNext::Memory(wait)),
        };
        // With less memory, only the last pages.
        let end_page_bytes = part.end.next_multiple_of(PAGE_SIZE_BYTES);
        part.start = part.start.max(end_page_bytes - pages.bytes());
        copy(window, part, &mut extents)?;
        let request = Transfer {
            direction: Direction::Write,
            file: window.file.clone(),
            route,
            offset_bytes: part.start,
            length_bytes: part.len() as usize,
            extents,
        };
        self.piece = window.place(part.start)..window.place(part.end);
        self.inode.begin_changes(&window.file, 1);
        let submitted = self.shared.driver.submit(request, Urgency::Demand);
        let completion = submitted.inspect_err(|_| self.inode.end_changes(&window.file, 1))?;
        self.write = Some(InFlight { file: window.file.clone(), completion });
        Ok(FlushNext::Write)
    }

    fn complete(&mut self, file: &OpenFile, finished: Finished) {
        self.inode.end_changes(file, 1);
        let length_bytes = self.piece.len();
        match (finished.result, finished.stopped_by) {
            (Ok(written_bytes), _) if written_bytes >= length_bytes => self.written(),
            (Ok(_), Some(error)) | (Err(error), _) => self.failed(error),
            (Ok(_), None) => self.failed(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Records a piece that is on the device.
    fn written(&mut self) {
        let window = self.windows.last().expect("a piece is a window's");
        let mut unsaved = window.unsaved();
        let last = unsaved.ranges.last_mut().expect("a piece is part of a range");
        last.end = self.piece.start;
        if last.start >= last.end {
            unsaved.ranges.pop();
        }
        drop(unsaved);
        let start_bytes = window.pages.start.start_bytes() + self.piece.start as u64;
        let pages = PageCount::covering(self.piece.len() as u64).get();
        self.inode.counters.wrote(pages, self.piece.len() as u64);
        self.inode.dirty.note_written_at(ByteRange::at(start_bytes, self.piece.len() as u64));
        self.shared.cache.writes.note_progress();
    }

    fn waited(&mut self, waited: io::Result<()>) {
        if let Err(error) = waited {
            self.failed(error);
        }
    }

    fn failed(&mut self, error: io::Error) {
        self.inode.dirty.errseq.note(&error);
        self.outcome = Err(error);
    }
}

impl Drop for Flush<'_> {
    /// The task may be dropped while a piece is in flight.
    fn drop(&mut self) {
        if let Some(InFlight { file, completion }) = self.write.take()
            && !self.shared.driver.is_forked()
        {
            self.inode.dirty.windows.leave(completion, file);
        }
    }
}

/// Copies bytes of a window into extents.
fn copy(window: &Window, bytes: ByteRange, extents: &mut Extents) -> io::Result<()> {
    let (mut at, end) = (window.place(bytes.start), window.place(bytes.end));
    for extent in extents {
        let length = extent.len().min(end - at);
        // Optimistic readers may still be looking at the frames' previous contents, so the bytes are stored atomically.
        let mut buffer = [0; PAGE_BYTES];
        for start in (0..length).step_by(PAGE_BYTES) {
            let part = &mut buffer[..PAGE_BYTES.min(length - start)];
            window.memory.read(at + start, part)?;
            extent.store(start, part);
        }
        at += length;
    }
    Ok(())
}

/// The largest request: beyond 1 MiB devices get no faster.
const PIECE_BYTES: u64 = 1 << 20;

/// As for dirty pages.
const WINDOW_AGE: Duration = Duration::from_secs(5);
