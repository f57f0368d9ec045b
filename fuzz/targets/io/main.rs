//! Io: the safe functions of `headwater-io`, with any ranges, offsets and lengths.
//!
//! ```text
//!   input ─┬─ requests ─► arena, file, drivers ─┐
//!          ├─ pages ────► page cache ───────────┼─► each byte is the model's, no neighbour has changed
//!          ├─ live ─────► live memory ──────────┤
//!          └─ mapped ───► mapped file ──────────┘
//! ```

#![no_main]
#![forbid(unsafe_code)]

mod live;
mod mapped;
mod pages;
mod requests;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Case<'a> {
    Requests(requests::Case),
    Pages(Vec<pages::Operation>),
    Live(live::Case<'a>),
    Mapped(mapped::Case),
}

fuzz_target!(|case: Case<'_>| match case {
    Case::Requests(case) => requests::run(&case),
    Case::Pages(operations) => pages::run(&operations),
    Case::Live(case) => live::run(&case),
    Case::Mapped(case) => mapped::run(&case),
});
