//! Drivers: requests on `uring`, `threads` and `sim`, below everything that makes them comfortable.
//!
//! Owns: one module for each side of a driver.
//! Does not own: readers and files of the engine, which has tests of its own.

mod backing;
mod batches;
mod bench;
mod calls;
mod chaos;
mod crashes;
mod directories;
mod drops;
mod faults;
mod forks;
mod operations;
mod page_cache;
mod panics;
mod releasing;
mod sandboxes;
mod transfers;
mod waiting;
mod waits;
mod writing;
