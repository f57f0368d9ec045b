//! Program: the player beside the stranger: headwater, or an ideal program that checks the game itself.
//!
//! Owns: what both are asked for.
//! Does not own: the ideal one (ideal), the ways to read a file of headwater (looks).

use std::path::Path;

use headwater::{Engine, File};

use crate::api::refresh;
use crate::combination::{Combination, For};
use crate::ideal::{Ideal, IdealFile};
use crate::looks::{Interface, look};
use crate::model::{Model, Outcome};

/// A program that has files open.
pub(crate) enum Program {
    Headwater(Engine, Combination),
    Ideal(Ideal),
}

/// One of its handles.
#[derive(Clone)]
pub(crate) enum Opened {
    Headwater(File),
    Ideal(IdealFile),
}

impl Program {
    pub(crate) fn open(&self, path: &Path, purpose: For) -> Outcome<Opened> {
        match self {
            Program::Headwater(engine, combination) => {
                combination.open(engine, path, purpose).map(Opened::Headwater).map_err(text)
            }
            Program::Ideal(ideal) => ideal.open(path).map(Opened::Ideal).map_err(text),
        }
    }

    pub(crate) fn flush(&self) -> Outcome {
        match self {
            Program::Headwater(engine, _) => engine.flush().map_err(text),
            Program::Ideal(ideal) => ideal.flush().map_err(text),
        }
    }

    pub(crate) fn read(&self, path: &Path) -> Outcome<Vec<u8>> {
        match self {
            Program::Headwater(engine, _) => engine.read(path).map(|bytes| bytes.to_vec()).map_err(text),
            Program::Ideal(ideal) => ideal.read(path).map_err(text),
        }
    }

    /// Reads a file that is larger than the memory, which is given to it.
    pub(crate) fn press(&self, path: &Path) {
        let Program::Headwater(engine, _) = self else { return };
        if !path.exists() {
            std::fs::write(path, vec![1; 4 << 20]).unwrap();
        }
        let mut options = headwater::OpenOptions::new();
        let file = options.engine(engine).caching(headwater::Caching::On).open(path).unwrap();
        let mut part = vec![0; 64 << 10];
        for offset in (0..4 << 20).step_by(64 << 10) {
            file.read_exact_at(&mut part, offset).unwrap();
        }
    }
}

impl Opened {
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: usize) -> Outcome {
        match self {
            Opened::Headwater(file) => file.write_all_at(bytes, offset as u64).map_err(text),
            Opened::Ideal(file) => file.write_all_at(bytes, offset as u64).map_err(text),
        }
    }

    /// Says where the bytes are.
    pub(crate) fn append(&self, bytes: &[u8]) -> Outcome<usize> {
        let at = match self {
            Opened::Headwater(file) => file.append(bytes).map_err(text),
            Opened::Ideal(file) => file.append(bytes).map_err(text),
        };
        at.map(|at| at as usize)
    }

    pub(crate) fn set_len(&self, length: usize) -> Outcome {
        match self {
            Opened::Headwater(file) => file.set_len(length as u64).map_err(text),
            Opened::Ideal(file) => file.set_len(length as u64).map_err(text),
        }
    }

    pub(crate) fn sync_data(&self) -> Outcome {
        match self {
            Opened::Headwater(file) => file.sync_data().map_err(text),
            Opened::Ideal(file) => file.sync().map_err(text),
        }
    }

    pub(crate) fn sync_all(&self) -> Outcome {
        match self {
            Opened::Headwater(file) => file.sync_all().map_err(text),
            Opened::Ideal(file) => file.sync().map_err(text),
        }
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: usize) -> Outcome<usize> {
        match self {
            Opened::Headwater(file) => file.read_at(buffer, offset as u64).map_err(text),
            Opened::Ideal(file) => {
                let bytes = file.read().map_err(text)?;
                let part = bytes.get(offset..).unwrap_or_default();
                let length = part.len().min(buffer.len());
                buffer[..length].copy_from_slice(&part[..length]);
                Ok(length)
            }
        }
    }

    pub(crate) fn refresh(&self) -> Outcome {
        match self {
            Opened::Headwater(file) => refresh(file).map_err(text),
            Opened::Ideal(_) => Ok(()),
        }
    }

    /// Reads all of the file, and says how many bytes were compared.
    pub(crate) fn look(&self, interface: Interface, what: &str, model: &Model) -> Outcome<u64> {
        match self {
            Opened::Headwater(file) => look(file, interface, what, model),
            Opened::Ideal(file) => {
                let bytes = file.read().map_err(text)?;
                model.check(what, &bytes).map(|()| bytes.len() as u64)
            }
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
