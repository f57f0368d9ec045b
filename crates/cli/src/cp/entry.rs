//! Entry: the result of copying one source, for the JSON.

use std::path::PathBuf;

use os_display::Quotable;
use serde::Serialize;

use crate::shared::{json_path, output};

#[derive(Serialize, Default)]
pub(super) struct Entry {
    #[serde(flatten, serialize_with = "json_path::as_source")]
    pub(super) source: PathBuf,
    #[serde(flatten, serialize_with = "json_path::as_destination")]
    pub(super) destination: PathBuf,
    pub(super) length_bytes: u64,
    /// Bytes of data copied: holes do not count, and shared blocks neither.
    pub(super) copied_bytes: u64,
    pub(super) shares_blocks: bool,
    /// With --preserve=links: whether a regular file became another name of a copy that was made before.
    pub(super) is_hard_link: bool,
    /// Whether the existing file was overwritten in place, as no other file could take its place.
    pub(super) in_place: bool,
    /// With --verify: where the files were read from when they were compared.
    pub(super) verified: Option<&'static str>,
    pub(super) seconds: f64,
    /// With --no-clobber: whether it was left out because the destination exists.
    pub(super) skipped: bool,
    /// A directory, which is printed before what is in it, if it is new.
    #[serde(skip)]
    pub(super) is_shown: bool,
    /// The error, if the copy failed.
    pub(super) error: Option<String>,
}

impl Entry {
    /// Prints what was copied to where, as cp does.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn show(&self) -> Result<(), String> {
        if self.skipped || self.is_shown {
            return Ok(());
        }
        let [from, to] = [&self.source, &self.destination].map(|path| path.quote().to_string());
        let how = if self.in_place { " (written in place)" } else { "" };
        output::print(&format!("{from} -> {to}{how}\n"))
    }
}
