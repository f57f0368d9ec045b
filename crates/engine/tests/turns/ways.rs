//! Ways: one file for each way to open one, all taken through the same steps, so that they share the pauses.
//!
//! ```text
//!   for each other program × each look: Ways::ours ─► Ways::theirs (hand over, change, look) ─► Ways::check
//! ```
//!
//! Owns: the files, handing over, looking, the list of what is wrong.
//! Does not own: the steps (findings).

use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater::{Coherence, Engine, File};
use headwater_testkit::{ScratchDir, watched};

use crate::api::refresh;
use crate::combination::{Combination, Driver, For, drivers, engine_on, ways};
use crate::contents::bytes;
use crate::foreign::Stranger;

/// The other program.
pub(crate) enum Other {
    Stranger(Stranger),
    /// The standard library, in this process.
    Std,
}

/// How headwater comes to look at what was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    Refresh,
    Reopen,
    /// By itself, after so long.
    Wait,
}

/// The files.
pub(crate) struct Ways {
    pub(crate) other: Other,
    look: Look,
    /// Before and after each change by the other program.
    rest: Duration,
    subjects: Vec<Subject>,
    wrong: Vec<String>,
    // Behind what lies in it.
    _directory: ScratchDir,
}

/// A file, and the handle on it.
pub(crate) struct Subject {
    pub(crate) combination: Combination,
    pub(crate) path: PathBuf,
    pub(crate) engine: Engine,
    file: Option<File>,
}

impl Subject {
    pub(crate) fn file(&self) -> &File {
        self.file.as_ref().expect("it is open")
    }

    pub(crate) fn open(&mut self) {
        self.file = Some(self.combination.open(&self.engine, &self.path, For::Writing).unwrap());
    }

    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    fn is_private(&self) -> bool {
        self.combination.level == Coherence::Private
    }
}

/// Takes the steps with each other program and each look.
///
/// # Panics
/// With a list of all that is wrong.
pub(crate) fn each_way(name: &str, contents: &[u8], steps: impl Fn(&mut Ways)) {
    let mut wrong = Vec::new();
    for (number, look) in [Look::Refresh, Look::Reopen, Look::Wait].into_iter().enumerate() {
        for (other, turned) in [(Other::Stranger(Stranger::new()), 0), (Other::Std, 1)] {
            let rest = [Duration::ZERO, REST][(number + turned) % 2];
            let mut ways = Ways::new(other, look, rest, contents, turned);
            watched(name, || steps(&mut ways));
            wrong.append(&mut ways.wrong);
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

impl Ways {
    /// Each file is on one of the drivers; the number says which of them comes first.
    fn new(other: Other, look: Look, rest: Duration, contents: &[u8], first_driver: usize) -> Ways {
        let directory = ScratchDir::on_target().unwrap();
        let engines: Vec<(Driver, Engine)> =
            drivers().into_iter().map(|driver| (driver, engine_on(driver, 16 << 20))).collect();
        let mut subjects = Vec::new();
        for (number, (level, caching, mode)) in ways().into_iter().enumerate() {
            let (driver, engine) = &engines[(number + first_driver) % engines.len()];
            let path = directory.path().join(number.to_string());
            std::fs::write(&path, contents).unwrap();
            let combination = Combination { place: 0, driver: *driver, level, caching, mode };
            // Without direct I/O there are fewer ways.
            if let Ok(file) = combination.open(engine, &path, For::Writing) {
                subjects.push(Subject { combination, path, engine: engine.clone(), file: Some(file) });
            }
        }
        Ways { other, look, rest, subjects, wrong: Vec::new(), _directory: directory }
    }

    /// Goes on without the files that other programs must leave alone while something is unwritten.
    pub(crate) fn without_private(&mut self) {
        self.subjects.retain(|subject| !subject.is_private());
    }

    /// Does something to each file.
    pub(crate) fn ours(&mut self, mut step: impl FnMut(&mut Subject)) {
        self.subjects.iter_mut().for_each(&mut step);
    }

    /// Has the other program do something to each file, then looks.
    pub(crate) fn theirs(&mut self, mut step: impl FnMut(&mut Other, &Path)) {
        std::thread::sleep(self.rest);
        for subject in &mut self.subjects {
            if self.look == Look::Reopen || subject.is_private() {
                subject.close();
                if matches!(self.other, Other::Std) {
                    // The kernel does not tell writes of this process past headwater from its own, until these are over.
                    subject.engine.flush().unwrap();
                }
            }
            self.other.turn_to(&subject.path);
            step(&mut self.other, &subject.path);
        }
        std::thread::sleep(self.rest);
        if self.look == Look::Wait {
            std::thread::sleep(Duration::from_millis(11));
        }
        for subject in &mut self.subjects {
            match &subject.file {
                None => subject.open(),
                Some(file) if self.look == Look::Refresh => refresh(file).unwrap(),
                Some(_) => {}
            }
        }
    }

    /// Notes each file of which this gives other bytes than expected.
    pub(crate) fn check(
        &mut self,
        what: &str,
        expected: &[u8],
        found: impl Fn(&mut Subject) -> headwater::Result<Vec<u8>>,
    ) {
        for subject in &mut self.subjects {
            let said = match found(subject) {
                Ok(bytes) if bytes == expected => continue,
                Ok(bytes) => difference(expected, &bytes),
                Err(error) => error.to_string(),
            };
            let Combination { driver, level, caching, mode, .. } = subject.combination;
            let other = match self.other {
                Other::Stranger(_) => "another process",
                Other::Std => "std here",
            };
            let way =
                format!("{driver:?} {level:?} caching {caching:?} I/O {mode:?}, {other}, {:?}", self.look);
            self.wrong.push(format!("{what}: {way}: {said}"));
        }
    }

    /// What headwater reads of each file, and what the standard library does.
    pub(crate) fn check_both(&mut self, what: &str, expected: &[u8]) {
        self.check_read(what, expected);
        self.check_disk(what, expected);
    }

    pub(crate) fn check_read(&mut self, what: &str, expected: &[u8]) {
        self.check(what, expected, |subject| {
            let mut bytes = vec![0; subject.file().len()? as usize];
            let length = subject.file().read_at(&mut bytes, 0)?;
            bytes.truncate(length);
            Ok(bytes)
        });
        self.check(&format!("{what}, Engine::read"), expected, |subject| {
            subject.engine.read(&subject.path).map(|bytes| bytes.to_vec())
        });
    }

    pub(crate) fn check_disk(&mut self, what: &str, expected: &[u8]) {
        self.check(
            &format!("{what}, on disk"),
            expected,
            |subject| Ok(std::fs::read(&subject.path).unwrap()),
        );
    }
}

impl Other {
    pub(crate) fn turn_to(&mut self, path: &Path) {
        if let Other::Stranger(stranger) = self {
            stranger.turn_to(path);
        }
    }

    pub(crate) fn write(&mut self, path: &Path, offset: u64, length: usize, seed: u64) {
        match self {
            Other::Stranger(stranger) => drop(stranger.tell(&format!("write {offset} {length} {seed}"))),
            Other::Std => {
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(&bytes(seed, length), offset).unwrap();
            }
        }
    }

    /// Returns where the bytes are.
    pub(crate) fn append(&mut self, path: &Path, length: usize, seed: u64) -> u64 {
        match self {
            Other::Stranger(stranger) => stranger.tell(&format!("append {length} {seed}")),
            Other::Std => {
                let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
                file.write_all(&bytes(seed, length)).unwrap();
                file.stream_position().unwrap() - length as u64
            }
        }
    }

    pub(crate) fn set_len(&mut self, path: &Path, length: u64) {
        match self {
            Other::Stranger(stranger) => drop(stranger.tell(&format!("length {length}"))),
            Other::Std => {
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(length).unwrap();
            }
        }
    }

    /// Deletes the file, and makes another of the same name.
    pub(crate) fn recreate(&mut self, path: &Path, length: usize, seed: u64) {
        match self {
            Other::Stranger(stranger) => drop(stranger.tell(&format!("recreate {length} {seed}"))),
            Other::Std => {
                std::fs::remove_file(path).unwrap();
                std::fs::write(path, bytes(seed, length)).unwrap();
            }
        }
    }
}

fn difference(expected: &[u8], found: &[u8]) -> String {
    let common = expected.len().min(found.len());
    let first = (0..common).find(|&at| expected[at] != found[at]).unwrap_or(common);
    format!("{} bytes, {} expected, the first that differs is byte {first}", found.len(), expected.len())
}

/// Long enough that the times of the file are old on every clock, and tell of the next change.
const REST: Duration = Duration::from_millis(50);
