//! Stop: the signals that end a command, and the pipe that ends a child with its parent.
//!
//! ```text
//!   Ctrl-C, SIGTERM ─► Stop ─► the command returns ─► its clusters are dropped ─► their processes are killed
//!   SIGKILL of the command ─► the pipe closes ─► each child ends by itself
//! ```
//!
//! Owns: when to end.
//! Does not own: what is dropped then.

use std::future::Future;
use std::io::{self, Read};
use std::path::PathBuf;
use std::{process, thread};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Error, Result};

/// Listens for the signals from its making on, so that none is lost between two waits.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Listens.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> Result<Stop> {
        let listen = |kind| signal(kind).map_err(|error| Error::other("listening for signals")(&error));
        Ok(Stop { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Until one of them has come.
    pub async fn come(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Until the work is done. When a signal comes first, the work is dropped.
    ///
    /// # Errors
    /// That of the work; that it was stopped.
    pub async fn or<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            outcome = work => outcome,
            () = self.come() => Err(Error::Other("stopped".to_owned())),
        }
    }
}

/// Ends this process when standard input does, after it has removed a folder. What runs meanwhile is lost.
pub fn end_with_standard_input(folder: Option<PathBuf>) {
    let wait = move || {
        // What comes is nothing to this process, and an error is an end, too.
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        // The parent removes it where this fails, unless it was killed.
        folder.map(std::fs::remove_dir_all);
        process::exit(0);
    };
    thread::spawn(wait);
}
