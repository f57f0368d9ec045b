//! Engine: files of any length through an engine with little memory, at any offset, against a sparse model.
//!
//! ```text
//!   case ─► engine (driver), handles (caching, mode, readahead) ─► steps ─► Actor ─► the model's bytes, or a clear error
//! ```

#![no_main]
#![forbid(unsafe_code)]

mod actor;
mod steps;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: steps::Case| actor::run(&case));
