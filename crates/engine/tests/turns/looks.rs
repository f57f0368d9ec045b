//! Looks: a file read whole through every interface that headwater has.
//!
//! Owns: the interfaces.
//! Does not own: what the file should hold (model).

use std::io::Read;

use futures_util::StreamExt;
use headwater::File;
use headwater_testkit::block_on;

use crate::model::{Model, Outcome};

/// The ways to read a file through a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interface {
    ReadAt,
    ReadAtAsync,
    Reader,
    View,
    Stream,
    Pieces,
}

pub(crate) const INTERFACES: [Interface; 6] = [
    Interface::ReadAt,
    Interface::ReadAtAsync,
    Interface::Reader,
    Interface::View,
    Interface::Stream,
    Interface::Pieces,
];

/// Reads all of the file, and says how many bytes were compared.
pub(crate) fn look(file: &File, interface: Interface, what: &str, model: &Model) -> Outcome<u64> {
    let failed = |error: &dyn std::fmt::Display| format!("{what}, {interface:?}: {error}");
    let bytes = match interface {
        Interface::ReadAt => read_at(file, model.len() + 5000),
        Interface::ReadAtAsync => {
            block_on(file.read_at_async(0, model.len() + 5000)).map(|bytes| bytes.to_vec())
        }
        Interface::Reader => return look_with_reader(file, what, model),
        Interface::View => {
            let length = file.len().map_err(|error| failed(&error))?;
            file.view(0, length as usize).map(|view| view.to_vec())
        }
        Interface::Stream => return look_with_stream(file, what, model),
        Interface::Pieces => read_pieces(file),
    };
    let bytes = bytes.map_err(|error| failed(&error))?;
    model.check(&format!("{what}, {interface:?}"), &bytes)?;
    Ok(bytes.len() as u64)
}

fn look_with_reader(file: &File, what: &str, model: &Model) -> Outcome<u64> {
    let mut bytes = Vec::new();
    file.reader().read_to_end(&mut bytes).map_err(|error| format!("{what}, reader: {error}"))?;
    model.check(&format!("{what}, reader"), &bytes)?;
    Ok(bytes.len() as u64)
}

fn look_with_stream(file: &File, what: &str, model: &Model) -> Outcome<u64> {
    let (mut stream, mut bytes) = (file.stream(), Vec::new());
    while let Some(part) = block_on(stream.next()) {
        bytes.extend_from_slice(&part.map_err(|error| format!("{what}, stream: {error}"))?);
    }
    model.check(&format!("{what}, stream"), &bytes)?;
    Ok(bytes.len() as u64)
}

fn read_at(file: &File, length: usize) -> headwater::Result<Vec<u8>> {
    let mut bytes = vec![0xAA; length];
    let mut done = 0;
    loop {
        let read = file.read_at(&mut bytes[done..], done as u64)?;
        done += read;
        if read == 0 {
            bytes.truncate(done);
            return Ok(bytes);
        }
    }
}

/// In odd pieces, each for itself.
fn read_pieces(file: &File) -> headwater::Result<Vec<u8>> {
    let length = file.len()? as usize;
    let mut bytes = vec![0xAA; length];
    let mut done = 0;
    while done < length {
        let end = length.min(done + 1 + done % 5003);
        file.read_exact_at(&mut bytes[done..end], done as u64)?;
        done = end;
    }
    Ok(bytes)
}
