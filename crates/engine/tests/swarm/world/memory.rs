//! Memory: a cache that is full, a system that runs short of memory, and what the engine gives back.
//!
//! Owns: what else is read, what the system seems to have free.
//! Does not own: the cache's own limit (steps), taking what is on offer (the kernel, when a step says so).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use headwater::{Caching, Elasticity, EngineBuilder, OpenOptions};
use headwater_testkit::Pattern;

use super::{Outcome, World, text};
use crate::coverage::Reached;
use crate::steps::Headroom;

/// Has the engine see as much memory as the steps will say, or as there is.
pub(super) fn limit(
    builder: EngineBuilder,
    headroom: Headroom,
    directory: &Path,
) -> io::Result<EngineBuilder> {
    match headroom {
        Headroom::Real => Ok(builder),
        Headroom::Unasked => Ok(builder.elasticity(Elasticity::Off)),
        Headroom::Simulated => {
            let root = system(directory);
            fs::create_dir_all(root.join("proc"))?;
            set_free(&root, TOTAL_MIB)?;
            Ok(builder.pressure_below(&root))
        }
    }
}

impl World {
    /// Another file is read.
    pub(super) fn press(&mut self) -> Outcome {
        if !self.pressing.exists() {
            Pattern::new(0).write_file(&self.pressing, PRESSING_BYTES).map_err(text)?;
        }
        let mut options = OpenOptions::new();
        let file = options.engine(&self.engine).caching(Caching::On).open(&self.pressing).map_err(text)?;
        let mut buffer = vec![0; 256 << 10];
        for offset_bytes in (0..PRESSING_BYTES).step_by(buffer.len()) {
            match file.read_exact_at(&mut buffer, offset_bytes) {
                Err(_) if self.is_faulty => return Ok(()),
                read => read.map_err(text)?,
            }
            if Pattern::new(0).mismatch(offset_bytes, &buffer).is_some() {
                return Err(format!("another file has wrong bytes from {offset_bytes}"));
            }
        }
        self.coverage.note(Reached::Pressed);
        Ok(())
    }

    pub(super) fn squeeze(&mut self, free_mebibytes: u64) -> Outcome {
        set_free(&system(&self.directory), free_mebibytes).map_err(text)?;
        let relief = self.engine.relieve();
        self.coverage.note_if(relief.released_bytes > 0, Reached::MemoryReleased);
        let offered_bytes = self.engine.stats().memory.offered_bytes;
        self.coverage.note_if(offered_bytes > 0, Reached::MemoryOffered);
        Ok(())
    }
}

/// Where the engine looks instead of `/`.
fn system(directory: &Path) -> PathBuf {
    directory.join("system")
}

/// In place: the engine keeps the file open.
fn set_free(root: &Path, free_mebibytes: u64) -> io::Result<()> {
    let kib = |mebibytes: u64| mebibytes << 10;
    let text = format!("MemTotal: {:>12} kB\nMemAvailable: {:>12} kB\n", kib(TOTAL_MIB), kib(free_mebibytes));
    fs::write(root.join("proc/meminfo"), text)
}

/// Of which a quarter is the reserve, the least that there is.
const TOTAL_MIB: u64 = 64;

/// Of the other file: more than the smallest memory.
const PRESSING_BYTES: u64 = 4 << 20;
