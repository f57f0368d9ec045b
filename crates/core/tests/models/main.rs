//! Every module of the crate against a naive model of it: the model is too slow and too simple to be wrong in
//! the same way. One binary, so that it links once.

mod buddy;
mod limits;
mod plan;
mod readahead;
mod readahead_cases;
mod units;
