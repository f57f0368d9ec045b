//! Measure: how the benchmarks of this repository measure and report, for `headwater bench` and `headwater-bench` alike.
//!
//! ```text
//!   suite: rows ─► rounds ─┬─ child: a process a row, in a cgroup of its own, its clocks ─┬─► Row: labels, metrics, samples
//!                          └─ crew: threads that start together, their latencies ─────────┘          │
//!                                                     text │ JSON │ page of HTML ◄─ Report ◄─ verdict┘
//! ```
//!
//! A suite says what is measured, in which ways, and which question that answers; all else is here.
//
// Owns: rounds, children, samples and what counts of them, comparisons, the three forms of a report and the check of their files, the
// standard streams of the programs.
// Does not own: what is measured, and with which library: this crate knows none of headwater's engine.

#![deny(unsafe_code)] // not forbidden, for the sake of `standard`

pub mod affinity;
pub mod cgroup;
pub mod child;
pub mod crew;
mod fold;
pub mod latency;
pub mod machine;
mod page;
pub mod process;
pub mod report;
pub mod result_file;
pub mod rounds;
pub mod row;
pub mod section;
#[allow(unsafe_code)] // what runs before `main` is in a section of its own
pub mod standard;
mod statistics;
mod sum;
pub mod syscalls;
pub mod table;
pub mod verdict;

pub use child::Failure;
pub use fold::{folded, hanging};
pub use latency::Latencies;
pub use machine::Machine;
pub use page::curves::svg;
pub use page::lines::svg as svg_of_lines;
pub use process::Meter;
pub use report::{Findings, Report, Skipped};
pub use row::{Better, Figures, Metric, Row, Whose, median};
pub use section::{
    Bar, Bars, Curve, Curves, Figure, HeatMap, Line, Lines, Media, Method, Section, Table, sentence,
};
pub use statistics::{Summary, interval};
pub use sum::sum_of_words;
pub use table::{Column, Shown, terminal_width};
pub use verdict::{Comparison, Limit, Verdict};
