//! Other file: a second file of the same engine, which bytes are copied to and from.
//!
//! Owns: its contents, its handle, what a copy between the two leaves.
//! Does not own: the first file (actor).

use std::fs;
use std::path::{Path, PathBuf};

use headwater::{ByteRange, Caching, File, OpenOptions};
use headwater_testkit::block_on;

use super::{Actor, contents, peek, text};
use crate::model::{Model, Outcome, same};
use crate::operations::{Place, Span, Way};
use crate::rig::Rig;

pub(super) struct OtherFile {
    path: PathBuf,
    model: Model,
    file: Option<File>,
}

impl OtherFile {
    /// Beside the first one; not there yet.
    pub(super) fn new(path: &Path) -> OtherFile {
        let path = path.with_extension("other");
        let _ = fs::remove_file(&path);
        OtherFile { path, model: Model::default(), file: None }
    }

    fn handle(&mut self, rig: &Rig) -> Outcome<File> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).caching(Caching::On).write(true).create(true);
            self.file = Some(options.open(&self.path).map_err(text)?);
        }
        Ok(self.file.clone().expect("it was just opened"))
    }

    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Nothing is left of its handle.
    pub(super) fn abandon(self) -> (PathBuf, Model) {
        (self.path, self.model)
    }

    /// What another process sees of it, without a sync.
    pub(super) fn peek(&self) -> Outcome {
        peek(&self.path, &self.model)
    }
}

impl Actor<'_> {
    pub(super) fn write_other(&mut self, span: Span, fill: u64) -> Outcome {
        let (file, bytes) = (self.other.handle(self.rig)?, contents(span.length, fill));
        file.write_all_at(&bytes, span.offset_bytes).map_err(text)?;
        self.other.model.write(span.offset_bytes, &bytes);
        self.check_other(span)
    }

    pub(super) fn set_len_of_other(&mut self, length_bytes: u64) -> Outcome {
        self.other.handle(self.rig)?.set_len(length_bytes).map_err(text)?;
        self.other.model.set_len(length_bytes);
        self.check_other(Span { offset_bytes: length_bytes.saturating_sub(100), length: 200 })
    }

    /// From the first file to the other one.
    pub(super) fn copy_out(&mut self, place: Place, way: Way, span: Span, to: u64) -> Outcome {
        let (from, target) = (self.handle(place)?, self.other.handle(self.rig)?);
        let bytes = self.model.slice(span.offset_bytes, span.length).to_vec();
        copy(way, (&from, span), (&target, to), bytes.len())?;
        self.other.model.write(to, &bytes);
        self.check_other(Span { offset_bytes: to, length: bytes.len() })
    }

    /// From the other file to the first one.
    pub(super) fn copy_in(&mut self, place: Place, way: Way, span: Span, to: u64) -> Outcome {
        let (from, target) = (self.other.handle(self.rig)?, self.handle(place)?);
        let bytes = self.other.model.slice(span.offset_bytes, span.length).to_vec();
        copy(way, (&from, span), (&target, to), bytes.len())?;
        self.model.write(to, &bytes);
        self.check_length(&target)?;
        self.read(place, Way::Blocking, Span { offset_bytes: to, length: bytes.len() })
    }

    /// The disk has what the other file has.
    pub(super) fn compare_other(&mut self) -> Outcome {
        self.other.handle(self.rig)?.sync_data().map_err(text)?;
        self.other.model.sync();
        self.other.model.check_synced(&fs::read(&self.other.path).map_err(text)?)
    }

    fn check_other(&mut self, span: Span) -> Outcome {
        let (file, model) = (self.other.handle(self.rig)?, &self.other.model);
        let length_bytes = file.len().map_err(text)?;
        if length_bytes != model.len() {
            return Err(format!("the other file has {length_bytes} bytes, not {}", model.len()));
        }
        let mut found = vec![0; span.length];
        let read = file.read_at(&mut found, span.offset_bytes).map_err(text)?;
        let expected = model.slice(span.offset_bytes, span.length);
        same("the other file", span.offset_bytes, expected, &found[..read])
    }
}

/// A copy of all that the source has of a span.
fn copy(way: Way, (from, span): (&File, Span), (target, to): (&File, u64), there: usize) -> Outcome {
    let range = ByteRange::at(span.offset_bytes, span.length as u64);
    let copied = match way {
        Way::Blocking => from.copy_range_to(range, target, to),
        Way::Async => block_on(from.copy_range_to_async(range, target, to)),
    };
    match copied.map_err(text)? {
        copied_bytes if copied_bytes == there as u64 => Ok(()),
        copied_bytes => Err(format!("{copied_bytes} bytes were copied, not {there}")),
    }
}
