//! Foreign: storage that is no disk of this machine, and what that means for figures and for reading.
//!
//! A file across such a border can be a hundred times slower than one on a disk beside it (9p between a guest and its host, a
//! network, a program behind FUSE), and nothing in its path shows that.
//!
//! Owns: the words.
//! Does not own: which storage a file has (the engine's `Device`), where the words are shown.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use headwater::testing::profiles::{Device, Nature};

/// A file system without a disk below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Foreign {
    /// `9p`.
    kind: String,
    nature: Nature,
}

impl Foreign {
    /// `None` on a disk.
    pub(crate) fn of(device: &Device) -> Option<Foreign> {
        let (kind, nature) = (device.file_system.clone(), device.nature);
        (nature != Nature::Disk).then_some(Foreign { kind, nature })
    }

    /// The same of a file, a directory or a block device that can be opened. `None` where the system does not tell.
    pub(crate) fn at(path: &Path) -> Option<Foreign> {
        Foreign::of(&Device::of(File::open(path).ok()?.as_fd()).ok()?)
    }

    /// For figures that were measured there.
    pub(crate) fn of_figures(&self) -> String {
        let Foreign { kind, .. } = self;
        format!("{kind} {}: what was measured is {}", self.what(), self.behind())
    }

    /// For a file there.
    pub(crate) fn of_file(&self) -> String {
        let Foreign { kind, nature } = self;
        let advice = match nature {
            Nature::Network | Nature::Other => {
                "; where speed counts, keep the file on a disk of this machine"
            }
            Nature::Disk | Nature::Memory | Nature::Overlay => "",
        };
        format!("{kind} {}: what is read comes from {}{advice}", self.what(), self.behind())
    }

    fn what(&self) -> &'static str {
        match self.nature {
            Nature::Disk => "lies on a disk",
            Nature::Memory => "is made of memory",
            Nature::Network => "is another machine's",
            Nature::Overlay => "lies upon other file systems",
            Nature::Other => "has no device of its own",
        }
    }

    fn behind(&self) -> &'static str {
        match self.nature {
            Nature::Disk => "that disk",
            Nature::Memory => "memory, and no device",
            Nature::Network => "the network and the caches on its way",
            Nature::Overlay => "whichever of them has the file",
            Nature::Other => "whatever answers for it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each kind of storage has its own warning, with advice where there is any.
    #[test]
    fn storage_without_a_disk_is_warned_of() {
        let foreign = |kind: &str, nature| Foreign { kind: kind.to_owned(), nature };
        let network = foreign("9p", Nature::Network);
        assert_eq!(
            network.of_figures(),
            "9p is another machine's: what was measured is the network and the caches on its way"
        );
        assert!(network.of_file().ends_with("keep the file on a disk of this machine"));
        assert!(foreign("fuse", Nature::Other).of_file().contains("whatever answers for it; where"));
        assert!(foreign("overlay", Nature::Overlay).of_figures().contains("whichever of them"));
        assert!(Foreign::at(Path::new("/proc/version")).unwrap().of_file().contains("made of memory"));
        assert_eq!(Foreign::at(Path::new("/nowhere")), None);
    }
}
