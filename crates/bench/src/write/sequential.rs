//! Sequential: a file written in order and synced.

use std::io;
use std::time::Instant;

use headwater::Engine;
use headwater_measure::Figures;
use headwater_measure::process::system_cpu_seconds;

use super::contents::{self, Contents};
use super::target::{Target, timed};
use super::{ArmOptions, PIECE_BYTES, Side};
use crate::pages::PAGE;

/// From the opening, which makes the file if it is not there, to the end of the sync. The kernel writes back in threads of its own,
/// so the processor time of the whole machine counts too.
pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    let memory_bytes = (options.side == Side::Headwater64M).then_some(SMALL_BYTES);
    let builder = memory_bytes.into_iter().fold(Engine::builder(), |builder, bytes| builder.memory(bytes));
    let (engine, mut contents) = (builder.build()?, Contents::new());
    let (version, mut sync_s, system_before) = (std::process::id(), 0.0, system_cpu_seconds());
    let (target, figures) = timed(options.length_bytes(), || {
        let target = Target::open(options, &engine)?;
        for offset_bytes in (0..options.length_bytes()).step_by(PIECE_BYTES) {
            target.write_all_at(contents.piece((offset_bytes / PAGE) as u32, version), offset_bytes)?;
        }
        let began = Instant::now();
        target.sync()?;
        sync_s = began.elapsed().as_secs_f64();
        Ok(target)
    })?;
    let system_cpu_s = system_cpu_seconds().zip(system_before).map(|(now, before)| now - before);
    contents::check(&options.file, options.length_bytes(), |_| Some(version))?;
    let figures = system_cpu_s.into_iter().fold(figures, |all, seconds| all.with("system_cpu_s", seconds));
    Ok(target.counted(figures.with("sync_s", sync_s)))
}

const SMALL_BYTES: u64 = 64 << 20;
