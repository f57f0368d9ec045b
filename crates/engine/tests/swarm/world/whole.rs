//! Whole: all of a file, as its path leads to it, in this engine and in other programs.
//!
//! Owns: reads by the path, whether other programs find what a clean file has.
//! Does not own: what bytes are possible (versions).

use std::fs;
use std::io::ErrorKind;

use super::{Outcome, World, text};
use crate::coverage::Reached;
use crate::steps::Handles;

impl World {
    /// Also while no handle is open, and around the cache.
    pub(super) fn read_whole_now(&mut self, file: usize, handles: Handles) -> Outcome {
        if handles == Handles::Closed {
            self.targets[file].handles = Default::default();
        }
        let target = &self.targets[file];
        let is_open = target.handles.iter().any(Option::is_some);
        match self.engine.read(&target.path) {
            Err(error) if error.kind() == ErrorKind::NotFound && target.versions.now_bytes() == 0 => Ok(()),
            Err(error) => self.forgive(self.is_faulty, Reached::ReadFailed, &error),
            Ok(bytes) => {
                let is_beside = target.versions.is_changing();
                self.coverage.note_if(!bytes.is_empty() && !is_open, Reached::WholeReadWhileClosed);
                self.coverage.note_if(is_beside, Reached::WholeReadBesideMutation);
                target.versions.check(target.versions.now(), 0, usize::MAX, &bytes).map(drop)
            }
        }
    }

    /// Other programs find in a file that calls itself clean what the engine's own readers do.
    pub(super) fn check_clean(&mut self, file: usize) -> Outcome {
        let target = &self.targets[file];
        let Some(handle) = target.handles.iter().flatten().next() else { return Ok(()) };
        if target.is_latched || !handle.is_clean() {
            return Ok(());
        }
        let disk = fs::read(&target.path).map_err(text)?;
        self.coverage.note_if(!disk.is_empty(), Reached::CleanSawDisk);
        let checked = target.versions.check(target.versions.now(), 0, usize::MAX, &disk);
        checked.map(drop).map_err(|error| format!("clean, on disk: {error}"))
    }

    /// After a sync that covers all there is. A window counts as dirty as long as there is one.
    pub(super) fn check_is_clean(&mut self, file: usize) -> Outcome {
        let target = &self.targets[file];
        let has_windows = self.has_leaked
            || target.may_keep_windows
            || self.windows.iter().any(|window| window.file == file);
        let Some(handle) = target.handles.iter().flatten().next().filter(|_| !has_windows) else {
            return Ok(());
        };
        self.coverage.note(Reached::CleanAfterSync);
        if handle.is_clean() { Ok(()) } else { Err("not clean after a sync".to_owned()) }
    }
}
