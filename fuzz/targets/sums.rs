//! Sums: whatever a list holds, `headwater scan --check` reads lines that can be written and read again, or none.

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
        headwater_cli::fuzzing::read_list(file.with(bytes));
    });
});
