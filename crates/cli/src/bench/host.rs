//! Host: what a reader of the results has to know about the machine.
//!
//! Owns: the facts about the machine and where they are found.
//! Does not own: those about storage (`storage`), their interpretation.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::shared::storage::Storage;

/// The machine without its storage. Empty texts mean that the system does not tell.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Machine {
    pub(super) kernel: String,
    pub(super) architecture: String,
    pub(super) cpus: usize,
    pub(super) memory_mib: u64,
    pub(super) transparent_huge_pages: String,
    pub(super) headwater: &'static str,
}

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

impl Machine {
    pub(super) fn here() -> Machine {
        let names = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        Machine {
            kernel: format!("{} {}", text(names.sysname()), text(names.release())),
            architecture: text(names.machine()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_mib(),
            transparent_huge_pages: chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
            headwater: env!("CARGO_PKG_VERSION"),
        }
    }

    /// For the report page; what the system does not tell is left out.
    pub(super) fn facts(&self) -> Vec<(String, String)> {
        let facts = [
            ("Kernel", format!("{} {}", self.kernel, self.architecture)),
            ("Processors", self.cpus.to_string()),
            ("Memory", format!("{} MiB", self.memory_mib)),
            ("Transparent huge pages", self.transparent_huge_pages.clone()),
            ("headwater", self.headwater.to_owned()),
        ];
        known(facts)
    }

    /// For the head of a table.
    pub(crate) fn words(&self) -> String {
        format!("{}, {} CPUs, {} MiB", self.kernel, self.cpus, self.memory_mib)
    }
}

impl Host {
    pub(crate) fn of(path: &Path) -> Host {
        Host { machine: Machine::here(), storage: Storage::of(path), driver: None }
    }

    /// For the report page; what the system does not tell is left out.
    pub(super) fn facts(&self) -> Vec<(String, String)> {
        let storage = &self.storage;
        let text = |value: Option<String>| value.unwrap_or_default();
        let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
        let facts = [
            ("File system", storage.file_system.clone()),
            ("Device", storage.device.clone()),
            ("Kernel readahead", text(storage.read_ahead_kb.map(|kb| format!("{kb} KiB")))),
            ("Logical block", text(storage.logical_block_bytes.map(|bytes| format!("{bytes} bytes")))),
            ("Rotational, by sysfs", text(storage.rotational.map(yes))),
            ("Polled completion", text(storage.polls.map(yes))),
            ("headwater's driver", text(self.driver.clone())),
        ];
        self.machine.facts().into_iter().chain(known(facts)).collect()
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

fn known<const COUNT: usize>(facts: [(&str, String); COUNT]) -> Vec<(String, String)> {
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    facts.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn memory_mib() -> u64 {
    let information = rustix::system::sysinfo();
    (information.totalram as u64).saturating_mul(u64::from(information.mem_unit)) >> 20
}

/// The word in brackets of a file such as `always [madvise] never`.
fn chosen(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map(|(word, _)| word.to_owned()).unwrap_or_default()
}
