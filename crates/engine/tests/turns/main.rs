//! Turns: headwater and programs that know nothing of it change the same files, in turn and at once.
//!
//! ```text
//!   Game (headwater) ◄── turns ──► Stranger, another process, std alone
//!        └──► after each turn: every byte, through every interface of both, against a model
//! ```
//!
//! Owns: that nothing of either is lost, and nothing is stale beyond what `Coherence` says.
//! Does not own: what headwater does with a file for itself (writing), leases (coherence).

#![forbid(unsafe_code)]

mod api;
mod appends;
mod combination;
mod contents;
mod draw;
mod findings;
mod foreign;
mod game;
mod ideal;
mod looks;
mod model;
mod program;
mod races;
mod rounds;
mod unreported;
mod unwritten;
mod ways;
