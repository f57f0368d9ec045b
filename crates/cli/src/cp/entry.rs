//! Entry: the result of copying one source, for the JSON.

use serde::Serialize;

#[derive(Serialize, Default)]
pub(super) struct Entry {
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) length_bytes: u64,
    /// Bytes of data copied: holes do not count, and shared blocks neither.
    pub(super) copied_bytes: u64,
    pub(super) shares_blocks: bool,
    /// Whether the existing file was overwritten in place, as no other file could take its place.
    pub(super) in_place: bool,
    /// With --verify: where the files were read from when they were compared.
    pub(super) verified: Option<&'static str>,
    pub(super) seconds: f64,
    /// The error, if the copy failed.
    pub(super) error: Option<String>,
}
