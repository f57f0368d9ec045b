//! Copy: copies files at the speed of their devices. Only a file that has to be overwritten in place can be left incomplete.
//!
//! ```text
//!   source ─► destination refused? ─► file without a name ─┬─ blocks shared (reflink)
//!                                                          └─ runs of data ─► pipeline
//!          ─► permissions, times ─► verify? sync? ─► it gets the destination's name
//! ```
//!
//! Owns: the order of files and steps, error texts, exit codes.
//! Does not own: directories (`tree`), FIFOs and terminals (`stream`), moving bytes (`pipeline`), names (`destination`), holes (`runs`), free space (`room`), the end of old contents (`in_place`), the comparison (`verify`).

mod arguments;
mod attributes;
mod destination;
mod entry;
mod failure;
mod guard;
mod in_place;
mod kernel_copy;
mod links;
mod pipeline;
mod progress;
mod room;
mod runs;
mod stream;
mod tree;
mod verify;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use headwater::ring::{Access, DirectIo, OpenFile, Route};
use headwater::testing::Pressure;
use headwater::{ByteRange, Engine};
use os_display::Quotable;

pub(crate) use arguments::{CopyArguments, EXAMPLES, Reflink, Sparse};
pub(crate) use guard::{Guard, run as run_guard};

use crate::shared::complain::{complain, exit_code_of};
use crate::shared::output::{self, JsonTo};
use crate::shared::units::readable;
use arguments::Attribute;
use attributes::Kept;
use destination::{Destination, Replace, Unfinished, must_settle, sync_directory_of};
use entry::Entry;
use failure::{Failure, Side};
use kernel_copy::{Bytes, copy_by_kernel, through_kernel};
use links::{FileId, Links, check_same, id};
use pipeline::Pipeline;
use progress::Progress;
use tree::Walk;
use verify::Depth;

pub(crate) fn run(arguments: &CopyArguments) -> ExitCode {
    let json = arguments.json.to();
    attributes::mask();
    let mut entries = Vec::new();
    let checked = json.beside(&arguments.paths).and_then(|json| {
        if arguments.verify || arguments.shows() { json.check_printed() } else { json.check() }
    });
    let done = checked.map(|()| copy_all(arguments, &mut entries));
    exit_code_of(done.and_then(|code| json.write_results(&entries).map(|()| code)))
}

fn copy_all(arguments: &CopyArguments, entries: &mut Vec<Entry>) -> ExitCode {
    if arguments.reflink == Reflink::Always && arguments.sparse != Sparse::Auto {
        complain(
            "--reflink=always goes with --sparse=auto alone: shared blocks have the holes of the source",
        );
        return ExitCode::FAILURE;
    }
    let Some((into, sources)) = arguments.paths.split_last().filter(|(_, sources)| !sources.is_empty())
    else {
        complain("a destination has to follow the source (see --help)");
        return ExitCode::from(EXIT_USAGE);
    };
    let is_directory = into.is_dir();
    if sources.len() > 1 && !is_directory {
        complain(format_args!(
            "failed to copy {} files to {}: it is not a directory",
            sources.len(),
            into.maybe_quote()
        ));
        return ExitCode::FAILURE;
    }
    let mut copier = Copier {
        arguments,
        kept: Kept::of(arguments),
        pipeline: None,
        engine: None,
        made: HashMap::new(),
        depth: 0,
        links: Links::default(),
        left_to_kernel_bytes: 0,
        progress: Progress::new(),
        entry: Entry::default(),
    };
    let mut code = ExitCode::SUCCESS;
    let shows = arguments.shows();
    let progress = copier.progress.clone();
    let mut on_copied = |copied: Copied| {
        let shows = shows && copied.made.is_ok();
        let shown = if shows { progress.beside(|| copied.entry.show()) } else { Ok(()) };
        let error = copied.made.err();
        if arguments.json.to() != JsonTo::Nowhere {
            entries.push(Entry { error: error.clone(), ..copied.entry });
        }
        for text in error.into_iter().chain(shown.err()) {
            progress.beside(|| complain(text));
            code = ExitCode::FAILURE;
        }
    };
    for source in sources {
        let shown = if is_directory { into.join(name_of(source)) } else { into.clone() };
        if arguments.copies_links() {
            Walk::new(&mut copier, &mut on_copied).copy(source, shown);
        } else {
            on_copied(copier.copy_noted(source, shown, None));
        }
    }
    copier.progress.finish();
    // All is written; the rings and the memory end with the process.
    std::mem::forget(copier);
    code
}

/// The name of a source in the directory that it is copied into: `.` if its contents are, as those of `folder/.` and `..`.
fn name_of(source: &Path) -> &OsStr {
    let mut parts =
        source.as_os_str().as_bytes().rsplit(|&byte| byte == b'/').filter(|part| !part.is_empty());
    let is_contents = matches!(parts.next(), Some(b".") | None);
    source.file_name().filter(|_| !is_contents).unwrap_or(OsStr::new("."))
}

/// The warning about a source that comes again.
fn given_again(path: &Path) -> String {
    format!("{} is given more than once, and was copied once", path.maybe_quote())
}

/// What became of one source.
struct Copied {
    entry: Entry,
    made: Result<(), String>,
}

struct Copier<'a> {
    arguments: &'a CopyArguments,
    kept: Kept,
    /// Built for the first file that is large enough.
    pipeline: Option<Pipeline>,
    /// The engine that --verify reads with.
    engine: Option<Engine>,
    /// Destinations of this command's arguments so far, with their sources, so that it does not replace its own copies. Within directories
    /// it does, as these are merged, but for links.
    made: HashMap<PathBuf, FileId>,
    /// Directories that the current source is in, of those that are copied.
    depth: u32,
    /// The copies of files with several names, where these are kept.
    links: Links,
    /// Bytes of this command that the kernel has still to write, for all we know.
    left_to_kernel_bytes: u64,
    progress: Progress,
    /// The JSON of the current source.
    entry: Entry,
}

/// A source that is open.
struct Source<'a> {
    path: &'a Path,
    open: Arc<OpenFile>,
    /// The metadata before the first read.
    metadata: Metadata,
    length_bytes: u64,
    /// Whether its holes are written.
    sparse: Sparse,
}

impl Copier<'_> {
    fn begin_entry(&self, path: &Path, shown: &Path) -> Entry {
        let (source, destination) = (path.to_owned(), shown.to_owned());
        Entry { source, destination, ..Entry::default() }
    }

    /// `looked`: what was at the path, where symbolic links are not followed; nothing else is copied.
    fn copy_noted(&mut self, path: &Path, shown: PathBuf, looked: Option<&Metadata>) -> Copied {
        let started = Instant::now();
        self.entry = self.begin_entry(path, &shown);
        self.progress.add_file();
        let made = self.copy(path, shown, looked);
        let entry = Entry { seconds: started.elapsed().as_secs_f64(), ..std::mem::take(&mut self.entry) };
        Copied { entry, made }
    }

    fn copy(&mut self, path: &Path, shown: PathBuf, looked: Option<&Metadata>) -> Result<(), String> {
        let metadata = looked.cloned().map_or_else(|| std::fs::metadata(path), Ok);
        if let Ok(metadata) = metadata {
            let is_there = || std::fs::symlink_metadata(&shown).is_ok();
            // That a directory takes -r is said all the same.
            if self.arguments.no_clobber && !metadata.is_dir() && is_there() {
                self.entry.skipped = true;
                return Ok(());
            }
            if self.is_made(&shown, &metadata) {
                self.entry.skipped = true;
                self.progress.beside(|| complain(given_again(path)));
                return Ok(());
            }
            if metadata.file_type().is_fifo() || metadata.file_type().is_char_device() {
                return stream::copy(self, path, shown, looked);
            }
        }
        let source = Source::open(path, self.arguments.sparse)?;
        check_same(path, looked, &source.metadata)?;
        self.entry.length_bytes = source.length_bytes;
        let replace = self.replace(&source.metadata);
        let destination = Destination::find(shown, replace)?;
        self.check((path, &source.metadata), &destination)?;
        if self.link(&source.metadata, &destination)? {
            return Ok(());
        }
        let text = |failure| tell(&failure, &source, &destination, 0);
        let unfinished = destination.begin().map_err(|error| text(Failure::of_target(error)))?;
        let target = unfinished.open_again().map_err(|error| text(Failure::of_target(error)))?;
        if unfinished.is_in_place() {
            self.empty(&source, &destination, &unfinished, &target)?;
        }
        self.fill(&source, &target)
            .map_err(|failure| tell_unfilled(&failure, &source, &destination, &unfinished))?;
        self.finish(&source, &destination, &unfinished, &target).map_err(text)?;
        if self.name(&destination, unfinished).map_err(|error| text(Failure::of_target(error)))? {
            self.links_note(&source.metadata, destination.path());
            self.note_made(destination.shown, &source.metadata);
        }
        Ok(())
    }

    /// Gives the copy its name, and makes that durable if this was asked for. `false` if with --no-clobber another file has come to have
    /// it meanwhile.
    fn name(&mut self, destination: &Destination, unfinished: Unfinished) -> io::Result<bool> {
        match destination.complete(unfinished) {
            Err(error) if self.arguments.no_clobber && error.kind() == io::ErrorKind::AlreadyExists => {
                self.entry.skipped = true;
                return Ok(false);
            }
            completed => completed?,
        }
        if self.arguments.sync && !self.entry.in_place {
            sync_directory_of(destination.path())?;
        }
        Ok(true)
    }

    /// With --sync, makes a name durable. Within a copied directory it becomes so with that one, once all is in it.
    fn sync_name(&self, path: &Path) -> io::Result<()> {
        if self.arguments.sync && self.depth == 0 { sync_directory_of(path) } else { Ok(()) }
    }

    /// Whether this command has made the destination of the same source.
    fn is_made(&self, shown: &Path, source: &Metadata) -> bool {
        self.made.get(shown) == Some(&id(source))
    }

    fn note_made(&mut self, shown: PathBuf, source: &Metadata) {
        if self.depth == 0 || source.is_symlink() {
            self.made.insert(shown, id(source));
        }
    }

    /// Makes the destination another name of the copy that was made of the same file, if there is one and hard links are kept.
    fn link(&mut self, source: &Metadata, destination: &Destination) -> Result<bool, String> {
        let Some(copy) = self.links.copy_of(source) else { return Ok(false) };
        let failed = |error: io::Error| {
            let (shown, copy) = (destination.shown.maybe_quote(), copy.maybe_quote());
            format!("failed to write {shown} as another name of {copy}: {error}")
        };
        destination.link(copy).and_then(|()| self.sync_name(destination.path())).map_err(failed)?;
        self.entry.is_hard_link = true;
        self.note_made(destination.shown.clone(), source);
        Ok(true)
    }

    /// Keeps in mind where a source was copied to, if hard links are kept and it may come again. Where symbolic links are followed, any
    /// may.
    fn links_note(&mut self, source: &Metadata, copy: &Path) {
        let may_come_again = source.nlink() > 1 || !self.arguments.copies_links();
        if may_come_again && self.arguments.keeps(Attribute::Links) {
            self.links.note(source, copy);
        }
    }

    fn check(&self, (path, metadata): (&Path, &Metadata), destination: &Destination) -> Result<(), String> {
        let (from, to) = (path.maybe_quote(), destination.shown.maybe_quote());
        if destination.is(metadata) {
            return Err(format!("failed to copy {from}: {to} is the same file"));
        }
        self.check_made(path, &destination.shown)?;
        destination.check()
    }

    /// Which existing files a copy of this source may replace.
    fn replace(&self, source: &Metadata) -> Replace {
        let keeps_links = source.nlink() > 1 && self.arguments.keeps(Attribute::Links);
        match self.arguments.force {
            _ if self.arguments.no_clobber => Replace::Nothing,
            true => Replace::Forced,
            false if keeps_links => Replace::Linked,
            false => Replace::Ordinary,
        }
    }

    /// Refuses to replace a copy of this command. A directory is refused in any case, with words of its own.
    fn check_made(&self, source: &Path, shown: &Path) -> Result<(), String> {
        if !self.made.contains_key(shown) || shown.is_dir() {
            return Ok(());
        }
        let (from, to) = (source.maybe_quote(), shown.maybe_quote());
        Err(format!("failed to copy {from}: {to} was just made of another source"))
    }

    /// Gives an empty file its contents.
    fn fill(&mut self, source: &Source<'_>, target: &Arc<OpenFile>) -> Result<(), Failure> {
        self.progress.begin("copying", source.path, Some(source.length_bytes));
        if !self.share_blocks(source, target)? {
            self.copy_bytes(source, target)?;
        }
        Ok(())
    }

    /// The steps between the contents and the name: attributes, verification, sync.
    fn finish(
        &mut self,
        source: &Source<'_>,
        destination: &Destination,
        unfinished: &Unfinished,
        target: &OpenFile,
    ) -> Result<(), Failure> {
        self.set_attributes(source, destination, unfinished).map_err(Failure::of_target)?;
        let (file, sync) = (unfinished.file(), self.arguments.sync);
        if sync || self.arguments.verify || must_settle(target) {
            file.sync_all().map_err(Failure::of_target)?;
        }
        if self.arguments.verify {
            self.verify(source, destination, target)?;
            // Reading was an access.
            attributes::keep_times(&source.metadata, file, self.kept).map_err(Failure::of_target)?;
            if sync && self.kept.is_any() {
                file.sync_all().map_err(Failure::of_target)?;
            }
        }
        Ok(())
    }

    /// Sets the attributes. A file that is overwritten in place keeps those that are not preserved.
    fn set_attributes(
        &self,
        source: &Source<'_>,
        destination: &Destination,
        unfinished: &Unfinished,
    ) -> io::Result<()> {
        let (open, metadata, file) = (&source.open, &source.metadata, unfinished.file());
        let (kept, made_in) = match unfinished.is_in_place() {
            true => (self.kept.of_existing(), None),
            false => (self.kept, Some(destination.directory())),
        };
        attributes::set(open, metadata, file, made_in, kept).map_err(|error| {
            if !unfinished.is_in_place() {
                return error;
            }
            let text = "its contents are those of the source, but not its permissions and times";
            io::Error::new(error.kind(), format!("{text}: {error}"))
        })
    }

    /// Shares the source's blocks; `false` if all bytes have to be copied.
    fn share_blocks(&mut self, source: &Source<'_>, target: &OpenFile) -> Result<bool, Failure> {
        if !self.wants_shared_blocks(source) {
            return Ok(false);
        }
        match rustix::fs::ioctl_ficlone(target.buffered(), source.open.buffered()) {
            Ok(()) => {
                self.entry.shares_blocks = true;
                Ok(true)
            }
            Err(_) if self.arguments.reflink == Reflink::Auto => Ok(false),
            Err(error) => {
                let text =
                    format!("its blocks cannot be shared with the source ({})", io::Error::from(error));
                Err(Failure::of_target(io::Error::new(io::ErrorKind::Unsupported, text)))
            }
        }
    }

    fn copy_bytes(&mut self, source: &Source<'_>, target: &Arc<OpenFile>) -> Result<(), Failure> {
        let mut copied_bytes = 0;
        let done = self.copy_bytes_counted(source, target, &mut copied_bytes);
        self.entry.copied_bytes = copied_bytes;
        done
    }

    fn copy_bytes_counted(
        &mut self,
        source: &Source<'_>,
        target: &Arc<OpenFile>,
        copied_bytes: &mut u64,
    ) -> Result<(), Failure> {
        // Files in /proc say they are empty, and those in /sys that they have a page.
        if source.length_bytes == 0 || source.metadata.blocks() == 0 && source.open.may_hide_contents() {
            return through_kernel(&source.open, target, ByteRange::new(0, u64::MAX), &mut |bytes| {
                *copied_bytes += bytes;
            });
        }
        let runs = source.runs().map_err(Failure::of_source)?;
        let data_bytes = runs.iter().map(|run| run.len()).sum();
        let bytes = self.bytes();
        // First of all the length: whatever is written then lies inside, and the end is exact.
        target.set_len(source.length_bytes).map_err(Failure::of_target)?;
        // Pages that turn out to be zeros get no blocks.
        if bytes != Bytes::WithoutZeros {
            room::reserve(target, &runs)?;
        }
        self.progress.begin("copying", source.path, Some(data_bytes));
        let progress = self.progress.clone();
        let mut on_copied = |bytes| {
            *copied_bytes += bytes;
            progress.add(bytes);
        };
        if data_bytes < QUEUE_BYTES_MIN || (source.open.direct().is_none() && target.direct().is_none()) {
            return runs
                .iter()
                .try_for_each(|&run| copy_by_kernel(&source.open, target, run, &mut on_copied, bytes));
        }
        let how = How { writes_by: self.leave_to_kernel(data_bytes), bytes };
        self.pipeline()?.copy(&source.open, target, &runs, &mut on_copied, how)
    }

    fn bytes(&self) -> Bytes {
        match (self.arguments.reflink, self.arguments.sparse) {
            (_, Sparse::Always) => Bytes::WithoutZeros,
            (Reflink::Never, _) | (_, Sparse::Never) => Bytes::Written,
            _ => Bytes::Shared,
        }
    }

    /// Whether the kernel is left to write a copy when it likes. It then takes memory until it is written: only such as no program
    /// uses, and no cached file.
    fn leave_to_kernel(&mut self, data_bytes: u64) -> Route {
        if self.arguments.sync || self.arguments.verify {
            return Route::Direct;
        }
        let wanted_bytes = self.left_to_kernel_bytes + data_bytes;
        let fits = |spare_bytes: u64| wanted_bytes <= spare_bytes / LEFT_TO_KERNEL_DIVISOR;
        let system = rustix::system::sysinfo();
        if !fits(system.freeram as u64 * u64::from(system.mem_unit)) {
            return Route::Direct;
        }
        // To find out, the files of all cgroups of this process are opened.
        if wanted_bytes > LEFT_UNCHECKED_BYTES_MAX && !fits(Pressure::new().headroom_bytes()) {
            return Route::Direct;
        }
        self.left_to_kernel_bytes = wanted_bytes;
        Route::Buffered
    }

    fn pipeline(&mut self) -> Result<&Pipeline, Failure> {
        if self.pipeline.is_none() {
            let queue = &self.arguments.queue;
            let built = Pipeline::new(queue.driver.kind(), queue.queue_depth);
            self.pipeline = Some(built.map_err(|error| {
                Failure::of_target(io::Error::other(format!("no queue for its requests: {error}")))
            })?);
        }
        Ok(self.pipeline.as_ref().expect("it was just built"))
    }

    fn verify(
        &mut self,
        source: &Source<'_>,
        destination: &Destination,
        target: &OpenFile,
    ) -> Result<(), Failure> {
        if self.engine.is_none() {
            let built = self.arguments.queue.builder().build();
            self.engine = Some(built.map_err(|error| Failure::of_target(io::Error::from(error)))?);
        }
        let engine = self.engine.as_ref().expect("it was just built");
        self.progress.begin("verifying", &destination.shown, Some(source.length_bytes));
        let from = (&*source.open, source.length_bytes);
        let depth = verify::compare(from, engine, target, &mut |bytes| self.progress.add(bytes))?;
        let from = match depth {
            Depth::Devices => "both read again from their devices",
            Depth::PageCache => "read again, through the page cache as there is no direct I/O",
        };
        let (length, shown) = (readable(source.length_bytes), destination.shown.maybe_quote());
        self.entry.verified = Some(from);
        if self.arguments.json.to() == JsonTo::StandardOutput {
            return Ok(());
        }
        let text = format!("{shown}: {length} agree with {}, {from}\n", source.path.maybe_quote());
        let printed = self.progress.beside(|| output::print(&text));
        printed.map_err(|text| Failure::of_target(io::Error::other(text)))
    }
}

impl Source<'_> {
    fn open(path: &Path, sparse: Sparse) -> Result<Source<'_>, String> {
        let failed = |error: io::Error| format!("failed to open {}: {error}", path.maybe_quote());
        let open =
            OpenFile::open(path, DirectIo::Preferred, Access::Read).map_err(|error| match error.kind() {
                io::ErrorKind::IsADirectory => {
                    let path = path.maybe_quote();
                    format!("failed to copy {path}: it is a directory; -r copies it with all that is in it")
                }
                _ => failed(error),
            })?;
        let descriptor = open.buffered().try_clone_to_owned().map_err(failed)?;
        let metadata = File::from(descriptor).metadata().map_err(failed)?;
        let length_bytes = open.length_bytes().map_err(failed)?;
        Ok(Source { path, open: Arc::new(open), metadata, length_bytes, sparse })
    }

    /// The ranges that are written.
    fn runs(&self) -> io::Result<Vec<ByteRange>> {
        match self.sparse {
            Sparse::Auto | Sparse::Always => runs::with_data(self.open.buffered(), self.length_bytes),
            Sparse::Never => Ok(runs::whole(self.length_bytes)),
        }
    }
}

/// How a file is copied.
#[derive(Clone, Copy)]
struct How {
    writes_by: Route,
    bytes: Bytes,
}

/// The error text of a failed copy. The unfinished copy takes up `taken_bytes` of the space.
fn tell(failure: &Failure, source: &Source<'_>, destination: &Destination, taken_bytes: u64) -> String {
    let place = failure.offset_bytes.map(|offset| format!(" at byte {offset}")).unwrap_or_default();
    let error = &failure.error;
    let (from, to) = (source.path.maybe_quote(), destination.shown.maybe_quote());
    match failure.side {
        Side::Source => format!("failed to read {from}{place}: {error}"),
        Side::Target if error.kind() == io::ErrorKind::StorageFull => {
            format!("failed to write {to}: {}", room::missing_words(source, destination, taken_bytes))
        }
        Side::Target => format!("failed to write {to}{place}: {error}"),
    }
}

/// The error text of incomplete contents, which only a file overwritten in place keeps.
fn tell_unfilled(
    failure: &Failure,
    source: &Source<'_>,
    destination: &Destination,
    unfinished: &Unfinished,
) -> String {
    // Its own part of the space is given back with it.
    let taken_bytes = unfinished.file().metadata().map_or(0, |metadata| metadata.blocks() * 512);
    let text = tell(failure, source, destination, taken_bytes);
    if !unfinished.is_in_place() {
        return text;
    }
    format!("{text}; {} is incomplete: it was written in place", destination.shown.maybe_quote())
}

/// As for other errors in what was typed.
const EXIT_USAGE: u8 = 2;

/// A copy that the kernel may write later takes this share of the free memory at most.
const LEFT_TO_KERNEL_DIVISOR: u64 = 8;

/// Up to here the kernel writes in time, however small the cgroup.
const LEFT_UNCHECKED_BYTES_MAX: u64 = 16 << 20;

/// Below this size, building a queue takes longer than copying the bytes.
const QUEUE_BYTES_MIN: u64 = 1 << 20;
