//! Silent: a file whose device does not answer, beside all that the others do.
//!
//! Owns: what is asked of it, what of that is under way.
//! Does not own: what may wait for it (world).

use std::fs::File as StdFile;
use std::io;
use std::pin::Pin;
use std::task::{Context, Waker};

use headwater::testing::SimControl;
use headwater::{Caching, File, OpenOptions, ReadaheadPolicy};
use headwater_testkit::{Pattern, make_cold};

use super::World;
use crate::coverage::Reached;
use crate::steps::SILENT_MAX;

/// The file, and the tasks that wait for it.
pub(super) struct Silent {
    control: SimControl,
    file: File,
    tasks: Vec<Pin<Box<dyn Future<Output = headwater::Result<()>> + Send>>>,
}

impl Silent {
    /// Holds back whatever is asked of the file from now on.
    pub(super) fn new(world: &World) -> io::Result<Silent> {
        let path = world.directory.join("silent");
        Pattern::new(1).write_file(&path, PAGES * 4096)?;
        let opened = StdFile::open(&path)?;
        make_cold(&opened)?;
        world.control.hold(opened)?;
        let mut options = OpenOptions::new();
        options.engine(&world.engine).write(true).caching(Caching::On).readahead(ReadaheadPolicy::Off);
        Ok(Silent { control: world.control.clone(), file: options.open(&path)?, tasks: Vec::new() })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.control.release();
    }
}

impl World {
    /// A task begins to read, or to write and sync, and is not polled again.
    pub(super) fn hang(&mut self, page: u64) {
        let Some(silent) = self.silent.as_mut().filter(|silent| silent.tasks.len() < SILENT_MAX) else {
            return;
        };
        let (file, offset_bytes) = (silent.file.clone(), page % PAGES * 4096);
        // A writer that is short of memory gives a write up after a second, so these are few.
        let writes = page.is_multiple_of(16);
        let mut task: Pin<Box<dyn Future<Output = _> + Send>> = if writes {
            Box::pin(async move {
                file.write_all_at_async(vec![1; 4096], offset_bytes).await?;
                file.sync_data_async().await
            })
        } else {
            Box::pin(async move { file.read_at_async(offset_bytes, 100).await.map(drop) })
        };
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        silent.tasks.push(task);
        let reached = if writes { Reached::WriteHung } else { Reached::ReadHung };
        self.coverage.note_if(polled.is_pending(), reached);
    }

    /// Whether something was asked that may have no answer yet.
    pub(super) fn is_hung(&self) -> bool {
        self.silent.as_ref().is_some_and(|silent| !silent.tasks.is_empty())
    }

    /// The device answers from now on.
    pub(super) fn answer(&mut self) {
        self.silent = None;
    }
}

const PAGES: u64 = 64;
