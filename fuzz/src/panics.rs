//! Panics: those that a function documents are caught; any other ends the process, as a finding.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static DOCUMENTED: Cell<&'static [&'static str]> = const { Cell::new(&[]) };
}

/// Calls a function that documents panics with one of these texts in them. `None` if it panicked with one.
pub fn documented<T>(texts: &'static [&'static str], call: impl FnOnce() -> T) -> Option<T> {
    install();
    let before = DOCUMENTED.replace(texts);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    DOCUMENTED.set(before);
    outcome.ok()
}

/// In front of the hook of libFuzzer, which ends the process.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let ending = take_hook();
        set_hook(Box::new(move |panic| {
            let text = panic.payload_as_str().unwrap_or_default();
            if !DOCUMENTED.get().iter().any(|documented| text.contains(documented)) {
                ending(panic);
            }
        }));
    });
}

/// A range whose fields were set against its invariant, which its type documents to panic.
pub const INVERTED: &str = "range ends before it starts";
