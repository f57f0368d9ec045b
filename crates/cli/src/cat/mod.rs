//! Cat: writes files to standard output, each part in the cheapest way.
//!
//! ```text
//!   open ─┬─ FIFO, pipe, terminal, /proc, up to 128 KiB ─► stream
//!         └─ regular file, block device ─► route ─┬─ in the page cache ─► splice (stays inside the kernel)
//!                                                 └─ not there ─────────► Reader (direct, read ahead) ─► write
//!            at the length it had when opened ─► stream what has been appended since
//!   -n, -s, -A … ─► stream ─► lines as they are shown
//! ```
//!
//! Owns: opening, the order of files, error texts, exit codes.
//! Does not own: the routes (`route`), moving bytes (`output`), readahead (the engine's).

pub(crate) mod arguments;
mod output;
mod positioned;
mod route;
pub(crate) mod shown;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use headwater_measure::standard;
use os_display::Quotable;
use serde::Serialize;

use crate::cat::arguments::CatArguments;
use crate::shared::arguments::IoChoice;
use crate::shared::complain::{complain, exit_code_of};
use crate::shared::json_path;
use crate::shared::output::{JsonTo, unwritten};
use output::Output;
use positioned::Positioned;
pub(crate) use positioned::cause;
use shown::Lines;

pub(crate) fn run(arguments: &CatArguments) -> ExitCode {
    let (json, mut entries) = (arguments.json.to(), Vec::new());
    let done =
        json.beside(&arguments.files).and_then(JsonTo::check).map(|()| copy_all(arguments, &mut entries));
    exit_code_of(done.and_then(|code| json.write_beside_data(&entries).map(|()| code)))
}

/// A file in the JSON.
#[derive(Serialize)]
struct Entry {
    #[serde(flatten, serialize_with = "json_path::as_path")]
    path: PathBuf,
    bytes: u64,
    /// Bytes that the kernel moved from its page cache to the output without copying them to this process.
    inside_kernel_bytes: u64,
    /// Bytes that headwater read from the device.
    by_headwater_bytes: u64,
    seconds: f64,
    /// Why it was not copied to its end.
    error: Option<String>,
}

fn copy_all(arguments: &CatArguments, entries: &mut Vec<Entry>) -> ExitCode {
    let output = match Output::standard() {
        Ok(output) => output,
        Err(error) => {
            complain(unwritten(&error));
            return ExitCode::FAILURE;
        }
    };
    // An engine that only reads loses nothing if it ends with the process.
    let positioned = ManuallyDrop::new(Positioned::new(arguments));
    let mut cat = Cat { output, positioned, io: arguments.io, lines: arguments.shown.lines() };
    let standard_input = [OsStr::new(STANDARD_INPUT).to_owned()];
    let names = if arguments.files.is_empty() { &standard_input } else { &arguments.files[..] };
    let mut code = ExitCode::SUCCESS;
    for name in names {
        let (entry, copied) = cat.copy_noted(name);
        entries.push(entry);
        match copied {
            Ok(()) => {}
            Err(Failure::Input(text)) => {
                complain(text);
                code = ExitCode::FAILURE;
            }
            Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::from(standard::READER_GONE);
            }
            Err(failure) => {
                complain(failure.text());
                return ExitCode::FAILURE;
            }
        }
    }
    match cat.finish() {
        Ok(()) => code,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::from(standard::READER_GONE)
        }
        Err(failure) => {
            complain(failure.text());
            ExitCode::FAILURE
        }
    }
}

/// Why a file was not copied to its end.
enum Failure {
    /// The input failed, with the text of the error; `cat` goes on with the next file.
    Input(String),
    /// The output failed; `cat` ends.
    Output(io::Error),
}

impl Failure {
    fn read(name: &OsStr, error: &io::Error) -> Failure {
        Failure::Input(format!("failed to read {}: {error}", Path::new(name).maybe_quote()))
    }

    fn text(&self) -> String {
        match self {
            Failure::Input(text) => text.clone(),
            Failure::Output(error) => unwritten(error),
        }
    }
}

struct Cat {
    output: Output,
    positioned: ManuallyDrop<Positioned>,
    io: IoChoice,
    /// `None` while bytes go out as they are.
    lines: Option<Lines>,
}

impl Cat {
    fn copy_noted(&mut self, name: &OsStr) -> (Entry, Result<(), Failure>) {
        let (started, before) = (Instant::now(), self.passed_bytes());
        let copied = self.copy(name);
        let after = self.passed_bytes();
        let entry = Entry {
            path: PathBuf::from(name),
            bytes: after.0 + after.1 - before.0 - before.1,
            inside_kernel_bytes: after.0 - before.0,
            by_headwater_bytes: after.2 - before.2,
            seconds: started.elapsed().as_secs_f64(),
            error: copied.as_ref().err().map(Failure::text),
        };
        (entry, copied)
    }

    /// Writes what the last line held back.
    fn finish(&mut self) -> Result<(), Failure> {
        let mut shown = Vec::new();
        if let Some(lines) = &mut self.lines {
            lines.finish(&mut shown);
        }
        self.output.write(&shown)
    }

    fn passed_bytes(&self) -> (u64, u64, u64) {
        let (inside_kernel_bytes, written_bytes) = self.output.passed_bytes();
        (inside_kernel_bytes, written_bytes, self.positioned.by_headwater_bytes())
    }

    fn copy(&mut self, name: &OsStr) -> Result<(), Failure> {
        let mut input = open(name)?;
        let metadata = input.metadata().map_err(|error| Failure::read(name, &error))?;
        self.refuse_own_output(name, &input, &metadata)?;
        if self.lines.is_none() && self.has_positions(&metadata) {
            let start_bytes = rustix::fs::tell(&input).unwrap_or(0);
            let end_bytes = self.positioned.copy(name, &input, start_bytes, &mut self.output)?;
            // Readers of a shared standard input go on where this one stopped.
            let _ = rustix::fs::seek(&input, rustix::fs::SeekFrom::Start(end_bytes));
        }
        self.stream(name, &mut input, &metadata)
    }

    /// Whether it pays to ask what the page cache holds. Files in `/proc` report a length of 0, and small files are read
    /// with one system call.
    fn has_positions(&self, metadata: &std::fs::Metadata) -> bool {
        let file_type = metadata.file_type();
        let enough = self.io == IoChoice::Direct || metadata.len() > SMALL_BYTES;
        file_type.is_block_device() || (file_type.is_file() && metadata.len() > 0 && enough)
    }

    /// Refuses to copy a file to its own end, which would fill the disk: as GNU cat does, if the position of the output is
    /// beyond that of the input.
    fn refuse_own_output(
        &self,
        name: &OsStr,
        input: &File,
        metadata: &std::fs::Metadata,
    ) -> Result<(), Failure> {
        let Some((device, inode, position_bytes)) = self.output.regular_file() else { return Ok(()) };
        let same = (device, inode) == (metadata.dev(), metadata.ino());
        if same && rustix::fs::tell(input).is_ok_and(|start_bytes| start_bytes < position_bytes) {
            return Err(Failure::read(name, &io::Error::other("input file is output file")));
        }
        Ok(())
    }

    /// Copies from the position of the descriptor to its end.
    fn stream(
        &mut self,
        name: &OsStr,
        input: &mut File,
        metadata: &std::fs::Metadata,
    ) -> Result<(), Failure> {
        let moves = self.lines.is_none() && metadata.file_type().is_fifo();
        if moves && !self.output.splice_stream(input.as_fd())? {
            return Ok(());
        }
        let (mut buffer, mut shown) = (self.output.take_buffer(), Vec::new());
        let done = loop {
            match input.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(read_bytes) => {
                    let mut bytes = &buffer[..read_bytes];
                    if let Some(lines) = &mut self.lines {
                        shown.clear();
                        lines.show(bytes, &mut shown);
                        bytes = &shown;
                    }
                    if let Err(failure) = self.output.write(bytes) {
                        break Err(failure);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(Failure::read(name, &error)),
            }
        };
        self.output.give_buffer(buffer);
        done
    }
}

fn open(name: &OsStr) -> Result<File, Failure> {
    if name == STANDARD_INPUT {
        return standard::input().map_err(|error| Failure::read(name, &error));
    }
    File::open(name)
        .map_err(|error| Failure::Input(format!("failed to open {}: {error}", Path::new(name).maybe_quote())))
}

const STANDARD_INPUT: &str = "-";

/// Up to this length a read and a write cost less than asking what the page cache holds.
const SMALL_BYTES: u64 = 128 << 10;
