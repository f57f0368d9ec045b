//! Store: a path becomes an open object, newly opened or kept, and never an outdated one.
//!
//! ```text
//!   open ─► kept? ─┬─ statx of the path: same and unchanged ─► check of the cached pages ─► this one
//!                  └─ opened ─► no descriptor left? kept ones are closed, once more ─► kept
//! ```
//!
//! Owns: the engine, when a kept file may be used.
//! Does not own: which files are kept (open files), how they are opened (opening), what is read of them.

use std::path::Path;
use std::sync::Arc;

use headwater::Engine;
use rustix::io::Errno;

use crate::failure::Failure;
use crate::object::Object;
use crate::open_files::OpenFiles;
use crate::opening;
use crate::status::Status;

/// What all clones of a file system share.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// `None` for the global one.
    engine: Option<Engine>,
    files: Arc<OpenFiles>,
}

impl Store {
    pub(crate) fn new(engine: Option<Engine>) -> Store {
        Store { engine, files: Arc::new(OpenFiles::new()) }
    }

    /// The object at a path.
    pub(crate) async fn open(&self, path: &Path) -> Result<Arc<Object>, Failure> {
        if let Some(kept) = self.kept(path)? {
            return Ok(kept);
        }
        let object = Arc::new(Object::of(self.open_anew(path).await?));
        self.files.keep(path.to_owned(), &object);
        Ok(object)
    }

    /// Length and times of the object at a path: one system call, in the calling thread. It waits where the kernel knows nothing of the path
    /// and has to ask a device; to find that out first, as openings do, takes two more calls each time.
    pub(crate) fn status(&self, path: &Path) -> Result<Status, Failure> {
        let metadata = std::fs::metadata(path).map_err(|error| Failure::of_metadata(path, error))?;
        if metadata.is_dir() {
            return Err(Failure::folder(path));
        }
        Ok(Status::from(&metadata))
    }

    /// Called for each path that may lead elsewhere from now on.
    pub(crate) fn changed(&self, path: &Path) {
        self.files.forget(path);
    }

    /// The kept file, if the path still leads to it.
    fn kept(&self, path: &Path) -> Result<Option<Arc<Object>>, Failure> {
        let Some(kept) = self.files.find(path) else { return Ok(None) };
        let now = self.status(path);
        if matches!(&now, Ok(now) if *now == kept.status()) {
            // Two writes within one tick of the kernel's clock may have the same time.
            kept.refresh()?;
            return Ok(Some(kept));
        }
        self.files.forget(path);
        now.map(|_| None)
    }

    async fn open_anew(&self, path: &Path) -> Result<headwater::File, Failure> {
        let engine = match &self.engine {
            Some(engine) => engine.clone(),
            None => Engine::global()?,
        };
        match opening::open(&engine, path).await {
            Err(error) if is_short_of_descriptors(&error) && self.files.clear() => {
                Ok(opening::open(&engine, path).await?)
            }
            opened => Ok(opened?),
        }
    }
}

fn is_short_of_descriptors(error: &headwater::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
