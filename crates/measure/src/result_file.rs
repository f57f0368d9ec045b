//! Result file: whether a file of results can be written after the work, asked before it.
//!
//! ```text
//!   path ─┬─ regular file ──────────► opened as it will be, not cut
//!         ├─ nothing, or a link to it ► made where the links lead, and removed again
//!         └─ FIFO, device, … ───────► permissions alone: opening and closing a FIFO would end its reader
//! ```
//
// Owns: the check, which leaves all that is there as it was.
// Does not own: writing the results.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

/// Checks that [`std::fs::write`] can write to the path.
///
/// # Errors
/// What opening the file would report.
pub fn check(path: &Path) -> io::Result<()> {
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return check_creation(&end_of_links(path)),
        Err(error) => return Err(error),
    };
    match () {
        // `create` as in the end: the kernel refuses that for files of others in directories such as /tmp (`fs.protected_regular`).
        () if kind.is_file() || kind.is_dir() => {
            OpenOptions::new().append(true).create(true).open(path).map(drop)
        }
        () if kind.is_socket() => Err(Errno::NXIO.into()),
        () => Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?),
    }
}

/// Where the last of the symbolic links leads of which this path is the first, whether or not anything is there. Without a link, the path.
pub fn end_of_links(path: &Path) -> PathBuf {
    let mut end = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&end) else { break };
        end = end.parent().unwrap_or(Path::new("")).join(target);
    }
    end
}

/// Only what this call made is removed again.
fn check_creation(path: &Path) -> io::Result<()> {
    match File::create_new(path) {
        Ok(_) => {}
        // Another program was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    }
    // Nothing is lost if it stays: it is written to in the end.
    let _ = fs::remove_file(path);
    Ok(())
}

/// As many as Linux follows (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::fs::{FileType, Mode, OFlags, mknodat, open};

    use super::*;

    /// Goal: files stay as they are, and a file that is missing is missing afterwards.
    #[test]
    fn files_stay_as_they_are() {
        let place = tempfile::tempdir().unwrap();
        let (there, missing) = (place.path().join("there"), place.path().join("missing"));
        fs::write(&there, "mine").unwrap();
        check(&there).unwrap();
        check(&missing).unwrap();
        assert_eq!(fs::read(&there).unwrap(), b"mine");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        check(Path::new("/dev/full")).unwrap();
    }

    /// Goal: a symbolic link to nothing is a link afterwards, and nothing has come into being where it leads. Method: a chain of two
    /// relative links through a directory.
    #[test]
    fn links_to_nothing_stay_links() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        symlink("folder/second", at("first")).unwrap();
        symlink("target", at("folder/second")).unwrap();
        check(&at("first")).unwrap();
        assert_eq!(fs::read_link(at("first")).unwrap(), Path::new("folder/second"));
        assert_eq!(fs::read_link(at("folder/second")).unwrap(), Path::new("target"));
        assert!(!at("folder/target").exists());
        assert_eq!(end_of_links(&at("first")), at("folder/target"));
        symlink("nowhere/target", at("lost")).unwrap();
        assert_eq!(check(&at("lost")).unwrap_err().kind(), io::ErrorKind::NotFound);
        symlink("circle", at("circle")).unwrap();
        assert_eq!(Errno::from_io_error(&check(&at("circle")).unwrap_err()), Some(Errno::LOOP));
    }

    /// Goal: the reader of a FIFO waits for the results. Method: one that would see the end at once if the check opened the FIFO.
    #[test]
    fn readers_of_fifos_go_on() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = File::from(open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
        check(&fifo).unwrap();
        let mut polled = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())).unwrap();
        assert!(!polled[0].revents().contains(rustix::event::PollFlags::HUP), "no writer has come and gone");
        // Nor does the check wait for a reader.
        drop(reader);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(check(&fifo).is_ok()));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    /// Goal: what cannot be written to is an error before the work.
    #[test]
    fn what_cannot_be_written_is_refused() {
        let place = tempfile::tempdir().unwrap();
        assert!(check(place.path()).is_err(), "a directory");
        assert!(check(&place.path().join("no/file")).is_err(), "no directory");
        assert!(check(Path::new("")).is_err(), "no name");
        let socket = place.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(check(&socket).is_err(), "a socket");
    }
}
