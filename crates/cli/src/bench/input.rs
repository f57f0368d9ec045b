//! Input: the file of a child, which is its standard input, as all children look at it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use headwater::ByteRange;
use headwater::ring::{Access, DirectIo, OpenFile};

/// The file is handed over as standard input and opened again from there: it may have no name any more.
pub(super) const INPUT: &str = "/proc/self/fd/0";

/// For reading and, where the options say so, writing around the page cache.
pub(super) fn direct(options: &mut std::fs::OpenOptions) -> io::Result<File> {
    options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(INPUT)
}

/// Reads this number of bytes once, from start to end.
pub(super) fn pass(bytes: u64, read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; PASS_BYTES];
    (0..bytes).step_by(PASS_BYTES).try_for_each(|offset_bytes| {
        let length = (bytes - offset_bytes).min(PASS_BYTES as u64) as usize;
        read(&mut buffer[..length], offset_bytes)
    })
}

/// How many pages of its first bytes the kernel's page cache holds; `None` where the kernel does not tell.
pub(super) fn resident_pages(bytes: u64) -> io::Result<Option<u64>> {
    let open = OpenFile::open(Path::new(INPUT), DirectIo::Off, Access::Read)?;
    Ok(open.resident_pages(ByteRange::new(0, bytes)))
}

/// A way that gives wrong bytes may be as fast as it likes: compares what was read at a place with the file.
///
/// # Errors
/// That they differ.
pub(super) fn check(file: &File, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
    let mut expected = vec![0; bytes.len()];
    file.read_exact_at(&mut expected, offset_bytes)?;
    if bytes == expected { Ok(()) } else { Err(wrong_bytes(offset_bytes)) }
}

pub(super) fn wrong_bytes(offset_bytes: u64) -> io::Error {
    let text = format!("wrong bytes at offset {offset_bytes}: has the file changed?");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

pub(super) fn no_such_row() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "there is no such row")
}

/// As large as readers ask for that know what they want.
const PASS_BYTES: usize = 1 << 20;

/// How many places are compared with the file.
pub(super) const CHECKS: u64 = 64;
