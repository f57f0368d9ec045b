//! Machine: what a reader of results has to know about where they were taken, storage aside.

use std::fs;

use serde::Serialize;

/// The machine without its storage. Empty texts mean that the system does not tell.
#[derive(Serialize, Clone, Debug)]
pub struct Machine {
    kernel: String,
    architecture: String,
    cpus: usize,
    memory_mib: u64,
    transparent_huge_pages: String,
    headwater: &'static str,
}

impl Machine {
    /// That on which this process runs.
    pub fn here() -> Machine {
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

    /// For the report page.
    pub fn facts(&self) -> Vec<(String, String)> {
        known([
            ("Kernel", format!("{} {}", self.kernel, self.architecture)),
            ("Processors", self.cpus.to_string()),
            ("Memory", format!("{} MiB", self.memory_mib)),
            ("Transparent huge pages", self.transparent_huge_pages.clone()),
            ("headwater", self.headwater.to_owned()),
        ])
    }

    /// For the head of a table.
    pub fn words(&self) -> String {
        format!("{}, {} CPUs, {} MiB", self.kernel, self.cpus, self.memory_mib)
    }
}

/// Facts without those that the system does not tell.
pub fn known<const COUNT: usize>(facts: [(&str, String); COUNT]) -> Vec<(String, String)> {
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
