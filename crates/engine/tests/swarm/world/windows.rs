//! Windows: live windows onto files, what is stored through them, and how they end.
//!
//! Owns: which windows there are, whether what they show is possible.
//! Does not own: what a window must show (versions).

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use headwater::{ByteRange, Error, SharedView};

use super::changes::{contents, overwrite};
use super::tasks::Deed;
use super::{Outcome, World};
use crate::coverage::Reached;
use crate::steps::{Place, Shape, Span};

pub(super) struct Window {
    view: SharedView,
    pub(super) file: usize,
    shape: Shape,
}

impl World {
    pub(super) fn map(&mut self, place: Place, span: Span, shape: Shape) -> Outcome {
        if !self.free_size_lock(place.file)? {
            return Ok(());
        }
        if self.windows.len() == WINDOWS_MAX {
            self.unmap(0)?;
        }
        let (file, range) = (self.handle(place)?, ByteRange::at(span.offset_bytes, span.length as u64 + 1));
        let made = match shape {
            Shape::Pages => file.map(range),
            Shape::Contiguous => file.map_contiguous(range),
            Shape::OnDemand => file.map_on_demand(range, 1 << 20),
        };
        match made {
            Ok(view) => {
                self.coverage.note_if(shape == Shape::Contiguous, Reached::WindowMade);
                self.has_handlers |= shape == Shape::OnDemand;
                self.windows.push(Window { view, file: place.file, shape });
                Ok(())
            }
            Err(error) => {
                let may_fail = self.faults > 0 || REFUSALS.contains(&error.kind());
                self.forgive(may_fail, Reached::WindowRefused, &error)
            }
        }
    }

    pub(super) fn read_window(&mut self, number: usize, span: Span) -> Outcome {
        let Some(number) = self.nth_window(number) else { return Ok(()) };
        let Window { view, file, shape } = &self.windows[number];
        let (at_bytes, range) = part(view, span);
        let mut bytes = vec![0; range.len() as usize];
        let read = view.read(at_bytes, &mut bytes);
        let (file, versions) = (*file, &self.targets[*file].versions);
        match read {
            Ok(()) if *shape == Shape::OnDemand && self.may_lack_stores(file) => Ok(()),
            Ok(()) => versions.check(versions.now(), range.start, bytes.len(), &bytes).map(drop),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.check_end(file, range),
            Err(error) => self.forgive(self.is_faulty, Reached::ReadFailed, &error),
        }
    }

    /// Without a call: what cannot be read is zeros, of which the window tells afterwards.
    pub(super) fn load_from_window(&mut self, number: usize, span: Span) -> Outcome {
        let on_demand: Vec<_> =
            self.windows.iter().filter(|window| window.shape == Shape::OnDemand).collect();
        let Some(number) = number.checked_rem(on_demand.len()) else { return Ok(()) };
        let Window { view, file, .. } = on_demand[number];
        let (file, versions) = (*file, &self.targets[*file].versions);
        let cells = view.as_cells().expect("this is not a forked child");
        let (at_bytes, range) = part(view, span);
        // Behind the end of the file, its last page has zeros.
        let range = range.clip(versions.now_bytes() as u64);
        let cells = &cells[at_bytes as usize..][..range.len() as usize];
        let bytes: Vec<u8> = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
        match view.check() {
            Ok(()) if self.may_lack_stores(file) => Ok(()),
            Ok(()) => {
                self.coverage.note_if(!bytes.is_empty(), Reached::WindowLoaded);
                versions.check(versions.now(), range.start, bytes.len(), &bytes).map(drop)
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.check_end(file, range),
            Err(error) => self.forgive(self.is_faulty, Reached::WindowLoadedZeros, &error),
        }
    }

    /// Whether windows on demand may show a file as it was before stores to memory, which they see when a page comes anew.
    fn may_lack_stores(&self, file: usize) -> bool {
        let stores = |window: &Window| window.file == file && window.shape == Shape::Contiguous;
        self.has_leaked || self.targets[file].may_keep_windows || self.windows.iter().any(stores)
    }

    pub(super) fn write_window(&mut self, number: usize, span: Span, fill: u64) -> Outcome {
        let Some((number, file)) = self.window_to_change(number)? else { return Ok(()) };
        let view = self.windows[number].view.clone();
        let (at_bytes, range) = part(&view, span);
        let bytes = contents(range.len() as usize, fill);
        let start = range.start as usize;
        self.change_window(
            file,
            range,
            |file| overwrite(file, start, &bytes),
            || view.write(at_bytes, &bytes),
        )
    }

    pub(super) fn add_to_window(&mut self, number: usize, span: Span, value: u64) -> Outcome {
        let Some((number, file)) = self.window_to_change(number)? else { return Ok(()) };
        let view = self.windows[number].view.clone();
        let start = (view.range().start + span.offset_bytes % view.len()).next_multiple_of(8);
        let range = ByteRange::at(start, 8);
        if range.end > view.range().end {
            return Ok(());
        }
        let add = |file: &mut Vec<u8>| {
            if let Some(word) = file.get_mut(start as usize..).and_then(|rest| rest.first_chunk_mut()) {
                *word = u64::from_ne_bytes(*word).wrapping_add(value).to_ne_bytes();
            }
        };
        self.change_window(file, range, add, || {
            view.fetch_add_u64(start - view.range().start, value).map(drop)
        })
    }

    /// Without a call, also beyond the end of the file, where it has no effect.
    pub(super) fn store_in_window(&mut self, number: usize, span: Span, fill: u64) -> Outcome {
        let Some((number, file)) = self.window_to_change(number)? else { return Ok(()) };
        let Window { view, shape, .. } = &self.windows[number];
        let (at_bytes, range) = part(view, span);
        let Some(cells) = view.as_cells().filter(|_| *shape == Shape::Contiguous) else {
            return self.add_to_window(number, span, fill);
        };
        let bytes = contents(range.len() as usize, fill);
        cells[at_bytes as usize..]
            .iter()
            .zip(&bytes)
            .for_each(|(cell, byte)| cell.store(*byte, Ordering::Relaxed));
        let versions = &mut self.targets[file].versions;
        versions.begin(|file| {
            let start = (range.start as usize).min(file.len());
            file[start..].iter_mut().zip(&bytes).for_each(|(old, new)| *old = *new);
        });
        versions.finish();
        self.coverage.note(Reached::WindowStored);
        Ok(())
    }

    pub(super) fn sync_window(&mut self, number: usize) -> Outcome {
        let Some((number, file)) = self.window_to_change(number)? else { return Ok(()) };
        let since = self.targets[file].versions.now();
        match self.windows[number].view.sync() {
            Ok(()) => self.check_synced(file, since),
            Err(error) => self.forgive(self.faults > 0, Reached::SyncFailed, &error),
        }
    }

    /// The window is written back, for which it has to have the size lock.
    pub(super) fn unmap(&mut self, number: usize) -> Outcome {
        let Some((number, file)) = self.window_to_change(number)? else { return Ok(()) };
        self.windows.remove(number);
        self.targets[file].may_keep_windows |= self.is_faulty;
        self.coverage.note_if(self.is_faulty, Reached::WindowEndedBesideFaults);
        Ok(())
    }

    pub(super) fn forget_window(&mut self) {
        if let Some(window) = self.windows.pop() {
            std::mem::forget(window.view);
            self.has_leaked = true;
            self.coverage.note(Reached::WindowForgotten);
        }
    }

    /// Whether a thread that waits for a size lock may wait for one that only a poll gives up: with windows, that of a sync too.
    pub(super) fn has_busy_windows(&self) -> bool {
        let may_have_windows = |file: usize| {
            self.has_leaked
                || self.targets[file].may_keep_windows
                || self.windows.iter().any(|window| window.file == file)
        };
        self.tasks.iter().map(|task| &task.deed).any(|deed| {
            !deed.work.reads()
                && (may_have_windows(deed.file) || may_have_windows(deed.work.source(deed.file)))
        })
    }

    /// In a forked child, no window has anything.
    pub(super) fn check_windows_forked(windows: &mut Vec<Window>) {
        for Window { view, .. } in windows.drain(..) {
            assert!(view.as_cells().is_none(), "the memory is the parent's");
            assert!(matches!(view.sync(), Err(Error::Forked(_))), "the engine is the parent's");
        }
    }

    fn nth_window(&self, number: usize) -> Option<usize> {
        number.checked_rem(self.windows.len())
    }

    /// A window of a file that nothing else is changing, and its file. None if there is none.
    fn window_to_change(&mut self, number: usize) -> Outcome<Option<(usize, usize)>> {
        let Some(number) = self.nth_window(number) else { return Ok(None) };
        let file = self.windows[number].file;
        Ok(self.free_size_lock(file)?.then_some((number, file)))
    }

    /// No task changes the file, syncs it or copies from it, and it is known what it holds. False if that cannot be.
    pub(super) fn free_size_lock(&mut self, file: usize) -> Outcome<bool> {
        let is_busy = |Deed { file: changed, work, .. }: &Deed| {
            !work.reads() && (*changed == file || work.source(*changed) == file)
        };
        while let Some(number) = self.tasks.iter().position(|task| is_busy(&task.deed)) {
            self.finish_nth(number)?;
        }
        self.settle(file)
    }

    fn change_window(
        &mut self,
        file: usize,
        range: ByteRange,
        change: impl FnOnce(&mut Vec<u8>),
        act: impl FnOnce() -> headwater::Result<()>,
    ) -> Outcome {
        let versions = &mut self.targets[file].versions;
        let is_inside = range.is_empty() || range.end <= versions.bytes().len() as u64;
        versions.begin(|bytes| {
            if is_inside {
                change(bytes)
            }
        });
        match act() {
            Ok(()) if !is_inside => Err(format!("{range:?} was written beyond the end")),
            Ok(()) => {
                versions.finish();
                self.note_change(file);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                versions.finish();
                self.check_end(file, range)
            }
            Err(error) => {
                versions.give_up();
                self.forgive(self.faults > 0, Reached::MutationFailed, &error)
            }
        }
    }

    /// Whether the range may reach beyond the end of the file.
    fn check_end(&mut self, file: usize, range: ByteRange) -> Outcome {
        self.coverage.note(Reached::WindowBeyondEnd);
        let least_bytes = self.targets[file].versions.least_bytes() as u64;
        if range.end > least_bytes {
            Ok(())
        } else {
            Err(format!("{range:?} is beyond the end of {least_bytes} bytes"))
        }
    }
}

/// Where in a window a span lies, and where in the file.
fn part(view: &SharedView, span: Span) -> (u64, ByteRange) {
    let at_bytes = span.offset_bytes % view.len();
    let length_bytes = (span.length as u64).min(view.len() - at_bytes);
    (at_bytes, ByteRange::at(view.range().start + at_bytes, length_bytes))
}

const WINDOWS_MAX: usize = 3;

/// Why there may be no window, without a fault: another one overlaps, the cache has the memory, it would be too large, the file is not
/// cached or the system tracks no writes.
const REFUSALS: [ErrorKind; 4] =
    [ErrorKind::ResourceBusy, ErrorKind::OutOfMemory, ErrorKind::InvalidInput, ErrorKind::Unsupported];
