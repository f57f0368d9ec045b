//! Selection: which pages a writeback takes, and by which way.
//!
//! ```text
//!   a run ─► cut at the end of its stretch ─► the unaligned tail apart ─► a way? ─┬─ yes ─► pinned, in flight
//!                                                                              └─ no ──► dirty, as before
//! ```
//!
//! Owns: the order of these steps, under the lock of the file's state.
//! Does not own: what ways there are (stretches), the requests (writeback).
//! Invariants: I3; I11.

use std::sync::Arc;

use headwater_core::dirty::{Taken, Written};
use headwater_core::units::{PageIndex, PageRange};
use headwater_io::{DirectAlignment, OpenFile, Route};

use super::{Awaited, Piece, piece};
use crate::engine::Shared;
use crate::inode::Inode;
use crate::inode::dirty::State;
use crate::write::stretches::{Stretches, stretch_of};

/// The selection of one writeback.
pub(super) struct Selection<'a> {
    shared: &'a Shared,
    inode: &'a Arc<Inode>,
    file: &'a Arc<OpenFile>,
    /// `None` where all go through the kernel's page cache.
    direct: Option<DirectAlignment>,
    awaited: Awaited,
    stretches: Stretches,
    pieces: Vec<Piece>,
    left: Vec<PageRange>,
}

impl<'a> Selection<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        (inode, state): (&'a Arc<Inode>, &State),
        file: &'a Arc<OpenFile>,
        direct: Option<DirectAlignment>,
        awaited: Awaited,
    ) -> Selection<'a> {
        let stretches = Stretches::of(inode, state);
        Selection { shared, inode, file, direct, awaited, stretches, pieces: Vec::new(), left: Vec::new() }
    }

    /// Makes pieces of the pages taken, up to the end of a stretch: the file's tail is one of its own if a direct write cannot end there.
    /// Returns the first page not visited.
    pub(super) fn prepare(&mut self, state: &mut State, taken: Taken) -> PageIndex {
        let taken = cut_at_stretch(state, taken);
        let (run, length_bytes) = (taken.pages, self.inode.length_bytes());
        let Some(direct) = self.direct.filter(|_| taken.parts.is_none()) else {
            self.select(state, taken, Route::Buffered);
            return run.end;
        };
        let is_whole = run.bytes().end <= length_bytes || direct.offset.is_aligned(length_bytes);
        let tail = if is_whole { run.end } else { PageIndex::new(run.end.get() - 1) };
        for (pages, route) in [
            (PageRange::new(run.start, tail), Route::Direct),
            (PageRange::new(tail, run.end), Route::Buffered),
        ] {
            if !pages.is_empty() {
                self.select(state, Taken { pages, parts: None }, route);
            }
        }
        run.end
    }

    /// Begins a write, or leaves its pages dirty.
    fn select(&mut self, state: &mut State, taken: Taken, wanted: Route) {
        let pages = taken.pages;
        let Some(route) = self.stretches.way(pages, wanted) else {
            state.dirty.complete_taken(&taken, Written::No);
            return self.left.push(pages);
        };
        if route == Route::Buffered || self.awaited == Awaited::Yes {
            self.stretches.note(pages, route);
        }
        self.pieces.push(piece(self.shared, self.inode, state, self.file, taken, route));
    }

    /// The pieces, and the pages that are left. Where nothing waits, nothing begins again soon: there the whole pages of a stretch go the
    /// way of the parts of pages beside them.
    pub(super) fn finish(self) -> (Vec<Piece>, Vec<PageRange>) {
        for write in self.pieces.iter().map(|piece| &piece.write) {
            let way = self.stretches.way(write.pages(), write.route());
            write.take_route(way.unwrap_or(write.route()));
        }
        (self.pieces, self.left)
    }
}

/// Leaves what is behind the stretch of the first page to the next run.
fn cut_at_stretch(state: &mut State, taken: Taken) -> Taken {
    let end = stretch_of(taken.pages).end;
    if taken.pages.end <= end {
        return taken;
    }
    state.dirty.complete(PageRange::new(end, taken.pages.end), Written::No);
    Taken { pages: PageRange::new(taken.pages.start, end), ..taken }
}
