//! Store: a path becomes an open object, newly opened or kept, and never an outdated one.
//!
//! ```text
//!   open ─► kept? ─┬─ check of the cached pages ─► statx of the path: same and unchanged ─► this one
//!                  └─ opened ─► no descriptor left? kept ones are closed, once more ─► kept
//! ```
//!
//! Owns: when a kept file may be used.
//! Does not own: which files are kept (open files), how they are opened (opening), the engine and how far ahead it reads (ahead), what is
//! read of them.

use std::path::Path;
use std::sync::Arc;

use headwater::Engine;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;

use crate::ahead::Ahead;
use crate::failure::Failure;
use crate::object::Object;
use crate::open_files::OpenFiles;
use crate::opening;
use crate::status::Status;

/// What all clones of a file system share.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    files: Arc<OpenFiles>,
    ahead: Arc<Ahead>,
}

impl Store {
    /// With this engine; with the global one without.
    pub(crate) fn new(engine: Option<Engine>) -> Store {
        Store { files: Arc::new(OpenFiles::new()), ahead: Ahead::of(engine) }
    }

    /// The object at a path.
    pub(crate) async fn open(&self, path: &Path) -> Result<Arc<Object>, Failure> {
        self.ahead.look()?;
        if let Some(kept) = self.kept(path).await? {
            return Ok(kept);
        }
        let object = Arc::new(Object::of(self.open_anew(path).await?, self.ahead.clone()));
        self.files.keep(path.to_owned(), &object);
        Ok(object)
    }

    /// The object at a path, if it is still the one that had this status.
    pub(crate) async fn open_same(&self, path: &Path, status: Status) -> Result<Arc<Object>, Failure> {
        let object = self.open(path).await?;
        if object.status().e_tag() != status.e_tag() {
            return Err(Failure::Changed { path: path.to_owned() });
        }
        Ok(object)
    }

    /// Length and times of the object at a path, from the server of a network file system too.
    pub(crate) async fn status(&self, path: &Path) -> Result<Status, Failure> {
        if opening::answers_at_once(path) {
            return status(path);
        }
        let path = path.to_owned();
        opening::elsewhere(move || status(&path)).await
    }

    /// Closes the file of a path that is about to lead elsewhere, or does since now.
    pub(crate) fn changed(&self, path: &Path) {
        self.files.forget(path);
    }

    /// The kept file, if the path still leads to it.
    async fn kept(&self, path: &Path) -> Result<Option<Arc<Object>>, Failure> {
        let Some(kept) = self.files.find(path) else { return Ok(None) };
        // First its pages: two writes within one tick of the kernel's clock may have the same time. It fails where the file is stale, as
        // one that another machine has replaced.
        let look = |kept: &Object, path: &Path| (kept.refresh().is_ok(), status(path));
        let (is_fresh, now) = if kept.is_on_server() {
            let (kept, path) = (kept.clone(), path.to_owned());
            opening::elsewhere(move || look(&kept, &path)).await
        } else {
            look(&kept, path)
        };
        if is_fresh && matches!(&now, Ok(now) if *now == kept.status()) {
            return Ok(Some(kept));
        }
        self.files.forget(path);
        now.map(|_| None)
    }

    async fn open_anew(&self, path: &Path) -> Result<headwater::File, Failure> {
        let engine = self.ahead.engine()?;
        match opening::open(&engine, path).await {
            Err(error) if is_short_of_descriptors(&error) && self.files.clear() => {
                Ok(opening::open(&engine, path).await?)
            }
            opened => Ok(opened?),
        }
    }
}

/// One system call, in the calling thread.
fn status(path: &Path) -> Result<Status, Failure> {
    match statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS) {
        Ok(found) if FileType::from_raw_mode(found.stx_mode.into()).is_dir() => Err(Failure::folder(path)),
        Ok(found) => Ok(Status::from(&found)),
        // Sandboxes older than the call forbid it with either error.
        Err(Errno::NOSYS | Errno::PERM) => match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Err(Failure::folder(path)),
            Ok(metadata) => Ok(Status::from(&metadata)),
            Err(error) => Err(Failure::of_metadata(path, error)),
        },
        Err(error) => Err(Failure::of_metadata(path, error.into())),
    }
}

fn is_short_of_descriptors(error: &headwater::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
