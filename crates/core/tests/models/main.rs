//! Every module of the crate against a naive model of it: the model is too slow and too simple to be wrong in
//! the same way. One binary, so that it links once.

mod backing;
mod buddy;
mod cache;
mod dirty;
mod frame;
mod limits;
mod lookup;
mod plan;
mod pool;
mod readahead;
mod readahead_cases;
mod readahead_faults;
mod readahead_policies;
mod readahead_sim;
mod readahead_table;
mod replacement;
mod replacement_naive;
mod replacement_traces;
mod runs;
mod simulation;
mod table;
mod units;
