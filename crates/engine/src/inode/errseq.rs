//! Errseq: errors of writeback, each reported once to each handle.
//!
//! As in the kernel (`Documentation/core-api/errseq_t`): a counter grows with each error, and a handle remembers the count up to
//! which it has reported. A failed `fsync(2)` is reported for ever: the device lost what it had accepted.
//!
//! Owns: the errors of one file.
//! Does not own: what each handle has reported (handle).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use headwater_io::lock;

/// The errors of a file.
#[derive(Debug, Default)]
pub(crate) struct Errseq {
    failures: Mutex<Failures>,
    /// Number of errors, read without the lock to check for new ones.
    count: AtomicU64,
}

#[derive(Debug, Default)]
struct Failures {
    count: u64,
    last: Option<Cause>,
    /// The first failed sync: durability is unknown from then on.
    latched: Option<Cause>,
}

/// An error that several handles report.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    errno: Option<i32>,
    kind: io::ErrorKind,
    text: String,
}

impl Errseq {
    /// Notes a failed write.
    pub(crate) fn note(&self, error: &io::Error) {
        self.change(|failures| failures.last = Some(Cause::of(error)));
    }

    /// Notes a failed sync: the device lost what it had accepted, and every later sync reports so.
    pub(crate) fn latch(&self, error: &io::Error) {
        self.change(|failures| _ = failures.latched.get_or_insert(Cause::of(error)));
    }

    /// Forgets a failed sync.
    pub(crate) fn unlatch(&self) {
        self.lock().latched = None;
    }

    fn change(&self, change: impl FnOnce(&mut Failures)) {
        let mut failures = self.lock();
        failures.count += 1;
        self.count.store(failures.count, Ordering::Release);
        change(&mut failures);
    }

    /// Number of errors so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The last error, unless this handle has reported it (`reported`) and no error came after the first `since`; or the failed
    /// sync, for ever.
    pub(crate) fn report(&self, reported: &AtomicU64, since: u64) -> Option<io::Error> {
        let failures = self.lock();
        if let Some(latched) = &failures.latched {
            return Some(latched.latched());
        }
        let is_known =
            reported.swap(failures.count, Ordering::AcqRel) == failures.count && failures.count == since;
        failures.last.as_ref().filter(|_| !is_known).map(Cause::error)
    }

    /// The last error, once for each handle. A failed sync is left to the next sync to report.
    #[inline]
    pub(crate) fn report_write(&self, reported: &AtomicU64) -> Option<io::Error> {
        let is_known = self.count.load(Ordering::Acquire) == reported.load(Ordering::Relaxed);
        if is_known { None } else { self.report_new(reported) }
    }

    #[cold]
    fn report_new(&self, reported: &AtomicU64) -> Option<io::Error> {
        let failures = self.lock();
        if failures.latched.is_some() {
            return None;
        }
        let is_known = reported.swap(failures.count, Ordering::AcqRel) == failures.count;
        failures.last.as_ref().filter(|_| !is_known).map(Cause::error)
    }

    /// The last error.
    pub(crate) fn last(&self) -> Option<io::Error> {
        self.lock().last.as_ref().map(Cause::error)
    }

    fn lock(&self) -> MutexGuard<'_, Failures> {
        lock(&self.failures)
    }
}

impl Cause {
    pub(crate) fn of(error: &io::Error) -> Cause {
        Cause { errno: error.raw_os_error(), kind: error.kind(), text: error.to_string() }
    }

    pub(crate) fn error(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }

    fn latched(&self) -> io::Error {
        let text = format!("an earlier sync failed, so what was written before may be lost: {}", self.text);
        io::Error::new(self.kind, text)
    }
}
