//! Memory: what an engine without a number could have here, and what keeps it from more.
//!
//! Owns: the words for it.
//! Does not own: how that is found out (the engine).

use std::process::ExitCode;

use headwater::{Engine, MemoryBound, MemoryStats};
use headwater_measure::{hanging, terminal_width};
use serde::Serialize;

use crate::shared::output::JsonTo;
use crate::shared::units::readable;

/// Prints what an engine could have now.
pub(super) fn print(json: JsonTo<'_>) -> Result<ExitCode, String> {
    let engine = Engine::builder().build().map_err(|error| format!("failed to {error}"))?;
    let memory = engine.stats().memory;
    json.give(|| text(&memory), &Facts::of(&memory))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Facts {
    mapped_bytes: u64,
    possible_bytes: u64,
    ceiling_bytes: u64,
    bound: &'static str,
    offered_bytes: u64,
    taken_bytes: u64,
}

impl Facts {
    fn of(memory: &MemoryStats) -> Facts {
        let MemoryStats { mapped_bytes, possible_bytes, ceiling_bytes, .. } = *memory;
        let MemoryStats { offered_bytes, taken_bytes, bound, .. } = *memory;
        let bound = bound.name();
        Facts { mapped_bytes, possible_bytes, ceiling_bytes, bound, offered_bytes, taken_bytes }
    }
}

fn text(memory: &MemoryStats) -> String {
    let (possible, ceiling) = (readable(memory.possible_bytes), readable(memory.ceiling_bytes));
    let bound = match memory.bound {
        MemoryBound::Cgroup => "a cgroup of this process has no more to spare",
        MemoryBound::System => "the system has no more to spare",
        _ => "that is all memory of the machine",
    };
    let (offered, taken) = (readable(memory.offered_bytes), readable(memory.taken_bytes));
    let lines = [
        ("could have", format!("{possible} of {ceiling}")),
        ("bound", bound.to_owned()),
        ("on offer", format!("{offered} to the system, which has taken {taken} by itself")),
    ];
    let width = terminal_width();
    let lines = lines.iter().flat_map(|(name, text)| hanging(&format!("  {name:<12}"), text, width));
    let lines = ["memory of an engine".to_owned()].into_iter().chain(lines);
    lines.map(|line| line + "\n").collect()
}
