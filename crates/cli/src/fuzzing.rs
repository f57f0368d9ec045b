//! Fuzzing: the private parsers, for the targets in `fuzz/`; built with `--cfg fuzzing` alone.

pub use crate::args::fuzzing::{Answer, answer_to, vocabulary};
pub use crate::scan::fuzzing::read_list;
pub use crate::trace::fuzzing::replay;
