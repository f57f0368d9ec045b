//! Events: what a subscriber of `tracing` hears of reads, and that it hears nothing of hits.
//!
//! Owns: a subscriber that keeps the events of this thread.
//! Does not own: their fields, which are for people.

use std::cell::RefCell;
use std::fmt;
use std::os::unix::fs::FileExt;
use std::sync::Once;
use std::time::Duration;

use headwater::{Caching, OpenOptions};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::rig::{Scratch, rigs};

thread_local! {
    /// Names of the events of this thread, in their order.
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// One for the whole process: which events are wanted at all is known to it once.
struct Subscribed;

impl Subscribed {
    fn install() {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| tracing::subscriber::set_global_default(Subscribed).unwrap());
        take();
    }
}

/// What was heard since the last time.
fn take() -> Vec<String> {
    HEARD.take()
}

impl Subscriber for Subscribed {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "headwater"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message;

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            HEARD.with_borrow_mut(|heard| heard.push(format!("{value:?}")));
        }
    }
}

/// Goal: opening, a miss, its load and an invalidation are told, hits are not. Method: one page, read twice, changed, read
/// again, each by this thread itself.
#[test]
fn what_is_told() {
    let scratch = Scratch::new(1, 4096);
    Subscribed::install();
    for rig in rigs(1) {
        scratch.make_cold();
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).caching(Caching::On).revalidate(Duration::MAX);
        take();
        let file = options.open(scratch.path()).unwrap();
        assert_eq!(take(), ["open"]);
        file.read_exact_at(&mut [0; 100], 0).unwrap();
        assert_eq!(take(), ["miss", "load"], "{}", rig.name());
        for _ in 0..100 {
            file.read_exact_at(&mut [0; 100], 1000).unwrap();
        }
        assert_eq!(take(), [""; 0], "hits are silent");
        scratch.file().write_all_at(&[scratch.pattern.byte(0)], 0).unwrap();
        let again = options.open(scratch.path()).unwrap();
        assert_eq!(take(), ["invalidate", "open"]);
        again.read_exact_at(&mut [0; 100], 0).unwrap();
        assert_eq!(take(), ["miss", "load"]);
    }
}
