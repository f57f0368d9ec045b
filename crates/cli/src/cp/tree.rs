//! Tree: a directory copied with all that is in it.
//!
//! ```text
//!   directory ─► made, for this user alone ─► each entry by name ─┬─ file ─► as any other copy
//!                                                                 ├─ directory ─► again
//!                                                                 ├─ symbolic link ─► the same link
//!                                                                 └─ FIFO, device, socket ─► another of its kind
//!             ─► permissions, owner and times, last ─► sync?
//! ```
//!
//! Owns: the walk, what is not a regular file.
//! Does not own: contents and names of regular files (copier).

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use os_display::Quotable;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::destination::put_in_place;
use super::entry::Entry;
use super::links::id;
use super::{Copied, Copier, attributes, given_again};
use crate::shared::complain::complain;

/// One walk.
pub(super) struct Walk<'a, 'b> {
    copier: &'a mut Copier<'b>,
    /// Receives each result, in order.
    on_copied: &'a mut dyn FnMut(Copied),
}

impl<'a, 'b> Walk<'a, 'b> {
    pub(super) fn new(copier: &'a mut Copier<'b>, on_copied: &'a mut dyn FnMut(Copied)) -> Walk<'a, 'b> {
        Walk { copier, on_copied }
    }

    /// Copies whatever is at `source`, without following it if it is a symbolic link, unless it is a directory that `target` lies in.
    pub(super) fn copy(&mut self, source: &Path, target: PathBuf) {
        match is_within(source, &target) {
            false => self.copy_any(source, target),
            true => {
                let (from, to) = (source.maybe_quote(), target.maybe_quote());
                let text = format!("failed to copy {from}: {to} lies in it");
                self.note(source, &target, |_, _| Err(text));
            }
        }
    }

    fn copy_any(&mut self, source: &Path, target: PathBuf) {
        let found = fs::symlink_metadata(source);
        let found = found.map_err(|error| format!("failed to open {}: {error}", source.maybe_quote()));
        match found {
            Ok(metadata) if metadata.is_dir() && self.copier.arguments.is_recursive() => {
                self.copy_directory(source, &target, &metadata);
            }
            // Without -r, FIFOs and devices are what they give, and directories and sockets are refused there.
            Ok(metadata)
                if metadata.is_file() || !metadata.is_symlink() && !self.copier.arguments.is_recursive() =>
            {
                let copied = self.copier.copy_noted(source, target, Some(&metadata));
                (self.on_copied)(copied);
            }
            Ok(metadata) => {
                self.note(source, &target, |walk, entry| walk.make(source, &target, &metadata, entry));
            }
            Err(text) => self.note(source, &target, |_, _| Err(text)),
        }
    }

    fn note(
        &mut self,
        source: &Path,
        target: &Path,
        make: impl FnOnce(&mut Self, &mut Entry) -> Result<(), String>,
    ) {
        let mut entry = self.copier.begin_entry(source, target);
        let made = make(self, &mut entry);
        (self.on_copied)(Copied { entry, made });
    }

    fn copy_directory(&mut self, source: &Path, target: &Path, metadata: &Metadata) {
        if self.copier.is_made(target, metadata) {
            let entry = Entry { skipped: true, ..self.copier.begin_entry(source, target) };
            self.copier.progress.beside(|| complain(given_again(source)));
            return (self.on_copied)(Copied { entry, made: Ok(()) });
        }
        let begun = self.begin_directory(source, target, metadata);
        let (entries, is_new) = match begun {
            Ok(begun) => begun,
            Err(text) => return self.note(source, target, |_, _| Err(text)),
        };
        let shown = self.show_directory(source, target, is_new);
        self.copier.depth += 1;
        for name in entries {
            self.copy_any(&source.join(&name), target.join(&name));
        }
        self.copier.depth -= 1;
        let made = self.finish_directory(source, target, metadata, is_new);
        let made = made.map_err(|error| failed_to_write(target, &error));
        self.copier.note_made(target.to_owned(), metadata);
        let entry = Entry { is_shown: true, ..self.copier.begin_entry(source, target) };
        (self.on_copied)(Copied { entry, made: shown.and(made) });
    }

    /// Gives a directory its attributes, once all is in it. With --sync, makes them durable, and the names in it.
    fn finish_directory(
        &self,
        source: &Path,
        target: &Path,
        metadata: &Metadata,
        is_new: bool,
    ) -> io::Result<()> {
        let (kept, syncs) = (self.copier.kept, self.copier.arguments.sync);
        let has_attributes = is_new || kept.is_any();
        if !has_attributes && !syncs {
            return Ok(());
        }
        let to = File::open(target)?;
        if has_attributes {
            attributes::set_on_directory(&File::open(source)?, metadata, &to, is_new, kept)?;
        }
        if syncs {
            to.sync_all()?;
        }
        if is_new { self.copier.sync_name(target) } else { Ok(()) }
    }

    /// Prints a new directory before what is in it, as GNU cp does.
    fn show_directory(&self, source: &Path, target: &Path, is_new: bool) -> Result<(), String> {
        match is_new && self.copier.arguments.shows() {
            true => self.copier.begin_entry(source, target).show(),
            false => Ok(()),
        }
    }

    /// Makes the target directory, if need be. Returns the names in the source, and whether the target is new.
    fn begin_directory(
        &self,
        source: &Path,
        target: &Path,
        metadata: &Metadata,
    ) -> Result<(Vec<std::ffi::OsString>, bool), String> {
        let read =
            || fs::read_dir(source)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
        let mut names =
            read().map_err(|error| format!("failed to read {}: {error}", source.maybe_quote()))?;
        names.sort_unstable();
        let mode = attributes::mode_of_new_directory(metadata, self.copier.kept);
        let is_new = match DirBuilder::new().mode(mode).create(target) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A link to a directory leads out of what is copied to.
                if !fs::symlink_metadata(target).is_ok_and(|found| found.is_dir()) {
                    return Err(format!("failed to replace {}: it is not a directory", target.maybe_quote()));
                }
                false
            }
            Err(error) => return Err(failed_to_write(target, &error)),
        };
        Ok((names, is_new))
    }

    /// Makes what is neither file nor directory.
    fn make(
        &mut self,
        source: &Path,
        target: &Path,
        metadata: &Metadata,
        entry: &mut Entry,
    ) -> Result<(), String> {
        let is_kept = self.copier.arguments.no_clobber && fs::symlink_metadata(target).is_ok();
        if is_kept || self.copier.is_made(target, metadata) {
            entry.skipped = true;
            return Ok(());
        }
        self.copier.check_made(source, target)?;
        if leads_to(source, metadata, target) {
            let (from, to) = (source.maybe_quote(), target.maybe_quote());
            return Err(format!("failed to copy {from}: {to} is the same file"));
        }
        let made = match self.make_once(source, target, metadata) {
            // It has come into being since.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && self.copier.arguments.no_clobber =>
            {
                entry.skipped = true;
                return Ok(());
            }
            // A link to a directory is none.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && fs::symlink_metadata(target).is_ok_and(|found| !found.is_dir()) =>
            {
                put_in_place(target, |name| self.make_once(source, name, metadata))
            }
            made => made,
        };
        let made = made.and_then(|()| self.copier.sync_name(target));
        made.map_err(|error| failed_to_write(target, &error))?;
        self.copier.links_note(metadata, target);
        // A later source of this command does not write through the new link.
        self.copier.note_made(target.to_owned(), metadata);
        Ok(())
    }

    fn make_once(&self, source: &Path, target: &Path, metadata: &Metadata) -> io::Result<()> {
        if let Some(copy) = self.copier.links.copy_of(metadata) {
            // Of a symbolic link, not of what it leads to.
            return fs::hard_link(copy, target);
        }
        self.make_new(source, target, metadata)?;
        attributes::set_on_node(source, metadata, target, self.copier.kept)
    }

    fn make_new(&self, source: &Path, target: &Path, metadata: &Metadata) -> io::Result<()> {
        let kind = metadata.file_type();
        let node = match () {
            () if kind.is_symlink() => {
                let end = fs::read_link(source).map_err(|error| match error.kind() {
                    io::ErrorKind::InvalidInput => io::Error::other(format!(
                        "another file has taken the place of {}",
                        source.maybe_quote()
                    )),
                    _ => error,
                })?;
                return std::os::unix::fs::symlink(end, target);
            }
            () if kind.is_fifo() => FileType::Fifo,
            () if kind.is_block_device() => FileType::BlockDevice,
            () if kind.is_char_device() => FileType::CharacterDevice,
            () => FileType::Socket,
        };
        let mode = Mode::from_raw_mode(metadata.mode() & 0o777);
        Ok(mknodat(CWD, target, node, mode, metadata.rdev())?)
    }
}

/// Whether the target is the source itself, or what it leads to as a symbolic link: a copy would take its place.
fn leads_to(source: &Path, metadata: &Metadata, target: &Path) -> bool {
    let Ok(existing) = fs::symlink_metadata(target) else { return false };
    let end = fs::metadata(source).ok().filter(|_| metadata.is_symlink());
    [Some(metadata), end.as_ref()].into_iter().flatten().any(|found| id(found) == id(&existing))
}

/// Whether the target is, or will be, somewhere in a directory, also by another name of it (a bind mount).
fn is_within(source: &Path, target: &Path) -> bool {
    let found = fs::symlink_metadata(source).ok().filter(Metadata::is_dir);
    let existing = target.ancestors().find_map(|parent| match parent.as_os_str().is_empty() {
        true => fs::canonicalize(".").ok(),
        false => fs::canonicalize(parent).ok(),
    });
    found.zip(existing).is_some_and(|(source, existing)| {
        let is_source = |parent: &Path| fs::metadata(parent).is_ok_and(|parent| id(&parent) == id(&source));
        existing.ancestors().any(is_source)
    })
}

fn failed_to_write(target: &Path, error: &io::Error) -> String {
    format!("failed to write {}: {error}", target.maybe_quote())
}
