//! Ahead: how much the readers of an engine may have in flight, of the memory that it can have.
//!
//! ```text
//!   memory that the engine can have (looked at once a second) ─► a quarter ─► split between the readers ─► share of each
//! ```
//!
//! Pages that are read ahead and evicted before their reader comes are read again. A reader of one piece at most has no share, and takes
//! nothing from the others; nor does one that asks for nothing from one look to the next, until it asks again.
//!
//! Owns: the quarter, the readers that count, the look at the engine.
//! Does not own: how far a reader goes within its share (stream, ranges).
//! Invariant: beyond its current piece no reader goes farther ahead than its share. When others come, it first consumes what it is ahead.
//! Locks: one around the list of shares, one around that of engines; neither is held across a call of the engine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use headwater::Engine;

/// What all files of all stores on one engine share.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// `None` for the global one.
    engine: Option<Engine>,
    began: Instant,
    /// The next look at the engine, in milliseconds since `began`.
    next_look_ms: AtomicU64,
    /// Without a bound, until the first look.
    memory_bytes: AtomicU64,
    /// Shares that count.
    readers: AtomicU64,
    shares: Mutex<Vec<Weak<Share>>>,
}

/// One for each engine that a store reads with.
static ENGINES: Mutex<Vec<Weak<Ahead>>> = Mutex::new(Vec::new());

impl Ahead {
    /// That of an engine; of the global one without.
    pub(crate) fn of(engine: Option<Engine>) -> Arc<Ahead> {
        let new = || Arc::new(Ahead::new(engine.clone()));
        // A forked child may inherit the lock as another thread held it, for ever.
        let attempt = |_| {
            ENGINES.try_lock().ok().or_else(|| {
                thread::yield_now();
                None
            })
        };
        let Some(mut all) = (0..ATTEMPTS_MAX).find_map(attempt) else { return new() };
        // The last handle of an engine must not be dropped under the lock.
        let known: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        let found = known.iter().find(|ahead| ahead.engine == engine).cloned().unwrap_or_else(new);
        all.retain(|ahead| ahead.strong_count() > 0 && !ahead.ptr_eq(&Arc::downgrade(&found)));
        all.push(Arc::downgrade(&found));
        drop(all);
        found
    }

    fn new(engine: Option<Engine>) -> Ahead {
        let (next_look_ms, readers) = (AtomicU64::new(0), AtomicU64::new(0));
        let memory_bytes = AtomicU64::new(u64::MAX);
        Ahead { engine, began: Instant::now(), next_look_ms, memory_bytes, readers, shares: Mutex::default() }
    }

    pub(crate) fn engine(&self) -> headwater::Result<Engine> {
        match &self.engine {
            Some(engine) => Ok(engine.clone()),
            None => Engine::global(),
        }
    }

    /// Looks how much memory the engine can have, and which readers use their shares, if the last look was a second ago: an engine without
    /// a number has less where others need it.
    pub(crate) fn look(&self) -> headwater::Result<()> {
        self.look_at(self.began.elapsed())
    }

    fn look_at(&self, now: Duration) -> headwater::Result<()> {
        let now_ms = now.as_millis() as u64;
        let due_ms = self.next_look_ms.load(Ordering::Relaxed);
        let next_ms = now_ms + LOOK_EVERY.as_millis() as u64;
        // Of several threads one looks.
        let exchange = |due_ms| {
            self.next_look_ms.compare_exchange(due_ms, next_ms, Ordering::Relaxed, Ordering::Relaxed)
        };
        if now_ms < due_ms || exchange(due_ms).is_err() {
            return Ok(());
        }
        let bytes = self.engine()?.stats().memory.possible_bytes;
        // In a forked child the engine has no memory and reads nothing ahead.
        if bytes > 0 {
            self.memory_bytes.store(bytes, Ordering::Relaxed);
        }
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let living: Vec<_> = shares.iter().filter_map(Weak::upgrade).collect();
        *shares = living.iter().map(Arc::downgrade).collect();
        drop(shares);
        living
            .iter()
            .filter(|share| !share.is_used.swap(false, Ordering::Relaxed))
            .for_each(|idle| idle.count(false));
        Ok(())
    }

    /// The share of one more reader.
    pub(crate) fn share(self: &Arc<Self>) -> Arc<Share> {
        let (is_used, is_counted) = (AtomicBool::new(true), AtomicBool::new(false));
        let share = Arc::new(Share { ahead: self.clone(), is_used, is_counted });
        share.count(true);
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&share));
        share
    }
}

/// The share of one reader, as long as it lives.
#[derive(Debug)]
pub(crate) struct Share {
    ahead: Arc<Ahead>,
    /// Since the last look.
    is_used: AtomicBool,
    is_counted: AtomicBool,
}

impl Share {
    /// How many bytes this reader may have in flight now: whole steps, so that its requests begin where pages do.
    pub(crate) fn bytes(&self) -> u64 {
        // An engine that cannot be had is an error of the next opening.
        _ = self.ahead.look();
        self.is_used.store(true, Ordering::Relaxed);
        self.count(true);
        let readers = self.ahead.readers.load(Ordering::Relaxed).max(1);
        let bytes = self.ahead.memory_bytes.load(Ordering::Relaxed) / MEMORY_DIVISOR / readers;
        bytes / STEP_BYTES * STEP_BYTES
    }

    fn count(&self, is_counted: bool) {
        match (self.is_counted.swap(is_counted, Ordering::Relaxed), is_counted) {
            (false, true) => _ = self.ahead.readers.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.ahead.readers.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.count(false);
    }
}

/// A quarter, as the engine's own readahead takes in a file: half of the memory may be lent to callers that hold what they have read, and
/// demands need the rest.
const MEMORY_DIVISOR: u64 = 4;

/// Some milliseconds; the lock is held for less than a microsecond.
const ATTEMPTS_MAX: u32 = 10_000;

/// As often as memory that others take is noticed; a look costs 20 to 30 microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Many pages of any size, and small beside a piece.
const STEP_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 16 << 20;

    fn engine() -> Option<Engine> {
        Some(Engine::builder().memory(SIZE).build().unwrap())
    }

    /// Goal: readers have a quarter of the engine's memory together, in equal shares, and what one leaves the others get.
    #[test]
    fn readers_share_a_quarter() {
        let ahead = Ahead::of(engine());
        let first = ahead.share();
        assert_eq!(first.bytes(), SIZE / 4, "a reader looks by itself");
        let (second, third) = (ahead.share(), ahead.share());
        assert_eq!(
            [&first, &second, &third].map(|share| share.bytes()),
            [SIZE / 4 / 3 / STEP_BYTES * STEP_BYTES; 3]
        );
        drop((second, third));
        assert_eq!(first.bytes(), SIZE / 4);
    }

    /// Goal: a reader that is not polled takes nothing from the others, and has its share again when it is. Method: the time is an
    /// argument.
    #[test]
    fn idle_readers_do_not_count() {
        let ahead = Ahead::of(engine());
        let idle: Vec<_> = (0..70).map(|_| ahead.share()).collect();
        let reader = ahead.share();
        for second in [1000, 2000] {
            ahead.look_at(Duration::from_secs(second)).unwrap();
            reader.bytes();
        }
        assert_eq!(reader.bytes(), SIZE / 4);
        assert_eq!(idle[0].bytes(), SIZE / 8);
        drop((idle, reader));
        assert_eq!(ahead.readers.load(Ordering::Relaxed), 0);
    }

    /// Goal: memory that the engine loses is noticed by a reader that opens nothing. Method: what was known is made wrong.
    #[test]
    fn readers_look_again() {
        let ahead = Ahead::of(engine());
        let share = ahead.share();
        share.bytes();
        ahead.memory_bytes.store(64 * SIZE, Ordering::Relaxed);
        assert_eq!(share.bytes(), 16 * SIZE, "a second look within a second");
        ahead.next_look_ms.store(0, Ordering::Relaxed);
        assert_eq!(share.bytes(), SIZE / 4);
    }

    /// Goal: stores on one engine have one quarter, those on another have their own.
    #[test]
    fn engines_have_one_quarter_each() {
        let engine = engine();
        let ahead = Ahead::of(engine.clone());
        assert!(Arc::ptr_eq(&ahead, &Ahead::of(engine)));
        assert!(!Arc::ptr_eq(&ahead, &Ahead::of(self::engine())));
        assert!(!Arc::ptr_eq(&ahead, &Ahead::of(None)));
    }
}
