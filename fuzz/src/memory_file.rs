//! Memory file: files without a name, which have a path as long as they are open.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, memfd_create, openat};

/// A regular file that leaves nothing behind when the process ends, however that is.
pub struct MemoryFile {
    /// Its descriptor.
    pub file: File,
    path: PathBuf,
}

impl MemoryFile {
    /// An empty one in memory, whose offsets go to 2^63 - 1 and which has no direct I/O.
    pub fn new() -> MemoryFile {
        let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("there is memory for a file");
        MemoryFile::of(file.into())
    }

    /// An empty one where temporary files lie, which mostly has direct I/O.
    ///
    /// # Errors
    /// What `open(2)` reports; there may be no such files there.
    pub fn on_disk() -> io::Result<MemoryFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(CWD, std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(MemoryFile::of(file.into()))
    }

    fn of(file: File) -> MemoryFile {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        MemoryFile { file, path }
    }

    /// Where it can be opened in this process.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces its contents, and returns its path.
    pub fn with(&mut self, contents: &[u8]) -> &Path {
        let write = |mut file: &File| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(contents)
        };
        write(&self.file).expect("there is memory for the contents");
        &self.path
    }
}

impl Default for MemoryFile {
    fn default() -> MemoryFile {
        MemoryFile::new()
    }
}
