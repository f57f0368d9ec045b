//! Fixture: the files that are read, and what the kernel's page cache holds of them before each arm.
//!
//! Owns: making and removing them, cold and warm, and that they are.
//! Does not own: reading them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::testing::uring_refusal;
use headwater::{ByteRange, Residency};
use headwater_testkit::Pattern;

use super::Options;
use super::rows::{Arm, Row, State};
use super::work::SMALL_BYTES_MAX;
use crate::folder::Folder;
use crate::pages::PAGE;
use crate::tools;

pub(super) struct Fixture {
    /// Removed when dropped.
    #[expect(dead_code, reason = "it holds what is removed")]
    folder: Folder,
    scan: PathBuf,
    set: PathBuf,
    hash: PathBuf,
    small: PathBuf,
    files: u32,
}

impl Fixture {
    /// Makes what the rows need.
    pub(super) fn make(options: &Options, rows: &[Row]) -> io::Result<Fixture> {
        options.file.iter().try_for_each(|file| tools::check_file(file))?;
        let folder = Folder::create(&options.dir)?;
        folder.require_room(bytes_of(options, rows))?;
        let path = |name| folder.path().join(name);
        let fixture = Fixture {
            scan: options.file.clone().unwrap_or_else(|| path("scan")),
            set: path("set"),
            hash: path("hash"),
            small: path("small"),
            files: options.files,
            folder,
        };
        for &row in rows {
            if row.is_of_small_files() {
                fixture.make_small_files()?;
                continue;
            }
            let path = fixture.path(row);
            if !path.exists() {
                Pattern::new(1).write_file(path, length_bytes(options, row))?;
                File::open(path)?.sync_all()?;
            }
        }
        Ok(fixture)
    }

    fn make_small_files(&self) -> io::Result<()> {
        if self.small.exists() {
            return Ok(());
        }
        std::fs::create_dir(&self.small)?;
        for index in 0..self.files {
            Pattern::new(index.into()).write_file(self.small_file(index), small_bytes(index))?;
        }
        Ok(rustix::fs::syncfs(File::open(&self.small)?)?)
    }

    pub(super) fn path(&self, row: Row) -> &Path {
        match row {
            Row::WarmRandom => &self.set,
            Row::FilesCold | Row::FilesWarm => &self.small,
            Row::Hash => &self.hash,
            _ => &self.scan,
        }
    }

    fn small_file(&self, index: u32) -> PathBuf {
        self.small.join(index.to_string())
    }

    /// # Errors
    /// Why the arm cannot run here; that files are not in the state that it has to find.
    pub(super) fn prepare(&self, row: Row, arm: Arm) -> io::Result<()> {
        if arm.needs_uring()
            && let Some(refusal) = uring_refusal()
        {
            return Err(io::Error::other(format!("there is no io_uring here: {refusal}")));
        }
        let state = arm.state(row);
        if !row.is_of_small_files() {
            let path = self.path(row);
            if arm.is_direct(row) {
                OpenFile::open(path, DirectIo::Required, Access::Read)?;
            }
            return bring_into(state, path);
        }
        (0..self.files).try_for_each(|index| bring_into(state, &self.small_file(index)))
    }
}

/// Of the file that a row reads.
fn length_bytes(options: &Options, row: Row) -> u64 {
    match row {
        Row::WarmRandom => options.set / PAGE * PAGE,
        Row::Hash => options.hash,
        Row::FilesCold | Row::FilesWarm => (0..options.files).map(small_bytes).sum(),
        _ if options.file.is_some() => 0,
        _ => options.scan,
    }
}

/// Of all that is made, each once.
fn bytes_of(options: &Options, rows: &[Row]) -> u64 {
    let files = [Row::ColdScan, Row::WarmRandom, Row::Hash, Row::FilesCold];
    let is_made = |file: &Row| rows.iter().any(|row| row.reads_file_of(*file));
    let lengths = files.into_iter().filter(is_made).map(|row| length_bytes(options, row));
    lengths.fold(0, u64::saturating_add)
}

fn bring_into(state: State, path: &Path) -> io::Result<()> {
    let wanted = match state {
        State::Cold => {
            tools::make_cold(path)?;
            Residency::None
        }
        State::Warm => {
            tools::make_warm(path)?;
            Residency::Whole
        }
    };
    let file = OpenFile::open(path, DirectIo::Off, Access::Read)?;
    let found = file.residency(ByteRange::new(0, file.length_bytes()?));
    // What the kernel does not tell cannot be checked.
    if found == wanted || found == Residency::Unknown {
        return Ok(());
    }
    let path = path.display();
    Err(io::Error::other(format!(
        "{path} is to be {state:?}, but the kernel's page cache holds {found:?} of it"
    )))
}

/// From 4 KiB to 16 KiB, of no round length.
fn small_bytes(index: u32) -> u64 {
    let span = SMALL_BYTES_MAX as u64 - PAGE;
    PAGE + u64::from(index) * 7919 % span
}
