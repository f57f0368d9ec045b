//! Leaving: the process ends, with handles, tasks, windows, dirty pages and threads in whatever state.
//!
//! Owns: the ways of ending, the threads that use the engine meanwhile.
//! Does not own: what the files have then (exits).

use std::io::Read;
use std::sync::mpsc::channel;
use std::thread;

use headwater::{Caching, File, OpenOptions};

use super::{Outcome, World, text};
use crate::coverage::Reached;
use crate::exits::{LEFT, keeps_all, report};
use crate::steps::{Exit, Way};

impl World {
    /// # Errors
    /// When it cannot be stored what the files may have. Else the process ends.
    pub(crate) fn exit(mut self, exit: Exit) -> Outcome {
        if exit.threads > 0 {
            // Their writes are progress: an exit would wait for a device without an answer until its last limit.
            self.control.release();
        }
        self.begin_threads(exit.threads)?;
        self.note_outbreaks();
        for (reached, has_happened) in [
            (Reached::Exited, true),
            (Reached::ExitFlushed, exit.way == Way::Exits),
            (Reached::ExitWhileEnding, exit.way == Way::Ending),
            (Reached::ExitBesideTasks, !self.tasks.is_empty()),
            (Reached::ExitBesideWindows, !self.windows.is_empty()),
            (Reached::ExitBesideThreads, exit.threads > 0),
            (Reached::ExitBesideFaults, self.is_faulty),
            (Reached::ExitBesideHung, self.control.held_requests() > 0),
        ] {
            self.coverage.note_if(has_happened, reached);
        }
        for (number, target) in self.targets.iter().enumerate() {
            let versions = &target.versions;
            let is_kept = keeps_all(exit, self.is_faulty, target.is_latched);
            let since = if is_kept { versions.now() } else { versions.synced() };
            versions.save(since, &self.directory.join("apart").join(number.to_string())).map_err(text)?;
        }
        report(&self.directory, &self.coverage).map_err(text)?;
        match exit.way {
            Way::Exits => std::process::exit(LEFT),
            Way::Killed => {
                let this = rustix::process::getpid();
                rustix::process::kill_process(this, rustix::process::Signal::KILL).map_err(text)?;
                Err("it was killed".to_owned())
            }
            Way::Ending => {
                let (begun, begins) = channel();
                thread::spawn(move || {
                    let _ = begun.send(());
                    drop(self);
                });
                let _ = begins.recv();
                std::process::exit(LEFT)
            }
        }
    }

    /// Threads that use files of the engine, and are in the middle of something when the process ends.
    fn begin_threads(&self, count: usize) -> Outcome {
        let mut options = OpenOptions::new();
        let beside = options
            .engine(&self.engine)
            .caching(Caching::On)
            .write(true)
            .create(true)
            .open(self.directory.join("beside"));
        let beside = beside.map_err(text)?;
        let paths = self.targets.iter().filter(|target| target.path.exists()).map(|target| &target.path);
        let reads = paths.map(|path| OpenOptions::new().engine(&self.engine).open(path));
        let files = reads.collect::<Result<Vec<File>, _>>().map_err(text)?;
        for number in 0..count {
            let (beside, files) = (beside.clone(), files.clone());
            thread::spawn(move || use_beside(number, &beside, &files));
        }
        Ok(())
    }
}

/// Whatever fails does so again and again.
fn use_beside(number: usize, beside: &File, files: &[File]) {
    let mut buffer = vec![7; 20_000];
    for round in 0_u64.. {
        match number {
            0 => _ = beside.write_all_at(&buffer, round * 20_000 % (1 << 20)),
            1 => files.iter().for_each(|file| _ = file.reader().read_to_end(&mut Vec::new())),
            2 => _ = beside.sync_data(),
            _ => files.iter().for_each(|file| _ = file.read_at(&mut buffer, round * 5000 % 100_000)),
        }
    }
}
