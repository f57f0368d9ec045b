//! Stat: which pages of a file the kernel caches, whether the file can be read directly, and the storage below it.
//!
//! ```text
//!   open, with O_DIRECT if allowed ─► length ─► resident pages, part by part ─► storage ─► text | JSON
//! ```
//!
//! Owns: the facts about a file, their words, the map, exit codes.
//! Does not own: facts about the storage (`storage`) and warnings of it (`foreign`), counting resident pages (the engine), facts about memory (`memory`).

mod memory;

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use headwater::ByteRange;
use headwater::ring::{Access, DirectAlignment, DirectIo, OpenFile};
use headwater::testing::profiles::Device;
use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_measure::{hanging, terminal_width};
use os_display::Quotable;
use serde::Serialize;

use crate::shared::complain::{complain, exit_code_of};
use crate::shared::foreign::Foreign;
use crate::shared::json_path;
use crate::shared::output;
use crate::shared::output::JsonArguments;
use crate::shared::storage::Storage;
use crate::shared::units::readable;

#[derive(Args, Debug)]
pub(crate) struct StatArguments {
    /// Files and block devices to look at. No data is read, except for one page where only a read shows whether direct I/O works.
    #[arg(value_name = "FILE", required_unless_present = "memory")]
    pub(crate) files: Vec<PathBuf>,
    /// Instead of files: how much memory the cache of a program could take here if the program sets no limit, and what keeps it from more.
    #[arg(long, conflicts_with = "files")]
    pub(crate) memory: bool,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
}

pub(crate) fn run(arguments: &StatArguments) -> ExitCode {
    exit_code_of(look_at_all(arguments))
}

/// Prints the facts of each file, or the error.
fn look_at_all(arguments: &StatArguments) -> Result<ExitCode, String> {
    let json = arguments.json.to();
    json.beside(&arguments.files)?.check_printed()?;
    if arguments.memory {
        return memory::print(json);
    }
    let mut code = ExitCode::SUCCESS;
    let (mut found, mut printed) = (Vec::new(), Ok(()));
    for path in &arguments.files {
        let looked = look(path);
        match &looked {
            Ok(facts) if json.wants_text() && printed.is_ok() => printed = output::print(&facts.text(path)),
            Ok(_) => {}
            Err(text) => {
                complain(text);
                code = ExitCode::FAILURE;
            }
        }
        found.push(Entry::new(path, looked));
    }
    output::both(printed, json.write_results(&found))?;
    Ok(code)
}

/// The facts about a file.
#[derive(Serialize)]
struct Facts {
    length_bytes: u64,
    pages: u64,
    /// `None` where the kernel does not report it.
    resident_pages: Option<u64>,
    /// Resident pages by equal parts of the file, the last of which may be shorter; empty where the kernel does not report them.
    parts: Parts,
    direct: Direct,
    preferred_block_bytes: u64,
    #[serde(flatten)]
    storage: Storage,
    /// What follows from storage that is no disk of this machine: 9p, a network, an overlay, a program (FUSE), memory.
    warning: Option<String>,
    /// How headwater reads the file.
    reads: &'static str,
}

#[derive(Serialize, Default)]
struct Parts {
    part_bytes: u64,
    resident_pages: Vec<u64>,
}

#[derive(Serialize)]
struct Direct {
    memory_alignment_bytes: Option<u64>,
    offset_alignment_bytes: Option<u64>,
    /// The error of opening it with `O_DIRECT`.
    refusal: Option<String>,
}

/// A file in the JSON: its facts, or the error.
#[derive(Serialize)]
struct Entry {
    #[serde(flatten, serialize_with = "json_path::as_path")]
    path: PathBuf,
    error: Option<String>,
    #[serde(flatten)]
    facts: Option<Facts>,
}

impl Entry {
    fn new(path: &Path, looked: Result<Facts, String>) -> Entry {
        let path = path.to_owned();
        match looked {
            Ok(facts) => Entry { path, error: None, facts: Some(facts) },
            Err(text) => Entry { path, error: Some(text), facts: None },
        }
    }
}

fn look(path: &Path) -> Result<Facts, String> {
    let failed = |what: &str, error: io::Error| format!("failed to {what} {}: {error}", path.maybe_quote());
    let metadata = std::fs::metadata(path).map_err(|error| failed("look at", error))?;
    let kind = metadata.file_type();
    // To open them has effects: the writer of a FIFO is let go on, a tape is rewound.
    if kind.is_char_device() || kind.is_fifo() || kind.is_socket() {
        let what = if kind.is_char_device() { "a character device" } else { "a FIFO or socket" };
        let shown = path.maybe_quote();
        return Err(format!("failed to look at {shown}: it is {what}, of which nothing is cached"));
    }
    let (open, direct) = open(path).map_err(|error| failed("open", error))?;
    let length_bytes = open.length_bytes().map_err(|error| failed("get the length of", error))?;
    let parts = Parts::of(&open, length_bytes);
    Ok(Facts {
        length_bytes,
        pages: length_bytes.div_ceil(PAGE_SIZE_BYTES),
        resident_pages: parts.as_ref().map(|parts| parts.resident_pages.iter().sum()),
        parts: parts.unwrap_or_default(),
        reads: if direct.refusal.is_none() { "direct" } else { "buffered" },
        direct,
        preferred_block_bytes: metadata.blksize(),
        warning: Device::of(open.buffered()).ok().and_then(|device| Some(Foreign::of(&device)?.of_file())),
        storage: Storage::of(path),
    })
}

/// Opens with `O_DIRECT` if that is allowed, else without.
fn open(path: &Path) -> io::Result<(OpenFile, Direct)> {
    match OpenFile::open(path, DirectIo::Required, Access::Read) {
        Ok(open) => {
            let direct = Direct::with(open.direct(), None);
            Ok((open, direct))
        }
        Err(error) => {
            let open = OpenFile::open(path, DirectIo::Off, Access::Read)?;
            Ok((open, Direct::with(None, Some(error.to_string()))))
        }
    }
}

impl Direct {
    fn with(alignment: Option<DirectAlignment>, refusal: Option<String>) -> Direct {
        Direct {
            memory_alignment_bytes: alignment.map(|alignment| alignment.memory.get()),
            offset_alignment_bytes: alignment.map(|alignment| alignment.offset.get()),
            refusal,
        }
    }
}

impl Parts {
    /// Counts the resident pages of each part; `None` where the kernel does not report them.
    fn of(open: &OpenFile, length_bytes: u64) -> Option<Parts> {
        let part_bytes = part_bytes(length_bytes);
        let starts = (0..length_bytes).step_by(part_bytes as usize);
        let pages = starts.map(|start| {
            let end = (start + part_bytes).min(length_bytes);
            open.resident_pages(ByteRange::new(start, end))
        });
        // An empty file has no parts, and no resident pages.
        Some(Parts { part_bytes, resident_pages: pages.collect::<Option<_>>()? })
    }

    /// A mark for each part, in lines of up to `line_parts`.
    fn map(&self, length_bytes: u64, line_parts: usize) -> Vec<String> {
        let mark = |(index, &pages): (u64, &u64)| {
            let start = index * self.part_bytes;
            mark(pages, self.part_bytes.min(length_bytes - start).div_ceil(PAGE_SIZE_BYTES))
        };
        let marks: Vec<char> = (0..).zip(&self.resident_pages).map(mark).collect();
        marks.chunks(line_parts).map(|line| line.iter().collect()).collect()
    }
}

/// How many marks of a map stand in a line: half or a quarter as many on a terminal too narrow for all.
fn line_parts(width: Option<usize>) -> usize {
    let fits = |parts: &usize| width.is_none_or(|width| parts + MAP_FRAME_COLUMNS <= width);
    [LINE_PARTS, LINE_PARTS / 2].into_iter().find(fits).unwrap_or(LINE_PARTS / 4)
}

/// The size of a part, in whole pages, so that the map has its number of marks.
fn part_bytes(length_bytes: u64) -> u64 {
    let lines = if length_bytes > ONE_LINE_BYTES_MAX { MAP_LINES } else { 1 };
    let parts = (lines * LINE_PARTS) as u64;
    (length_bytes.div_ceil(PAGE_SIZE_BYTES).div_ceil(parts)).max(1) * PAGE_SIZE_BYTES
}

fn mark(resident_pages: u64, pages: u64) -> char {
    match resident_pages {
        0 => '.',
        all if all >= pages => '#',
        most if 2 * most >= pages => '+',
        _ => '-',
    }
}

impl Facts {
    fn text(&self, path: &Path) -> String {
        let (mut lines, width) = (vec![path.maybe_quote().to_string()], terminal_width());
        let mut line =
            |name: &str, text: String| lines.extend(hanging(&format!("  {name:<12}"), &text, width));
        line("length", format!("{} ({} bytes)", readable(self.length_bytes), self.length_bytes));
        line("cached", self.cached());
        for (index, map) in self.map(width).into_iter().enumerate() {
            line(if index == 0 { "map" } else { "" }, format!("|{map}|"));
        }
        line("lies on", self.place());
        line("device", self.device());
        line("direct I/O", self.direct_words());
        line("blocks", self.blocks());
        line("headwater", self.advice().to_owned());
        if let Some(warning) = &self.warning {
            line("warning", warning.clone());
        }
        lines.join("\n") + "\n"
    }

    fn cached(&self) -> String {
        let Some(resident) = self.resident_pages else {
            return "unknown: the kernel (from Linux 6.5 on) tells only the owner of the file and users with write permission"
                .to_owned();
        };
        let (pages, bytes) = (self.pages, (resident * PAGE_SIZE_BYTES).min(self.length_bytes));
        let percent = 100.0 * resident as f64 / pages.max(1) as f64;
        format!("{resident} of {pages} pages, {percent:.1} %, {}", readable(bytes))
    }

    /// Empty where all or nothing is cached, which the line above says.
    fn map(&self, width: Option<usize>) -> Vec<String> {
        let is_part = self.resident_pages.is_some_and(|resident| 0 < resident && resident < self.pages);
        if is_part { self.parts.map(self.length_bytes, line_parts(width)) } else { Vec::new() }
    }

    fn place(&self) -> String {
        let known = |text: &str, otherwise: &str| if text.is_empty() { otherwise } else { text }.to_owned();
        let device = match self.storage.device.as_str() {
            "" => "unknown device".to_owned(),
            device => device.maybe_quote().to_string(),
        };
        let number = known(&self.storage.device_number, "no number");
        match self.storage.file_system.as_str() {
            "" => format!("{device} ({number})"),
            file_system => format!("{file_system} on {device} ({number})"),
        }
    }

    fn device(&self) -> String {
        let storage = &self.storage;
        let either = |known: Option<bool>, yes: &'static str, no: &'static str| match known {
            Some(true) => yes,
            Some(false) => no,
            None => "",
        };
        let words = [
            either(storage.rotational, "rotational", "not rotational"),
            either(storage.polls, "completes polled I/O", "does not complete polled I/O"),
            &storage.read_ahead_kb.map(|kb| format!("kernel readahead {kb} KiB")).unwrap_or_default(),
        ]
        .map(str::to_owned);
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        if words.is_empty() { "the system tells nothing".to_owned() } else { words.join(", ") }
    }

    fn direct_words(&self) -> String {
        let direct = &self.direct;
        match (direct.memory_alignment_bytes, direct.offset_alignment_bytes, &direct.refusal) {
            (Some(memory), Some(offset), _) => {
                format!("allowed, memory aligned to {memory} bytes, offsets and lengths to {offset}")
            }
            (_, _, refusal) => format!("no: {}", refusal.as_deref().unwrap_or("refused")),
        }
    }

    fn blocks(&self) -> String {
        let logical = self.storage.logical_block_bytes;
        let logical = logical.map_or("unknown".to_owned(), |bytes| format!("{bytes} bytes"));
        format!("device {logical}, preferred by the file system {} bytes", self.preferred_block_bytes)
    }

    fn advice(&self) -> &'static str {
        match self.reads {
            "direct" => {
                "takes what is cached from there, reads the rest directly and leaves the cache as it is"
            }
            _ => "reads through the page cache",
        }
    }
}

/// Fits a terminal of 80 columns.
const LINE_PARTS: usize = 64;

/// Of the name before a map, and its edges.
const MAP_FRAME_COLUMNS: usize = 16;

/// A file of 1 GiB has marks of 16 MiB in one line; a larger one is worth more lines.
const ONE_LINE_BYTES_MAX: u64 = 1 << 30;
const MAP_LINES: usize = 4;

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater stat big.log                        is it cached, and can it be read directly?
  headwater stat --json *.parquet               for programs
  headwater stat /dev/nvme0n1                   a whole device
  headwater stat --memory                       how much memory the cache of a program could take here, and why not more

For a partly cached file a map is shown, in which each mark stands for an equal part of the file:
  # all cached, + half or more, - less, . nothing";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: parts cover the file in whole pages, and there are never more than the map has marks.
    #[test]
    fn parts_cover_the_file() {
        for length_bytes in [1, 4096, 4097, 64 * 4096, 64 * 4096 + 1, 1 << 30, (1 << 30) + 1, 1 << 50] {
            let part = part_bytes(length_bytes);
            assert!(part.is_multiple_of(PAGE_SIZE_BYTES), "{length_bytes}");
            let lines = if length_bytes > ONE_LINE_BYTES_MAX { MAP_LINES } else { 1 };
            assert!(length_bytes.div_ceil(part) <= (lines * LINE_PARTS) as u64, "{length_bytes}");
        }
    }

    /// Goal: marks distinguish all, most, some and nothing, also in a shorter last part.
    #[test]
    fn marks() {
        let parts = Parts { part_bytes: 4 * PAGE_SIZE_BYTES, resident_pages: vec![4, 3, 2, 1, 0, 1] };
        assert_eq!(parts.map(5 * 4 * PAGE_SIZE_BYTES + 1, line_parts(None)), ["#++-.#"]);
        let long = Parts { part_bytes: PAGE_SIZE_BYTES, resident_pages: vec![1; 65] };
        assert_eq!(long.map(65 * PAGE_SIZE_BYTES, line_parts(Some(80))), ["#".repeat(64), "#".to_owned()]);
        assert_eq!([200, 80, 79, 48, 47, 1].map(|width| line_parts(Some(width))), [64, 64, 32, 32, 16, 16]);
    }
}
