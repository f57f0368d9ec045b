//! Backing: open files behind the seam that knows no system, each kind in its form.
//!
//! Owns: form, length and reads of a stored file and of devices, as code sees them that knows nothing else.
//! Does not own: bytes in memory (`headwater-core`).

use std::io;
use std::path::Path;

use headwater_core::backing::{Backing, Form};
use headwater_io::{Access, DirectIo, OpenFile};
use headwater_testkit::{Pattern, ScratchDir};

/// The first `wanted` bytes, of whatever it is.
fn start_of<B: Backing>(backing: &B, wanted: usize) -> Result<Vec<u8>, B::Error> {
    let mut bytes = vec![0xee; wanted];
    let read_bytes = backing.read_at(&mut bytes, 0)?;
    bytes.truncate(read_bytes);
    Ok(bytes)
}

fn open(path: &Path) -> OpenFile {
    OpenFile::open(path, DirectIo::Preferred, Access::Read).unwrap()
}

/// Goal: a stored file is worth keeping, has a length and gives its bytes; a character device is none of that.
#[test]
fn forms() -> io::Result<()> {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    let pattern = Pattern::new(1);
    pattern.write_file(&path, 10_001)?;
    let file = open(&path);
    assert_eq!((file.form(), Backing::length_bytes(&file)?), (Form::Cached, Some(10_001)));
    let bytes = start_of(&file, 20_000)?;
    assert_eq!((bytes.len(), pattern.mismatch(0, &bytes)), (10_001, None));
    assert_eq!(Backing::read_at(&file, &mut [0; 10], 10_001)?, 0);
    let zero = open(Path::new("/dev/zero"));
    assert_eq!((zero.form(), Backing::length_bytes(&zero)?), (Form::Direct, None));
    assert_eq!(start_of(&zero, 5000)?, [0; 5000]);
    assert_eq!(start_of(&open(Path::new("/dev/null")), 10)?, []);
    Ok(())
}
