//! Host: what a reader of the results has to know about the machine and the storage below a file.
//!
//! Owns: their words.
//! Does not own: where the facts are found (`headwater-measure`, `storage`).

use std::path::Path;

use headwater_measure::{Machine, machine};
use serde::Serialize;

use crate::shared::storage::Storage;

/// The machine and what a file lies on. Empty texts and `None` mean that the system does not tell.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Host {
    #[serde(flatten)]
    pub(crate) machine: Machine,
    #[serde(flatten)]
    pub(crate) storage: Storage,
    /// Which driver headwater used; known when it has run.
    pub(crate) driver: Option<String>,
}

impl Host {
    pub(crate) fn of(path: &Path) -> Host {
        Host { machine: Machine::here(), storage: Storage::of(path), driver: None }
    }

    /// With the first driver that a row has reported.
    pub(crate) fn with_driver<'a>(
        path: &Path,
        drivers: impl IntoIterator<Item = &'a Option<String>>,
    ) -> Host {
        Host { driver: drivers.into_iter().flatten().next().cloned(), ..Host::of(path) }
    }

    /// For the report page; what the system does not tell is left out.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let storage = &self.storage;
        let text = |value: Option<String>| value.unwrap_or_default();
        let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
        let facts = machine::known([
            ("File system", storage.file_system.clone()),
            ("Device", storage.device.clone()),
            ("Kernel readahead", text(storage.read_ahead_kb.map(|kb| format!("{kb} KiB")))),
            ("Logical block", text(storage.logical_block_bytes.map(|bytes| format!("{bytes} bytes")))),
            ("Rotational, by sysfs", text(storage.rotational.map(yes))),
            ("Polled completion", text(storage.polls.map(yes))),
            ("headwater's driver", text(self.driver.clone())),
        ]);
        self.machine.facts().into_iter().chain(facts).collect()
    }

    /// One line for the head of a table.
    pub(crate) fn line(&self) -> String {
        let known = |text: &str, otherwise: &str| if text.is_empty() { otherwise } else { text }.to_owned();
        let read_ahead = self.storage.read_ahead_kb.map_or("unknown".into(), |kb| format!("{kb} KiB"));
        format!(
            "{}, {} on {}, kernel readahead {read_ahead}, driver {}",
            self.machine.words(),
            known(&self.storage.file_system, "unknown file system"),
            known(&self.storage.device, "unknown device"),
            self.driver.as_deref().unwrap_or("none"),
        )
    }
}
