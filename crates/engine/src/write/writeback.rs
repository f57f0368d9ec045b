//! Writeback: dirty pages become requests, in order and in runs.
//!
//! ```text
//!   dirty pages ─► take runs, ascending, up to 1 MiB ─► pin ─► beyond the device's length? allocate ─► submit, one plug
//!                                                                 └─ the unaligned tail ─► through the kernel's page cache
//!   when: 4 MiB written sequentially, or 1 MiB at once ─ too much is dirty ─ the age ─ a file is closed ─ sync
//! ```
//!
//! A direct write covers whole blocks, so an unaligned end of a file is written through the kernel's page cache, in exactly its
//! bytes: the file is never longer than its length, not even after a power loss. So is a page that is dirty in part: its other
//! bytes may have been changed by others since it was read. A contested file, one that others have changed, is written only
//! through the kernel's page cache: where a direct write meets a buffered one in a page, the kernel fails the next sync of both.
//! So are small writes that no caller waits for: a program that uses the file next, without a sync, may write to it while a
//! direct write is in flight.
//!
//! The two ways do not meet within 2 MiB of a file (`stretches`): a page that has to go through the kernel's page cache stays dirty while
//! a direct write is in flight beside it, and whole pages go that way too while something else does.
//!
//! Space beyond the length on the device is allocated before requests write there. That extends the file by zeros that no sync
//! has promised; without it, writes that extend a file would wait for each other. A few pages that the calling thread copies into
//! the kernel's page cache extend the file themselves: so does a log, at one system call a sync.
//!
//! Owns: the way from dirty pages to requests, the limits of dirty pages.
//! Does not own: which pages are dirty (inode), which callers wait (writes).
//! Invariants: I3; I11 (stretches); I5 no lock but `device_length` is held while submitting or allocating; I10 nothing is written beyond the
//! length.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use headwater_core::dirty::Taken;
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use headwater_io::{Allocated, OpenFile, PinnedRun, Plug, Route, Urgency, WriteBack};

use crate::base::listeners::Undisturbed;
use crate::engine::Shared;
use crate::engine::frames;
use crate::engine::frames::RUN_PAGES_MAX;
use crate::inode::Inode;
use crate::inode::dirty::{Dirty, State};
use crate::inode::errseq::Cause;
use crate::inode::page_write::PageWrite;
use crate::write::stretches::{Claims, stretch_of};

mod files;
mod selection;

pub(crate) use files::{begin_any, begin_old, may_last};
use selection::Selection;

/// The result of [`begin`].
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) pages: u64,
    /// The first page not visited.
    pub(crate) next: PageIndex,
    /// Whether pages were held back because the file is being truncated.
    pub(crate) is_held_back: bool,
    /// Pages that stay dirty because a direct write is in flight beside them (I11). What waits for them claims them, waits for that write,
    /// and begins again.
    pub(crate) left: Vec<PageRange>,
    /// Writes in flight in the range before, where the caller waits: should one of them be withdrawn, its pages are dirty again.
    pub(crate) passed: Vec<Arc<PageWrite>>,
}

/// Whether a thread or task waits for the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    Yes,
    /// Other programs may use the file during the write: it was closed, or not written to for a while.
    No,
}

/// Whether bytes are missing on the device in front of dirty ones.
enum Hole {
    None,
    Left,
}

/// A write that is prepared.
struct Piece {
    write: Arc<PageWrite>,
    run: PinnedRun,
    /// For a page that is dirty in several places: all but the last, written before the request is made.
    before: Vec<ByteRange>,
    /// The bytes of the request.
    bytes: ByteRange,
}

/// Begins to write the dirty pages of a range, ascending, in at most `runs_max` runs. Does not wait for the device, but blocks
/// while the file system allocates space and while a few pages are copied into the kernel's page cache.
pub(crate) fn begin(
    shared: &Shared,
    inode: &Arc<Inode>,
    within: PageRange,
    runs_max: usize,
    awaited: Awaited,
) -> Begun {
    // The submission would panic when the pages are taken, and nothing would complete them.
    assert!(!shared.driver.is_foreign(), "a local engine writes back in the thread that built it");
    // Code of the program may wait for any of these writes: none runs before all of them are submitted.
    let _undisturbed = Undisturbed::enter();
    let mut begun =
        Begun { pages: 0, next: within.end, is_held_back: false, left: Vec::new(), passed: Vec::new() };
    let (file, pieces) = inode.dirty.change(shared.cache.writes.dirty(), |state| {
        let Some(file) = state.file.clone() else { return (None, Vec::new()) };
        if awaited == Awaited::Yes {
            let passed = state.in_flight.values().filter(|write| write.pages().meets(within));
            begun.passed = passed.cloned().collect();
        }
        let is_little = awaited == Awaited::No && inode.dirty.pages() <= LITTLE_PAGES_MAX;
        let direct = file.direct().filter(|_| !is_little && !inode.is_contested());
        let mut selection = Selection::new(shared, (inode, state), &file, direct, awaited);
        let end = state.barrier.map_or(within.end, |barrier| barrier.min(within.end));
        let behind = PageRange::new(end.max(within.start), within.end);
        begun.is_held_back = state.dirty.first_dirty(behind).is_some();
        let mut from = within.start;
        for _ in 0..runs_max {
            let Some(taken) = state.dirty.take(PageRange::new(from, end.max(from)), RUN_PAGES_MAX) else {
                from = within.end;
                break;
            };
            from = selection.prepare(state, taken);
        }
        begun.next = from;
        let (pieces, left) = selection.finish();
        begun.left = left;
        (Some(file), pieces)
    });
    if let Some(file) = file {
        begun.pages = pieces.iter().map(|piece| piece.write.pages().len().get()).sum();
        for withdrawn in submit_pieces(shared, inode, &file, pieces) {
            begun.pages -= withdrawn.len().get();
            begun.left.push(withdrawn);
        }
    }
    begun
}

/// Pins pages and records that they are in flight.
fn piece(
    shared: &Shared,
    inode: &Arc<Inode>,
    state: &mut State,
    file: &Arc<OpenFile>,
    taken: Taken,
    route: Route,
) -> Piece {
    let (pages, length_bytes) = (taken.pages, inode.length_bytes());
    let start_bytes = pages.start.start_bytes();
    let within = |part: Range<u32>| {
        ByteRange::new(start_bytes + u64::from(part.start), start_bytes + u64::from(part.end))
    };
    let mut before: Vec<ByteRange> = match &taken.parts {
        Some(parts) => parts.iter().map(within).collect(),
        None => vec![pages.bytes().clip(length_bytes)],
    };
    let bytes = before.pop().filter(|bytes| !bytes.is_empty() && bytes.end <= length_bytes);
    let bytes = bytes.expect("U1: what is dirty lies below the length");
    let all = ByteRange::new(before.first().map_or(bytes.start, |first| first.start), bytes.end);
    let write = shared.cache.writes.begin(inode, file, taken, all, bytes.len());
    if inode.dirty.is_unreconciled() {
        // The page may hold bytes that others have overwritten since it was read.
        write.doubt();
    }
    write.take_route(route);
    state.in_flight.insert(write.id(), write.clone());
    Piece { write, run: inode.pages.hold(pages), before, bytes }
}

/// Submits pieces, or copies them in this thread. Returns the pages that stay dirty, because they have to go another way than a write in
/// flight beside them.
fn submit_pieces(shared: &Shared, inode: &Inode, file: &Arc<OpenFile>, pieces: Vec<Piece>) -> Vec<PageRange> {
    if pieces.is_empty() {
        return Vec::new();
    }
    inode.begin_changes(file, pieces.len());
    let (mut ready, mut quick) = (Vec::with_capacity(pieces.len()), Vec::new());
    let known_bytes = *inode.dirty.device_length();
    for (range, pieces) in together(pieces) {
        if pieces.iter().all(|piece| is_quick(shared, file, piece, known_bytes)) {
            // Their writes extend the file, in this call.
            quick.extend(pieces);
            continue;
        }
        match lengthen(shared, inode, file, range) {
            Ok(()) => ready.extend(pieces),
            Err(error) => pieces.into_iter().for_each(|piece| piece.fail(shared, Cause::of(&error).error())),
        }
    }
    let withdrawn = turn_buffered(shared, inode, file, &mut ready);
    let mut plug = shared.driver.plug();
    for piece in ready {
        if is_quick(shared, file, &piece, known_bytes) {
            quick.push(piece);
        } else {
            piece.submit(shared, file, &mut plug);
        }
    }
    // While the device works on the requests.
    drop(plug);
    for mut piece in quick {
        piece.before.push(piece.bytes);
        match write_parts(shared, file, &piece.run, &piece.before) {
            Ok(()) => {
                let mut device_length = inode.dirty.device_length();
                *device_length = piece.bytes.end.max(*device_length);
                drop(device_length);
                piece.succeed(shared);
            }
            Err(error) => piece.fail(shared, error),
        }
    }
    withdrawn
}

/// Where others may be writing to the pages of a direct piece, it goes through the kernel's page cache, and so do the pieces of its
/// stretch. Those that find an older direct write there are withdrawn; returns their pages.
fn turn_buffered(shared: &Shared, inode: &Inode, file: &OpenFile, ready: &mut Vec<Piece>) -> Vec<PageRange> {
    let has_direct = ready.iter().any(|piece| piece.write.route() == Route::Direct);
    let is_shared = has_direct && (inode.is_contested() || inode.origin.has_company());
    let meets_others = |piece: &&Piece| {
        piece.write.route() == Route::Direct
            && (is_shared || may_meet_others(shared, inode, file, piece.bytes))
    };
    let stretch = |write: &PageWrite| stretch_of(write.pages()).start;
    let turned: BTreeSet<_> = ready.iter().filter(meets_others).map(|piece| stretch(&piece.write)).collect();
    if turned.is_empty() {
        return Vec::new();
    }
    let own: BTreeSet<_> = ready.iter().map(|piece| piece.write.id()).collect();
    let state = inode.dirty.lock();
    let is_older = |write: &&Arc<PageWrite>| write.route() == Route::Direct && !own.contains(&write.id());
    let older = state.in_flight.values().filter(is_older);
    let met: BTreeSet<_> = older.map(|write| stretch(write)).filter(|at| turned.contains(at)).collect();
    let turns = |piece: &&Piece| {
        let at = stretch(&piece.write);
        turned.contains(&at) && !met.contains(&at)
    };
    ready.iter().filter(turns).for_each(|piece| piece.write.take_route(Route::Buffered));
    drop(state);
    let mut withdrawn = Vec::new();
    for piece in ready.extract_if(.., |piece| met.contains(&stretch(&piece.write))) {
        withdrawn.push(piece.write.pages());
        piece.withdraw(shared);
    }
    withdrawn
}

/// Whether a write is done once its bytes are copied: into a few pages that the kernel's page cache holds, or does not have to
/// read because all of their bytes are new. The kernel would hand such a request to a worker thread, which takes ten times as
/// long.
fn is_quick(shared: &Shared, file: &OpenFile, piece: &Piece, known_bytes: u64) -> bool {
    let (bytes, pages) = (piece.bytes, PageRange::covering(piece.bytes));
    if piece.write.route() == Route::Direct || pages.len() > QUICK_PAGES_MAX {
        return false;
    }
    let last = PageIndex::new(pages.end.get() - 1).start_bytes();
    let starts_whole = bytes.start == pages.start.start_bytes();
    let is_whole = starts_whole && (bytes.end == pages.end.start_bytes() || last >= known_bytes);
    is_whole || pages.len() == PageCount::new(1) && shared.driver.is_held_by_kernel(file, bytes)
}

/// Whether others may be writing to the same pages through the kernel's page cache: it has dirty pages there; or, without a
/// watch, it may hold any page of the file.
fn may_meet_others(shared: &Shared, inode: &Inode, file: &OpenFile, bytes: ByteRange) -> bool {
    let all = ByteRange::new(0, bytes.end.max(inode.length_bytes()));
    shared.driver.is_dirty_in_kernel(file, bytes)
        || !inode.origin.is_watched() && shared.driver.may_be_held_by_kernel(file, all)
}

/// Writes ranges of a run that each begin in its first page. Blocks for the copies into the kernel's page cache.
fn write_parts(shared: &Shared, file: &OpenFile, run: &PinnedRun, parts: &[ByteRange]) -> io::Result<()> {
    for range in parts {
        let (mut at_bytes, mut skip) = (range.start, (range.start % PAGE_SIZE_BYTES) as usize);
        for slice in run.slices() {
            let length = (slice.len() - skip).min((range.end - at_bytes) as usize);
            let mut rest = &slice[skip..skip + length];
            while !rest.is_empty() {
                // The cause of a short write is reported by the next one.
                let done = shared.driver.write_blocking(file, Route::Buffered, rest, at_bytes)?;
                at_bytes += done as u64;
                rest = &rest[done..];
            }
            skip = 0;
        }
    }
    Ok(())
}

/// Ensures that the file on the device reaches to the end of a range that is about to be written.
fn lengthen(shared: &Shared, inode: &Inode, file: &OpenFile, range: ByteRange) -> io::Result<()> {
    let mut device_length = inode.dirty.device_length();
    if range.end <= *device_length {
        return Ok(());
    }
    let beyond = ByteRange::new(range.start.max(*device_length), range.end);
    // Others may have extended it.
    match shared.driver.allocate_blocking(file, beyond) {
        Ok(Allocated::Yes) => {}
        Ok(Allocated::Unsupported) => shared.driver.extend_blocking(file, range.end)?,
        // A full XFS reports this even for reserved space. If none is reserved, the write itself fails.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            if file.length_bytes()? < range.end {
                shared.driver.set_len_blocking(file, range.end)?;
            }
        }
        Err(error) => return Err(error),
    }
    *device_length = range.end;
    Ok(())
}

/// Called when others have changed the file while pages were dirty. Writes those dirty in part, and waits for them and for
/// earlier writes in flight: these pages may be stale, and leave when they are written; tried again a second after it failed. Where others have truncated the file in
/// front of dirty pages, extends the device up to these again. Needs no size lock from the caller. Failures are noted in the
/// file's errseq.
pub(crate) fn reconcile(shared: &Shared, inode: &Arc<Inode>) {
    if files::has_failed_just_now(shared, inode.dirty.lock().reconcile_failed_at) {
        return;
    }
    let hole = close_hole(shared, inode);
    if let Err(error) = &hole {
        inode.dirty.errseq.note(error);
    }
    let failures = inode.dirty.errseq.count();
    // A page dirtied again under writeback takes another round.
    for _ in 0..RECONCILE_ROUNDS {
        let mut from = PageIndex::new(0);
        loop {
            let rest = PageRange::new(from, PageIndex::MAX);
            let Some(page) = inode.dirty.lock().dirty.first_in_part(rest) else { break };
            from = page + PageCount::new(1);
            begin_all(shared, inode, PageRange::new(page, from));
        }
        let is_doubted = |write: &&Arc<PageWrite>| write.is_doubted();
        let writes: Vec<_> = inode.dirty.lock().in_flight.values().filter(is_doubted).cloned().collect();
        writes.iter().for_each(|write| shared.cache.writes.wait(write));
        // Under the locks: a change that is found from now on is another one.
        let device_length = inode.dirty.device_length();
        let mut state = inode.dirty.lock();
        if !Dirty::is_doubtful(&state) {
            state.reconcile_failed_at = None;
            // A truncate by others may have been found since the hole was closed.
            let is_closed = matches!(hole, Ok(Hole::None)) && last_bytes(&state) <= *device_length;
            if is_closed || hole.is_err() {
                inode.dirty.clear_unreconciled(&state);
            }
            return;
        }
        if inode.dirty.errseq.count() != failures {
            // They stay doubtful, and leave with the write that succeeds. Not every read waits for a device that fails.
            state.reconcile_failed_at = Some(shared.driver.now());
            return;
        }
    }
}

/// Begins to write all dirty pages of a range. Blocks for direct writes beside them.
pub(crate) fn begin_all(shared: &Shared, inode: &Arc<Inode>, pages: PageRange) {
    let mut claims = Claims::new(shared, inode);
    loop {
        let begun = begin(shared, inode, pages, usize::MAX, Awaited::Yes);
        if begun.left.is_empty() {
            return;
        }
        claims.add(&begun.left);
        claims.wait();
    }
}

/// U2: the bytes between the end of the device and the last dirty page read as zeros. While something else holds the size lock,
/// this is left to a later read.
fn close_hole(shared: &Shared, inode: &Inode) -> io::Result<Hole> {
    let hole_end = || {
        let device_bytes = *inode.dirty.device_length();
        let state = inode.dirty.lock();
        let last_bytes = last_bytes(&state);
        // The descriptor of the writer: a reader's is not open for writing.
        state.file.clone().filter(|_| last_bytes > device_bytes).map(|file| (file, last_bytes))
    };
    if hole_end().is_none() {
        return Ok(Hole::None);
    }
    let Some(_size_lock) = inode.dirty.size_lock.try_lock() else { return Ok(Hole::Left) };
    let Some((file, end_bytes)) = hole_end() else { return Ok(Hole::None) };
    inode.change_length(&file, |device_length| {
        shared.driver.extend_blocking(&file, end_bytes)?;
        *device_length = end_bytes.max(*device_length);
        Ok(Hole::None)
    })
}

/// Where the last dirty page begins.
fn last_bytes(state: &State) -> u64 {
    state.dirty.last_dirty().map_or(0, |(page, _)| page.start_bytes())
}

/// Begins writeback of this file because much is dirty; the writers of other files do the same for theirs.
pub(crate) fn begin_early(shared: &Shared, inode: &Arc<Inode>) {
    if shared.cache.writes.dirty().pages() < dirty_pages_max(shared) / BACKGROUND_DIVISOR {
        return;
    }
    let (in_flight, dirty_pages) = {
        let state = inode.dirty.lock();
        (state.in_flight.len(), state.dirty.dirty_pages().get())
    };
    // A smaller remainder is written together with later pages.
    if in_flight < EARLY_RUNS && dirty_pages >= RUN_PAGES_MAX * stream_runs(shared) {
        sweep(shared, inode, EARLY_RUNS - in_flight);
    }
}

/// Continues where the file's last sweep ended, so that the device sees ascending writes.
fn sweep(shared: &Shared, inode: &Arc<Inode>, runs_max: usize) -> u64 {
    let from = inode.dirty.lock().sweep;
    let write_back = |pages| begin(shared, inode, pages, runs_max, Awaited::No);
    let mut begun = write_back(PageRange::new(from, PageIndex::MAX));
    if begun.pages == 0 && from > PageIndex::new(0) {
        begun = write_back(PageRange::new(PageIndex::new(0), from));
    }
    inode.dirty.lock().sweep = if begun.next == PageIndex::MAX { PageIndex::new(0) } else { begun.next };
    begun.pages
}

/// Number of runs of a sequential write that begin together: one call each for allocation and submission. Fewer where the limit
/// of dirty pages is low.
pub(crate) fn stream_runs(shared: &Shared) -> u64 {
    if dirty_pages_max(shared) >= STREAM_RUNS * RUN_PAGES_MAX * 4 { STREAM_RUNS } else { 1 }
}

/// What a sequential writer that began at `run_start` and has come to `end_bytes` writes back now.
pub(crate) fn due_in_order(shared: &Shared, run_start: u64, end_bytes: u64) -> Option<PageRange> {
    let step_bytes = RUN_PAGES_MAX * PAGE_SIZE_BYTES * stream_runs(shared);
    let passed = end_bytes.is_multiple_of(step_bytes).then_some(end_bytes / step_bytes)?;
    let steps = due_steps(run_start / step_bytes, lag_bytes(shared) / step_bytes, passed)?;
    Some(PageRange::covering(ByteRange::new(steps.start * step_bytes, steps.end * step_bytes)))
}

/// From `lag` steps on, one for each that the writer makes, and one more until it has caught up.
fn due_steps(first: u64, lag: u64, passed: u64) -> Option<Range<u64>> {
    let count = (passed - first).checked_sub(lag)?;
    let end = |count: u64| first + (count * 2).min(count + lag);
    Some(end(count.checked_sub(1)?)..end(count))
}

/// How far a sequential writer comes before its writeback begins. A file that is not longer is written by the background thread, or by a
/// sync: its writer does not wait for the allocation of space.
fn lag_bytes(shared: &Shared) -> u64 {
    if dirty_pages_max(shared) * PAGE_SIZE_BYTES >= LAG_BYTES * 8 { LAG_BYTES } else { 0 }
}

/// The limit of dirty pages, beyond which writers wait.
pub(crate) fn dirty_pages_max(shared: &Shared) -> u64 {
    dirty_bytes_max(frames::cache_bytes_max(shared)) / PAGE_SIZE_BYTES
}

/// Half of the cache, so that readers keep the other half; of a large one as much as a sync writes in a second or two.
fn dirty_bytes_max(cache_bytes: u64) -> u64 {
    (cache_bytes / 2).min(DIRTY_BYTES_MAX)
}

impl Piece {
    /// Makes the request, and writes what comes before it. Ends the write if it cannot be made.
    fn submit(self, shared: &Shared, file: &Arc<OpenFile>, plug: &mut Plug<'_>) {
        if let Err(error) = write_parts(shared, file, &self.run, &self.before) {
            return self.fail(shared, error);
        }
        let Piece { write, run, bytes, .. } = self;
        let request = WriteBack {
            file: file.clone(),
            route: write.route(),
            offset_bytes: bytes.start,
            length_bytes: bytes.len() as usize,
            skip_bytes: (bytes.start % PAGE_SIZE_BYTES) as usize,
            pages: run,
        };
        match plug.submit(request, Urgency::Demand) {
            Ok(completion) => write.under_way(completion),
            // Its pages are unpinned before the write is over.
            Err(rejected) => shared.cache.writes.over(&write, Err(io::Error::from(rejected))),
        }
    }

    /// Ends the write before its first byte.
    fn withdraw(self, shared: &Shared) {
        drop(self.run);
        shared.cache.writes.withdraw(&self.write);
    }

    /// Completes the write with success.
    fn succeed(self, shared: &Shared) {
        self.run.clean();
        drop(self.run);
        shared.cache.writes.over(&self.write, Ok(()));
    }

    /// Completes the write with an error.
    fn fail(self, shared: &Shared, error: io::Error) {
        drop(self.run);
        shared.cache.writes.over(&self.write, Err(error));
    }
}

/// Groups adjacent pieces: their space beyond the length of the device is allocated together.
fn together(pieces: Vec<Piece>) -> Vec<(ByteRange, Vec<Piece>)> {
    let mut groups: Vec<(ByteRange, Vec<Piece>)> = Vec::new();
    for piece in pieces {
        match groups.last_mut() {
            Some((range, group)) if range.end == piece.write.bytes().start => {
                range.end = piece.bytes.end;
                group.push(piece);
            }
            _ => groups.push((piece.write.bytes(), vec![piece])),
        }
    }
    groups
}

/// 4 MiB: for larger pieces the calls cost little beside the copy.
const STREAM_RUNS: u64 = 4;

/// 64 MiB: 50 ms of a disk.
const LAG_BYTES: u64 = 64 << 20;

/// Runs that early writeback keeps in flight of a file: enough to saturate a disk queue.
pub(crate) const EARLY_RUNS: usize = 32;

/// Runs that a sync begins before it waits for the oldest.
pub(crate) const SYNC_RUNS: usize = 128;

/// Beyond that, other threads dirty pages as fast as this one waits; the next read continues.
const RECONCILE_ROUNDS: u32 = 4;

/// 64 KiB: copying it takes about as long as a request.
const QUICK_PAGES_MAX: PageCount = PageCount::new(16);

/// 512 KiB: less than the early writeback of a heavy writer submits at once.
const LITTLE_PAGES_MAX: u64 = 128;

/// 2 GiB, whatever the memory: with all of 24 GiB, a sync behind 4 GiB written in order took 1.95 s, and now takes 1.0. With 1 GiB it
/// takes 0.5 s, but 2 GiB of writes at random take 1.14 times as long, in shorter runs.
const DIRTY_BYTES_MAX: u64 = 2 << 30;

/// Early writeback begins at half of the limit: the other half takes new writes while it runs.
const BACKGROUND_DIVISOR: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;

    const GIB: u64 = 1 << 30;

    /// Goal: a small engine lets half of its cache be dirty, a large one no more than what a sync writes soon.
    #[test]
    fn what_may_be_dirty_does_not_grow_with_the_machine() {
        assert_eq!([1, 4, 6, 1000].map(|gib| dirty_bytes_max(gib * GIB) / GIB * 2), [0, 4, 4, 4]);
        assert_eq!(dirty_bytes_max(GIB), GIB / 2);
        let dirty_bytes_max_of = |memory_bytes: u64| {
            let builder = Engine::builder().memory(memory_bytes).elasticity(crate::Elasticity::Off);
            dirty_pages_max(&builder.build().unwrap().shared) * PAGE_SIZE_BYTES
        };
        assert_eq!(dirty_bytes_max_of(16 * GIB), DIRTY_BYTES_MAX);
        assert!((24..=32).contains(&(dirty_bytes_max_of(64 << 20) >> 20)));
    }

    /// Goal: a sequential writer has each step written back once, in order: none before the lag, the last one at once from twice the
    /// lag on.
    #[test]
    fn steps_are_due_once() {
        for (first, lag) in [(0, 0), (3, 0), (0, 1), (0, 16), (7, 16)] {
            let mut next = first;
            for passed in first..first + 50 {
                let Some(steps) = due_steps(first, lag, passed) else {
                    assert!(passed <= first + lag, "nothing was due at {passed}");
                    continue;
                };
                assert!(passed > first + lag && steps.start == next && steps.end <= passed, "{steps:?}");
                next = steps.end;
                assert!(passed < first + 2 * lag || next == passed, "{steps:?} at {passed}");
            }
        }
    }
}
