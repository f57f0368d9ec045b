//! Crew: threads that read files at the same time, and report them in order.
//!
//! ```text
//!   each thread: next job ─► read, hash ─► outcome ─┬─ next in order ─► reported, with the outcomes that waited for it
//!                                                   └─ else ─► waits
//! ```
//!
//! Owns: threads, the order.
//! Does not own: reading (`contents`), texts (`report`).
//! Locks: jobs, then nothing; outcomes, then nothing. Directories and lists are read under the first, lines are written under the
//! second: a thread that waits for either has nothing else to do, and a separate thread for each would have to be woken for every file.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use headwater_io::{lock, unpoisoned};

use super::contents::{Contents, Failure};
use super::jobs::{Job, Jobs};
use super::progress::Progress;
use super::report::{Outcome, Report};

pub(super) struct Crew<'a> {
    jobs: Mutex<Numbered>,
    outcomes: Mutex<Outcomes<'a>>,
    /// Wakes threads that wait until fewer outcomes do.
    reported: Condvar,
    is_stopped: &'a AtomicBool,
    progress: &'a Progress,
}

struct Outcomes<'a> {
    next: usize,
    waiting: BTreeMap<usize, Outcome>,
    report: Report<'a>,
    error: Option<io::Error>,
}

impl<'a> Crew<'a> {
    pub(super) fn new(
        jobs: Jobs,
        report: Report<'a>,
        progress: &'a Progress,
        is_stopped: &'a AtomicBool,
    ) -> Crew<'a> {
        let outcomes = Outcomes { next: 0, waiting: BTreeMap::new(), report, error: None };
        Crew {
            jobs: Mutex::new(Numbered { next: 0, jobs }),
            outcomes: Mutex::new(outcomes),
            reported: Condvar::new(),
            is_stopped,
            progress,
        }
    }

    /// Does all jobs with `threads` threads. Returns the jobs, which hold counts, and the report.
    ///
    /// # Errors
    /// What writing to standard output reports; the remaining files are not read then.
    pub(super) fn run(self, contents: &Contents<'_>, threads: usize) -> io::Result<(Jobs, Report<'a>)> {
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // If the system refuses more threads, fewer do the work.
                let started = std::thread::Builder::new().spawn_scoped(scope, || self.work(contents));
                if started.is_err() {
                    break;
                }
            }
            self.work(contents);
        });
        let outcomes = unpoisoned(self.outcomes.into_inner());
        let jobs = unpoisoned(self.jobs.into_inner()).jobs;
        match outcomes.error {
            Some(error) => Err(error),
            None => Ok((jobs, outcomes.report)),
        }
    }

    fn work(&self, contents: &Contents<'_>) {
        let mut buffer = contents.buffer();
        while !self.is_stopped.load(Ordering::Relaxed) {
            let Some((index, job)) = lock(&self.jobs).next() else { break };
            let (path, result) = match job.subject {
                Ok(subject) => (subject.path().to_owned(), contents.read(&subject, &mut buffer)),
                Err(unreached) => (unreached.path, Err(Failure::Open(unreached.error))),
            };
            self.progress.add_file();
            self.tell(index, Outcome { path, expected: job.expected, result });
        }
    }

    fn tell(&self, index: usize, outcome: Outcome) {
        let mut outcomes = lock(&self.outcomes);
        if outcomes.tell(index, outcome).is_err() {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        self.reported.notify_all();
        // All of them wait for the next in order, which a thread that does not wait here is reading.
        while outcomes.waiting.len() > WAITING_MAX && !self.is_stopped.load(Ordering::Relaxed) {
            outcomes = unpoisoned(self.reported.wait(outcomes));
        }
    }
}

struct Numbered {
    next: usize,
    jobs: Jobs,
}

impl Numbered {
    fn next(&mut self) -> Option<(usize, Job)> {
        let job = self.jobs.next()?;
        self.next += 1;
        Some((self.next - 1, job))
    }
}

impl Outcomes<'_> {
    /// Reports an outcome once all before it are reported.
    fn tell(&mut self, index: usize, outcome: Outcome) -> Result<(), Stopped> {
        if self.error.is_some() {
            return Err(Stopped);
        }
        self.waiting.insert(index, outcome);
        while let Some(outcome) = self.waiting.remove(&self.next) {
            self.next += 1;
            if let Err(error) = self.report.tell(outcome) {
                self.error = Some(error);
                return Err(Stopped);
            }
        }
        Ok(())
    }
}

/// Standard output failed: nothing more can be reported.
struct Stopped;

/// Outcomes of small files, while a large one before them is read: some 30 MB.
const WAITING_MAX: usize = 100_000;
