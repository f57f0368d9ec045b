//! tmp
use super::OpenFile;
use std::io;
/// tmp
#[derive(Debug)]
pub struct AppendFile;
/// tmp
#[derive(Debug)]
pub struct Appended {
    /// tmp
    pub offset_bytes: u64,
    /// tmp
    pub length: usize,
}
impl AppendFile {
    /// tmp
    pub fn new(_: &OpenFile, _: &std::path::Path) -> io::Result<AppendFile> { Ok(AppendFile) }
    /// tmp
    pub fn append(&self, _: &[u8]) -> io::Result<Appended> { Err(io::ErrorKind::Unsupported.into()) }
}
