//! Entry: what became of one source, for the JSON.

use serde::Serialize;

#[derive(Serialize, Default)]
pub(super) struct Entry {
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) length_bytes: u64,
    /// Without holes, and zero where blocks were shared.
    pub(super) copied_bytes: u64,
    pub(super) shares_blocks: bool,
    /// Whether the file that was there was written to, as its directory takes no other in its place.
    pub(super) in_place: bool,
    /// From where both were read again and compared, if that was wished.
    pub(super) verified: Option<&'static str>,
    pub(super) seconds: f64,
    /// Why there is no copy.
    pub(super) error: Option<String>,
}
