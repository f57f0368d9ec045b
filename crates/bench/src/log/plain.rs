//! Plain: a log of std alone, as one writes it by hand: a mutex, one `write` each, one `fdatasync` for all that wait.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

pub(super) struct PlainLog {
    file: File,
    state: Mutex<State>,
    synced: Condvar,
}

#[derive(Default)]
struct State {
    written: u64,
    durable: u64,
    is_syncing: bool,
}

impl PlainLog {
    pub(super) fn open(path: &Path) -> io::Result<PlainLog> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(PlainLog { file, state: Mutex::default(), synced: Condvar::new() })
    }

    /// The lines that headwater is measured against.
    pub(super) fn append(&self, record: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.file).write_all(record)?;
        state.written += 1;
        let own = state.written;
        while state.durable < own {
            if state.is_syncing {
                state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_syncing = true;
            let written = state.written;
            drop(state);
            self.file.sync_data()?;
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.durable, state.is_syncing) = (written, false);
            self.synced.notify_all();
        }
        Ok(())
    }

    pub(super) fn append_alone(&self, record: &[u8]) -> io::Result<()> {
        (&self.file).write_all(record)?;
        self.file.sync_data()
    }
}
