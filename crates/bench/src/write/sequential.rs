//! Sequential: a file written in order and synced.

use std::io;

use headwater_measure::Figures;

use super::contents::{self, Contents};
use super::target::{Target, engine, timed};
use super::{ArmOptions, PIECE_BYTES};
use crate::pages::PAGE;

/// From the opening, which makes the file if it is not there, to the end of the sync.
pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    let (engine, mut contents) = (engine(MEMORY_BYTES)?, Contents::new());
    let version = std::process::id();
    let (target, figures) = timed(options.length_bytes(), || {
        let target = Target::open(options, &engine)?;
        for offset_bytes in (0..options.length_bytes()).step_by(PIECE_BYTES) {
            target.write_all_at(contents.piece((offset_bytes / PAGE) as u32, version), offset_bytes)?;
        }
        target.sync()?;
        Ok(target)
    })?;
    contents::check(&options.file, options.length_bytes(), |_| Some(version))?;
    Ok(target.counted(figures))
}

/// The default of an engine.
const MEMORY_BYTES: u64 = 64 << 20;
