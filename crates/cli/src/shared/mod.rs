//! Shared: options, output and facts about the system that several commands need.

pub(crate) mod arguments;
pub(crate) mod buffer;
pub(crate) mod complain;
pub(crate) mod fio;
pub(crate) mod foreign;
pub(crate) mod holes;
pub(crate) mod host;
pub(crate) mod json_path;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod prose;
pub(crate) mod random;
pub(crate) mod readahead;
pub(crate) mod storage;
pub(crate) mod target;
pub(crate) mod this_program;
pub(crate) mod units;
