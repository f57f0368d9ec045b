//! Listed: the files that lists of sums name, as they are read.
//!
//! ```text
//!   first lines of all lists ─► which algorithm? ─► then line by line, list after list, until the last one ends
//! ```
//!
//! Without `--hash`, the first tag names the algorithm. Without a tag, the number of digits of the first sum leaves one or two
//! algorithms, and hashing small files among the first decides between them, or else the first file that agrees (`candidates`). Lists
//! are not held in memory.
//!
//! Owns: reading lists, the choice of the algorithm.
//! Does not own: the form of a line (`lines`), verifying.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use headwater_measure::standard;
use os_display::Quotable;

use super::buffer::Buffer;
use super::candidates::{Candidates, Hashers, Sums, of_another};
use super::digest::Algorithm;
use super::lines::{self, Line};
use super::walk::STANDARD_INPUT;
use super::whole::stream;

/// A sum, and the file that it is of.
pub(super) type Sum = (String, PathBuf);

pub(super) struct Listed {
    lists: VecDeque<PathBuf>,
    list: Option<List>,
    /// The first sums of all lists, until they are taken.
    ahead: VecDeque<Sum>,
    chosen: Chosen,
    wanted: Option<Algorithm>,
    /// Algorithms that the sums may be of as well.
    others: Vec<Algorithm>,
    faults: Faults,
}

/// The algorithm of sums.
#[derive(Clone, Copy)]
struct Chosen {
    algorithm: Option<Algorithm>,
    /// Whether more than the length of a sum says so.
    is_certain: bool,
}

/// What is wrong with lists.
#[derive(Default)]
pub(super) struct Faults {
    /// Malformed lines of lists that have well-formed ones, too.
    pub(super) malformed_lines: u64,
    /// Lines of such lists with a sum of another algorithm.
    pub(super) other_lines: u64,
    /// For each list that could not be read to its end, or has no sum of the algorithm, a sentence.
    pub(super) unusable: Vec<String>,
}

/// A list that is being read.
struct List {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    sums: u64,
    malformed_lines: u64,
    other_lines: u64,
    /// The algorithm of the first of them, for people.
    other: Option<String>,
}

impl Listed {
    /// Opens the lists, and reads their first lines. Without `wanted` the algorithm is the one that these are of.
    ///
    /// # Errors
    /// If the first sums prove to be of another algorithm than `wanted`.
    pub(super) fn new(paths: &[PathBuf], wanted: Option<Algorithm>) -> Result<Listed, String> {
        let mut listed = Listed {
            lists: paths.to_vec().into(),
            list: None,
            ahead: VecDeque::new(),
            chosen: Chosen { algorithm: wanted, is_certain: wanted.is_some() },
            wanted,
            others: Vec::new(),
            faults: Faults::default(),
        };
        let mut is_tagged = true;
        while listed.ahead.len() < PROBED_SUMS
            && let Some((sum, has_tag)) = listed.read_sum()
        {
            listed.ahead.push_back(sum);
            is_tagged &= has_tag;
        }
        let algorithm = listed.algorithm();
        // A tag is no matter of opinion.
        let is_told = is_tagged || wanted.is_none() && listed.chosen.is_certain;
        let shown = if is_told { Shown::This } else { shown_by(&listed.ahead, algorithm) };
        let is_certain = true;
        match shown {
            Shown::This => listed.chosen = Chosen { is_certain, ..listed.chosen },
            Shown::Other(other) if wanted.is_none() => {
                listed.chosen = Chosen { algorithm: Some(other), is_certain };
            }
            Shown::Other(other) => return Err(of_another(other, algorithm)),
            Shown::Nothing => listed.others = algorithm.of_equal_length().collect(),
        }
        Ok(listed)
    }

    /// The algorithms that the sums may be of.
    pub(super) fn candidates(&self) -> Candidates {
        let algorithms = [self.algorithm()].into_iter().chain(self.others.iter().copied());
        Candidates::new(algorithms).wanting(self.wanted)
    }

    /// The algorithm of the sums, the first if there are several; BLAKE3 if there are no sums.
    pub(super) fn algorithm(&self) -> Algorithm {
        self.chosen.algorithm.unwrap_or(Algorithm::Blake3)
    }

    /// What was wrong with the lists, once the last sum is taken.
    pub(super) fn into_faults(self) -> Faults {
        self.faults
    }

    /// The next sum of the algorithm, and whether it has a tag. Opens the next list at the end of one.
    fn read_sum(&mut self) -> Option<(Sum, bool)> {
        loop {
            if self.list.is_none() {
                match List::open(self.lists.pop_front()?) {
                    Ok(list) => self.list = Some(list),
                    Err(error) => self.faults.unusable.push(error),
                }
            }
            let Some(list) = &mut self.list else { continue };
            match list.read_sum(&mut self.chosen) {
                Ok(Some(sum)) => return Some(sum),
                Ok(None) => self.finish_list(),
                Err(error) => {
                    self.faults.unusable.push(format!("failed to read {}: {error}", list.path.maybe_quote()));
                    self.list = None;
                }
            }
        }
    }

    fn finish_list(&mut self) {
        let Some(list) = self.list.take() else { return };
        if list.sums > 0 {
            self.faults.malformed_lines += list.malformed_lines;
            self.faults.other_lines += list.other_lines;
            return;
        }
        let (path, name) =
            (list.path.maybe_quote(), self.chosen.algorithm.map_or("a known algorithm", Algorithm::name));
        let other = match list.other {
            Some(other) => format!(", but of {other}"),
            None => " and a name (--hash chooses another)".to_owned(),
        };
        self.faults.unusable.push(format!("{path} has no line with a sum of {name}{other}"));
    }
}

impl Iterator for Listed {
    type Item = Sum;

    fn next(&mut self) -> Option<Sum> {
        self.ahead.pop_front().or_else(|| self.read_sum().map(|(sum, _)| sum))
    }
}

impl Chosen {
    /// Whether sums may be of this algorithm, which a tag says or their length.
    fn may_be(self, of: Algorithm, is_tagged: bool) -> bool {
        self.algorithm.is_none_or(|chosen| {
            chosen == of || is_tagged && !self.is_certain && chosen.digits() == of.digits()
        })
    }
}

impl List {
    /// # Errors
    /// One sentence for the user.
    fn open(path: PathBuf) -> Result<List, String> {
        let reader = match path == Path::new(STANDARD_INPUT) {
            true => standard::input().map(|input| Box::new(BufReader::new(input)) as Box<dyn BufRead + Send>),
            false => File::open(&path).map(|file| Box::new(BufReader::new(file)) as Box<dyn BufRead + Send>),
        };
        let reader = reader.map_err(|error| format!("failed to read {}: {error}", path.maybe_quote()))?;
        Ok(List { path, reader, sums: 0, malformed_lines: 0, other_lines: 0, other: None })
    }

    /// The next sum of the chosen algorithm, and whether it has a tag. Without one the first sum decides, and then the first tag among sums of
    /// that length.
    ///
    /// # Errors
    /// What the system reports; if a line is too long to be one.
    fn read_sum(&mut self, chosen: &mut Chosen) -> io::Result<Option<(Sum, bool)>> {
        while let Some(line) = self.read_line()? {
            match lines::parse(&line, chosen.algorithm) {
                Line::Sum { algorithm: of, is_tagged, sum, path } if chosen.may_be(of, is_tagged) => {
                    let is_certain = chosen.is_certain || is_tagged;
                    *chosen = Chosen { algorithm: Some(of), is_certain };
                    self.sums += 1;
                    return Ok(Some(((sum, path), is_tagged)));
                }
                Line::Sum { algorithm: of, .. } => {
                    self.note_other(|| format!("{} (--hash {})", of.name(), of.argument()))
                }
                Line::Unknown(tag) => self.note_other(|| tag),
                Line::Malformed => self.malformed_lines += 1,
            }
        }
        Ok(None)
    }

    fn note_other(&mut self, name: impl FnOnce() -> String) {
        self.other_lines += 1;
        self.other.get_or_insert_with(name);
    }

    /// The next line, without its end, that is neither empty nor a comment.
    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            let read_bytes = (&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if read_bytes as u64 == LINE_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "no line of a sum is as long as one of its lines",
                ));
            }
            if read_bytes == 0 {
                return Ok(None);
            }
            line.truncate(line.strip_suffix(b"\n").map_or(line.len(), <[u8]>::len));
            if !line.is_empty() && line[0] != b'#' {
                return Ok(Some(line));
            }
        }
    }
}

/// What the first files show of the algorithm.
enum Shown {
    This,
    /// Another, with sums of the same length.
    Other(Algorithm),
    /// None of them is there, is small enough and agrees.
    Nothing,
}

/// Whether sums are of `algorithm`. Method: hashes the smallest of the files until one agrees.
fn shown_by(sums: &VecDeque<Sum>, algorithm: Algorithm) -> Shown {
    let candidates = Candidates::new([algorithm].into_iter().chain(algorithm.of_equal_length()));
    if candidates.left().len() == 1 {
        return Shown::This;
    }
    let length = |path: &Path| std::fs::metadata(path).ok().filter(Metadata::is_file).map(|file| file.len());
    let mut files: Vec<_> = sums.iter().filter_map(|(sum, path)| Some((length(path)?, sum, path))).collect();
    files.sort_unstable();
    let mut left_bytes = PROBED_BYTES_MAX;
    for (length_bytes, sum, path) in files {
        let Some(bytes) = left_bytes.checked_sub(length_bytes) else { break };
        left_bytes = bytes;
        match hashed(path, candidates.hashers()) {
            Ok(found) if candidates.agrees(&found, sum) => break,
            _ => {}
        }
    }
    match candidates.left() {
        [found] if *found == algorithm => Shown::This,
        [found] => Shown::Other(*found),
        _ => Shown::Nothing,
    }
}

fn hashed(path: &Path, mut hashers: Hashers) -> io::Result<Sums> {
    let mut each = |bytes: &[u8]| {
        hashers.each().for_each(|hasher| hasher.update(bytes));
        Ok(())
    };
    stream(File::open(path)?, &mut Buffer::new(PROBE_BYTES), &mut each)?;
    Ok(hashers.finish())
}

/// How many sums at the start of the lists are considered.
const PROBED_SUMS: usize = 16;

/// How much of their files is hashed for that, within some hundredths of a second. Larger files are hashed with all algorithms in question
/// when their turn comes, and read once.
const PROBED_BYTES_MAX: u64 = 64 << 20;

/// As much is read at once.
const PROBE_BYTES: usize = 256 << 10;

/// A path has up to 4 KiB, twice that with every byte escaped. `/dev/zero` is one line that never ends.
const LINE_BYTES_MAX: u64 = 64 << 10;
