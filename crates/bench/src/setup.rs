//! Setup: what the ways of all groups of `bars` need: options, files, what one group learns for another.
//!
//! Owns: the options, the folder of all files and its end.
//! Does not own: which groups there are (bars), what is in a file.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use crate::folder::Folder;
use crate::tools;

/// Options of `bars`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// File to read: larger is better. For the warm rows it should fit
    /// in memory.
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// Where files are made: beside the file by default, and not there if that is a block device.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// File for the warm rows of `cat`; by default the same.
    #[arg(long)]
    pub(crate) warm_file: Option<PathBuf>,
    /// The headwater command.
    #[arg(long, default_value = "target/release/headwater")]
    pub(crate) headwater: PathBuf,
    /// GNU cat, for the rows into a pipe.
    #[arg(long, default_value = "/bin/cat")]
    pub(crate) gnu_cat: PathBuf,
    /// The uutils multi-call binary (`cargo install coreutils`), for the same.
    #[arg(long, default_value = "coreutils")]
    pub(crate) uutils: PathBuf,
    /// b3sum; the rows of `hash` are skipped without it.
    #[arg(long, default_value = "b3sum")]
    pub(crate) b3sum: PathBuf,
    /// GNU cp.
    #[arg(long, default_value = "/bin/cp")]
    pub(crate) gnu_cp: PathBuf,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Seconds of each random arm.
    #[arg(long, default_value_t = 3.0, value_parser = tools::seconds)]
    pub(crate) seconds: f64,
    /// Only these groups [default: all]; `write` is all that begin so.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// `write`: divides the sizes of files that it writes, which are up to 8 GiB.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) shrink: u64,
    /// Write the results to this file as JSON too: a suite for each group.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// What the ways of all groups have in common.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a Options,
    /// Emptied after each group.
    pub(crate) folder: Folder,
    /// What the device takes at most, once fio has written to it.
    pub(crate) write_limit_mib_per_s: Cell<Option<f64>>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(options: &'a Options) -> io::Result<Bench<'a>> {
        [&options.file].into_iter().chain(&options.warm_file).try_for_each(|file| tools::check_file(file))?;
        let folder = match &options.dir {
            Some(dir) => Folder::create(dir)?,
            None if !options.file.is_file() => {
                let text = "beside a device there is no place for files; give a --dir";
                return Err(tools::about(&options.file, io::Error::other(text)));
            }
            None => Folder::beside(&options.file)?,
        };
        Ok(Bench { options, folder, write_limit_mib_per_s: Cell::new(None) })
    }

    /// A file or a folder for one group.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file of rows that the kernel's page cache has to hold.
    pub(crate) fn warm_file(&self) -> &Path {
        self.options.warm_file.as_deref().unwrap_or(&self.options.file)
    }

    /// The next group may need the room.
    pub(crate) fn remove_files(&self) -> io::Result<()> {
        for entry in self.folder.path().read_dir()? {
            let path = entry?.path();
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }?;
        }
        Ok(())
    }
}
