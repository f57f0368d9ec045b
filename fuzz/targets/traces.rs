//! Traces: whatever a file holds, `headwater trace replay` counts it without contradiction or says what is wrong.

#![no_main]
#![forbid(unsafe_code)]

use std::cell::RefCell;

use headwater_fuzz::memory_file::MemoryFile;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static FILE: RefCell<MemoryFile> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| {
    FILE.with_borrow_mut(|file| {
        if let Err(text) = headwater_cli::fuzzing::replay(file.with(bytes)) {
            assert!(!text.is_empty() && !text.contains('\n'), "an error is one line: {text:?}");
        }
    });
});
