//! Moods: wakers and listeners as bad programs have them.
//!
//! Owns: what they do when they are called, and what they note.
//! Does not own: when tasks are polled.

use std::any::Any;
use std::future::Future;
use std::panic;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use headwater::{EvictionListener, File};

/// What other people's code does when it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mood {
    Calm,
    Panics,
    Reads,
    /// Drops a handle, or its own guard.
    Drops,
}

/// How often each mood came out.
#[derive(Debug, Default)]
pub(crate) struct Outbreaks {
    pub(crate) panicked: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

/// Wakes a task.
pub(crate) struct Alarm {
    pub(crate) is_woken: AtomicBool,
    pub(crate) mood: Mood,
    pub(crate) file: Mutex<Option<File>>,
    pub(crate) outbreaks: Arc<Outbreaks>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let file = self.file.lock().unwrap().take();
        match (self.mood, file) {
            // A waker must not block, as those of executors that poll at once do not.
            (Mood::Reads, Some(file)) => {
                self.outbreaks.read.fetch_add(1, Ordering::Relaxed);
                let reading = pin!(file.read_at_async(4090, 10));
                let _ = reading.poll(&mut Context::from_waker(Waker::noop()));
            }
            (mood, file) => act(mood, file, &self.outbreaks),
        }
    }
}

fn act(mood: Mood, file: Option<File>, outbreaks: &Outbreaks) {
    match mood {
        Mood::Calm => {}
        Mood::Panics => {
            outbreaks.panicked.fetch_add(1, Ordering::Relaxed);
            panic::panic_any(EXPECTED);
        }
        Mood::Reads => {
            if let Some(file) = file {
                outbreaks.read.fetch_add(1, Ordering::Relaxed);
                // It may fail as any other.
                let _ = file.read_at(&mut [0; 10], 4090);
            }
        }
        Mood::Drops => {
            outbreaks.dropped.fetch_add(u64::from(file.is_some()), Ordering::Relaxed);
        }
    }
}

/// A listener of a file; its guard lies where it can reach it itself.
pub(crate) fn listen(
    file: &File,
    mood: Mood,
    outbreaks: &Arc<Outbreaks>,
) -> Arc<Mutex<Option<EvictionListener>>> {
    let guard = Arc::new(Mutex::new(None));
    let (held, to_read, outbreaks) = (Arc::downgrade(&guard), file.clone(), outbreaks.clone());
    // One that reads what has just left, again and again, keeps its thread busy for ever.
    let left = AtomicU64::new(READS_MAX);
    let listener = file.on_evicted(move |_| match mood {
        Mood::Reads
            if left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_err() => {}
        Mood::Drops => {
            let guard = held.upgrade().and_then(|held| held.try_lock().ok()?.take());
            outbreaks.dropped.fetch_add(u64::from(guard.is_some()), Ordering::Relaxed);
        }
        mood => act(mood, Some(to_read.clone()), &outbreaks),
    });
    *guard.lock().unwrap() = Some(listener);
    guard
}

/// Whether a panic is one of these.
pub(crate) fn is_expected(payload: &dyn Any) -> bool {
    payload.downcast_ref::<&str>() == Some(&EXPECTED)
}

const READS_MAX: u64 = 100;

const EXPECTED: &str = "a waker or a listener that panics";
